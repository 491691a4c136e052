//! The roofline: what a loop could reach, from what it computes and what it moves, and how much of that it reached.
//!
//! An element of a loop takes at least as long as its arithmetic takes in registers, and at least as long as its bytes take
//! from its level. The greater of the two decides: `flops / max(arithmetic, data)` is `min(peak, bandwidth x intensity)`, the
//! peak being that of the loop's own mix of instructions and the bandwidth that of its own mix of reads and writes. Data of
//! the first level is what loads and stores touch; beyond, it is what crosses the bus, write-allocates included.
//!
//! A roof must hold. In a cache it is what the core's ports move at its highest clock, where a sheet tells; else a frontier:
//! the greatest rate at which *any* kernel moved bytes there with as many threads. In memory it is the peak of that memory,
//! where all cores ran and the peak is known; else the greatest rate among kernels with the same mix of reads and writes, or
//! what lies between pure loads, copies and stores. Frontiers are of best samples, so that no kernel exceeds its own; a
//! sheet that is exceeded gives way to the frontier, and a warning says so.

use std::collections::BTreeMap;

use membound_core::in_order::{InOrder, distinct};
use membound_core::kernel::flops::Flops;
use schemars::JsonSchema;
use serde::Serialize;

use crate::across::limits::{Limits, WRONG_ABOVE, are_of_sheet};
use crate::experiments::bandwidth::rows::BandwidthRow;
use crate::experiments::flops::FlopsRow;
use crate::experiments::latency::rows::LatencyRow;
use crate::rate::Rate;
use membound_core::case::Protocol;
use membound_core::kernel::catalog::Kernel;
use membound_core::kernel::chase::Order;
use membound_core::kernel::formula::{Expr, Formula, Function, Operation, Statement, Target};
use membound_core::kernel::{Element, StoreKind, Width};
use membound_core::machine::Machine;
use membound_core::machine::cpuset::CpuSet;
use membound_core::machine::spec::Balance;
use membound_core::units::{Bytes, percent, significant, words};
use membound_core::{stats, units};

words! {
    /// What a loop waits for.
    Bound, "bound" {
        /// Its bytes.
        Bandwidth = "bandwidth",
        /// Its arithmetic.
        Arithmetic = "arithmetic",
    }
}

/// Ceilings and what stands below them. Figures of one thread count belong together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Roofline {
    /// What cores compute in registers.
    pub arithmetic: Vec<ArithmeticCeiling>,
    /// What each level moves.
    pub bandwidth: Vec<BandwidthCeiling>,
    /// What memory delivers where no prefetcher helps.
    pub without_prefetch: Vec<ScatteredCeiling>,
    /// Kernels with arithmetic.
    pub points: Vec<RooflinePoint>,
    /// Most bus bytes a second from memory, by threads: of any kernel, with arithmetic or without.
    #[serde(skip)]
    pub(crate) memory: BTreeMap<usize, f64>,
}

/// A sloped ceiling of loads in random order: no prefetcher knows the next line, so only independent loads overlap.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct ScatteredCeiling {
    /// Order of the loads: random, or one after the other in pages in random order.
    pub order: Order,
    /// Loads of a thread that do not wait for each other: 1 is a list that is followed.
    pub chains: u32,
    /// Threads.
    pub threads: usize,
    /// Bytes a second of whole lines, of all threads: [value, low, high].
    pub bps: [f64; 3],
}

/// A horizontal ceiling.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ArithmeticCeiling {
    /// What is computed with.
    pub element: Element,
    /// Width of an instruction.
    pub width: Width,
    /// The mix.
    pub balance: Balance,
    /// Threads.
    pub threads: usize,
    /// Flops a second as measured; absent where they were not. The best sample is the ceiling.
    pub measured: Option<Rate>,
    /// By the sheet.
    pub specified: Option<f64>,
}

/// A sloped ceiling.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct BandwidthCeiling {
    /// `L1`, `L2`, `L3`, `memory`.
    pub level: String,
    /// Which memory, such as `MCDRAM (node 1)`; absent for caches, and where the machine has one memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// The kernel that moves bytes and computes nothing.
    pub kernel: String,
    /// Its store kind.
    pub store: StoreKind,
    /// Width of an access.
    pub width: Width,
    /// Threads.
    pub threads: usize,
    /// Bus bytes a second (in the first level: payload). The best sample is the ceiling.
    pub measured: Rate,
    /// The limit of the level for this kernel, where one is known without measuring.
    pub specified: Option<f64>,
    /// Whether write-allocates are among the bytes.
    #[serde(skip)]
    pub write_allocates: bool,
    /// Index of the row.
    pub row: usize,
}

impl BandwidthCeiling {
    /// Its memory where there are several, else its level.
    pub fn place(&self) -> &str {
        self.memory.as_ref().unwrap_or(&self.level)
    }

    /// The fastest: of those all of whose bytes are asked for, where there are any. A write-allocate that is counted need not have
    /// happened, and with `rep` stores it mostly has not.
    pub(crate) fn greatest<'a>(all: impl Iterator<Item = &'a BandwidthCeiling>) -> Option<&'a BandwidthCeiling> {
        let rate = |ceiling: &BandwidthCeiling| ceiling.measured.best;
        all.max_by(|a, b| b.write_allocates.cmp(&a.write_allocates).then(rate(a).total_cmp(&rate(b))))
    }
}

