//! Reports made by hand: a machine that never was, with everything a view must be able to show.
#![allow(dead_code)] // Each test file uses its part.

use crate::common::by_hand;
use membound_analyze::across::sections::maps;
use membound_analyze::across::traffic::{Traffic, WriteAllocate};
use membound_analyze::break_even::BreakEven;
use membound_analyze::experiments::bandwidth::rows::{BandwidthFigures, BandwidthRow};
use membound_analyze::experiments::bandwidth::stores::Crossover;
use membound_analyze::experiments::bandwidth::stream::{Scaling, StreamLine, StreamTable};
use membound_analyze::experiments::c2c::rows::Handovers;
use membound_analyze::experiments::kinds::rows::{Kind, Kinds};
use membound_analyze::experiments::loaded::rows::UnderLoad;
use membound_analyze::experiments::offsets::rows::{OffsetFigures, OffsetRow};
use membound_analyze::experiments::pages::rows::{PageFigures, PageRow};
use membound_analyze::flag::Flag;
use membound_analyze::hierarchy::names::{Level, LevelBest, Levels};
use membound_analyze::output::terminal::section;
use membound_analyze::quality::{Quality, Status};
use membound_analyze::rate::{Cost, Rate};
use membound_analyze::report::Report;
use membound_analyze::warning::Warning;
use membound_core::case::{Case, USUAL_MEMORY, Work, usual};
use membound_core::kernel::catalog::Kernel;
use membound_core::kernel::scan::Scan;
use membound_core::kernel::{Element, LoadKind, StoreKind, Variant, Width};
use membound_core::machine::Machine;
use membound_core::machine::fact::Fact;
use membound_core::memory::located::NodePages;
use membound_core::memory::{MemoryKind, MemorySpec, Obtained};
use membound_core::record::{Clock, End, Environment, Measurement, Record};
use membound_core::stats::quantiles::Modes;
use membound_core::units::{Bytes, Hertz};
use membound_core::work::pages::PageWork;

use crate::common::by_hand::unknown_machine;

/// Text that does harm wherever it is not escaped.
pub const NASTY: &str = "node<script>alert(1)</script>\"'&";

/// Name, end, and what one thread loads there with 512 bits, in GB/s.
const LEVELS: [(&str, u64, f64); 4] =
    [("L1", 48 << 10, 412.0), ("L2", 2 << 20, 150.0), ("L3", 32 << 20, 38.0), ("memory", u64::MAX, 14.2)];

/// Nothing was measured.
pub fn empty() -> Report {
    Report {
        device: Default::default(),
        copies: Default::default(),
        kinds: None,
        numa: None,
        pages: Vec::new(),
        offsets: Vec::new(),
        handovers: Handovers::default(),
        loaded: UnderLoad::default(),
        addrmap: Vec::new(),
        energy: Vec::new(),
        rounding: Default::default(),
        congestion: Default::default(),
        plain: Default::default(),
        messages: Default::default(),
        latency: Default::default(),
        page_cache: Default::default(),
        host: String::new(),
        tool: "membound 0.1.0".into(),
        command: Vec::new(),
        started_unix_s: 0,
        seed: 0,
        clock: Clock { name: "tsc".into(), hz: Hertz(2.1e9), overhead_ticks: 24 },
        machine: unknown_machine(),
        before: Environment::default(),
        end: None,
        visited: 0,
        rows: Vec::new(),
        limits: Default::default(),
        flops: Vec::new(),
        roofline: Default::default(),
        levels: Levels::default(),
        shared_cores: Default::default(),
        host_states: None,
        first_touch: None,
        crossovers: Vec::new(),
        scaling: Vec::new(),
        write_allocate: Vec::new(),
        weightings: Vec::new(),
        stream: Vec::new(),
        findings: Vec::new(),
        warnings: Vec::new(),
        verdict: Default::default(),
    }
}

