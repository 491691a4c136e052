//! Simulated fleets at the level of figures: 200 cells a node, healthy nodes that differ by 1 %, planted faults. Nothing of it is a
//! measurement.
#![allow(dead_code)] // Each test file uses its part.

use std::sync::Arc;

use membound_analyze::across::fleet::cells::{Backing, Cell, Kind};
use membound_analyze::across::fleet::nodes::{Facts, Figure, Fleet, Hardware, Node};
use membound_analyze::across::verdict::diagnosis::CauseKind;
use membound_core::stats::states::Better;
use membound_core::units::Bytes;

/// How healthy nodes differ. All have a relative standard deviation of 1 % in each cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Noise {
    /// Normal, each cell for itself.
    Normal,
    /// Student's t of four degrees of freedom, each cell for itself.
    Heavy,
    /// Of that 1 %, 0.2 % are the node's as a whole and 0.25 % those of each of its levels; normal.
    Shared,
    /// The same with Student's t of four degrees of freedom in each cell.
    SharedHeavy,
}

pub const NOISES: [Noise; 4] = [Noise::Normal, Noise::Heavy, Noise::Shared, Noise::SharedHeavy];

/// What is wrong with a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Channel,
    Clock,
    HugePages,
    PageCache,
    Neighbour,
}

pub const FAULTS: [Fault; 5] = [Fault::Channel, Fault::Clock, Fault::HugePages, Fault::PageCache, Fault::Neighbour];

impl Fault {
    pub fn cause(self) -> CauseKind {
        match self {
            Fault::Channel => CauseKind::FewChannels,
            Fault::Clock => CauseKind::Clock,
            Fault::HugePages => CauseKind::PageSize,
            Fault::PageCache => CauseKind::PageCache,
            Fault::Neighbour => CauseKind::Neighbour,
        }
    }

    /// Whether it slows a cell.
    fn hits(self, cell: &Cell) -> bool {
        let (level, latency) = (cell.level.as_str(), cell.kind == Kind::Latency);
        match self {
            Fault::Channel | Fault::PageCache => level == "memory" && !latency,
            Fault::Clock => matches!(level, "L1" | "L2"),
            Fault::HugePages => matches!(level, "L3" | "memory") && cell.backing == Backing::Huge,
            Fault::Neighbour => matches!(level, "L3" | "memory"),
        }
    }
}

pub struct Simulated {
    pub random: fastrand::Rng,
    pub noise: Noise,
    /// Whether records tell of memory modules: to root only.
    pub tells_modules: bool,
}

impl Simulated {
    pub fn new(seed: u64, noise: Noise) -> Self {
        Simulated { random: fastrand::Rng::with_seed(seed), noise, tells_modules: true }
    }