/// A kernel below its ceilings.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RooflinePoint {
    /// Index of the row.
    pub row: usize,
    /// Its level.
    pub level: String,
    /// Flops for each byte: of loads and stores in the first level, of the bus beyond.
    pub intensity: f64,
    /// Flops a second as measured: [median, low, high].
    pub flops_per_s: [f64; 3],
    /// What they could be at most.
    pub predicted: f64,
    /// What was reached of that: [median, low, high].
    pub fraction: [f64; 3],
    /// What it waits for; absent where only one of the two is known, so that the other may be lower.
    pub bound: Option<Bound>,
    /// The ceiling that it stands below, in words.
    pub ceiling: String,
    /// Whether the other kind of ceiling is unknown, so that it may be lower than this one.
    pub is_partial: bool,
    /// Whether the ceiling is as high as it is because this kernel itself reached it: no other showed as much.
    pub is_own: bool,
}

/// Instructions for each element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Instructions {
    /// Fused multiply-adds.
    pub fma: u32,
    /// Additions and subtractions.
    pub add: u32,
    /// Multiplications.
    pub multiply: u32,
    /// Divisions and roots, for which no ceiling is measured.
    pub divide: u32,
}

impl Instructions {
    /// What a loop needs; `fused` where the processor has fused multiply-adds. As the assembler does it: a sum with a
    /// product in it is fused.
    pub fn of(formula: &Formula, fused: bool) -> Self {
        let mut found = Instructions::default();
        for Statement { target, value } in &formula.statements {
            match (target, value) {
                (Target::Sum(_), Expr::Binary(Operation::Multiply, left, right)) if fused => {
                    found.fma += 1;
                    found.count_both(left, right, fused);
                }
                (target, value) => {
                    found.add += u32::from(matches!(target, Target::Sum(_)));
                    found.count(value, fused);
                }
            }
        }
        found
    }

    fn count(&mut self, expr: &Expr, fused: bool) {
        match expr {
            Expr::Binary(Operation::Add, left, right) if fused && Expr::fused(left, right).is_some() => {
                self.fma += 1;
                let Some(([x, y], addend)) = Expr::fused(left, right) else { return };
                self.count_both(x, y, fused);
                self.count(addend, fused);
            }
            Expr::Binary(operation, left, right) => {
                match operation {
                    // The least and the greater of two go where additions go.
                    Operation::Add | Operation::Subtract | Operation::Minimum | Operation::Maximum => self.add += 1,
                    Operation::Multiply => self.multiply += 1,
                    Operation::Divide => self.divide += 1,
                }
                self.count_both(left, right, fused);
            }
            Expr::MultiplyAdd(operands) => {
                let [x, y, z] = &**operands;
                let count = if fused { &mut self.fma } else { &mut self.add };
                *count += 1;
                self.multiply += u32::from(!fused);
                self.count_both(x, y, fused);
                self.count(z, fused);
            }
            Expr::Unary(function, operand) => {
                // Signs are bits: no arithmetic.
                self.divide += u32::from(*function == Function::Root);
                self.count(operand, fused);
            }
            Expr::Element(_) | Expr::Gathered { .. } | Expr::Scalar(_) | Expr::Number(_) => {}
        }
    }

    fn count_both(&mut self, left: &Expr, right: &Expr, fused: bool) {
        self.count(left, fused);
        self.count(right, fused);
    }
}

/// Instructions that are done in a second, in elements: a measured ceiling of arithmetic for each balance.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Pace {
    /// Fused multiply-adds.
    pub fma: Option<f64>,
    /// Additions alone.
    pub add: Option<f64>,
    /// Multiplications alone.
    pub multiply: Option<f64>,
    /// Both in turns.
    pub both: Option<f64>,
}

impl Pace {
    /// Least seconds for an element's instructions: of additions, of what multiplies, and of all together.
    pub fn seconds(&self, work: Instructions) -> Option<f64> {
        let most = |paces: &[Option<f64>]| paces.iter().flatten().copied().reduce(f64::max);
        let time = |instructions: u32, pace: Option<f64>| match instructions {
            0 => Some(0.0),
            n => Some(f64::from(n) / pace?),
        };
        let multiplying = most(&[self.fma, self.multiply]);
        let all = most(&[self.fma, self.add, self.multiply, self.both]);
        let parts = [
            time(work.divide, None)?,
            time(work.add, self.add)?,
            time(work.fma + work.multiply, multiplying)?,
            time(work.fma + work.add + work.multiply, all)?,
        ];
        parts.into_iter().reduce(f64::max).filter(|seconds| *seconds > 0.0)
    }
}

/// Bytes on the bus for an element.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moved {
    /// Read, with what stores read first.
    pub read: f64,
    /// Written.
    pub written: f64,
    /// Of those written, the ones that the loop itself reads first.
    pub in_place: f64,
}

/// What memory moves in a second, without arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Delivery {
    /// Bytes of a kernel that only loads.
    pub load: Option<f64>,
    /// Bytes of one that only stores, with its write-allocates.
    pub store: Option<f64>,
    /// Bytes of a copy, alike.
    pub copy: Option<f64>,
    /// Bytes of a stream that is changed in place: each line is read and written.
    pub rewrite: Option<f64>,
}

