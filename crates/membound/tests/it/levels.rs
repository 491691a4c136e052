//! One hierarchy from all curves: recorded runs of a busy host, a trace-driven simulation of caches that shares nothing with
//! the fit, and noise whose states outlast a visit.

use std::collections::BTreeMap;

use membound_analyze::across::verdict::diagnosis::CauseKind;
use membound_analyze::hierarchy::names::{Level, Levels, named};
use membound_analyze::report::Report;
use membound_analyze::section::Section;
use membound_core::curves::hierarchy::model::{Curve, Touch, ends};
use membound_core::stats::states::{Better, level};
use membound_core::units::Bytes;

use crate::common::report_of;

/// Reports of the recorded runs.
fn recorded() -> Vec<Report> {
    (1..=6).map(|run| report_of(&format!("zen4-guest-{run}"))).collect()
}

fn names(levels: &Levels) -> Vec<&str> {
    levels.iter().map(|level| level.name.as_str()).collect()
}

fn error(found: f64, truth: f64) -> f64 {
    (found / truth - 1.0).abs()
}

/// Zen 4: 4 cycles from L1 (AMD, Software Optimization Guide 57647), 14 from L2, whose size no other guest shares.
#[test]
fn six_noisy_runs_tell_of_one_machine() {
    let mut within = [0; 4];
    for report in recorded() {
        assert_eq!(names(&report.levels), ["L1", "L2", "L3", "memory"]);
        let [l1, l2] = [&report.levels.all[0], &report.levels.all[1]];
        let cycles = [l1, l2].map(|level| level.latency.unwrap().cycles.unwrap());
        let sizes = [l1, l2].map(|level| error(level.capacity.unwrap().0 as f64, level.claimed.unwrap().0 as f64));
        println!("{cycles:.2?} cycles, sizes off by {sizes:.3?}, {:?}", report.verdict.sentence());
        let errors = [error(cycles[0], 4.0), error(cycles[1], 14.0), sizes[0], sizes[1]];
        for (count, (error, limit)) in within.iter_mut().zip(errors.into_iter().zip([0.02, 0.02, 0.1, 0.1])) {
            *count += u32::from(error <= limit);
        }
        assert!(errors[0] <= 0.02 && errors[1] <= 0.04 && errors[2] <= 0.15 && errors[3] <= 0.15, "{errors:?}");
        // Levels and latencies are those of the ladder, too.
        let told =
            |levels: &[Level]| -> Vec<_> { levels.iter().map(|l| (l.name.clone(), l.capacity, l.latency)).collect() };
        assert_eq!(told(&report.latency.levels), told(&report.levels));
        let causes: Vec<CauseKind> = report.verdict.causes.iter().map(|cause| cause.cause).collect();
        assert_eq!(causes.first(), Some(&CauseKind::WriteAllocate));
    }
    println!("within 2 % of 4 and 14 cycles, within 10 % of both sizes: {within:?} of 6");
}

/// What a page says of a quantity, and how often.
type Said = BTreeMap<String, Vec<String>>;

