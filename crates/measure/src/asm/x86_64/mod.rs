//! The instruction set x86-64, with what its processors may have beside: AVX, AVX-512 and others.

mod encode;
mod flushing;
pub mod isa;
pub mod listing;
mod opcodes;
pub mod timed_calls;
mod x87;

use iced_x86::code_asm::*;
use iced_x86::{Code, Instruction, MemoryOperand, Register};
use membound_core::kernel::formula::{Function, Operation};
use membound_core::kernel::isa::Isa;
use membound_core::kernel::{Element, LoadKind, StoreKind, Unsupported, Width};
use membound_core::units::LINE;

use crate::asm::instruction_set::{Ability, Address, InstructionSet, LineStore, Operand, Shape};
use crate::asm::x86_64::encode::{finish, memory, of_element, short, vector, word};
use crate::asm::x86_64::opcodes::Op;
use crate::code::{Call, MachineCode};

pub(crate) use encode::Assembler;

type At = Address<AsmRegister64>;

/// Saved by the prologue, in this order.
const SAVED: [AsmRegister64; 6] = [rbx, rbp, r12, r13, r14, r15];
/// Below the stack pointer lies the red zone: free for a leaf function.
const RED_ZONE: At = Address { base: rsp, offset: -8 };

impl InstructionSet for Assembler {
    type Register = AsmRegister64;
    type Label = CodeLabel;

