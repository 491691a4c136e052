//! How near the first-level cache's figures come to what the core's load and store ports allow.
//!
//! `cargo bench --bench ports [-- --rounds N --seconds S --seed N]`
//!
//! One thread, load, store, copy and triad with every width, at several working sets of whole pages for each stream. All
//! are visited in turns, in random order. What counts is bytes in a core clock cycle: the clock comes from a chain of
//! dependent additions that runs right after each sample, so a core that changes its clock does not blur the figures. Samples count
//! whose thread had its core for itself by the probes around them: what a hyperthread sibling leaves is no limit of ports.
//!
//! A kernel's limit follows from those of loads and stores: in `n` elements it loads and stores some bytes, and the
//! slower of the two decides how many cycles that takes at least.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Parser;
use common::{Bench, Visit, print_row, stop};
use membound_core::case::Case;
use membound_core::kernel::catalog::Kernel;
use membound_core::kernel::{Element, StoreKind};
use membound_core::machine::Machine;
use membound_core::record::probes::Undisturbed;
use membound_core::stats;
use membound_core::units::Bytes;

#[derive(Parser)]
struct Options {
    /// Times that each case is visited
    #[arg(long, default_value_t = 7)]
    rounds: u32,
    /// Seconds of one visit
    #[arg(long, default_value_t = 0.05)]
    seconds: f64,
    /// Seed of the order of visits
    #[arg(long)]
    seed: Option<u64>,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

/// Bytes that a core can load and store in a cycle, at the width that moves most.
#[derive(Clone, Copy)]
struct Ports {
    cores: &'static str,
    load: f64,
    store: f64,
    source: &'static str,
}

impl Ports {
    const fn new(cores: &'static str, load: u32, store: u32, source: &'static str) -> Self {
        Ports { cores, load: load as f64, store: store as f64, source }
    }

