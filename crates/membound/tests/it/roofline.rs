//! Specification sheets and what follows from them: each number worked out by hand.

use std::path::Path;
use std::time::Duration;

use crate::common::program::tried;
use crate::common::simulated;
use membound_analyze::across::limits::{CacheLimit, Limit, LimitBasis, Limits, MemoryLimit, limits};
use membound_analyze::across::roofline::Bound;
use membound_analyze::across::sections;
use membound_analyze::of_record as model;
use membound_analyze::output::{csv, svg, terminal};
use membound_analyze::report::Report;
use membound_analyze::row::AnyRow;
use membound_core::case::{Case, Work};
use membound_core::kernel::chase::Order;
use membound_core::kernel::flops::Flops;
use membound_core::kernel::isa::Isa;
use membound_core::kernel::{Element, StoreKind, Width};
use membound_core::machine::cpuset::CpuSet;
use membound_core::machine::nature::NodeKind;
use membound_core::machine::spec::{Balance, Sheet};
use membound_core::record::{Outcome, Record};
use membound_core::{case, experiments as plan};
use membound_measure::asm::{chains_of_flops, detect};
use membound_measure::executor::native::Native;
use membound_measure::memory::places::Places;
use membound_measure::schedule::{Executor, Quota};
use proptest::prelude::*;

fn sheet(name: &str) -> Sheet {
    Sheet::find(Path::new(name)).unwrap()
}

#[track_caller]
fn near(found: Option<f64>, expect: f64) {
    let found = found.expect("a figure");
    assert!((found / expect - 1.0).abs() < 1e-9, "{found}, not {expect}");
}

#[test]
fn the_sheets_that_come_along_are_sound() {
    let all: Vec<(&str, Sheet)> = Sheet::all().collect();
    assert!(all.len() >= 16);
    for (name, sheet) in &all {
        assert!(sheet.source.len() > 20, "{name} names no source");
        assert!(!sheet.cores.is_empty(), "{name}");
    }
}

/// Four Cortex-A15 at 1.4 GHz and eight C66x at 1.2 GHz, DDR3-1600 on two channels of 64 bits.
#[test]
fn peaks_of_66ak2h12() {
    let sheet = sheet("66ak2h12");
    let [a15, c66] = &sheet.cores[..] else { panic!("two kinds of cores") };
    // 4 x 1.4 GHz x 4 lanes x 2 flops.
    near(a15.flops(32), 44.8e9);
    // 4 x 1.4 GHz x 4 flops.
    let ieee = a15.arithmetic(32, 32).and_then(|row| row.most(32)).unwrap();
    near(a15.cycles_per_s().map(|cycles| cycles * ieee), 22.4e9);
    // 4 x 1.4 GHz x 1 lane x 2 flops.
    near(a15.flops(64), 11.2e9);
    // 8 x 1.2 GHz x 16 flops, and x 6.
    near(c66.flops(32), 153.6e9);
    near(c66.flops(64), 57.6e9);
    near(sheet.flops(64), 68.8e9);
    // 2 x 1600e6 x 8 B.
    near(sheet.memory_of(NodeKind::Dram, "").and_then(|memory| memory.bytes_per_s()), 25.6e9);
}

/// No clock, so nothing a second; 62 cores x 16 flops in a cycle.
#[test]
fn peaks_of_knights_corner() {
    let sheet = sheet("knc");
    let cores = &sheet.cores[0];
    assert_eq!(cores.count, Some(62));
    assert_eq!((cores.flops_per_cycle(64), cores.flops_per_cycle(32)), (Some(16.0), Some(32.0)));
    assert_eq!(cores.caches[1].bytes(), Some(membound_core::units::Bytes::kib(512)));
    assert_eq!((cores.flops(64), sheet.flops(64)), (None, None));
}

