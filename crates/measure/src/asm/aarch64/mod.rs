//! The instruction set A64 of Armv8-A and later, with NEON, and with SVE where the processor's registers are longer.
//!
//! A register of a generator is a pair of vector registers, so that one access can have 256 bits: `ldp` and `stp` load
//! and store two registers by one instruction, and only as pairs can they be non-temporal (`ldnp`, `stnp`). Narrower
//! widths use the pair's first register. The last pair is for values on their way.

#[cfg(test)]
mod bounds;
mod encode;
pub mod isa;
#[cfg_attr(not(target_arch = "aarch64"), allow(dead_code))]
pub mod listing;
mod opcodes;
mod sve;
#[cfg(test)]
mod tests;

use membound_core::kernel::flops::Flops;
use membound_core::kernel::formula::{Function, Operation};
use membound_core::kernel::isa::Isa;
use membound_core::kernel::{Element, LoadKind, StoreKind, Unsupported, Width};

use crate::asm::aarch64::encode::{General, Label, PASSING, Ways, encoded};
use crate::asm::aarch64::opcodes::*;
use crate::asm::instruction_set::{Ability, Address, InstructionSet, LineStore, Operand, Shape};
use crate::code::{Call, MachineCode};

pub(crate) use encode::Assembler;

type At = Address<General>;

/// Bytes of the stack that the prologue takes: x19 to x30, then d8 to d15, which a caller expects back (AAPCS64).
const FRAME: i64 = 160;
/// Registers for values on their way: a sum's addend, a comparison's outcome.
const ADDEND: i64 = 30;
const MASK: i64 = 31;
/// Free beside pointers and counts: attempts that are left, what was found, a place to gather from.
const COUNT: General = General(14);
const FOUND: General = General(15);

const fn generals<const N: usize>(numbers: [u8; N]) -> [General; N] {
    let mut registers = [General(0); N];
    let mut k = 0;
    while k < N {
        registers[k] = General(numbers[k]);
        k += 1;
    }
    registers
}

impl InstructionSet for Assembler {
    type Register = General;
    type Label = Label;

    const BASELINE: Isa = isa::NEON;
    const CALL: General = General(0);
    const REPETITIONS: General = General(1);
    const POINTERS: &'static [General] = &generals([2, 3, 4, 5, 6, 7, 8, 9, 10]);
    /// x18 may be the operating system's.
    const CHAINS: &'static [General] =
        &generals([2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28]);
    const TRIPS: General = General(11);
    const ROWS: General = General(12);
    const ROW: General = General(13);
    /// Pairs, without the last one.
    const VECTORS: usize = 15;
    /// Gathers are of single elements.
    const GATHER: usize = 1;
    const TOO_MANY_VECTORS: &'static str = "the loop needs more pairs of vector registers than there are (15); write it with fewer different numbers, sums \
         or brackets on the right of operators";
    const ACCUMULATES: bool = true;

    /// Pairs are two chains each as they are.
    fn chains_of_flops(width: Width, isa: Isa) -> u64 {
        let is_of_pairs = width == Width::W256 && !Assembler::empty(isa).is_sve(width);
        if is_of_pairs { Flops::CHAINS } else { Flops::CHAINS_OF_32 }
    }

    fn check(ability: Ability, isa: Isa) -> Result<(), Unsupported> {
        isa::check(ability, isa)
    }

    fn new(isa: Isa) -> Self {
        Assembler::empty(isa)
    }

    fn prologue(&mut self) {
        self.emit(SUB_STACK, &[FRAME]);
        self.frame(STP_X_STACK, STP_D_STACK);
        self.load_word(Self::REPETITIONS, Self::of_call(Call::REPETITIONS));
        self.predicates();
    }

    /// No code here moves the stack pointer, so it is right after a fault, too.
    fn epilogue(&mut self) -> Label {
        let fault_exit = self.here();
        self.frame(LDP_X_STACK, LDP_D_STACK);
        self.emit(ADD_STACK, &[FRAME]);
        self.emit(RET, &[]);
        fault_exit
    }

    fn finish(self, main_loop: Label, fault_exit: Label) -> Result<MachineCode, Unsupported> {
        self.bytes(main_loop, fault_exit)
    }

    fn pad(&mut self, bytes: usize) {
        (0..bytes / 4).for_each(|_| self.emit(NOP, &[]));
    }

    fn label(&mut self) -> Label {
        self.new_label()
    }

    fn place(&mut self, label: Label) {
        self.place_label(label);
    }

    fn jump(&mut self, to: Label) {
        self.jump_to(B, None, to);
    }

