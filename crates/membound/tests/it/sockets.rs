//! Default runs of large machines, none of which is at hand: the plan of a whole run, simulated by who shares which cache and node.
//! What each thread gets is worked out CPU by CPU, apart from every rule of the plan and of the report. Nothing of it is a measurement.

use std::collections::BTreeMap;
use std::time::Duration;

use anstream::adapter::strip_str;
use membound_analyze::across::verdict::diagnosis::CauseKind;
use membound_analyze::hierarchy::names::Level;
use membound_analyze::of_record as model;
use membound_analyze::output::terminal;
use membound_analyze::report::Report;
use membound_core::case::{Case, Work};
use membound_core::experiments as plan;
use membound_core::machine::Machine;
use membound_core::machine::fact::Fact;
use membound_core::machine::source::Hypervisor;
use membound_core::record::{Clock, Outcome, Record};
use membound_core::units::{Bytes, LINE};
use membound_measure::executor::fake::{Fake, FakeLevel, Noise};
use membound_measure::schedule::{Executor, Quota};

use crate::common::{by_hand, imitation, simulated};

/// What a core gets alone from each cache and from memory, in bytes a second, and what a load takes there.
const OF_A_CORE: [(f64, f64); 4] = [(200e9, 1.6e-9), (80e9, 5e-9), (25e9, 25e-9), (12e9, 110e-9)];
/// Cores that get all that a last-level cache, or a node, can give.
const CORES_TO_FILL: f64 = 0.4;

/// A kind of machine: its packages are alike, and so are their cores, but for small ones.
#[derive(Debug, Clone, Copy)]
struct Shape {
    name: &'static str,
    packages: u32,
    /// Of a package.
    cores: u32,
    /// Threads of a core.
    siblings: u32,
    /// Of a package.
    nodes: u32,
    /// GiB of a node.
    memory: u64,
    /// KiB of each cache, and the cores that share it.
    caches: &'static [(u64, u32)],
    /// Whether the last cache holds what the one before does not.
    is_exclusive: bool,
    /// Cores of another kind, of the only package; the last cache is everybody's.
    small: Option<Small>,
}

/// Cores with one thread each, numbered after all others.
#[derive(Debug, Clone, Copy)]
struct Small {
    cores: u32,
    caches: &'static [(u64, u32)],
    /// What such a core gets, against the others.
    speed: f64,
}

/// What shares a cache: which of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    is_small: bool,
    number: u32,
}

impl Shape {
    /// Those of the usual cores.
    fn usual_cpus(self) -> u32 {
        self.packages * self.cores * self.siblings
    }

    fn cpus(self) -> u32 {
        self.usual_cpus() + self.small.map_or(0, |small| small.cores)
    }

    /// A small core by that CPU, and its number among them.
    fn small(self, cpu: u32) -> Option<(Small, u32)> {
        Some((self.small?, cpu.checked_sub(self.usual_cpus())?))
    }

    /// As Linux numbers them: the first threads of all cores, then the second ones, then small cores.
    fn core(self, cpu: u32) -> u32 {
        self.small(cpu).map_or(cpu % (self.packages * self.cores), |(_, number)| self.cores + number)
    }

