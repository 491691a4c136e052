//! The verdict: each cause planted in machines of random parameters is found, and healthy machines have none. What it says
//! of a record made by hand, with numbers worked out by hand. The commands that it names are commands.

use crate::common::by_hand::{self, module};
use crate::common::imitation::{self, record, visit};
use crate::common::planted::{Machines, Simulated};
use crate::common::program::membound;
use membound_analyze::across::losses::losses;
use membound_analyze::across::sections;
use membound_analyze::across::verdict::diagnosis::{Cause, CauseKind, Diagnosis, GainBasis};
use membound_analyze::of_record as model;
#[cfg(feature = "report")]
use membound_analyze::output::html;
use membound_analyze::output::terminal;
use membound_analyze::report::Report;
use membound_core::case::{Case, steady};
use membound_core::kernel::{StoreKind, Width};
use membound_core::machine::Machine;
use membound_core::machine::fact::Fact;
use membound_core::machine::firmware::Dimm;
use membound_core::machine::limits::CpuTimeLimit;
use membound_core::memory::{MemoryKind, MemorySpec};
use membound_core::record::probes::{ProbeSamples, Reading};
use membound_core::record::{Measurement, Outcome, Sample, Samples};
use membound_core::units::Bytes;

/// Healthy machines, and machines of each cause: seeds count from these.
const HEALTHY: std::ops::Range<u64> = 1000..1100;
const PLANTED: std::ops::Range<u64> = 2000..2024;

fn causes(verdict: &Diagnosis) -> Vec<CauseKind> {
    verdict.causes.iter().map(|cause| cause.cause).collect()
}

fn simulated(machines: &mut Machines, cause: Option<CauseKind>, seed: u64) -> (Simulated, Report) {
    let mut machine = Simulated::new(machines, cause, seed);
    let report = model::report(&machine.record());
    (machine, report)
}

#[test]
fn healthy_machines_have_no_cause() {
    let mut machines = Machines::default();
    let mut wrong = Vec::new();
    for seed in HEALTHY {
        let (_, report) = simulated(&mut machines, None, seed);
        assert!(report.verdict.gap.is_some(), "seed {seed}: nothing in memory");
        if !report.verdict.causes.is_empty() {
            wrong.push(format!("seed {seed}: {:#?}", report.verdict.causes));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), HEALTHY.count(), wrong.join("\n"));
}

/// Simulated machines have no probes, which a neighbour on the core takes: see `what_shared_cores_cost_by_hand`.
fn planted_causes() -> impl Iterator<Item = CauseKind> {
    CauseKind::ALL.iter().copied().filter(|cause| *cause != CauseKind::CoreNeighbour)
}

#[test]
fn each_cause_is_found() {
    let mut machines = Machines::default();
    let mut wrong = Vec::new();
    let (mut first, mut all) = (0, 0);
    for cause in planted_causes() {
        for seed in PLANTED {
            let (machine, report) = simulated(&mut machines, Some(cause), seed);
            let found = causes(&report.verdict);
            let place = found.iter().position(|other| *other == cause);
            all += 1;
            first += usize::from(place == Some(0));
            // A write-allocate is planted beside other causes on every second machine.
            let other =
                |other: &CauseKind| *other != cause && !(machine.allocates && *other == CauseKind::WriteAllocate);
            if place.is_none_or(|place| place > 1) || found.iter().any(other) {
                wrong.push(format!("seed {seed}, {cause}: {found:?}, CPUs {}", machine.used()));
            }
        }
    }
    println!("planted causes: {all}, found first {first}, wrong {}", wrong.len());
    assert!(wrong.is_empty(), "{} of {all}:\n{}", wrong.len(), wrong.join("\n"));
}

const USUAL: MemorySpec = MemorySpec::of(MemoryKind::Thp);

fn kernel(name: &str, store: StoreKind, cpus: u32, size: Bytes) -> Case {
    steady(name, Width::W512, store, USUAL, (0..cpus).collect(), size)
}