/// 8 cores x 1.4 GHz x 1 flop; 40 GB/s read and 20 written.
#[test]
fn balance_of_ultrasparc_t2() {
    let sheet = sheet("ultrasparc-t2");
    near(sheet.flops(64), 11.2e9);
    let memory = sheet.memory_of(NodeKind::Dram, "").and_then(|memory| memory.bytes_per_s());
    near(memory, 60e9);
    near(memory.map(|memory| memory / sheet.flops(64).unwrap()), 60.0 / 11.2);
    // A third of it was ever measured: 20 GB/s, 1.786 B/flop.
    near(memory.map(|memory| memory / 3.0 / sheet.flops(64).unwrap()), 20.0 / 11.2);
}

#[test]
fn peaks_of_sockets() {
    let memory =
        |name: &str, model: &str| sheet(name).memory_of(NodeKind::Dram, model).and_then(|memory| memory.bytes_per_s());
    near(memory("zen2", "AMD EPYC 7742 64-Core Processor"), 204.8e9); // 8 x 3200e6 x 8
    near(memory("zen3", "AMD EPYC 7763 64-Core Processor"), 204.8e9);
    near(memory("zen4", "AMD EPYC 9654 96-Core Processor"), 460.8e9); // 12 x 4800e6 x 8
    near(memory("zen5", "AMD EPYC 9755 128-Core Processor"), 614.4e9); // 12 x 6400e6 x 8
    near(memory("ice-lake-sp", "Intel(R) Xeon(R) Platinum 8360Y CPU @ 2.40GHz"), 204.8e9);
    near(memory("sapphire-rapids", "Intel(R) Xeon(R) Platinum 8480+"), 307.2e9); // 8 x 4800e6 x 8
    near(memory("emerald-rapids", "INTEL(R) XEON(R) PLATINUM 8592+"), 358.4e9); // 8 x 5600e6 x 8
    near(memory("emerald-rapids", "Intel(R) Xeon(R) Processor"), 358.4e9); // a guest of Firecracker
    near(memory("granite-rapids", "Intel(R) Xeon(R) 6972P"), 844.8e9); // 12 x 8800e6 x 8
    near(memory("granite-rapids", "Intel(R) Xeon(R) 6787P"), 512e9); // 8 x 8000e6 x 8
    near(memory("grace", ""), 546.112e9); // 16 x 8533e6 x 4
    near(memory("graviton2", ""), 204.8e9);
    near(memory("graviton3", ""), 307.2e9);
    near(memory("graviton4", ""), 537.6e9); // 12 x 5600e6 x 8
    near(memory("yitian-710", ""), 281.6e9); // 8 x 4400e6 x 8
    near(memory("gb10", ""), 273.056e9); // 16 x 8533e6 x 2
    near(memory("m1", ""), 68.256e9); // 8 x 4266e6 x 2
    near(memory("knl-7250", ""), 115.2e9); // 6 x 2400e6 x 8
    assert_eq!(memory("zen4", "AMD Ryzen 9 7950X"), None, "a desktop has other memory");
    assert_eq!(memory("zen4", "AMD EPYC 8534P"), None, "six channels");
    // Model names of QEMU, whose hosts may be newer.
    assert_eq!(memory("ice-lake-sp", "Intel Xeon Processor (Icelake)"), None);
    assert_eq!(memory("sapphire-rapids", "Intel Xeon Processor (SapphireRapids)"), None);
    assert_eq!(memory("granite-rapids", "Intel Xeon Processor (GraniteRapids)"), None);
    for workstation in ["Intel(R) Xeon(R) 698X", "Intel(R) Xeon(R) 678X", "Intel(R) Xeon(R) 696X"] {
        assert_eq!(memory("granite-rapids", workstation), None, "{workstation}");
    }
}

