//! What work costs in energy: a table and a chart for each meter.

use crate::answer::Answer;
use crate::chart::{Axis, Chart, Limit, Scale, Series, Shape, line, rounded};
use crate::experiments::energy::rows::EnergyRow;
use crate::missing::reasons;
use crate::quality::Status;
use crate::rate::Cost;
use crate::section::{Cell, Room, Section, Table};
use crate::wording::gbps;
use membound_core::in_order::{InOrder, grouped};
use membound_core::units::{BytesPerSecond, significant};

const ABOUT: &str = "Watts, and joules for 1e9 bytes or operations, medians; ± is half the 95 % interval, the meter's step \
    included. Beyond idle: less what the machine draws at rest, which is drawn anyway.";

impl Answer for Vec<EnergyRow> {
    /// The answer: the dearest way to memory by the widest meter, or why there is none.
    fn sentences(&self) -> Vec<String> {
        let refused = self.iter().map(|row| &row.quality).find(|quality| quality.outcome == Status::Unavailable);
        let refusal = refused.and_then(|quality| quality.reason.as_ref());
        let first = ["package", "dram"].map(|part| sentence(self, part));
        let said: Vec<String> = first.into_iter().flatten().collect();
        match (
            said.is_empty(),
            self.iter().filter(|row| row.quality.is_measured()).find_map(|row| row.meter.clone()),
            refusal,
        ) {
            (false, ..) => said,
            (true, Some(meter), _) => sentence(self, &meter).into_iter().collect(),
            (true, None, Some(reason)) => vec![format!("Energy was not measured: {reason}.")],
            (true, None, None) => Vec::new(),
        }
    }

    /// The tables.
    fn sections(&self) -> Vec<Section> {
        if self.is_empty() {
            return Vec::new();
        }
        let meters = meters(self);
        vec![Section {
            id: "energy",
            title: "Energy".into(),
            about: if meters.is_empty() { String::new() } else { ABOUT.into() },
            sentences: self.sentences(),
            tables: meters.iter().map(|(meter, rows)| of_meter(meter, rows)).collect(),
            charts: meters.iter().filter_map(|(meter, rows)| chart(meter, rows)).collect(),
            missing: reasons(self),
            ..Section::default()
        }]
    }
}

/// `[low, high]`.
fn range(cost: &Cost) -> String {
    format!("[{}, {}]", significant(cost.ends()[0]), significant(cost.ends()[1]))
}

fn sentence(rows: &[EnergyRow], meter: &str) -> Option<String> {
    let is_ours = |row: &&EnergyRow| row.meter.as_deref() == Some(meter) && !row.is_idle() && row.quality.is_measured();
    let ours = || rows.iter().filter(is_ours);
    let largest = ours().map(|row| row.case.working_set).max()?;
    let priority = |row: &&EnergyRow| ["triad", "copy", "load"].iter().rposition(|name| *name == row.kernel());
    let row = ours().filter(|row| row.case.working_set == largest).min_by_key(|row| priority(row).unwrap_or(9))?;
    let (power, energy, rate) = (row.power_w?, row.payload_j_per_gb?, row.payload_bps?);
    let mut text = format!(
        "{}: {} over {} on {} CPUs costs {} J for each GB of payload {} ({} W {} at {})",
        meter,
        row.kernel(),
        row.case.working_set,
        row.case.threads(),
        significant(energy.value()),
        range(&energy),
        significant(power.value()),
        range(&power),
        BytesPerSecond(rate.value())
    );
    if let (Some(idle), Some(beyond)) = (row.idle_power_w, row.beyond_idle_j_per_gb) {
        let [idle, own] = [significant(idle.value()), significant(beyond.value())];
        text += &format!("; {own} J {} of it beyond the {idle} W at rest", range(&beyond));
    }
    Some(text + ".")
}

/// The rows of each meter, the whole package first.
fn meters(all: &[EnergyRow]) -> Vec<(&str, Vec<&EnergyRow>)> {
    let metered = grouped(all, |row| row.meter.as_deref());
    let mut meters: Vec<_> = metered.into_iter().filter_map(|(meter, rows)| Some((meter?, rows))).collect();
    meters.order_by_key(|(meter, _)| *meter != "package");
    meters
}

