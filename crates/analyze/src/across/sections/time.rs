//! Where the time of a run went: by what was measured, and within it.

use membound_core::in_order::InOrder;
use std::collections::BTreeMap;

use crate::across::first_touch::FirstTouchSpeed;
use crate::section::{Section, Table};
use membound_core::case::{Case, Protocol, Work};
use membound_core::record::{Measurement, Record};
use membound_core::units::{Bytes, percent};

/// Seconds of a group of visits.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Spent {
    visits: usize,
    all: f64,
    first_touch: f64,
    warm_up: f64,
    samples: f64,
    between: f64,
}

impl Spent {
    /// Time in mapping memory belongs to a sample where it is a part of the figure.
    fn of(visit: &Measurement, hz: f64) -> Spent {
        let spent = Spent { visits: 1, all: visit.elapsed_s, ..Spent::default() };
        let Some(measured) = visit.outcome.measured() else { return spent };
        let taken = &measured.samples;
        let seconds = |ticks: u64| ticks as f64 / hz;
        let samples = seconds(taken.ticks.iter().chain(&taken.setup_ticks).sum());
        let between = (seconds(taken.sampling_ticks) - samples).max(0.0);
        let first_touch = seconds(taken.first_touch.map_or(0, |touch| touch.ticks));
        Spent { first_touch, warm_up: seconds(taken.warm_up_ticks), samples, between, ..spent }
    }

    fn and(self, other: Spent) -> Spent {
        Spent {
            visits: self.visits + other.visits,
            all: self.all + other.all,
            first_touch: self.first_touch + other.first_touch,
            warm_up: self.warm_up + other.warm_up,
            samples: self.samples + other.samples,
            between: self.between + other.between,
        }
    }

    /// Mapping memory, threads and code, until the first pass; and checking what the last one left behind.
    fn preparation(self) -> f64 {
        (self.all - self.first_touch - self.warm_up - self.samples - self.between).max(0.0)
    }
}

/// One table, from the record alone.
pub fn section(record: &Record) -> Section {
    let hz = record.header.clock.hz.0;
    let mut groups: BTreeMap<Group, Spent> = BTreeMap::new();
    for visit in &record.measurements {
        let spent = groups.entry(group(record, &visit.case)).or_default();
        *spent = spent.and(Spent::of(visit, hz));
    }
    let all = groups.values().copied().fold(Spent::default(), Spent::and);
    let wall = record.end.as_ref().map_or(all.all, |end| end.wall_s);
    let mut lines: Vec<(Group, Spent)> = groups.into_iter().collect();
    lines.order_by(|a, b| b.1.all.total_cmp(&a.1.all));
    lines.push((["all visits".into(), String::new(), String::new()], all));
    let name = |of: usize| lines.iter().map(move |(group, _)| group[of].clone());
    let column =
        |of: fn(Spent) -> f64| lines.iter().map(move |(_, spent)| format!("{:.2}", of(*spent))).collect::<Vec<_>>();
    let table = Table::new("seconds")
        .left("work", name(0))
        .right("threads", name(1))
        .left("where", name(2))
        .right("visits", lines.iter().map(|(_, spent)| spent.visits.to_string()))
        .right("all", column(|spent| spent.all))
        .right("first\ntouch", column(|spent| spent.first_touch))
        .right("preparation", column(Spent::preparation))
        .right("warm-up", column(|spent| spent.warm_up))
        .right("samples", column(|spent| spent.samples))
        .right("between\nsamples", column(|spent| spent.between));
    let overhead = 1.0 - (all.warm_up + all.samples) / wall;
    let touched = FirstTouchSpeed::of(record).map(|touched| {
        let share = percent(all.first_touch / wall);
        format!("{share} of the run was the first touch of {}, at {}.", touched.bytes, touched.rate())
    });
    Section {
        id: "time",
        title: "Where the time went".into(),
        about: "First touch is filling memory that the system had not backed yet; preparation is threads, machine code and checking \
                results; warm-up lasts from the first pass to the first sample kept; probes and waiting for other threads lie \
                between samples."
            .into(),
        notes: [format!(
            "{} of {wall:.1} s went neither into samples nor into warm-up; {:.1} s passed between visits.",
            percent(overhead),
            (wall - all.all).max(0.0)
        )]
        .into_iter()
        .chain(touched)
        .collect(),
        tables: vec![table],
        ..Section::default()
    }
}