    fn caches(self, cpu: u32) -> &'static [(u64, u32)] {
        self.small(cpu).map_or(self.caches, |(small, _)| small.caches)
    }

    fn is_everybodys(self, at: usize) -> bool {
        self.small.is_some() && at + 1 >= self.caches.len()
    }

    /// The cache that this CPU has at that place; its node, beyond all caches.
    fn group(self, cpu: u32, at: usize) -> Group {
        let cores = self.caches(cpu).get(at).map_or(self.cores / self.nodes, |(_, cores)| *cores);
        match self.small(cpu) {
            _ if self.is_everybodys(at) => Group { is_small: false, number: 0 },
            Some((_, number)) => Group { is_small: true, number: number / cores },
            None => Group { is_small: false, number: self.core(cpu) / cores },
        }
    }

    /// The CPUs that share a cache with this one.
    fn cache_sharers(self, cpu: u32, at: usize) -> String {
        let cores = self.caches(cpu)[at].1;
        match self.small(cpu) {
            _ if self.is_everybodys(at) => format!("0-{}", self.cpus() - 1),
            Some((_, number)) => {
                let first = self.usual_cpus() + number / cores * cores;
                format!("{first}-{}", first + cores - 1)
            }
            None => self.sharers(cpu, cores),
        }
    }

    /// The CPUs of as many cores as share something, this one's among them.
    fn sharers(self, cpu: u32, cores: u32) -> String {
        if self.small(cpu).is_some() {
            return cpu.to_string();
        }
        let first = self.core(cpu) / cores * cores;
        let of_thread = |thread: u32| {
            let first = first + thread * self.packages * self.cores;
            format!("{first}-{}", first + cores - 1)
        };
        (0..self.siblings).map(of_thread).collect::<Vec<_>>().join(",")
    }

    fn machine(self) -> Machine {
        let root = by_hand::machine_folder();
        let write = |path: String, text: &str| imitation::file(root.path(), &path, text);
        let nodes = self.packages * self.nodes;
        let memory = u64::from(nodes) * (self.memory << 20);
        write("sys/devices/system/cpu/online".into(), &format!("0-{}", self.cpus() - 1));
        write("sys/devices/system/node/online".into(), &format!("0-{}", nodes - 1));
        write("proc/meminfo".into(), &format!("MemTotal: {memory} kB\nMemAvailable: {} kB\n", memory / 10 * 9));
        for node in 0..nodes {
            let folder = format!("sys/devices/system/node/node{node}");
            let cores = self.cores / self.nodes;
            let all = || format!("0-{}", self.cpus() - 1);
            write(
                format!("{folder}/cpulist"),
                &self.small.map_or_else(|| self.sharers(node * cores, cores), |_| all()),
            );
            let kib = self.memory << 20;
            let meminfo = format!("Node {node} MemTotal: {kib} kB\nNode {node} MemFree: {} kB\n", kib / 10 * 9);
            write(format!("{folder}/meminfo"), &meminfo);
        }
        if let Some(small) = self.small {
            let first = self.usual_cpus();
            write("sys/devices/cpu_core/cpus".into(), &format!("0-{}", first - 1));
            write("sys/devices/cpu_atom/cpus".into(), &format!("{first}-{}", first + small.cores - 1));
        }
        for cpu in 0..self.cpus() {
            let folder = format!("sys/devices/system/cpu/cpu{cpu}");
            let in_package = self.cores + self.small.map_or(0, |small| small.cores);
            let (package, core) = (self.core(cpu) / in_package, self.core(cpu) % in_package);
            let siblings = self.sharers(cpu, 1);
            let facts = [("physical_package_id", package.to_string()), ("core_id", core.to_string())];
            for (name, value) in facts.into_iter().chain([("core_cpus_list", siblings)]) {
                write(format!("{folder}/topology/{name}"), &value);
            }
            for (index, (kib, _)) in self.caches(cpu).iter().enumerate() {
                let kind = if index == 0 { "Data" } else { "Unified" };
                let (level, size) = ((index + 1).to_string(), format!("{kib}K"));
                let sharers = self.cache_sharers(cpu, index);
                let facts = [("level", &*level), ("type", kind), ("size", &*size), ("shared_cpu_list", &*sharers)];
                let alike = [("coherency_line_size", "64"), ("ways_of_associativity", "16")];
                for (name, value) in facts.into_iter().chain(alike) {
                    write(format!("{folder}/cache/index{index}/{name}"), value);
                }
            }
        }
        let mut machine = Machine::read(root.path()).unwrap();
        machine.identity.hypervisor = Fact::Known(Hypervisor::None);
        machine
    }

    /// How many of these CPUs share each cache of that place, and one of them.
    fn groups(self, cpus: &[u32], at: usize) -> BTreeMap<Group, (u64, u32)> {
        let mut groups = BTreeMap::new();
        cpus.iter().for_each(|cpu| groups.entry(self.group(*cpu, at)).or_insert((0, *cpu)).0 += 1);
        groups
    }

    /// The cache that serves threads with working sets of so many bytes each; the number of caches for memory.
    fn serving(self, cpus: &[u32], share: u64) -> usize {
        let holds = |at: usize| {
            let bytes_before = |group: Group| {
                let before = self.groups(cpus, at - 1);
                let within = before.values().filter(|(_, cpu)| self.group(*cpu, at) == group);
                within.map(|(_, cpu)| self.caches(*cpu)[at - 1].0 << 10).sum::<u64>()
            };
            let is_victim = self.is_exclusive && at > 0 && at + 1 == self.caches.len();
            self.groups(cpus, at).into_iter().all(|(group, (threads, cpu))| {
                let own = self.caches(cpu)[at].0 << 10;
                share * threads <= own + if is_victim { bytes_before(group) } else { 0 }
            })
        };
        (0..self.caches.len()).find(|at| holds(*at)).unwrap_or(self.caches.len())
    }

    /// What a core gets from there alone, and what a load takes.
    fn of_a_core(self, at: usize) -> (f64, f64) {
        OF_A_CORE[if at == self.caches.len() { OF_A_CORE.len() - 1 } else { at }]
    }

    /// What all of these threads get from there, in bytes on the bus a second: as many times what the slowest gets, for which the
    /// others wait.
    fn rate(self, cpus: &[u32], at: usize) -> f64 {
        let (of_core, _) = self.of_a_core(at);
        let of_kind = |cpu: u32| of_core * self.small(cpu).map_or(1.0, |(small, _)| small.speed);
        let on_core = |cpu: u32| cpus.iter().filter(|other| self.core(**other) == self.core(cpu)).count() as f64;
        let groups = self.groups(cpus, at);
        let of_thread = |cpu: u32| {
            let cores = self.caches(cpu).get(at).map_or(self.cores / self.nodes, |(_, cores)| *cores);
            let (of_all, cores) = match self.small {
                Some(small) if self.is_everybodys(at) => (of_core, self.cores + small.cores),
                _ => (of_kind(cpu), cores),
            };
            let threads = groups[&self.group(cpu, at)].0 as f64;
            let shared = of_all * (f64::from(cores) * CORES_TO_FILL).max(1.0) / threads;
            (of_kind(cpu) / on_core(cpu)).min(if cores == 1 { f64::INFINITY } else { shared })
        };
        cpus.iter().map(|cpu| of_thread(*cpu)).fold(f64::INFINITY, f64::min) * cpus.len() as f64
    }
}