    fn jump_if_zero(&mut self, register: General, to: Label) {
        self.jump_to(CBZ, Some(register), to);
    }

    fn jump_if_word_is_zero(&mut self, at: At, to: Label) {
        self.load_word(PASSING, at);
        self.jump_to(CBZ, Some(PASSING), to);
    }

    fn count_down(&mut self, register: General, to: Label) {
        self.forget(register);
        self.emit(SUBS_IMMEDIATE, &[register.0.into(), register.0.into(), 1]);
        self.jump_to(B_NE, None, to);
    }

    fn set(&mut self, to: General, value: u32) {
        self.number(to, value.into());
    }

    fn copy(&mut self, to: General, from: General) {
        self.forget(to);
        self.emit(MOV, &[to.0.into(), from.0.into()]);
    }

    fn add(&mut self, to: General, from: General) {
        self.forget(to);
        self.emit(ADD, &[to.0.into(), to.0.into(), from.0.into()]);
    }

    fn add_word(&mut self, to: General, from: At) {
        self.load_word(PASSING, from);
        self.add(to, PASSING);
    }

    fn advance(&mut self, register: General, bytes: i32) {
        self.sum(register, register, bytes.into());
    }

    fn load_word(&mut self, to: General, from: At) {
        self.access(&[LDR_X, LDUR_X], &[to.0.into()], from);
        self.forget(to);
    }

    fn store_word(&mut self, to: At, from: General) {
        self.access(&[STR_X, STUR_X], &[from.0.into()], to);
    }

    fn attempt(&mut self, [line, mine, theirs]: [General; 3], most: u32, passed: Label) -> Label {
        self.set(COUNT, most);
        let attempt = self.here();
        if self.isa.lse {
            self.copy(FOUND, mine);
            self.emit(CASAL, &[FOUND.0.into(), theirs.0.into(), line.0.into()]);
            self.emit(CMP, &[FOUND.0.into(), mine.0.into()]);
            self.jump_to(B_EQ, None, passed);
        } else {
            self.attempt_by_monitor([line, mine, theirs], passed);
        }
        self.count_down(COUNT, attempt);
        attempt
    }

    fn flush(&mut self, line: At) {
        let mut at = line.base;
        if line.offset != 0 {
            self.sum(PASSING, line.base, line.offset);
            at = PASSING;
        }
        self.emit(DC_CIVAC, &[at.0.into()]);
    }

    fn fence(&mut self) {
        self.emit(DSB, &[]);
    }

    fn fence_stores(&mut self) {
        self.emit(DSB_STORES, &[]);
    }

    fn fuses(&self) -> bool {
        self.isa.fma
    }

    fn reads_memory(&self) -> bool {
        false
    }

    fn kept_for_stores(_store: StoreKind) -> usize {
        0
    }

    fn prepare_stores(&mut self, _element: Element, _kept: [usize; 2]) {}

    fn constant_of(_function: Function, _element: Element) -> Option<u64> {
        None
    }

    fn fill(&mut self, shape: Shape, to: usize, bits: u64) {
        if bits == 0 {
            return self.clear(shape.element, to);
        }
        self.number(PASSING, bits);
        if self.is_sve(shape.width) {
            return self.sve_fill(shape.element, vector(to));
        }
        let duplicate = of_element(shape.element, [DUP_2D_X, DUP_4S_W]);
        self.each(shape.width, |asm, half| asm.emit(duplicate, &[vector(to) + half, PASSING.0.into()]));
    }

    fn fill_from(&mut self, shape: Shape, to: usize, from: At) {
        self.access(&[LDR_D, LDUR_D], &[ADDEND], from);
        if shape.element == Element::Float {
            self.emit(FCVT_S_D, &[ADDEND, ADDEND]);
        }
        if self.is_sve(shape.width) {
            return self.sve_fill_from(shape.element, vector(to), ADDEND);
        }
        let duplicate = of_element(shape.element, [DUP_2D, DUP_4S]);
        self.each(shape.width, |asm, half| asm.emit(duplicate, &[vector(to) + half, ADDEND]));
    }

    fn clear(&mut self, _element: Element, to: usize) {
        self.each(Width::W256, |asm, half| asm.emit(MOVI_ZERO, &[vector(to) + half]));
    }

    fn copy_vector(&mut self, shape: Shape, to: usize, from: usize) {
        if self.is_sve(shape.width) {
            self.sve_copy(vector(to), vector(from));
        } else if to != from {
            self.each(shape.width, |asm, half| {
                asm.emit(MOV_V, &[vector(to) + half, vector(from) + half, vector(from) + half]);
            });
        }
    }

