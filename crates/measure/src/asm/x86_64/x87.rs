//! Sums in the registers of the x87, 80 bits wide, as machine code.
//!
//! ```text
//! the x87 as it is at a process's start: empty, 64 bits of significand, to nearest
//! for each repetition:
//!   sum = 0
//!   for each element: load, multiply by memory, add; or, for a triad, store
//!   the sum, rounded to a double once
//! ```
//!
//! Where results are stored, each operation is followed by a store as a double and a load of that.

use iced_x86::IcedError;
use iced_x86::code_asm::*;
use membound_core::kernel::Unsupported;

use crate::asm::instruction_set::{Address, InstructionSet};
use crate::asm::x86_64::encode::{Assembler, word};
use crate::code::{Call, MachineCode};

/// The code for a sum of one stream, a dot product of two, or a triad of three, whose pointers its call has in that order,
/// and as many elements as that has blocks.
pub(super) fn x87(streams: usize, is_stored: bool) -> Result<MachineCode, Unsupported> {
    let mut asm = Assembler::new(Assembler::BASELINE);
    asm.prologue();
    asm.fpu(|asm| asm.fninit());
    let repeat = asm.here();
    let pointers = &Assembler::POINTERS[..streams];
    asm.load_pointers(streams);
    if streams < 3 {
        asm.fpu(|asm| asm.fldz());
    }
    let trips = asm.begin_trips(Call::BLOCKS);
    element(&mut asm, pointers, is_stored);
    pointers.iter().for_each(|pointer| asm.advance(*pointer, 8));
    let again = asm.end_trips(trips);
    if streams < 3 {
        asm.fpu(|asm| asm.fstp(result()));
    }
    asm.count_down(Assembler::REPETITIONS, repeat);
    // What a fault leaves on its stack would be in the way of whoever comes next.
    let fault_exit = asm.here();
    asm.fpu(|asm| asm.fninit());
    asm.epilogue();
    asm.finish(again, fault_exit)
}

/// The place of the result. Until then operations are stored there that are rounded to a double.
fn result() -> AsmMemoryOperand {
    word(Assembler::of_call(Call::SINGLES))
}

/// One element's products and sums; what is added up stays on the stack of the x87.
fn element(asm: &mut Assembler, pointers: &[AsmRegister64], is_stored: bool) {
    let at = |base: AsmRegister64| word(Address { base, offset: 0 });
    let rounded = |asm: &mut CodeAssembler| match is_stored {
        true => asm.fstp(result()).and_then(|()| asm.fld(result())),
        false => Ok(()),
    };
    asm.fpu(|asm| match *pointers {
        [x] => {
            asm.fadd(at(x))?;
            rounded(asm)
        }
        [x, y] => {
            asm.fld(at(x))?;
            asm.fmul(at(y))?;
            rounded(asm)?;
            asm.faddp(st1, st0)?;
            rounded(asm)
        }
        [a, b, c] => {
            asm.fld(at(c))?;
            asm.fmul(word(Assembler::of_call(Call::SCALAR)))?;
            rounded(asm)?;
            asm.fadd(at(b))?;
            asm.fstp(at(a))
        }
        _ => Ok(()),
    });
}

impl Assembler {
    fn fpu(&mut self, append: impl FnOnce(&mut CodeAssembler) -> Result<(), IcedError>) {
        let appended = append(&mut self.asm);
        self.note(appended);
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
        let triad = listing(3, false);
        assert_eq!([count(&triad, "fldz"), count(&triad, "fstp")], [0, 1], "{triad}");
    }
}
