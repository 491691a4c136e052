//! Arithmetic in registers: from visits to rows, and all of them in a table.

use membound_core::in_order::InOrder;
use schemars::JsonSchema;
use serde::Serialize;

use crate::answer::Answer;
use crate::missing::reasons;
use crate::quality::Sampled;
use crate::rate::Rate;
use crate::row::{Metric, Row};
use crate::section::{Section, Table};
use crate::visits::Visits;
use crate::wording::{SPREAD_CAPTION, spread, threads};
use membound_core::case::Work;
use membound_core::kernel::flops::Flops;
use membound_core::kernel::{Element, Width};
use membound_core::machine::spec::Balance;
use membound_core::record::{Measured, Measurement};
use membound_core::units::significant;

/// A kind of arithmetic on so many threads.
pub type FlopsRow = Row<FlopsFigures>;

/// What cores compute when they wait for no data.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct FlopsFigures {
    /// Floating-point operations a second, over all threads. Absent where nothing was measured.
    pub flops_per_s: Option<Rate>,
    /// The same in a core clock cycle, by thread: median.
    pub flops_per_cycle: Option<f64>,
    /// True core clock during the samples.
    pub core_clock_hz: Option<f64>,
}

/// What tells rows of arithmetic from each other.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FlopsKeys {
    /// What is computed with.
    element: Element,
    /// Width of an instruction.
    width: Width,
    /// The mix of additions and multiplications.
    balance: Balance,
    /// Number of threads.
    threads: usize,
    /// Their CPUs.
    cpus: Vec<u32>,
}

impl Metric for FlopsFigures {
    const NAME: &'static str = "flops";
    const UNIT: &'static str = "flop/s";
    type Keys = FlopsKeys;

    fn keys(row: &FlopsRow) -> FlopsKeys {
        let Flops { element, width, balance } = row.flops();
        FlopsKeys { element, width, balance, threads: row.case.threads(), cpus: row.case.cpus.clone() }
    }

    fn what(row: &FlopsRow) -> String {
        let Flops { element, width, balance } = row.flops();
        format!("{balance} {width} {element}")
    }
}

impl FlopsRow {
    /// What was computed.
    pub fn flops(&self) -> Flops {
        let flops = if let Work::Flops(flops) = self.case.work { Some(flops) } else { None };
        flops.expect("rows of arithmetic are made of arithmetic alone")
    }
}

/// The roofline tells what they mean for kernels.
impl Answer for Vec<FlopsRow> {
    fn sections(&self) -> Vec<Section> {
        let measured: Vec<&FlopsRow> = self.iter().filter(|row| row.flops_per_s.is_some()).collect();
        let section = Section {
            id: "flops",
            title: "Arithmetic in registers".into(),
            about: format!("GF/s: 10^9 operations a second, {SPREAD_CAPTION}. A cycle: of the core clock, by thread."),
            tables: if measured.is_empty() { Vec::new() } else { vec![table(&measured)] },
            missing: reasons(self),
            ..Section::default()
        };
        if self.is_empty() { Vec::new() } else { vec![section] }
    }
}

fn table(rows: &[&FlopsRow]) -> Table {
    let count = |at: usize| rows[at].case.threads();
    let starts = (0..rows.len()).filter(|&at| at == 0 || count(at - 1) != count(at));
    let rate = |rate: Rate| format!("{} {}", significant(rate.value() / 1e9), spread(&rate));
    let table = Table::new("")
        .left("arithmetic", rows.iter().map(|row| row.flops().balance.to_string()))
        .right("width", rows.iter().map(|row| row.flops().width.to_string()))
        .left("element", rows.iter().map(|row| row.flops().element.to_string()))
        .right("GF/s", rows.iter().map(|row| row.flops_per_s.map(rate)))
        .right("flops\na cycle", rows.iter().map(|row| row.flops_per_cycle.map(significant)))
        .flags(rows.iter().copied());
    Table { titles: starts.map(|at| (at, threads(count(at)))).collect(), ..table }
}

/// One row a case, by threads, element, width and balance.
pub(crate) fn rows(visits: &Visits<'_>) -> Vec<FlopsRow> {
    let mut rows: Vec<FlopsRow> = visits.rows(|case| row(case, visits));
    rows.order_by_key(|row| {
        let Flops { element, width, balance } = row.flops();
        (row.case.threads(), element, width, balance)
    });
    rows
}

fn row(visits: &[&Measurement], all: &Visits<'_>) -> Option<FlopsRow> {
    let hz = all.hz();
    let case = &visits[0].case;
    let Work::Flops(_) = case.work else { return None };
    let mut sampled = Sampled::of(visits, &all.gauge, |visit| flops_per_s(visit, hz));
    let figures = FlopsFigures {
        flops_per_s: sampled.rate(),
        flops_per_cycle: sampled.per_cycle(case.threads(), hz).map(|figure| figure.value()),
        core_clock_hz: sampled.core_clock(hz),
    };
    Some(Row { case: case.clone(), quality: sampled.quality, figures })
}

pub(crate) fn flops_per_s(visit: &Measured, hz: f64) -> Vec<f64> {
    let flops = visit.volume.flops as f64 * visit.repetitions as f64;
    visit.samples.ticks.iter().map(|ticks| flops / (*ticks as f64 / hz)).collect()
}