/// A record made by hand, in ticks of a clock of so many hertz.
pub fn record(hz: f64, measurements: Vec<Measurement>) -> Record {
    by_hand::record(by_hand::simulated_clock(hz), unknown_machine(), measurements)
}

/// A machine with one memory module.
fn machine() -> Machine {
    Machine { dimms: Fact::Known(vec![by_hand::module()]), ..unknown_machine() }
}

/// One row and nothing worked out from it.
pub fn single() -> Report {
    let row = row("triad", StoreKind::Nt, Width::W512, 2, 1 << 30);
    Report { host: "lone".into(), rows: vec![row], ..empty() }
}

/// Nothing but a case that the machine can't do.
pub fn unavailable() -> Report {
    Report { host: "poor".into(), rows: vec![cannot(row("copy", StoreKind::Nt, Width::W512, 1, 1 << 20))], ..empty() }
}

/// What offsets cost on a core with paths of 32 bytes, and nothing else.
pub fn offsets() -> Report {
    let mut rows = Vec::new();
    for (bytes, base) in [(8, 0.5), (64, 1.0)] {
        let places = [("inside a line", 1.0), ("aligned", 1.0), ("crosses a line", 2.0), ("crosses a page", 25.0)];
        rows.extend(places.map(|(place, times)| offset_row(Scan::Load { bytes }, place, base * times)));
        rows.extend(places.map(|(place, times)| offset_row(Scan::Store { bytes }, place, 2.0 * base * times)));
    }
    rows.insert(8, offset_row(Scan::Store { bytes: 8 }, "crosses 32 B", 2.0));
    rows.push(offset_row(Scan::Aliasing { bytes: 64 }, "aliases before", 12.3));
    rows.push(offset_row(Scan::Aliasing { bytes: 64 }, "aliases inside", 7.25));
    rows.push(offset_row(Scan::Aliasing { bytes: 64 }, "apart", 2.0));
    for (stored, loaded) in [(8, 8), (8, 64), (64, 8), (64, 64)] {
        let scan = Scan::Forwarding { stored, loaded };
        if loaded <= stored {
            rows.push(offset_row(scan, "same place", 9.0));
        }
        if loaded < stored {
            rows.push(offset_row(scan, "inside the store", 11.0));
        }
        rows.extend([offset_row(scan, "overlaps partly", 121.4), offset_row(scan, "apart", 1.0)]);
    }
    // A view draws a scan's curve from its first row.
    let mut seen = Vec::new();
    for row in rows.iter_mut().filter(|row| row.cycles.is_some()) {
        if !seen.contains(&row.scan()) {
            seen.push(row.scan());
            row.curve = row.scan().offsets().map(|at| (at, 1.0 + f64::from(at % 64 > 56))).collect();
        }
    }
    let mut none = offset_row(Scan::Forwarding { stored: 4, loaded: 64 }, "any", 0.0);
    (none.cycles, none.quality) = (None, refused(&format!("this processor has no AVX-512 on {NASTY}")));
    rows.push(none);
    Report { offsets: rows, ..empty() }
}

/// What was done to memory of a kind by so many threads.
fn case(work: Work, kind: MemoryKind, threads: usize, working_set: Bytes) -> Case {
    Case::new(work, MemorySpec::of(kind), (0..threads as u32).collect(), working_set)
}

fn offset_row(scan: Scan, place: &'static str, cycles: f64) -> OffsetRow {
    let (first, last) = scan.offsets().into_inner();
    let cycles = Some(Cost::plain(0.99 * cycles, cycles, [0.995 * cycles, 1.01 * cycles]));
    let figures = OffsetFigures { place, offsets: [first, last], count: 7, cycles, curve: Vec::new() };
    let case = case(Work::Scan(scan), MemoryKind::Base, 1, Bytes(8192));
    OffsetRow { case, quality: quality(3), figures }
}