/// Flops in a cycle of one core, double precision.
#[test]
fn peaks_of_cores() {
    let per_cycle = |name: &str| sheet(name).cores[0].flops_per_cycle(64);
    for (name, flops) in [("zen2", 16.0), ("zen3", 16.0), ("zen4", 16.0), ("zen5", 32.0), ("graviton2", 8.0)] {
        assert_eq!(per_cycle(name), Some(flops), "{name}");
    }
    for (name, flops) in [("ice-lake-sp", 32.0), ("sapphire-rapids", 32.0), ("grace", 16.0), ("graviton3", 16.0)] {
        assert_eq!(per_cycle(name), Some(flops), "{name}");
    }
    for (name, flops) in [("yitian-710", 8.0), ("gb10", 24.0), ("m1", 16.0)] {
        assert_eq!(per_cycle(name), Some(flops), "{name}");
    }
    // 68 x 1.4 GHz x 2 units x 8 lanes x 2.
    near(sheet("knl-7250").flops(64), 3046.4e9);
    // Zen 4 adds and multiplies on pipes of their own: 4 instructions of 4 doubles.
    let cores = &sheet("zen4").cores[0];
    let of = |width, balance| cores.arithmetic(64, width).and_then(|row| row.flops_per_cycle(balance, 64));
    assert_eq!(of(256, Balance::Separate), Some(16.0));
    assert_eq!(of(256, Balance::Add), Some(8.0));
    assert_eq!(of(512, Balance::Fma), Some(16.0));
    // Golden Cove has three ports for 256 bits and two for 512.
    let cores = &sheet("sapphire-rapids").cores[0];
    let of = |width, balance| cores.arithmetic(64, width).and_then(|row| row.flops_per_cycle(balance, 64));
    assert_eq!(of(256, Balance::Separate), Some(12.0));
    assert_eq!(of(512, Balance::Separate), Some(16.0));
}

/// Zen 4: two loads and a store of 32 B in a cycle. Zen 1: two accesses of 16 B, whatever they are. Worked out by hand.
#[test]
fn ports_of_the_first_level() {
    let check = |name: &str, [loaded, stored, access]: [f64; 3], cycles: f64| {
        near(sheet(name).cores[0].caches[0].cycles(loaded, stored, access), cycles);
    };
    // The triad: 16 B and 8 B an element.
    check("zen4", [16.0, 8.0, 32.0], 0.25);
    check("zen4", [16.0, 8.0, 64.0], 0.25);
    check("zen4", [16.0, 8.0, 16.0], 0.5);
    check("zen4", [16.0, 8.0, 8.0], 1.0);
    check("zen4", [8.0, 0.0, 8.0], 0.5);
    check("zen1", [16.0, 8.0, 16.0], 0.75);
    check("skylake-sp", [16.0, 8.0, 64.0], 0.125);
    check("skylake-sp", [16.0, 8.0, 32.0], 0.25);
    // Three loads of 256 bits, two of 512.
    check("sapphire-rapids", [24.0, 0.0, 32.0], 0.25);
    check("sapphire-rapids", [24.0, 0.0, 64.0], 0.1875);
    check("knl-7250", [16.0, 8.0, 64.0], 0.1875);
    // Neoverse N1 stores twice up to 64 bits, once 128.
    check("graviton2", [0.0, 8.0, 8.0], 0.5);
    check("graviton2", [0.0, 16.0, 16.0], 1.0);
    assert_eq!(sheet("sapphire-rapids").cores[0].caches[1].cycles(8.0, 8.0, 64.0), None, "stores to L2 are not told");
}

#[test]
fn a_wrong_sheet_is_told_with_file_line_and_cure() {
    let check = |text: &str, expect: &[&str]| {
        let error = Sheet::parse(text, "mine.toml").unwrap_err().to_string();
        assert!(expect.iter().all(|part| error.contains(part)), "{error}\nlacks one of {expect:?}");
    };
    let head = "name = \"x\"\nsource = \"y\"\n";
    check("name = 3", &["mine.toml:1", "string"]);
    check(&format!("{head}clock = 3\n"), &["mine.toml:3", "unknown field `clock`"]);
    check(head, &["mine.toml:1", "needs [[cores]] or [[memory]]"]);
    check(&format!("{head}[[cores]]\nname = \"c\"\ncount = 0\n"), &["mine.toml:5", "`count` is 0", "from 1 to"]);
    check(&format!("{head}[[cores]]\nname = \"c\"\nclock_ghz = -2.0\n"), &["mine.toml:5", "`clock_ghz` is -2"]);
    check(&format!("{head}[[cores]]\nname = \"c\"\nclock_ghz = nan\n"), &["mine.toml:5", "NaN"]);
    check(&format!("{head}[[memory]]\nname = \"m\"\nchannels = 2\n"), &["mine.toml:3", "mt_s and width_bits"]);
    check(
        &format!("{head}[[cores]]\nname = \"c\"\n[[cores.caches]]\nlevel = 1\nsize = \"32 parsecs\"\n"),
        &["mine.toml:7", "32 parsecs"],
    );
    let error = Sheet::find(Path::new("/nowhere/x.toml")).unwrap_err().to_string();
    assert!(
        error.contains("/nowhere/x.toml") && error.contains("known sheets are") && error.contains("zen4"),
        "{error}"
    );
}

