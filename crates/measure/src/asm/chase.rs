//! Chases as machine code.
//!
//! ```text
//! registers = call.slots of the first chains
//! for each repetition, 16 times:
//!   each of the first chains:  register = [register]
//!   each chain beyond:         spill = call.slot; spill = [spill]; call.slot = spill
//! call.slots = registers
//! ```
//!
//! `register = [register]` is the shortest dependence that there is from load to load: a base register and nothing
//! else, which is what published load-to-use latencies are about.

use membound_core::kernel::Unsupported;
use membound_core::kernel::chase::Chase;

use crate::asm::instruction_set::{Address, InstructionSet, on_a_line};
use crate::code::{Call, MachineCode};

pub(crate) fn chase<S: InstructionSet>(chase: Chase) -> Result<MachineCode, Unsupported> {
    if !chase.exists() {
        return Err(Unsupported::NoSuchInstruction("a chase has 1 to 32 chains and a stride of whole words"));
    }
    on_a_line(|padding| generate::<S>(chase.chains as usize, padding))
}

fn generate<S: InstructionSet>(chains: usize, padding: usize) -> Result<MachineCode, Unsupported> {
    let mut asm = S::new(S::BASELINE);
    let slot = |chain: usize| S::of_call(Call::LANES + 8 * chain as i32);
    let follow = |asm: &mut S, register| asm.load_word(register, Address { base: register, offset: 0 });
    let in_registers = || S::CHAINS.iter().copied().enumerate().take(chains);
    asm.prologue();
    for (chain, register) in in_registers() {
        asm.load_word(register, slot(chain));
    }
    asm.pad(padding);
    let again = asm.here();
    for _ in 0..Chase::LINKS {
        for (_, register) in in_registers() {
            follow(&mut asm, register);
        }
        for chain in S::CHAINS.len()..chains {
            asm.load_word(S::TRIPS, slot(chain));
            follow(&mut asm, S::TRIPS);
            asm.store_word(slot(chain), S::TRIPS);
        }
    }
    asm.count_down(S::REPETITIONS, again);
    for (chain, register) in in_registers() {
        asm.store_word(slot(chain), register);
    }
    asm.end(again)
}
