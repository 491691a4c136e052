//! A node's health: a few figures held against a baseline, or against what the machine can do on paper, and facts that
//! must not change by themselves: memory, its modules, CPUs, settings.
//!
//! A check drains nodes, so it must not cry wolf, and what it says must be worth a walk to the rack. A figure is degraded
//! only if the whole interval of its ratio lies beyond the tolerance, and if it does so again in a second look, from new
//! samples in new memory; the milder of the two is told. It is healthy only if the whole interval lies within; else it is too
//! noisy to tell. Intervals are those that hold for all figures together, of a baseline and of a sheet each. What can't be measured (too little free memory) is unknown, not
//! degraded; what crashes or computes wrong results is degraded.

use membound_core::in_order::InOrder;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::across::compare::comparison::{Comparison, Side, Source};
use crate::across::compare::environment::Change;
use crate::across::compare::row::{ComparisonRow, Verdict};
use crate::across::{compare, limits};
use crate::experiments::bandwidth::rows::BandwidthRow;
use crate::experiments::latency::rows::LatencyRow;
use crate::of_record::report;
use crate::quality::Fault;
use crate::rate::Rate;
use crate::report::Report;
use membound_core::case::{Case, Protocol, USUAL_MEMORY, Work};
use membound_core::experiments::frame::Frame;
use membound_core::kernel::chase::Order;
use membound_core::kernel::{Element, LoadKind, StoreKind};
use membound_core::machine::Machine;
use membound_core::machine::spec::Sheet;
use membound_core::memory::policy::Policy;
use membound_core::record::Record;
use membound_core::units::{Bytes, BytesPerSecond, Hertz, Nanoseconds, words};

/// Least visits of a case that show how visits differ.
const VISITS: usize = 2;
/// A visit to a case of the baseline takes no longer than this at the least, where there is a choice of working sets.
const VISIT_S: f64 = 0.5;
/// The kernel keeps a part of memory for itself, not the same in each version: total memory is the same within this share.
const MEMORY_SHARE: f64 = 0.02;
/// Characters of the line for a scheduler. `sinfo -R` shows 20 of them by default, `scontrol` all.
pub const LINE_CHARACTERS: usize = 120;

words! {
    /// What is to be said of a figure.
    Health, "health" {
        /// Within the tolerance, interval and all.
        Healthy = "healthy",
        /// Beyond the tolerance, interval and all, in both looks.
        Degraded = "degraded",
        /// Beyond it in the first look and not in the second.
        Recovered = "recovered",
        /// The interval holds both: as fast as it must be, and slower.
        TooNoisy = "too-noisy",
        /// Not measured, or too few visits to tell.
        Unknown = "unknown",
    }
}

words! {
    /// What a figure is held against.
    Against, "kind of reference" {
        /// An earlier record of this node, or of one like it.
        Baseline = "baseline",
        /// A specification sheet.
        Sheet = "spec",
    }
}

/// A case to look at, and what it stands for.
#[derive(Debug, Clone, PartialEq)]
pub struct Probe {
    /// In words: `memory read`, `L2 read, one core`.
    pub quantity: String,
    /// `L1`, `L2`, ..., `memory`.
    pub level: String,
    /// What is measured.
    pub case: Case,
}

/// A figure of a check: one tidy row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckRow {
    /// `check`.
    pub metric: String,
    /// What it is, in words: `memory read`, `memory latency`, `core clock`.
    pub quantity: String,
    /// The case, in words; empty of the core clock, which is seen in all of them.
    pub what: String,
    /// The kernel; absent where it is none.
    pub kernel: Option<String>,
    /// `L1`, `L2`, ..., `memory`; absent of the core clock.
    pub level: Option<String>,
    /// Threads.
    pub threads: usize,
    /// Unit of `value` and `reference`: `B/s`, `ns` or `Hz`.
    pub unit: String,
    /// What was measured; absent where nothing was.
    pub value: Option<f64>,
    /// What it is held against.
    pub against: Option<Against>,
    /// The baseline's figure, or the limit of the sheet.
    pub reference: Option<f64>,
    /// Speed against the reference: below 1 is slower, whichever way figures are better.
    pub ratio: Option<f64>,
    /// Its interval: with 95 % not one of all figures that are held against the same lies outside its own: [low, high]. Absent of the
    /// core clock, and where visits are too few for one.
    pub ratio_ci95: Option<[f64; 2]>,
    /// The ratio that must be reached.
    pub least_ratio: Option<f64>,
    /// What is to be said.
    pub health: Health,
    /// Why there is no figure, where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What figures are held against.