/// Modules of 76.8 GB/s: two, of 8 bytes at 4800 MT/s.
fn with_modules(machine: Machine) -> Machine {
    Machine { dimms: Fact::Known(vec![module(), module()]), ..machine }
}

fn of_visits(machine: Machine, visits: Vec<Measurement>) -> Diagnosis {
    model::report(&record(machine, visits)).verdict
}

/// docs/experiments/verdict.md: 42.0 of 76.8 GB/s; nt stores give 12.6 back, 36 % of the gap.
#[test]
fn a_share_by_hand() {
    let machine = with_modules(Machines::default().of((1, 4, 1)));
    let case = |store| kernel("triad", store, 4, Bytes::gib(1));
    let visits =
        [(StoreKind::Regular, 42e9), (StoreKind::Nt, 54.6e9)].map(|(store, bps)| visit(&case(store), bps, &[]));
    let verdict = of_visits(machine, visits.into());
    let gap = verdict.gap.as_ref().unwrap();
    assert!((gap.limit_bps - 76.8e9).abs() < 1.0 && (gap.bps() / 34.8e9 - 1.0).abs() < 1e-3, "{gap:?}");
    let [cause] = &verdict.causes[..] else { panic!("{verdict:#?}") };
    assert_eq!((cause.cause, cause.basis), (CauseKind::WriteAllocate, GainBasis::Measured));
    assert!((cause.gives_back_bps.unwrap() / 12.6e9 - 1.0).abs() < 1e-3, "{cause:?}");
    assert!((cause.share.unwrap() - 12.6 / 34.8).abs() < 1e-3, "{cause:?}");
    let sentence = verdict.sentence().unwrap();
    assert!(
        sentence
            .contains("42.0 GB/s of payload to the plain case (triad, regular stores, 4 threads), 55% of 76.8 GB/s"),
        "{sentence}"
    );
    assert!(sentence.ends_with("first to look at: write-allocate, 36% of the gap."), "{sentence}");
}

/// Found by mutated records: four times this working set is more than 64 bits hold.
#[test]
fn a_working_set_beyond_all_memory_is_no_trouble() {
    for bps in [50e9, 78e9, 85e9, 200e9] {
        let machine = with_modules(Machines::default().of((1, 4, 1)));
        let case = kernel("triad", StoreKind::Regular, 4, Bytes(1 << 62));
        let verdict = of_visits(machine, vec![visit(&case, bps, &[])]);
        assert!(verdict.causes.iter().all(|cause| !cause.test.contains("--size 0")), "{verdict:?}");
    }
}

/// The same section: 8 of 16 cores, 60 % of its part from each of the last two threads.
#[test]
fn idle_cores_by_hand() {
    let machine = || with_modules(Machines::default().of((1, 16, 1)));
    let rates = |rates: [(u32, f64); 2]| {
        let case = |cpus| kernel("triad", StoreKind::Regular, cpus, Bytes::gib(1));
        of_visits(machine(), rates.map(|(cpus, bps)| visit(&case(cpus), bps, &[])).into())
    };
    let verdict = rates([(6, 36e9), (8, 43.2e9)]);
    let [cause] = &verdict.causes[..] else { panic!("{verdict:#?}") };
    assert_eq!((cause.cause, cause.basis), (CauseKind::FewCores, GainBasis::Estimated));
    assert!((cause.gives_back_bps.unwrap() / 25.92e9 - 1.0).abs() < 1e-3, "{cause:?}");
    assert!((cause.share.unwrap() - 25.92 / 33.6).abs() < 1e-3, "{cause:?}");
    assert!(cause.cure.contains("CPUs 8-15"), "{cause:?}");
    // Saturated: the last two threads add a tenth of their part. And no core is idle.
    assert_eq!(causes(&rates([(6, 36e9), (8, 37.2e9)])), []);
    assert_eq!(causes(&rates([(8, 36e9), (16, 64e9)])), []);
}