/// A machine of this shape, as an executor: what a case gets is worked out by the shape, the samples are the usual fake's.
struct Shaped {
    shape: Shape,
    fake: Fake,
}

impl Shaped {
    fn level(&self, case: &Case) -> FakeLevel {
        let bypasses = case.variant().is_some_and(|variant| variant.store.bypasses_caches());
        let share = match &case.work {
            Work::Chase(chase) => chase.places(case.working_set) as u64 * LINE.min(chase.stride_bytes.into()),
            _ => case.share().0,
        };
        let at = if bypasses { self.shape.caches.len() } else { self.shape.serving(&case.cpus, share) };
        let rate = match &case.work {
            // The usual fake takes a load for ten lines in flight.
            Work::Chase(_) => 10.0 * LINE as f64 / self.shape.of_a_core(at).1,
            _ => self.shape.rate(&case.cpus, at) / case.threads() as f64,
        };
        FakeLevel { capacity: Bytes(u64::MAX), bytes_per_s: rate, shared_bytes_per_s: rate * case.threads() as f64 }
    }
}

impl Executor for Shaped {
    fn clock(&self) -> Clock {
        self.fake.clock()
    }

    fn expect(&mut self, cases: &[Case]) {
        self.fake.expect(cases);
    }

    fn visit(&mut self, case: &Case, quota: &Quota<'_>) -> Outcome {
        self.fake.levels = vec![self.level(case)];
        self.fake.visit(case, quota)
    }
}

/// The default run of a minute, of a machine that is told to be another shape than it is: the headline in six rounds, what lies
/// behind it in two.
fn run(machine: &Machine, shape: Shape) -> Record {
    let plan = plan::characterise::characterise(&simulated::frame(machine), Duration::from_secs(60)).unwrap();
    let noise = Noise { sigma: 0.002, ..Noise::default() };
    let mut shaped = Shaped { shape, fake: Fake::new(Vec::new(), noise, 7) };
    let headline: Vec<Case> = plan.headline.iter().map(|(case, _)| case.clone()).collect();
    let behind: Vec<Case> = plan.stages.iter().flatten().filter(|case| !headline.contains(case)).cloned().collect();
    let rounds = [(&headline[..], 6), (&behind[..], 2)];
    simulated::in_rounds(machine, &rounds, &mut shaped)
}