/// Everything.
pub fn rich() -> Report {
    let rows = rows();
    let find = |kernel: &str, store, threads, size: u64| {
        let is =
            |r: &BandwidthRow| (r.kernel(), r.store(), r.threads(), r.width()) == (kernel, store, threads, Width::W512);
        rows.iter().position(|r| is(r) && r.case.working_set == Bytes(size)).unwrap()
    };
    let (regular, nt) = (StoreKind::Regular, StoreKind::Nt);
    Report {
        host: NASTY.into(),
        tool: "membound 0.1.0".into(),
        started_unix_s: 1_763_709_239,
        seed: 42,
        machine: machine(),
        before: environment(20 << 30, 0.31),
        visited: rows.len() as u64,
        end: Some(End {
            wall_s: 58.4,
            interrupted: false,
            overran: false,
            planned: rows.len() as u64,
            peak_memory: Some(Bytes::gib(2)),
            after: environment(19 << 30, 1.87),
        }),
        levels: Levels {
            all: LEVELS
                .iter()
                .zip([8 << 10, 128 << 10, 4 << 20, 1u64 << 30])
                .map(|((name, end, _), size)| Level {
                    name: (*name).into(),
                    from: Bytes(size),
                    to: Bytes(if *name == "memory" { 1 << 30 } else { end / 2 }),
                    capacity: (*name != "memory").then_some(Bytes(end - end / 37)),
                    claimed: (*name != "memory").then_some(Bytes(*end)),
                    best: [1, 2]
                        .into_iter()
                        .flat_map(|threads| ["load", "store", "copy", "triad"].map(|kernel| (kernel, threads)))
                        .map(|(kernel, threads)| {
                            let store = if *name == "memory" && kernel != "load" { nt } else { regular };
                            LevelBest {
                                kernel: kernel.into(),
                                threads,
                                row: find(kernel, store, threads, size),
                                share: None,
                            }
                        })
                        .collect(),
                    ..Level::default()
                })
                .collect(),
            ..Levels::default()
        },
        crossovers: vec![
            crossover("copy", 1, Some([27.2e6, 24.9e6, 30.1e6]), "beyond 25.9 MiB", Some([1.38, 1.36, 1.4])),
            crossover("copy", 2, Some([52.0e6, 48.1e6, 55.0e6]), "beyond 49.6 MiB", Some([1.41, 1.39, 1.44])),
            crossover("store", 1, None, "regular is faster everywhere", None),
        ],
        scaling: [("L2", 128 << 10), ("memory", 1 << 30)]
            .into_iter()
            .map(|(level, size)| Scaling {
                what: "copy 512 nt".into(),
                level: level.into(),
                rows: vec![find("copy", nt, 1, size), find("copy", nt, 2, size)],
            })
            .collect(),
        write_allocate: [("store", 8, 16), ("copy", 16, 24), ("triad", 24, 32)]
            .into_iter()
            .map(|(kernel, payload_bytes, bus_bytes)| {
                (kernel, payload_bytes, bus_bytes, bus_bytes as f64 / payload_bytes as f64)
            })
            .map(|(kernel, payload_bytes, bus_bytes, bound)| WriteAllocate {
                kernel: kernel.into(),
                threads: 2,
                regular: find(kernel, regular, 2, 1 << 30),
                nt: find(kernel, nt, 2, 1 << 30),
                payload_bytes,
                bus_bytes,
                gain: [bound * 0.95, bound * 0.94, bound * 0.96],
                bound,
                saturates: true,
                traffic: Traffic::AsCounted,
                moved_bytes: None,
                witness: None,
            })
            .collect(),
        stream: vec![stream()],
        findings: vec![
            "Memory gives 27.0 GB/s to copy with non-temporal stores on 2 threads; one thread alone reaches 14.2 GB/s."
                .into(),
            "Non-temporal stores pay beyond 25.9 MiB: copy gains 1.38 times, 3/2 would be the limit.".into(),
            "The measured L3 ends at 31.1 MiB; the operating system claims 32 MiB.".into(),
        ],
        warnings: vec![
            Warning {
                text: "the hypervisor took 0.12 s of CPU time while samples ran (37 of 11480 samples)".into(),
                cure: "run on a host of your own, or raise --samples until the interval is narrow enough".into(),
            },
            Warning {
                text: format!("transparent huge pages are off on {NASTY}: 0 of 1 GiB asked for were obtained"),
                cure: "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled".into(),
            },
        ],
        pages: pages(),
        rows,
        ..empty()
    }
}