fn of_meter(meter: &str, rows: &[&EnergyRow]) -> Table {
    let moving = |row: &EnergyRow, text: String| if row.is_idle() { String::new() } else { text };
    let costs = |cost: fn(&EnergyRow) -> Option<Cost>| rows.iter().map(move |row| cost(row).map(figure));
    let medians = |cost: fn(&EnergyRow) -> Option<Cost>| rows.iter().map(move |row| cost(row).map(median));
    Table::new(meter)
        .left("kernel", rows.iter().map(|row| row.kernel()))
        .left("store", rows.iter().map(|row| row.case.variant().map_or("", |variant| variant.store.word())))
        .right("size", rows.iter().map(|row| moving(row, row.case.working_set.to_string())))
        .right("threads", rows.iter().map(|row| moving(row, row.case.threads().to_string())))
        .right("GB/s", rows.iter().map(|row| row.payload_bps.map(|rate| gbps(rate.value()))))
        .right("W", costs(|row| row.power_w))
        .right("J/GB\npayload", costs(|row| row.payload_j_per_gb))
        .right("J/GB\nbus", medians(|row| row.bus_j_per_gb))
        .right("J/GB\nbeyond idle", costs(|row| row.beyond_idle_j_per_gb))
        .right("J/Gflop", medians(|row| row.j_per_gflop))
        .right("samples", rows.iter().map(|row| row.quality.samples.to_string()))
        .in_room(Room::Wide)
        .flags(rows.iter().copied())
        .without_blanks()
}

/// `12.3 ±2%`: the interval's half against the median.
fn figure(cost: Cost) -> Cell {
    let half = (cost.ends()[1] - cost.ends()[0]) / 2.0 / cost.value().abs() * 100.0;
    let spread = match half {
        half if !half.is_finite() => String::new(),
        half if half < 9.95 => format!(" ±{half:.1}%"),
        half => format!(" ±{half:.0}%"),
    };
    Cell { text: significant(cost.value()) + &spread, ..median(cost) }
}

fn median(cost: Cost) -> Cell {
    Cell { text: significant(cost.value()), hint: format!("{} {}", cost.ends_word(), range(&cost)), ..Cell::default() }
}

/// Joules for each gigabyte, a bar each kernel.
fn chart(meter: &str, rows: &[&EnergyRow]) -> Option<Chart> {
    let moving: Vec<&&EnergyRow> = rows.iter().filter(|row| row.payload_j_per_gb.is_some()).collect();
    let name = |row: &&&EnergyRow| {
        let store = row.case.variant().map_or("", |variant| variant.store.word());
        format!("{} {store} {}", row.kernel(), row.case.working_set)
    };
    let bars = |name: &str, colour: usize, of: fn(&EnergyRow) -> Option<Cost>| {
        let point = |(at, row): (usize, &&&EnergyRow)| {
            let cost = of(row)?;
            let [low, high] = cost.ends().map(|end| rounded(end.max(0.0)));
            Some((at as f64, rounded(cost.value()), low, high, row.quality.samples))
        };
        let points = moving.iter().enumerate().filter_map(point).collect();
        Series { shape: Shape::Bar, colour, ..line(name.into(), points) }
    };
    let series =
        vec![bars("payload", 0, |row| row.payload_j_per_gb), bars("beyond idle", 1, |row| row.beyond_idle_j_per_gb)];
    let series: Vec<Series> = series.into_iter().filter(|series| !series.points.is_empty()).collect();
    let x = Axis {
        names: moving.iter().map(name).collect(),
        ..Axis::new("kernel, store kind, working set", "", Scale::Names)
    };
    let y = Axis::new("J for each GB of payload", "J/GB", Scale::Linear);
    // The cheapest that was seen is what the others are to be held against.
    let least =
        moving.iter().filter_map(|row| row.payload_j_per_gb).map(|cost| cost.value()).fold(f64::INFINITY, f64::min);
    let limit = Limit { name: format!("least {}", significant(least)), at: least };
    let chart = Chart::new(format!("Energy of moving a gigabyte, {meter}"), String::new(), x, y, series);
    (!moving.is_empty()).then_some(Chart { limits: vec![limit], ..chart })
}
