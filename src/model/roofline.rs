//! The roofline: what a loop could reach, from what it computes and what it moves, and how much of that it reached.
//!
//! An element of a loop takes at least as long as its arithmetic takes in registers, and at least as long as its bytes take
//! from its level; both are measured with loops that do nothing else. The greater of the two decides:
//! `flops / max(arithmetic, data)` is `min(peak, bandwidth x intensity)`, the peak being that of the loop's own mix of
//! instructions and the bandwidth that of its own mix of reads and writes. Data of the first level is what loads and
//! stores touch; beyond, it is what crosses the bus, write-allocates included. A ceiling is what the machine has shown that
//! it can do, so it is the best sample; what a loop reached is its median.

use schemars::JsonSchema;
use serde::Serialize;

use super::limits::Limits;
use super::{FlopsRow, Rate, Row};
use crate::kernel::formula::{Expr, Formula, Function, Operation, Statement, Target};
use crate::kernel::{Element, Kernel, StoreKind, Width};
use crate::machine::{Balance, CpuSet, Machine};
use crate::plan::Protocol;
use crate::units::{percent, significant, words};

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
    /// Kernels with arithmetic.
    pub points: Vec<RooflinePoint>,
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
    /// Index of the row.
    pub row: usize,
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
    /// What it waits for.
    pub bound: Bound,
    /// The ceiling that it stands below, in words.
    pub ceiling: String,
    /// Whether the other kind of ceiling is unknown, so that it may be lower than this one.
    pub is_partial: bool,
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

/// What one level moves in a second, without arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Delivery {
    /// Bytes of a kernel that only loads.
    pub load: Option<f64>,
    /// Bytes of one that only stores; on the bus with its write-allocates.
    pub store: Option<f64>,
    /// Bytes of a copy, alike.
    pub copy: Option<f64>,
    /// Bytes of a stream that is changed in place: each line is read and written.
    pub rewrite: Option<f64>,
    /// Payload of a sum of two streams into a third: two loads to a store, and an addition that hides behind them.
    pub add: Option<f64>,
}

impl Delivery {
    /// Least seconds in the first level: loads and stores have ports of their own. They may share something else, which
    /// shows where they were measured together: with one load to a store, and with two.
    pub fn ports(&self, loaded: f64, stored: f64) -> Option<f64> {
        let time = |bytes: f64, rate: Option<f64>| if bytes > 0.0 { Some(bytes / rate?) } else { Some(0.0) };
        let apart = time(loaded, self.load)?.max(time(stored, self.store)?);
        Some(apart.max(self.together(loaded, stored).unwrap_or(0.0)))
    }

    /// The loop cut into copies, sums of two streams, and loads or stores that are left over.
    fn together(&self, loaded: f64, stored: f64) -> Option<f64> {
        let copies = if self.add.is_some() {
            (2.0 * stored - loaded).clamp(0.0, loaded.min(stored))
        } else {
            stored.min(loaded)
        };
        let sums = if self.add.is_some() { (loaded - copies).min(2.0 * (stored - copies)) / 2.0 } else { 0.0 };
        let time = |bytes: f64, rate: Option<f64>| if bytes > 0.0 { Some(bytes / rate?) } else { Some(0.0) };
        let (more_loads, more_stores) = (loaded - copies - 2.0 * sums, stored - copies - sums);
        let (pairs, triples) = (time(2.0 * copies, self.copy)?, time(3.0 * sums, self.add)?);
        // What a copy does at once beside its slower half is no reason to add the other.
        let beside =
            if self.add.is_some() { time(more_loads, self.load)? + time(more_stores, self.store)? } else { 0.0 };
        Some(pairs + triples + beside)
    }

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
pub fn roofline(flops: &[FlopsRow], rows: &[Row], limits: &Limits, machine: &Machine) -> Roofline {
    let ceilings = Ceilings { flops, rows, limits, machine };
    Roofline {
        arithmetic: ceilings.arithmetic(),
        bandwidth: ceilings.bandwidth(),
        points: (0..rows.len()).filter_map(|index| ceilings.point(index)).collect(),
    }
}

struct Ceilings<'a> {
    flops: &'a [FlopsRow],
    rows: &'a [Row],
    limits: &'a Limits,
    machine: &'a Machine,
}

