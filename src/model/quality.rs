//! How far a figure can be trusted: what every row says of itself, whatever its metric, and how that follows from the
//! visits to a case.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rows::{core_clock, imbalance, measured, median};
use super::{Cost, Rate};
use crate::memory::{MemoryKind, Obtained};
use crate::plan::{Case, PageWork, Protocol, Work};
use crate::record::{Measured, Measurement, Outcome, Volume};
use crate::stats::{self, Summary};
use crate::units::{Bytes, words};

words! {
    /// What came of a case.
    Status, "outcome" {
        /// There are figures.
        Measured = "measured",
        /// It can't be had here.
        Unavailable = "unavailable",
        /// The measured code came to a fault.
        Crashed = "crashed",
        /// The figures, or the data behind them, can't be right.
        Invalid = "invalid",
    }
}

/// How far the figures of a row can be trusted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Quality {
    /// Number of samples; of an offset those of each offset alike.
    pub samples: usize,
    /// Times the case was visited; of an address map all visits, each with questions of its own.
    pub rounds: usize,
    /// What came of it.
    pub outcome: Status,
    /// Why, where not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What to know about the figures: `bimodal`, `outliers`, `steal`, `switches`, `faults`, `imbalanced`, `migrated`, `drift`,
    /// `clock-changed`, `few-samples`, `wide-interval`, `pages-differ`. Of bandwidths `controllers-disagree`. Of hand-overs
    /// `asymmetric`: another time than the other way round. Of latency under load `idle-differs`: beside idle threads not
    /// what it is alone; `not-monotone`: latency or bandwidth fell with more load; `may-be-cached`: the chase is less than 4
    /// last-level caches; `starved`: the loading threads moved nothing during half of the samples or more, so that this is
    /// no point of a curve. Of the matrix of nodes `may-be-cached`: the working set is less than 4 last-level caches of its
    /// CPUs. Beside page cache `cache-kept`: it could not be emptied first; `cache-short`: not all of the file was in it. Of
    /// messages `oversubscribed`: more processes ran than there are CPUs.
    pub flags: Vec<String>,
}

impl Quality {
    /// Of a case without a sample so far. A fault in any visit makes the case faulty: its other figures come from the same
    /// code.
    pub(super) fn of(visits: &[&Measurement]) -> Quality {
        let is_measured = visits.iter().any(|visit| matches!(visit.outcome, Outcome::Measured(_)));
        let mut found = (Status::Measured, None);
        for visit in visits {
            found = match &visit.outcome {
                Outcome::Measured(_) => continue,
                Outcome::Unavailable { .. } if is_measured => continue,
                Outcome::Unavailable { reason } => (Status::Unavailable, Some(reason)),
                Outcome::Crashed { reason } => (Status::Crashed, Some(reason)),
                Outcome::Invalid { reason } => (Status::Invalid, Some(reason)),
            };
        }
        Quality { samples: 0, rounds: 0, outcome: found.0, reason: found.1.cloned(), flags: Vec::new() }
    }

    /// Whether there are figures, and nothing speaks against them as a whole.
    pub fn is_measured(&self) -> bool {
        self.outcome == Status::Measured
    }

    /// Whether this is to know about the figures.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|own| own == flag)
    }

    /// Why there are no figures that hold: `unavailable: this processor has no AVX`.
    pub fn fault(&self) -> Option<String> {
        self.reason.as_ref().map(|reason| format!("{}: {reason}", self.outcome))
    }

    /// Adds flags whose tests hold.
    pub(super) fn flag<const N: usize>(&mut self, tests: [(&str, bool); N]) {
        self.flags.extend(tests.into_iter().filter(|(_, holds)| *holds).map(|(flag, _)| flag.into()));
    }

    /// Takes back that the figures hold.
    pub(super) fn refuse(&mut self, outcome: Status, reason: impl Into<String>) {
        (self.outcome, self.reason) = (outcome, Some(reason.into()));
    }
}

/// A row of any metric that was measured case by case.
pub trait Rated {
    /// What it is about, in few words.
    fn what(&self) -> String;
    /// How far its figures can be trusted.
    fn quality(&self) -> &Quality;
}

/// Makes rows rated that hold a [`Quality`], by their words.
macro_rules! rated {
    ($row:ty, $what:expr) => {
        impl $crate::model::Rated for $row {
            fn what(&self) -> String {
                let what: fn(&$row) -> String = $what;
                what(self)
            }

            fn quality(&self) -> &$crate::model::Quality {
                &self.quality
            }
        }
    };
}

pub(super) use rated;

/// The samples of a case, a value each, and how far they can be trusted.
pub(super) struct Sampled<'a> {
    /// The visits that came to figures.
    pub measured: Vec<&'a Measured>,
    /// Their values, visit by visit.
    pub batches: Vec<Vec<f64>>,
    /// What they say together; absent where there are none.
    pub summary: Option<Summary>,
    pub quality: Quality,
}