/// Two last-level caches before one memory, as of a desktop's two chiplets: what one of them moves may be all that memory does.
#[test]
fn an_idle_cache_before_the_same_memory_promises_nothing() {
    let visits = [(4, 60e9), (8, 62e9)]
        .map(|(cpus, bps)| visit(&kernel("triad", StoreKind::Regular, cpus, Bytes::gib(1)), bps, &[]));
    let verdict = of_visits(with_modules(imitation::caches([2, 8, 1], false)), visits.into());
    let [cause] = &verdict.causes[..] else { panic!("{verdict:#?}") };
    assert_eq!((cause.cause, cause.basis, cause.gives_back_bps), (CauseKind::FewCores, GainBasis::Unknown, None));
    assert!(cause.evidence.starts_with("8 of 16 cores ran, on 1 of 2 last-level caches"), "{cause:?}");
}

/// Stores alone are faster than what also reads, and bound the triad only where no other loop of its mix was faster.
#[test]
fn the_limit_that_was_measured_has_the_mix_of_the_plain_case() {
    let limit = |others: &[(&str, f64)]| {
        let nt = others.iter().map(|(name, bps)| visit(&kernel(name, StoreKind::Nt, 4, Bytes::gib(1)), *bps, &[]));
        let plain = visit(&kernel("triad", StoreKind::Regular, 4, Bytes::gib(1)), 30e9, &[]);
        let verdict = of_visits(Machines::default().of((1, 4, 1)), nt.chain([plain]).collect());
        let gap = verdict.gap.unwrap();
        (gap.limit_bps / 1e9).round()
    };
    assert_eq!(limit(&[("store", 45e9), ("triad", 39e9)]), 39.0);
    assert_eq!(limit(&[("store", 45e9), ("triad", 28e9)]), 45.0);
    assert_eq!(limit(&[("store", 45e9)]), 45.0);
}

/// Seven threads in base pages are slow: that is no step from which huge pages rise.
#[test]
fn other_memory_is_no_step_of_a_rising_curve() {
    let huge = [(6, 36e9), (8, 37.2e9)]
        .map(|(cpus, bps)| visit(&kernel("triad", StoreKind::Regular, cpus, Bytes::gib(1)), bps, &[]));
    let base =
        Case { memory: MemorySpec::of(MemoryKind::Base), ..kernel("triad", StoreKind::Regular, 7, Bytes::gib(1)) };
    let visits = huge.into_iter().chain([visit(&base, 20e9, &[])]).collect();
    assert_eq!(causes(&of_visits(with_modules(Machines::default().of((1, 16, 1))), visits)), []);
}

/// As on many Arm servers, or on a laptop whose last two cores have no third level: what no core shares, or not all have, is no domain
/// with a link of its own, so that saturated memory stays saturated.
#[test]
fn a_cache_of_one_core_is_no_domain() {
    let saturated = |machine: Machine| {
        let visits = [(6, 36e9), (8, 37.2e9)]
            .map(|(cpus, bps)| visit(&kernel("triad", StoreKind::Regular, cpus, Bytes::gib(1)), bps, &[]));
        causes(&of_visits(with_modules(machine), visits.into()))
    };
    let usual = || Machines::default().of((1, 16, 1));
    let (mut private, mut mixed) = (usual(), usual());
    private.caches.retain(|cache| cache.level < 3);
    for cache in mixed.caches.iter_mut().filter(|cache| cache.level == 3) {
        cache.cpus = (0..14).collect();
    }
    for cache in mixed.caches.iter_mut().filter(|cache| cache.level == 2 && cache.cpus.contains(14)) {
        cache.cpus = (14..16).collect();
    }
    assert_eq!([saturated(private), saturated(mixed)], [[], []]);
}

