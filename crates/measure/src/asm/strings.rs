//! Bytes copied or filled by the instructions that processors have for that, as machine code.
//!
//! ```text
//! for each repetition:
//!   take the pointers (the instructions move them) and, to fill, the byte
//!   copy or fill the call's tail of bytes
//! ```

use membound_core::kernel::Unsupported;
use membound_core::kernel::isa::Isa;

use crate::asm::instruction_set::InstructionSet;
use crate::code::MachineCode;

/// The code; its [`Call`](crate::code::Call)'s first pointers are the destination, the source and, to fill, the byte.
pub(crate) fn strings<S: InstructionSet>(fills: bool, isa: Isa) -> Result<MachineCode, Unsupported> {
    let mut asm = S::new(isa);
    asm.prologue();
    let again = asm.here();
    asm.load_pointers(3);
    asm.byte_string(fills);
    asm.count_down(S::REPETITIONS, again);
    asm.end(again)
}
