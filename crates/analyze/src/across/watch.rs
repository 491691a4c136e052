//! A machine that is watched between checks: a few figures again and again, and what is to be said when one of them shifts.
//!
//! A *probe* is a visit to each case, whose samples lie apart in time; its figure is what the undisturbed ones of them come to
//! (`stats/states.rs`). What tells a shift from noise is in `stats/change_point.rs`. A record of such visits tells the same again when
//! it is read anew: whoever watches begins by reading what was there.

use std::collections::VecDeque;
use std::fmt::Write;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::across::check::{Probe, figure, planned};
use crate::experiments::latency::rows::link_ns;
use crate::visits::{Gauge, payload_bps};
use membound_core::case::{Case, Work};
use membound_core::experiments::frame::Frame;
use membound_core::in_order::InOrder;
use membound_core::machine::Machine;
use membound_core::record::{Header, Measured, Measurement, Outcome};
use membound_core::stats::change_point::{Change, Turn, Watcher};
use membound_core::stats::quantiles::median;
use membound_core::stats::states::{Better, Visit, states};
use membound_core::units::{counted, utc_second, words};

/// Visits that tell what a CPU can when it has its core to itself.
const RECENT: usize = 300;
/// Times of probes that a change may be dated to.
const TIMES: usize = 200;
/// A sample that lost this share of its time to other threads of this machine, and as many microseconds, is none of this machine's
/// memory. Shorter losses are within the error of two clocks.
const LOST_SHARE: f64 = 0.05;
const LOST_LEAST_US: u32 = 20;
/// Samples without which a probe has no figure.
const SAMPLES_LEAST: usize = 3;
const CLOCK: &str = "core clock";

words! {
    /// What is told of a machine that is watched.
    Event, "event" {
        /// Watching began.
        Started = "started",
        /// A figure fell.
        Fall = "fall",
        /// It rose above all that was known.
        Rise = "rise",
        /// It rose after a fall, and not to where it was.
        PartlyRecovered = "partly-recovered",
        /// It is back where it was before the fall.
        Recovered = "recovered",
        /// Others use the machine: nothing is probed.
        Paused = "paused",
        /// They don't any more.
        Resumed = "resumed",
        /// Something can't be done: probed, or written.
        Fault = "fault",
        /// It can again.
        Mended = "mended",
        /// No probe was made for longer than it should be: the process was stopped, or the machine slept.
        Gap = "gap",
        /// What else is good to know.
        Note = "note",
        /// Watching ended.
        Ended = "ended",
    }
}

/// Something that is told of a machine that is watched: one tidy row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WatchRow {
    /// `watch`.
    pub metric: String,
    /// What happened.
    pub event: Event,
    /// When it was told, in seconds since 1970.
    pub unix_s: u64,
    /// What changed, in words: `memory read, one core`, `memory latency`, `core clock`; absent where no figure did.
    pub quantity: Option<String>,
    /// The case, in words.
    pub what: Option<String>,
    /// Unit of `before` and `after`: `B/s`, `ns` or `Hz`.
    pub unit: Option<String>,
    /// The first probe after the change, in seconds since 1970.
    pub since_unix_s: Option<u64>,
    /// Speed after the change against before it: below 1 is slower, whichever way figures are better.
    pub ratio: Option<f64>,
    /// Its 95 % interval: [low, high].
    pub ratio_ci95: Option<[f64; 2]>,
    /// Median of the probes before.
    pub before: Option<f64>,
    /// How many they are.
    pub probes_before: Option<usize>,
    /// Median of the probes since.
    pub after: Option<f64>,
    /// How many they are.
    pub probes_after: Option<usize>,
    /// Why, or what it is about, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl WatchRow {
    /// What is told of no figure.
    pub fn plain(event: Event, unix_s: u64, reason: impl Into<String>) -> WatchRow {
        WatchRow {
            metric: "watch".into(),
            event,
            unix_s,
            quantity: None,
            what: None,
            unit: None,
            since_unix_s: None,
            ratio: None,
            ratio_ci95: None,
            before: None,
            probes_before: None,
            after: None,
            probes_after: None,
            reason: Some(reason.into()),
        }
    }

    /// In a line.
    pub fn line(&self) -> String {
        let mut text = format!("{} {}", utc_second(self.unix_s), self.event);
        // Writing to a String can't fail.
        if let Some(quantity) = &self.quantity {
            let _ = write!(text, " {quantity}");
        }
        if let (Some(change), Some(since)) = (self.change(), self.since_unix_s) {
            let _ = write!(text, " {change} since {}", utc_second(since));
        }
        if let Some(sides) = self.sides() {
            let _ = write!(text, ": {sides}");
        }
        if let Some(reason) = &self.reason {
            let _ = write!(text, ": {reason}");
        }
        text
    }

    /// `-10.2 % (95 % CI -11.0 to -9.1 %)`, of the figure itself: a latency rises where the machine gets slower.
    fn change(&self) -> Option<String> {
        let (ratio, ci) = (self.ratio?, self.ratio_ci95?);
        let own = |ratio: f64| 100.0 * (if self.unit.as_deref() == Some("ns") { 1.0 / ratio } else { ratio } - 1.0);
        let mut ends = ci.map(own);
        ends.sort_by(f64::total_cmp);
        Some(format!("{:+.1} % (95 % CI {:+.1} to {:+.1} %)", own(ratio), ends[0], ends[1]))
    }

    fn sides(&self) -> Option<String> {
        let side = |value: Option<f64>, count: Option<usize>| {
            let probes = counted(count?, "probe");
            Some(format!("{} (median of {probes})", figure(value?, self.unit.as_deref()?)))
        };
        Some(format!(
            "{} before, {} since",
            side(self.before, self.probes_before)?,
            side(self.after, self.probes_after)?
        ))
    }
}