    fn load(&mut self, load: LoadKind, shape: Shape, to: usize, from: At) {
        let to = vector(to);
        match (load, shape.width) {
            (_, width) if self.is_sve(width) => self.sve_load(load, shape, to, from),
            (LoadKind::Nt, Width::W256) => self.access(&[LDNP_Q], &[to, to + 1], from),
            (LoadKind::Regular, Width::W256) => self.two(LDP_Q, &[LDR_Q, LDUR_Q], to, from),
            _ => self.access(one(shape, LOADS), &[to], from),
        }
    }

    /// Single elements beside non-temporal vectors are stored as others are: no instruction does otherwise.
    fn store(&mut self, store: StoreKind, shape: Shape, to: At, from: usize) {
        let from = vector(from);
        match (store, shape.width) {
            (_, width) if self.is_sve(width) => self.sve_store(store, shape, to, from),
            (StoreKind::Nt, Width::W256) => self.access(&[STNP_Q], &[from, from + 1], to),
            (_, Width::W256) => self.two(STP_Q, &[STR_Q, STUR_Q], from, to),
            _ => self.access(one(shape, STORES), &[from], to),
        }
    }

    fn gather(&mut self, shape: Shape, to: usize, table: General, places: At) {
        if self.is_sve(shape.width) {
            return self.sve_gather(shape, vector(to), table, places);
        }
        // No index is negative: the upper half is zero.
        let ways = of_element(shape.element, [[LDR_X, LDUR_X], [LDR_W, LDUR_W]]);
        self.access(&ways, &[FOUND.0.into()], places);
        let load = of_element(shape.element, [LDR_D_INDEXED, LDR_S_INDEXED]);
        self.emit(load, &[vector(to), table.0.into(), FOUND.0.into()]);
    }

    fn binary(&mut self, op: Operation, shape: Shape, to: usize, left: usize, right: Operand<General>) {
        let right = self.register(right);
        let [to, left, right] = [to, left, right].map(vector);
        match op {
            _ if self.is_sve(shape.width) => self.sve_binary(op, shape, [to, left, right]),
            Operation::Minimum => self.choose(shape, [to, left, right], [right, left]),
            Operation::Maximum => self.choose(shape, [to, left, right], [left, right]),
            _ => {
                let opcode = arithmetic(op, shape);
                self.each(shape.width, |asm, half| asm.emit(opcode, &[to + half, left + half, right + half]));
            }
        }
    }

    fn unary(&mut self, function: Function, shape: Shape, to: usize, from: usize, _constant: Option<usize>) {
        if self.is_sve(shape.width) {
            return self.sve_unary(function, shape, vector(to), vector(from));
        }
        let opcode = match function {
            Function::Negate => of_shape(shape, [FNEG_D, FNEG_S, FNEG_2D, FNEG_4S]),
            Function::Absolute => of_shape(shape, [FABS_D, FABS_S, FABS_2D, FABS_4S]),
            Function::Root => of_shape(shape, [FSQRT_D, FSQRT_S, FSQRT_2D, FSQRT_4S]),
        };
        self.each(shape.width, |asm, half| asm.emit(opcode, &[vector(to) + half, vector(from) + half]));
    }

    fn add_product(&mut self, shape: Shape, sum: usize, x: usize, y: Operand<General>) {
        let y = self.register(y);
        let [sum, x, y] = [sum, x, y].map(vector);
        let opcode = of_shape(shape, [FMADD_D, FMADD_S, FMLA_2D, FMLA_4S]);
        match shape.width {
            Width::Scalar => self.emit(opcode, &[sum, x, y, sum]),
            width if self.is_sve(width) => self.sve_add_product(shape, [sum, x, y]),
            width => self.each(width, |asm, half| asm.emit(opcode, &[sum + half, x + half, y + half])),
        }
    }

    /// By way of a copy, as vectors have no such instruction: it overwrites the addend alone.
    fn multiply_add(&mut self, shape: Shape, register: usize, factor: usize, addend: Operand<General>) {
        let addend = self.register(addend);
        let [register, factor, addend] = [register, factor, addend].map(vector);
        if shape.width == Width::Scalar {
            let opcode = of_element(shape.element, [FMADD_D, FMADD_S]);
            return self.emit(opcode, &[register, register, factor, addend]);
        }
        if self.is_sve(shape.width) {
            self.sve_copy(ADDEND, addend);
            self.sve_add_product(shape, [ADDEND, register, factor]);
            return self.sve_copy(register, ADDEND);
        }
        let opcode = of_element(shape.element, [FMLA_2D, FMLA_4S]);
        self.each(shape.width, |asm, half| {
            asm.emit(MOV_V, &[ADDEND, addend + half, addend + half]);
            asm.emit(opcode, &[ADDEND, register + half, factor + half]);
            asm.emit(MOV_V, &[register + half, ADDEND, ADDEND]);
        });
    }