/// The level that stands for this cache, or for memory.
fn level(report: &Report, shape: Shape, at: usize) -> &Level {
    let name = if at == shape.caches.len() { "memory".into() } else { format!("L{}", at + 1) };
    let names = || report.levels.iter().map(|level| level.name.clone()).collect::<Vec<_>>();
    report.levels.iter().find(|level| level.name == name).unwrap_or_else(|| panic!("{}: {:?}", shape.name, names()))
}

/// Two packages of 56 cores, each with more second level than its share of the last one.
const SAPPHIRE_RAPIDS: Shape = Shape {
    name: "2 x Sapphire Rapids",
    packages: 2,
    cores: 56,
    siblings: 2,
    nodes: 1,
    memory: 256,
    caches: &[(48, 1), (2048, 1), (107_520, 56)],
    is_exclusive: true,
    small: None,
};

const ALL: [Shape; 7] = [
    SAPPHIRE_RAPIDS,
    Shape {
        name: "2 x Ice Lake of 18 cores",
        cores: 18,
        memory: 64,
        caches: &[(48, 1), (1280, 1), (39_936, 18)],
        ..SAPPHIRE_RAPIDS
    },
    Shape {
        name: "2 x Skylake",
        cores: 28,
        memory: 96,
        caches: &[(32, 1), (1024, 1), (39_424, 28)],
        ..SAPPHIRE_RAPIDS
    },
    Shape {
        name: "2 x Broadwell",
        cores: 22,
        memory: 64,
        caches: &[(32, 1), (256, 1), (56_320, 22)],
        is_exclusive: false,
        ..SAPPHIRE_RAPIDS
    },
    Shape { name: "2 x Genoa", cores: 96, memory: 384, caches: &[(32, 1), (1024, 1), (32_768, 8)], ..SAPPHIRE_RAPIDS },
    Shape {
        name: "Knights Landing",
        packages: 1,
        cores: 64,
        siblings: 4,
        memory: 96,
        caches: &[(32, 1), (1024, 2)],
        is_exclusive: false,
        ..SAPPHIRE_RAPIDS
    },
    Shape {
        name: "Altra",
        packages: 1,
        cores: 128,
        siblings: 1,
        memory: 256,
        caches: &[(64, 1), (1024, 1), (32_768, 128)],
        ..SAPPHIRE_RAPIDS
    },
];

/// Tables of levels whose figures are not what the shape truly gives there: by one thread and by all.
fn wrong(report: &Report, shape: Shape, may_lack: impl Fn(&Level, usize) -> bool) -> Vec<String> {
    let told = [terminal::overview(report), terminal::chosen(report, &["verdict".into()])].join("\n");
    let told = strip_str(&told).to_string();
    println!("{}\n{told}", shape.name);
    let most = report.rows.iter().map(|row| row.threads()).max().unwrap();
    let mut wrong = Vec::new();
    for at in 0..=shape.caches.len() {
        let level = level(report, shape, at);
        for threads in [1, most] {
            let best = level.best.iter().find(|best| best.kernel == "load" && best.threads == threads);
            let row = best.map(|best| &report.rows[best.row]);
            let speed = row.map(|row| row.payload_bps.unwrap().value() / shape.rate(&row.case.cpus, at));
            if speed.is_some_and(|speed| (speed - 1.0).abs() > 0.03) || speed.is_none() && !may_lack(level, threads) {
                wrong.push(format!("{}, {}, {threads} threads: {speed:?}", shape.name, level.name));
            }
        }
        let ns = level.latency.map(|latency| latency.ns[0] / (shape.of_a_core(at).1 * 1e9));
        if ns.is_none_or(|ns| (ns - 1.0).abs() > 0.05) {
            wrong.push(format!("{}, a load from {}: {ns:?}", shape.name, level.name));
        }
    }
    // Write-allocate first is all that is wrong with these. Where a guest has more cache than it is told, the curve may not say that
    // its largest set is in memory.
    let (gap, causes) = (report.verdict.gap.as_ref().unwrap(), &report.verdict.causes);
    let may_be_cached = |cause: &CauseKind| report.machine.is_virtual() && *cause == CauseKind::InCache;
    let causes: Vec<_> = causes.iter().map(|cause| cause.cause).filter(|cause| !may_be_cached(cause)).collect();
    assert!(gap.threads == most && gap.limit_bps > 1.2 * gap.reached_bps, "{}: {gap:?}", shape.name);
    assert_eq!(causes, [CauseKind::WriteAllocate], "{}", shape.name);
    assert!(told.lines().all(is_narrow), "{}\n{told}", shape.name);
    wrong
}