/// What a probe came to.
#[derive(Debug, Default)]
pub struct Noted {
    /// What is to be told.
    pub rows: Vec<WatchRow>,
    /// Why it has no figure.
    pub no_figure: Option<NoFigure>,
}

/// Why a visit has no figure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoFigure {
    /// Others ran on its CPU.
    Disturbed(String),
    /// It could not be measured.
    Failed(String),
}

/// A figure that is watched.
#[derive(Debug)]
pub struct Series {
    /// What it is, in words.
    pub quantity: String,
    /// `B/s`, `ns` or `Hz`.
    pub unit: &'static str,
    /// The last probe's figure.
    pub last: Option<f64>,
    case: Case,
    watcher: Watcher,
    /// Of the last probes, when they were made.
    times: VecDeque<u64>,
}

impl Series {
    fn new(probe: &Probe, quantity: String, unit: &'static str, least: f64) -> Series {
        let (case, watcher) = (probe.case.clone(), Watcher::new(least));
        Series { quantity, unit, case, watcher, times: VecDeque::new(), last: None }
    }

    fn better(&self) -> Better {
        if self.unit == "ns" { Better::Lower } else { Better::Higher }
    }

    /// Probes that are needed before a change can be told.
    pub fn needed(&self) -> usize {
        self.watcher.needed()
    }

    /// Speed now against that before the first fall which has not recovered; 1 where there is none.
    pub fn ratio(&self) -> Option<f64> {
        let level = self.watcher.level()?;
        Some((level - self.watcher.fallen_from().unwrap_or(level)).exp())
    }

    /// Whether it fell and has not recovered.
    pub fn is_fallen(&self) -> bool {
        self.watcher.fallen_from().is_some()
    }

    fn note(&mut self, value: f64, unix_s: u64) -> Option<WatchRow> {
        self.last = Some(value);
        self.times.push_back(unix_s);
        if self.times.len() > TIMES {
            self.times.pop_front();
        }
        let change = self.watcher.note(self.better().up(value.ln()))?;
        Some(self.row(&change, unix_s))
    }

    fn row(&self, change: &Change, unix_s: u64) -> WatchRow {
        let first = self.times.len().saturating_sub(change.after.count);
        let value = |level: f64| Some(self.better().up(level).exp());
        let [shift, low, high] = change.shift;
        let event = match change.turn {
            Turn::Fall => Event::Fall,
            Turn::Rise => Event::Rise,
            Turn::PartlyRecovered => Event::PartlyRecovered,
            Turn::Recovered => Event::Recovered,
        };
        WatchRow {
            quantity: Some(self.quantity.clone()),
            what: Some(self.case.to_string()),
            unit: Some(self.unit.into()),
            since_unix_s: self.times.get(first).copied(),
            ratio: Some(shift.exp()),
            ratio_ci95: Some([low, high].map(f64::exp)),
            before: value(change.before.median),
            probes_before: Some(change.before.count),
            after: value(change.after.median),
            probes_after: Some(change.after.count),
            reason: None,
            ..WatchRow::plain(event, unix_s, "")
        }
    }
}

/// All figures of a machine that is watched.
#[derive(Debug)]
pub struct Watch {
    /// The figures, in the order of the cases; the core clock last.
    pub series: Vec<Series>,
    recent: VecDeque<Measurement>,
    machine: Machine,
    hz: f64,
}

/// Where watching stands; for whoever looks from outside.
#[derive(Debug)]
pub struct Standing<'a> {
    /// What is known of the figures.
    pub watch: &'a Watch,
    /// When the last probe ended, in seconds since 1970; absent before the first.
    pub last_probe_unix_s: Option<u64>,
    /// Probes made since watching began.
    pub probes: u64,
    /// Whether others use the machine, so that nothing is probed; not once watching has ended.
    pub is_paused: bool,
    /// Lines that could not be written to the record yet.
    pub unwritten: usize,
    /// CPU time taken since watching began.
    pub cpu: Duration,
}

