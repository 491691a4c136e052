//! Kernels as machine code, generated from a row's formula.
//!
//! ```text
//! if a pass is whole blocks of plain arrays: for each repetition, `blocks` times: `unroll` vectors; else
//! for each repetition                      (sums start from 0 again)
//!   for each row                           (plain arrays have one)
//!     pointers = call.pointers + row * row_bytes
//!     peel    times: one element           (until an aligned store may be used)
//!     blocks  times: `unroll` vectors
//!     vectors times: one vector
//!     tail    times: one element
//! fence, if stores went around the cache   (inside the timed part: until then nothing is in memory)
//! ```
//!
//! Where stores are of whole blocks of zeros, these stand for vectors.
//!
//! The trip counts come ready from [`Call`], so that alignment is decided in plain Rust and a pass over a small working
//! set costs a handful of instructions beside the loop itself. Each pointer is bumped on its own: indexed addresses cost
//! a port on some Intel cores. The main loop starts on a cache line.

use membound_core::kernel::catalog::Kernel;
use membound_core::kernel::formula::{Access, Expr, Formula, Operation, Role, Target};
use membound_core::kernel::isa::Isa;
use membound_core::kernel::{Element, LoadKind, StoreKind, Unsupported, Variant, Width};

use crate::asm::instruction_set::{Ability, Address, Content, InstructionSet, Operand, Shape, on_a_line};
use crate::code::{Call, MachineCode, partial_sums};

pub(crate) fn assemble<S: InstructionSet>(variant: &Variant, isa: Isa) -> Result<MachineCode, Unsupported> {
    let formula = Kernel::find(&variant.kernel)?.formula();
    check::<S>(&formula, variant, isa)?;
    on_a_line(|padding| Generator::<S>::new(&formula, variant, isa, padding)?.generate())
}

fn check<S: InstructionSet>(formula: &Formula, variant: &Variant, isa: Isa) -> Result<(), Unsupported> {
    use Unsupported::NoSuchInstruction as Never;
    let Variant { store, load, width, .. } = *variant;
    S::check(Ability::Width(width), isa)?;
    if store != StoreKind::Regular {
        if formula.store().is_none() {
            return Err(Never("this kernel stores nothing, so it has no store kind but regular"));
        }
        S::check(Ability::Store { store, width, load, content: content(formula) }, isa)?;
    }
    if load == LoadKind::Nt {
        if formula.loads().is_empty() {
            return Err(Never("this kernel loads nothing"));
        }
        if !formula.loads().iter().any(|access| formula.may_load_nt(access)) {
            return Err(Never("this kernel's loads are at an offset or by an index, and those are never non-temporal"));
        }
        S::check(Ability::LoadNt(width), isa)?;
    }
    if formula.gathers() {
        S::check(Ability::Gather(width), isa)?;
    }
    if !(1..=32).contains(&variant.unroll) {
        return Err(Never("unroll must be from 1 to 32"));
    }
    Ok(())
}

/// What is stored, as far as instructions can do it that know no arithmetic.
fn content(formula: &Formula) -> Content {
    let is_plain = formula.margins().least_columns() == 1 && !formula.grid && !formula.is_in_place();
    match &formula.statements[..] {
        [statement] if is_plain => match statement.value {
            Expr::Element(_) => Content::Copy,
            Expr::Number(_) if formula.writes_zeros() => Content::Zeros,
            Expr::Scalar(_) | Expr::Number(_) => Content::Number,
            _ => Content::Computed,
        },
        _ => Content::Computed,
    }
}

/// Who lives in which vector register: partial sums at the bottom, then temporaries; at the top the scalar, below it
/// other constants, what stores keep, and the sums of single elements.
struct Registers {
    /// The last one.
    scalar: usize,
    /// Bits of elements; each lies below the one before.
    constants: Vec<u64>,
    /// Registers of each sum.
    partial_sums: usize,
    /// First register of sums of single elements.
    singles: usize,
    /// What stores keep.
    kept: [usize; 2],
    /// First temporary.
    free: usize,
}