fn is_narrow(line: &str) -> bool {
    line.chars().count() <= 80
}

/// What is said of each level is what it truly gives: a row is where its data was.
#[test]
fn each_level_of_a_large_machine_is_said_as_it_is() {
    let of = |shape: Shape| {
        let report = model::report(&run(&shape.machine(), shape));
        // All second levels together leave no room in the third of this one.
        wrong(&report, shape, |level, threads| shape.name == "Altra" && level.name == "L3" && threads > 1)
    };
    let all: Vec<String> = ALL.into_iter().flat_map(of).collect();
    assert!(all.is_empty(), "{all:#?}");
}

/// Two kinds of cores: what all get is what the slowest get, each in a cache of its own kind.
#[test]
fn each_level_of_a_hybrid_is_said_as_it_is() {
    let small = Small { cores: 8, caches: &[(32, 1), (2048, 4), (30_720, 8)], speed: 0.6 };
    let alder_lake = Shape {
        name: "Alder Lake",
        packages: 1,
        cores: 8,
        memory: 64,
        caches: &[(48, 1), (1280, 1), (30_720, 8)],
        small: Some(small),
        ..SAPPHIRE_RAPIDS
    };
    let wrong = wrong(&model::report(&run(&alder_lake.machine(), alder_lake)), alder_lake, |_, _| false);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A guest has more last-level caches than it is told of, or fewer, and may not know which of its CPUs share a core. What all of its
/// threads get from the last one is not known then, and not said; all else is as it is.
#[test]
fn each_level_of_a_large_guest_is_said_as_it_is() {
    let genoa =
        Shape { name: "of Genoa", packages: 1, cores: 32, memory: 256, caches: ALL[4].caches, ..SAPPHIRE_RAPIDS };
    let rapids = Shape {
        name: "of Sapphire Rapids",
        packages: 1,
        cores: 48,
        caches: &[(48, 1), (2048, 1), (107_520, 48)],
        ..genoa
    };
    let one_for_all = &[(32, 1), (1024, 1), (32_768, 32)];
    // As QEMU tells where nobody says otherwise.
    let of_qemu = &[(32, 1), (4096, 1), (16_384, 1)];
    let guests = [
        ("AuthenticAMD", genoa, genoa),
        ("AuthenticAMD", genoa, Shape { caches: one_for_all, ..genoa }),
        ("AuthenticAMD", genoa, Shape { cores: 64, siblings: 1, caches: of_qemu, ..genoa }),
        ("GenuineIntel", rapids, rapids),
        (
            "GenuineIntel",
            rapids,
            Shape { cores: 96, siblings: 1, caches: &[(48, 1), (2048, 1), (107_520, 96)], ..rapids },
        ),
        ("GenuineIntel", rapids, Shape { cores: 96, siblings: 1, caches: of_qemu, ..rapids }),
    ];
    let of = |(vendor, is, told): (&str, Shape, Shape)| {
        let mut machine = told.machine();
        machine.identity.hypervisor = Fact::Known(Hypervisor::Unnamed);
        machine.identity.vendor = Fact::Known(vendor.into());
        // Sixteen threads have room in their last cache beyond the second level; all of 64 or 96 have none.
        let has_room = vendor == "AuthenticAMD" && told.caches[2].1 * told.siblings <= 16;
        let may_lack = |level: &Level, threads: usize| !has_room && level.name == "L3" && threads > 1;
        let wrong = wrong(&model::report(&run(&machine, is)), is, may_lack);
        wrong.into_iter().map(|wrong| format!("{:?} {wrong}", told.caches)).collect::<Vec<_>>()
    };
    let all: Vec<String> = guests.into_iter().flat_map(of).collect();
    assert!(all.is_empty(), "{all:#?}");
}