/// Reads the text of one whole report: rates in memory and in caches by kernel and threads, latencies and capacities of levels.
fn said(report: &Report) -> Said {
    let mut said = Said::new();
    let mut say = |what: String, value: &str| {
        let number = value.split([' ', '±']).next().unwrap_or_default();
        if !number.is_empty() && number != "-" {
            said.entry(what).or_default().push(number.to_string());
        }
    };
    let between = |text: &str, from: &str, to: &str| {
        let rest = text.split_once(from)?.1;
        Some(rest.split_once(to)?.0.to_string())
    };
    let behind = |text: &str, from: &str| text.split_once(from).map(|parts| parts.1.to_string());
    let mut sentences = report.findings.clone();
    let sections: Vec<Section> = report.sections().flat_map(|(_, sections)| sections).collect();
    sentences.extend(sections.iter().flat_map(|section| section.sentences.clone()));
    sentences.extend(report.verdict.sentence());
    for text in &sentences {
        if let Some(parts) = behind(text, " loads ") {
            for part in parts.split(", ").filter(|_| text.starts_with("One core at")) {
                let (rate, level) = part.trim_end_matches('.').split_once(" from ").unwrap();
                say(format!("load, 1 thread, {level}"), rate);
            }
        }
        if let Some(rate) = between(text, "2 threads load ", " from memory") {
            say("load, 2 threads, memory".into(), &rate);
        }
        if let Some(rate) = behind(text, "streaming loads reach ") {
            say("load, 1 thread, memory".into(), rate.trim_end_matches('.'));
        }
        if let Some(rate) =
            between(text, "Memory gives ", " of payload to the plain case (triad, regular stores, 2 threads)")
        {
            say("triad, 2 threads, memory".into(), &rate);
        }
        if let Some(rate) =
            behind(text, "the same lines decides: ").as_deref().and_then(|orders| behind(orders, "random "))
        {
            say("latency, memory".into(), &rate);
        }
        if let Some(parts) = text.strip_prefix("Dependent-load latency: ") {
            for part in parts.split("; ") {
                let (level, ns) = part.split_once(' ').unwrap();
                say(format!("latency, {level}"), ns);
            }
        }
    }
    for section in &sections {
        for ends in section.verbatim.iter().filter_map(|line| line.strip_prefix("read, 1 core ")) {
            let (first, rest) = ends.split_once(" |").unwrap();
            say("load, 1 thread, L1".into(), first);
            say("load, 1 thread, memory".into(), rest.split_once("| ").unwrap().1.trim_end_matches(" GB/s"));
        }
        for note in section.notes.iter().filter(|_| section.id == "scaling") {
            let (what, rates) = note.split_once(": ").unwrap();
            let words: Vec<&str> = what.split(' ').collect();
            let ("memory,", kernel, Some(stores)) = (words[0], words[1], stores_of(words[3])) else { continue };
            for rate in rates.split(" GB/s").next().unwrap().split(", ") {
                let (threads, rate) = rate.split_once(": ").unwrap();
                let s = if threads == "1" { "" } else { "s" };
                say(format!("{kernel}{stores}, {threads} thread{s}, memory"), rate);
            }
        }
        for table in &section.tables {
            let column = |head: &str| table.columns.iter().find(|c| c.head.replace("-\n", "") == head);
            let names = &table.columns[0].cells;
            if let ("bandwidth", Some(loads)) = (section.id, column("load, 1 thread")) {
                for (at, name) in names.iter().enumerate() {
                    say(format!("load, 1 thread, {}", name.text), &loads.cells[at].text);
                    for (head, what) in [("ns", "latency"), ("measured", "capacity")] {
                        column(head).into_iter().for_each(|c| say(format!("{what}, {}", name.text), &c.cells[at].text));
                    }
                }
            } else if section.id == "bandwidth" && table.caption.is_empty() {
                for column in &table.columns[1..] {
                    for (at, cell) in column.cells.iter().enumerate() {
                        let of = table.titles.iter().rev().find(|(from, _)| *from <= at).unwrap();
                        say(format!("{}, {}, {}", column.head, of.1, names[at].text), &cell.text);
                    }
                }
            }
            for kind in ["regular", "nt"].into_iter().filter(|_| section.id == "write-allocate") {
                let (Some(rates), Some(threads)) = (column(kind), column("threads")) else { continue };
                let stores = stores_of(kind).unwrap();
                for (at, name) in names.iter().enumerate() {
                    let count = threads.cells[at].text.trim_end_matches('*');
                    let s = if count == "1" { "" } else { "s" };
                    say(format!("{}{stores}, {count} thread{s}, memory", name.text), &rates.cells[at].text);
                }
            }
        }
    }
    for warning in &report.warnings {
        if let Some((level, rest)) = warning.text.split_once(" ends at ") {
            say(format!("capacity, {level}"), rest);
        }
    }
    said
}

/// Behind the name of a kernel.
fn stores_of(kind: &str) -> Option<&'static str> {
    match kind {
        "regular" => Some(""),
        "nt" => Some(" nt"),
        _ => None,
    }
}