impl Registers {
    /// Nothing, if there are not enough.
    fn new<S: InstructionSet>(formula: &Formula, variant: &Variant) -> Option<Self> {
        let scalar = S::VECTORS - 1;
        let mut constants = Vec::new();
        let mut need = 0;
        for statement in &formula.statements {
            collect_constants::<S>(&statement.value, variant.element, &mut constants);
            need = need.max(temporaries::<S>(&statement.value));
        }
        let above_kept = scalar.checked_sub(constants.len())?;
        let singles = above_kept.checked_sub(S::kept_for_stores(variant.store) + formula.sums.len())?;
        let partial_sums = partial_sums(formula.sums.len());
        let free = formula.sums.len() * partial_sums;
        let kept = [above_kept.saturating_sub(1), above_kept.saturating_sub(2)];
        (free + need <= singles).then_some(Registers { scalar, constants, partial_sums, singles, kept, free })
    }

    fn constant(&self, bits: u64) -> usize {
        let place = self.constants.iter().position(|known| *known == bits);
        self.scalar - 1 - place.expect("all constants are collected first")
    }
}

/// Which access of a trip, and how wide.
#[derive(Clone, Copy)]
struct Step {
    width: Width,
    k: u64,
    store: StoreKind,
}

struct Generator<'a, S: InstructionSet> {
    asm: S,
    formula: &'a Formula,
    variant: &'a Variant,
    /// Bytes of padding before the repeated part, for the main loop to start on a line.
    padding: usize,
    /// (stream, row) of each pointer register.
    pointers: Vec<(usize, i32)>,
    registers: Registers,
    /// Whether `x*y + z` is one instruction.
    contracts: bool,
}

impl<'a, S: InstructionSet> Generator<'a, S> {
    fn new(formula: &'a Formula, variant: &'a Variant, isa: Isa, padding: usize) -> Result<Self, Unsupported> {
        let pointers = formula.lanes_of_access();
        if pointers.len() > S::POINTERS.len() {
            return Err(Unsupported::NoSuchInstruction("more streams than address registers (9)"));
        }
        let registers =
            Registers::new::<S>(formula, variant).ok_or(Unsupported::NoSuchInstruction(S::TOO_MANY_VECTORS))?;
        let contracts = isa.contracts(formula.store().is_some());
        Ok(Generator { asm: S::new(isa), formula, variant, padding, pointers, registers, contracts })
    }

    fn generate(mut self) -> Result<MachineCode, Unsupported> {
        let done = self.asm.label();
        self.asm.prologue();
        self.constants();
        let even = self.has_even_passes().then(|| self.even_passes(done));
        let general = self.passes(even.is_none());
        self.asm.place(done);
        if self.variant.store.bypasses_caches() {
            self.asm.fence_stores();
        }
        self.results();
        self.asm.end(even.unwrap_or(general))
    }

    /// Passes of whole blocks need nothing from memory but their streams, if their pointers fit in registers twice.
    /// Loops that only load gain nothing from it: their pairs of loads then fell into a rhythm of 60 instead of 63 bytes
    /// a cycle on Zen 4, which the fetches between passes break up.
    fn has_even_passes(&self) -> bool {
        let stores = self.formula.store().is_some() && self.variant.store != StoreKind::Rep;
        stores && !self.formula.grid && 2 * self.pointers.len() <= S::POINTERS.len()
    }

    /// All repetitions, where blocks are all there is. A short pass over L1 feels every load beside its own: with trip
    /// counts and pointers fetched each time, the triad over 24 KiB ran at 94 % of the ports' limit.
    fn even_passes(&mut self, done: S::Label) -> S::Label {
        let general = self.asm.label();
        let count = self.pointers.len();
        self.asm.jump_if_word_is_zero(S::of_call(Call::EVEN), general);
        for (k, home) in S::POINTERS[count..2 * count].iter().enumerate() {
            self.asm.load_word(*home, S::pointer_of_call(k));
        }
        self.asm.load_word(S::ROWS, S::of_call(Call::BLOCKS));
        self.asm.pad(self.padding);
        let repeat = self.asm.here();
        self.clear_sums();
        for k in 0..count {
            self.asm.copy(S::POINTERS[k], S::POINTERS[count + k]);
        }
        self.asm.copy(S::TRIPS, S::ROWS);
        let again = self.asm.here();
        self.main_trip(self.variant.unroll);
        self.asm.count_down(S::TRIPS, again);
        self.asm.count_down(S::REPETITIONS, repeat);
        self.asm.jump(done);
        self.asm.place(general);
        again
    }