#[derive(Debug, Clone, Default)]
pub struct Criteria {
    /// Records of the baseline, of the probes' cases alone; empty: none.
    pub baseline: Vec<Record>,
    /// By which share a figure may be slower than the baseline's.
    pub tolerance: f64,
    /// The sheet, if figures are held against one.
    pub sheet: Option<Sheet>,
    /// The share of the sheet's limits that must be reached.
    pub reach: f64,
}

/// All that a check found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Checkup {
    /// Figures, in the order of the probes; those against the sheet last.
    pub rows: Vec<CheckRow>,
    /// Facts that differ and must not: of the machine first, then of its settings.
    pub facts: Vec<Change>,
    /// Quantities that came to a figure, also those that nothing judges.
    pub measured: Vec<String>,
}

/// A role in a check: words, kernel, level. Those of one core have no `together`.
type Role = (&'static str, &'static str, &'static str, bool);

const ROLES: &[Role] = &[
    ("memory read", "load", "memory", true),
    ("memory write", "store", "memory", true),
    ("memory copy", "copy", "memory", true),
    ("memory triad", "triad", "memory", true),
    ("memory read, one core", "load", "memory", false),
    ("L3 read, one core", "load", "L3", false),
    ("L2 read, one core", "load", "L2", false),
    ("L1 read, one core", "load", "L1", false),
];
const LATENCY: &str = "memory latency";
const CLOCK: &str = "core clock";

/// The cases of a baseline that are to be measured again: for each quantity the one that is known best. A quantity that the
/// baseline lacks is left out.
pub fn probes(report: &Report) -> Vec<Probe> {
    let role = |(quantity, kernel, level, is_together): &Role| {
        let is_there = |row: &BandwidthRow| match *level {
            "memory" => row.is_in_memory(&report.machine),
            level => row.level.as_deref() == Some(level),
        };
        let is_own = |row: &&BandwidthRow| is_plain(row) && row.kernel() == *kernel && is_there(row);
        let own: Vec<&BandwidthRow> = report.rows.iter().filter(is_own).collect();
        let most = own.iter().map(|row| row.threads()).max()?;
        // On a machine of one CPU both would be the same.
        let threads = if *is_together { most } else { 1 };
        if !is_together && *level == "memory" && most == 1 {
            return None;
        }
        let own = own.into_iter().filter(|row| row.threads() == threads).collect();
        let row = chosen(own, *level == "memory")?;
        Some(Probe { quantity: (*quantity).into(), level: (*level).into(), case: row.case.clone() })
    };
    let latency = || {
        let case = chosen_chase(&report.latency.rows)?.case.clone();
        Some(Probe { quantity: LATENCY.into(), level: "memory".into(), case })
    };
    let (together, alone): (Vec<&Role>, Vec<&Role>) = ROLES.iter().partition(|role| role.3);
    let mut probes: Vec<Probe> = together.into_iter().filter_map(role).collect();
    probes.extend(latency());
    probes.extend(alone.into_iter().filter_map(role));
    probes
}

/// What the cases of [`plan::check`](membound_core::experiments::check) stand for. Each is the only one of its kernel and threads at a
/// level, so no curve is needed to tell levels apart.
pub fn planned(cases: &[Case], frame: &Frame) -> Vec<Probe> {
    let most = frame.placement.most();
    let role = |case: &Case| -> Option<(String, String)> {
        let Work::Kernel(variant) = &case.work else { return Some((LATENCY.into(), "memory".into())) };
        let cache = frame.in_caches(1).into_iter().find(|(_, size)| *size == case.working_set && case.threads() == 1);
        let level = cache.map_or_else(|| "memory".to_string(), |(level, _)| format!("L{level}"));
        let is_together = case.threads() == most && level == "memory";
        let is_own = |role: &&Role| role.1 == variant.kernel && role.2 == level && role.3 == is_together;
        // A level that the table has no row for, such as L4.
        let other = || format!("{level} read, one core");
        Some((ROLES.iter().find(is_own).map_or_else(other, |role| role.0.to_string()), level))
    };
    cases
        .iter()
        .filter_map(|case| {
            let (quantity, level) = role(case)?;
            Some(Probe { quantity, level, case: case.clone() })
        })
        .collect()
}

/// A figure that stands for its kernel: steady, in plain memory that lies anywhere, with regular loads and stores.
fn is_plain(row: &BandwidthRow) -> bool {
    row.quality.is_measured()
        && row.case.protocol == Protocol::Steady
        && (row.store(), row.load(), row.element()) == (StoreKind::Regular, LoadKind::Regular, Element::Double)
        && row.case.memory.kind == USUAL_MEMORY.kind
        && row.case.memory.policy == Policy::FirstTouch
        && row.case.streams.is_empty()
        && row.case.misaligned_bytes == 0
}

/// Of rows that differ in width and working set: visited more than once, the widest; in a cache the middle working set,
/// away from its edges, in memory the largest that takes little time.
fn chosen(mut rows: Vec<&BandwidthRow>, is_memory: bool) -> Option<&BandwidthRow> {
    if rows.iter().any(|row| row.quality.rounds >= VISITS) {
        rows.retain(|row| row.quality.rounds >= VISITS);
    }
    let widest = rows.iter().map(|row| row.width()).max()?;
    rows.retain(|row| row.width() == widest);
    rows.order_by_key(|row| row.case.working_set);
    if !is_memory {
        return rows.get(rows.len() / 2).copied();
    }
    // A warm-up or two and two samples, as in the plan.
    let is_brief = |row: &&&BandwidthRow| {
        let rate = row.payload_bps.map_or(f64::INFINITY, |rate| rate.median);
        4.0 * row.case.working_set.0 as f64 / rate <= VISIT_S
    };
    rows.iter().rfind(is_brief).or(rows.first()).copied()
}

/// The random chase in memory, by the same rules.
fn chosen_chase(rows: &[LatencyRow]) -> Option<&LatencyRow> {
    let is_own = |row: &&LatencyRow| {
        row.quality.is_measured()
            && row.case.protocol == Protocol::Steady
            && row.is_over_lines()
            && row.chase().order == Order::Random
            && row.level.as_deref() == Some("memory")
    };
    let mut rows: Vec<&LatencyRow> = rows.iter().filter(is_own).collect();
    if rows.iter().any(|row| row.case.memory.kind == USUAL_MEMORY.kind) {
        rows.retain(|row| row.case.memory.kind == USUAL_MEMORY.kind);
    }
    if rows.iter().any(|row| row.quality.rounds >= VISITS) {
        rows.retain(|row| row.quality.rounds >= VISITS);
    }
    // The smallest: to write a cycle over gigabytes takes seconds.
    rows.into_iter().min_by_key(|row| row.case.working_set)
}

/// The record without what a check does not look at.
pub fn trimmed(record: &Record, probes: &[Probe]) -> Record {
    let is_own = |case: &Case| probes.iter().any(|probe| probe.case == *case);
    let measurements = record.measurements.iter().filter(|visit| is_own(&visit.case)).cloned().collect();
    Record { measurements, ..record.clone() }
}

/// Why a baseline can't be this machine's: another processor.
pub fn stranger(baseline: &Machine, machine: &Machine) -> Option<String> {
    let names = [baseline, machine].map(|machine| machine.identity.model.known().cloned());
    match names {
        [Some(a), Some(b)] if a != b => Some(format!("it is of another machine ({a}); this is {b}")),
        _ => None,
    }
}

/// What one look found.
pub fn look(probes: &[Probe], criteria: &Criteria, now: &Record) -> Checkup {
    let mut now = now.clone();
    now.header.sheet.clone_from(&criteria.sheet);
    let report = report(&now);
    let bare: Vec<CheckRow> = probes.iter().map(|probe| bare(probe, &report)).collect();
    let measured = bare.iter().filter(|row| row.health == Health::Healthy).map(|row| row.quantity.clone()).collect();
    let mut checkup = Checkup { measured, ..Checkup::default() };
    if criteria.baseline.is_empty() && criteria.sheet.is_none() {
        checkup.rows.clone_from(&bare);
    }
    if !criteria.baseline.is_empty() {
        let side = |name: &str, records: Vec<Record>| Side { name: name.into(), source: Source::Records(records) };
        let now = side("now", vec![now]);
        let found = compare::compare(&side("baseline", criteria.baseline.clone()), &now, criteria.tolerance);
        checkup.rows.extend(bare.iter().map(|own| against_baseline(own.clone(), &found, criteria.tolerance)));
        checkup.rows.extend(clock(&found, probes, criteria.tolerance));
        checkup.facts = facts(&found.changes, &criteria.baseline, &report.machine);
    }
    if let Some(sheet) = &criteria.sheet {
        checkup.rows.extend(held_to_sheet(probes, bare, criteria, &report));
        checkup.facts.extend(channels(sheet, &report.machine));
    }
    checkup
}

/// What stands after a second look at the quantities that the first one found degraded.
pub fn confirmed(first: Checkup, second: &Checkup) -> Checkup {
    let judged = |row: CheckRow| {
        if row.health != Health::Degraded {
            return row;
        }
        let own = || second.rows.iter().filter(|other| other.quantity == row.quantity);
        // What crashes in either look has no ratio there, whatever it is held against, and is degraded all the same.
        let is_crash = |other: &CheckRow| other.ratio.is_none() || row.against.is_none();
        let crashed = || own().find(|other| other.health == Health::Degraded && is_crash(other));
        let Some(again) = own().find(|other| other.against == row.against).or_else(crashed) else {
            // What crashed, and is held against nothing, need only run.
            return match row.against.is_none() && second.measured.contains(&row.quantity) {
                true => CheckRow { health: Health::Recovered, reason: None, ..row },
                false => CheckRow { health: Health::Unknown, reason: unseen(&row), ..row },
            };
        };
        let milder = |again: &CheckRow| again.ratio.unwrap_or(0.0) > row.ratio.unwrap_or(0.0);
        match again.health {
            Health::Degraded if milder(again) => again.clone(),
            Health::Degraded => row,
            // What was seen once and could not be seen again is no reason to stop a node.
            Health::Unknown | Health::TooNoisy => {
                CheckRow { health: again.health, reason: again.reason.clone(), ..row }
            }
            Health::Healthy | Health::Recovered => CheckRow { health: Health::Recovered, ..again.clone() },
        }
    };
    Checkup { rows: first.rows.into_iter().map(judged).collect(), ..first }
}

/// Why a figure that was degraded in the first look is not told so.
fn unseen(row: &CheckRow) -> Option<String> {
    let first = row.reason.as_ref().map_or_else(String::new, |reason| format!("{reason}; "));
    Some(format!("{first}it could not be seen again"))
}

impl Checkup {
    /// Whether the node was held against anything, or is degraded whatever it is held against: only then has it a health.
    pub fn is_judged(&self) -> bool {
        self.is_degraded() || self.rows.iter().any(|row| row.against.is_some())
    }

    /// Whether the node should be looked at.
    pub fn is_degraded(&self) -> bool {
        !self.facts.is_empty() || self.degraded().next().is_some()
    }

    /// Whether nothing could be told: a clock alone says little.
    pub fn is_unable(&self) -> bool {
        let figures = || self.rows.iter().filter(|row| row.quantity != CLOCK);
        !self.is_degraded() && figures().all(|row| matches!(row.health, Health::Unknown | Health::TooNoisy))
    }

    /// Why nothing could be told, and what helps.
    pub fn why_unable(&self) -> String {
        match self.open().first() {
            Some(reason) => format!("{reason}; give a longer --budget"),
            None if self.rows.is_empty() => {
                "the sheet has no limit for any figure; give another with --spec, or a --baseline".into()
            }
            None => "no figure was measured; give a longer --budget".into(),
        }
    }

    /// The figures that are neither healthy nor degraded, each with its reason.
    pub fn open(&self) -> Vec<String> {
        let is_open = |row: &&CheckRow| matches!(row.health, Health::Unknown | Health::TooNoisy);
        let line = |row: &CheckRow| Some(format!("{}: {}", row.quantity, row.reason.as_ref()?));
        self.rows.iter().filter(is_open).filter_map(line).collect()
    }

    /// The figures that are degraded.
    pub fn degraded(&self) -> impl Iterator<Item = &CheckRow> {
        self.rows.iter().filter(|row| row.health == Health::Degraded)
    }

    /// The probes whose figures a second look must confirm. A changed clock shows in all of them.
    pub fn suspects(&self, probes: &[Probe]) -> Vec<Probe> {
        let is_clock = self.degraded().any(|row| row.quantity == CLOCK);
        let is_named = |probe: &&Probe| is_clock || self.degraded().any(|row| row.quantity == probe.quantity);
        probes.iter().filter(is_named).cloned().collect()
    }

    /// What is wrong, in a line of [`LINE_CHARACTERS`] at most; empty where nothing is. The worst figure in full, then what
    /// may be its cause, then the other figures.
    pub fn line(&self) -> String {
        let mut figures: Vec<&CheckRow> = self.degraded().collect();
        figures.order_by(|x, y| x.ratio.unwrap_or(0.0).total_cmp(&y.ratio.unwrap_or(0.0)));
        let mut parts: Vec<String> = figures.first().map(|row| in_full(row)).into_iter().collect();
        parts.extend(self.facts.iter().map(fact_words));
        parts.extend(figures.iter().skip(1).map(|row| in_brief(row)));
        fitted(&parts)
    }
}

/// As many parts as a line holds, and how many are left.
fn fitted(parts: &[String]) -> String {
    let plain: Vec<String> = parts.iter().map(|part| one_line(part)).collect();
    let whole = plain.join("; ");
    if whole.chars().count() <= LINE_CHARACTERS {
        return whole;
    }
    for count in (1..plain.len()).rev() {
        let text = format!("{}; and {} more", plain[..count].join("; "), plain.len() - count);
        if text.chars().count() <= LINE_CHARACTERS {
            return text;
        }
    }
    let first: String = plain[0].chars().take(LINE_CHARACTERS - 3).collect();
    first + "..."
}

/// What a scheduler's command line and a log take: no control characters, no quotes.
fn one_line(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().filter(|c| !"\"'`$\\".contains(*c)).map(plain).collect()
}

/// `memory read -14 % (baseline 12.3 GB/s, limit -5 %)`; `memory read 55 % of 51.2 GB/s (spec, limit 60 %)`.
fn in_full(row: &CheckRow) -> String {
    let (Some(ratio), Some(reference), Some(least)) = (row.ratio, row.reference, row.least_ratio) else {
        return in_brief(row);
    };
    let reference = figure(reference, &row.unit);
    match row.against {
        Some(Against::Sheet) => {
            format!("{} {} of {reference} (spec, limit {})", row.quantity, share(ratio), share(least))
        }
        _ => {
            let (off, limit) = (slower(row, ratio), slower(row, least));
            format!("{} {off} (baseline {reference}, limit {limit})", row.quantity)
        }
    }
}

fn in_brief(row: &CheckRow) -> String {
    match (row.ratio, row.against, &row.reason) {
        (None, _, Some(reason)) => format!("{}: {reason}", row.quantity),
        (None, _, None) => row.quantity.clone(),
        (Some(ratio), Some(Against::Sheet), _) => format!("{} {} of spec", row.quantity, share(ratio)),
        (Some(ratio), _, _) => format!("{} {}", row.quantity, slower(row, ratio)),
    }
}

/// By how much the figure itself differs: a bandwidth is less, a latency more.
fn slower(row: &CheckRow, ratio: f64) -> String {
    let figure = if row.unit == "ns" { 1.0 / ratio } else { ratio };
    format!("{:+.0} %", 100.0 * (figure - 1.0))
}

fn share(ratio: f64) -> String {
    format!("{:.0} %", 100.0 * ratio)
}

/// A figure with its unit.
pub fn figure(value: f64, unit: &str) -> String {
    match unit {
        "B/s" => BytesPerSecond(value).to_string(),
        "Hz" => Hertz(value).to_string(),
        _ => Nanoseconds(value).to_string(),
    }
}

fn fact_words(change: &Change) -> String {
    match change.what.as_str() {
        CHANNELS => format!("{} of {} channels", change.b, change.a),
        MODULES => fewer_modules(change).unwrap_or_else(|| in_words(change)),
        _ => in_words(change),
    }
}

fn in_words(change: &Change) -> String {
    format!("{} {} (baseline {})", change.what, change.b, change.a)
}

/// `7 of 8 memory modules`, where those that are left are as they were.
fn fewer_modules(change: &Change) -> Option<String> {
    let ((now, kind), (before, same)) = (change.b.split_once(" of ")?, change.a.split_once(" of ")?);
    (kind == same).then(|| format!("{now} of {before} memory modules"))
}

/// A row without a judgement: what was measured.
fn bare(probe: &Probe, report: &Report) -> CheckRow {
    let found = measured(probe, report);
    let reason = match &found {
        Some((_, fault)) => fault.as_ref().map(ToString::to_string),
        None => Some("no time was left for it".into()),
    };
    let (value, fault) = found.unwrap_or_default();
    let unit = if matches!(probe.case.work, Work::Chase(_)) { "ns" } else { "B/s" };
    CheckRow {
        metric: "check".into(),
        quantity: probe.quantity.clone(),
        what: probe.case.to_string(),
        kernel: probe.case.variant().map(|variant| variant.kernel.clone()),
        level: Some(probe.level.clone()),
        threads: probe.case.threads(),
        unit: unit.into(),
        value,
        against: None,
        reference: None,
        ratio: None,
        ratio_ci95: None,
        least_ratio: None,
        health: match (fault.is_some_and(|fault| fault.is_failure()), value) {
            (true, _) => Health::Degraded,
            (false, Some(_)) => Health::Healthy,
            (false, None) => Health::Unknown,
        },
        reason,
    }
}

/// A probe's figure, and why there is none that holds; absent where it was not visited.
fn measured(probe: &Probe, report: &Report) -> Option<(Option<f64>, Option<Fault>)> {
    if matches!(probe.case.work, Work::Chase(_)) {
        let row = report.latency.rows.iter().find(|row| row.case == probe.case)?;
        return Some((row.latency_ns.map(|cost| cost.value()), row.quality.fault()));
    }
    let row = report.rows.iter().find(|row| row.case == probe.case)?;
    Some((row.payload_bps.map(|rate| rate.value()), row.quality.fault()))
}

fn against_baseline(own: CheckRow, found: &Comparison, tolerance: f64) -> CheckRow {
    let is_own = |row: &&ComparisonRow| row.what == own.what;
    let least = 1.0 - tolerance;
    if let Some(row) = found.rows.iter().find(is_own) {
        let interval = row.speed_ci95_family.filter(|_| row.verdict != Verdict::TooFew);
        let health = interval.map_or(Health::Unknown, |interval| judged(interval, least));
        let reason = match health {
            Health::Unknown => Some(match row.needed {
                Some(needed) => format!("too few visits to tell a change from chance: {needed} needed"),
                None => "too few visits to tell a change from chance".to_string(),
            }),
            Health::TooNoisy => interval.map(too_noisy),
            _ => None,
        };
        return CheckRow {
            value: row.b.or(own.value),
            against: Some(Against::Baseline),
            reference: row.a,
            ratio: row.speed,
            ratio_ci95: row.speed_ci95_family,
            least_ratio: Some(least),
            health,
            reason,
            ..own
        };
    }
    let lone = found.one_sided.iter().find(|row| is_own(row) && row.verdict == Verdict::OnlyA);
    // Its own reason is the first.
    let is_failure = own.health == Health::Degraded || own.reason.is_none() && lone.is_some_and(|row| row.is_failure);
    CheckRow {
        against: Some(Against::Baseline),
        reference: lone.and_then(|row| row.a),
        least_ratio: Some(least),
        health: if is_failure { Health::Degraded } else { Health::Unknown },
        reason: own.reason.or_else(|| lone.and_then(|row| row.reason.clone())),
        ..own
    }
}

/// By an interval of speeds, of which this one must be reached.
fn judged([low, high]: [f64; 2], least: f64) -> Health {
    match (high < least, low < least) {
        (true, _) => Health::Degraded,
        (false, true) => Health::TooNoisy,
        (false, false) => Health::Healthy,
    }
}

fn too_noisy([low, high]: [f64; 2]) -> String {
    format!("too noisy to tell: {} to {} of the speed", share(low), share(high))
}

/// The core clock, as seen beside the samples of all cases: degraded where even the case that lost least lost too much.
fn clock(found: &Comparison, probes: &[Probe], tolerance: f64) -> Option<CheckRow> {
    let mut clocks: Vec<[f64; 2]> = found.rows.iter().filter_map(|row| row.clock_hz).collect();
    let ratio = |[before, now]: &[f64; 2]| now / before;
    clocks.order_by(|x, y| ratio(x).total_cmp(&ratio(y)));
    let middle = *clocks.get(clocks.len() / 2)?;
    let (low, high) = (ratio(clocks.first()?), ratio(clocks.last()?));
    let is_known = clocks.len() >= VISITS && low.is_finite() && high.is_finite();
    let health = match is_known {
        false => Health::Unknown,
        true if high < 1.0 - tolerance => Health::Degraded,
        true => Health::Healthy,
    };
    Some(CheckRow {
        metric: "check".into(),
        quantity: CLOCK.into(),
        what: String::new(),
        kernel: None,
        level: None,
        threads: probes.iter().map(|probe| probe.case.threads()).min().unwrap_or(1),
        unit: "Hz".into(),
        value: Some(middle[1]),
        against: Some(Against::Baseline),
        reference: Some(middle[0]),
        ratio: Some(ratio(&middle)),
        // The cases' clocks have a least and a greatest, and no interval.
        ratio_ci95: None,
        least_ratio: Some(1.0 - tolerance),
        health,
        reason: None,
    })
}

/// A rate, the visits that it comes from, and what it is held against.
struct Share {
    rate: Rate,
    visits: usize,
    limit: f64,
}

/// The rows of a sheet: it judges few figures.
fn held_to_sheet(probes: &[Probe], bare: Vec<CheckRow>, criteria: &Criteria, report: &Report) -> Vec<CheckRow> {
    let shares: Vec<Option<Share>> = probes.iter().map(|probe| share_of_sheet(probe, report)).collect();
    let family = shares.iter().flatten().count();
    // What crashed is degraded whatever it is held against, and what was not measured is not healthy: a baseline's rows tell both.
    let is_alone = criteria.baseline.is_empty();
    let judged = |((probe, row), share): ((&Probe, CheckRow), Option<Share>)| match (share, row.health) {
        (Some(share), _) => Some(against_sheet(row, &share, family, criteria.reach)),
        (None, Health::Degraded) if is_alone => Some(row),
        (None, Health::Unknown) if is_alone && is_of_sheet(probe, &report.limits) => {
            Some(CheckRow { against: Some(Against::Sheet), least_ratio: Some(criteria.reach), ..row })
        }
        (None, _) => None,
    };
    probes.iter().zip(bare).zip(shares).filter_map(judged).collect()
}

/// Only what all cores read from memory and what one reads from a cache: limits of other mixes are less sure.
fn is_of_sheet(probe: &Probe, limits: &limits::Limits) -> bool {
    let is_load = probe.case.variant().is_some_and(|variant| variant.kernel == "load");
    let is_known = |limit: Option<&limits::Limit>| limit.is_some_and(limits::Limit::is_known);
    let is_limited = match &*probe.level {
        "memory" => probe.quantity == ROLES[0].0 && limits.memory.iter().any(|memory| is_known(memory.bps.as_ref())),
        level => limits.caches.iter().any(|cache| cache.level == level && is_known(cache.load_bps.as_ref())),
    };
    is_load && is_limited
}

fn share_of_sheet(probe: &Probe, report: &Report) -> Option<Share> {
    // What crashed in one visit has figures of the others, which count for nothing. What is faster than the sheet allows is healthy.
    let is_failure = |row: &BandwidthRow| row.quality.fault().is_some_and(|fault| fault.is_failure());
    let row = report.rows.iter().find(|row| row.case == probe.case && !is_failure(row))?;
    // By the probe's own level: a handful of cases may not tell the levels apart.
    let mut row = row.clone();
    row.level = Some(probe.level.clone());
    let limit = report.limits.of_row(&row, &report.machine).filter(|_| is_of_sheet(probe, &report.limits))?;
    Some(Share { rate: row.payload_bps?, visits: row.quality.rounds, limit })
}

/// One of so many figures that the sheet judges. A check has time for few visits: where they are too few for an interval, their
/// range widened by as much stands for it, as wherever figures are told apart.
fn against_sheet(row: CheckRow, share: &Share, family: usize, reach: f64) -> CheckRow {
    let Share { rate, visits, limit } = *share;
    let of_limit = |ends: [f64; 2]| ends.map(|end| end / limit);
    let interval = rate.capability.of_family(family, rate.undisturbed_share * visits as f64).map(of_limit);
    let ends = interval.or((visits >= VISITS).then(|| of_limit(rate.wide())));
    let health = ends.map_or(Health::Unknown, |ends| judged(ends, reach));
    let reason = match (health, ends) {
        (Health::TooNoisy, Some(ends)) => Some(too_noisy(ends)),
        (Health::Unknown, _) => Some(format!("too few visits to tell: {VISITS} needed")),
        _ => None,
    };
    CheckRow {
        against: Some(Against::Sheet),
        reference: Some(limit),
        ratio: Some(rate.value() / limit),
        ratio_ci95: interval,
        least_ratio: Some(reach),
        health,
        reason,
        ..row
    }
}

/// Facts that change only if something broke or somebody turned a knob, most lasting first. Host, kernel and tool may
/// differ: a baseline may be another node's, and software is renewed.
const HARDWARE: [&str; 4] = ["memory", MODULES, "CPUs", "nodes"];
const SETTINGS: [&str; 7] = [
    "governor",
    "boost",
    "SMT",
    "transparent huge pages",
    "their defragmentation",
    "NUMA balancing",
    "limit of CPU time",
];
const UNKNOWN: &str = "unknown";
const CHANNELS: &str = "memory channels";
const MODULES: &str = "memory modules";

fn facts(changes: &[Change], baseline: &[Record], machine: &Machine) -> Vec<Change> {
    let total = |machine: &Machine| machine.memory.total.get().unwrap_or(Bytes(0)).0 as f64;
    let now = total(machine);
    let is_same_memory = baseline.iter().any(|record| {
        let before = total(&record.header.machine);
        (now - before).abs() <= MEMORY_SHARE * before
    });
    let named = HARDWARE.iter().chain(&SETTINGS);
    let found = named.filter_map(|name| changes.iter().find(|change| change.what == *name));
    found
        // What one of the two sides could not read is not known to differ.
        .filter(|change| change.a != UNKNOWN && change.b != UNKNOWN)
        .filter(|change| change.what != "memory" || !is_same_memory)
        // One of several records of the baseline had the same.
        .filter(|change| !change.a.split(" or ").any(|text| text == change.b))
        .cloned()
        .collect()
}

/// Channels of which the sheet tells, and modules of which the firmware tells: with fewer modules some channel is empty.
fn channels(sheet: &Sheet, machine: &Machine) -> Option<Change> {
    let channels = limits::channels(sheet, machine)?;
    let modules = machine.modules()?.len();
    (modules > 0 && modules < channels).then(|| Change {
        what: CHANNELS.into(),
        a: channels.to_string(),
        b: modules.to_string(),
    })
}
