//! Simulated machines of random parameters, healthy or with one cause planted that keeps memory-bound code from being
//! faster, and records of runs on them. Nothing of it is a measurement.

use membound_core::record::Unit;
use std::collections::HashMap;

use membound_analyze::across::verdict::diagnosis::CauseKind;
use membound_core::case::{Case, steady};
use membound_core::kernel::catalog::Kernel;
use membound_core::kernel::{StoreKind, Width};
use membound_core::machine::Machine;
use membound_core::machine::cpus::Frequency;
use membound_core::machine::cpuset::CpuSet;
use membound_core::machine::fact::Fact;
use membound_core::machine::firmware::Dimm;
use membound_core::machine::limits::CpuTimeLimit;
use membound_core::machine::source::Hypervisor;
use membound_core::memory::located::NodePages;
use membound_core::memory::{MemoryKind, MemorySpec, Obtained};
use membound_core::record::{End, Environment, Measured, Measurement, Record, Sample, Samples, Volume};
use membound_core::units::{Bytes, Hertz};

use super::imitation;

const LINKS: u64 = 20_000;
const CPU: &str = "sys/devices/system/cpu";
const NODE: &str = "sys/devices/system/node";
/// Of each node's last-level cache.
const LLC: Bytes = Bytes::mib(32);
/// The core clock that the machine should have at least, which is also that of its time stamp counter, and the one that it
/// has when nothing is wrong.
const CLOCK_HZ: [f64; 2] = [2.5e9, 3.2e9];

/// Nodes, cores of a node, hardware threads of a core.
pub type Shape = (u32, u32, u32);

/// Machines by their shape: made once, since each takes some hundred files.
#[derive(Default)]
pub struct Machines(HashMap<Shape, Machine>);

impl Machines {
    /// The machine of a shape, with nothing to complain about.
    pub fn of(&mut self, shape: Shape) -> Machine {
        self.0.entry(shape).or_insert_with(|| machine(shape)).clone()
    }
}

/// CPU numbers: all first hardware threads, node by node, then all second ones.
fn machine((nodes, cores, ways): Shape) -> Machine {
    let all = nodes * cores;
    let mut files: Vec<(String, String)> = [
        ("proc/cpuinfo", "flags\t: fpu sse2\n".to_string()),
        ("proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 60000000 kB\n".into()),
        ("proc/sys/kernel/numa_balancing", "0\n".into()),
        ("proc/sys/vm/zone_reclaim_mode", "0\n".into()),
        ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n".into()),
        ("sys/devices/system/cpu/online", list(0..all * ways)),
    ]
    .map(|(path, text)| (path.into(), text))
    .into();
    let cpus_of = |node: u32| -> String {
        let threads = (0..ways).map(|way| list(way * all + node * cores..way * all + (node + 1) * cores));
        threads.collect::<Vec<_>>().join(",")
    };
    for cpu in 0..all * ways {
        let (core, node) = (cpu % all, cpu % all / cores);
        let siblings = (0..ways).map(|way| (way * all + core).to_string()).collect::<Vec<_>>().join(",");
        let mut file = |path: &str, text: &str| files.push((format!("{CPU}/cpu{cpu}/{path}"), format!("{text}\n")));
        file("topology/physical_package_id", &node.to_string());
        file("topology/core_id", &core.to_string());
        file("topology/thread_siblings_list", &siblings);
        file("topology/core_cpus_list", &siblings);
        for (index, level, size, shared) in
            [(0, 1, "32K", siblings.clone()), (2, 2, "1024K", siblings.clone()), (3, 3, "32768K", cpus_of(node))]
        {
            file(&format!("cache/index{index}/level"), &level.to_string());
            file(&format!("cache/index{index}/type"), if level == 1 { "Data" } else { "Unified" });
            file(&format!("cache/index{index}/size"), size);
            file(&format!("cache/index{index}/coherency_line_size"), "64");
            file(&format!("cache/index{index}/shared_cpu_list"), &shared);
        }
    }
    for node in 0..nodes {
        files.push((format!("{NODE}/node{node}/cpulist"), format!("{}\n", cpus_of(node))));
        let line = |name: &str, gib: u64| format!("Node {node} {name}: {} kB\n", gib << 20);
        let meminfo = line("MemTotal", 16) + &line("MemFree", 10) + &line("FilePages", 4);
        files.push((format!("{NODE}/node{node}/meminfo"), meminfo));
    }
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    imitation::machine(&files)
}

