//! How far a figure can be trusted: what every row says of itself, whatever its metric, and how that follows from the
//! visits to a case.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::flag::Flag;
use crate::rate::{Cost, Figure, Rate};
use crate::visits::{Gauge, Place, core_clock, imbalance, measured};
use membound_core::case::{Case, Protocol, Work};
use membound_core::memory::behaviour::IGNORED;
use membound_core::memory::{MemoryKind, Obtained};
use membound_core::record::{Measured, Measurement, Outcome, Volume};
use membound_core::stats;
use membound_core::stats::Summary;
use membound_core::stats::quantiles::median;
use membound_core::stats::states::{Better, States, VISITS_MIN, Visit, level, states, undisturbed};
use membound_core::units::{Bytes, words};
use membound_core::work::pages::PageWork;

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

/// What the reason says where a figure is above a limit.
pub(crate) const ABOVE_A_LIMIT: &str = " can be: the limit is ";

/// Why there are no figures that hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What came instead; never [`Status::Measured`].
    pub outcome: Status,
    /// Why.
    pub reason: String,
}

impl Fault {
    /// Whether this is a crash or a wrong result: lack of time or memory is none, nor are memory types that a hypervisor ignores
    /// ([`Outcome::is_failure`]), nor is a figure above a limit, which may be what is wrong.
    pub(crate) fn is_failure(&self) -> bool {
        match self.outcome {
            Status::Crashed => true,
            Status::Invalid => !self.reason.starts_with(IGNORED) && !self.reason.contains(ABOVE_A_LIMIT),
            Status::Measured | Status::Unavailable => false,
        }
    }
}

/// `unavailable: this processor has no AVX`.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.outcome, self.reason)
    }
}

/// How far the figures of a row can be trusted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Quality {
    /// Number of samples; of an offset those of each offset alike.
    pub samples: usize,
    /// Times the case was visited; of an address map all visits, each with questions of its own.
    pub rounds: usize,
    /// The outcome.
    pub outcome: Status,
    /// Why, where not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What to know about the figures.
    pub flags: Vec<Flag>,
}

impl Quality {
    /// Of a case without a sample so far. A fault in any visit makes the case faulty: its other figures come from the same
    /// code.
    pub(crate) fn of(visits: &[&Measurement]) -> Quality {
        let is_measured = visits.iter().any(|visit| visit.outcome.measured().is_some());
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

    /// Whether the case was visited often enough for an interval, as the headline is and a curve is not.
    pub(crate) fn is_of_headline(&self) -> bool {
        self.rounds >= VISITS_MIN
    }

    /// Whether this is to know about the figures.
    pub fn has(&self, flag: Flag) -> bool {
        self.flags.contains(&flag)
    }

    /// Its flags in words: `steal drift`.
    pub fn flag_words(&self) -> String {
        self.flags.iter().map(|flag| flag.word()).collect::<Vec<_>>().join(" ")
    }

    /// Why there are no figures that hold.
    pub fn fault(&self) -> Option<Fault> {
        Some(Fault { outcome: self.outcome, reason: self.reason.clone()? })
    }

    /// Adds flags whose tests hold.
    pub(crate) fn flag<const N: usize>(&mut self, tests: [(Flag, bool); N]) {
        self.flags.extend(tests.into_iter().filter(|(_, holds)| *holds).map(|(flag, _)| flag));
    }

    /// Takes back that the figures hold.
    pub(crate) fn refuse(&mut self, outcome: Status, reason: impl Into<String>) {
        (self.outcome, self.reason) = (outcome, Some(reason.into()));
    }
}

/// The samples of a case, a value each, and how far they can be trusted.
///
/// Where a host moved the CPUs, a figure of several threads is of one place, as of one node: of the visits with CPUs as far apart
/// as they mostly were.
pub(crate) struct Sampled<'a> {
    /// The visits that figures are of.
    pub measured: Vec<&'a Measured>,
    /// Their values, visit by visit.
    pub batches: Vec<Vec<f64>>,
    /// The share of its core that the slowest thread had around each, where that is known.
    shares: Vec<Vec<Option<f64>>>,
    /// Core cycles per clock tick around each, where a clock was read.
    clocks: Vec<Vec<Option<f64>>>,
    /// What they say together; absent where there are none.
    pub summary: Option<Summary>,
    /// The values of every visit, where figures are of some.
    every: Option<Vec<Vec<f64>>>,
    pub quality: Quality,
}