impl Watch {
    /// Nothing is known yet. Changes are told from this share of the speed on; the header tells the machine, and the clock that samples are
    /// counted in.
    pub fn new(probes: &[Probe], least: f64, header: &Header) -> Watch {
        let unit = |probe: &Probe| if matches!(probe.case.work, Work::Chase(_)) { "ns" } else { "B/s" };
        let own = probes.iter().map(|probe| Series::new(probe, probe.quantity.clone(), unit(probe), least));
        // What touches the least memory waits least for it.
        let mut kernels: Vec<&Probe> = probes.iter().filter(|probe| probe.case.variant().is_some()).collect();
        kernels.order_by_key(|probe| probe.case.working_set);
        let clock = kernels.first().map(|probe| Series::new(probe, CLOCK.into(), "Hz", least));
        Watch {
            series: own.chain(clock).collect(),
            recent: VecDeque::new(),
            machine: header.machine.clone(),
            hz: header.clock.hz.0,
        }
    }

    /// Takes note of a visit that was made then. One to another case says nothing.
    pub fn note(&mut self, visit: &Measurement, unix_s: u64) -> Noted {
        if !self.series.iter().any(|series| series.case == visit.case) {
            return Noted::default();
        }
        let measured = match &visit.outcome {
            Outcome::Measured(measured) => measured,
            Outcome::Unavailable { reason } | Outcome::Crashed { reason } | Outcome::Invalid { reason } => {
                return Noted { no_figure: Some(NoFigure::Failed(reason.clone())), ..Noted::default() };
            }
        };
        self.recent.push_back(visit.clone());
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
        let own: Vec<usize> = own_samples(measured, self.hz);
        let all = measured.samples.ticks.len();
        if own.len() < SAMPLES_LEAST.min(all).max(all / 2) {
            let cpu = visit.case.cpus.first().copied().unwrap_or(0);
            let why = format!("others ran on CPU {cpu} during {} of {all} samples", all - own.len());
            return Noted { no_figure: Some(NoFigure::Disturbed(why)), ..Noted::default() };
        }
        let gauge = Gauge::of(self.recent.iter(), self.hz).on(&self.machine);
        let mut rows = Vec::new();
        for series in self.series.iter_mut().filter(|series| series.case == visit.case) {
            let value = match series.unit {
                "Hz" => clock(measured, &own, gauge.hz),
                _ => figure_of(visit, measured, &own, &gauge, series.better()),
            };
            rows.extend(value.and_then(|value| series.note(value, unix_s)));
        }
        Noted { rows, no_figure: None }
    }

    /// Whether a figure fell and has not recovered.
    pub fn is_fallen(&self) -> bool {
        self.series.iter().any(Series::is_fallen)
    }
}

/// The samples during which no other thread of this machine took the CPU.
fn own_samples(measured: &Measured, hz: f64) -> Vec<usize> {
    let samples = &measured.samples;
    let is_own = |sample: &usize| {
        let lost_us = samples.lost_us.get(*sample).copied().unwrap_or(0);
        let span_us = samples.ticks[*sample] as f64 / hz * 1e6;
        lost_us < LOST_LEAST_US || f64::from(lost_us) < LOST_SHARE * span_us
    };
    (0..samples.ticks.len()).filter(is_own).collect()
}

/// What the undisturbed of these samples come to: each met a state of its own.
fn figure_of(visit: &Measurement, measured: &Measured, own: &[usize], gauge: &Gauge, better: Better) -> Option<f64> {
    let values = match visit.case.work {
        Work::Chase(chase) => link_ns(measured, chase, gauge.hz),
        _ => payload_bps(measured, gauge.hz),
    };
    let shares = measured.samples.shares(&visit.case.cpus, &gauge.undisturbed);
    let sample = |&at: &usize| {
        let shares = if shares.is_empty() { &shares[..] } else { shares.get(at..=at).unwrap_or(&[]) };
        Some(Visit { values: values.get(at..=at)?, shares })
    };
    let visits: Vec<Visit<'_>> = own.iter().filter_map(sample).collect();
    Some(states(&visits, better)?.capability.value)
}

/// The clock that the core had beside these samples.
fn clock(measured: &Measured, own: &[usize], hz: f64) -> Option<f64> {
    let cycles = measured.cycles_per_tick();
    median(own.iter().filter_map(|at| cycles.get(*at).copied().flatten())).map(|cycles| cycles * hz)
}

/// Cases with what they stand for in words; what no check looks at is named as it is.
pub fn named(cases: &[Case], frame: &Frame) -> Vec<Probe> {
    let known = planned(cases, frame);
    let is_usual = |case: &Case| match &case.work {
        Work::Kernel(variant) => variant.kernel == "load" && frame.one_per_level().contains(&case.working_set),
        _ => case.working_set == frame.memory_size(1),
    };
    let own = |case: &Case| Probe { quantity: case.to_string(), level: String::new(), case: case.clone() };
    let name = |case: &Case| {
        known.iter().find(|probe| probe.case == *case && is_usual(case)).cloned().unwrap_or_else(|| own(case))
    };
    cases.iter().map(name).collect()
}
