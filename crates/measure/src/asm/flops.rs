//! Arithmetic in registers as machine code.
//!
//! ```text
//! factor, addend, all chains = call.lanes[0], call.lanes[1], call.lanes[2]
//! for each repetition: 8 times: for each of 12 or 24 chains
//!   fma:      chain = chain * factor + addend
//!   add:      chain = chain + addend
//!   multiply: chain = chain * factor
//! call.lanes[3] = the sum of all chains
//! ```
//!
//! Where vectors have no such fused operation but one that adds to a sum, a chain adds up products that are all the same:
//! chain = chain + factor * addend.
//!
//! Neighbouring instructions belong to different chains, so that none waits for its neighbour. No instruction touches
//! memory inside the loop, and its 96 or 192 instructions fit the cache of decoded ones.

use membound_core::kernel::flops::Flops;
use membound_core::kernel::formula::Operation;
use membound_core::kernel::isa::Isa;
use membound_core::kernel::scan::REGISTER;
use membound_core::kernel::{Element, Unsupported, Width};
use membound_core::machine::spec::Balance;

use crate::asm::instruction_set::{Ability, InstructionSet, Operand, Shape, on_a_line};
use crate::code::{Call, MachineCode};

/// Registers of the operands; the chains have those below.
const FACTOR: usize = 12;
const ADDEND: usize = 13;

pub(crate) fn flops<S: InstructionSet>(flops: Flops, isa: Isa) -> Result<MachineCode, Unsupported> {
    S::check(Ability::Width(flops.width), isa)?;
    if flops.balance == Balance::Fma {
        S::check(Ability::MultiplyAdd, isa)?;
    }
    on_a_line(|padding| generate::<S>(flops, isa, padding))
}

fn generate<S: InstructionSet>(flops: Flops, isa: Isa, padding: usize) -> Result<MachineCode, Unsupported> {
    let mut asm = S::new(isa);
    let lane = |index: usize| S::of_call(Call::LANES + (index * REGISTER) as i32);
    // Of a whole register: unused parts of a scalar's hold the same numbers.
    let bytes = flops.width.max(Width::W128).bytes(Element::Double);
    asm.prologue();
    asm.load_bytes(bytes, FACTOR, lane(0));
    asm.load_bytes(bytes, ADDEND, lane(1));
    let chains = S::chains_of_flops(flops.width, isa);
    for chain in 0..chains {
        asm.load_bytes(bytes, register(chain), lane(2));
    }
    asm.pad(padding);
    let again = asm.here();
    for _ in 0..Flops::LINKS {
        for chain in 0..chains {
            // Where chains differ, the two halves take turns.
            let chain = chain / 2 + chain % 2 * (chains / 2);
            link(&mut asm, flops, flops.link(chain, chains), register(chain));
        }
    }
    asm.count_down(S::REPETITIONS, again);
    for chain in 1..chains {
        asm.binary(Operation::Add, shape(flops), 0, 0, Operand::Register(register(chain)));
    }
    asm.store_bytes(bytes, lane(3), 0);
    asm.end(again)
}

/// Chains beyond those of 16 registers have the second ones of pairs, which Arm's assembler counts from 16 on.
fn register(chain: u64) -> usize {
    (if chain < Flops::CHAINS { chain } else { 16 + chain - Flops::CHAINS }) as usize
}

fn link<S: InstructionSet>(asm: &mut S, flops: Flops, link: Balance, register: usize) {
    let shape = shape(flops);
    match link {
        Balance::Fma if S::ACCUMULATES => asm.add_product(shape, register, FACTOR, Operand::Register(ADDEND)),
        Balance::Fma => asm.multiply_add(shape, register, FACTOR, Operand::Register(ADDEND)),
        Balance::Multiply => asm.binary(Operation::Multiply, shape, register, register, Operand::Register(FACTOR)),
        _ => asm.binary(Operation::Add, shape, register, register, Operand::Register(ADDEND)),
    }
}

fn shape(flops: Flops) -> Shape {
    Shape { width: flops.width, element: flops.element }
}