impl<'a> Sampled<'a> {
    pub fn of(visits: &[&'a Measurement], gauge: &Gauge, values: impl Fn(&Measured) -> Vec<f64>) -> Sampled<'a> {
        let case = &visits[0].case;
        let of = |visits: &[&'a Measured]| visits.iter().map(|visit| values(visit)).collect::<Vec<_>>();
        let mut measured = measured(visits);
        let (mut batches, mut every) = (of(&measured), None);
        let (mut summary, mut quality) = (summarize(&batches), Quality::of(visits));
        if let Some(summary) = &summary {
            (quality.samples, quality.rounds) = (summary.samples, measured.len());
        }
        if let Some(usual) = gauge.usual(case, &measured) {
            every = Some(std::mem::replace(&mut batches, of(&usual)));
            (measured, summary) = (usual, summarize(&batches));
        }
        if let Some(summary) = &summary {
            quality.flags = flags(case, &measured, &batches, summary, gauge.hz);
        }
        let shares = measured.iter().map(|visit| visit.samples.shares(&case.cpus, &gauge.undisturbed)).collect();
        let clocks = measured.iter().map(|visit| visit.cycles_per_tick_on(&case.cpus, &gauge.undisturbed)).collect();
        Sampled { measured, batches, shares, clocks, summary, every, quality }
    }

    /// Where the host had the CPUs in the visits that the figures are of.
    pub fn place(&self, case: &Case, gauge: &Gauge) -> Place {
        gauge.place(case, &self.measured)
    }

    /// The values as a rate.
    pub fn rate(&mut self) -> Option<Rate> {
        self.figure(Better::Higher)
    }

    /// The values as a cost.
    pub fn cost(&mut self) -> Option<Cost> {
        self.figure(Better::Lower)
    }

    /// Says in the quality, too, if most visits were disturbed.
    fn figure(&mut self, better: Better) -> Option<Figure> {
        let mut figure = figure(&self.batches, &self.shares, better)?;
        if let Some(every) = &self.every {
            figure.experienced = self::figure(every, &[], better)?.experienced;
        }
        self.quality.flag([(Flag::Disturbed, figure.undisturbed_share < DISTURBED)]);
        Some(figure)
    }

    /// Of payload rates: the rate of something else that the same repetitions did.
    pub fn rate_of(&self, payload: Option<Rate>, what: fn(&Volume) -> u64) -> Option<Rate> {
        let volume = self.measured.last()?.volume;
        Some(payload?.times(what(&volume) as f64 / volume.payload().max(1) as f64))
    }

    /// Rates as those of one of so many threads in a core clock cycle.
    pub fn per_cycle(&self, threads: usize, hz: f64) -> Option<Figure> {
        let batches = self.by_clock(hz, |rate, clock_hz| rate / threads as f64 / clock_hz);
        figure(&batches, &self.shares, Better::Higher)
    }

    /// The values, each by the core clock of its own sample: with wide arithmetic it changes from one millisecond to the next. Not a
    /// number where none was read, which no figure counts.
    fn by_clock(&self, hz: f64, value: impl Fn(f64, f64) -> f64) -> Vec<Vec<f64>> {
        let of_visit = |(clocks, values): (&Vec<Option<f64>>, &Vec<f64>)| {
            let clocks = clocks.iter().map(|clock| clock.map_or(f64::NAN, |clock| clock * hz));
            values.iter().zip(clocks).map(|(x, clock_hz)| value(*x, clock_hz)).collect()
        };
        self.clocks.iter().zip(&self.batches).map(of_visit).collect()
    }

    /// Core clock in hertz.
    pub fn core_clock(&self, hz: f64) -> Option<f64> {
        median(self.clocks.iter().flatten().flatten().map(|cycles| cycles * hz))
    }

    /// Values in nanoseconds as core clock cycles: the median of the visits that were undisturbed by their nanoseconds. Memory takes
    /// fewer cycles at a lower clock, and a busy hyperthread makes the clock seem lower than it is.
    pub fn cycles(&self, hz: f64) -> Option<f64> {
        let counts = undisturbed(&visits(&self.batches, &self.shares), Better::Lower);
        let visits = self.visit_cycles(hz).into_iter().zip(counts);
        median(visits.filter_map(|(cycles, counts)| cycles.filter(|_| counts)))
    }

    /// The same of each visit, where its clock was read.
    fn visit_cycles(&self, hz: f64) -> Vec<Option<f64>> {
        self.by_clock(hz, |ns, clock_hz| ns * 1e-9 * clock_hz).into_iter().map(cost_of_visit).collect()
    }

    /// Nanoseconds of each visit whose clock was read, and its cycles.
    pub fn visits_by_clock(&self, hz: f64) -> Vec<[f64; 2]> {
        let ns = self.batches.iter().cloned().map(cost_of_visit);
        ns.zip(self.visit_cycles(hz)).filter_map(|(ns, cycles)| Some([ns?, cycles?])).collect()
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

/// What the samples of a visit come to, where less is better.
fn cost_of_visit(batch: Vec<f64>) -> Option<f64> {
    Some(Better::Lower.up(level(batch, Better::Lower)?).exp())
}

/// What samples say, visit by visit, where more or less is better.
pub(crate) fn figure(batches: &[Vec<f64>], shares: &[Vec<Option<f64>>], better: Better) -> Option<Figure> {
    let summary = summarize(batches)?;
    let best = if better == Better::Higher { summary.greatest } else { summary.least };
    Some(Figure::new(best, &summary, states_of(batches, shares, better)))
}

pub(crate) fn states_of(batches: &[Vec<f64>], shares: &[Vec<Option<f64>>], better: Better) -> Option<States> {
    states(&visits(batches, shares), better)
}

fn visits<'a>(batches: &'a [Vec<f64>], shares: &'a [Vec<Option<f64>>]) -> Vec<Visit<'a>> {
    let shares = shares.iter().map(Vec::as_slice).chain(std::iter::repeat(&[][..]));
    batches.iter().zip(shares).map(|(values, shares)| Visit { values, shares }).collect()
}

pub(crate) fn summarize(batches: &[Vec<f64>]) -> Option<Summary> {
    stats::summarize(&batches.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// Fewer of the visits undisturbed than this are a figure's flaw.
pub(crate) const DISTURBED: f64 = 0.5;

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
    /// Seconds that no scheduler lets a thread wait beside a few others.
    pub const STOPPED_S: f64 = 0.05;
    /// Share of huge pages below which `thp` was not obtained.
    pub const HUGE_SHARE: f64 = 0.9;
}

/// What to know about figures. `batches` are the values that `summary` sums up, visit by visit.
pub(crate) fn flags(
    case: &Case,
    measured: &[&Measured],
    batches: &[Vec<f64>],
    summary: &Summary,
    hz: f64,
) -> Vec<Flag> {
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
    // Who waits for a device is not running, gives its CPU to the driver's threads, and has pages made by the driver.
    let waits = match case.work {
        Work::Device(work) => !work.is_of_the_host(),
        Work::Copies(_) => true,
        _ => false,
    };
    let half_width = (summary.ci95[1] - summary.ci95[0]) / 2.0 / summary.median;
    let tests = [
        (Flag::FewSamples, n < threshold::FEW_SAMPLES),
        (Flag::WideInterval, half_width > threshold::WIDE_INTERVAL),
        (Flag::Bimodal, summary.modes.is_some()),
        (Flag::Outliers, summary.outliers as f64 > threshold::DISTURBED * n as f64),
        (Flag::Drift, spread(round_medians) > threshold::DRIFT),
        (Flag::Steal, share(|m| &m.samples.steal_jiffies) > threshold::DISTURBED),
        (Flag::Switches, !waits && share(|m| &m.samples.switches) > threshold::DISTURBED),
        (Flag::Stopped, !waits && measured.iter().any(|visit| has_stopped(visit, hz))),
        // First use and works on pages are made of faults.
        (
            Flag::Faults,
            !waits && case.protocol != Protocol::FirstUse && share(|m| &m.samples.faults) > threshold::DISTURBED,
        ),
        (Flag::Imbalanced, case.threads() > 1 && imbalance(measured).is_some_and(|more| more > threshold::IMBALANCE)),
        (Flag::Migrated, share(|m| &m.samples.migrations) > 0.0),
        (Flag::ClockChanged, spread(clocks) > threshold::CLOCK),
        (Flag::PagesDiffer, measured.iter().any(|visit| pages_differ(case, visit))),
    ];
    tests.into_iter().filter(|(_, holds)| *holds).map(|(flag, _)| flag).collect()
}

/// Whether a sample holds time in which nothing ran: lost by the threads' own clocks, or more than any other sample needs.
/// A suspend and a paused guest show in the latter alone.
fn has_stopped(visit: &Measured, hz: f64) -> bool {
    let samples = &visit.samples;
    let seconds = |ticks: f64| ticks / hz;
    let middle = seconds(median(samples.ticks.iter().map(|ticks| *ticks as f64)).unwrap_or(0.0));
    let longest = samples.ticks.iter().max().map_or(0.0, |ticks| seconds(*ticks as f64));
    samples.lost_us.iter().any(|us| f64::from(*us) * 1e-6 > threshold::STOPPED_S)
        || longest > 2.0 * middle + threshold::STOPPED_S
}

/// Whether memory is made of huge pages, as far as smaps tells.
pub(crate) fn is_huge(obtained: &Obtained) -> Option<bool> {
    Some(huge_share(obtained)? >= threshold::HUGE_SHARE)
}

/// Whether memory that may be made of transparent huge pages is: as many as it has room for, as far as smaps tells. Less than one
/// has none.
pub(crate) fn is_thp(obtained: &Obtained) -> Option<bool> {
    let page = obtained.huge_page().0.max(1);
    let room = obtained.bytes.0 / page * page;
    let huge = obtained.huge_bytes.filter(|_| room > 0)?;
    Some(huge.0 as f64 >= threshold::HUGE_SHARE * room as f64)
}

/// The share of memory that is made of huge pages, as far as smaps tells.
pub(crate) fn huge_share(obtained: &Obtained) -> Option<f64> {
    obtained.huge_bytes.map(|huge| huge.0 as f64 / obtained.bytes.0.max(1) as f64)
}

fn pages_differ(case: &Case, visit: &Measured) -> bool {
    let obtained = &visit.obtained;
    let wrong_size = match case.memory.kind {
        // What smaps sees is not what these two works are about; `pages.rs` judges them.
        _ if matches!(case.work, Work::Page(PageWork::Read | PageWork::Collapse)) => false,
        MemoryKind::Base => huge_share(obtained).is_some_and(|share| share > 0.0),
        MemoryKind::Thp => is_thp(obtained) == Some(false),
        MemoryKind::Huge2M | MemoryKind::Huge1G => obtained.bytes >= Bytes::mib(2) && is_huge(obtained) == Some(false),
        _ => false,
    };
    let is_elsewhere = |node| obtained.pages_on_node.iter().any(|found| found.node != node);
    let wrong_node = case.streams.is_empty() && case.memory.node().is_some_and(is_elsewhere);
    wrong_size || wrong_node || obtained.proofs.iter().any(|proof| !proof.holds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use membound_core::record::probes::{ProbeSamples, Reading};
    use membound_core::record::{Sample, Samples};

    #[test]
    fn what_is_a_failure_and_what_is_not() {
        let is_failure = |outcome, reason: &str| Fault { outcome, reason: reason.into() }.is_failure();
        assert!(is_failure(Status::Crashed, "SIGILL"));
        assert!(is_failure(Status::Invalid, "faster than the same loop in a working set 64 times smaller"));
        assert!(!is_failure(Status::Invalid, &format!("faster than memory{ABOVE_A_LIMIT}6.40 GB/s (spec, test)")));
        assert!(!is_failure(Status::Invalid, &format!("{IGNORED} WC")));
        assert!(!is_failure(Status::Unavailable, "no time was left for it"));
    }

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
        let without_clock = Measured { core_clock_links: 0, ..measured.clone() };
        let sampled = |measured| Sampled {
            measured: vec![measured],
            batches: vec![rates.clone()],
            shares: Vec::new(),
            clocks: vec![Measured::cycles_per_tick(measured)],
            every: None,
            summary: summarize(std::slice::from_ref(&rates)),
            quality: Quality::of(&[]),
        };
        // 30,000 / 16,800 x 20,000 = 35,714 cycles.
        let found = sampled(&measured).per_cycle(1, hz).unwrap();
        for value in found.interval() {
            assert!((value - 4.92e6 / 35_714.3).abs() < 1e-3, "{value}");
        }
        let by_two = sampled(&measured).per_cycle(2, hz).unwrap();
        assert!((by_two.value() - found.value() / 2.0).abs() < 1e-9);
        assert!(sampled(&without_clock).per_cycle(1, hz).is_none(), "no clock");
    }

    /// A load from memory takes 160 ns at 3 GHz. In two visits of six the core seems to run at half of that: once memory is slower, too.
    #[test]
    fn cycles_are_of_visits_that_were_undisturbed_by_their_nanoseconds() {
        let visit = |core_clock_ticks| {
            let mut samples = Samples::default();
            (0..9).for_each(|_| samples.push(Sample { ticks: 1, core_clock_ticks, ..Sample::default() }));
            let (volume, obtained) = (Volume::default(), Obtained::default());
            Measured { volume, repetitions: 1, core_clock_links: 3000, samples, obtained }
        };
        let (fast, slow) = (visit(1000), visit(2000));
        let batches: Vec<Vec<f64>> = [160.0, 200.0, 160.0, 160.0, 160.0, 160.0].map(|ns| vec![ns; 9]).into();
        let measured = vec![&fast, &slow, &fast, &fast, &slow, &fast];
        let sampled = Sampled {
            clocks: measured.iter().map(|visit| visit.cycles_per_tick()).collect(),
            measured,
            summary: summarize(&batches),
            batches,
            shares: Vec::new(),
            every: None,
            quality: Quality::of(&[]),
        };
        // At the clock of the time stamp counter, 1 GHz, times 3000 links in 1000 ticks. In the two a load takes 300 and 240 cycles.
        assert_eq!(sampled.cycles(1e9), Some(480.0));
    }

    /// Readings before and after each sample: in turns one of the two was disturbed, and thread 1 has half the clock.
    #[test]
    fn the_higher_clock_around_a_sample_counts() {
        let (mut samples, mut probes) = (Samples::default(), ProbeSamples::default());
        (probes.chain_links, probes.wide_adds) = (6400, 12_288);
        for sample in 0..4 {
            samples.push(Sample { ticks: 1000, core_clock_ticks: 9000, ..Sample::default() });
            let around = [6400, 9000].map(|chain_ticks| Reading { chain_ticks, wide_ticks: 3072 });
            let turned = if sample % 2 == 0 { around } else { [around[1], around[0]] };
            let slow = Reading { chain_ticks: 12_800, wide_ticks: 6144 };
            probes.push([turned, [Reading::default(), slow]].into_iter());
        }
        samples.probes = Some(probes);
        let (volume, obtained) = (Volume::default(), Obtained::default());
        let measured = Measured { volume, repetitions: 1, core_clock_links: 6400, samples, obtained };
        assert_eq!(measured.cycles_per_tick(), [Some(0.75); 4]);
        assert_eq!(core_clock(&[&measured], 2e9), Some(1.5e9));
    }

    #[test]
    fn a_stop_within_a_sample_is_told() {
        let told = |ticks: [u64; 4], lost_us: u32| {
            let mut samples = Samples::default();
            ticks.iter().for_each(|&ticks| samples.push(Sample { ticks, lost_us, ..Sample::default() }));
            let (volume, obtained) = (Volume::default(), Obtained::default());
            has_stopped(&Measured { volume, repetitions: 1, core_clock_links: 1, samples, obtained }, 1e9)
        };
        let (steady, long) = ([200_000; 4], [800_000_000; 4]);
        assert!(!told(steady, 9_000) && !told(long, 9_000), "another task's turn");
        assert!(told(steady, 3_000_000), "SIGSTOP");
        assert!(told([200_000, 3_000_000_000, 200_000, 200_000], 0), "a paused guest, whose clock runs on");
        assert!(!told([800_000_000, 1_600_000_000, 800_000_000, 800_000_000], 0), "contended memory");
    }
}