/// Work on pages: cost of a 4 KiB page and of a 2 MiB page, with their faults; and what is not there.
pub fn pages() -> Vec<PageRow> {
    let mut rows = Vec::new();
    for (work, costs) in [
        (PageWork::Touch, [(250.0, 1.0), (90e3, 1.0)]),
        (PageWork::Read, [(120.0, 1.0), (1.9e3, 1.0)]),
        (PageWork::Populate, [(200.0, 1.0), (88e3, 1.0)]),
        (PageWork::Dontneed, [(40.0, 0.0), (1.4e3, 0.0)]),
        (PageWork::TouchAfterDontneed, [(251.0, 1.0), (91e3, 1.0)]),
        (PageWork::CopyOnWrite, [(600.0, 1.0), (320e3, 512.0)]),
    ] {
        for (kind, page, (ns, faults)) in
            [(MemoryKind::Base, Bytes(4096), costs[0]), (MemoryKind::Thp, Bytes::mib(2), costs[1])]
        {
            rows.extend([1, 2].map(|threads| page_row(work, kind, threads, page, ns, faults)));
        }
    }
    let mut shared = page_row(PageWork::Touch, MemoryKind::Shared, 1, Bytes(4096), 480.0, 1.0);
    shared.quality.flags = vec![Flag::Steal, Flag::FewSamples];
    rows.push(shared);
    for (kind, page) in [(MemoryKind::Huge2M, Bytes::mib(2)), (MemoryKind::Huge1G, Bytes::gib(1))] {
        let mut row = page_row(PageWork::Touch, kind, 1, page, 0.0, 0.0);
        (row.page_ns, row.bps, row.faults_per_page) = (None, None, None);
        row.quality = refused(&format!("64 MiB of {kind} memory were refused on {NASTY}; reserve pages"));
        rows.push(row);
    }
    rows
}

/// Two threads cost a tenth more each.
fn page_row(work: PageWork, memory: MemoryKind, threads: usize, page: Bytes, ns: f64, faults: f64) -> PageRow {
    let ns = ns * (1.0 + 0.1 * (threads - 1) as f64);
    let bps = |ns: f64| threads as f64 * page.0 as f64 / ns * 1e9;
    let figures = PageFigures {
        page_bytes: page,
        page_ns: Some(Cost::plain(0.97 * ns, ns, [0.99 * ns, 1.02 * ns])),
        bps: Some(Rate::plain(bps(0.97 * ns), bps(ns), [bps(1.02 * ns), bps(0.99 * ns)])),
        faults_per_page: Some(faults),
        obtained: None,
    };
    let working_set = Bytes(threads as u64 * Bytes::mib(64).0);
    PageRow { case: case(Work::Page(work), memory, threads, working_set), quality: quality(21), figures }
}

fn environment(available: u64, load_average: f64) -> Environment {
    Environment {
        available: Some(Bytes(available)),
        page_cache: Some(Bytes::gib(4)),
        node_free: vec![(0, Bytes(available - (3 << 30)))],
        load_average: Some(load_average),
        steal_s: None,
    }
}