    /// Payload bytes of `kernel` in a cycle: loads and stores go on beside each other.
    fn limit(self, kernel: &Kernel) -> f64 {
        let traffic = kernel.traffic(StoreKind::Regular, Element::Double);
        let cycles = (traffic.loaded as f64 / self.load).max(traffic.stored as f64 / self.store);
        traffic.payload() as f64 / cycles
    }
}

const HASWELL: Ports = Ports::new(
    "Haswell to Skylake client",
    64,
    32,
    "two 32-byte loads, one 32-byte store: Intel 64 Optimization Reference Manual, Haswell's L1 data cache",
);
const SKYLAKE_SERVER: Ports = Ports::new(
    "Skylake server to Sapphire Rapids",
    128,
    64,
    "two 64-byte loads, one 64-byte store: Intel 64 Optimization Reference Manual, Skylake server's L1 data cache \
     (from Ice Lake on two stores, if both go to one line and are at most 32 bytes wide: still 64 bytes)",
);
const ZEN1: Ports = Ports::new("Zen 1", 32, 16, "two 16-byte loads, one 16-byte store: AMD 55723, load-store unit");
const ZEN2: Ports = Ports::new("Zen 2", 64, 32, "two 32-byte loads, one 32-byte store: AMD 56305, load-store unit");
const ZEN3: Ports = Ports::new("Zen 3", 64, 32, "two 32-byte loads, one 32-byte store: AMD 56665, load-store unit");
const ZEN4: Ports = Ports::new(
    "Zen 4",
    64,
    32,
    "two 32-byte loads or one of 64, one 32-byte store, a 64-byte one takes two cycles: AMD 57647, load-store unit; \
     OSACA's zen4.yml says the same: load_throughput zmm [2, 1D|3D], store_throughput zmm [2, 13], ymm [1, 13]",
);
const ZEN5: Ports = Ports::new("Zen 5", 128, 64, "two 64-byte loads, one 64-byte store: AMD 58455, load-store unit");

/// What is sometimes said of AVX-512 cores in general. Shown beside the sources where they say less.
const CLAIMED: Ports = Ports::new("two 64-byte loads", 128, 64, "said of AVX-512 cores in general");

/// The core of this machine by family and model.
fn ports(machine: &Machine) -> Option<Ports> {
    let signature = machine.identity.signature.known()?;
    let mut numbers = signature.split('/').map(|n| n.parse::<u32>().ok());
    let (family, model) = (numbers.next()??, numbers.next()??);
    match (machine.identity.vendor.known()?.as_str(), family, model) {
        ("AuthenticAMD", 23, ..0x30) => Some(ZEN1),
        ("AuthenticAMD", 23, _) => Some(ZEN2),
        ("AuthenticAMD", 25, 0x10..0x20 | 0x60..0x80 | 0xa0..0xb0) => Some(ZEN4),
        ("AuthenticAMD", 25, _) => Some(ZEN3),
        ("AuthenticAMD", 26, _) => Some(ZEN5),
        // Client cores from Haswell to Comet Lake: Linux, arch/x86/include/asm/intel-family.h.
        (
            "GenuineIntel",
            6,
            0x3c | 0x3f | 0x45 | 0x46 | 0x3d | 0x47 | 0x4f | 0x56 | 0x4e | 0x5e | 0x8e | 0x9e | 0xa5 | 0xa6,
        ) => Some(HASWELL),
        ("GenuineIntel", 6, 0x55 | 0x6a | 0x6c | 0x8f | 0xcf) => Some(SKYLAKE_SERVER),
        _ => None,
    }
}

const KERNELS: [&str; 4] = ["load", "store", "copy", "triad"];

/// A thread that had less of its core shared it.
const WHOLE: f64 = 0.97;

/// A case's figures while nothing else used the core, round by round.
#[derive(Default)]
struct Figures {
    bytes_per_cycle: Vec<Vec<f64>>,
    hz: Vec<f64>,
    /// Samples, those that were disturbed too.
    samples: usize,
}

impl Figures {
    fn of(case: &Case, visits: &[Visit], undisturbed: &Undisturbed) -> Self {
        let mut figures = Figures::default();
        for visit in visits {
            let shares = visit.probes().map_or_else(Vec::new, |probes| probes.shares(&case.cpus, undisturbed));
            figures.samples += shares.len();
            let is_whole = |share: &Option<f64>| share.is_some_and(|share| share >= WHOLE);
            let each = visit.bytes_per_cycle().into_iter().zip(visit.core_clock_hz()).zip(shares);
            let whole = each.filter(|(_, share)| is_whole(share)).map(|(figures, _)| figures);
            let (bytes_per_cycle, hz): (Vec<f64>, Vec<f64>) = whole.unzip();
            figures.hz.extend(hz);
            figures.bytes_per_cycle.extend((!bytes_per_cycle.is_empty()).then_some(bytes_per_cycle));
        }
        figures
    }

