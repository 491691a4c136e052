//! The rules, one function a cause. Each reads the report alone and says nothing where the report does not show its cause:
//! a setting that had no effect here is a warning, not a cause.

use membound_core::in_order::InOrder;
use std::collections::BTreeSet;

use crate::across::numa::rows::NumaRow;
use crate::across::shared_cores::{SHARED, share_cores};
use crate::across::traffic::{part_added, pooled};
use crate::across::verdict::diagnosis::CauseKind;
use crate::across::verdict::scene::{Found, GivesBack, Scene, memory_rows, peak, rate, steady_rows};
use crate::across::warnings::{base_clock, full_nodes, stolen, uneven};
use crate::experiments::bandwidth::rows::BandwidthRow;
use crate::experiments::bandwidth::stores::bound;
use crate::flag::Flag;
use crate::quality::{huge_share, is_thp};
use crate::rate::Rate;
use crate::wording::times;
use membound_core::machine::Machine;
use membound_core::machine::cpuset::CpuSet;
use membound_core::machine::firmware::Dimm;
use membound_core::memory::MemoryKind;
use membound_core::stats::compare;
use membound_core::stats::quantiles::median;
use membound_core::units::{Bytes, BytesPerSecond, Hertz, counted, percent, significant};

/// Thresholds: shares of one, or ratios.
mod threshold {
    /// A way that is faster by less than this, or within the intervals, gains nothing.
    pub const FASTER: f64 = 1.05;
    /// nt stores that gain less than this, at the interval's low end, save no write-allocate worth a thought.
    pub const WRITE_ALLOCATE: f64 = 1.03;
    /// Share of what the bytes saved allow that nt stores gain over all kernels, at the interval's low end.
    pub const POOLED: f64 = 0.15;
    /// Share of what one more thread would add alone that it must still add, for memory not to be saturated.
    pub const STILL_RISING: f64 = 0.5;
    /// Share of pages on other nodes: less is the end of a stream, rounded to pages.
    pub const STRAY_PAGES: f64 = 0.05;
    /// A core clock below this share of the one expected is no throttling: an add takes many cycles of the host.
    pub const EMULATED: f64 = 0.25;
    /// Share of time taken by others. A timer of 1000 Hz takes some 0.3 %, noise of 5 % a sixth of a percent.
    pub const TIME_TAKEN: f64 = 0.03;
    /// How many rows of one thread in its caches must tell of time taken.
    pub const ROWS: usize = 4;
    /// The share of CPU time that a hypervisor says it took.
    pub const STEAL: f64 = 0.02;
    /// The fast tenth of the samples against their median. Noise of 3 % alone gives 4 %.
    pub const UNSTEADY: f64 = 1.1;
    /// Caches of which a program gets no more than this much over memory are none.
    pub const CACHED: f64 = 2.0;
    /// And no cache loads less than this, bytes a second by one thread.
    pub const CACHE_BPS: f64 = 4e9;
    /// What a cache holds where none is told of.
    pub const ANY_CACHE: u64 = 32 << 10;
    /// What the last doubling of the working set costs where the curve has reached memory.
    pub const FLAT: f64 = 0.8;
    /// Share of the rows in memory that page faults must have disturbed.
    pub const FAULTS: f64 = 0.5;
    /// More than the peak by this is no measuring error.
    pub const ABOVE_PEAK: f64 = 1.05;
}

/// What helps, in the words of every view that names a cause.
pub(crate) mod cure {
    #![allow(missing_docs)] // Each is the cure of the cause that it is named after.
    pub const CHANNELS: &str = "fit a module to each channel (dmidecode -t memory lists the slots)";
    pub const UNEVEN: &str = crate::across::warnings::EVEN_MODULES;
    pub const HUGE_PAGES_OFF: &str = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, and madvise(MADV_HUGEPAGE); or a pool of huge pages";
    pub const HUGE_PAGES: &str =
        "ask for huge pages: madvise(MADV_HUGEPAGE) on aligned memory, or a pool of them (vm.nr_hugepages)";
    pub const WRONG_NODE: &str =
        "let each thread touch its pages first, or bind them (numactl --localalloc, --membind)";
    pub const PAGE_CACHE: &str =
        "sync; echo 1 > /proc/sys/vm/drop_caches (as root) before the job, or membound sweep as anybody";
    pub const GOVERNOR: &str =
        "cpupower frequency-set -g performance; if that does not help, look for heat or a power limit (turbostat)";
    pub const CLOCK: &str =
        "look for heat, a power limit or a cap on the clock: turbostat, cpupower frequency-info, dmesg";
    pub const NUMA_BALANCING: &str = "sysctl kernel.numa_balancing=0, and pin threads and memory";
    const TIME_OF_GUEST: &str = "ask for dedicated cores, or for a host that interrupts its guests less (timers, interrupts); repeat when it is quiet";
    const SHARED_CORE: &str = "ask the host for whole cores (no two virtual CPUs of a guest on one core: pinned vCPUs, core scheduling), or repeat when it is quiet";
    const CORE_NEIGHBOUR: &str = "ask the host to leave the other hyperthread of each core idle (whole cores, core scheduling, a dedicated host, or SMT off), or repeat when it is quiet";
    const TIME: &str = "keep other work and interrupts off these cores (isolcpus, irqbalance, systemd slices)";
    pub const NEIGHBOUR: &str = "repeat when others are quiet, or take the machine alone; pqos -m all shows who uses memory where that is allowed";

