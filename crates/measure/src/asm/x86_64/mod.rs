//! The instruction set x86-64, with what its processors may have beside: AVX, AVX-512 and others.

mod encode;
mod flushing;
pub mod isa;
pub mod listing;
mod opcodes;
pub mod timed_calls;
mod x87;

use iced_x86::Register::{self, R8, R9, R10, R11, R12, R13, R14, R15, RAX, RBP, RBX, RCX, RDI, RDX, RSI, RSP};
use iced_x86::{Code, Instruction, MemoryOperand};
use membound_core::kernel::formula::{Function, Operation};
use membound_core::kernel::isa::Isa;
use membound_core::kernel::{Element, LoadKind, StoreKind, Unsupported, Width};
use membound_core::units::LINE;

use crate::asm::instruction_set::{Ability, Address, InstructionSet, LineStore, Operand, Shape};
use crate::asm::x86_64::encode::{Label, low, memory, of_element, short, vector};
use crate::asm::x86_64::opcodes::Op;
use crate::code::{Call, MachineCode};

pub(crate) use encode::Assembler;

type At = Address<Register>;

/// Saved by the prologue, in this order.
const SAVED: [Register; 6] = [RBX, RBP, R12, R13, R14, R15];
/// A word of the call for what goes through memory: Windows keeps nothing below the stack pointer.
const SPILL: At = Address { base: R15, offset: Call::SPILL as i64 };

impl InstructionSet for Assembler {
    type Register = Register;
    type Label = Label;

    const BASELINE: Isa = Isa::NONE;
    const CALL: Register = R15;
    const REPETITIONS: Register = R14;
    const POINTERS: &'static [Register] = &[RBX, RCX, RDX, RSI, R8, R9, R10, R11, RAX];
    const CHAINS: &'static [Register] = &[RAX, RBX, RCX, RDX, RSI, RDI, RBP, R8, R9, R10, R11, R12];
    const TRIPS: Register = R13;
    const ROWS: Register = RBP;
    const ROW: Register = R12;
    /// The last that every width has.
    const VECTORS: usize = 16;
    /// The elements, their places and a mask.
    const GATHER: usize = 3;
    const TOO_MANY_VECTORS: &'static str = "the loop needs more vector registers than there are (16); write it with fewer different numbers, sums or \
         brackets on the right of operators";
    const ACCUMULATES: bool = false;

    fn check(ability: Ability, isa: Isa) -> Result<(), Unsupported> {
        isa::check(ability, isa)
    }

    fn new(isa: Isa) -> Self {
        Assembler::empty(isa)
    }

    fn prologue(&mut self) {
        for register in SAVED {
            self.emit(Instruction::with1(Code::Push_r64, register));
        }
        self.copy(Self::CALL, RDI);
        self.store_word(Self::of_call(Call::SAVED_STACK), RSP);
        self.load_word(Self::REPETITIONS, Self::of_call(Call::REPETITIONS));
    }

    fn epilogue(&mut self) -> Label {
        let fault_exit = self.here();
        self.load_word(RSP, Self::of_call(Call::SAVED_STACK));
        if self.isa.avx {
            self.op0(Code::VEX_Vzeroupper);
        }
        self.op0(Code::Cld);
        for register in SAVED.into_iter().rev() {
            self.emit(Instruction::with1(Code::Pop_r64, register));
        }
        self.op0(Code::Retnq);
        fault_exit
    }

    fn finish(self, main_loop: Label, fault_exit: Label) -> Result<MachineCode, Unsupported> {
        self.bytes(main_loop, fault_exit)
    }

    fn pad(&mut self, bytes: usize) {
        self.nops(bytes);
    }

    fn label(&mut self) -> Label {
        self.new_label()
    }

    fn place(&mut self, label: Label) {
        self.place_label(label);
    }

    fn jump(&mut self, to: Label) {
        self.branch(Code::Jmp_rel8_64, to);
    }

    fn jump_if_zero(&mut self, register: Register, to: Label) {
        self.emit(Instruction::with2(Code::Test_rm64_r64, register, register));
        self.branch(Code::Je_rel8_64, to);
    }

    fn jump_if_word_is_zero(&mut self, at: At, to: Label) {
        self.emit(Instruction::with2(Code::Cmp_rm64_imm8, short(at), 0));
        self.branch(Code::Je_rel8_64, to);
    }

    fn count_down(&mut self, register: Register, to: Label) {
        self.emit(Instruction::with1(Code::Dec_rm64, register));
        self.branch(Code::Jne_rel8_64, to);
    }