/// Base pages are slow, but the plain case has huge ones; and where it has not.
#[test]
fn pages_that_the_plain_case_has_give_nothing_back() {
    let of_kinds = |rates: [(MemoryKind, f64); 2]| {
        let one = |(kind, bps)| {
            let memory = MemorySpec::of(kind);
            visit(&Case { memory, ..kernel("triad", StoreKind::Regular, 4, Bytes::gib(1)) }, bps, &[])
        };
        of_visits(with_modules(Machines::default().of((1, 4, 1))), rates.map(one).into())
    };
    let verdict = of_kinds([(MemoryKind::Thp, 40e9), (MemoryKind::Base, 30e9)]);
    assert_eq!(causes(&verdict), []);
    let verdict = of_kinds([(MemoryKind::Huge2M, 40e9), (MemoryKind::Base, 30e9)]);
    assert_eq!(causes(&verdict), [CauseKind::PageSize]);
    assert!((verdict.causes[0].gives_back_bps.unwrap() / 10e9 - 1.0).abs() < 1e-3, "{verdict:?}");
}

/// Two CPUs' time for eight threads: four times as fast without the limit, as far as the modules go.
#[test]
fn a_limit_of_cpu_time_by_hand() {
    let mut machine = with_modules(Machines::default().of((1, 8, 1)));
    machine.limits.cpu_time = Fact::Known(vec![CpuTimeLimit { group: "/job".into(), cpus: 2.0 }]);
    let gives_back = |bps: f64| {
        let case = kernel("triad", StoreKind::Regular, 8, Bytes::gib(2));
        let verdict = of_visits(machine.clone(), vec![visit(&case, bps, &[])]);
        assert_eq!(causes(&verdict)[0], CauseKind::CpuTime);
        verdict.causes[0].gives_back_bps.unwrap()
    };
    assert!((gives_back(15e9) / 45e9 - 1.0).abs() < 1e-3);
    assert!((gives_back(30e9) / 46.8e9 - 1.0).abs() < 1e-3, "76.8 is all there is");
}

/// Three slots to a channel, one of them filled, on two packages of eight channels each.
#[test]
fn a_sheet_tells_channels_from_slots() {
    let empty = Dimm { size: Fact::absent("empty"), ..module() };
    let of_modules = |filled: usize| {
        let cpuinfo = "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Intel(R) Xeon(R) Platinum 8480+\nstepping\t: 8\n";
        let mut machine = Machines::default().of((2, 2, 1));
        machine.identity = imitation::machine(&[("proc/cpuinfo", cpuinfo)]).identity;
        machine.dimms = Fact::Known([vec![module(); filled], vec![empty.clone(); 48 - filled]].concat());
        let case = kernel("triad", StoreKind::Regular, 4, Bytes::gib(2));
        of_visits(machine, vec![visit(&case, 40e9, &[])])
    };
    assert_eq!(causes(&of_modules(16)), []);
    let verdict = of_modules(12);
    assert_eq!(causes(&verdict), [CauseKind::FewChannels]);
    assert!(verdict.causes[0].evidence.starts_with("12 modules for 16 channels leave 4 channels empty"), "{verdict:?}");
}

/// Slots that firmware lists beside soldered packages can't be filled.
#[test]
fn soldered_memory_has_no_empty_channels() {
    let of = |technology: &str| {
        let empty = Dimm { size: Fact::absent("empty"), ..module() };
        let filled = Dimm { technology: Fact::Known(technology.into()), ..module() };
        let mut machine = Machines::default().of((2, 2, 1));
        machine.dimms = Fact::Known([vec![filled; 4], vec![empty; 12]].concat());
        let case = kernel("triad", StoreKind::Regular, 4, Bytes::gib(2));
        causes(&of_visits(machine, vec![visit(&case, 40e9, &[])]))
    };
    assert!(of("DDR5").contains(&CauseKind::FewChannels));
    assert!(!of("LPDDR5").contains(&CauseKind::FewChannels));
}