    /// Others take time from cores: of a guest the host does.
    pub fn time(is_virtual: bool) -> &'static str {
        if is_virtual { TIME_OF_GUEST } else { TIME }
    }

    /// Threads have less than a core each, because of each other or of others.
    pub fn shared_core(is_virtual: bool, are_others: bool) -> &'static str {
        match (is_virtual, are_others) {
            (false, _) => TIME,
            (true, false) => SHARED_CORE,
            (true, true) => CORE_NEIGHBOUR,
        }
    }
}

type Rule = fn(&Scene<'_>) -> Option<Found>;

/// Causes and how they are found.
pub(crate) const RULES: &[(CauseKind, Rule)] = &[
    (CauseKind::InCache, in_cache),
    (CauseKind::Emulated, emulated),
    (CauseKind::CpuTime, cpu_time),
    (CauseKind::MemoryType, memory_type),
    (CauseKind::FewCores, few_cores),
    (CauseKind::FewChannels, few_channels),
    (CauseKind::WriteAllocate, write_allocate),
    (CauseKind::PageSize, page_size),
    (CauseKind::WrongNode, wrong_node),
    (CauseKind::PageCache, page_cache),
    (CauseKind::Clock, clock),
    (CauseKind::Smt, smt),
    (CauseKind::NumaBalancing, numa_balancing),
    (CauseKind::SharedCore, shared_core),
    (CauseKind::CoreNeighbour, core_neighbour),
    (CauseKind::TimeTaken, time_taken),
    (CauseKind::Neighbour, neighbour),
];

fn found(evidence: String, gives_back: GivesBack, cure: impl Into<String>, test: impl Into<String>) -> Option<Found> {
    Some(Found { evidence, gives_back, cure: cure.into(), test: test.into() })
}

fn gbps(bps: f64) -> BytesPerSecond {
    BytesPerSecond(bps)
}

/// How much faster a row is than another, disturbed or not: [ratio, low, high]. Both were visited in turns, so it stays sure where few
/// visits of either were undisturbed, and figures are not.
fn by_rounds(fast: &BandwidthRow, slow: &BandwidthRow) -> [f64; 3] {
    let [fast, slow] = [fast, slow].map(|row| row.batches.iter().map(Vec::as_slice).collect::<Vec<_>>());
    compare::ratio(&fast, &slow)
}

/// Whether `fast` is faster by more than the intervals and by enough to matter.
fn is_faster(fast: &BandwidthRow, slow: &BandwidthRow) -> bool {
    let [times, low, _] = by_rounds(fast, slow);
    low > 1.0 && times > threshold::FASTER
}

/// The fastest row in memory that `is_wanted` takes.
fn best<'a>(scene: &Scene<'a>, is_wanted: impl Fn(&BandwidthRow) -> bool) -> Option<&'a BandwidthRow> {
    memory_rows(scene.report).filter(|row| is_wanted(row)).max_by(|a, b| rate(a).total_cmp(&rate(b)))
}

/// The same kernel and store kind over the same elements.
fn is_alike(row: &BandwidthRow, plain: &BandwidthRow) -> bool {
    (row.kernel(), row.store(), row.element(), row.load())
        == (plain.kernel(), plain.store(), plain.element(), plain.load())
}

fn is_same_place(row: &BandwidthRow, plain: &BandwidthRow) -> bool {
    row.case.cpus == plain.case.cpus && row.case.memory.policy == plain.case.memory.policy
}

/// One thread's loads of the plain memory over rising working sets, at the fastest width. A single visit may have met anything: the
/// curve ends where there were more, if there were more anywhere.
fn load_curve(scene: &Scene<'_>) -> Vec<(Bytes, Rate)> {
    let is_ours = |row: &&BandwidthRow| {
        row.kernel() == "load"
            && row.threads() == 1
            && row.case.memory.kind == scene.plain.case.memory.kind
            && row.case.misaligned_bytes == 0
    };
    let mut points: Vec<(Bytes, Rate)> = Vec::new();
    let ours = || steady_rows(scene.report).filter(is_ours);
    let enough = ours().map(|row| row.quality.rounds).max().unwrap_or(0).min(2);
    let last = ours().filter(|row| row.quality.rounds >= enough).map(|row| row.case.working_set).max();
    for row in ours().filter(|row| Some(row.case.working_set) <= last) {
        let Some(rate) = row.payload_bps else { continue };
        match points.iter_mut().find(|point| point.0 == row.case.working_set) {
            Some(point) if point.1.value() < rate.value() => point.1 = rate,
            Some(_) => {}
            None => points.push((row.case.working_set, rate)),
        }
    }
    points.order_by_key(|point| point.0);
    points
}

/// What the last caches of all threads hold by the curve of one thread's loads, where that goes on into memory.
fn seen_caches(scene: &Scene<'_>) -> Option<Bytes> {
    let levels = &scene.report.levels.all;
    let memory = levels.iter().position(|level| level.name == "memory")?;
    let last = levels[..memory].last()?.capacity?;
    Some(Bytes(last.0.saturating_mul(scene.plain.threads() as u64)))
}