#[test]
fn a_huge_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("huge.toml");
    std::fs::write(&path, "#".repeat(1 << 20)).unwrap();
    assert!(Sheet::find(&path).unwrap_err().to_string().contains("longer than 262144 bytes"));
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in ".{0,300}") {
        let _ = Sheet::parse(&text, "fuzz");
    }

    /// A sound sheet with a piece cut out, and another put in.
    #[test]
    fn no_damage_makes_the_parser_panic(from in 0usize..1200, length in 0usize..80, put in "[-0-9a-z=\"\\[\\]\n.{}]{0,20}") {
        let text = include_str!("../../../core/specs/66ak2h12.toml");
        let cut = |at: usize| (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap();
        let damaged = [&text[..cut(from)], &put, &text[cut(from + length)..]].concat();
        if let Ok(sheet) = Sheet::parse(&damaged, "fuzz") {
            prop_assert!(sheet.flops(64).is_none_or(|flops| flops.is_finite() && flops > 0.0));
        }
    }
}

#[test]
fn limits_of_a_machine_follow_from_sheet_and_clock() {
    let machine = crate::common::reports::empty().machine;
    let found = limits(&machine, Some(&sheet("66ak2h12")), &[]);
    // 1.4 GHz x 2 flops: the first kind of cores.
    let double = found.flops.iter().find(|limit| limit.element == Element::Double && limit.balance == Balance::Fma);
    let double = double.unwrap();
    assert_eq!(double.width, Width::Scalar);
    near(double.per_s.as_ref().map(|limit| limit.value), 2.8e9);
    let memory = found.of_nodes(&CpuSet::default()).unwrap();
    assert_eq!((memory.value, memory.basis), (25.6e9, LimitBasis::Specified));
    assert!(memory.says.contains("2 channels of 64 bits DDR3 at 1600 MT/s"), "{}", memory.says);
    let none = limits(&machine, None, &[]);
    assert_eq!((none.of_nodes(&CpuSet::default()), none.sheet, none.flops.len()), (None, None, 0));
}

fn limit(value: f64, basis: LimitBasis) -> Option<Limit> {
    Some(Limit { value, basis, says: "by hand".into() })
}

/// Memory of 100 GB/s, a first level of 64 GB/s loaded and 32 stored by one core.
#[test]
fn shares_are_of_the_slower_side() {
    let machine = crate::common::reports::empty().machine;
    const PORTS: &str = "name = \"x\"\nsource = \"y\"\n[[cores]]\nname = \"c\"\n[[cores.caches]]\nlevel = 1\nload_bytes = 64\n\
                         store_bytes = 32\nloads = 2\n";
    let ports = Sheet::parse(PORTS, "here").unwrap().cores[0].caches[0].clone();
    let cache = CacheLimit { level: "L1".into(), load_bps: None, store_bps: None, ports: Some(ports) };
    let memory = |basis| MemoryLimit {
        name: "DDR4".into(),
        kind: NodeKind::Dram,
        nodes: CpuSet::default(),
        bps: limit(100e9, basis),
    };
    let known = Limits {
        memory: vec![memory(LimitBasis::Configured)],
        caches: vec![cache],
        clock_hz: limit(1e9, LimitBasis::Specified),
        ..Limits::default()
    };
    let at = |kernel, store, level: &str| {
        let mut row = crate::common::reports::row(kernel, store, Width::W256, 1, 1 << 30);
        row.level = Some(level.into());
        known.of_row(&row, &machine)
    };
    // 24 of 32 bytes are payload; all of them with non-temporal stores.
    near(at("triad", StoreKind::Regular, "memory"), 75e9);
    near(at("triad", StoreKind::Nt, "memory"), 100e9);
    // 16 B loaded in 0.25 ns beside 8 B stored in 0.25 ns: 24 B.
    near(at("triad", StoreKind::Regular, "L1"), 96e9);
    near(at("load", StoreKind::Regular, "L1"), 64e9);
    // Non-temporal stores go past the caches: their ports tell nothing.
    assert_eq!(at("triad", StoreKind::Nt, "L1"), None);
    assert_eq!(at("load", StoreKind::Regular, "L2"), None);
    let best = Limits { memory: vec![memory(LimitBasis::BestMeasured)], ..Limits::default() };
    let row = crate::common::reports::row("load", StoreKind::Regular, Width::W256, 1, 1 << 30);
    assert_eq!(best.of_row(&row, &machine), None, "the best measured is no limit");
}

