//! Sums in the registers of the x87, 80 bits wide, as machine code.
//!
//! ```text
//! the x87 empty, 64 bits of significand, to nearest; its caller's control word is kept and given back: Windows rounds to 53 bits
//! for each repetition:
//!   sum = 0
//!   for each element: load, multiply by memory, add; or, for a triad, store
//!   the sum, rounded to a double once
//! ```
//!
//! Where results are stored, each operation is followed by a store as a double and a load of that.

use iced_x86::{Code, Instruction, Register};
use membound_core::kernel::Unsupported;

use crate::asm::instruction_set::{Address, InstructionSet};
use crate::asm::x86_64::encode::{Assembler, short};
use crate::code::{Call, MachineCode};

/// The code for a sum of one stream, a dot product of two, or a triad of three, whose pointers its call has in that order,
/// and as many elements as that has blocks.
pub(super) fn x87(streams: usize, is_stored: bool) -> Result<MachineCode, Unsupported> {
    let mut asm = Assembler::new(Assembler::BASELINE);
    asm.prologue();
    asm.on_word(Code::Fnstcw_m2byte, control());
    asm.op0(Code::Fninit);
    let repeat = asm.here();
    let pointers = &Assembler::POINTERS[..streams];
    asm.load_pointers(streams);
    if streams < 3 {
        asm.op0(Code::Fldz);
    }
    let trips = asm.begin_trips(Call::BLOCKS);
    element(&mut asm, pointers, is_stored);
    pointers.iter().for_each(|pointer| asm.advance(*pointer, 8));
    let again = asm.end_trips(trips);
    if streams < 3 {
        asm.on_word(Code::Fstp_m64fp, result());
    }
    asm.count_down(Assembler::REPETITIONS, repeat);
    // What a fault leaves on its stack would be in the way of whoever comes next.
    let fault_exit = asm.here();
    asm.op0(Code::Fninit);
    asm.on_word(Code::Fldcw_m2byte, control());
    asm.epilogue();
    asm.finish(again, fault_exit)
}

/// The place of the result. Until then operations are stored there that are rounded to a double.
fn result() -> Address<Register> {
    Assembler::of_call(Call::SINGLES)
}

/// The place of the caller's control word.
fn control() -> Address<Register> {
    Assembler::of_call(Call::SPILL)
}

/// One element's products and sums; what is added up stays on the stack of the x87.
fn element(asm: &mut Assembler, pointers: &[Register], is_stored: bool) {
    let at = |base| Address { base, offset: 0 };
    let round = |asm: &mut Assembler| {
        if is_stored {
            asm.on_word(Code::Fstp_m64fp, result());
            asm.on_word(Code::Fld_m64fp, result());
        }
    };
    match *pointers {
        [x] => {
            asm.on_word(Code::Fadd_m64fp, at(x));
            round(asm);
        }
        [x, y] => {
            asm.on_word(Code::Fld_m64fp, at(x));
            asm.on_word(Code::Fmul_m64fp, at(y));
            round(asm);
            asm.emit(Instruction::with2(Code::Faddp_sti_st0, Register::ST1, Register::ST0));
            round(asm);
        }
        [a, b, c] => {
            asm.on_word(Code::Fld_m64fp, at(c));
            asm.on_word(Code::Fmul_m64fp, Assembler::of_call(Call::SCALAR));
            round(asm);
            asm.on_word(Code::Fadd_m64fp, at(b));
            asm.on_word(Code::Fstp_m64fp, at(a));
        }
        _ => {}
    }
}

impl Assembler {
    fn on_word(&mut self, code: Code, at: Address<Register>) {
        self.emit(Instruction::with1(code, short(at)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_stored_where_they_must() {
        let listing = |streams, is_stored| crate::asm::listing(&x87(streams, is_stored).unwrap());
        let count = |text: &str, what: &str| text.matches(what).count();
        let kept = listing(2, false);
        assert_eq!([count(&kept, "fmul"), count(&kept, "faddp"), count(&kept, "fstp")], [1, 1, 1], "{kept}");
        let stored = listing(2, true);
        assert_eq!([count(&stored, "fstp"), count(&stored, "fld st")], [3, 3], "{stored}");
        assert_eq!([count(&kept, "fnstcw"), count(&kept, "fldcw")], [1, 1], "{kept}");
        let triad = listing(3, false);
        assert_eq!([count(&triad, "fldz"), count(&triad, "fstp")], [0, 1], "{triad}");
    }
}