/// The payload is more than memory can move, the curve still falls at its end, or the working set is less than four times
/// the caches. Bytes on the bus are no proof: where write-allocates are evaded, fewer cross it than are counted.
fn in_cache(scene: &Scene<'_>) -> Option<Found> {
    let plain = scene.plain;
    let curve = load_curve(scene);
    let last = curve.last().copied();
    // What lies farther below may be in a cache where the largest is not.
    let is_next = |point: &Bytes, last: Bytes| (last.0 / 4..=last.0 / 2).contains(&point.0);
    let before = last.and_then(|last| curve.iter().rfind(|point| is_next(&point.0, last.0))).copied();
    let machine = &scene.report.machine;
    let caches = machine.last_level_most(&plain.case.cpus);
    // Of a cache whose end the curve shows, programs get so much and no more, whatever the machine tells.
    let caches = caches.map(|told| told.min(seen_caches(scene).unwrap_or(told)));
    let is_small = |caches: &Bytes| plain.case.working_set.0 / 4 < caches.0;
    let falls = |last: Rate, before: Rate| last.ends()[1] < threshold::FLAT * before.ends()[0];
    let evidence = if let Some((peak, whose)) =
        peak(scene.report, plain).filter(|peak| rate(plain) > threshold::ABOVE_PEAK * peak.0)
    {
        format!("{} of payload, more than the {} that memory can move by {whose}", gbps(rate(plain)), gbps(peak))
    } else if let (Some(last), Some(before)) = (last, before)
        && falls(last.1, before.1)
    {
        let [slow, fast] = [last.1, before.1].map(|rate| gbps(rate.value()));
        format!("loads still fall at the largest working set: {fast} at {}, {slow} at {}", before.0, last.0)
    } else if let Some(caches) = caches.filter(is_small) {
        format!("the largest working set, {}, is less than four times the caches of {caches}", plain.case.working_set)
    } else {
        return None;
    };
    let most = plain.case.working_set.0.max(last.map_or(0, |last| last.0.0));
    let size = Bytes(most.saturating_mul(4)).to_string().replace(' ', "");
    let (kernel, threads) =
        (plain.kernel(), if plain.threads() == 1 { "1".into() } else { format!("1,{}", plain.threads()) });
    let cure =
        format!("give larger working sets (--size {size}); a virtual machine may have more cache than it is told");
    let test = format!("membound bandwidth --kernel load,{kernel} --threads {threads} --size {size}");
    found(evidence, GivesBack::Unknown, cure, test)
}

/// Median core clock of all rows, the clock that it should have at least, whose that is, and the ratio below which it is low.
fn core_clock(scene: &Scene<'_>) -> Option<(f64, f64, &'static str, f64)> {
    let report = scene.report;
    let clock = median(steady_rows(report).filter_map(|row| row.core_clock_hz))?;
    let (expected, whose, least) = base_clock(&report.machine, &report.clock, *scene.plain.case.cpus.first()?)?;
    Some((clock, expected.0, whose, least))
}

fn emulated(scene: &Scene<'_>) -> Option<Found> {
    let (clock, expected, whose, _) = core_clock(scene)?;
    let evidence = format!(
        "an add takes as long as on a core of {}, {} of the {whose} of {}",
        Hertz(clock),
        percent(clock / expected),
        Hertz(expected)
    );
    let cure = "run on the processor itself, or in a virtual machine with hardware support (KVM, not TCG)";
    (clock < threshold::EMULATED * expected).then(|| found(evidence, GivesBack::Unknown, cure, "membound machine"))?
}

fn cpu_time(scene: &Scene<'_>) -> Option<Found> {
    let limits = scene.report.machine.limits.cpu_time.known()?;
    let least = limits.iter().min_by(|a, b| a.cpus.total_cmp(&b.cpus))?;
    let threads = scene.plain.threads() as f64;
    let evidence = format!(
        "control group {} may have the time of {} CPUs, and {threads} threads ran: it is stopped for the rest of the time",
        least.group,
        significant(least.cpus)
    );
    let whole = (least.cpus.floor() as usize).max(1);
    let cure = format!("raise cpu.max of the group, or use {}", counted(whole as u64, "thread"));
    let test = format!("membound bandwidth --kernel {} --threads {whole},{threads}", scene.plain.kernel());
    let back = GivesBack::Estimated(scene.gap.reached_bps * (threads / least.cpus - 1.0));
    (least.cpus < threads).then(|| found(evidence, back, cure, test))?
}

/// Memory that is not cached: because it is a device's, or as its curve shows.
fn memory_type(scene: &Scene<'_>) -> Option<Found> {
    use MemoryKind::{Bar, BarWc, DmaHeapUncached};
    let plain = scene.plain;
    let curve = load_curve(scene);
    let (first, last) = (curve.first().copied(), curve.last().copied());
    let is_device = matches!(plain.case.memory.kind, Bar | BarWc | DmaHeapUncached);
    // What no cache would hold anyway says nothing.
    let last_level = plain.case.cpus.first().and_then(|cpu| scene.report.machine.last_level(*cpu)?.size.into());
    let would_fit = |size: Bytes| size.0 <= last_level.map_or(threshold::ANY_CACHE, |cache: Bytes| cache.0 / 2);
    let flat = first.zip(last).filter(|(first, last)| {
        let [slow, usual] = [first.1.value(), last.1.value()];
        let is_flat = slow < threshold::CACHED * usual && slow < threshold::CACHE_BPS;
        curve.len() >= threshold::ROWS && is_flat && would_fit(first.0)
    });
    let evidence = match flat {
        Some((first, last)) => format!(
            "one thread loads {} from {} and {} from {}: nothing of it is cached",
            gbps(first.1.value()),
            first.0,
            gbps(last.1.value()),
            last.0
        ),
        None if is_device => {
            format!("the memory is of the kind {}, which the processor does not cache", plain.case.memory.kind)
        }
        None => return None,
    };
    // An emulated processor is slow everywhere.
    let is_emulated = emulated(scene).is_some();
    let usual = best(scene, |row| {
        is_alike(row, plain) && row.case.cpus == plain.case.cpus && row.case.memory.kind == MemoryKind::Thp
    });
    let usual = usual.filter(|usual| is_device && is_faster(usual, plain));
    let back = usual.map_or(GivesBack::Unknown, |usual| GivesBack::Measured(rate(usual) - rate(plain)));
    let cure =
        "map it write-back, or copy to cached memory first and work there; write with nt stores, read with nt loads";
    (!is_emulated).then(|| found(evidence, back, cure, "membound kinds"))?
}