    /// Box and Muller, 1958.
    pub fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.random.f64()).ln()).sqrt() * (std::f64::consts::TAU * self.random.f64()).cos()
    }

    /// Student's t of four degrees of freedom, scaled to a variance of one (its own is two).
    fn heavy(&mut self) -> f64 {
        let chi: f64 = (0..4).map(|_| self.normal().powi(2)).sum();
        self.normal() / (chi / 4.0).sqrt() / 2f64.sqrt()
    }

    /// 200 cells: 50 a level.
    pub fn cells() -> Vec<Cell> {
        let mut cells = Vec::new();
        for (index, level) in ["L1", "L2", "L3", "memory"].into_iter().enumerate() {
            for number in 0..50usize {
                let kind = match number {
                    0..14 => Kind::Read,
                    14..24 => Kind::Write,
                    24..40 => Kind::Copy,
                    _ => Kind::Latency,
                };
                let is_latency = kind == Kind::Latency;
                cells.push(Cell {
                    what: format!("{level} {kind} {number}"),
                    level: level.into(),
                    kind,
                    threads: if is_latency || number % 2 == 0 { 1 } else { 64 },
                    backing: if number % 4 == 3 { Backing::Base } else { Backing::Huge },
                    working_set: Bytes::kib(16 << (5 * index)),
                    unit: if is_latency { "ns" } else { "B/s" },
                    better: if is_latency { Better::Lower } else { Better::Higher },
                });
            }
        }
        cells
    }

    pub fn hardware(name: &str) -> Arc<Hardware> {
        Arc::new(Hardware {
            processor: name.into(),
            packages: 2,
            cores: 128,
            caches: "L1 32 KiB".into(),
            ..Hardware::default()
        })
    }

    /// A node of a speed, with a fault of a size or none.
    pub fn node(&mut self, host: &str, hardware: &Arc<Hardware>, speed: f64, fault: Option<(Fault, f64)>) -> Node {
        let whole = 0.002 * self.normal();
        let levels: Vec<f64> = (0..4).map(|_| 0.0025 * self.normal()).collect();
        let cells = Self::cells();
        let figure = |(index, cell): (usize, &Cell)| {
            let scatter = match self.noise {
                Noise::Normal => 0.01 * self.normal(),
                Noise::Heavy => 0.01 * self.heavy(),
                // 0.2^2 + 0.25^2 + 0.947^2 = 1.
                Noise::Shared => whole + levels[index / 50] + 0.009_47 * self.normal(),
                Noise::SharedHeavy => whole + levels[index / 50] + 0.009_47 * self.heavy(),
            };
            let slower = fault.filter(|(fault, _)| fault.hits(cell)).map_or(0.0, |(_, size)| (1.0 - size).ln());
            let better = speed.ln() + scatter + slower;
            let (typical, sign) = if cell.kind == Kind::Latency { (100f64, -1.0) } else { (1e10, 1.0) };
            Figure { cell: index as u32, log: (typical.ln() + sign * better) as f32, error: 0.002 }
        };
        let figures = cells.iter().enumerate().map(figure).collect();
        let facts = self.facts(fault);
        let file = format!("{host}.jsonl");
        Node { host: host.into(), file, started_unix_s: 0, hardware: hardware.clone(), facts, figures }
    }

    fn facts(&mut self, fault: Option<(Fault, f64)>) -> Facts {
        let (kind, size) = fault.map_or((None, 0.0), |(fault, size)| (Some(fault), size));
        let is = |fault| kind == Some(fault);
        let near = |value: f64, by: f64, scatter: f64| value * (1.0 + by * scatter);
        let clock = near(3e9, 0.001, self.normal()) * if is(Fault::Clock) { 1.0 - size } else { 1.0 };
        let thp = if is(Fault::HugePages) && self.random.bool() { "never" } else { "always" };
        Facts {
            clock_hz: Some(clock),
            modules: self.tells_modules.then_some(if is(Fault::Channel) { 15 } else { 16 }),
            module_mt_s: self.tells_modules.then_some(4800),
            memory_bytes: self.tells_modules.then_some(if is(Fault::Channel) { 480 << 30 } else { 512 << 30 }),
            numa_nodes: Some(2),
            huge_share: Some(if is(Fault::HugePages) { 0.0 } else { 1.0 }),
            page_cache_share: Some(if is(Fault::PageCache) { 0.7 } else { 0.05 + 0.02 * self.random.f64() }),
            least_free_share: Some(if is(Fault::PageCache) { 0.05 } else { 0.9 + 0.05 * self.random.f64() }),
            steal_share: Some(0.0),
            disturbed_share: Some(0.01 * self.random.f64()),
            unsteady_memory: Some(near(if is(Fault::Neighbour) { 0.09 } else { 0.01 }, 0.2, self.normal())),
            unsteady_caches: Some(near(0.008, 0.2, self.normal())),
            settings: vec![("transparent huge pages", Arc::from(thp)), ("governor", Arc::from("performance"))],
            ..Facts::default()
        }
    }

    /// So many nodes, of which every one in `faulty` has a fault of a size, all kinds in turn. And what is wrong with each.
    pub fn fleet(&mut self, nodes: usize, faulty: Option<usize>, size: f64) -> (Fleet, Vec<Option<Fault>>) {
        let hardware = Self::hardware("Processor A");
        let fault = |index: usize| {
            let every = faulty?;
            index.is_multiple_of(every).then(|| FAULTS[index / every % FAULTS.len()])
        };
        let truth: Vec<Option<Fault>> = (0..nodes).map(fault).collect();
        let nodes = (0..nodes)
            .map(|index| self.node(&format!("n{index}"), &hardware, 1.0, truth[index].map(|fault| (fault, size))))
            .collect();
        (Fleet { cells: Self::cells(), nodes }, truth)
    }
}