impl Delivery {
    /// Least seconds on the bus. What is changed in place has a speed of its own: no store waits for its line there.
    pub fn bus(&self, moved: Moved, store: StoreKind) -> Option<f64> {
        match self.rewrite {
            Some(rate) if moved.in_place > 0.0 => {
                let others =
                    Moved { read: moved.read - moved.in_place, written: moved.written - moved.in_place, in_place: 0.0 };
                let rest = if others.read + others.written > 0.0 { self.bus(others, store)? } else { 0.0 };
                Some(2.0 * moved.in_place / rate + rest)
            }
            _ => self.mixed(moved.read, moved.written, store),
        }
    }

    /// The time for a byte depends on how many are writes, and lies on straight lines between the kernels that were
    /// measured.
    fn mixed(&self, read: f64, written: f64, store: StoreKind) -> Option<f64> {
        // Writes among the bus bytes of load, copy and store: a regular store reads its line first.
        let shares = if store.write_allocates() { [0.0, 1.0 / 3.0, 0.5] } else { [0.0, 0.5, 1.0] };
        let known = shares.into_iter().zip([self.load, self.copy, self.store]);
        let known: Vec<(f64, f64)> = known.filter_map(|(share, rate)| Some((share, 1.0 / rate?))).collect();
        let share = written / (read + written);
        let above = known.iter().find(|point| point.0 >= share - 1e-9).or(known.last())?;
        let below = known.iter().rev().find(|point| point.0 <= share + 1e-9).or(known.first())?;
        let span = above.0 - below.0;
        let part = if span > 0.0 { (share - below.0) / span } else { 0.0 };
        Some((read + written) * (below.1 + part * (above.1 - below.1)))
    }
}

/// Works out ceilings and points.
pub fn roofline(flops: &[FlopsRow], rows: &[BandwidthRow], limits: &Limits, machine: &Machine) -> Roofline {
    let loops = rows.iter().enumerate().filter_map(|(index, row)| Loop::of(index, row)).collect();
    let ceilings = Ceilings { flops, rows, limits, machine, loops };
    Roofline {
        arithmetic: ceilings.arithmetic(),
        bandwidth: ceilings.bandwidth(),
        without_prefetch: Vec::new(),
        memory: ceilings.memory(),
        points: ceilings.loops.iter().filter_map(|own| ceilings.point(own)).collect(),
    }
}

struct Ceilings<'a> {
    flops: &'a [FlopsRow],
    rows: &'a [BandwidthRow],
    limits: &'a Limits,
    machine: &'a Machine,
    loops: Vec<Loop<'a>>,
}

/// A plain, steady row, and what one element of its loop takes.
struct Loop<'a> {
    index: usize,
    row: &'a BandwidthRow,
    level: &'a str,
    /// Of the best sample.
    elements_per_s: f64,
    /// Bytes that are loaded: touched by loads in the first level, read over the bus beyond.
    loaded: f64,
    stored: f64,
    /// Of those stored, the ones that the loop itself reads first.
    in_place: f64,
    formula: Formula,
}

impl<'a> Loop<'a> {
    fn of(index: usize, row: &'a BandwidthRow) -> Option<Self> {
        let level = row.level.as_deref()?;
        delivered(row)?;
        let kernel = Kernel::named(row.kernel())?;
        let (formula, traffic) = (kernel.formula(), kernel.traffic(row.store(), row.element()));
        let elements_per_s = row.payload_bps?.best / traffic.payload() as f64;
        let [loaded, stored] = match level {
            "L1" => touched(&formula, row.element(), row.width()),
            _ => [(traffic.loaded + traffic.write_allocated) as f64, traffic.stored as f64],
        };
        let in_place = if row.store().write_allocates() { stored - traffic.write_allocated as f64 } else { 0.0 };
        Some(Loop { index, row, level, elements_per_s, loaded, stored, in_place, formula: formula.clone() })
    }

    fn bytes(&self) -> f64 {
        self.loaded + self.stored
    }

    /// Writes among its bytes.
    fn mix(&self) -> f64 {
        self.stored / self.bytes()
    }

    /// Whether another moves its bytes the same way: threads, memory, and a path for its stores. A loop that only loads goes
    /// with regular stores.
    fn is_alike(&self, other: &Loop<'_>) -> bool {
        let path = |of: &Loop<'_>| if of.stored > 0.0 { of.row.store() } else { StoreKind::Regular };
        let place = |of: &Loop<'_>| (of.row.threads(), of.row.case.memory, path(of));
        (self.level, place(self)) == (other.level, place(other))
            && self.row.place.meets(other.row.place)
            && !other.row.writes_zeros()
    }
}