fn crossover(kernel: &str, threads: usize, at: Option<[f64; 3]>, says: &str, gain: Option<[f64; 3]>) -> Crossover {
    let bound = if kernel == "store" { 2.0 } else { 1.5 };
    Crossover {
        kernel: kernel.into(),
        threads,
        store: StoreKind::Nt,
        width: Width::W512,
        load: LoadKind::Regular,
        element: Element::Double,
        memory: USUAL_MEMORY,
        at,
        says: says.into(),
        gain,
        bound,
    }
}

fn stream() -> StreamTable {
    let line = |function: &str, store: &str, best_mbps: f64, bytes: f64| StreamLine {
        function: function.into(),
        variant: format!("{store} 512"),
        best_mbps,
        avg_s: bytes / best_mbps / 0.97e6,
        min_s: bytes / best_mbps / 1e6,
        max_s: bytes / best_mbps / 0.9e6,
    };
    StreamTable {
        title: "STREAM-style".into(),
        memory: "thp on node0 (DRAM)".into(),
        missing: vec!["not measured with nt stores: Scale, Add".into()],
        unmet: vec!["each array must be at least 4 times the last-level cache: 64 MiB is less than 128 MiB".into()],
        array_elements: 8_388_608,
        threads: 2,
        lines: vec![
            line("Copy", "regular", 18_912.4, 134.2e6),
            line("Scale", "regular", 18_744.0, 134.2e6),
            line("Add", "regular", 20_911.7, 201.3e6),
            line("Triad", "regular", 20_870.9, 201.3e6),
            line("Copy", "nt", 26_990.2, 134.2e6),
            line("Triad", "nt", 26_420.5, 201.3e6),
        ],
        validation: "Solution not validated: that takes all four kernels".into(),
        width: Width::W512,
        triad_bps: Some(26_420.5e6),
    }
}

fn rows() -> Vec<BandwidthRow> {
    let sizes: Vec<u64> = (13..=30).map(|power| 1 << power).collect();
    let mut rows = Vec::new();
    for threads in [1, 2] {
        for (kernel, stores) in [
            ("load", &[StoreKind::Regular][..]),
            // Neither writes zeros.
            ("store", &StoreKind::ALL[..4]),
            ("copy", &StoreKind::ALL[..4]),
            ("triad", &StoreKind::ALL[..2]),
        ] {
            for &store in stores {
                let width = if store == StoreKind::NtMasked { Width::W128 } else { Width::W512 };
                rows.extend(sizes.iter().map(|&size| row(kernel, store, width, threads, size)));
            }
            for width in [Width::W128, Width::W256] {
                let sizes = [8 << 10, 128 << 10, 4 << 20, 1 << 30];
                rows.extend(sizes.map(|size| row(kernel, StoreKind::Regular, width, threads, size)));
            }
        }
    }
    // Masked stores exist for streams that start anywhere.
    let masked = |row: &&BandwidthRow| row.kernel() == "copy" && row.store() == StoreKind::NtMasked;
    let mut unaligned: Vec<BandwidthRow> = rows.iter().filter(masked).map(slower).collect();
    unaligned.iter_mut().for_each(|row| row.case.misaligned_bytes = 8);
    rows.extend(unaligned);
    make_bimodal(&mut rows);
    let lacking = rows.len();
    rows.push(cannot(row("copy", StoreKind::Nt, Width::W256, 1, 1 << 20)));
    rows.push(cannot(row("triad", StoreKind::Nt, Width::W256, 1, 1 << 20)));
    rows[lacking].quality.reason = Some(format!("this processor has no AVX on {NASTY}"));
    rows
}

/// The memory figure of copy with non-temporal stores on all threads falls into two groups.
fn make_bimodal(rows: &mut [BandwidthRow]) {
    let is = |row: &&mut BandwidthRow| row.kernel() == "copy" && row.store() == StoreKind::Nt && row.threads() == 2;
    let row = rows.iter_mut().rfind(is).unwrap();
    let high = row.payload_bps.unwrap().best;
    let BandwidthFigures { batches, seconds, .. } = &mut row.figures;
    for (index, (sample, seconds)) in batches[0].iter_mut().zip(seconds).enumerate() {
        if (index / 6) % 2 == 1 {
            *sample *= 0.8;
            *seconds /= 0.8;
        }
    }
    row.modes = Some(Modes { low: 0.79 * high, high: 0.99 * high, high_share: 0.61 });
    row.quality.flags = vec![Flag::Bimodal, Flag::Steal];
}