/// Two threads on each of two nodes, all pages on the first: half of the pages are too many there.
#[test]
fn pages_are_held_against_threads() {
    let of_pages = |pages: &[(u32, u64)]| {
        let case = kernel("triad", StoreKind::Regular, 4, Bytes::gib(2));
        of_visits(Machines::default().of((2, 2, 1)), vec![visit(&case, 40e9, pages)])
    };
    let verdict = of_pages(&[(0, 1000)]);
    assert_eq!(causes(&verdict), [CauseKind::WrongNode]);
    assert!(verdict.causes[0].evidence.starts_with("50% of the pages lie on other nodes"), "{verdict:?}");
    assert!(verdict.causes[0].evidence.ends_with("most on node 0"), "{verdict:?}");
    assert_eq!(causes(&of_pages(&[(0, 490), (1, 510)])), []);
}

/// One visit to the largest working set that others disturbed does not make the figures those of a cache; three do. Nor does it matter
/// how far below the largest of many visits the next one of many is.
#[test]
fn a_single_visit_makes_no_cache_of_memory() {
    let found = |loads: &[(Bytes, f64, usize)]| {
        let sized = |&(size, bps, visits): &(Bytes, f64, usize)| {
            vec![visit(&kernel("load", StoreKind::Regular, 1, size), bps, &[]); visits]
        };
        let triad = visit(&kernel("triad", StoreKind::Regular, 1, Bytes::gib(1)), 20e9, &[]);
        let visits = loads.iter().flat_map(sized).chain([triad]).collect();
        causes(&of_visits(Machines::default().of((1, 1, 1)), visits))
    };
    let half = (Bytes::mib(512), 20e9, 3);
    assert_eq!(found(&[half, (Bytes::gib(1), 12e9, 1)]), []);
    assert_eq!(found(&[half, (Bytes::gib(1), 12e9, 3)]), [CauseKind::InCache]);
    let in_l3 = (Bytes::mib(16), 60e9, 3);
    assert_eq!(found(&[in_l3, (Bytes::mib(256), 20e9, 1), half, (Bytes::gib(1), 12e9, 1)]), []);
}

/// Of half of the samples the core is shared. Kernels in memory then run at 0.9 of their speed, so a twentieth of the time is lost;
/// those in caches at a half, which is no loss of memory's. Where one thread alone has less than its core as often, others are there.
#[test]
fn what_shared_cores_cost_by_hand() {
    const SAMPLES: usize = 40;
    let report_with = |[in_caches, in_memory]: [f64; 2], alone: &[&str]| {
        let sized = [(Bytes::kib(32), in_caches, 200e9), (Bytes::gib(1), in_memory, 40e9)];
        let one = |name: &str, threads: usize, (size, kept, bps): (Bytes, f64, f64)| {
            let mut one = visit(&kernel(name, StoreKind::Regular, threads as u32, size), bps, &[]);
            let Outcome::Measured(measured) = &mut one.outcome else { panic!("{one:?}") };
            let ticks = measured.samples.ticks[0] as f64;
            measured.samples = Samples::default();
            let mut probes = ProbeSamples { chain_links: 1000, wide_adds: 4000, ..ProbeSamples::default() };
            for sample in 0..SAMPLES {
                let is_shared = sample % 2 == 0;
                let ticks = if is_shared { ticks / kept } else { ticks } as u64;
                let wide_ticks = if is_shared { 2000 } else { 1000 };
                measured.samples.push(Sample { ticks, core_clock_ticks: 13_333, ..Sample::default() });
                probes.push(vec![[Reading { chain_ticks: 1000, wide_ticks }; 2]; threads].into_iter());
            }
            measured.samples.probes = Some(probes);
            one
        };
        let visits = ["load", "copy", "triad", "sum"].into_iter().flat_map(|name| sized.map(|size| one(name, 2, size)));
        let alone = alone.iter().map(|name| one(name, 1, (Bytes::kib(16), 1.0, 100e9)));
        model::report(&record(Machines::default().of((1, 2, 1)), visits.chain(alone).collect()))
    };
    let report = |kept| report_with(kept, &[]);
    let slowed = report([0.5, 0.9]);
    let [probed, shared] = [slowed.shared_cores.probed, slowed.shared_cores.shared];
    assert_eq!([probed, shared], [8 * SAMPLES, 4 * SAMPLES]);
    assert_eq!(causes(&slowed.verdict), [CauseKind::SharedCore]);
    let (cause, gap) = (&slowed.verdict.causes[0], slowed.verdict.gap.as_ref().unwrap());
    assert!((cause.gives_back_bps.unwrap() / (gap.reached_bps * 0.05 / 0.95) - 1.0).abs() < 1e-3, "{cause:?}, {gap:?}");
    assert!(cause.evidence.ends_with("kernels in memory then run at 90% [90%, 90%] of their speed"), "{cause:?}");
    let loss = |report: &Report| losses(report).into_iter().find(|loss| loss.what.contains("less than its core"));
    let found = loss(&slowed).unwrap();
    assert!((found.factor[0] - 2.0).abs() < 1e-3 && found.what.contains("beside 50% of the samples"), "{found:?}");
    let others = report_with([0.5, 0.9], &["load", "copy"]);
    let [probed, shared] = others.shared_cores.alone;
    assert_eq!(([probed, shared], others.shared_cores.expected), ([2 * SAMPLES, SAMPLES], 0.75));
    assert_eq!(causes(&others.verdict), [CauseKind::CoreNeighbour]);
    let evidence = &others.verdict.causes[0].evidence;
    assert!(evidence.starts_with("beside 50% of the samples of several threads and 50% of those of one"), "{evidence}");
    // Caches alone: no cause of memory's speed.
    let in_caches = report([0.5, 1.0]);
    assert_eq!(causes(&in_caches.verdict), []);
    assert!(loss(&in_caches).is_some() && loss(&report([1.0, 1.0])).is_none());
}