    /// All repetitions, whatever their shape.
    fn passes(&mut self, padded: bool) -> S::Label {
        if padded {
            self.asm.pad(self.padding);
        }
        let repeat = self.asm.here();
        self.clear_sums();
        let next_row = self.formula.grid.then(|| {
            self.asm.set(S::ROW, 0);
            self.asm.load_word(S::ROWS, S::of_call(Call::ROWS));
            self.asm.here()
        });
        for (k, pointer) in S::POINTERS.iter().enumerate().take(self.pointers.len()) {
            self.asm.load_word(*pointer, S::pointer_of_call(k));
            if next_row.is_some() {
                self.asm.add(*pointer, S::ROW);
            }
        }
        let main_loop = if self.variant.store == StoreKind::Rep { self.string() } else { self.sweep() };
        if let Some(next_row) = next_row {
            self.asm.add_word(S::ROW, S::of_call(Call::ROW_BYTES));
            self.asm.count_down(S::ROWS, next_row);
        }
        self.asm.count_down(S::REPETITIONS, repeat);
        main_loop
    }

    /// The loops over one row: peel, blocks, vectors, tail.
    fn sweep(&mut self) -> S::Label {
        let (width, unroll) = (self.variant.width, self.variant.unroll);
        self.counted_loop(Call::PEEL, Self::single);
        let main_loop = self.counted_loop(Call::BLOCKS, |this| this.main_trip(unroll));
        if width != Width::Scalar || unroll > 1 {
            self.counted_loop(Call::VECTORS, |this| this.main_trip(1));
        }
        self.counted_loop(Call::TAIL, Self::single);
        main_loop
    }

    fn counted_loop(&mut self, count: i32, trip: impl FnOnce(&mut Self)) -> S::Label {
        let trips = self.asm.begin_trips(count);
        trip(self);
        self.asm.end_trips(trips)
    }

    /// String instructions over `tail` elements.
    fn string(&mut self) -> S::Label {
        let here = self.asm.here();
        let value = &self.formula.statements[0].value;
        let is_copy = matches!(value, Expr::Element(_));
        let step = Step { width: Width::Scalar, k: 0, store: self.variant.store };
        let value = (!is_copy).then(|| self.evaluate(value, 0, step));
        self.asm.string(self.variant.element, value);
        here
    }

    /// One trip of a loop over whole vectors, or over whole blocks of zeros.
    fn main_trip(&mut self, unroll: u32) {
        match self.variant.store {
            StoreKind::Zero => (0..unroll).for_each(|_| self.asm.zero_block(S::POINTERS[0])),
            store => self.trip(self.variant.width, store, unroll),
        }
    }

    /// One element before or after whole accesses. A masked store addresses bytes beyond it, where no memory need be.
    fn single(&mut self) {
        let store = match self.variant.store {
            StoreKind::NtMasked => StoreKind::Nt,
            store => store,
        };
        self.trip(Width::Scalar, store, 1);
    }

    /// One trip of a loop: `unroll` accesses to each stream, then the pointers move on.
    fn trip(&mut self, width: Width, store: StoreKind, unroll: u32) {
        for k in 0..u64::from(unroll) {
            self.element(Step { width, k, store });
        }
        let step = (u64::from(unroll) * width.bytes(self.variant.element)) as i32;
        for (pointer, (stream, _)) in S::POINTERS.iter().zip(&self.pointers) {
            // Indices count from a gathered stream's first element.
            if self.formula.streams[*stream].role != Role::Gathered {
                self.asm.advance(*pointer, step);
            }
        }
    }

    /// One access of a trip: load, compute, store or add up.
    fn element(&mut self, step: Step) {
        let (formula, free) = (self.formula, self.registers.free);
        for statement in &formula.statements {
            match statement.target {
                Target::Nothing => {
                    self.evaluate(&statement.value, free, step);
                }
                Target::Element(access) => {
                    let register = self.evaluate(&statement.value, free, step);
                    self.asm.store(step.store, self.shape(step), self.address(access, step), register);
                }
                Target::Sum(sum) => {
                    let partial = self.registers.partial_sums;
                    // Single elements have a sum of their own, unless all are single.
                    let is_whole = step.width == self.variant.width;
                    let whole = sum * partial + step.k as usize % partial;
                    let register = if is_whole { whole } else { self.registers.singles + sum };
                    self.add_to(register, &statement.value, free, step);
                }
            }
        }
    }