    fn set(&mut self, to: Register, value: u32) {
        let to = low(to);
        self.emit(match value {
            0 => Instruction::with2(Code::Xor_rm32_r32, to, to),
            _ => Instruction::with2(Code::Mov_r32_imm32, to, value),
        });
    }

    fn copy(&mut self, to: Register, from: Register) {
        self.emit(Instruction::with2(Code::Mov_rm64_r64, to, from));
    }

    fn add(&mut self, to: Register, from: Register) {
        self.emit(Instruction::with2(Code::Add_rm64_r64, to, from));
    }

    fn add_word(&mut self, to: Register, from: At) {
        self.emit(Instruction::with2(Code::Add_r64_rm64, to, short(from)));
    }

    fn advance(&mut self, register: Register, bytes: i32) {
        let code = match (register, i8::try_from(bytes)) {
            (RAX, _) => Code::Add_RAX_imm32,
            (_, Ok(_)) => Code::Add_rm64_imm8,
            (_, Err(_)) => Code::Add_rm64_imm32,
        };
        self.emit(Instruction::with2(code, register, bytes));
    }

    fn load_word(&mut self, to: Register, from: At) {
        self.emit(Instruction::with2(Code::Mov_r64_rm64, to, short(from)));
    }

    fn store_word(&mut self, to: At, from: Register) {
        self.emit(Instruction::with2(Code::Mov_rm64_r64, short(to), from));
    }

    fn attempt(&mut self, [line, mine, theirs]: [Register; 3], most: u32, passed: Label) -> Label {
        self.set(R12, most);
        let attempt = self.here();
        self.copy(RAX, mine);
        let swap = Instruction::with2(Code::Cmpxchg_rm64_r64, MemoryOperand::with_base(line), theirs);
        self.emit(swap.map(|mut swap| {
            swap.set_has_lock_prefix(true);
            swap
        }));
        self.branch(Code::Je_rel8_64, passed);
        self.emit(Instruction::with1(Code::Dec_rm32, Register::R12D));
        self.branch(Code::Jne_rel8_64, attempt);
        attempt
    }

    fn flush(&mut self, line: At) {
        self.emit(Instruction::with1(Code::Clflush_m8, short(line)));
    }

    fn fence(&mut self) {
        self.op0(Code::Mfence);
    }

    fn fence_stores(&mut self) {
        self.op0(Code::Sfence);
    }

    fn fuses(&self) -> bool {
        self.isa.fma
    }

    /// VEX forms accept any alignment.
    fn reads_memory(&self) -> bool {
        self.isa.avx
    }

    fn kept_for_stores(store: StoreKind) -> usize {
        if store == StoreKind::NtMasked { 2 } else { 0 }
    }

    fn prepare_stores(&mut self, element: Element, kept: [usize; 2]) {
        self.masks = kept;
        let [whole, first] = kept.map(|mask| vector(Width::W128, mask));
        for mask in [whole, first] {
            self.three_or_two([Code::VEX_Vpcmpeqd_xmm_xmm_xmmm128, Code::Pcmpeqd_xmm_xmmm128], mask, mask, mask);
        }
        let beyond = 16 - element.bytes() as u32;
        self.emit(if self.isa.avx {
            Instruction::with3(Code::VEX_Vpsrldq_xmm_xmm_imm8, first, first, beyond)
        } else {
            Instruction::with2(Code::Psrldq_xmm_imm8, first, beyond)
        });
    }

    /// The bit of an element's sign, or all its others.
    fn constant_of(function: Function, element: Element) -> Option<u64> {
        let sign = 1 << (8 * element.bytes() - 1);
        match function {
            Function::Negate => Some(sign),
            Function::Absolute => Some(sign - 1),
            Function::Root => None,
        }
    }

    fn fill(&mut self, shape: Shape, to: usize, bits: u64) {
        if bits == 0 {
            return self.clear(shape.element, to);
        }
        self.emit(Instruction::with2(Code::Mov_r64_imm64, RAX, bits));
        self.store_word(SPILL, RAX);
        self.broadcast(shape, to, memory(SPILL));
    }