fn slower(row: &BandwidthRow) -> BandwidthRow {
    let slow = |rate: Rate| Rate::plain(0.8 * rate.best, 0.8 * rate.median, rate.ci95.map(|x| 0.8 * x));
    let mut slower = row.clone();
    (slower.payload_bps, slower.bus_bps) = (row.payload_bps.map(slow), row.bus_bps.map(slow));
    slower
}

fn cannot(row: BandwidthRow) -> BandwidthRow {
    let BandwidthFigures { node, core_clock_hz, imbalance, obtained, .. } = row.figures;
    let figures = BandwidthFigures { node, core_clock_hz, imbalance, obtained, ..BandwidthFigures::default() };
    BandwidthRow { case: row.case, quality: refused("this processor has no AVX"), figures }
}

/// Of so many samples in three rounds, with nothing to say against them.
pub fn quality(samples: usize) -> Quality {
    Quality { samples, rounds: 3, outcome: Status::Measured, reason: None, flags: Vec::new() }
}

/// Of what was not measured.
fn refused(reason: &str) -> Quality {
    Quality { outcome: Status::Unavailable, reason: Some(reason.into()), ..quality(0) }
}

/// A row with figures that follow from the machine's levels.
pub fn row(kernel: &str, store: StoreKind, width: Width, threads: usize, size: u64) -> BandwidthRow {
    let traffic = Kernel::named(kernel).unwrap().traffic(store, Element::Double);
    let (level, _, load) = LEVELS.iter().find(|(_, end, _)| size / threads as u64 <= *end).unwrap();
    let bus_ratio = traffic.bus() as f64 / traffic.payload() as f64;
    let cached = if *level == "memory" { 1.0 / bus_ratio } else { 0.8 };
    let store_speed = match (store, *level) {
        (StoreKind::Regular, _) | (_, "memory") => 1.0,
        (StoreKind::Rep | StoreKind::Zero, _) => 0.7,
        (StoreKind::Nt, _) => (16.0 / load).min(1.0),
        (StoreKind::NtMasked, _) => 4.0 / load,
    };
    let narrow = if *level == "memory" { 1.0 } else { f64::from(width.bits(Element::Double)) / 512.0 };
    let scale = if *level == "memory" { (threads as f64).powf(0.93) } else { threads as f64 };
    let median = load * 1e9 * cached * store_speed * narrow.sqrt() * scale;
    let samples: Vec<f64> = (0..31u64).map(|n| median * (1.0 + noise(n + size + width as u64))).collect();
    let rate = |factor: f64| {
        let value = median * factor;
        Rate::plain(value * 1.021, value, [value * 0.993, value * 1.006])
    };
    let variant = Variant { unroll: 4, ..usual(kernel, width, store) };
    BandwidthRow {
        case: case(Work::Kernel(variant), MemoryKind::Thp, threads, Bytes(size)),
        quality: Quality { flags: if size == 1 << 21 { vec![Flag::Outliers] } else { Vec::new() }, ..quality(31) },
        figures: BandwidthFigures {
            node: Some(0),
            level: Some((*level).into()),
            payload_bps: Some(rate(1.0)),
            bus_bps: Some(rate(bus_ratio)),
            copied_bps: (kernel == "copy").then(|| rate(0.5)),
            bytes_per_cycle: Some(median / 3.7e9 / threads as f64),
            core_clock_hz: Some(3.7e9),
            imbalance: (threads > 1).then_some(0.013),
            obtained: Some(Obtained {
                bytes: Bytes(size),
                huge_bytes: None,
                pages_on_node: vec![NodePages { node: 0, pages: 4096 }],
                ..Obtained::default()
            }),
            seconds: samples.iter().map(|rate| size as f64 / rate).collect(),
            bytes: size,
            batches: vec![samples],
            ..BandwidthFigures::default()
        },
    }
}