impl Ceilings<'_> {
    fn arithmetic(&self) -> Vec<ArithmeticCeiling> {
        let of = |row: &FlopsRow| {
            let measured = row.flops_per_s.filter(|_| row.quality.is_measured());
            let Flops { element, width, balance } = row.flops();
            let specified = self.specified(element, width, balance, &row.case.cpus);
            (measured.is_some() || specified.is_some()).then_some(ArithmeticCeiling {
                element,
                width,
                balance,
                threads: row.case.threads(),
                measured,
                specified,
            })
        };
        self.flops.iter().filter_map(of).collect()
    }

    /// Flops a second of the cores of these CPUs by the sheet, at the clock of so many threads: threads of one core share it.
    fn specified(&self, element: Element, width: Width, balance: Balance, cpus: &[u32]) -> Option<f64> {
        let ours = |limit: &&crate::across::limits::FlopsLimit| {
            (limit.element, limit.width, limit.balance) == (element, width, balance)
        };
        let cpus: CpuSet = cpus.iter().copied().collect();
        if !are_of_sheet(self.machine, &cpus) {
            return None;
        }
        let cores = self.machine.one_per_core(&cpus).len().max(1) as f64;
        Some(cores * self.limits.flops.iter().find(ours)?.per_cycle * self.limits.clock(cpus.len())?)
    }

    fn bandwidth(&self) -> Vec<BandwidthCeiling> {
        let of = |(index, row): (usize, &BandwidthRow)| {
            let rate = delivered(row).filter(|_| ["load", "store", "copy"].contains(&row.kernel()))?;
            let known = self.limits.of_row(row, self.machine);
            Some(BandwidthCeiling {
                level: row.level.clone()?,
                memory: self.memory_name(row),
                kernel: row.kernel().to_string(),
                store: row.store(),
                width: row.width(),
                threads: row.threads(),
                measured: rate,
                specified: known.zip(row.payload_bps).map(|(limit, payload)| limit * rate.value() / payload.value()),
                write_allocates: row.level.as_deref() != Some("L1") && row.write_allocates(),
                row: index,
            })
        };
        // A level may have been measured with several working sets and widths: the fastest is its ceiling.
        let mut found: Vec<BandwidthCeiling> = Vec::new();
        for ceiling in self.rows.iter().enumerate().filter_map(of) {
            let key = |c: &BandwidthCeiling| (c.level.clone(), c.memory.clone(), c.threads, c.kernel.clone(), c.store);
            match found.iter_mut().find(|other| key(other) == key(&ceiling)) {
                Some(other) if other.measured.best < ceiling.measured.best => *other = ceiling,
                Some(_) => {}
                None => found.push(ceiling),
            }
        }
        found.order_by_key(|ceiling| (ceiling.threads, ceiling.level.clone(), ceiling.memory.clone()));
        found
    }

    fn memory_name(&self, row: &BandwidthRow) -> Option<String> {
        let is_told = row.level.as_deref() == Some("memory") && self.limits.memory.len() > 1;
        is_told.then(|| self.limits.names(&row.nodes()))
    }

    /// Ceilings of arithmetic: the best sample or the sheet, whichever is more, since a core that was disturbed throughout
    /// shows less than it can.
    fn pace(&self, row: &BandwidthRow) -> Pace {
        let of = |balance: Balance| {
            let ours = |other: &&FlopsRow| {
                let wanted = Flops { element: row.element(), width: row.width(), balance };
                (other.flops(), other.case.threads()) == (wanted, row.threads()) && other.quality.is_measured()
            };
            let measured = self.flops.iter().find(ours).and_then(|other| Some(other.flops_per_s?.best));
            let specified = self.specified(row.element(), row.width(), balance, &row.case.cpus);
            measured.into_iter().chain(specified).reduce(f64::max)
        };
        Pace {
            fma: of(Balance::Fma).map(|flops| flops / 2.0),
            add: of(Balance::Add),
            multiply: of(Balance::Multiply),
            both: of(Balance::Separate),
        }
    }

    /// Most bus bytes a second from memory, by threads. Of kernels with write-allocates, which need not have happened, only the payload
    /// surely crossed the bus; their counted bytes stand in where there are no other kernels.
    fn memory(&self) -> BTreeMap<usize, f64> {
        let most = |bytes_per_s: &dyn Fn(&Loop<'_>) -> Option<f64>| {
            let mut most: BTreeMap<usize, f64> = BTreeMap::new();
            for own in self.loops.iter().filter(|own| own.level == "memory" && !own.row.writes_zeros()) {
                let held = most.entry(own.row.threads()).or_insert(0.0);
                *held = held.max(bytes_per_s(own).unwrap_or(0.0));
            }
            most.retain(|_, bps| *bps > 0.0);
            most
        };
        let counted = |own: &Loop<'_>| Some(own.row.bus_bps?.best);
        let mut found = most(&counted);
        let asked = most(&|own| counted(own).filter(|_| !own.row.write_allocates()));
        let payload = most(&|own| Some(own.row.payload_bps?.best));
        found.extend(
            asked.into_iter().map(|(threads, bps)| (threads, payload.get(&threads).map_or(bps, |of| of.max(bps)))),
        );
        found
    }

    /// Loops, without those of one kernel where such is named.
    fn without(&self, kernel: Option<&str>) -> impl Iterator<Item = &Loop<'_>> {
        self.loops.iter().filter(move |other| Some(other.row.kernel()) != kernel)
    }

    /// Least seconds for the arithmetic of an element: by the ceilings, or as any loop of that width shows them to be higher.
    fn computing(&self, own: &Loop<'_>, hidden: Option<&str>) -> Option<f64> {
        let pace = self.pace(own.row);
        let seconds = |of: &Loop<'_>| pace.seconds(Instructions::of(&of.formula, pace.fma.is_some()));
        let way = |of: &Loop<'_>| (of.row.threads(), of.row.element(), of.row.width());
        let alike = self.without(hidden).filter(|other| way(other) == way(own));
        let shown = alike.filter_map(|other| Some(other.elements_per_s * seconds(other)?)).fold(1.0, f64::max);
        Some(seconds(own)? / shown)
    }

    /// Least seconds for the bytes of an element; see the head of this file.
    fn moving(&self, own: &Loop<'_>, hidden: Option<&str>) -> Option<f64> {
        let alike = || self.without(hidden).filter(|other| own.is_alike(other));
        let greatest = |wanted: &dyn Fn(&&Loop<'_>) -> bool| {
            let rate = |other: &Loop<'_>| other.elements_per_s * other.bytes();
            alike().filter(|other| wanted(other)).map(rate).reduce(f64::max)
        };
        let by_frontier = |rate: Option<f64>| rate.map(|rate| own.bytes() / rate);
        let (frontier, known) = if own.level == "memory" {
            let of = |kernel: &'static str| greatest(&|other| other.row.kernel() == kernel);
            let loads = self.without(hidden).filter(|other| other.row.kernel() == "load" && other.level == own.level);
            let loads = loads.filter(|other| {
                (other.row.threads(), other.row.case.memory) == (own.row.threads(), own.row.case.memory)
                    && own.row.place.meets(other.row.place)
            });
            let load = loads.map(|other| other.elements_per_s * other.bytes()).reduce(f64::max);
            let delivery = Delivery { load, store: of("store"), copy: of("copy"), rewrite: of("rewrite") };
            let moved = Moved { read: own.loaded, written: own.stored, in_place: own.in_place };
            let same = by_frontier(greatest(&|other| (other.mix() - own.mix()).abs() < SAME_MIX));
            let between = delivery.bus(moved, own.row.store());
            let known = self.limits.of_row(own.row, self.machine).filter(|_| self.uses_all_cores(own.row));
            let payload = own.row.payload_bps.map(|rate| rate.best / own.elements_per_s);
            (same.into_iter().chain(between).reduce(f64::min), payload.zip(known).map(|(bytes, rate)| bytes / rate))
        } else {
            let known = self.limits.seconds(own.row, self.machine, own.loaded, own.stored);
            (by_frontier(greatest(&|_| true)), known)
        };
        known.filter(|known| known * own.elements_per_s <= WRONG_ABOVE).or(frontier)
    }

    /// Whether the bound is higher because this kernel reached it.
    fn is_raised(&self, own: &Loop<'_>, bound: Bound, seconds: f64) -> bool {
        /// Less is rounding.
        const HIGHER: f64 = 1.0 + 1e-9;
        let hidden = Some(own.row.kernel());
        let by_others = match bound {
            Bound::Arithmetic => self.computing(own, hidden),
            Bound::Bandwidth => self.moving(own, hidden),
        };
        by_others.is_none_or(|others| others > HIGHER * seconds)
    }

    fn uses_all_cores(&self, row: &BandwidthRow) -> bool {
        let cpus: CpuSet = row.case.cpus.iter().copied().collect();
        !self.machine.is_virtual() && self.machine.one_per_core(&cpus).len() >= self.machine.cores().len()
    }

    fn point(&self, own: &Loop<'_>) -> Option<RooflinePoint> {
        let (row, level) = (own.row, own.level);
        let (flops_per_s, payload) = (row.flops_per_s?, row.payload_bps?);
        let flops = f64::from(own.formula.flops());
        // In the first level an access that crosses a line costs two; the loop's own bytes are what it names.
        let bytes = match level {
            "L1" => ((own.formula.loads().len() + own.formula.stores().len()) as u64 * row.element().bytes()) as f64,
            _ => own.bytes(),
        };
        let (arithmetic, data) = (self.computing(own, None), self.moving(own, None));
        let (bound, seconds) = match (arithmetic, data) {
            (Some(arithmetic), Some(data)) if arithmetic > data => (Bound::Arithmetic, arithmetic),
            (_, Some(data)) => (Bound::Bandwidth, data),
            (Some(arithmetic), None) => (Bound::Arithmetic, arithmetic),
            (None, None) => return None,
        };
        let (predicted, is_partial) = (flops / seconds, arithmetic.is_none() || data.is_none());
        let interval = [1.0, payload.ends()[0] / payload.value(), payload.ends()[1] / payload.value()];
        let interval = interval.map(|share| share * flops_per_s);
        Some(RooflinePoint {
            row: own.index,
            level: level.into(),
            intensity: flops / bytes,
            flops_per_s: interval,
            predicted,
            fraction: interval.map(|flops| flops / predicted),
            ceiling: match bound {
                Bound::Arithmetic => format!("arithmetic, {}", row.width()),
                Bound::Bandwidth => {
                    format!("{}, {} stores", self.memory_name(row).unwrap_or(level.into()), row.store())
                }
            },
            bound: (!is_partial).then_some(bound),
            is_partial,
            is_own: self.is_raised(own, bound, seconds),
        })
    }
}