    const BASELINE: Isa = Isa::NONE;
    const CALL: AsmRegister64 = r15;
    const REPETITIONS: AsmRegister64 = r14;
    const POINTERS: &'static [AsmRegister64] = &[rbx, rcx, rdx, rsi, r8, r9, r10, r11, rax];
    const CHAINS: &'static [AsmRegister64] = &[rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12];
    const TRIPS: AsmRegister64 = r13;
    const ROWS: AsmRegister64 = rbp;
    const ROW: AsmRegister64 = r12;
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
        let asm = CodeAssembler::new(64).expect("64 bits are one of three that there are");
        Assembler { asm, isa, masks: [0; 2], fault: None }
    }

    fn prologue(&mut self) {
        for register in SAVED {
            let saved = self.asm.push(register);
            self.note(saved);
        }
        self.copy(Self::CALL, rdi);
        self.store_word(Self::of_call(Call::SAVED_STACK), rsp);
        self.load_word(Self::REPETITIONS, Self::of_call(Call::REPETITIONS));
    }

    fn epilogue(&mut self) -> CodeLabel {
        let fault_exit = self.here();
        self.load_word(rsp, Self::of_call(Call::SAVED_STACK));
        if self.isa.avx {
            let cleared = self.asm.vzeroupper();
            self.note(cleared);
        }
        let mut back = || {
            self.asm.cld()?;
            SAVED.into_iter().rev().try_for_each(|register| self.asm.pop(register))?;
            self.asm.ret()
        };
        let back = back();
        self.note(back);
        fault_exit
    }

    fn finish(mut self, main_loop: CodeLabel, fault_exit: CodeLabel) -> Result<MachineCode, Unsupported> {
        let code = self.fault.map_or_else(|| finish(&mut self.asm, main_loop, fault_exit), Err);
        code.map_err(|fault| Unsupported::Assembler(fault.to_string()))
    }

    fn pad(&mut self, bytes: usize) {
        if bytes > 0 {
            let padded = self.asm.nops_with_size(bytes);
            self.note(padded);
        }
    }

    fn label(&mut self) -> CodeLabel {
        self.asm.create_label()
    }

    fn place(&mut self, label: &mut CodeLabel) {
        // A label must stand before an instruction of its own.
        let placed = self.asm.set_label(label).and_then(|()| self.asm.zero_bytes());
        self.note(placed);
    }

    fn jump(&mut self, to: CodeLabel) {
        let jump = self.asm.jmp(to);
        self.note(jump);
    }

    fn jump_if_zero(&mut self, register: AsmRegister64, to: CodeLabel) {
        let jump = self.asm.test(register, register).and_then(|()| self.asm.jz(to));
        self.note(jump);
    }

    fn jump_if_word_is_zero(&mut self, at: At, to: CodeLabel) {
        let jump = self.asm.cmp(word(at), 0).and_then(|()| self.asm.je(to));
        self.note(jump);
    }

    fn count_down(&mut self, register: AsmRegister64, to: CodeLabel) {
        let jump = self.asm.dec(register).and_then(|()| self.asm.jnz(to));
        self.note(jump);
    }

    fn set(&mut self, to: AsmRegister64, value: u32) {
        let to = Register::from(to).full_register32();
        self.emit(match value {
            0 => Instruction::with2(Code::Xor_rm32_r32, to, to),
            _ => Instruction::with2(Code::Mov_r32_imm32, to, value),
        });
    }

    fn copy(&mut self, to: AsmRegister64, from: AsmRegister64) {
        let copied = self.asm.mov(to, from);
        self.note(copied);
    }

    fn add(&mut self, to: AsmRegister64, from: AsmRegister64) {
        let added = self.asm.add(to, from);
        self.note(added);
    }

    fn add_word(&mut self, to: AsmRegister64, from: At) {
        let added = self.asm.add(to, word(from));
        self.note(added);
    }

    fn advance(&mut self, register: AsmRegister64, bytes: i32) {
        let added = self.asm.add(register, bytes);
        self.note(added);
    }

    fn load_word(&mut self, to: AsmRegister64, from: At) {
        let loaded = self.asm.mov(to, word(from));
        self.note(loaded);
    }

    fn store_word(&mut self, to: At, from: AsmRegister64) {
        let stored = self.asm.mov(word(to), from);
        self.note(stored);
    }

    fn attempt(&mut self, [line, mine, theirs]: [AsmRegister64; 3], most: u32, passed: CodeLabel) -> CodeLabel {
        self.set(r12, most);
        let attempt = self.here();
        let mut swap = || {
            self.asm.mov(rax, mine)?;
            self.asm.lock().cmpxchg(qword_ptr(line), theirs)?;
            self.asm.je(passed)?;
            self.asm.dec(r12d)?;
            self.asm.jnz(attempt)
        };
        let swapped = swap();
        self.note(swapped);
        attempt
    }

    fn flush(&mut self, line: At) {
        self.emit(Instruction::with1(Code::Clflush_m8, short(line)));
    }

    fn fence(&mut self) {
        self.emit(Ok(Instruction::with(Code::Mfence)));
    }

    fn fence_stores(&mut self) {
        self.emit(Ok(Instruction::with(Code::Sfence)));
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
        let moved = self.asm.mov(rax, bits);
        self.note(moved);
        self.store_word(RED_ZONE, rax);
        self.broadcast(shape, to, memory(RED_ZONE));
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
        self.store(StoreKind::Regular, Shape { width: Width::Scalar, ..shape }, RED_ZONE, to);
        self.broadcast(shape, to, memory(RED_ZONE));
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
                self.move_first(shape.element, Register::RDI, from);
                return self.emit(Instruction::with2(movnti, memory(to), of_element(shape.element, Register::RDI)));
            }
            StoreKind::Nt => Op::StoreNt,
            // Single elements beside whole blocks are stored as always.
            StoreKind::Regular | StoreKind::Rep | StoreKind::Zero => Op::Store,
        };
        let code = self.opcode(op, shape);
        self.emit(Instruction::with2(code, memory(to), vector(shape.width, from)));
    }

    fn gather(&mut self, shape: Shape, to: usize, table: AsmRegister64, places: At) {
        let by = |place: Register| {
            MemoryOperand::new(table.into(), place, shape.element.bytes() as u32, 0, 0, false, Register::None)
        };
        if shape.width == Width::Scalar {
            // No index is negative: the upper half is zero.
            let load = if shape.element == Element::Double { Code::Mov_r64_rm64 } else { Code::Mov_r32_rm32 };
            self.emit(Instruction::with2(load, of_element(shape.element, Register::RDI), memory(places)));
            let load = self.opcode(Op::Load, shape);
            return self.emit(Instruction::with2(load, vector(shape.width, to), by(Register::RDI)));
        }
        self.load(LoadKind::Regular, shape, to + 1, places);
        // A gather keeps what its mask leaves out: without this it waits for the register's last use.
        self.clear(shape.element, to);
        let code = self.opcode(Op::Gather, shape);
        let [to, places, mask] = [to, to + 1, to + 2].map(|register| vector(shape.width, register));
        // A gather clears its mask.
        if shape.width == Width::W512 {
            let filled = self.asm.kxnorw(k1, k1, k1);
            self.note(filled);
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

    fn binary(&mut self, op: Operation, shape: Shape, to: usize, left: usize, right: Operand<AsmRegister64>) {
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

    fn add_product(&mut self, shape: Shape, sum: usize, x: usize, y: Operand<AsmRegister64>) {
        self.three(Op::MultiplyAdd, shape, sum, x, y);
    }

    fn multiply_add(&mut self, shape: Shape, register: usize, factor: usize, addend: Operand<AsmRegister64>) {
        self.three(Op::MultiplyInto, shape, register, factor, addend);
    }

    fn string(&mut self, element: Element, value: Option<usize>) {
        self.copy(rdi, Self::POINTERS[0]);
        self.copy(rsi, Self::POINTERS[1]);
        // After the second pointer is copied, which this overwrites.
        self.load_word(rcx, Self::of_call(Call::TAIL));
        if let Some(value) = value {
            self.move_first(element, Register::RAX, value);
        }
        let string = match (value.is_none(), element) {
            (true, Element::Double) => self.asm.rep().movsq(),
            (true, Element::Float) => self.asm.rep().movsd(),
            (false, Element::Double) => self.asm.rep().stosq(),
            (false, Element::Float) => self.asm.rep().stosd(),
        };
        self.note(string);
    }

    fn byte_string(&mut self, fills: bool) {
        self.copy(rdi, Self::POINTERS[0]);
        match fills {
            true => self.copy(rax, Self::POINTERS[2]),
            false => self.copy(rsi, Self::POINTERS[1]),
        }
        // After the second pointer is copied, which this overwrites.
        self.load_word(rcx, Self::of_call(Call::TAIL));
        let string = if fills { self.asm.rep().stosb() } else { self.asm.rep().movsb() };
        self.note(string);
    }

    /// clzero writes to [rax], always.
    fn write_line(&mut self, by: LineStore, to: AsmRegister64, from: AsmRegister64) {
        if by == LineStore::Movdir64b {
            let from = MemoryOperand::with_base(from.into());
            self.emit(Instruction::with2(Code::Movdir64b_r64_m512, Register::from(to), from));
        } else {
            self.copy(rax, to);
            self.emit(Ok(Instruction::with(Code::Clzeroq)));
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