/// What a row's kernel is, to be changed.
pub fn variant(row: &mut BandwidthRow) -> &mut Variant {
    match &mut row.case.work {
        Work::Kernel(variant) => variant,
        work => panic!("{work:?}"),
    }
}

/// A number within ±2 % that looks random.
fn noise(n: u64) -> f64 {
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((mixed >> 40) as f64 / (1u64 << 24) as f64 - 0.5) * 0.04
}

/// Memory kinds side by side: every verdict, the longest names, one that could not be measured.
pub fn kinds() -> Report {
    let cost = |ms: f64| Some(Cost::plain(ms / 1020.0, ms / 1000.0, [ms / 1010.0, ms / 990.0]));
    let regular = MemorySpec::of(MemoryKind::Heap);
    let after = BreakEven::After { uses: 22.4, low: 17.0, high: Some(31.0) };
    let open = BreakEven::After { uses: 1230.0, low: 410.0, high: None };
    let kinds = [
        (MemoryKind::Heap, 22.0, 8.42, None),
        (MemoryKind::Thp, 7.1, 7.9, Some(BreakEven::AtOnce)),
        (MemoryKind::FilePrivateCold, 163.0, 8.4, Some(BreakEven::Never)),
        (MemoryKind::DmaHeapUncached, 21.0, 97.0, Some(BreakEven::Until { uses: 1.01 })),
        (MemoryKind::Shared, 22.1, 8.4, Some(BreakEven::Alike)),
        (MemoryKind::Wc, 81.0, 5.61, Some(after)),
        (MemoryKind::Wt, 1900.0, 8.4, Some(open)),
    ];
    let mut rows = Vec::new();
    let mut kind = |(kind, first, later, break_even): (MemoryKind, f64, f64, Option<BreakEven>)| {
        let load = row("load", StoreKind::Regular, Width::W256, 1, 32 << 20);
        let alone = [None, None, None, load.payload_bps, None];
        let mut own = load;
        own.case.memory.kind = kind;
        rows.push(own);
        Kind {
            memory: MemorySpec::of(kind),
            first_s: cost(first),
            steady_s: cost(later),
            faults: Some(8192.0),
            fault_ns: Some((first - later) * 1e6 / 8192.0),
            gain: break_even.map(|_| [8.42 / later, 8.3 / later, 8.5 / later]),
            against: break_even.map(|_| regular),
            break_even,
            samples: 31,
            alone,
            proof: "uncached (behaviour: 180 ns per line the second time)".into(),
            holds: kind != MemoryKind::FilePrivateCold,
        }
    };
    let mut all: Vec<Kind> = kinds.into_iter().map(&mut kind).collect();
    let nothing = Kind { first_s: None, steady_s: None, alone: [None; 5], ..all[1].clone() };
    let missing = Kind { proof: format!("unavailable: {NASTY}"), ..nothing };
    all.push(Kind { memory: MemorySpec::of(MemoryKind::Huge1G), holds: false, ..missing });
    let kinds = Kinds { bytes: Bytes::mib(32), element: Element::Double, threads: 1, kinds: all };
    Report { host: "kinds".into(), rows, kinds: Some(kinds), ..empty() }
}

/// The latency maps of reports beside each other, as `report` shows them.
pub fn latency_maps(reports: &[(String, Report)]) -> String {
    let named: Vec<_> = reports.iter().map(|(name, report)| (name.clone(), &report.latency.map[..])).collect();
    maps::latency_maps(&named).as_ref().map_or_else(String::new, section::drawn)
}