/// CPUs of cores of which no hardware thread was used.
fn idle_cores(machine: &Machine, used: &CpuSet) -> Vec<u32> {
    let online = machine.online_cpus();
    let idle = machine.cores().into_iter().filter(|core| core.intersection(used).is_empty());
    idle.filter_map(|core| core.intersection(&online).first()).collect()
}

/// Sets of CPUs that have memory, or a link to it, of their own, and whether these are nodes, or else last-level caches that cores share. A
/// cache of one core is no domain, and neither is a cluster of cores that lack the level which others have.
fn domains(machine: &Machine) -> (Vec<CpuSet>, bool) {
    let online = machine.online_cpus();
    let of_nodes = machine.nodes_with_memory().filter(|node| node.has_cpus()).filter_map(|node| node.cpus.known());
    let nodes: Vec<CpuSet> = of_nodes.map(|cpus| cpus.intersection(&online)).filter(|cpus| !cpus.is_empty()).collect();
    if nodes.len() > 1 {
        return (nodes, true);
    }
    let last_levels = || online.iter().filter_map(|cpu| machine.last_level(cpu));
    let level = last_levels().map(|cache| cache.level).max();
    let own_level = last_levels().filter(|cache| Some(cache.level) == level);
    let mut caches: BTreeSet<CpuSet> = own_level.map(|cache| cache.cpus.intersection(&online)).collect();
    let cores = machine.cores();
    let count = |cpus: &CpuSet| cores.iter().filter(|core| !core.intersection(cpus).is_empty()).count();
    caches.retain(|cpus| count(cpus) > 1);
    (caches.into_iter().collect(), false)
}

/// Cores left idle while each one more still adds, or domains left idle that have memory or a link of their own.
fn few_cores(scene: &Scene<'_>) -> Option<Found> {
    let (machine, plain) = (&scene.report.machine, scene.plain);
    let used: CpuSet = plain.case.cpus.iter().copied().collect();
    let idle = idle_cores(machine, &used);
    if idle.is_empty() {
        return None;
    }
    let busy = machine.cores().len() - idle.len();
    let (domains, are_nodes) = domains(machine);
    let touched = domains.iter().filter(|cpus| !cpus.intersection(&used).is_empty()).count();
    let reached = scene.gap.reached_bps;
    let rising = still_rising(scene);
    let (evidence, back) = if touched > 0 && touched < domains.len() {
        let what = if are_nodes { "nodes" } else { "last-level caches" };
        let evidence =
            format!("{busy} of {} cores ran, on {touched} of {} {what}", machine.cores().len(), domains.len());
        // Nodes have memory of their own; what caches share may be saturated by one of them.
        let per_node = GivesBack::Estimated(reached * (domains.len() - touched) as f64 / touched as f64);
        (evidence, if are_nodes { per_node } else { GivesBack::Unknown })
    } else if let Some((from, to, share)) = rising.filter(|rising| rising.2 > threshold::STILL_RISING) {
        let evidence = format!(
            "{busy} of {} cores ran, and from {from} to {to} threads each one more still added {} of its part",
            machine.cores().len(),
            percent(share)
        );
        (evidence, GivesBack::Estimated(reached * share * idle.len() as f64 / busy as f64))
    } else if plain.threads() == 1 && rising.is_none() {
        (format!("one thread ran on a machine of {} cores", machine.cores().len()), GivesBack::Unknown)
    } else {
        return None;
    };
    let usable = machine.usable_cpus();
    let (allowed, all) = (idle.iter().all(|cpu| usable.contains(*cpu)), machine.online_cpus());
    let cure = if allowed {
        format!("use the idle cores too, a thread on each: CPUs {}", idle.iter().copied().collect::<CpuSet>())
    } else {
        format!("ask for all of CPUs {all} (cpuset, taskset or the job's allocation)")
    };
    let threads = plain.threads() + idle.len();
    let test = format!("membound bandwidth --kernel {} --threads {},{threads}", plain.kernel(), plain.threads());
    found(evidence, back, cure, test)
}

/// The last step of the plain case over threads: from, to, and the share of its part that each one more still added.
fn still_rising(scene: &Scene<'_>) -> Option<(usize, usize, f64)> {
    let plain = scene.plain;
    let is_fewer = |row: &&BandwidthRow| {
        is_alike(row, plain) && row.case.memory == plain.case.memory && row.threads() < plain.threads()
    };
    let most = memory_rows(scene.report).filter(is_fewer).map(|row| row.threads()).max()?;
    let before = rate(best(scene, |row| is_fewer(&row) && row.threads() == most)?);
    let (threads, times) = (plain.threads() as f64 / most as f64, rate(plain) / before);
    Some((most, plain.threads(), part_added(threads, times)))
}