    /// Percent of the samples that were not disturbed.
    fn undisturbed(&self) -> f64 {
        self.hz.len() as f64 / self.samples as f64 * 100.0
    }
}

fn main() {
    let options = Options::parse();
    let seed = options.seed.unwrap_or_else(common::fresh_seed);
    let mut bench = Bench::new();
    let ports = ports(&bench.machine);
    introduce(&bench, ports, seed);
    let cases: Vec<Case> = KERNELS.iter().flat_map(|kernel| candidates(&bench, kernel)).collect();
    let figures = measure(&mut bench, &cases, &options, seed);
    heading();
    for kernel in KERNELS {
        show(&bench, kernel, ports, &figures);
    }
    println!(
        "\n* the working set of a default run; alone: samples that shared their core with nobody; % of: that limit"
    );
}

fn introduce(bench: &Bench, ports: Option<Ports>, seed: u64) {
    println!("{}\nseed {seed}", bench.machine.summary());
    match ports {
        Some(ports) => println!("limits of {}: {}", ports.cores, ports.source),
        None => println!("no limits are known for this core: only what was measured is shown"),
    }
    println!("\"claimed\": {}, {}\n", CLAIMED.cores, CLAIMED.source);
}

/// Every width at every working set of whole pages for each stream, from half the first level to seven eighths of it.
fn candidates(bench: &Bench, kernel: &str) -> Vec<Case> {
    let level = bench.frame.caches.first().map_or(Bytes::kib(32), |cache| cache.1);
    let unit = 4096 * common::streams(kernel);
    let sizes = (1..).map(|n| Bytes(n * unit)).take_while(|size| size.0 <= level.0 / 8 * 7);
    let sizes: Vec<Bytes> = sizes.filter(|size| size.0 * 3 >= level.0).collect();
    let cpus = bench.frame.placement.first(1).unwrap_or_else(|fault| stop(fault));
    let case = |width, size| bench.case(kernel, width, StoreKind::Regular, &cpus, size);
    bench
        .frame
        .widths
        .iter()
        .flat_map(|&width| sizes.iter().map(move |&size| (width, size)))
        .map(|(w, s)| case(w, s))
        .collect()
}

fn measure<'a>(bench: &mut Bench, cases: &'a [Case], options: &Options, seed: u64) -> BTreeMap<&'a Case, Figures> {
    bench.expect(cases);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut visits: BTreeMap<&Case, Vec<Visit>> = BTreeMap::new();
    for _ in 0..options.rounds {
        let mut order: Vec<&Case> = cases.iter().collect();
        random.shuffle(&mut order);
        for case in order {
            match bench.visit(case, Duration::from_secs_f64(options.seconds)) {
                Ok(visit) => visits.entry(case).or_default().push(visit),
                Err(reason) => eprintln!("{case}: {reason}"),
            }
        }
    }
    let probed = visits
        .iter()
        .flat_map(|(case, visits)| visits.iter().filter_map(|visit| Some((&case.cpus[..], visit.probes()?))));
    let undisturbed = Undisturbed::of(probed);
    visits.into_iter().map(|(case, visits)| (case, Figures::of(case, &visits, &undisturbed))).collect()
}

fn heading() {
    print_row(&[
        (&"kernel", -6),
        (&"width", -6),
        (&"set", -7),
        (&"B/cycle", 8),
        (&"95 % interval", 16),
        (&"alone %", 7),
        (&"limit", 6),
        (&"% of", 6),
        (&"claimed", 7),
        (&"% of", 6),
        (&"clock", 9),
    ]);
}

/// The best case of each width; the best of all comes first.
fn show(bench: &Bench, kernel: &str, ports: Option<Ports>, figures: &BTreeMap<&Case, Figures>) {
    let Some(row) = Kernel::named(kernel) else { return };
    let default = bench.levels(kernel, 1).first().map(|level| level.1);
    let mut lines: Vec<(&Case, [f64; 3], [f64; 2])> = Vec::new();
    for (case, figures) in figures.iter().filter(|(case, _)| common::variant(case).kernel == kernel) {
        let batches: Vec<&[f64]> = figures.bytes_per_cycle.iter().map(Vec::as_slice).collect();
        let (Some(bytes), Some(clock)) = (stats::summarize(&batches), stats::summarize(&[&figures.hz])) else {
            continue;
        };
        lines.push((case, [bytes.median, bytes.ci95[0], bytes.ci95[1]], [figures.undisturbed(), clock.median]));
    }
    lines.sort_by(|a, b| b.1[0].total_cmp(&a.1[0]));
    let mut widths_seen = Vec::new();
    for (case, [median, low, high], [alone, hz]) in lines {
        let width = common::variant(case).width;
        let usual = default == Some(case.working_set);
        let best = !widths_seen.contains(&width);
        if !best && !usual {
            continue;
        }
        widths_seen.push(width);
        let against = |ports: Ports| {
            let limit = ports.limit(row);
            (format!("{limit:.0}"), format!("{:.1}", median / limit * 100.0))
        };
        let (limit, percent) = ports.map_or(("-".into(), "-".into()), against);
        let (claimed, percent_claimed) = against(CLAIMED);
        print_row(&[
            (&kernel, -6),
            (&width, -6),
            (&format!("{}{}", case.working_set, if usual { "*" } else { "" }), -7),
            (&format!("{median:.2}"), 8),
            (&format!("[{low:.2}, {high:.2}]"), 16),
            (&format!("{alone:.0}"), 7),
            (&limit, 6),
            (&percent, 6),
            (&claimed, 7),
            (&percent_claimed, 6),
            (&format!("{:.3} GHz", hz / 1e9), 9),
        ]);
    }
}