/// Of what is hardly larger than the first level a part stays there: 45 KiB of a triad passed what the ports of a second level of 512 KiB
/// allow by 5 to 16 %.
#[test]
fn what_a_nearer_level_keeps_is_held_against_no_ports() {
    let machine = crate::common::reports::empty().machine;
    const SIZES: &str = "name = \"x\"\nsource = \"y\"\n[[cores]]\nname = \"c\"\n[[cores.caches]]\nlevel = 1\nsize = \"32KiB\"\n\
                         load_bytes = 64\n[[cores.caches]]\nlevel = 2\nsize = \"512KiB\"\nload_bytes = 32\n";
    let told = Sheet::parse(SIZES, "here").unwrap().cores[0].caches.clone();
    let cache = |(ports, level): (_, &str)| CacheLimit {
        level: level.into(),
        load_bps: None,
        store_bps: None,
        ports: Some(ports),
    };
    let known = Limits {
        caches: told.into_iter().zip(["L1", "L2"]).map(cache).collect(),
        clock_hz: limit(1e9, LimitBasis::Specified),
        ..Limits::default()
    };
    let at = |level: &str, kib: u64| {
        let mut row = crate::common::reports::row("load", StoreKind::Regular, Width::W256, 1, kib << 10);
        row.level = Some(level.into());
        known.of_row(&row, &machine)
    };
    assert_eq!([45, 127].map(|kib| at("L2", kib)), [None, None]);
    near(at("L2", 128), 32e9);
    near(at("L1", 24), 64e9);
}

/// A whole run on the simulated machine: memory delivers 8 GB/s of the bus to one thread, whatever the mix.
fn simulated_report() -> Report {
    model::report(&simulated_record())
}

pub fn simulated_record() -> Record {
    let machine = simulated::machine(2, false);
    let frame = simulated::frame(&machine);
    let cases = plan::roofline::roofline(&frame, 2, Duration::from_secs(600)).unwrap();
    simulated::run(&machine, &cases, &mut simulated::fake())
}

#[test]
fn loops_in_simulated_memory_are_predicted() {
    let report = simulated_report();
    let point = |kernel: &str, store| {
        let mut points = report.roofline.points.iter().filter(|point| point.level == "memory");
        let ours = |row: &membound_analyze::experiments::bandwidth::rows::BandwidthRow| {
            row.kernel() == kernel && row.store() == store && row.threads() == 1
        };
        points.find(|point| ours(&report.rows[point.row])).unwrap_or_else(|| panic!("no point of {kernel}"))
    };
    let triad = point("triad", StoreKind::Regular);
    // 2 flops for 32 B of the bus: 0.5 GF/s at 8 GB/s.
    near(Some(triad.intensity), 2.0 / 32.0);
    assert!((triad.predicted / 0.5e9 - 1.0).abs() < 0.08, "{}", triad.predicted);
    assert!((triad.fraction[0] - 1.0).abs() < 0.08, "{:?}", triad.fraction);
    assert_eq!((triad.bound, triad.is_partial), (Some(Bound::Bandwidth), false));
    // Without the write-allocate: 24 B.
    near(Some(point("triad", StoreKind::Nt).intensity), 2.0 / 24.0);
    let dot = point("dot", StoreKind::Regular);
    assert!((dot.predicted / 1e9 - 1.0).abs() < 0.08, "{}", dot.predicted);
    assert!(report.roofline.answer().unwrap().starts_with("From memory, 2 threads can only be fully used"));
}