/// Boards have one or two slots to a channel, so fewer modules than half of the slots leave channels empty. Modules of
/// several sizes, and nodes of several sizes, leave a part of memory to fewer channels.
fn few_channels(scene: &Scene<'_>) -> Option<Found> {
    let machine = &scene.report.machine;
    let test = "membound numa";
    if let (Some(modules), Some(slots)) = (machine.modules(), machine.module_slots()) {
        let sizes: Vec<Bytes> = modules.iter().filter_map(|module| module.size.get()).collect();
        let filled = sizes.len();
        let told = scene.report.limits.channels;
        let is_soldered = |module: &&Dimm| module.technology.known().is_some_and(|name| name.starts_with("LPDDR"));
        let guessed = if modules.iter().any(is_soldered) { 0 } else { slots / 2 };
        let channels = told.unwrap_or(guessed);
        if filled > 0 && filled < channels {
            let empty = counted(channels - filled, "channel");
            let evidence = match told {
                Some(_) => format!("{filled} modules for {channels} channels leave {empty} empty"),
                None => format!(
                    "{filled} of {slots} slots are filled; with two slots to a channel that leaves {empty} empty"
                ),
            };
            let back = GivesBack::Estimated(scene.gap.reached_bps * (channels as f64 / filled as f64 - 1.0));
            return found(evidence, back, cure::CHANNELS, test);
        }
        let distinct: BTreeSet<Bytes> = sizes.iter().copied().collect();
        if let (Some(least), Some(most), true) = (distinct.first(), distinct.last(), distinct.len() > 1) {
            let evidence =
                format!("modules of {least} to {most}: beyond the size of the smallest, fewer channels take turns");
            return found(evidence, GivesBack::Unknown, cure::UNEVEN, test);
        }
    }
    let (evidence, _) = uneven(machine)?;
    found(evidence, GivesBack::Unknown, "fit memory alike on all nodes", test)
}

/// By the plain case's own kernel where its interval says so, else by all kernels together, which know more.
fn write_allocate(scene: &Scene<'_>) -> Option<Found> {
    let (report, plain) = (scene.report, scene.plain);
    let threads = plain.threads();
    let of_kernel = |kernel: &str| {
        report.write_allocate.iter().find(|w| w.kernel == kernel && w.threads == threads && w.bound > 1.0)
    };
    let alone = [plain.kernel(), "copy", "store"].into_iter().find_map(of_kernel);
    let alone =
        alone.and_then(|case| Some((case, by_rounds(report.rows.get(case.nt)?, report.rows.get(case.regular)?))));
    let alone = alone.filter(|(_, [_, low, _])| *low > threshold::WRITE_ALLOCATE);
    let pooled = pooled(&report.rows, &report.machine, threads).filter(|all| all.share[1] > threshold::POOLED);
    let cure = "write arrays that are not read again soon with nt stores (_mm_stream_pd; #pragma vector nontemporal, -qopt-streaming-stores)";
    let test = |kernel: &str| format!("membound stores --kernel {kernel} --threads {threads}");
    if let Some((case, gain)) = alone {
        let evidence = format!(
            "disturbed or not, the {} runs {} as fast with nt stores; the bytes that they save explain {}",
            case.kernel,
            times(gain),
            significant(case.bound)
        );
        // Of another kernel, as far as it goes by the bytes.
        let as_bytes = bound(plain.kernel()).ln() / case.bound.ln();
        let back = scene.gap.reached_bps * (gain[0].powf(as_bytes) - 1.0).max(0.0);
        let is_own = case.kernel == plain.kernel();
        let back = if is_own { GivesBack::Measured(back) } else { GivesBack::Estimated(back) };
        return found(evidence, back, cure, test(&case.kernel));
    }
    let all = pooled?;
    let [share, low, high] = all.share.map(significant);
    let evidence = format!(
        "nt stores gain {share} [{low}, {high}] of what the bytes saved allow (in logarithms), over {} pairs of {} kernels",
        all.pairs, all.kernels
    );
    let back = scene.gap.reached_bps * (bound(plain.kernel()).powf(all.share[0]) - 1.0);
    found(evidence, GivesBack::Estimated(back), cure, test(plain.kernel()))
}

/// Threads that have less than their core, as probes beside samples tell: what it costs kernels in memory was measured, or nothing
/// is said to be given back. Here the run's own threads are on one core.
fn shared_core(scene: &Scene<'_>) -> Option<Found> {
    less_than_a_core(scene, false)
}

/// The same where others are on the cores.
fn core_neighbour(scene: &Scene<'_>) -> Option<Found> {
    less_than_a_core(scene, true)
}

fn less_than_a_core(scene: &Scene<'_>, are_others: bool) -> Option<Found> {
    let (plain, shared, states) = (scene.plain, &scene.report.shared_cores, scene.report.host_states.as_ref());
    if plain.threads() < 2 || shared.are_of_others(states) != are_others {
        return None;
    }
    let is_probed = shared.are_seen();
    let slowed = |what: &str, [ratio, low, high]: [f64; 3]| {
        let [ratio, low, high] = [ratio, low, high].map(percent);
        format!("{what} then run at {ratio} [{low}, {high}] of their speed")
    };
    let is_sure = |ratio: &[f64; 3]| ratio[2] < 1.0;
    let mut evidence = Vec::new();
    evidence.extend(is_probed.then(|| {
        let share = percent(shared.share());
        let alone = shared
            .share_alone()
            .map_or(String::new(), |alone| format!(" and {} of those of one thread alone", percent(alone)));
        format!("beside {share} of the samples of several threads{alone}, a probe got less than its core")
    }));
    evidence.extend(
        states
            .filter(|states| are_others && shared.are_apart(states))
            .map(|states| format!("the CPUs were far apart in {} of the visits", percent(1.0 - states.close_share()))),
    );
    let (back, told) = match (is_probed, shared.in_memory) {
        (true, Some(ratio)) => {
            let lost = shared.share() * (1.0 - ratio[0]);
            evidence.push(slowed("kernels in memory", ratio));
            (GivesBack::Estimated(scene.gap.reached_bps * lost / (1.0 - lost)), is_sure(&ratio))
        }
        _ => {
            let in_caches = shared.in_caches.filter(|ratio| is_probed && is_sure(ratio));
            let told = in_caches.map(|ratio| slowed("kernels in L1 and L2", ratio));
            let told = told.or_else(|| halved(scene, shared.are_probed()));
            evidence.extend(told.clone());
            (GivesBack::Unknown, told.is_some())
        }
    };
    let test = format!("membound bandwidth --kernel load --size 16KiB --threads 1,{} --samples 1000", plain.threads());
    let cure = cure::shared_core(scene.report.machine.is_virtual(), are_others);
    told.then(|| found(evidence.join("; "), back, cure, test))?
}