impl Ceilings<'_> {
    fn arithmetic(&self) -> Vec<ArithmeticCeiling> {
        let of = |row: &FlopsRow| {
            let measured = row.flops_per_s.filter(|_| row.quality.is_measured());
            let specified = self.specified(row.element, row.width, row.balance, &row.cpus);
            (measured.is_some() || specified.is_some()).then_some(ArithmeticCeiling {
                element: row.element,
                width: row.width,
                balance: row.balance,
                threads: row.threads,
                measured,
                specified,
            })
        };
        self.flops.iter().filter_map(of).collect()
    }

    /// Flops a second of the cores of these CPUs by the sheet: threads of one core share it.
    fn specified(&self, element: Element, width: Width, balance: Balance, cpus: &[u32]) -> Option<f64> {
        let ours = |limit: &&super::limits::FlopsLimit| {
            (limit.element, limit.width, limit.balance) == (element, width, balance)
        };
        let cpus: CpuSet = cpus.iter().copied().collect();
        let cores = self.machine.one_per_core(&cpus).len().max(1) as f64;
        Some(cores * self.limits.flops.iter().find(ours)?.per_s.as_ref()?.value)
    }

    fn bandwidth(&self) -> Vec<BandwidthCeiling> {
        let of = |(index, row): (usize, &Row)| {
            let rate = delivered(row).filter(|_| ["load", "store", "copy"].contains(&row.kernel.as_str()))?;
            let known = self.limits.of_row(row, self.machine);
            Some(BandwidthCeiling {
                level: row.level.clone()?,
                kernel: row.kernel.clone(),
                store: row.store,
                width: row.width,
                threads: row.threads,
                measured: rate,
                specified: known.zip(row.payload_bps).map(|(limit, payload)| limit * rate.median / payload.median),
                row: index,
            })
        };
        // A level may have been measured with several working sets and widths: the fastest is its ceiling.
        let mut found: Vec<BandwidthCeiling> = Vec::new();
        for ceiling in self.rows.iter().enumerate().filter_map(of) {
            let key = |c: &BandwidthCeiling| (c.level.clone(), c.threads, c.kernel.clone(), c.store);
            match found.iter_mut().find(|other| key(other) == key(&ceiling)) {
                Some(other) if other.measured.best < ceiling.measured.best => *other = ceiling,
                Some(_) => {}
                None => found.push(ceiling),
            }
        }
        found.sort_by_key(|ceiling| (ceiling.threads, ceiling.level.clone()));
        found
    }

    /// Measured ceilings of arithmetic, else specified ones.
    fn pace(&self, row: &Row) -> Pace {
        let of = |balance: Balance| {
            let ours = |other: &&FlopsRow| {
                (other.element, other.width, other.balance, other.threads)
                    == (row.element, row.width, balance, row.threads)
                    && other.quality.is_measured()
            };
            let usual = |other: &FlopsRow| {
                let rate = other.flops_per_s?.median;
                Some(rate * at_clock_of(row, clock(rate, other.flops_per_cycle, other.threads)))
            };
            let measured = self.flops.iter().find(ours).and_then(usual);
            measured.or_else(|| self.specified(row.element, row.width, balance, &row.cpus))
        };
        Pace {
            fma: of(Balance::Fma).map(|flops| flops / 2.0),
            add: of(Balance::Add),
            multiply: of(Balance::Multiply),
            both: of(Balance::Separate),
        }
    }

    /// What the row's level moves, by kernels that were measured under the same conditions: at its own width, or where
    /// that is missing at any.
    fn delivery(&self, row: &Row, level: &str) -> Delivery {
        let of = |kernel: &str| {
            let alike = |other: &&Row| {
                other.kernel == kernel
                    && other.level.as_deref() == Some(level)
                    && (other.threads, other.element, other.memory) == (row.threads, row.element, row.memory)
                    && other.policy == row.policy
                    && (kernel == "load" || other.store == row.store)
            };
            let by_clock =
                |other: &Row| if runs_at_core_clock(level) { at_clock_of(row, clock_of(other)) } else { 1.0 };
            let rate = |other: &Row| delivered(other).map(|rate| rate.median * by_clock(other));
            let best = |test: &dyn Fn(&&Row) -> bool| {
                self.rows.iter().filter(alike).filter(test).filter_map(rate).reduce(f64::max)
            };
            best(&|other| other.width == row.width).or_else(|| best(&|_| true))
        };
        // Nothing is held against itself.
        let add = if row.kernel == "add" { None } else { of("add") };
        Delivery { load: of("load"), store: of("store"), copy: of("copy"), rewrite: of("rewrite"), add }
    }

    fn point(&self, index: usize) -> Option<RooflinePoint> {
        let row = &self.rows[index];
        let level = row.level.as_deref()?;
        delivered(row)?;
        let (flops_per_s, payload) = (row.flops_per_s?, row.payload_bps?);
        let kernel = Kernel::named(&row.kernel)?;
        let formula = kernel.formula();
        let traffic = kernel.traffic(row.store, row.element);
        let flops = f64::from(formula.flops());
        let pace = self.pace(row);
        let arithmetic = pace.seconds(Instructions::of(&formula, pace.fma.is_some()));
        let delivery = self.delivery(row, level);
        let stored = traffic.stored as f64;
        let (bytes, data) = match level {
            "L1" => {
                let loaded = (formula.loads().len() as u64 * row.element.bytes()) as f64;
                let [loads, stores] = touched(&formula, row.element, row.width);
                (loaded + stored, delivery.ports(loads, stores))
            }
            _ => {
                let read = (traffic.loaded + traffic.write_allocated) as f64;
                let in_place = if row.store.write_allocates() { stored - traffic.write_allocated as f64 } else { 0.0 };
                (read + stored, delivery.bus(Moved { read, written: stored, in_place }, row.store))
            }
        };
        let (bound, seconds) = match (arithmetic, data) {
            (Some(arithmetic), Some(data)) if arithmetic > data => (Bound::Arithmetic, arithmetic),
            (_, Some(data)) => (Bound::Bandwidth, data),
            (Some(arithmetic), None) => (Bound::Arithmetic, arithmetic),
            (None, None) => return None,
        };
        let predicted = flops / seconds;
        // Both sides are cycles there: that the clock wandered makes neither uncertain.
        let ends = match (row.bytes_per_cycle, row.bytes_per_cycle_ci95) {
            (Some(median), Some(ci95)) if runs_at_core_clock(level) => ci95.map(|end| end / median),
            _ => payload.ci95.map(|end| end / payload.median),
        };
        let interval = [1.0, ends[0], ends[1]].map(|share| share * flops_per_s);
        Some(RooflinePoint {
            row: index,
            level: level.into(),
            intensity: flops / bytes,
            flops_per_s: interval,
            predicted,
            fraction: interval.map(|flops| flops / predicted),
            ceiling: match bound {
                Bound::Arithmetic => format!("arithmetic, {}", row.width),
                Bound::Bandwidth => format!("{level}, {} stores", row.store),
            },
            bound,
            is_partial: arithmetic.is_none() || data.is_none(),
        })
    }
}