fn list(range: std::ops::Range<u32>) -> String {
    format!("{}-{}", range.start, range.end - 1)
}

/// A machine, what is wrong with it, and how samples scatter.
pub struct Simulated {
    random: fastrand::Rng,
    shape: Shape,
    pub machine: Machine,
    pub cause: Option<CauseKind>,
    /// Whether regular stores read their lines first.
    pub allocates: bool,
    sigma: f64,
    /// Bytes a second of one thread on the bus, and of a node.
    thread_bps: f64,
    node_bps: f64,
    /// How much of the cause there is, 0 to 1.
    strength: f64,
    /// Which of its forms the cause takes.
    form: u32,
    /// Threads of the plain case: CPUs.
    cpus: Vec<u32>,
    clock_hz: f64,
}

impl Simulated {
    /// The machine of a seed, with a cause or none.
    pub fn new(machines: &mut Machines, cause: Option<CauseKind>, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let several_nodes = [CauseKind::WrongNode, CauseKind::PageCache, CauseKind::NumaBalancing];
        let least_nodes = if cause.is_some_and(|cause| several_nodes.contains(&cause)) { 1 } else { 0 };
        let nodes = [1, 2, 3, 4][random.usize(least_nodes..4)];
        let several_cores = [CauseKind::FewCores, CauseKind::CpuTime, CauseKind::Smt, CauseKind::SharedCore];
        let least_cores = if cause.is_some_and(|cause| several_cores.contains(&cause)) { 2 } else { 0 };
        let cores = [1, 2, 4, 8][random.usize(least_cores..4)];
        let ways = if cause == Some(CauseKind::Smt) { 2 } else { random.u32(1..3) };
        let shape = (nodes, cores, ways);
        let thread_bps = between(&mut random, 8e9, 20e9);
        let part = between(&mut random, 0.3, 0.9);
        let mut simulated = Simulated {
            machine: machines.of(shape),
            shape,
            cause,
            allocates: cause == Some(CauseKind::WriteAllocate) || cause.is_some() && random.bool(),
            sigma: between(&mut random, 0.005, 0.03),
            thread_bps,
            node_bps: (part * thread_bps * f64::from(cores)).max(thread_bps),
            strength: random.f64(),
            form: random.u32(0..6),
            cpus: (0..nodes * cores * ways).collect(),
            clock_hz: CLOCK_HZ[1] * between(&mut random, 0.9, 1.1),
            random,
        };
        simulated.furnish();
        simulated.plant();
        simulated
    }

    /// What differs among healthy machines.
    fn furnish(&mut self) {
        let is_virtual = self.random.bool();
        let name = if is_virtual { Hypervisor::Vendor("KVMKVMKVM".into()) } else { Hypervisor::None };
        self.machine.identity.hypervisor = Fact::Known(name);
        let governor = if self.random.bool() { "powersave" } else { "performance" };
        if !is_virtual {
            self.machine.settings.governors = Fact::Known(vec![governor.into()]);
            let known = |hz| Fact::Known(Hertz(hz));
            let frequency = Frequency {
                min: known(8e8),
                max: known(3.6e9),
                hardware_max: known(3.6e9),
                base: known(CLOCK_HZ[0]),
                governor: Fact::Known(governor.into()),
            };
            self.machine.cpus.iter_mut().for_each(|cpu| cpu.frequency = Fact::Known(frequency.clone()));
            // Two slots to a channel, one or both of them filled.
            let slots = 4 * self.shape.0 as usize;
            let filled = if self.random.bool() { slots } else { slots / 2 };
            let peak = self.node_bps * f64::from(self.shape.0) * between(&mut self.random, 1.1, 1.5);
            self.fit(slots, filled, peak / filled as f64);
        }
        // Balancing that finds nothing to do, and a limit that leaves enough.
        self.machine.settings.numa_balancing = Fact::Known(self.random.u32(0..2));
        if self.random.bool() {
            let cpus = self.cpus.len() as f64;
            self.machine.limits.cpu_time = Fact::Known(vec![CpuTimeLimit { group: "/job".into(), cpus }]);
        }
    }