    /// `sum += value`, fused where that is as fast.
    fn add_to(&mut self, sum: usize, value: &Expr, free: usize, step: Step) {
        match value {
            Expr::Binary(Operation::Multiply, left, right) if self.contracts => {
                self.add_product(sum, [left, right], free, step);
            }
            _ => {
                let value = self.operand(value, free, step);
                self.asm.binary(Operation::Add, self.shape(step), sum, sum, value);
            }
        }
    }

    /// `sum += x * y`, fused.
    fn add_product(&mut self, sum: usize, [x, y]: [&Expr; 2], free: usize, step: Step) {
        let x = self.evaluate(x, free, step);
        let y = self.operand(y, free + 1, step);
        self.asm.add_product(self.shape(step), sum, x, y);
    }

    /// Computes `expr` and returns the register it is in: `free` or, for a constant, the constant's own.
    fn evaluate(&mut self, expr: &Expr, free: usize, step: Step) -> usize {
        let shape = self.shape(step);
        match expr {
            Expr::Scalar(_) => return self.registers.scalar,
            Expr::Number(number) => return self.registers.constant(bits(self.variant.element, *number)),
            Expr::Element(access) => {
                let whole = step.width == self.variant.width && self.formula.may_load_nt(access);
                let load = if whole { self.variant.load } else { LoadKind::Regular };
                self.asm.load(load, shape, free, self.address(*access, step));
            }
            Expr::Gathered { stream, index } => {
                self.asm.gather(shape, free, self.pointer(*stream, 0), self.address(*index, step));
            }
            Expr::Unary(function, operand) => {
                let operand = self.evaluate(operand, free, step);
                let constant = S::constant_of(*function, shape.element).map(|bits| self.registers.constant(bits));
                self.asm.unary(*function, shape, free, operand, constant);
            }
            Expr::MultiplyAdd(operands) => {
                let [x, y, z] = &**operands;
                if self.asm.fuses() {
                    self.multiply_add([x, y], z, free, step);
                } else {
                    self.binary(Operation::Multiply, [x, y], free, step);
                    let z = self.operand(z, free + 1, step);
                    self.asm.binary(Operation::Add, shape, free, free, z);
                }
            }
            Expr::Binary(operation, left, right) => match Expr::fused(left, right) {
                Some((factors, addend)) if *operation == Operation::Add && self.contracts => {
                    self.multiply_add(factors, addend, free, step);
                }
                _ => self.binary(*operation, [left, right], free, step),
            },
        }
        free
    }

    /// `free = left op right`
    fn binary(&mut self, operation: Operation, [left, right]: [&Expr; 2], free: usize, step: Step) {
        let left = self.evaluate(left, free, step);
        let right = self.operand(right, free + 1, step);
        self.asm.binary(operation, self.shape(step), free, left, right);
    }

    /// `free = x * y + addend`, fused. A factor is loaded first where the addend can stay in memory: Zen 5 then moves 171
    /// bytes of a triad in a cycle in its first level, and 134 the other way round.
    fn multiply_add(&mut self, factors: [&Expr; 2], addend: &Expr, free: usize, step: Step) {
        let shape = self.shape(step);
        match (own_first(factors), self.in_memory(addend, step)) {
            (Some([own, other]), Some(addend)) => {
                self.evaluate(own, free, step);
                let other = self.evaluate(other, free + 1, step);
                self.asm.multiply_add(shape, free, other, Operand::Memory(addend));
            }
            _ => {
                let addend = self.evaluate(addend, free, step);
                self.asm.copy_vector(shape, free, addend);
                self.add_product(free, factors, free + 1, step);
            }
        }
    }

    /// As [`Self::evaluate`], but an element stays in memory where the instruction can read it from there.
    fn operand(&mut self, expr: &Expr, free: usize, step: Step) -> Operand<S::Register> {
        match self.in_memory(expr, step) {
            Some(address) => Operand::Memory(address),
            None => Operand::Register(self.evaluate(expr, free, step)),
        }
    }

    /// Where an instruction can read this from, without a load of its own.
    fn in_memory(&self, expr: &Expr, step: Step) -> Option<Address<S::Register>> {
        match expr {
            Expr::Element(access) if self.asm.reads_memory() && self.variant.load == LoadKind::Regular => {
                Some(self.address(*access, step))
            }
            _ => None,
        }
    }

