//! Where lines live: which address bits choose what two lines get in each other's way at.

use crate::visits::Visits;
use fastrand::Rng;

use schemars::JsonSchema;
use serde::Serialize;

use crate::experiments::addrmap::rule::Remainder;
use crate::experiments::addrmap::solver::{Batch, Determined, Evidence, Solution, Space};
use crate::flag::Flag;
use crate::quality::Sampled;
use crate::row::{Metric, Row};
use membound_core::case::{Case, Work};
use membound_core::experiments::addrmap::known_page;
use membound_core::in_order::grouped;
use membound_core::machine::Machine;
use membound_core::memory::MemoryKind;
use membound_core::record::{Measured, Measurement, Outcome};
use membound_core::units::{Bytes, Hertz, LINE};
use membound_core::work::addrmap::Conflict;

/// An experiment on one memory: keeps the answers and names the next question as a case. A record's measurements, noted
/// one after the other, lead to the same verdict.
#[derive(Debug)]
pub struct Experiment {
    case: Case,
    hz: f64,
    is_virtual: bool,
    space: Space,
    evidence: Evidence,
    random: Rng,
}

impl Experiment {
    /// Asks about the memory of `case`, whose questions do not matter. `hz` is the rate of the clock; the seed decides
    /// which pairs are drawn.
    pub fn new(case: &Case, hz: Hertz, machine: &Machine, seed: u64) -> Self {
        let page = known_page(case.memory.kind).unwrap_or(Bytes::mib(2));
        Experiment {
            case: case.clone(),
            hz: hz.0,
            is_virtual: machine.is_virtual(),
            space: Space::new(page, case.working_set),
            evidence: Evidence::default(),
            random: Rng::with_seed(seed),
        }
    }

    /// Takes an answer in. Answers to anything else are left out.
    pub fn note(&mut self, measurement: &Measurement) {
        let (Work::Conflict(batch), Outcome::Measured(measured)) = (&measurement.case.work, &measurement.outcome)
        else {
            return;
        };
        // What a virtual machine calls physical is the hypervisor's choice above the bits of a huge page.
        if !self.is_virtual {
            self.space = self.space.clone().at(&measured.obtained.frames);
        }
        let ns = |ticks: &u64| *ticks as f64 / self.hz / measured.repetitions.max(1) as f64 * 1e9;
        let times = measured.samples.ticks.iter().map(ns).collect();
        self.evidence.add(Batch { stage: batch.stage, pairs: batch.pairs.clone(), times });
    }

    /// What the answers so far say.
    pub fn verdict(&self) -> Solution {
        self.evidence.verdict(&self.space)
    }
}

/// The cases one after the other, each by the answers noted so far, until there is a verdict.
impl Iterator for Experiment {
    type Item = Case;

    fn next(&mut self) -> Option<Case> {
        let (stage, pairs) = self.evidence.next(&self.space, &mut self.random)?;
        Some(Case { work: Work::Conflict(Conflict { stage, pairs }), ..self.case.clone() })
    }
}

/// A memory that was asked about.
pub type AddrmapRow = Row<AddrmapFigures>;

/// Where lines live.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct AddrmapFigures {
    /// Which address the bits are of: `physical`, or where that is hidden or a hypervisor's, the place `in the page`.
    pub address: String,
    /// First and last address bit that the experiment could see.
    pub known_bits: [u32; 2],
    /// `determined` or `undetermined`.
    pub verdict: String,
    /// Why it is undetermined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Targets that the rule tells apart. What they are (channels, banks, slices), timing does not tell.
    pub targets: Option<u64>,
    /// Masks in hexadecimal: each halves the lines, by the parity of the address bits that it picks.
    pub masks: Vec<String>,
    /// The same as lists of bits.
    pub mask_bits: Vec<Vec<u32>>,
    /// A remainder by an odd number, beside the masks.
    pub remainder: Option<Remainder>,
    /// Masks and remainder as one modulo of consecutive bits, where they are that.
    pub modulo: Option<Remainder>,
    /// Lower end of the 95 % interval of the share of new pairs that the rule foretells.
    pub confidence: Option<f64>,
    /// New pairs that behaved as the rule foretold.
    pub agreed: Option<usize>,
    /// New pairs that it was held against.
    pub checked: Option<usize>,
    /// Nanoseconds of two loads from memory that do not conflict, flushes included: median of the group.
    pub apart_ns: Option<f64>,
    /// The same of two that do.
    pub conflict_ns: Option<f64>,
    /// Different pairs that were asked.
    pub pairs: usize,
}

/// What tells rows of memories from each other.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AddrmapKeys {
    /// Memory kind asked for.
    memory: MemoryKind,
    /// NUMA node asked for.
    node: Option<u32>,
    /// CPU.
    cpus: Vec<u32>,
    /// Bytes that pairs were taken from.
    working_set_bytes: Bytes,
}