    fn fit(&mut self, slots: usize, filled: usize, bps: f64) {
        fn unknown<T>() -> Fact<T> {
            Fact::absent("simulated")
        }
        let slot = |n: usize| Dimm {
            slot: unknown(),
            size: if n < filled { Fact::Known(Bytes::gib(16)) } else { unknown() },
            technology: unknown(),
            rated_mt_s: unknown(),
            configured_mt_s: Fact::Known((bps / 8e6) as u32),
            data_width_bits: Fact::Known(64),
            total_width_bits: unknown(),
            ranks: unknown(),
            manufacturer: unknown(),
            part_number: unknown(),
        };
        self.machine.dimms = Fact::Known((0..slots).map(slot).collect());
        // Those of a guest are made up.
        self.machine.identity.hypervisor = Fact::Known(Hypervisor::None);
    }

    /// What of a cause shows in the machine itself; the rest is in `truth`, `cases` and `sample`.
    fn plant(&mut self) {
        let (nodes, cores, _) = self.shape;
        match self.cause {
            // Half of the nodes, or half of the cores of one node that is far from saturated.
            Some(CauseKind::FewCores) => {
                if nodes > 1 {
                    self.cpus = (0..nodes / 2 * cores).collect();
                } else {
                    self.node_bps = self.thread_bps * f64::from(cores);
                    self.machine.dimms = Fact::absent("simulated");
                    self.cpus = (0..cores / 2).collect();
                }
            }
            Some(CauseKind::FewChannels) => match self.form {
                0..3 => self.fit(16, self.form as usize + 4, self.node_bps * f64::from(nodes) / 3.0),
                3..5 => {
                    self.fit(8, 8, self.node_bps * f64::from(nodes) / 6.0);
                    let Fact::Known(dimms) = &mut self.machine.dimms else { return };
                    dimms[self.form as usize].size = Fact::Known(Bytes::gib(32));
                }
                _ if nodes > 1 => self.machine.nodes[1].total = Fact::Known(Bytes::gib(8)),
                _ => self.fit(12, 5, self.node_bps / 3.0),
            },
            Some(CauseKind::PageCache) => {
                self.machine.nodes[0].free = Fact::Known(Bytes::gib(1));
                self.machine.nodes[0].page_cache = Fact::Known(Bytes::gib(14));
            }
            Some(CauseKind::PageSize) if self.form == 0 => self.machine.settings.thp = Fact::Known("never".into()),
            Some(CauseKind::NumaBalancing) => self.machine.settings.numa_balancing = Fact::Known(1),
            Some(CauseKind::Clock) => self.clock_hz = CLOCK_HZ[0] * (0.35 + 0.45 * self.strength),
            Some(CauseKind::Emulated) => self.clock_hz = CLOCK_HZ[0] * (0.02 + 0.15 * self.strength),
            Some(CauseKind::CpuTime) => {
                let cpus = (self.cpus.len() as f64 * (0.2 + 0.5 * self.strength)).max(0.5);
                self.machine.limits.cpu_time = Fact::Known(vec![CpuTimeLimit { group: "/job".into(), cpus }]);
            }
            // A peak that is exceeded.
            Some(CauseKind::InCache) if self.form < 2 => self.fit(4, 4, self.node_bps / 16.0),
            Some(CauseKind::InCache | CauseKind::MemoryType) => {
                self.machine.dimms = Fact::absent("simulated");
            }
            _ => {}
        }
    }

    /// Working set of so many threads in memory, as the machine claims its caches.
    fn memory_size(&self, threads: usize) -> Bytes {
        let times = if self.cause == Some(CauseKind::InCache) && self.form >= 4 { 1 } else { 4 };
        Bytes(times * LLC.0 * threads as u64)
    }