    fn fill_from(&mut self, shape: Shape, to: usize, from: At) {
        if shape.element == Element::Double {
            return self.broadcast(shape, to, memory(from));
        }
        let first = vector(Width::Scalar, to);
        self.emit(if self.isa.avx {
            Instruction::with3(Code::VEX_Vcvtsd2ss_xmm_xmm_xmmm64, first, first, memory(from))
        } else {
            Instruction::with2(Code::Cvtsd2ss_xmm_xmmm64, first, memory(from))
        });
        // By way of memory: before AVX2 a broadcast takes nothing else.
        self.store(StoreKind::Regular, Shape { width: Width::Scalar, ..shape }, SPILL, to);
        self.broadcast(shape, to, memory(SPILL));
    }

    fn clear(&mut self, element: Element, to: usize) {
        self.three(Op::Clear, Shape { width: Width::W128, element }, to, to, Operand::Register(to));
    }

    fn copy_vector(&mut self, shape: Shape, to: usize, from: usize) {
        self.move_vector(shape, to, from);
    }

    fn load(&mut self, load: LoadKind, shape: Shape, to: usize, from: At) {
        let op = if load == LoadKind::Nt { Op::LoadNt } else { Op::Load };
        let code = self.opcode(op, shape);
        self.emit(Instruction::with2(code, vector(shape.width, to), memory(from)));
    }

    fn store(&mut self, store: StoreKind, shape: Shape, to: At, from: usize) {
        let op = match store {
            StoreKind::NtMasked => return self.store_masked(shape, memory(to), from),
            StoreKind::Nt if shape.width == Width::Scalar && !self.isa.sse4a => {
                let movnti = match shape.element {
                    Element::Double => Code::Movnti_m64_r64,
                    Element::Float => Code::Movnti_m32_r32,
                };
                self.move_first(shape.element, RDI, from);
                return self.emit(Instruction::with2(movnti, memory(to), of_element(shape.element, RDI)));
            }
            StoreKind::Nt => Op::StoreNt,
            // Single elements beside whole blocks are stored as always.
            StoreKind::Regular | StoreKind::Rep | StoreKind::Zero => Op::Store,
        };
        let code = self.opcode(op, shape);
        self.emit(Instruction::with2(code, memory(to), vector(shape.width, from)));
    }

    fn gather(&mut self, shape: Shape, to: usize, table: Register, places: At) {
        let by = |place: Register| {
            MemoryOperand::new(table, place, shape.element.bytes() as u32, 0, 0, false, Register::None)
        };
        if shape.width == Width::Scalar {
            // No index is negative: the upper half is zero.
            let load = if shape.element == Element::Double { Code::Mov_r64_rm64 } else { Code::Mov_r32_rm32 };
            self.emit(Instruction::with2(load, of_element(shape.element, RDI), memory(places)));
            let load = self.opcode(Op::Load, shape);
            return self.emit(Instruction::with2(load, vector(shape.width, to), by(RDI)));
        }
        self.load(LoadKind::Regular, shape, to + 1, places);
        // A gather keeps what its mask leaves out: without this it waits for the register's last use.
        self.clear(shape.element, to);
        let code = self.opcode(Op::Gather, shape);
        let [to, places, mask] = [to, to + 1, to + 2].map(|register| vector(shape.width, register));
        // A gather clears its mask.
        if shape.width == Width::W512 {
            self.emit(Instruction::with3(Code::VEX_Kxnorw_kr_kr_kr, Register::K1, Register::K1, Register::K1));
            return self.emit(Instruction::with2(code, to, by(places)).map(|mut gather| {
                gather.set_op_mask(Register::K1);
                gather
            }));
        }
        let is_wide = shape.width == Width::W256;
        let ones = if is_wide { Code::VEX_Vpcmpeqd_ymm_ymm_ymmm256 } else { Code::VEX_Vpcmpeqd_xmm_xmm_xmmm128 };
        self.emit(Instruction::with3(ones, mask, mask, mask));
        self.emit(Instruction::with3(code, to, by(places), mask));
    }

    fn binary(&mut self, op: Operation, shape: Shape, to: usize, left: usize, right: Operand<Register>) {
        self.three(Op::Arithmetic(op), shape, to, left, right);
    }

    fn unary(&mut self, function: Function, shape: Shape, to: usize, from: usize, constant: Option<usize>) {
        // Of single elements, AVX takes the register's rest from another one.
        let rest = Operand::Register(constant.unwrap_or(from));
        match function {
            Function::Negate => self.three(Op::Xor, shape, to, from, rest),
            Function::Absolute => self.three(Op::And, shape, to, from, rest),
            Function::Root if self.isa.avx && shape.width == Width::Scalar => {
                self.three(Op::Root, shape, to, from, rest);
            }
            Function::Root => {
                let code = self.opcode(Op::Root, shape);
                self.emit(Instruction::with2(code, vector(shape.width, to), vector(shape.width, from)));
            }
        }
    }