/// By hand: memory delivers 8 GB/s to a thread with ten lines in flight, so a load takes 80 ns, alone 0.8 GB/s of lines. Two
/// threads get twice that, and together no more than memory has: 12 GB/s.
#[test]
fn the_ceiling_without_prefetch_is_that_of_random_loads() {
    let report = simulated_report();
    let of = |threads, order, chains| {
        let mut all = report.roofline.without_prefetch.iter();
        let wanted = (threads, order, chains);
        all.find(|ceiling| (ceiling.threads, ceiling.order, ceiling.chains) == wanted).unwrap().bps[0] / 1e9
    };
    let check = |threads, order, chains, expect: f64| {
        let found = of(threads, order, chains);
        assert!((found / expect - 1.0).abs() < 0.05, "{threads} {order} {chains}: {found}");
    };
    check(1, Order::Random, 1, 0.8);
    check(2, Order::Random, 1, 1.6);
    // Sixteen chains, ten in flight: all that memory has.
    check(1, Order::Random, 16, 8.0);
    check(2, Order::Random, 16, 12.0);
    check(1, Order::PageRandom, 1, 0.8);
    check(2, Order::PageRandom, 1, 1.6);
    let said = report.roofline.answer().unwrap();
    assert!(
        said.contains("Without prefetch one thread gets 0.8")
            && said.contains("by 16 independent ones; 2 threads get 1."),
        "{said}"
    );
    // A slope each in the plot of its threads.
    let plot = membound_analyze::output::svg::of_threads(&report, 2).unwrap();
    assert!(plot.contains("dependent random loads") && plot.contains("16 chains of random loads"), "{plot}");
    // Threads together share what each alone would have: no ladder has them.
    let together: Vec<usize> = report.latency.together.iter().map(|row| row.case.threads()).collect();
    assert_eq!(together, [2, 2, 2]);
    assert!(report.latency.rows.iter().all(|row| row.case.threads() == 1));
}

/// A record of `stores` has no arithmetic: what its kernels wait for can't be said.
#[test]
fn one_roof_alone_tells_of_no_bound() {
    let whole = simulated_report();
    let machine = simulated::machine(2, false);
    let alone = membound_analyze::across::roofline::roofline(&[], &whole.rows, &whole.limits, &machine);
    assert!(!alone.points.is_empty() && alone.points.iter().all(|point| point.bound.is_none() && point.is_partial));
    let count = alone.points.len();
    let answer = alone.answer().unwrap();
    assert!(answer.starts_with(&format!("What bounds {count} kernel figures is unknown")), "{answer}");
    assert!(!answer.contains("compute-bound"), "{answer}");
    let answer = whole.roofline.answer().unwrap();
    assert!(answer.contains("compute-bound") && !answer.contains("membound roofline measures both"), "{answer}");
}

/// Less time, fewer kernels in memory; never fewer ceilings.
#[test]
fn a_small_budget_leaves_kernels_out() {
    let machine = simulated::machine(2, false);
    let frame = simulated::frame(&machine);
    let of = |seconds| plan::roofline::roofline(&frame, 2, Duration::from_secs(seconds)).unwrap();
    let (few, many) = (of(1), of(600));
    let memory = many.iter().map(|case| case.working_set).max().unwrap();
    let count = |cases: &[Case], is_ceiling: bool| {
        let of = |case: &&Case| {
            case.variant().is_some_and(|v| ["load", "store", "copy"].contains(&&*v.kernel) == is_ceiling)
        };
        cases.iter().filter(|case| case.working_set.0 * 2 > memory.0).filter(of).count()
    };
    assert!(count(&few, false) < count(&many, false), "{} of {}", few.len(), many.len());
    assert_eq!(count(&few, true), count(&many, true));
}