/// 16 of 100 samples of 10 us are interrupted for 5 us: the mean is 10.8 us, the share 7.4 %.
#[test]
fn time_taken_by_hand() {
    let of_hits = |hits: usize| {
        let mut visits = vec![visit(&kernel("triad", StoreKind::Regular, 1, Bytes::mib(256)), 10e9, &[])];
        for name in ["load", "copy", "triad", "sum"] {
            let mut one = visit(&kernel(name, StoreKind::Regular, 1, Bytes::kib(16)), 200e9, &[]);
            let Outcome::Measured(measured) = &mut one.outcome else { panic!("{one:?}") };
            let sample = Sample { core_clock_ticks: 13_333, ..Sample::default() };
            (measured.samples, measured.repetitions) = (Samples::default(), 100);
            for n in 0..100 {
                let ticks = if n < hits { 30_000 } else { 20_000 };
                measured.samples.push(Sample { ticks, ..sample });
            }
            visits.push(one);
        }
        of_visits(Machines::default().of((1, 1, 1)), visits)
    };
    let verdict = of_hits(16);
    assert_eq!(causes(&verdict), [CauseKind::TimeTaken]);
    assert!(verdict.causes[0].evidence.starts_with("others took 7.4% of the time"), "{verdict:?}");
    assert_eq!(causes(&of_hits(5)), []);
}

/// A third of the visits ran at a lower clock. Nothing was interrupted.
#[test]
fn a_clock_that_changes_takes_no_time() {
    let mut visits = vec![visit(&kernel("triad", StoreKind::Regular, 1, Bytes::mib(256)), 10e9, &[])];
    for name in ["load", "copy", "triad", "sum"] {
        let case = kernel(name, StoreKind::Regular, 1, Bytes::kib(16));
        let rounds = [200e9, 200e9, 140e9].into_iter().zip(0..);
        visits.extend(rounds.map(|(bps, round)| Measurement { round, ..visit(&case, bps, &[]) }));
    }
    assert_eq!(causes(&of_visits(Machines::default().of((1, 1, 1)), visits)), []);
}