    /// What a run measures: the curve of loads, and the main kernels by one thread, some and all.
    fn cases(&self) -> Vec<Case> {
        let usual = MemorySpec::of(match self.cause {
            Some(CauseKind::MemoryType) if self.form < 3 => MemoryKind::Bar,
            Some(CauseKind::PageSize) if self.form >= 2 => MemoryKind::Base,
            _ => MemoryKind::Thp,
        });
        let regular = |kernel: &str, memory, cpus: &[u32], size| {
            steady(kernel, Width::W512, StoreKind::Regular, memory, cpus.into(), size)
        };
        let mut cases = Vec::new();
        let steps = match self.cause {
            Some(CauseKind::InCache) if self.form >= 4 => 28,
            _ => 33,
        };
        for step in 0..steps {
            let size = (4096.0 * 2f64.powf(f64::from(step) / 2.0) / 1024.0).round() as u64 * 1024;
            cases.push(regular("load", usual, &self.cpus[..1], Bytes(size)));
        }
        for size in [Bytes::kib(16), Bytes::kib(24), Bytes::kib(512)] {
            cases.extend(["copy", "triad"].map(|kernel| regular(kernel, usual, &self.cpus[..1], size)));
        }
        let (nodes, cores, _) = self.shape;
        let all = self.cpus.len();
        let mut counts = vec![1, all / 2, all];
        counts.extend((all > (nodes * cores) as usize).then_some((nodes * cores) as usize));
        counts.retain(|count| *count > 0);
        counts.sort_unstable();
        counts.dedup();
        for &count in &counts {
            let (cpus, size) = (&self.cpus[..count], self.memory_size(count));
            cases.push(regular("triad", usual, cpus, size));
            if count == 1 || count == all {
                cases.extend(["load", "copy", "store"].map(|kernel| regular(kernel, usual, cpus, size)));
                cases.extend(
                    ["triad", "copy", "store"]
                        .map(|kernel| steady(kernel, Width::W512, StoreKind::Nt, usual, cpus.into(), size)),
                );
            }
        }
        // All threads, each in caches of its own.
        if all > 1 && (self.cause == Some(CauseKind::SharedCore) || self.cause.is_none()) {
            for size in [8u64, 16, 128, 256].map(|kib| Bytes::kib(kib * all as u64)) {
                cases.extend(["load", "copy", "triad"].map(|kernel| regular(kernel, usual, &self.cpus[..], size)));
            }
        }
        let (cpus, size) = (&self.cpus[..], self.memory_size(all));
        let is = |cause| self.cause == Some(cause);
        if self.cause.is_none() && self.form < 2 {
            cases.push(regular("triad", MemorySpec::of(MemoryKind::Base), cpus, size));
        }
        if is(CauseKind::PageSize) && self.form >= 1 {
            cases.push(regular("triad", MemorySpec::of(MemoryKind::Huge2M), cpus, size));
        }
        if self.cause.is_none() && self.form > 2 {
            cases.push(Case { misaligned_bytes: 8, ..regular("triad", usual, cpus, size) });
        }
        cases.sort_unstable();
        cases.dedup();
        cases
    }