    /// What is filled with is zeros: a kernel that fills with another number is refused.
    fn string(&mut self, element: Element, value: Option<usize>) {
        self.load_word(Self::TRIPS, Self::of_call(Call::TAIL));
        let bytes = of_element(element, [LSL_3, LSL_2]);
        self.emit(bytes, &[Self::TRIPS.0.into(), Self::TRIPS.0.into()]);
        if value.is_some() {
            self.number(PASSING, 0);
        }
        self.whole_string(value.map(|_| PASSING));
    }

    fn byte_string(&mut self, fills: bool) {
        self.load_word(Self::TRIPS, Self::of_call(Call::TAIL));
        self.whole_string(fills.then_some(Self::POINTERS[2]));
    }

    fn zero_block(&mut self, pointer: General) {
        self.emit(DC_ZVA, &[pointer.0.into()]);
        self.sum(pointer, pointer, self.isa.zva_bytes.into());
    }

    fn write_line(&mut self, _by: LineStore, to: General, _from: General) {
        self.zero_block(to);
    }

    fn load_bytes(&mut self, bytes: u64, to: usize, from: At) {
        self.load(LoadKind::Regular, of_bytes(bytes), to, from);
    }

    /// A load clears the rest of its register, but not the other one of a pair.
    fn clear_beyond(&mut self, bytes: u64, register: usize) {
        if bytes < 32 && !self.is_sve(Width::W256) {
            self.emit(MOVI_ZERO, &[vector(register) + 1]);
        }
    }

    fn store_bytes(&mut self, bytes: u64, to: At, from: usize) {
        self.store(StoreKind::Regular, of_bytes(bytes), to, from);
    }

    fn load_aligned(&mut self, to: usize, from: At) {
        self.load(LoadKind::Regular, of_bytes(16), to, from);
    }

    fn store_aligned(&mut self, is_nt: bool, to: At, from: usize) {
        if !is_nt {
            return self.store(StoreKind::Regular, of_bytes(16), to, from);
        }
        // 16 bytes are a pair of doubles.
        self.emit(DUP_UPPER, &[MASK, vector(from)]);
        self.access(&[STNP_D], &[vector(from), MASK], to);
    }

    fn add_aligned(&mut self, to: usize, from: At) {
        self.access(&[LDR_Q, LDUR_Q], &[ADDEND], from);
        self.emit(FADD_2D, &[vector(to), vector(to), ADDEND]);
    }
}

impl Assembler {
    /// Saves the caller's registers, or brings them back.
    fn frame(&mut self, generals: Opcode, vectors: Opcode) {
        (0..6).for_each(|k| self.emit(generals, &[19 + 2 * k, 20 + 2 * k, 16 * k]));
        (0..4).for_each(|k| self.emit(vectors, &[8 + 2 * k, 9 + 2 * k, 96 + 16 * k]));
    }

    /// Once, or for both registers of a pair.
    fn each(&mut self, width: Width, mut emit: impl FnMut(&mut Self, i64)) {
        (0..if width == Width::W256 { 2 } else { 1 }).for_each(|half| emit(self, half));
    }

    /// An access to both registers of a pair: by one instruction, or by two where it is not at a multiple of 16 bytes.
    fn two(&mut self, both: Opcode, one: &Ways, first: i64, at: At) {
        let alone = |half: i64| encoded(one, &[first], at.base, at.offset + 16 * half).is_some();
        if at.offset % 16 != 0 && alone(0) && alone(1) {
            self.access(one, &[first], at);
            return self.access(one, &[first + 1], Address { offset: at.offset + 16, ..at });
        }
        self.access(&[both], &[first, first + 1], at);
    }

    fn register(&mut self, operand: Operand<General>) -> usize {
        match operand {
            Operand::Register(register) => register,
            Operand::Memory(_) => {
                self.refuse(Unsupported::Assembler("no arithmetic reads memory".into()));
                0
            }
        }
    }