/// One flop in a tick of 1 ns, lane and thread; two where fused.
#[test]
fn arithmetic_is_counted_on_the_simulated_machine() {
    let report = simulated_report();
    let of = |balance, width, threads| {
        let wanted = Flops { element: Element::Double, width, balance };
        let mut rows = report.flops.iter().filter(|row| row.flops() == wanted);
        rows.find(|row| row.case.threads() == threads).unwrap().flops_per_s.unwrap().median
    };
    for (balance, width, threads, expect) in [
        (Balance::Add, Width::Scalar, 1, 1e9),
        (Balance::Fma, Width::Scalar, 1, 2e9),
        (Balance::Separate, Width::W128, 2, 4e9),
    ] {
        assert!((of(balance, width, threads) / expect - 1.0).abs() < 0.03, "{balance} {width}");
    }
}

/// The number that an attribute of an element has.
fn attribute(element: &str, name: &str) -> Option<f64> {
    element.split_once(&format!(" {name}=\""))?.1.split_once('"')?.0.parse().ok()
}

/// By boxes as wide as six units a letter: no name inside the field covers a point or another name.
#[test]
fn names_in_the_drawing_cover_nothing() {
    let drawing = svg::roofline(&simulated_report()).unwrap();
    // A dot is a line without length.
    let dot = |line: &str| {
        let (x, y) = line.strip_prefix("<path d=\"M")?.split_once("h0\"")?.0.split_once(' ')?;
        Some([x.parse().ok()?, y.parse().ok()?])
    };
    let dots: Vec<[f64; 2]> = drawing.lines().filter_map(dot).collect();
    let is_name = |line: &&str| line.starts_with("<text") && line.contains("\"start\"");
    let name = |line: &str| {
        let letters = line.split_once('>')?.1.split_once('<')?.0.chars().count();
        Some([attribute(line, "x")?, attribute(line, "y")? - 4.0, 5.9 * letters as f64])
    };
    let names: Vec<[f64; 3]> =
        drawing.lines().filter(is_name).filter_map(name).filter(|name| name[0] < 570.0).collect();
    assert!(dots.len() > 20 && names.len() > 5, "{} points, {} names", dots.len(), names.len());
    for (place, [x, y, width]) in names.iter().enumerate() {
        let is_under = |dot: &&[f64; 2]| dot[0] > *x && dot[0] < x + width && (dot[1] - y).abs() < 6.0;
        assert_eq!(dots.iter().find(is_under), None, "below the name at {x}, {y}");
        let is_crossed =
            |other: &&[f64; 3]| (other[1] - y).abs() < 12.0 && other[0] < x + width && *x < other[0] + other[2];
        assert_eq!(names[place + 1..].iter().find(is_crossed), None, "across the name at {x}, {y}");
    }
}

#[test]
fn views_of_the_roofline() {
    let mut report = simulated_report();
    report.host = crate::common::reports::NASTY.into();
    let shown = |report: &membound_analyze::report::Report| {
        let document = sections::roofline::document(&report.roofline, &report.rows, &report.limits, &report.warnings);
        anstream::adapter::strip_str(&terminal::section::document(&document)).to_string()
    };
    let text = shown(&report);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("Kernels below the roof"), "{text}");
    let drawing = svg::roofline(&report).unwrap();
    assert!(!drawing.contains("<script") && drawing.contains("GF/s") && drawing.trim_end().ends_with("</svg>"));
    assert!(!drawing.contains("NaN") && !drawing.contains("inf"), "{drawing}");
    assert_eq!(drawing.matches("<text").count(), drawing.matches("</text>").count());
    assert_eq!(svg::roofline(&crate::common::reports::empty()), None);
    assert!(shown(&crate::common::reports::empty()).starts_with("No roofline"));
    let rows: Vec<&dyn AnyRow> = report.any_rows().filter(|row| row.metric() == "flops").collect();
    assert!(csv::rows(&rows).lines().next().unwrap().contains("flops_per_s_median,"));
    for (name, sheet) in Sheet::all() {
        let text =
            anstream::adapter::strip_str(&terminal::section::document(&sections::limits::sheet(&sheet))).to_string();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{name}\n{text}");
    }
}