    /// Payload bytes a second of a case, by the memory system alone.
    fn truth(&self, case: &Case) -> f64 {
        let threads = case.threads() as f64;
        let share = case.working_set.0 as f64 / threads;
        // A hypervisor that does not tell how much cache there is.
        let hidden = self.cause == Some(CauseKind::InCache) && (2..4).contains(&self.form);
        let last = if hidden { 150e6 } else { LLC.0 as f64 };
        let around = case.variant().is_some_and(|variant| variant.store == StoreKind::Nt);
        let clock = self.clock_hz / CLOCK_HZ[1];
        let (nodes, cores, _) = self.shape;
        let (mut touched, mut busy) = (vec![0u32; nodes as usize], Vec::new());
        for cpu in &case.cpus {
            let core = cpu % (nodes * cores);
            if !busy.contains(&core) {
                busy.push(core);
                touched[(core / cores) as usize] += 1;
            }
        }
        let memory = || {
            let of_node = |cores: &u32| (f64::from(*cores) * self.thread_bps).min(self.node_bps);
            touched.iter().map(of_node).sum::<f64>()
        };
        let cached = |bps: f64| bps * busy.len() as f64 * clock;
        let is_in_memory = around || share > last;
        let mut bus = match share {
            _ if is_in_memory => memory(),
            share if share > 1e6 => cached(40e9),
            share if share > 32768.0 => cached(120e9),
            _ => cached(300e9),
        };
        if self.cause == Some(CauseKind::MemoryType) {
            bus = bus.min((0.05 + 0.5 * self.strength) * 1e9 * busy.len() as f64);
        }
        if self.cause == Some(CauseKind::Emulated) {
            bus = bus.min((0.3 + 0.5 * self.strength) * 1e9 * busy.len() as f64);
        }
        let volume = volume(case);
        let allocates = self.allocates && !around;
        let moved = if allocates { volume.bus() } else { volume.payload() };
        bus * volume.payload() as f64 / moved as f64 * if is_in_memory { self.factor(case) } else { 1.0 }
    }

    /// What the cause leaves of the speed in memory.
    fn factor(&self, case: &Case) -> f64 {
        let lost = 0.08 + 0.4 * self.strength;
        let (nodes, cores, _) = self.shape;
        let is_hit = match self.cause {
            Some(CauseKind::PageSize) => match self.form {
                0 | 1 => case.memory.kind != MemoryKind::Huge2M,
                _ => case.memory.kind == MemoryKind::Base,
            },
            Some(CauseKind::WrongNode | CauseKind::PageCache) => case.threads() > cores as usize,
            Some(CauseKind::Smt) => case.threads() > (nodes * cores) as usize,
            Some(CauseKind::Clock) => true,
            _ => false,
        };
        if is_hit { 1.0 - lost } else { 1.0 }
    }