/// Visits of several threads to caches of their own that run at about half their case's speed, while those of one thread do not.
fn halved(scene: &Scene<'_>, are_probed: bool) -> Option<String> {
    const HALF: std::ops::Range<f64> = 0.4..0.65;
    let slow = |is_ours: &dyn Fn(usize) -> bool| {
        let (mut all, mut slow) = (0, Vec::new());
        let own = steady_rows(scene.report).filter(|row| is_ours(row.threads()) && !row.writes_zeros());
        for row in own.filter(|row| matches!(row.level.as_deref(), Some("L1" | "L2"))) {
            let visits: Vec<f64> = row.batches.iter().filter_map(|batch| median(batch.iter().copied())).collect();
            let best = visits.iter().copied().fold(0.0, f64::max);
            all += visits.len();
            slow.extend(visits.into_iter().map(|rate| rate / best).filter(|ratio| HALF.contains(ratio)));
        }
        (all, slow)
    };
    let (all, halved) = slow(&|threads| threads > 1);
    let (all_alone, alone) = slow(&|threads| threads == 1);
    let (share, share_alone) = (halved.len() as f64 / all.max(1) as f64, alone.len() as f64 / all_alone.max(1) as f64);
    if halved.len() < threshold::ROWS || share <= SHARED || share <= 3.0 * share_alone {
        return None;
    }
    let ratio = median(halved.iter().copied())?;
    let (halved, alone, lost) = (halved.len(), alone.len(), share * (1.0 - ratio));
    let seen = format!(
        "{halved} of {all} visits of several threads to their caches ran at {} of their case's speed, {alone} of {all_alone} of one \
         thread",
        percent(ratio)
    );
    // Probes tell how often a core is shared, and the fastest visit of a case may be a shared one.
    let so = format!(": CPUs share a core {} of the time, which costs {} in the caches", percent(share), percent(lost));
    Some(if are_probed { seen } else { seen + &so })
}

/// Of a plain case in base pages: because it was asked for those, or was refused huge ones.
fn page_size(scene: &Scene<'_>) -> Option<Found> {
    use MemoryKind::{Base, Huge1G, Huge2M, Thp};
    let plain = scene.plain;
    let share = |row: &BandwidthRow| huge_share(row.obtained.as_ref()?);
    let is_refused =
        |row: &BandwidthRow| row.case.memory.kind == Thp && row.obtained.as_ref().and_then(is_thp) == Some(false);
    if plain.case.memory.kind != Base && !is_refused(plain) {
        return None;
    }
    let twin = |row: &BandwidthRow| {
        is_alike(row, plain) && is_same_place(row, plain) && row.case.misaligned_bytes == plain.case.misaligned_bytes
    };
    let huge =
        best(scene, |row| twin(row) && matches!(row.case.memory.kind, Thp | Huge2M | Huge1G) && !is_refused(row));
    let is_off = scene.report.machine.settings.thp.known().is_some_and(|mode| mode == "never");
    let (evidence, back) = match huge {
        Some(huge) if is_faster(huge, plain) => {
            let kind = huge.case.memory.kind;
            let evidence = format!("{} in huge pages ({kind}), {} in base pages", gbps(rate(huge)), gbps(rate(plain)));
            (evidence, GivesBack::Measured(rate(huge) - rate(plain)))
        }
        None if is_refused(plain) => {
            let share = percent(share(plain).unwrap_or(0.0));
            let why = if is_off { "; the kernel's setting is never" } else { "" };
            (format!("huge pages were asked for, {share} of the memory is made of them{why}"), GivesBack::Unknown)
        }
        _ => return None,
    };
    let cure = if is_off { cure::HUGE_PAGES_OFF } else { cure::HUGE_PAGES };
    let test =
        format!("membound bandwidth --kernel {} --memory 4k,thp,huge-2m --threads {}", plain.kernel(), plain.threads());
    found(evidence, back, cure, test)
}

/// At least so large a share of a row's pages lies on other nodes than the threads that use them, and the node that has
/// most of them: each node should have as much of the pages as of the threads (all threads have as much to do), or where
/// nodes were named, the pages should be there. What one node has too much, others lack.
fn strays(row: &BandwidthRow, machine: &Machine) -> Option<(f64, u32)> {
    let pages = &row.obtained.as_ref()?.pages_on_node;
    let all = pages.iter().map(|found| found.pages).sum::<u64>().max(1) as f64;
    let nodes: Vec<u32> = row.case.cpus.iter().map(|cpu| machine.cpu(*cpu)?.node.get()).collect::<Option<_>>()?;
    let has_memory = |id: &u32| machine.nodes_with_memory().any(|node| node.id == *id);
    let (is_first_touch, named) = (row.case.memory.policy.is_first_touch(), row.case.memory.policy.nodes());
    if is_first_touch && !nodes.iter().all(has_memory) {
        return None;
    }
    let excess = |node: u32, pages: u64| {
        let found = pages as f64 / all;
        match is_first_touch {
            true => found - nodes.iter().filter(|home| **home == node).count() as f64 / nodes.len() as f64,
            false => {
                if named.iter().any(|named| named == node) {
                    0.0
                } else {
                    found
                }
            }
        }
    };
    let excesses = pages.iter().map(|found| (excess(found.node, found.pages).max(0.0), found.node));
    let most = excesses.clone().max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some((excesses.map(|excess| excess.0).sum(), most.1))
}