/// The nearest caches run at the clock of the core.
fn runs_at_core_clock(level: &str) -> bool {
    ["L1", "L2"].contains(&level)
}

/// The clock at which a rate was reached, by what was done in a cycle.
fn clock(rate: f64, per_cycle: Option<f64>, threads: usize) -> Option<f64> {
    per_cycle.map(|per_cycle| rate / per_cycle / threads as f64)
}

fn clock_of(row: &Row) -> Option<f64> {
    clock(row.payload_bps?.median, row.bytes_per_cycle, row.threads)
}

/// What a figure at another clock of the core is to be multiplied with, to be one at a row's clock: wide vectors may lower
/// it, and neighbours.
fn at_clock_of(row: &Row, other: Option<f64>) -> f64 {
    clock_of(row).zip(other).map_or(1.0, |(own, other)| own / other)
}

fn threads_word(threads: usize) -> String {
    if threads == 1 { "one thread".into() } else { format!("{threads} threads") }
}

/// Bytes that the first level loads and stores for an element: an access that crosses a line touches two. Arrays begin on a
/// line, and a grid's border is left out, so that its first element is the second of its row.
fn touched(formula: &Formula, element: Element, width: Width) -> [f64; 2] {
    const LINE: i64 = 64;
    let (bytes, access) = (element.bytes() as i64, width.bytes(element) as i64);
    let border = i64::from(formula.grid);
    let cost = |column: i32| {
        let is_crossing = ((border + i64::from(column)) * bytes).rem_euclid(access) != 0;
        // Of accesses side by side, one a line crosses its end.
        let twice = if is_crossing { access as f64 / LINE as f64 } else { 0.0 };
        bytes as f64 * (1.0 + twice)
    };
    let loads = formula.loads().iter().map(|access| cost(access.column)).sum();
    [loads, formula.store().map_or(0.0, |access| cost(access.column))]
}

/// What a plain, steady row delivers: payload bytes in the first level, bus bytes beyond.
fn delivered(row: &Row) -> Option<Rate> {
    let is_plain = row.quality.is_measured()
        && row.protocol == Protocol::Steady
        && row.streams.is_empty()
        && row.misaligned_bytes == 0;
    let rate = match row.level.as_deref()? {
        "L1" => row.payload_bps,
        _ => row.bus_bps,
    };
    rate.filter(|_| is_plain)
}

