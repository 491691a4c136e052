//! Machine code: what is done, and in a folder for each instruction set, by which instructions.
//!
//! Files here say what generators do with any [instruction set](instruction_set::InstructionSet). This one chooses
//! whose code is generated: no other names an instruction set.

#[cfg(any(test, target_arch = "aarch64"))]
mod aarch64;
mod chase;
mod clock;
mod flops;
pub mod handover;
mod instruction_set;
mod kernel;
mod lines;
mod mix;
mod pair;
mod probe;
#[cfg(target_arch = "x86_64")]
#[cfg(test)]
mod recorded;
mod scan;
mod streams;
mod strings;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use membound_core::kernel::chase::Chase;
use membound_core::kernel::flops::Flops;
use membound_core::kernel::isa::Isa;
use membound_core::kernel::mix::Mix;
use membound_core::kernel::scan::Scan;
use membound_core::kernel::streams::Streams;
use membound_core::kernel::{Unsupported, Variant};
use membound_core::memory::behaviour::Touch;

use crate::asm::instruction_set::InstructionSet;
use crate::code::MachineCode;

#[cfg(target_arch = "aarch64")]
use aarch64::Assembler;
#[cfg(target_arch = "aarch64")]
pub use aarch64::isa::detect;
#[cfg(target_arch = "aarch64")]
pub use aarch64::listing::listing;
pub use clock::{CHAIN_LINKS, WIDE_ADDS};
pub use instruction_set::LineStore;
pub(crate) use lines::LINES_PER_TRIP;
#[cfg(target_arch = "x86_64")]
use x86_64::Assembler;
#[cfg(target_arch = "x86_64")]
pub use x86_64::isa::detect;
#[cfg(target_arch = "x86_64")]
pub use x86_64::listing::listing;
#[cfg(target_arch = "x86_64")]
pub use x86_64::timed_calls::{Step, timed_calls};

#[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
compile_error!(
    "no code can be generated for this architecture: it needs a folder beside asm/x86_64 with an `InstructionSet`, \
     `detect`, `listing` and, for the micro-VM, `timed_calls`"
);

/// Whether a chain of fused operations adds up products that are all the same, instead of multiplying and adding.
pub const ACCUMULATES: bool = Assembler::ACCUMULATES;

/// The machine code of `variant`.
pub fn assemble(variant: &Variant, isa: Isa) -> Result<MachineCode, Unsupported> {
    kernel::assemble::<Assembler>(variant, isa)
}

/// The machine code of a sum (of one stream), a dot product (two) or a triad (three) in the x87's registers, with results
/// stored as doubles after each operation or at the end.
pub fn x87(streams: usize, is_stored: bool) -> Result<MachineCode, Unsupported> {
    Assembler::x87(streams, is_stored)
}

/// The same code, with subnormal numbers flushed to zero for as long as it runs.
pub fn flushing(code: MachineCode) -> Result<MachineCode, Unsupported> {
    Assembler::flushing(code)
}

/// The machine code of a chase. Positions come in and go out through [`Call`](crate::code::Call).
pub fn chase(chase: Chase) -> Result<MachineCode, Unsupported> {
    chase::chase::<Assembler>(chase)
}

/// A chain of `repetitions` x [`CHAIN_LINKS`] additions, each of one core cycle.
pub fn core_clock_chain() -> Result<MachineCode, Unsupported> {
    clock::core_clock_chain::<Assembler>()
}

/// `repetitions` x [`WIDE_ADDS`] additions, as many in a core cycle as the core can.
pub fn wide_additions() -> Result<MachineCode, Unsupported> {
    clock::wide_additions::<Assembler>()
}

/// The machine code of one trip of arithmetic after another.
pub fn flops(flops: Flops, isa: Isa) -> Result<MachineCode, Unsupported> {
    flops::flops::<Assembler>(flops, isa)
}

/// Chains of that code.
pub fn chains_of_flops(flops: Flops, isa: Isa) -> u64 {
    Assembler::chains_of_flops(flops.width, isa)
}

/// The code of one side of a hand-over.
pub fn handover() -> Result<MachineCode, Unsupported> {
    handover::handover::<Assembler>(Isa { lse: detect().lse, ..Assembler::BASELINE })
}

/// The code that writes the lines of its [`Call`](crate::code::Call) by this instruction, from the first pointer on.
pub fn lines(by: LineStore, isa: Isa) -> Result<MachineCode, Unsupported> {
    lines::lines::<Assembler>(by, isa)
}

/// The code that walks from its [`Call`](crate::code::Call)'s first pointer on; what it stores is the call's scalar.
pub fn mix(mix: Mix) -> Result<MachineCode, Unsupported> {
    mix::mix::<Assembler>(mix)
}

/// The code that loads the two addresses that are its [`Call`](crate::code::Call)'s first pointers from memory.
pub fn pair() -> Result<MachineCode, Unsupported> {
    pair::pair::<Assembler>()
}

/// The machine code of one trip of a scan after another. Registers come in and go out through
/// [`Call`](crate::code::Call).
pub fn scan(scan: Scan, isa: Isa) -> Result<MachineCode, Unsupported> {
    scan::scan::<Assembler>(scan, isa)
}

/// The code that walks `call.blocks` lines of each stream from the call's first pointer on, with streams `pitch` bytes
/// apart.
pub fn streams(streams: Streams, pitch: u64) -> Result<MachineCode, Unsupported> {
    streams::streams::<Assembler>(streams, pitch)
}

/// The code that copies or fills the bytes of its [`Call`](crate::code::Call)'s tail by instructions for strings of them.
pub fn strings(fills: bool) -> Result<MachineCode, Unsupported> {
    strings::strings::<Assembler>(fills, Isa { mops: detect().mops, ..Assembler::BASELINE })
}

/// The code that touches `blocks` lines from the first pointer of its [`Call`](crate::code::Call) on.
pub fn touch(touch: Touch) -> Result<MachineCode, Unsupported> {
    probe::touch::<Assembler>(touch)
}