    fn add_product(&mut self, shape: Shape, sum: usize, x: usize, y: Operand<Register>) {
        self.three(Op::MultiplyAdd, shape, sum, x, y);
    }

    fn multiply_add(&mut self, shape: Shape, register: usize, factor: usize, addend: Operand<Register>) {
        self.three(Op::MultiplyInto, shape, register, factor, addend);
    }

    fn string(&mut self, element: Element, value: Option<usize>) {
        self.copy(RDI, Self::POINTERS[0]);
        self.copy(RSI, Self::POINTERS[1]);
        // After the second pointer is copied, which this overwrites.
        self.load_word(RCX, Self::of_call(Call::TAIL));
        if let Some(value) = value {
            self.move_first(element, RAX, value);
        }
        self.emit(match (value.is_none(), element) {
            (true, Element::Double) => Instruction::with_rep_movsq(64),
            (true, Element::Float) => Instruction::with_rep_movsd(64),
            (false, Element::Double) => Instruction::with_rep_stosq(64),
            (false, Element::Float) => Instruction::with_rep_stosd(64),
        });
    }

    fn byte_string(&mut self, fills: bool) {
        self.copy(RDI, Self::POINTERS[0]);
        match fills {
            true => self.copy(RAX, Self::POINTERS[2]),
            false => self.copy(RSI, Self::POINTERS[1]),
        }
        // After the second pointer is copied, which this overwrites.
        self.load_word(RCX, Self::of_call(Call::TAIL));
        self.emit(if fills { Instruction::with_rep_stosb(64) } else { Instruction::with_rep_movsb(64) });
    }

    /// clzero writes to [rax], always.
    fn write_line(&mut self, by: LineStore, to: Register, from: Register) {
        if by == LineStore::Movdir64b {
            self.emit(Instruction::with2(Code::Movdir64b_r64_m512, to, MemoryOperand::with_base(from)));
        } else {
            self.copy(RAX, to);
            self.op0(Code::Clzeroq);
        }
        self.advance(to, LINE as i32);
    }

    fn load_bytes(&mut self, bytes: u64, to: usize, from: At) {
        let code = match (bytes, self.isa.avx) {
            (4, false) => Code::Movd_xmm_rm32,
            (8, false) => Code::Movq_xmm_xmmm64,
            (4, true) => Code::VEX_Vmovd_xmm_rm32,
            (8, true) => Code::VEX_Vmovq_xmm_xmmm64,
            _ => return self.load(LoadKind::Regular, floats(bytes), to, from),
        };
        self.emit(Instruction::with2(code, vector(Width::W128, to), memory(from)));
    }

    fn store_bytes(&mut self, bytes: u64, to: At, from: usize) {
        let code = match (bytes, self.isa.avx) {
            (4, false) => Code::Movd_rm32_xmm,
            (8, false) => Code::Movq_xmmm64_xmm,
            (4, true) => Code::VEX_Vmovd_rm32_xmm,
            (8, true) => Code::VEX_Vmovq_xmmm64_xmm,
            _ => return self.store(StoreKind::Regular, floats(bytes), to, from),
        };
        self.emit(Instruction::with2(code, memory(to), vector(Width::W128, from)));
    }

    fn load_aligned(&mut self, to: usize, from: At) {
        self.emit(Instruction::with2(Code::Movaps_xmm_xmmm128, vector(Width::W128, to), short(from)));
    }

    fn store_aligned(&mut self, is_nt: bool, to: At, from: usize) {
        let code = if is_nt { Code::Movntps_m128_xmm } else { Code::Movaps_xmmm128_xmm };
        self.emit(Instruction::with2(code, short(to), vector(Width::W128, from)));
    }

    fn add_aligned(&mut self, to: usize, from: At) {
        self.emit(Instruction::with2(Code::Addpd_xmm_xmmm128, vector(Width::W128, to), short(from)));
    }

    fn x87(streams: usize, is_stored: bool) -> Result<MachineCode, Unsupported> {
        x87::x87(streams, is_stored)
    }

    fn flushing(code: MachineCode) -> Result<MachineCode, Unsupported> {
        flushing::flushing(code)
    }
}

/// A whole register of so many bytes.
fn floats(bytes: u64) -> Shape {
    let width = match bytes {
        64 => Width::W512,
        32 => Width::W256,
        _ => Width::W128,
    };
    Shape { width, element: Element::Float }
}