/// Each piece of machine code runs on this processor, and is held against plain Rust before and after.
#[test]
fn arithmetic_for_real() {
    let of = |element, width| Balance::ALL.iter().map(move |&balance| Flops { element, width, balance });
    let all = Element::ALL.iter().flat_map(|&e| Width::ALL.iter().flat_map(move |&w| of(e, w)));
    let mut native = Native::new(&[], Places::default(), false).unwrap();
    let time = Duration::from_millis(1);
    let quota = Quota { least_samples: 2, most_samples: 3, time, interrupted: &|| false };
    for flops in all {
        let kernel = case::steady(
            "load",
            Width::Scalar,
            StoreKind::Regular,
            case::USUAL_MEMORY,
            vec![0],
            membound_core::units::Bytes(0),
        );
        let case = Case { work: Work::Flops(flops), ..kernel };
        match native.visit(&case, &quota) {
            Outcome::Measured(measured) => {
                assert_eq!(measured.volume.flops, flops.per_trip(chains_of_flops(flops, detect())));
                assert!(measured.samples.is_consistent() && measured.repetitions > 0);
            }
            Outcome::Unavailable { reason } => {
                let is_there = membound_measure::asm::detect().widths().contains(&flops.width)
                    && membound_measure::asm::detect().fma;
                assert!(!is_there, "{flops}: {reason}");
            }
            other => panic!("{flops}: {other:?}"),
        }
    }
}

/// Before AVX there are two-operand forms, and no fused ones.
#[test]
fn arithmetic_without_avx() {
    let sse = Isa::NONE;
    let of = |width, balance| membound_measure::asm::flops(Flops { element: Element::Float, width, balance }, sse);
    assert!(of(Width::W128, Balance::Separate).is_ok() && of(Width::Scalar, Balance::Multiply).is_ok());
    assert!(of(Width::W256, Balance::Add).unwrap_err().to_string().contains("AVX"));
    assert!(of(Width::W128, Balance::Fma).unwrap_err().to_string().contains("FMA"));
}

#[test]
fn a_machine_on_paper() {
    let (code, text, _) = tried(&["machine", "--spec", "ultrasparc-t2"]);
    assert_eq!(code, Some(0));
    let answer = text.split("\n\n").next().unwrap().replace('\n', " ");
    let expect =
        "UltraSPARC T2: 11.2 GF/s in double precision, memory 60.0 GB/s: machine balance 5.36 B/flop, 0.187 flop/B.";
    assert_eq!(answer.trim_end(), expect);
    let (code, text, _) = tried(&["machine", "--spec", "66ak2h12"]);
    assert_eq!(code, Some(0));
    for figure in ["44.8", "22.4", "11.2", "154", "57.6", "25.6 GB/s"] {
        assert!(text.contains(figure), "{figure}\n{text}");
    }
    let (code, _, talk) = tried(&["machine", "--spec", "no-such-sheet"]);
    assert_eq!(code, Some(2));
    assert!(talk.contains("known sheets are") && talk.contains("zen4"), "{talk}");
    let (code, _, talk) = tried(&["roofline", "--spec", "no-such-sheet"]);
    assert_eq!(code, Some(2), "{talk}");
    let (_, text, _) = tried(&["machine", "--spec", "list"]);
    assert!(text.lines().count() >= 16 && text.contains("graviton4"), "{text}");
}

#[test]
fn a_named_sheet_stays_with_the_record() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    let file = path.to_str().unwrap();
    let (code, text, talk) =
        tried(&["roofline", "--spec", "ultrasparc-t2", "--record", file, "--budget", "1s", "-q", "--cpus", "0"]);
    assert_eq!(code, Some(0), "{talk}");
    assert!(text.contains("UltraSPARC T2"), "{text}");
    // Whatever becomes of the file that was named.
    let again = tried(&["roofline", file]).1;
    assert!(again.contains("UltraSPARC T2"), "{again}");
    let other = tried(&["roofline", file, "--spec", "knl-7250"]).1;
    assert!(!other.contains("UltraSPARC T2") && other.contains("7250"), "{other}");
    let record = membound_core::record::Record::read(&path).unwrap();
    assert_eq!(record.header.sheet, Some(sheet("ultrasparc-t2")));
}