#[test]
fn a_quantity_has_one_value_wherever_it_stands() {
    let whole = ["readme", "zen3-guest-whole-1", "zen3-guest-whole-2"].map(report_of);
    for report in recorded().into_iter().chain(whole) {
        let said = said(&report);
        let often: Vec<&String> = said.iter().filter(|(_, values)| values.len() > 1).map(|(what, _)| what).collect();
        for what in ["load, 2 threads, memory", "triad, 2 threads, memory", "load, 1 thread, L2", "latency, L1"] {
            assert!(often.iter().any(|other| *other == what), "{what} is said once: {said:#?}");
        }
        let several = |(_, values): &(&String, &Vec<String>)| values.iter().any(|value| value != &values[0]);
        let wrong: Vec<_> = said.iter().filter(several).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

/// A cache of sets and ways. It knows nothing of curves.
struct Cache {
    sets: Vec<Vec<u64>>,
    ways: usize,
    /// Whether it evicts at random instead of the line that was used longest ago.
    evicts_any: bool,
}

impl Cache {
    fn of(bytes: u64, ways: usize, evicts_any: bool) -> Cache {
        let sets = bytes / 64 / ways as u64;
        Cache { sets: vec![Vec::new(); sets as usize], ways, evicts_any }
    }

    /// Whether it has a line; afterwards it has.
    fn touch(&mut self, line: u64, random: &mut fastrand::Rng) -> bool {
        let count = self.sets.len() as u64;
        let set = &mut self.sets[(line % count) as usize];
        let at = set.iter().position(|other| *other == line);
        if at.is_some() && self.evicts_any {
            return true;
        }
        let is_full = set.len() == self.ways;
        let victim = if self.evicts_any { random.usize(..set.len().max(1)) } else { 0 };
        if let Some(gone) = at.or(is_full.then_some(victim)) {
            set.remove(gone);
        }
        set.push(line);
        at.is_some()
    }
}

/// Three caches, a translation buffer, and a prefetcher of the next two lines into the second cache.
struct Traced {
    caches: [Cache; 3],
    buffer: Cache,
    /// Physical page of each virtual one: they fall where they may.
    pages: Vec<u64>,
    random: fastrand::Rng,
}

const SIZES: [u64; 3] = [16 << 10, 128 << 10, 1 << 20];
const LARGEST: u64 = 8 << 20;
/// Cycles of a load from each level, and of its line where lines follow each other.
const CYCLES: [f64; 4] = [4.0, 14.0, 50.0, 300.0];
const STREAMED: [f64; 4] = [1.0, 2.0, 2.4, 7.0];
const WALK: f64 = 6.0;

impl Traced {
    fn new(seed: u64, evicts_any: bool) -> Traced {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut pages: Vec<u64> = (0..4 * LARGEST / 4096).collect();
        random.shuffle(&mut pages);
        let caches =
            [Cache::of(SIZES[0], 8, false), Cache::of(SIZES[1], 8, false), Cache::of(SIZES[2], 16, evicts_any)];
        Traced { caches, buffer: Cache::of(64 * 64, 64, false), pages, random }
    }

    fn level(&mut self, virtual_line: u64) -> usize {
        let line = self.pages[(virtual_line / 64) as usize] * 64 + virtual_line % 64;
        for level in 0..3 {
            if self.caches[level].touch(line, &mut self.random) {
                return level;
            }
        }
        3
    }

    /// Cycles of a load, lines of a working set in that order, lap after lap; the first lap does not count.
    fn laps(&mut self, order: &[u64], is_chase: bool) -> f64 {
        let (mut cycles, mut count) = (0.0, 0u64);
        for lap in 0..3 {
            for &line in order {
                let walk = if self.buffer.touch(line / 64, &mut self.random) { 0.0 } else { WALK };
                let level = self.level(line);
                if !is_chase {
                    // What is fetched early comes at the speed of where it lies, but is waited for from L2.
                    let ahead = (line + 2).min(order.len() as u64 - 1);
                    let _ = self.level(ahead);
                }
                cycles += if lap == 0 {
                    0.0
                } else if is_chase {
                    CYCLES[level] + walk
                } else {
                    STREAMED[level]
                };
                count += u64::from(lap > 0);
            }
        }
        cycles / count as f64
    }

    fn curve(&mut self, touch: Touch) -> Curve {
        let per_octave = if touch == Touch::Chase { 4.0 } else { 2.0 };
        let steps = ((LARGEST as f64 / 2048.0).log2() * per_octave) as i32;
        let sizes = (0..=steps).map(|n| (2048.0 * (f64::from(n) / per_octave).exp2() / 64.0) as u64);
        let point = |lines: u64| {
            let mut order: Vec<u64> = (0..lines).collect();
            if touch == Touch::Chase {
                self.random.shuffle(&mut order);
            }
            (Bytes(lines * 64), self.laps(&order, touch == Touch::Chase))
        };
        Curve { touch, points: sizes.map(point).collect() }
    }
}

fn found(curves: &[Curve], claimed: &[Bytes]) -> Levels {
    let sizes = || curves.iter().flat_map(|curve| &curve.points).map(|point| point.0);
    named(&ends(curves, claimed), claimed, [sizes().min().unwrap(), sizes().max().unwrap()])
}

/// Samples of one thread's visits: each visit is at half speed, or a quarter slower, with some probability, and every sample is off
/// by a normal deviate. What is left is the fast mode.
fn noisy(curve: &Curve, noise: f64, slow: f64, random: &mut fastrand::Rng) -> Curve {
    let mut sampled = |cost: f64| {
        let mut samples = Vec::new();
        for _ in 0..3 {
            let state = if random.f64() < slow { [2.0, 1.33][random.usize(..2)] } else { 1.0 };
            let drift = (noise * membound_core::stats::normal(random)).exp();
            samples.extend((0..7).map(|_| cost * state * drift * (0.01 * membound_core::stats::normal(random)).exp()));
        }
        Better::Lower.up(level(samples, Better::Lower).unwrap()).exp()
    };
    Curve { touch: curve.touch, points: curve.points.iter().map(|&(size, cost)| (size, sampled(cost))).collect() }
}

#[test]
fn caches_of_a_trace_are_found() {
    let claimed = SIZES.map(Bytes);
    for (seed, evicts_any) in [(1, false), (2, true)] {
        let mut traced = Traced::new(seed, evicts_any);
        let chase = traced.curve(Touch::Chase);
        let load = traced.curve(Touch::Stream);
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut right, mut errors) = (0, Vec::new());
        const TRIES: usize = 20;
        for attempt in 0..TRIES {
            let (noise, slow) = [(0.01, 0.0), (0.05, 0.1), (0.05, 0.2), (0.14, 0.2)][attempt % 4];
            let curves = [noisy(&chase, noise, slow, &mut random), noisy(&load, noise, slow, &mut random)];
            let levels = found(&curves, &claimed);
            if names(&levels) != ["L1", "L2", "L3", "memory"] {
                println!("noise {noise}, slow {slow}: {:?} {:?}", names(&levels), levels.unseen);
                continue;
            }
            right += 1;
            let off = |k: usize| error(levels.all[k].capacity.unwrap().0 as f64, SIZES[k] as f64);
            errors.push([0, 1, 2].map(off));
        }
        println!("evicts any {evicts_any}: right {right} of {TRIES}; sizes off by {errors:.3?}");
        assert!(right * 20 >= TRIES * 19, "{right} of {TRIES}");
        // Pages fall where they may, so that the second cache begins to miss before it is full.
        for (k, limit) in [0.1, 0.25, 0.1].into_iter().enumerate() {
            let mut of_level: Vec<f64> = errors.iter().map(|errors| errors[k]).collect();
            of_level.sort_by(f64::total_cmp);
            let typical = of_level[of_level.len() / 2];
            assert!(typical <= limit, "L{} is off by {typical:.3}: {of_level:.3?}", k + 1);
        }
    }
}

/// Loads alone, of a third cache that is a tenth slower than the second.
#[test]
fn a_step_of_a_tenth_is_found_where_it_is_claimed() {
    let claimed = [Bytes::kib(32), Bytes::mib(1), Bytes::mib(32)];
    let mut random = fastrand::Rng::with_seed(5);
    let sizes: Vec<f64> = (0..32).map(|n| 4096.0 * (f64::from(n) / 2.0).exp2()).collect();
    let cost = |size: f64, kernel: f64| {
        let beyond = |capacity: f64| 1.0 / (1.0 + (capacity / size).powi(8));
        kernel * (1.0 + beyond(32768.0) + 0.2 * beyond(1048576.0) + 6.0 * beyond(33554432.0))
    };
    let mut right = 0;
    for _ in 0..20 {
        let curve = |kernel: f64| {
            let points = sizes.iter().map(|&size| (Bytes(size as u64), cost(size, kernel))).collect();
            noisy(&Curve { touch: Touch::Stream, points }, 0.02, 0.2, &mut random)
        };
        let curves: Vec<Curve> = [1.0, 2.0, 1.5].map(curve).into();
        right += usize::from(names(&found(&curves, &claimed)) == ["L1", "L2", "L3", "memory"]);
    }
    println!("a step of a tenth: right {right} of 20");
    assert!(right >= 19, "{right} of 20");
}
