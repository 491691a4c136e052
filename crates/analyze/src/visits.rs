//! A record's visits, grouped by case once for all who ask, and what their samples say.

use membound_core::case::Case;
use membound_core::index::index;
use membound_core::machine::Machine;
use membound_core::parallel;
use membound_core::record::hand_overs::{Distance, Moved};
use membound_core::record::probes::Undisturbed;
use membound_core::record::{Header, Measured, Measurement, Record};
use membound_core::stats::quantiles::{median, quantile};

/// A record and the visits to each of its cases.
pub(crate) struct Visits<'a> {
    pub record: &'a Record,
    /// In the order in which cases were first visited; no group is empty.
    pub cases: Vec<Vec<&'a Measurement>>,
    /// Of each visit of the record, which of the cases it is of.
    pub case_of: Vec<usize>,
    pub gauge: Gauge,
}

/// What samples are told by.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    /// Ticks of the clock in a second.
    pub hz: f64,
    /// What each CPU can when it has its core to itself.
    pub undisturbed: Undisturbed,
    /// Where the host had the CPUs, if it moved them.
    pub moved: Option<Moved>,
}

/// Where a host had the CPUs of some visits. What was measured at two places is not held against each other: it would tell of the
/// places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Place {
    /// One thread alone, a host that moves none, or more than two threads of which some are close and some far apart: so many mostly
    /// are, and alike from visit to visit.
    #[default]
    Any,
    /// All of them as far apart.
    At(Distance),
    /// Now close together, now far apart, or not known.
    Mixed,
}

impl Place {
    /// Whether figures of both can be held against each other.
    pub fn meets(self, other: Place) -> bool {
        match (self, other) {
            (Place::Any, _) | (_, Place::Any) => true,
            (Place::At(one), Place::At(other)) => one == other,
            (Place::Mixed, _) | (_, Place::Mixed) => false,
        }
    }
}

impl Gauge {
    /// Of `visits`, in a clock of so many ticks a second.
    pub fn of<'a>(visits: impl Iterator<Item = &'a Measurement> + Clone, hz: f64) -> Gauge {
        let measured = visits.filter_map(|visit| Some((&visit.case, visit.outcome.measured()?)));
        let probed = |(case, visit): (&'a Case, &'a Measured)| Some((&case.cpus[..], visit.samples.probes.as_ref()?));
        let undisturbed = Undisturbed::of(measured.clone().filter_map(probed));
        Gauge { hz, undisturbed, moved: Moved::seen(measured) }
    }

    /// On a machine that tells which CPUs are threads of one core.
    pub fn on(self, machine: &Machine) -> Gauge {
        Gauge { undisturbed: self.undisturbed.on(machine), ..self }
    }

    /// Where the CPUs were in these visits to a case.
    pub fn place(&self, case: &Case, visits: &[&Measured]) -> Place {
        let Some(moved) = self.moved.as_ref().filter(|_| case.threads() > 1) else { return Place::Any };
        let mut all = visits.iter().map(|visit| moved.distances.of(case, visit));
        let first = all.next().flatten();
        let mixed = if case.threads() > 2 { Place::Any } else { Place::Mixed };
        first.filter(|_| all.all(|other| other == first)).map_or(mixed, Place::At)
    }

    /// Of the visits to a case those with CPUs as far apart as they mostly were, where that tells.
    pub fn usual<'a>(&self, case: &Case, visits: &[&'a Measured]) -> Option<Vec<&'a Measured>> {
        let moved = self.moved.as_ref()?;
        moved.at(moved.usual, case, visits)
    }
}

impl<'a> Visits<'a> {
    pub fn of(record: &'a Record) -> Visits<'a> {
        let mut places = index(record.measurements.len());
        let mut cases: Vec<Vec<&Measurement>> = Vec::new();
        let mut case_of = Vec::with_capacity(record.measurements.len());
        for measurement in &record.measurements {
            let at = *places.entry(&measurement.case).or_insert_with(|| {
                cases.push(Vec::new());
                cases.len() - 1
            });
            cases[at].push(measurement);
            case_of.push(at);
        }
        let gauge = Gauge::of(record.measurements.iter(), record.header.clock.hz.0).on(&record.header.machine);
        Visits { record, cases, case_of, gauge }
    }

    /// What each case comes to, if anything.
    pub fn rows<R: Send>(&self, row: impl Fn(&[&'a Measurement]) -> Option<R> + Sync) -> Vec<R> {
        parallel::filter_map(&self.cases, |case| row(case))
    }

    pub fn header(&self) -> &'a Header {
        &self.record.header
    }

    /// Ticks of the clock in a second.
    pub fn hz(&self) -> f64 {
        self.gauge.hz
    }
}

/// The visits that came to figures.
pub(crate) fn measured<'a>(visits: &[&'a Measurement]) -> Vec<&'a Measured> {
    visits.iter().filter_map(|visit| visit.outcome.measured()).collect()
}

/// Payload bytes a second, sample by sample.
pub(crate) fn payload_bps(visit: &Measured, hz: f64) -> Vec<f64> {
    let bytes = visit.volume.payload() as f64 * visit.repetitions as f64;
    visit.samples.ticks.iter().map(|ticks| bytes / (*ticks as f64 / hz)).collect()
}

/// Seconds from asking for memory to the end of the first pass.
pub(crate) fn first_use_s(visit: &Measured, hz: f64) -> Vec<f64> {
    let setup = visit.samples.setup_ticks.iter().copied().chain(std::iter::repeat(0));
    let pass = visit.samples.ticks.iter().map(|ticks| *ticks as f64 / visit.repetitions as f64);
    pass.zip(setup).map(|(pass, setup)| (pass + setup as f64) / hz).collect()
}

/// Core clock in hertz: the median over all samples.
pub(crate) fn core_clock(measured: &[&Measured], hz: f64) -> Option<f64> {
    median(measured.iter().flat_map(|visit| visit.cycles_per_tick()).flatten().map(|cycles| cycles * hz))
}

/// Slowest against fastest thread.
pub(crate) fn imbalance(measured: &[&Measured]) -> Option<f64> {
    let parts = measured.iter().flat_map(|visit| visit.samples.slowest_and_fastest());
    median(parts.map(|(all, fastest)| all as f64 / fastest as f64 - 1.0))
}

/// The fast tenth of speeds against their median.
pub(crate) fn fast_tenth(speeds: &[f64]) -> Option<f64> {
    let mut all = speeds.to_vec();
    all.sort_by(f64::total_cmp);
    (!all.is_empty()).then(|| quantile(&all, 0.9) / quantile(&all, 0.5))
}