/// What was done, by how many threads, where.
type Group = [String; 3];

fn group(record: &Record, case: &Case) -> Group {
    let work = match &case.work {
        Work::Kernel(_) | Work::PageCache(_) => "kernels",
        Work::Page(_) => "pages",
        Work::Scan(_) => "offsets",
        Work::Handover(_) => "hand-overs",
        Work::Loaded(_) => "loaded latency",
        Work::Conflict(_) => "pairs of lines",
        Work::Chase(_) => "chases",
        Work::Flops(_) => "arithmetic",
        Work::Idle => "idle",
        Work::Rounding(_) => "sums",
        Work::Streams(_) | Work::Common(_) => "streams",
        Work::Plain(_) => "plain",
        Work::PingPong(_) => "messages",
        Work::Device(_) => "device",
        Work::Copies(_) => "copies",
    };
    let protocol = match case.protocol {
        Protocol::FirstUse => ", first use",
        Protocol::Stream => ", STREAM",
        Protocol::Energy => ", energy",
        Protocol::Steady | Protocol::Refilled => "",
    };
    let cache = record.header.machine.last_level_bytes(&case.cpus.iter().copied().collect());
    let place = match case.working_set {
        Bytes(0) => "registers",
        size if cache.is_some_and(|cache| size > cache) => "memory",
        _ => "caches",
    };
    [format!("{work}{protocol}"), case.threads().to_string(), place.into()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use membound_core::case::{USUAL_MEMORY, steady};
    use membound_core::kernel::{StoreKind, Width};
    use membound_core::memory::Obtained;
    use membound_core::record::{Measured, Outcome, Sample, Samples, Volume};

    /// A visit of 1 s: 0.05 s of first touch, 0.2 s of warm-up, 0.5 s of sampling with 0.4 s of samples in it.
    #[test]
    fn a_visit_is_divided_without_a_rest() {
        let first_touch = Some(membound_core::record::FirstTouch { bytes: 1 << 20, ticks: 50 });
        let mut samples = Samples { warm_up_ticks: 200, first_touch, ..Samples::default() };
        samples.sampling_ticks = 500;
        [300, 100].into_iter().for_each(|ticks| samples.push(Sample { ticks, ..Sample::default() }));
        let (volume, obtained) = (Volume::default(), Obtained::default());
        let measured = Measured { volume, repetitions: 1, core_clock_links: 1, samples, obtained };
        let case = steady("load", Width::Scalar, StoreKind::Regular, USUAL_MEMORY, vec![0], Bytes::kib(16));
        let visit = Measurement::new(case.clone(), 0, Outcome::Measured(Box::new(measured)));
        let spent = Spent::of(&Measurement { elapsed_s: 1.0, ..visit }, 1000.0);
        assert!((spent.preparation() - 0.25).abs() < 1e-9 && (spent.first_touch - 0.05).abs() < 1e-9, "{spent:?}");
        assert!((spent.between - 0.1).abs() < 1e-9 && (spent.samples - 0.4).abs() < 1e-9, "{spent:?}");
        let failed = Measurement::new(case, 0, Outcome::Unavailable { reason: "no AVX".into() });
        let both = spent.and(Spent::of(&Measurement { elapsed_s: 0.5, ..failed }, 1000.0));
        assert!((both.preparation() - 0.75).abs() < 1e-9 && both.visits == 2, "{both:?}");
    }
}