impl<'a> Sampled<'a> {
    pub fn of(visits: &[&'a Measurement], hz: f64, values: impl Fn(&Measured) -> Vec<f64>) -> Sampled<'a> {
        let measured = measured(visits);
        let batches: Vec<Vec<f64>> = measured.iter().map(|visit| values(visit)).collect();
        let (summary, mut quality) = (summarize(&batches), Quality::of(visits));
        if let Some(summary) = &summary {
            (quality.samples, quality.rounds) = (summary.samples, measured.len());
            quality.flags = flags(&visits[0].case, &measured, &batches, summary, hz);
        }
        Sampled { measured, batches, summary, quality }
    }

    /// The values as a rate.
    pub fn rate(&self) -> Option<Rate> {
        self.summary.as_ref().map(Rate::from)
    }

    /// Where the values are payload rates: the rate of something else that the same repetitions did.
    pub fn rate_of(&self, what: fn(&Volume) -> u64) -> Option<Rate> {
        let volume = self.measured.last()?.volume;
        Some(self.rate()?.times(what(&volume) as f64 / volume.payload().max(1) as f64))
    }

    /// The values as a cost.
    pub fn cost(&self) -> Option<Cost> {
        self.summary.as_ref().map(Cost::from)
    }

    /// Rates as those of one of so many threads in a core clock cycle. Each sample counts by the clock that was read right
    /// after it: with wide arithmetic it changes from one millisecond to the next.
    pub fn per_cycle(&self, threads: usize, hz: f64) -> Option<Summary> {
        let of_visit = |(visit, rates): (&&Measured, &Vec<f64>)| -> Vec<f64> {
            let cycle_s = |chain: u64| chain as f64 / hz / visit.core_clock_links as f64;
            let each = rates.iter().zip(&visit.samples.core_clock_ticks).filter(|(_, chain)| **chain > 0);
            each.map(|(rate, chain)| rate / threads as f64 * cycle_s(*chain)).filter(|rate| rate.is_finite()).collect()
        };
        let batches: Vec<Vec<f64>> = self.measured.iter().zip(&self.batches).map(of_visit).collect();
        summarize(&batches.into_iter().filter(|batch| !batch.is_empty()).collect::<Vec<_>>())
    }

    /// Core clock in hertz.
    pub fn core_clock(&self, hz: f64) -> Option<f64> {
        core_clock(&self.measured, hz)
    }

    /// Values in nanoseconds as core clock cycles: their median.
    pub fn cycles(&self, hz: f64) -> Option<f64> {
        Some(self.summary.as_ref()?.median * 1e-9 * self.core_clock(hz)?)
    }

    /// The memory of the last visit.
    pub fn obtained(&self) -> Option<Obtained> {
        self.measured.last().map(|last| last.obtained.clone())
    }

    /// The node of the pages: asked for, else the one node that all were found on.
    pub fn node(&self, case: &Case) -> Option<u32> {
        let found = self.measured.last().map(|last| &last.obtained.pages_on_node[..]);
        case.memory.node().or(match found {
            Some([only]) => Some(only.node),
            _ => None,
        })
    }
}

pub(super) fn summarize(batches: &[Vec<f64>]) -> Option<Summary> {
    stats::summarize(&batches.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// Thresholds of the flags: shares of samples, or relative differences.
mod threshold {
    /// Fewer samples than this carry little.
    pub const FEW_SAMPLES: usize = 9;
    /// Half the interval against the median.
    pub const WIDE_INTERVAL: f64 = 0.05;
    /// Outliers, steal, switches and faults are named when this share of samples has them.
    pub const DISTURBED: f64 = 0.1;
    /// Slowest against fastest round's median.
    pub const DRIFT: f64 = 0.1;
    /// Time of all threads against that of the fastest: beyond this one thread does not do what the others do.
    pub const IMBALANCE: f64 = 0.25;
    /// Slowest against fastest round's core clock.
    pub const CLOCK: f64 = 0.03;
    /// Share of huge pages below which `thp` was not obtained.
    pub const HUGE_SHARE: f64 = 0.9;
}

/// What to know about figures. `batches` are the values that `summary` sums up, visit by visit.
pub(super) fn flags(
    case: &Case,
    measured: &[&Measured],
    batches: &[Vec<f64>],
    summary: &Summary,
    hz: f64,
) -> Vec<String> {
    let n = summary.samples;
    let share = |column: fn(&Measured) -> &Vec<u32>| {
        let hit: usize = measured.iter().map(|visit| column(visit).iter().filter(|x| **x > 0).count()).sum();
        hit as f64 / n.max(1) as f64
    };
    let spread = |values: Vec<f64>| {
        let (low, high) = values.iter().fold((f64::INFINITY, 0f64), |(low, high), &v| (low.min(v), high.max(v)));
        if values.len() < 2 || low <= 0.0 { 0.0 } else { high / low - 1.0 }
    };
    let round_medians = batches.iter().filter_map(|batch| median(batch.iter().copied())).collect();
    let clocks = measured.iter().filter_map(|visit| core_clock(&[visit], hz)).collect();
    let half_width = (summary.ci95[1] - summary.ci95[0]) / 2.0 / summary.median;
    let tests = [
        ("few-samples", n < threshold::FEW_SAMPLES),
        ("wide-interval", half_width > threshold::WIDE_INTERVAL),
        ("bimodal", summary.modes.is_some()),
        ("outliers", summary.outliers as f64 > threshold::DISTURBED * n as f64),
        ("drift", spread(round_medians) > threshold::DRIFT),
        ("steal", share(|m| &m.samples.steal_jiffies) > threshold::DISTURBED),
        ("switches", share(|m| &m.samples.switches) > threshold::DISTURBED),
        // First use and works on pages are made of faults.
        ("faults", case.protocol != Protocol::FirstUse && share(|m| &m.samples.faults) > threshold::DISTURBED),
        ("imbalanced", case.threads() > 1 && imbalance(measured).is_some_and(|more| more > threshold::IMBALANCE)),
        ("migrated", share(|m| &m.samples.migrations) > 0.0),
        ("clock-changed", spread(clocks) > threshold::CLOCK),
        ("pages-differ", measured.iter().any(|visit| pages_differ(case, visit))),
    ];
    tests.iter().filter(|(_, holds)| *holds).map(|(name, _)| (*name).into()).collect()
}

/// Whether memory is made of huge pages, as far as smaps tells.
pub(super) fn is_huge(obtained: &Obtained) -> Option<bool> {
    Some(huge_share(obtained)? >= threshold::HUGE_SHARE)
}

fn huge_share(obtained: &Obtained) -> Option<f64> {
    obtained.huge_bytes.map(|huge| huge.0 as f64 / obtained.bytes.0.max(1) as f64)
}

fn pages_differ(case: &Case, visit: &Measured) -> bool {
    let obtained = &visit.obtained;
    let wrong_size = match case.memory.kind {
        // What smaps sees is not what these two works are about; `pages.rs` judges them.
        _ if matches!(case.work, Work::Page(PageWork::Read | PageWork::Collapse)) => false,
        MemoryKind::Base => huge_share(obtained).is_some_and(|share| share > 0.0),
        // A region below a huge page has none.
        MemoryKind::Thp | MemoryKind::Huge2M | MemoryKind::Huge1G => {
            obtained.bytes >= Bytes::mib(2) && is_huge(obtained) == Some(false)
        }
        _ => false,
    };
    let is_elsewhere = |node| obtained.pages_on_node.iter().any(|found| found.node != node);
    let wrong_node = case.streams.is_empty() && case.memory.node().is_some_and(is_elsewhere);
    wrong_size || wrong_node || obtained.proofs.iter().any(|proof| !proof.holds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Sample, Samples};

    /// 4.92 MB in as many cycles each time, at two clocks in turns: the rate moves, what is done in a cycle does not.
    #[test]
    fn what_the_clock_does_from_sample_to_sample_drops_out() {
        let (hz, payload) = (2.6e9, 4.92e6);
        let mut samples = Samples::default();
        for slower in [1, 2, 1, 2, 1, 2, 1, 2, 1, 2] {
            let (ticks, core_clock_ticks) = (30_000 * slower, 16_800 * slower);
            samples.push(Sample { ticks, core_clock_ticks, ..Sample::default() });
        }
        let rates: Vec<f64> = samples.ticks.iter().map(|ticks| payload / (*ticks as f64 / hz)).collect();
        let measured = Measured {
            volume: Volume::default(),
            repetitions: 200,
            core_clock_links: 20_000,
            samples,
            obtained: Obtained::default(),
        };
        let sampled = |measured| Sampled {
            measured: vec![measured],
            batches: vec![rates.clone()],
            summary: summarize(std::slice::from_ref(&rates)),
            quality: Quality::of(&[]),
        };
        // 30,000 / 16,800 x 20,000 = 35,714 cycles.
        let found = sampled(&measured).per_cycle(1, hz).unwrap();
        for value in [found.median, found.ci95[0], found.ci95[1]] {
            assert!((value - 4.92e6 / 35_714.3).abs() < 1e-3, "{value}");
        }
        let by_two = sampled(&measured).per_cycle(2, hz).unwrap();
        assert!((by_two.median - found.median / 2.0).abs() < 1e-9);
        assert!(sampled(&Measured { core_clock_links: 0, ..measured.clone() }).per_cycle(1, hz).is_none(), "no clock");
    }
}
