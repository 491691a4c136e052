//! Code in the making: instructions and their operands.

use iced_x86::code_asm::*;
use iced_x86::{BlockEncoderOptions, Code, IcedError, Instruction, MemoryOperand, Register};
use membound_core::kernel::isa::Isa;
use membound_core::kernel::{Element, Width};

use crate::asm::instruction_set::{Address, Operand, Shape};
use crate::asm::x86_64::opcodes::{Op, opcode};
use crate::code::MachineCode;

/// Appends instructions of x86-64.
pub(crate) struct Assembler {
    pub(super) asm: CodeAssembler,
    pub(super) isa: Isa,
    /// maskmovdqu's masks: the whole register, and its first element.
    pub(super) masks: [usize; 2],
    /// What could not be encoded first.
    pub(super) fault: Option<IcedError>,
}

impl Assembler {
    /// Remembers what could not be encoded.
    pub(super) fn note(&mut self, appended: Result<(), IcedError>) {
        if let Err(fault) = appended {
            self.fault.get_or_insert(fault);
        }
    }

    pub(super) fn emit(&mut self, instruction: Result<Instruction, IcedError>) {
        let appended = instruction.and_then(|instruction| self.asm.add_instruction(instruction));
        self.note(appended);
    }

    pub(super) fn opcode(&self, op: Op, shape: Shape) -> Code {
        opcode(op, shape, self.isa.avx)
    }

    /// The code with three operands where there is AVX, else the one with two.
    pub(super) fn three_or_two(&mut self, [three, two]: [Code; 2], to: Register, left: Register, right: Register) {
        self.emit(if self.isa.avx {
            Instruction::with3(three, to, left, right)
        } else {
            Instruction::with2(two, to, right)
        });
    }

    /// `to = left op right`; the two-operand forms before AVX copy first.
    pub(super) fn three(&mut self, op: Op, shape: Shape, to: usize, left: usize, right: Operand<AsmRegister64>) {
        let code = self.opcode(op, shape);
        if !self.isa.avx {
            self.move_vector(shape, to, left);
        }
        let [to, left] = [to, left].map(|register| vector(shape.width, register));
        self.emit(match (right, self.isa.avx) {
            (Operand::Register(right), true) => Instruction::with3(code, to, left, vector(shape.width, right)),
            (Operand::Memory(right), true) => Instruction::with3(code, to, left, memory(right)),
            (Operand::Register(right), false) => Instruction::with2(code, to, vector(shape.width, right)),
            (Operand::Memory(right), false) => Instruction::with2(code, to, memory(right)),
        });
    }

    pub(super) fn move_vector(&mut self, shape: Shape, to: usize, from: usize) {
        if to != from {
            let code = self.opcode(Op::Move, shape);
            self.emit(Instruction::with2(code, vector(shape.width, to), vector(shape.width, from)));
        }
    }

    /// Moves a register's first element to a general register.
    pub(super) fn move_first(&mut self, element: Element, to: Register, from: usize) {
        let code = match (element, self.isa.avx) {
            (Element::Double, false) => Code::Movq_rm64_xmm,
            (Element::Double, true) => Code::VEX_Vmovq_rm64_xmm,
            (Element::Float, false) => Code::Movd_rm32_xmm,
            (Element::Float, true) => Code::VEX_Vmovd_rm32_xmm,
        };
        self.emit(Instruction::with2(code, of_element(element, to), vector(Width::Scalar, from)));
    }

    /// maskmovdqu writes to [rdi], always.
    pub(super) fn store_masked(&mut self, shape: Shape, to: MemoryOperand, from: usize) {
        self.emit(Instruction::with2(Code::Lea_r64_m, Register::RDI, to));
        let mask = self.masks[usize::from(shape.width == Width::Scalar)];
        let [from, mask] = [from, mask].map(|register| vector(Width::W128, register));
        self.emit(if self.isa.avx {
            Instruction::with_vmaskmovdqu(64, from, mask, Register::None)
        } else {
            Instruction::with_maskmovdqu(64, from, mask, Register::None)
        });
    }

    /// Fills a register with the element in memory.
    pub(super) fn broadcast(&mut self, shape: Shape, to: usize, from: MemoryOperand) {
        let width = shape.width.max(Width::W128);
        let code = match (shape.element, width) {
            (Element::Double, Width::W512) => Code::EVEX_Vbroadcastsd_zmm_k1z_xmmm64,
            (Element::Float, Width::W512) => Code::EVEX_Vbroadcastss_zmm_k1z_xmmm32,
            (Element::Double, Width::W256) => Code::VEX_Vbroadcastsd_ymm_m64,
            (Element::Float, Width::W256) => Code::VEX_Vbroadcastss_ymm_m32,
            (Element::Double, _) if self.isa.avx => Code::VEX_Vmovddup_xmm_xmmm64,
            (Element::Float, _) if self.isa.avx => Code::VEX_Vbroadcastss_xmm_m32,
            _ => self.opcode(Op::Load, Shape { width: Width::Scalar, ..shape }),
        };
        let register = vector(width, to);
        self.emit(Instruction::with2(code, register, from));
        if !self.isa.avx {
            self.emit(match shape.element {
                Element::Double => Instruction::with2(Code::Unpcklpd_xmm_xmmm128, register, register),
                Element::Float => Instruction::with3(Code::Shufps_xmm_xmmm128_imm8, register, register, 0),
            });
        }
    }
}

/// The bytes of finished code.
pub(super) fn finish(
    asm: &mut CodeAssembler,
    main_loop: CodeLabel,
    fault_exit: CodeLabel,
) -> Result<MachineCode, IcedError> {
    let result = asm.assemble_options(0, BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS)?;
    Ok(MachineCode {
        main_loop: result.label_ip(&main_loop)? as usize,
        fault_exit: result.label_ip(&fault_exit)? as usize,
        bytes: result.inner.code_buffer,
    })
}

pub(super) fn vector(width: Width, index: usize) -> Register {
    let first = match width {
        Width::Scalar | Width::W128 => Register::XMM0,
        Width::W256 => Register::YMM0,
        Width::W512 => Register::ZMM0,
    };
    first + index as u32
}

/// The part of a general register that is as long as an element.
pub(super) fn of_element(element: Element, register: Register) -> Register {
    match element {
        Element::Double => register,
        Element::Float => register.full_register32(),
    }
}

pub(super) fn memory(at: Address<AsmRegister64>) -> MemoryOperand {
    MemoryOperand::with_base_displ(at.base.into(), at.offset)
}

/// The same, a byte shorter where nothing is beyond the register.
pub(super) fn short(at: Address<AsmRegister64>) -> MemoryOperand {
    if at.offset == 0 { MemoryOperand::with_base(at.base.into()) } else { memory(at) }
}

pub(super) fn word(at: Address<AsmRegister64>) -> AsmMemoryOperand {
    qword_ptr(at.base + at.offset as i32)
}