impl Roofline {
    /// Thread counts, rising.
    pub fn threads(&self) -> Vec<usize> {
        let mut counts: Vec<usize> = self
            .arithmetic
            .iter()
            .map(|ceiling| ceiling.threads)
            .chain(self.bandwidth.iter().map(|ceiling| ceiling.threads))
            .collect();
        counts.sort_unstable();
        counts.dedup();
        counts
    }

    /// Most flops a second of so many threads in double precision: measured, else specified.
    pub fn peak(&self, threads: usize) -> Option<f64> {
        let ours = |ceiling: &&ArithmeticCeiling| ceiling.threads == threads && ceiling.element == Element::Double;
        let ours = || self.arithmetic.iter().filter(ours);
        let measured = ours().filter_map(|ceiling| Some(ceiling.measured?.best)).reduce(f64::max);
        measured.or_else(|| ours().filter_map(|ceiling| ceiling.specified).reduce(f64::max))
    }

    /// Most bus bytes a second of so many threads from memory.
    pub fn memory(&self, threads: usize) -> Option<f64> {
        let ours = |ceiling: &&BandwidthCeiling| ceiling.threads == threads && ceiling.level == "memory";
        self.bandwidth.iter().filter(ours).map(|ceiling| ceiling.measured.best).reduce(f64::max)
    }

    /// The answer in a sentence or two: where the ridge is, and what kernels wait for.
    pub fn answer(&self) -> Option<String> {
        if self.points.is_empty() && self.arithmetic.is_empty() {
            return None;
        }
        let mut answer = String::new();
        let ridge = self.threads().last().and_then(|&all| Some((all, self.peak(all)?, self.memory(all)?)));
        if let Some((all, peak, memory)) = ridge {
            answer = format!(
                "From memory, {} can only be fully used by loops with more than {} flops for each byte of the bus: they do \
                 {} GF/s and get {} GB/s (machine balance {} B/flop). ",
                threads_word(all),
                significant(peak / memory),
                significant(peak / 1e9),
                significant(memory / 1e9),
                significant(memory / peak),
            );
        }
        let of = |bound: Bound| self.points.iter().filter(|point| point.bound == bound).count();
        if let Some(median) = super::rows::median(self.points.iter().map(|point| point.fraction[0])) {
            answer += &format!(
                "Of {} kernel figures, {} wait for bandwidth and {} for arithmetic; the middle one reaches {} of its roof.",
                self.points.len(),
                of(Bound::Bandwidth),
                of(Bound::Arithmetic),
                percent(median),
            );
        }
        Some(answer.trim_end().into())
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

    /// 64 B loaded and 32 B stored in a cycle of 1 ns; a copy of 32 B takes one cycle: 64 B of payload.
    #[test]
    fn loads_and_stores_have_ports_of_their_own() {
        let apart = Delivery { load: Some(64e9), store: Some(32e9), copy: Some(64e9), ..Delivery::default() };
        // The triad: 16 B loaded in 0.25 cycles beside 8 B stored in 0.25.
        assert_eq!(apart.ports(16.0, 8.0), Some(0.25e-9));
        assert_eq!(apart.ports(32.0, 8.0), Some(0.5e-9));
        // A copy that takes 2 cycles for 32 B: 32 B of payload in a cycle.
        let shared = Delivery { copy: Some(32e9), ..apart };
        assert_eq!(shared.ports(16.0, 8.0), Some(0.5e-9));
        assert_eq!(Delivery { store: None, ..apart }.ports(8.0, 8.0), None);
    }

    /// The same core, but two loads and a store of 32 B take 1.5 cycles: 64 B of payload in a cycle.
    #[test]
    fn a_loop_is_cut_into_what_was_measured_together() {
        let core = Delivery { load: Some(64e9), store: Some(32e9), copy: Some(64e9), add: Some(64e9), rewrite: None };
        let near = |found: Option<f64>, expect: f64| assert!((found.unwrap() / expect - 1.0).abs() < 1e-9, "{found:?}");
        // The triad is a sum: 24 B. Schoenauer's has 8 B more to load: 24/64 + 8/64.
        near(core.ports(16.0, 8.0), 0.375e-9);
        near(core.ports(24.0, 8.0), 0.5e-9);
        // Half a copy and half a sum: 8/64 + 12/64 for 12 B loaded and 8 B stored.
        near(core.ports(12.0, 8.0), (8.0 / 64.0 + 12.0 / 64.0) * 1e-9);
        near(core.ports(8.0, 8.0), 0.25e-9);
        near(core.ports(8.0, 0.0), 0.125e-9);
        near(core.ports(0.0, 8.0), 0.25e-9);
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