/// Shares of writes that differ by less are one mix.
const SAME_MIX: f64 = 0.01;

fn threads_word(threads: usize) -> String {
    if threads == 1 { "one thread".into() } else { format!("{threads} threads") }
}

/// Bytes that the first level loads and stores for an element: an access that crosses a line touches two. Arrays begin on a
/// line, and what reaches back begins as many elements later: a grid's first is the second of its row.
fn touched(formula: &Formula, element: Element, width: Width) -> [f64; 2] {
    const LINE: i64 = units::LINE as i64;
    let (bytes, access) = (element.bytes() as i64, width.bytes(element) as i64);
    let border = formula.margins().left as i64;
    let cost = |column: i32| {
        let is_crossing = ((border + i64::from(column)) * bytes).rem_euclid(access) != 0;
        // Of accesses side by side, one a line crosses its end.
        let twice = if is_crossing { access as f64 / LINE as f64 } else { 0.0 };
        bytes as f64 * (1.0 + twice)
    };
    let loads = formula.loads().iter().map(|access| cost(access.column)).sum();
    [loads, formula.stores().iter().map(|access| cost(access.column)).sum()]
}

/// What a plain, steady row delivers: payload bytes in the first level, bus bytes beyond.
fn delivered(row: &BandwidthRow) -> Option<Rate> {
    let is_plain = row.quality.is_measured()
        && row.case.protocol == Protocol::Steady
        && row.case.streams.is_empty()
        && row.case.misaligned_bytes == 0;
    let rate = match row.level.as_deref()? {
        "L1" => row.payload_bps,
        _ => row.bus_bps,
    };
    rate.filter(|_| is_plain)
}