    fn constants(&mut self) {
        let shape = Shape { width: self.variant.width, element: self.variant.element };
        self.asm.fill_from(shape, self.registers.scalar, S::of_call(Call::SCALAR));
        for bits in &self.registers.constants {
            self.asm.fill(shape, self.registers.constant(*bits), *bits);
        }
        if S::kept_for_stores(self.variant.store) > 0 {
            self.asm.prepare_stores(self.variant.element, self.registers.kept);
        }
    }

    fn clear_sums(&mut self) {
        let (partial, singles) = (self.registers.free, self.registers.singles);
        for register in (0..partial).chain(singles..singles + self.formula.sums.len()) {
            self.asm.clear(self.variant.element, register);
        }
    }

    /// Leaves the sums, or the last vector loaded, where the caller can check them.
    fn results(&mut self) {
        let shape = |width| Shape { width, element: self.variant.element };
        let width = self.variant.width;
        let (whole, singles): (usize, Vec<usize>) = match self.formula.sums.len() {
            0 if self.formula.stores().is_empty() => (1, vec![0]),
            sums => (self.registers.free, (0..sums).map(|sum| self.registers.singles + sum).collect()),
        };
        for k in 0..whole {
            let at = Call::LANES + (k as u64 * width.bytes(self.variant.element)) as i32;
            self.asm.store(StoreKind::Regular, shape(width), S::of_call(at), k);
        }
        for (sum, register) in singles.into_iter().enumerate() {
            let at = Call::SINGLES + 8 * sum as i32;
            self.asm.store(StoreKind::Regular, shape(Width::Scalar), S::of_call(at), register);
        }
    }

    fn shape(&self, step: Step) -> Shape {
        Shape { width: step.width, element: self.variant.element }
    }

    fn pointer(&self, stream: usize, row: i32) -> S::Register {
        let pointer = self.pointers.iter().position(|p| *p == (stream, row)).expect("all accesses have one");
        S::POINTERS[pointer]
    }

    fn address(&self, access: Access, step: Step) -> Address<S::Register> {
        let element = self.variant.element;
        let column = i64::from(access.column) * element.bytes() as i64;
        let offset = (step.k * step.width.bytes(element)) as i64 + column;
        Address { base: self.pointer(access.stream, access.row), offset }
    }
}

/// The factors, first one whose register is its own and may be overwritten: a constant's may not.
fn own_first([x, y]: [&Expr; 2]) -> Option<[&Expr; 2]> {
    let is_own = |factor: &Expr| !matches!(factor, Expr::Scalar(_) | Expr::Number(_));
    match (is_own(x), is_own(y)) {
        (true, _) => Some([x, y]),
        (false, true) => Some([y, x]),
        (false, false) => None,
    }
}

/// The bits of a number as an element.
fn bits(element: Element, number: f64) -> u64 {
    match element {
        Element::Double => number.to_bits(),
        Element::Float => (number as f32).to_bits().into(),
    }
}

/// Registers that computing `expr` takes at most, fused or not: a fused operation holds its sum while both factors are
/// computed.
fn temporaries<S: InstructionSet>(expr: &Expr) -> usize {
    let temporaries = temporaries::<S>;
    match expr {
        Expr::Scalar(_) | Expr::Number(_) => 0,
        Expr::Element(_) => 1,
        Expr::Gathered { .. } => S::GATHER,
        Expr::Unary(_, operand) => temporaries(operand).max(1),
        Expr::MultiplyAdd(operands) => {
            let [x, y, z] = operands.each_ref().map(temporaries);
            1 + z.max(x).max(1 + y)
        }
        Expr::Binary(operation, left, right) => {
            let apart = temporaries(left).max(1 + temporaries(right));
            match Expr::fused(left, right) {
                Some(([x, y], addend)) if *operation == Operation::Add => {
                    let product = temporaries(x).max(1 + temporaries(y));
                    apart.max(temporaries(addend)).max(1 + product)
                }
                _ => apart,
            }
        }
    }
}

/// The bits of all elements that instructions take from registers of their own, each once.
fn collect_constants<S: InstructionSet>(expr: &Expr, element: Element, found: &mut Vec<u64>) {
    expr.each(&mut |expr| {
        let bits = match expr {
            Expr::Number(number) => Some(bits(element, *number)),
            Expr::Unary(function, _) => S::constant_of(*function, element),
            _ => None,
        };
        if let Some(bits) = bits.filter(|bits| !found.contains(bits)) {
            found.push(bits);
        }
    });
}
