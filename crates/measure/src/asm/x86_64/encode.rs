//! Code in the making: instructions and their operands.

use iced_x86::{
    BlockEncoder, BlockEncoderOptions, BlockEncoderResult, Code, IcedError, Instruction, InstructionBlock,
    MemoryOperand, Register,
};
use membound_core::kernel::isa::Isa;
use membound_core::kernel::{Element, Unsupported, Width};

use crate::asm::instruction_set::{Address, Operand, Shape};
use crate::asm::x86_64::opcodes::{Op, opcode};
use crate::code::MachineCode;

/// Instructions of 1 to 9 bytes that do nothing, as Intel's manual recommends them (volume 2B, NOP).
const NOPS: [&[u8]; 9] = [
    &[0x90],
    &[0x66, 0x90],
    &[0x0f, 0x1f, 0x00],
    &[0x0f, 0x1f, 0x40, 0x00],
    &[0x0f, 0x1f, 0x44, 0x00, 0x00],
    &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
    &[0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00],
    &[0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
    &[0x66, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
];

/// A place in the code: the address that jumps name until all is encoded. Instructions that are no place have address 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Label(u64);

/// Appends instructions of x86-64.
pub(crate) struct Assembler {
    instructions: Vec<Instruction>,
    /// The one made last.
    label: Label,
    pub(super) isa: Isa,
    /// maskmovdqu's masks: the whole register, and its first element.
    pub(super) masks: [usize; 2],
    /// What could not be encoded first.
    fault: Option<IcedError>,
}

impl Assembler {
    pub(super) fn empty(isa: Isa) -> Self {
        Assembler { instructions: Vec::new(), label: Label(0), isa, masks: [0; 2], fault: None }
    }

    /// Appends an instruction, or remembers why it can't be encoded.
    pub(super) fn emit(&mut self, instruction: Result<Instruction, IcedError>) {
        match instruction {
            Ok(instruction) => self.instructions.push(instruction),
            Err(fault) => _ = self.fault.get_or_insert(fault),
        }
    }

    /// Appends an instruction without operands.
    pub(super) fn op0(&mut self, code: Code) {
        self.emit(Ok(Instruction::with(code)));
    }

    /// Appends a jump or call. A short jump becomes a near one where it must.
    pub(super) fn branch(&mut self, code: Code, to: Label) {
        self.emit(Instruction::with_branch(code, to.0));
    }

    pub(super) fn new_label(&mut self) -> Label {
        self.label.0 += 1;
        self.label
    }

    pub(super) fn place_label(&mut self, label: Label) {
        // Its own instruction, of no bytes: an instruction has one address, and several labels may stand at one place.
        let mut place = Instruction::with(Code::Zero_bytes);
        place.set_ip(label.0);
        self.emit(Ok(place));
    }

    /// Appends so many bytes that do nothing, in as few instructions as can be.
    pub(super) fn nops(&mut self, bytes: usize) {
        for start in (0..bytes).step_by(NOPS.len()) {
            let length = NOPS.len().min(bytes - start);
            self.emit(Instruction::with_declare_byte(NOPS[length - 1]));
        }
    }

    /// The bytes, with all jumps in place.
    pub(super) fn bytes(mut self, main_loop: Label, fault_exit: Label) -> Result<MachineCode, Unsupported> {
        let encoded = self.fault.take().map_or_else(|| self.encode(), Err);
        let encoded = encoded.map_err(|fault| Unsupported::Assembler(fault.to_string()))?;
        let offset = |label: Label| {
            let place = self.instructions.iter().position(|instruction| instruction.ip() == label.0);
            let offset = place.map(|place| encoded.new_instruction_offsets[place] as usize);
            offset.ok_or_else(|| Unsupported::Assembler("a label stands nowhere".into()))
        };
        let (main_loop, fault_exit) = (offset(main_loop)?, offset(fault_exit)?);
        Ok(MachineCode { bytes: encoded.code_buffer, main_loop, fault_exit })
    }

    fn encode(&self) -> Result<BlockEncoderResult, IcedError> {
        let block = InstructionBlock::new(&self.instructions, 0);
        BlockEncoder::encode(64, block, BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS)
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
    pub(super) fn three(&mut self, op: Op, shape: Shape, to: usize, left: usize, right: Operand<Register>) {
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

    /// maskmovdqu writes to [rdi], always. It may fault where any of the 16 bytes there is not mapped, whatever
    /// the mask: Emerald Rapids does.
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

pub(super) fn vector(width: Width, index: usize) -> Register {
    let first = match width {
        Width::Scalar | Width::W128 => Register::XMM0,
        Width::W256 => Register::YMM0,
        Width::W512 => Register::ZMM0,
    };
    first + index as u32
}

/// The lower half of a general register.
pub(super) fn low(register: Register) -> Register {
    Register::EAX + (register as u32 - Register::RAX as u32)
}

/// The part of a general register that is as long as an element.
pub(super) fn of_element(element: Element, register: Register) -> Register {
    match element {
        Element::Double => register,
        Element::Float => low(register),
    }
}

pub(super) fn memory(at: Address<Register>) -> MemoryOperand {
    MemoryOperand::with_base_displ(at.base, at.offset)
}

/// The same, a byte shorter where nothing is beyond the register.
pub(super) fn short(at: Address<Register>) -> MemoryOperand {
    if at.offset == 0 { MemoryOperand::with_base(at.base) } else { memory(at) }
}