/// Pages of the plain case that lie elsewhere: their share, of which node most, and what they cost.
fn stray_pages(scene: &Scene<'_>) -> Option<(f64, u32, GivesBack)> {
    let (plain, machine) = (scene.plain, &scene.report.machine);
    let (share, node) = strays(plain, machine).filter(|stray| stray.0 > threshold::STRAY_PAGES)?;
    // The same kernel with its pages where they belong; else by how much slower the matrix has that node.
    let at_home = |row: &BandwidthRow| strays(row, machine).is_none_or(|stray| stray.0 <= threshold::STRAY_PAGES);
    let bound = best(scene, |row| is_alike(row, plain) && row.case.cpus == plain.case.cpus && at_home(row));
    let back = match bound.filter(|bound| is_faster(bound, plain)) {
        Some(bound) => GivesBack::Measured(rate(bound) - rate(plain)),
        None => slowdown(scene, node)
            .map_or(GivesBack::Unknown, |times| GivesBack::Estimated(rate(plain) * share * (times - 1.0))),
    };
    Some((share, node, back))
}

/// How many times as fast a domain has its own node as `node`: the median over ways and domains.
fn slowdown(scene: &Scene<'_>, node: u32) -> Option<f64> {
    let numa = scene.report.numa.as_ref()?;
    let bandwidth = |row: &&NumaRow| row.payload_bps.is_some() && row.quality.is_measured();
    let far = numa.rows.iter().filter(bandwidth).filter(|row| row.node() == node);
    let times = far.filter_map(|far| {
        let home = numa.initiators.iter().find(|initiator| initiator.name == far.initiator)?.node?;
        let is_near = |near: &&NumaRow| {
            (&near.initiator, near.way, near.cores(), near.node()) == (&far.initiator, far.way, far.cores(), home)
        };
        let near = numa.rows.iter().filter(bandwidth).find(is_near)?;
        (home != node).then_some(near.payload_bps?.value() / far.payload_bps?.value())
    });
    median(times).map(|times| times.max(1.0))
}

fn wrong_node(scene: &Scene<'_>) -> Option<Found> {
    // Where page cache drives them there, that is the cause.
    if !full_nodes(&scene.report.machine).is_empty() {
        return None;
    }
    let (share, node, back) = stray_pages(scene)?;
    let evidence = format!(
        "{} of the pages lie on other nodes than the threads that use them, most on node {node}",
        percent(share)
    );
    let cure = cure::WRONG_NODE;
    found(evidence, back, cure, "membound numa")
}

/// Measured beside files of rising size; or pages that lie elsewhere while page cache fills a node.
fn page_cache(scene: &Scene<'_>) -> Option<Found> {
    let report = scene.report;
    let test = "membound numa --page-cache";
    let cure = cure::PAGE_CACHE;
    let worst =
        report.page_cache.curves.iter().filter_map(|curve| report.page_cache.rows.get(curve.worst?)).find_map(|row| {
            let [ratio, _, high] = row.against_no_file?;
            (high < 1.0).then_some((row, ratio))
        });
    if let Some((row, ratio)) = worst {
        let evidence = format!(
            "beside a file of {} the {} runs at {} of its speed",
            row.work().file,
            row.work().variant.kernel,
            percent(ratio)
        );
        // The plain case did not run beside that file.
        return found(evidence, GivesBack::Unknown, cure, test);
    }
    let full = full_nodes(&report.machine);
    let node = full.first()?;
    let (share, elsewhere, back) = stray_pages(scene)?;
    let evidence = format!(
        "page cache fills node {}, and {} of the pages lie on other nodes, most on node {elsewhere}",
        node.id,
        percent(share)
    );
    found(evidence, back, cure, test)
}

fn clock(scene: &Scene<'_>) -> Option<Found> {
    let (clock, expected, whose, least) = core_clock(scene)?;
    let ratio = clock / expected;
    if !(threshold::EMULATED..least).contains(&ratio) {
        return None;
    }
    let governors = scene.report.machine.settings.governors.known();
    let governor = governors.and_then(|all| all.iter().find(|governor| governor.as_str() != "performance"));
    let set = governor.map_or(String::new(), |governor| format!("; the governor is {governor}"));
    let evidence =
        format!("cores ran at {}, {} of the {whose} of {}{set}", Hertz(clock), percent(ratio), Hertz(expected));
    let cure = match governor {
        Some(_) => cure::GOVERNOR,
        None => cure::CLOCK,
    };
    // At the most: memory does not run by the core clock.
    let back = GivesBack::Estimated(scene.gap.reached_bps * (1.0 / ratio - 1.0));
    let test = format!("membound bandwidth --kernel {} --threads {}", scene.plain.kernel(), scene.plain.threads());
    found(evidence, back, cure, test)
}

fn smt(scene: &Scene<'_>) -> Option<Found> {
    let (machine, plain) = (&scene.report.machine, scene.plain);
    if !share_cores(machine, &plain.case.cpus) {
        return None;
    }
    let apart = best(scene, |row| {
        is_alike(row, plain) && row.case.memory == plain.case.memory && !share_cores(machine, &row.case.cpus)
    })?;
    let evidence = format!(
        "{} with {} threads, one per core; {} with {} threads",
        gbps(rate(apart)),
        apart.threads(),
        gbps(rate(plain)),
        plain.threads()
    );
    let cpus: CpuSet = apart.case.cpus.iter().copied().collect();
    let cure =
        format!("use one hardware thread a core: OMP_PLACES=cores OMP_NUM_THREADS={}, or CPUs {cpus}", apart.threads());
    let test =
        format!("membound bandwidth --kernel {} --threads {},{}", plain.kernel(), apart.threads(), plain.threads());
    let back = GivesBack::Measured(rate(apart) - rate(plain));
    is_faster(apart, plain).then(|| found(evidence, back, cure, test))?
}