    /// `to = if greater > less { left } else { right }`. The instructions for a minimum and maximum treat zeros and what is
    /// no number otherwise than a comparison does, by which compilers translate them.
    fn choose(&mut self, shape: Shape, [to, left, right]: [i64; 3], [greater, less]: [i64; 2]) {
        let compare = of_shape(shape, [FCMGT_D, FCMGT_S, FCMGT_2D, FCMGT_4S]);
        self.each(shape.width, |asm, half| {
            asm.emit(compare, &[MASK, greater + half, less + half]);
            if to == right {
                return asm.emit(BIT, &[to + half, left + half, MASK]);
            }
            if to != left {
                asm.emit(MOV_V, &[to + half, left + half, left + half]);
            }
            asm.emit(BIF, &[to + half, right + half, MASK]);
        });
    }

    /// As many bytes as [`Self::TRIPS`] says: from the second pointer to the first, or a register's low byte. Prologue, main
    /// part and epilogue stand together, with the same registers.
    fn whole_string(&mut self, byte: Option<General>) {
        if !self.isa.mops {
            return self.refuse(Unsupported::NotOnThisProcessor(isa::NO_MOPS));
        }
        let [to, from, count] = [Self::POINTERS[0], Self::POINTERS[1], Self::TRIPS].map(|register| register.0.into());
        let (parts, operands) = match byte {
            Some(byte) => ([SETP, SETM, SETE], [to, count, byte.0.into()]),
            None => ([CPYFP, CPYFM, CPYFE], [to, from, count]),
        };
        parts.into_iter().for_each(|part| self.emit(part, &operands));
        [Self::POINTERS[0], Self::POINTERS[1], Self::TRIPS].into_iter().for_each(|moved| self.forget(moved));
    }

    /// An attempt without LSE: the store passes only if nobody has had the line since the load.
    fn attempt_by_monitor(&mut self, [line, mine, theirs]: [General; 3], passed: Label) {
        let failed = self.new_label();
        self.emit(LDAXR, &[FOUND.0.into(), line.0.into()]);
        self.emit(CMP, &[FOUND.0.into(), mine.0.into()]);
        self.jump_to(B_NE, None, failed);
        self.emit(STLXR, &[PASSING.0.into(), theirs.0.into(), line.0.into()]);
        self.jump_to(CBZ_W, Some(PASSING), passed);
        self.place_label(failed);
    }
}

/// Loads and stores of one register: doubles, floats, whole ones.
type Single = [[Opcode; 2]; 3];
const LOADS: &Single = &[[LDR_D, LDUR_D], [LDR_S, LDUR_S], [LDR_Q, LDUR_Q]];
const STORES: &Single = &[[STR_D, STUR_D], [STR_S, STUR_S], [STR_Q, STUR_Q]];

fn one(shape: Shape, ways: &'static Single) -> &'static Ways {
    match (shape.width, shape.element) {
        (Width::Scalar, Element::Double) => &ways[0],
        (Width::Scalar, Element::Float) => &ways[1],
        _ => &ways[2],
    }
}

/// The first register of a generator's pair; beyond the 16 pairs their second ones, for what is no wider than one.
fn vector(register: usize) -> i64 {
    let register = register as i64;
    if register < 16 { 2 * register } else { 2 * (register - 16) + 1 }
}

fn of_element<T>(element: Element, [double, float]: [T; 2]) -> T {
    match element {
        Element::Double => double,
        Element::Float => float,
    }
}

/// One of: a double, a float, two doubles, four floats.
fn of_shape(shape: Shape, [double, float, doubles, floats]: [Opcode; 4]) -> Opcode {
    match shape.width {
        Width::Scalar => of_element(shape.element, [double, float]),
        _ => of_element(shape.element, [doubles, floats]),
    }
}

fn arithmetic(op: Operation, shape: Shape) -> Opcode {
    of_shape(
        shape,
        match op {
            Operation::Add => [FADD_D, FADD_S, FADD_2D, FADD_4S],
            Operation::Subtract => [FSUB_D, FSUB_S, FSUB_2D, FSUB_4S],
            Operation::Multiply => [FMUL_D, FMUL_S, FMUL_2D, FMUL_4S],
            Operation::Divide => [FDIV_D, FDIV_S, FDIV_2D, FDIV_4S],
            Operation::Minimum | Operation::Maximum => [FCMGT_D, FCMGT_S, FCMGT_2D, FCMGT_4S],
        },
    )
}

/// A register, or a part of one, of so many bytes.
fn of_bytes(bytes: u64) -> Shape {
    let (width, element) = match bytes {
        4 => (Width::Scalar, Element::Float),
        8 => (Width::Scalar, Element::Double),
        32 => (Width::W256, Element::Double),
        64 => (Width::W512, Element::Double),
        _ => (Width::W128, Element::Double),
    };
    Shape { width, element }
}