impl Roofline {
    /// With the ceilings that chases through memory tell of: of each order and number of chains the largest working set.
    /// `line` is what a machine's memory moves at once.
    pub fn with_chases<'a>(mut self, line: Bytes, chases: impl Iterator<Item = &'a LatencyRow>) -> Roofline {
        let is_ours = |row: &&LatencyRow| {
            row.quality.is_measured()
                && row.level.as_deref() == Some("memory")
                && row.case.protocol == Protocol::Steady
                && [Order::Random, Order::PageRandom].contains(&row.chase().order)
        };
        let mut found: BTreeMap<(usize, Order, u32), (Bytes, [f64; 3])> = BTreeMap::new();
        for row in chases.filter(is_ours) {
            let (chase, size, threads) = (row.chase(), row.case.working_set, row.case.threads());
            let Some([ns, low, high]) = row.latency_ns.map(|cost| cost.interval()) else { continue };
            let lines = threads as f64 * f64::from(chase.chains);
            let bps = |ns: f64| lines * line.0 as f64 / (ns * 1e-9);
            let held = found.entry((threads, chase.order, chase.chains)).or_insert((Bytes(0), [0.0; 3]));
            if held.0 <= size {
                *held = (size, [bps(ns), bps(high), bps(low)]);
            }
        }
        let ceiling = |((threads, order, chains), (_, bps)): ((usize, Order, u32), (Bytes, [f64; 3]))| {
            ScatteredCeiling { order, chains, threads, bps }
        };
        self.without_prefetch = found.into_iter().map(ceiling).collect();
        self
    }

    /// `Without prefetch one thread gets 0.71 GB/s of lines from memory by loads that wait for each other, 10.2 by 16 independent
    /// ones; 8 threads get 5.6 and 41.`
    fn scattered(&self) -> Option<String> {
        let of = |threads: usize, is_wanted: fn(&ScatteredCeiling) -> bool| {
            let ours = |ceiling: &&ScatteredCeiling| {
                ceiling.threads == threads && ceiling.order == Order::Random && is_wanted(ceiling)
            };
            self.without_prefetch.iter().filter(ours).max_by(|a, b| a.bps[0].total_cmp(&b.bps[0]))
        };
        let waiting = |threads| of(threads, |ceiling| ceiling.chains == 1);
        let independent = |threads| of(threads, |ceiling| ceiling.chains > 1);
        let giga = |ceiling: &ScatteredCeiling| significant(ceiling.bps[0] / 1e9);
        let mut text = format!(
            " Without prefetch one thread gets {} GB/s of lines from memory by loads that wait for each other",
            giga(waiting(1)?)
        );
        text.extend(independent(1).map(|most| format!(", {} by {} independent ones", giga(most), most.chains)));
        let all = self.without_prefetch.iter().map(|ceiling| ceiling.threads).max().filter(|all| *all > 1);
        if let Some((all, waiting)) = all.and_then(|all| Some((all, waiting(all)?))) {
            let most = independent(all).map_or_else(String::new, |most| format!(" and {}", giga(most)));
            text += &format!("; {} get {}{most}", threads_word(all), giga(waiting));
        }
        Some(text + ".")
    }

    /// Thread counts, rising.
    pub fn threads(&self) -> Vec<usize> {
        let computing = self.arithmetic.iter().map(|ceiling| ceiling.threads);
        distinct(computing.chain(self.bandwidth.iter().map(|ceiling| ceiling.threads)))
    }

    /// The arithmetic that was faster than its sheet allows: what is wrong is the sheet, or the clock it is taken with.
    pub(crate) fn exceeded(&self, sheet: Option<&str>) -> Option<String> {
        let share = |ceiling: &ArithmeticCeiling| Some(ceiling.measured?.best / ceiling.specified?);
        let all = self.arithmetic.iter().filter_map(|ceiling| Some((ceiling, share(ceiling)?)));
        let (worst, share) = all.filter(|(_, share)| *share > WRONG_ABOVE).max_by(|a, b| a.1.total_cmp(&b.1))?;
        let ArithmeticCeiling { balance, width, element, threads, .. } = worst;
        Some(format!(
            "{balance} {width} {element}, {}, reaches {} of a limit that must be wrong: arithmetic on the sheet {}",
            threads_word(*threads),
            percent(share),
            sheet.unwrap_or("without a name")
        ))
    }

    /// Most flops a second of so many threads in double precision: measured, else specified.
    pub fn peak(&self, threads: usize) -> Option<f64> {
        let ours = |ceiling: &&ArithmeticCeiling| ceiling.threads == threads && ceiling.element == Element::Double;
        let ours = || self.arithmetic.iter().filter(ours);
        self.measured_peak(threads).or_else(|| ours().filter_map(|ceiling| ceiling.specified).reduce(f64::max))
    }

    fn measured_peak(&self, threads: usize) -> Option<f64> {
        let ours = |ceiling: &&ArithmeticCeiling| ceiling.threads == threads && ceiling.element == Element::Double;
        let ours = self.arithmetic.iter().filter(ours);
        ours.filter_map(|ceiling| Some(ceiling.measured?.best)).reduce(f64::max)
    }

    /// Most bus bytes a second of so many threads from memory.
    pub fn memory(&self, threads: usize) -> Option<f64> {
        self.memory.get(&threads).copied()
    }

    /// The answer in a sentence or two: where the ridge is, and what kernels wait for.
    pub fn answer(&self) -> Option<String> {
        if self.points.is_empty() && self.arithmetic.is_empty() {
            return None;
        }
        let mut answer = String::new();
        let ridge = self.threads().last().and_then(|&all| Some((all, self.peak(all)?, self.memory(all)?)));
        if let Some((all, peak, memory)) = ridge {
            // Tables show what is undisturbed, which is less.
            let best = if self.measured_peak(all).is_some() { "in the best samples" } else { "at best" };
            let [they_do, get] = if all == 1 { ["it does", "gets"] } else { ["they do", "get"] };
            answer = format!(
                "From memory, {} can only be fully used by loops with more than {} flops for each byte of the bus: {best} {they_do} \
                 {} GF/s and {get} {} GB/s (machine balance {} B/flop). ",
                threads_word(all),
                significant(peak / memory),
                significant(peak / 1e9),
                significant(memory / 1e9),
                significant(memory / peak),
            );
        }
        answer += &self.waiting();
        answer.extend(self.scattered());
        let answer = answer.trim();
        (!answer.is_empty()).then(|| answer.into())
    }

    /// `Of 43 kernel figures, 19 are bandwidth-bound and 24 compute-bound; ...`, and of how many that is unknown.
    fn waiting(&self) -> String {
        let of = |bound: Option<Bound>| self.points.iter().filter(|point| point.bound == bound).count();
        let unknown = of(None);
        let known = self.points.len() - unknown;
        let told = (known > 0).then(|| {
            format!(
                "Of {known} kernel figures, {} are bandwidth-bound and {} compute-bound; {}.",
                of(Some(Bound::Bandwidth)),
                of(Some(Bound::Arithmetic)),
                self.reached(),
            )
        });
        let untold = (unknown > 0).then(|| {
            let figures = if unknown == 1 { "kernel figure" } else { "kernel figures" };
            let [more, help] = if known > 0 { ["more ", ""] } else { ["", " (membound roofline measures both)"] };
            format!("What bounds {unknown} {more}{figures} is unknown: only one of the two roofs is known{help}.")
        });
        told.into_iter().chain(untold).collect::<Vec<_>>().join(" ")
    }

    /// What share of its roof the median kernel reaches. One that is its own roof reaches all of it, which says nothing.
    fn reached(&self) -> String {
        let known = || self.points.iter().filter(|point| !point.is_partial);
        let own = known().filter(|point| point.is_own).count();
        let others = known().filter(|point| !point.is_own).map(|point| point.fraction[0]);
        let left_out = match own {
            0 => String::new(),
            1 => " (1, whose own figure is its roof, left out)".into(),
            own => format!(" ({own}, whose own figures are their roofs, left out)"),
        };
        stats::quantiles::median(others).map_or_else(
            || "each is its own roof, as no other kernel moves its bytes the same way".into(),
            |median| format!("the median kernel reaches {} of its roof{left_out}", percent(median)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, fused: bool) -> [u32; 3] {
        let Instructions { fma, add, multiply, .. } = Instructions::of(&Formula::parse(text).unwrap(), fused);
        [fma, add, multiply]
    }

    #[test]
    fn instructions_are_counted_by_hand() {
        assert_eq!(of("a[i] = b[i] + s*c[i]", true), [1, 0, 0]);
        assert_eq!(of("a[i] = b[i] + s*c[i]", false), [0, 1, 1]);
        assert_eq!(of("sum += b[i]*c[i]", true), [1, 0, 0]);
        assert_eq!(of("sum += b[i]", true), [0, 1, 0]);
        assert_eq!(of("a[i] = s*b[i]", true), [0, 0, 1]);
        assert_eq!(of("a[i] = fma(b[i], c[i], s); r += max(b[i], -c[i])*s", true), [2, 1, 0]);
        assert_eq!(of("a[i] = fma(b[i], c[i], s)", false), [0, 1, 1]);
        let divides = Instructions::of(&Formula::parse("a[i] = b[i]/sqrt(c[i])").unwrap(), true);
        assert_eq!((divides.divide, Pace { add: Some(1e9), ..Pace::default() }.seconds(divides)), (2, None));
        assert_eq!(of("a[j][i] = s*(b[j][i-1] + b[j][i+1] + b[j-1][i] + b[j+1][i])", true), [0, 3, 1]);
    }

    /// The sweep's elements begin 8 B into a line: of the accesses at -1, +1 and 0 (three times) only the first is aligned.
    #[test]
    fn accesses_across_lines_touch_two() {
        let of = |text: &str, width| touched(&Formula::parse(text).unwrap(), Element::Double, width);
        const SWEEP: &str = "a[j][i] = s*(b[j][i-1] + b[j][i+1] + b[j-1][i] + b[j+1][i])";
        assert_eq!(of(SWEEP, Width::W512), [8.0 + 3.0 * 16.0, 16.0]);
        assert_eq!(of(SWEEP, Width::W256), [8.0 + 3.0 * 12.0, 12.0]);
        assert_eq!(of(SWEEP, Width::Scalar), [32.0, 8.0]);
        assert_eq!(of("a[i] = b[i] + s*c[i]", Width::W512), [16.0, 8.0]);
        assert_eq!(of("a[i] = s*b[i]; c[i] = s*d[i]", Width::W512), [16.0, 16.0]);
        // The first of b is on a line, and each store crosses one.
        assert_eq!(of("a[i] = s*b[i-1]", Width::W512), [8.0, 16.0]);
    }

    /// Two units for fused and multiplications, two for additions, at 1e9 cycles a second and one element each.
    #[test]
    fn arithmetic_takes_what_its_busiest_units_take() {
        let pace = Pace { fma: Some(2e9), add: Some(2e9), multiply: Some(2e9), both: Some(4e9) };
        let seconds = |fma, add, multiply| pace.seconds(Instructions { fma, add, multiply, divide: 0 }).unwrap();
        assert_eq!(seconds(1, 0, 0), 0.5e-9);
        // Beside each other: 3 additions on two units take longer than 4 instructions on four.
        assert_eq!(seconds(0, 3, 1), 1.5e-9);
        assert_eq!(seconds(1, 1, 0), 0.5e-9);
        let shared = Pace { both: Some(2e9), ..pace };
        assert_eq!(shared.seconds(Instructions { fma: 1, add: 1, multiply: 0, divide: 0 }), Some(1e-9));
        assert_eq!(Pace::default().seconds(Instructions { fma: 1, add: 0, multiply: 0, divide: 0 }), None);
        assert_eq!(pace.seconds(Instructions::default()), None);
    }

    /// Reads 100 GB/s, copies with write-allocate 80, stores with write-allocate 75 (on the bus).
    #[test]
    fn a_mix_lies_between_the_mixes_beside_it() {
        let memory = Delivery { load: Some(100e9), copy: Some(80e9), store: Some(75e9), ..Delivery::default() };
        let of = |memory: Delivery, [read, written, in_place]: [f64; 3]| {
            memory.bus(Moved { read, written, in_place }, StoreKind::Regular).unwrap()
        };
        let bus = |read, written| of(memory, [read, written, 0.0]);
        let near = |found: f64, expect: f64| assert!((found / expect - 1.0).abs() < 1e-9, "{found}, not {expect}");
        near(bus(8.0, 0.0), 8.0 / 100e9);
        near(bus(16.0, 8.0), 24.0 / 80e9);
        near(bus(8.0, 8.0), 16.0 / 75e9);
        // The triad, 24 B read and 8 written: 3/4 of the way to the copy, 0.01 + 0.75 x 0.0025 ns a byte.
        near(bus(24.0, 8.0), 32.0 * 0.011875e-9);
        // Without a copy: half of the way to the store.
        let without = Delivery { copy: None, ..memory };
        near(of(without, [24.0, 8.0, 0.0]), 32.0 * (0.01 + 0.5 * (1.0 / 75.0 - 0.01)) * 1e-9);
        assert_eq!(Delivery::default().bus(Moved { read: 8.0, written: 0.0, in_place: 0.0 }, StoreKind::Nt), None);
        // In place at 90 GB/s: `update` alone; `daxpy` has 8 B more to read; without such a figure as any store.
        let rewriting = Delivery { rewrite: Some(90e9), ..memory };
        near(of(rewriting, [8.0, 8.0, 8.0]), 16.0 / 90e9);
        near(of(rewriting, [16.0, 8.0, 8.0]), 16.0 / 90e9 + 8.0 / 100e9);
        near(of(rewriting, [24.0, 8.0, 0.0]), 32.0 * 0.011875e-9);
        near(of(memory, [8.0, 8.0, 8.0]), 16.0 / 75e9);
    }
}