/// A warning that a cause tells of is not printed twice; others stay.
#[test]
fn causes_speak_for_their_warnings() {
    let mut machine = Machines::default().of((2, 2, 1));
    machine.settings.numa_balancing = Fact::Known(1);
    let case = kernel("triad", StoreKind::Regular, 4, Bytes::gib(2));
    let run = |pages: &[(u32, u64)]| {
        let visits = (0..3).map(|round| Measurement { round, ..visit(&case, 40e9, pages) }).collect();
        model::report(&record(machine.clone(), visits))
    };
    let others = |report: &Report| -> Vec<String> {
        report.verdict.other_warnings(&report.warnings).map(|warning| warning.text.clone()).collect()
    };
    let report = run(&[(0, 400), (1, 500), (2, 100)]);
    assert_eq!(causes(&report.verdict), [CauseKind::WrongNode]);
    let is_of = |texts: &[String], what: &str| texts.iter().any(|text| text.starts_with(what));
    let all: Vec<String> = report.warnings.iter().map(|warning| warning.text.clone()).collect();
    assert!(is_of(&all, "pages lie on the wrong node") && is_of(&all, "NUMA balancing is on"), "{all:?}");
    let others = others(&report);
    assert!(!is_of(&others, "pages lie on the wrong node") && is_of(&others, "NUMA balancing is on"), "{others:?}");
}

/// Every line fits a terminal, and the answer stands first.
#[test]
fn the_verdict_is_readable() {
    let mut machines = Machines::default();
    for cause in planted_causes() {
        let (_, report) = simulated(&mut machines, Some(cause), 2002);
        let text = terminal::section::drawn(&sections::verdict::section(&report.verdict));
        let plain = anstream::adapter::strip_str(&text).to_string();
        assert!(plain.lines().all(|line| line.chars().count() <= 80), "{plain}");
        assert!(text.contains("Verdict") && text.contains(&format!("{cause}: ")), "{text}");
        assert!(terminal::summary(&report).ends_with(&text), "the summary ends with the verdict");
        #[cfg(feature = "report")]
        assert!(html::page(&report).contains("id=\"verdict\""));
    }
}

#[test]
fn the_command_prints_it_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    let (_, report) = simulated(&mut Machines::default(), Some(CauseKind::WriteAllocate), 2000);
    by_hand::write(&Simulated::new(&mut Machines::default(), Some(CauseKind::WriteAllocate), 2000).record(), &path);
    let run = |flags: &[&str]| {
        let path = path.to_str().unwrap();
        let output = membound().args(["report", path]).args(flags).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, text) = run(&["--verdict"]);
    assert!(code == Some(0) && text.starts_with("Verdict\nMemory gives "), "{code:?} {text}");
    assert!(text.contains("- write-allocate: gives back "), "{text}");
    let (_, json) = run(&["--verdict", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[0]["causes"][0]["cause"], "write-allocate");
    assert_eq!(json[0]["sentence"], report.verdict.sentence().unwrap().as_str());
    assert_eq!(run(&["--verdict", "--format", "csv"]).0, Some(2));
    assert_eq!(run(&["--verdict", "--warnings"]).0, Some(2));
}

/// Shares are shares, and every cause has all that a reader needs.
fn is_whole(cause: &Cause) {
    assert!(!cause.evidence.is_empty() && !cause.cure.is_empty(), "{cause:?}");
    assert!(cause.share.is_none_or(|share| (0.0..=1.0).contains(&share)), "{cause:?}");
    assert!(cause.share.is_none() || cause.gives_back_bps.is_some(), "{cause:?}");
    assert!(cause.test.starts_with("membound "), "{cause:?}");
}

#[test]
fn the_commands_that_test_a_cause_are_commands() {
    let mut machines = Machines::default();
    for cause in planted_causes() {
        let (_, report) = simulated(&mut machines, Some(cause), 2001);
        let found = report.verdict.causes.iter().find(|found| found.cause == cause).unwrap();
        is_whole(found);
        let mut arguments: Vec<&str> = found.test.split_whitespace().skip(1).collect();
        // The plan is refused where this machine has fewer CPUs or nodes, never the words.
        arguments.push(if arguments == ["machine"] { "--help" } else { "--list" });
        let output = membound().args(&arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("Usage:") && !said.contains("unexpected"), "{}: {said}", found.test);
    }
}
