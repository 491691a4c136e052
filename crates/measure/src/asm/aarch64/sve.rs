//! SVE at a fixed width: registers of any length, of which predicates take the part that is wanted.
//!
//! Offsets of SVE's loads and stores count whole registers, so they are cheap where a register is exactly as wide as the
//! width; where it is longer, each access has an address of its own. A generator's register is the first of its pair.

use membound_core::kernel::formula::{Function, Operation};
use membound_core::kernel::{Element, LoadKind, StoreKind, Width};

use crate::asm::aarch64::encode::{General, PASSING};
use crate::asm::aarch64::opcodes::*;
use crate::asm::aarch64::{Assembler, At, of_element};
use crate::asm::instruction_set::Shape;

/// Predicates of the first 256 and 512 bits, set by the prologue.
const WIDTHS: [i64; 2] = [0, 1];
/// A predicate for a comparison's outcome.
const OUTCOME: i64 = 2;
/// For values on their way.
const SPARE: i64 = 30;

impl Assembler {
    /// Whether SVE does what is this wide. Pairs of NEON's registers are for processors whose registers are shorter.
    pub(super) fn is_sve(&self, width: Width) -> bool {
        match width {
            Width::W512 => true,
            Width::W256 => self.isa.sve_bytes >= 32,
            Width::W128 | Width::Scalar => false,
        }
    }

    /// Sets the predicates that there are elements for.
    pub(super) fn predicates(&mut self) {
        if self.isa.sve_bytes >= 32 {
            self.emit(PTRUE_256, &[WIDTHS[0]]);
        }
        if self.isa.sve_bytes >= 64 {
            self.emit(PTRUE_512, &[WIDTHS[1]]);
        }
    }

    pub(super) fn sve_load(&mut self, load: LoadKind, shape: Shape, to: i64, from: At) {
        let opcodes = if load == LoadKind::Nt { [LDNT1D, LDNT1W] } else { [LD1D, LD1W] };
        self.sve_access(of_element(shape.element, opcodes), shape, to, from);
    }

    pub(super) fn sve_store(&mut self, store: StoreKind, shape: Shape, to: At, from: i64) {
        let opcodes = if store == StoreKind::Nt { [STNT1D, STNT1W] } else { [ST1D, ST1W] };
        self.sve_access(of_element(shape.element, opcodes), shape, from, to);
    }

    fn sve_access(&mut self, opcode: Opcode, shape: Shape, register: i64, at: At) {
        let length = i64::from(self.isa.sve_bytes.max(1));
        self.access_by(at, |base, offset| {
            let whole = (offset % length == 0).then_some(offset / length)?;
            opcode.encode(&[register, governing(shape), base.0.into(), whole])
        });
    }

    pub(super) fn sve_gather(&mut self, shape: Shape, to: i64, table: General, places: At) {
        self.sve_load(LoadKind::Regular, shape, SPARE, places);
        let gather = of_element(shape.element, [LD1D_GATHER, LD1W_GATHER]);
        self.emit(gather, &[to, governing(shape), table.0.into(), SPARE]);
    }

    /// Fills a register with the first bits of a general one.
    pub(super) fn sve_fill(&mut self, element: Element, to: i64) {
        self.emit(of_element(element, [DUP_Z_X, DUP_Z_W]), &[to, PASSING.0.into()]);
    }

    /// Fills a register with the first element of another.
    pub(super) fn sve_fill_from(&mut self, element: Element, to: i64, from: i64) {
        self.emit(of_element(element, [DUP_Z_D, DUP_Z_S]), &[to, from]);
    }

    pub(super) fn sve_copy(&mut self, to: i64, from: i64) {
        if to != from {
            self.emit(MOV_Z, &[to, from, from]);
        }
    }

    pub(super) fn sve_binary(&mut self, op: Operation, shape: Shape, [to, left, right]: [i64; 3]) {
        let plain = |opcodes| of_element(shape.element, opcodes);
        match op {
            Operation::Add => self.emit(plain([FADD_ZD, FADD_ZS]), &[to, left, right]),
            Operation::Subtract => self.emit(plain([FSUB_ZD, FSUB_ZS]), &[to, left, right]),
            Operation::Multiply => self.emit(plain([FMUL_ZD, FMUL_ZS]), &[to, left, right]),
            Operation::Minimum => self.sve_choose(shape, [to, left, right], [right, left]),
            Operation::Maximum => self.sve_choose(shape, [to, left, right], [left, right]),
            Operation::Divide => {
                // The quotient takes its dividend's place, which a constant keeps.
                let at = if to == right { SPARE } else { to };
                self.sve_copy(at, left);
                self.emit(plain([FDIV_ZD, FDIV_ZS]), &[at, governing(shape), at, right]);
                self.sve_copy(to, at);
            }
        }
    }

    /// `to = if greater > less { left } else { right }`
    fn sve_choose(&mut self, shape: Shape, [to, left, right]: [i64; 3], [greater, less]: [i64; 2]) {
        let compare = of_element(shape.element, [FCMGT_ZD, FCMGT_ZS]);
        self.emit(compare, &[OUTCOME, governing(shape), greater, less]);
        self.emit(of_element(shape.element, [SEL_ZD, SEL_ZS]), &[to, OUTCOME, left, right]);
    }

    pub(super) fn sve_unary(&mut self, function: Function, shape: Shape, to: i64, from: i64) {
        let opcodes = match function {
            Function::Negate => [FNEG_ZD, FNEG_ZS],
            Function::Absolute => [FABS_ZD, FABS_ZS],
            Function::Root => [FSQRT_ZD, FSQRT_ZS],
        };
        self.emit(of_element(shape.element, opcodes), &[to, governing(shape), from]);
    }

    /// `sum += x * y`
    pub(super) fn sve_add_product(&mut self, shape: Shape, [sum, x, y]: [i64; 3]) {
        self.emit(of_element(shape.element, [FMLA_ZD, FMLA_ZS]), &[sum, governing(shape), x, y]);
    }
}

/// The predicate of a shape's elements.
fn governing(shape: Shape) -> i64 {
    WIDTHS[usize::from(shape.width == Width::W512)]
}