impl Metric for AddrmapFigures {
    const NAME: &'static str = "addrmap";
    const UNIT: &'static str = "ns";
    type Keys = AddrmapKeys;

    fn keys(row: &AddrmapRow) -> AddrmapKeys {
        let Case { memory, cpus, working_set, .. } = row.case.clone();
        AddrmapKeys { memory: memory.kind, node: memory.node(), cpus, working_set_bytes: working_set }
    }

    fn what(row: &AddrmapRow) -> String {
        format!("where lines live in {}", row.case.memory.kind)
    }
}

/// Samples are of many pairs, some slow by their nature: that they scatter or fall into groups is no flaw.
const FLAWS: [Flag; 6] =
    [Flag::Steal, Flag::Switches, Flag::Faults, Flag::Migrated, Flag::ClockChanged, Flag::PagesDiffer];

/// One row for each memory that was asked about.
pub(crate) fn rows(visits: &Visits<'_>) -> Vec<AddrmapRow> {
    let pairs = visits.record.measurements.iter().filter(|visit| matches!(visit.case.work, Work::Conflict(_)));
    let asked = grouped(pairs, |visit| (visit.case.memory, &visit.case.cpus, visit.case.working_set));
    asked.iter().map(|(_, group)| row(group, visits)).collect()
}

fn row(visits: &[&Measurement], all: &Visits<'_>) -> AddrmapRow {
    let record = all.record;
    let (case, clock) = (&visits[0].case, record.header.clock.hz);
    let mut experiment = Experiment::new(case, clock, &record.header.machine, 0);
    visits.iter().for_each(|visit| experiment.note(visit));
    let groups = experiment.evidence.groups();
    let ticks = |visit: &Measured| visit.samples.ticks.iter().map(|ticks| *ticks as f64).collect();
    let mut quality = Sampled::of(visits, &all.gauge, ticks).quality;
    quality.flags.retain(|flag| FLAWS.contains(flag));
    let figures = AddrmapFigures {
        address: if experiment.space.is_physical() { "physical" } else { "in the page" }.into(),
        known_bits: known_bits(&experiment.space, case),
        verdict: "undetermined".into(),
        why: None,
        targets: None,
        masks: Vec::new(),
        mask_bits: Vec::new(),
        remainder: None,
        modulo: None,
        confidence: None,
        agreed: None,
        checked: None,
        apart_ns: groups.map(|groups| groups.low),
        conflict_ns: groups.map(|groups| groups.high),
        pairs: experiment.evidence.pairs(),
    };
    let mut row = Row { case: case.clone(), quality, figures };
    match experiment.verdict() {
        _ if !row.quality.is_measured() => {}
        Solution::Undetermined(why) => row.why = Some(why),
        Solution::Determined(found) => determine(&mut row, &found),
    }
    row
}

fn determine(row: &mut AddrmapRow, found: &Determined) {
    let rule = &found.rule;
    row.verdict = "determined".into();
    row.targets = Some(rule.targets());
    row.masks = rule.masks.iter().map(|mask| format!("{mask:#x}")).collect();
    row.mask_bits = rule.masks.iter().map(|&mask| bits(mask)).collect();
    row.remainder = rule.remainder;
    row.modulo = rule.modulo().map(|(shift, divisor)| Remainder { shift, divisor });
    row.confidence = Some(found.confidence());
    row.agreed = Some(found.agreed.iter().sum());
    row.checked = Some(found.checked.iter().sum());
}

/// The bits of a mask, lowest first.
fn bits(mask: u64) -> Vec<u32> {
    (0..64).filter(|bit| mask >> bit & 1 == 1).collect()
}

/// First and last bit in which lines that were held against each other may differ.
fn known_bits(space: &Space, case: &Case) -> [u32; 2] {
    let page = known_page(case.memory.kind).unwrap_or(Bytes(LINE));
    let highest = |differ: u64| 63 - (differ | 1).leading_zeros();
    [LINE.trailing_zeros(), highest(space.differences() | (page.0 - 1))]
}

impl AddrmapRow {
    /// The rule in words: `address / 64 modulo 8`, or `XOR of bits 6+13, 14+18`.
    pub fn rule_words(&self) -> String {
        if let Some(Remainder { shift, divisor }) = self.modulo {
            return format!("address / {} modulo {divisor}", 1u64 << shift);
        }
        let mask = |bits: &Vec<u32>| bits.iter().map(u32::to_string).collect::<Vec<_>>().join("+");
        let masks: Vec<String> = self.mask_bits.iter().map(mask).collect();
        let xor = (!masks.is_empty()).then(|| format!("XOR of bits {}", masks.join(", ")));
        let rest = self.remainder.map(|rest| format!("address / {} modulo {}", 1u64 << rest.shift, rest.divisor));
        xor.into_iter().chain(rest).collect::<Vec<_>>().join(" and ")
    }
}