    /// Where the pages of a case are found, by node.
    fn pages(&self, case: &Case) -> Vec<NodePages> {
        let (nodes, cores, _) = self.shape;
        let threads = case.threads() as f64;
        let on = |node: u32| case.cpus.iter().filter(|cpu| **cpu % (nodes * cores) / cores == node).count() as f64;
        let strays = matches!(self.cause, Some(CauseKind::WrongNode | CauseKind::PageCache));
        // All on the node of the thread that touched them first; or from the node that is full to the next.
        let (from, to) = if self.cause == Some(CauseKind::PageCache) { (Some(0), 1) } else { (None, 0) };
        let moved = |node: u32| {
            let leaves = strays && node != to && from.is_none_or(|from| from == node);
            if leaves { on(node) / threads * (0.4 + 0.6 * self.strength) } else { 0.0 }
        };
        let all: f64 = (0..nodes).map(moved).sum();
        let share = |node: u32| on(node) / threads - moved(node) + if node == to { all } else { 0.0 };
        let found = (0..nodes).map(|node| NodePages { node, pages: (share(node) * 10_000.0).round() as u64 });
        found.filter(|found| found.pages > 0).collect()
    }

    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.random.f64()).sum::<f64>() - 6.0
    }

    /// Seconds of a sample that takes so long when nothing disturbs it, and page faults during it.
    fn sample(&mut self, seconds: f64, is_in_memory: bool) -> (f64, u32) {
        let mut seconds = seconds * (self.normal() * self.sigma).exp();
        let mut faults = 0;
        // Now and then a timer, a softer interrupt: every machine has them.
        if self.random.f64() < 0.01 {
            seconds *= 1.5;
        }
        match self.cause {
            Some(CauseKind::TimeTaken) if self.form < 4 => {
                let (rate, each) = (8_000.0 + 12_000.0 * self.strength, 7e-6);
                let mut left = rate * seconds;
                while left > 0.0 {
                    seconds += if self.random.f64() < left.min(1.0) { each } else { 0.0 };
                    left -= 1.0;
                }
            }
            Some(CauseKind::Neighbour) if is_in_memory => {
                let busy = 0.55 + 0.25 * self.strength;
                seconds *= if self.random.f64() < busy { 1.5 } else { 1.0 };
            }
            Some(CauseKind::NumaBalancing) if is_in_memory && self.random.f64() < 0.4 + 0.4 * self.strength => {
                seconds *= 1.3;
                faults = 50;
            }
            _ => {}
        }
        (seconds, faults)
    }

    fn visit(&mut self, case: &Case, round: u32) -> Measurement {
        let (volume, truth) = (volume(case), self.truth(case));
        let pass = volume.payload() as f64 / truth;
        let target = if case.threads() == 1 { 10e-6 } else { 200e-6 };
        let repetitions = (target / pass).ceil().max(1.0) as u64;
        let is_in_memory = case.working_set.0 / case.threads() as u64 >= LLC.0;
        let mut drift = (self.normal() * self.sigma / 3.0).exp();
        // The state of a host outlasts a visit.
        let is_shared = self.cause == Some(CauseKind::SharedCore) && case.threads() > 1;
        if is_shared && self.random.f64() < 0.2 + 0.3 * self.strength {
            drift *= if is_in_memory { 1.02 } else { 2.0 };
        }
        let mut samples = Samples::default();
        for _ in 0..21 {
            let (seconds, faults) = self.sample(pass * repetitions as f64 * drift, is_in_memory);
            let ticks = (seconds * CLOCK_HZ[0]).max(1.0) as u64;
            let chain = (LINKS as f64 / self.clock_hz * CLOCK_HZ[0]) as u64;
            samples.push(Sample { ticks, core_clock_ticks: chain, faults, ..Sample::default() });
        }
        let huge = match case.memory.kind {
            MemoryKind::Base | MemoryKind::Bar => Bytes(0),
            MemoryKind::Thp if self.cause == Some(CauseKind::PageSize) && self.form < 2 => Bytes(0),
            _ => case.working_set,
        };
        let obtained = Obtained {
            bytes: case.working_set,
            huge_bytes: Some(huge),
            pages_on_node: self.pages(case),
            ..Obtained::default()
        };
        let measured = Measured { volume, repetitions, core_clock_links: LINKS, samples, obtained };
        Measurement::new(case.clone(), round, measured)
    }

    /// The record of a whole run.
    pub fn record(&mut self) -> Record {
        let cases = self.cases();
        let mut visits = Vec::new();
        for round in 0..3 {
            visits.extend(cases.iter().map(|case| self.visit(case, round)).collect::<Vec<_>>());
        }
        let mut record = imitation::record(self.machine.clone(), visits);
        let wall_s = 30.0;
        let stolen = match self.cause {
            Some(CauseKind::TimeTaken) if self.form >= 4 => 0.03 + 0.2 * self.strength,
            _ => 0.001,
        };
        let state = |share: f64| Environment {
            steal_s: Some(7.0 + share * wall_s * self.machine.online_cpus().len() as f64),
            ..Environment::default()
        };
        record.header.before = state(0.0);
        record.header.clock.hz = Hertz(CLOCK_HZ[0]);
        let planned = cases.len() as u64;
        record.end =
            Some(End { wall_s, interrupted: false, overran: false, planned, peak_memory: None, after: state(stolen) });
        record
    }

    /// The CPUs of the plain case.
    pub fn used(&self) -> CpuSet {
        self.cpus.iter().copied().collect()
    }
}

fn between(random: &mut fastrand::Rng, low: f64, high: f64) -> f64 {
    low + (high - low) * random.f64()
}

/// What a repetition of a kernel moves.
pub fn volume(case: &Case) -> Volume {
    let variant = case.variant().unwrap();
    let row = Kernel::named(&variant.kernel).unwrap();
    let traffic = row.traffic(variant.store, variant.element);
    let elements = case.working_set.0 / variant.element.bytes() / row.formula().streams.len() as u64;
    Volume {
        units: elements,
        unit: Unit::Element,
        loaded: elements * traffic.loaded,
        stored: elements * traffic.stored,
        write_allocated: elements * traffic.write_allocated,
        flops: 0,
    }
}