/// The fast tenth of a row's samples against their median.
fn fast_tenth(row: &BandwidthRow) -> Option<f64> {
    crate::visits::fast_tenth(&row.batches.concat())
}

/// The setting alone does nothing; page faults in memory that was long there are its work.
fn numa_balancing(scene: &Scene<'_>) -> Option<Found> {
    let machine = &scene.report.machine;
    let (mode, nodes) = (machine.settings.numa_balancing.get()?, machine.nodes_with_memory().count());
    let rows: Vec<&BandwidthRow> = memory_rows(scene.report).collect();
    let hit = rows.iter().filter(|row| row.quality.has(Flag::Faults)).count();
    let share = hit as f64 / rows.len().max(1) as f64;
    let evidence = format!(
        "kernel.numa_balancing is {mode} on {nodes} nodes, and page faults disturbed {hit} of {} cases in memory that was long \
         touched",
        rows.len()
    );
    let back = fast_tenth(scene.plain)
        .map_or(GivesBack::Unknown, |times| GivesBack::Estimated(scene.gap.reached_bps * (times - 1.0)));
    let test = format!("membound bandwidth --kernel {} --threads {}", scene.plain.kernel(), scene.plain.threads());
    (mode > 0 && nodes > 1 && share >= threshold::FAULTS).then(|| found(evidence, back, cure::NUMA_BALANCING, test))?
}

/// The share of time that others took, by the short samples of one thread in its caches: an interruption lengthens the few
/// samples that it hits, so that the mean duration is longer than the median by the time taken. Within visits: what differs from
/// visit to visit is the clock, or another state of the host. Median over rows, so that a single long one does not decide.
fn taken(scene: &Scene<'_>) -> Option<(f64, usize)> {
    let is_ours = |row: &&BandwidthRow| row.threads() == 1 && matches!(row.level.as_deref(), Some("L1" | "L2"));
    let of_row = |row: &BandwidthRow| {
        let (mut spent, mut undisturbed) = (0.0, 0.0);
        for visit in &row.batches {
            let durations = || visit.iter().map(|bps| 1.0 / bps);
            spent += durations().sum::<f64>();
            undisturbed += median(durations()).unwrap_or(0.0) * visit.len() as f64;
        }
        (spent > 0.0).then_some(1.0 - undisturbed / spent)
    };
    let shares: Vec<f64> = steady_rows(scene.report).filter(is_ours).filter_map(of_row).collect();
    let count = shares.len();
    (count >= threshold::ROWS).then_some((median(shares)?, count))
}

fn time_taken(scene: &Scene<'_>) -> Option<Found> {
    let taken = taken(scene).filter(|taken| taken.0 > threshold::TIME_TAKEN);
    let report = scene.report;
    let stolen = report.end.as_ref().and_then(|end| stolen(&report.before, end, &report.machine));
    let stolen = stolen.map(|(_, share)| share).filter(|share| *share > threshold::STEAL);
    let mut evidence = Vec::new();
    evidence.extend(taken.map(|(share, rows)| {
        format!("others took {} of the time, by the short samples of {rows} cases in the caches", percent(share))
    }));
    evidence.extend(stolen.map(|share| format!("the hypervisor says that it took {} of all CPU time", percent(share))));
    let share = taken.map_or(0.0, |taken| taken.0).max(stolen.unwrap_or(0.0)).min(0.9);
    let cure = cure::time(scene.report.machine.is_virtual());
    let back = GivesBack::Estimated(scene.gap.reached_bps * share / (1.0 - share));
    let test = "membound bandwidth --kernel load --size 16KiB --threads 1 --samples 1000";
    (!evidence.is_empty()).then(|| found(evidence.join("; "), back, cure, test))?
}

/// Memory whose speed comes and goes while the caches' does not: somebody else uses it.
fn neighbour(scene: &Scene<'_>) -> Option<Found> {
    let report = scene.report;
    let spread = |rows: &mut dyn Iterator<Item = &BandwidthRow>| median(rows.filter_map(fast_tenth));
    let memory = spread(&mut memory_rows(report).filter(|row| row.threads() == scene.plain.threads()))?;
    let caches = spread(&mut steady_rows(report).filter(|row| matches!(row.level.as_deref(), Some("L1" | "L2"))))?;
    let plain = fast_tenth(scene.plain)?;
    // What moves the caches as well is the core's clock or time.
    let is_memory_alone = memory > threshold::UNSTEADY && caches - 1.0 < (memory - 1.0) / 2.0;
    // Balancing moves pages, and so does what it finds.
    let is_balanced = numa_balancing(scene).is_some();
    let evidence = format!(
        "in memory the fast tenth of the samples is {} above the median, in the caches {}",
        percent(memory - 1.0),
        percent(caches - 1.0)
    );
    let cure = cure::NEIGHBOUR;
    let test = format!(
        "membound bandwidth --kernel {} --threads {} --samples 200",
        scene.plain.kernel(),
        scene.plain.threads()
    );
    let back = GivesBack::Estimated(scene.gap.reached_bps * (plain - 1.0).max(0.0));
    (is_memory_alone && !is_balanced).then(|| found(evidence, back, cure, test))?
}
