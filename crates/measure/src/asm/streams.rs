//! Many streams at once as machine code. Accesses have 16 bytes, which every processor has: memory is slower than any
//! core's narrow accesses.

use membound_core::kernel::streams::{Streams, Touch};
use membound_core::kernel::{Element, Unsupported, Width};
use membound_core::units::LINE;

use crate::asm::instruction_set::{Address, InstructionSet, Shape};
use crate::code::{Call, MachineCode};

/// Registers that what is read is added up in, one for each 16 bytes of a line.
const SUMS: usize = 4;
/// Holds what is stored.
const SCALAR: usize = 4;
/// Holds what is copied.
const COPIED: usize = 5;

/// The code that walks `call.blocks` lines of each stream from the call's first pointer on, with streams `pitch`
/// bytes apart. Writes store the call's scalar; what is read is added up in the call's first lanes.
pub(crate) fn streams<S: InstructionSet>(streams: Streams, pitch: u64) -> Result<MachineCode, Unsupported> {
    let farthest = i32::try_from(pitch * u64::from(streams.streams));
    if !streams.exists() || farthest.is_err() {
        return Err(Unsupported::NoSuchInstruction(
            "streams must be 1 to 32 and lie within 2 GiB; give a smaller --size",
        ));
    }
    let mut asm = S::new(S::BASELINE);
    let [base, lines] = [S::POINTERS[0], S::POINTERS[1]];
    asm.prologue();
    asm.fill_from(Shape { width: Width::W128, element: Element::Double }, SCALAR, S::of_call(Call::SCALAR));
    let again = asm.here();
    (0..SUMS).for_each(|sum| asm.clear(Element::Double, sum));
    asm.load_word(base, S::of_call(Call::POINTERS));
    asm.load_word(lines, S::of_call(Call::BLOCKS));
    let line = asm.here();
    let at = |stream: u32, part: usize| Address { base, offset: (u64::from(stream) * pitch) as i64 + 16 * part as i64 };
    for stream in 0..streams.streams {
        for part in 0..SUMS {
            match streams.touch {
                Touch::Read => asm.add_aligned(part, at(stream, part)),
                Touch::Write => asm.store_aligned(false, at(stream, part), SCALAR),
                Touch::Copy if streams.is_written(stream) => {}
                Touch::Copy => {
                    asm.load_aligned(COPIED, at(stream, part));
                    asm.store_aligned(false, at(stream + streams.streams / 2, part), COPIED);
                }
            }
        }
    }
    asm.advance(base, LINE as i32);
    asm.count_down(lines, line);
    asm.count_down(S::REPETITIONS, again);
    for sum in 0..SUMS {
        asm.store_aligned(false, S::of_call(Call::LANES + 16 * sum as i32), sum);
    }
    asm.end(line)
}
