//! Scans as machine code.
//!
//! ```text
//! registers 0 to 3 = call.lanes
//! for each repetition: 16 accesses, or 16 pairs
//!   load:  register k = [load + k pages]    (k = 0, 1, 2, 3, 0, ...)
//!   store: [store + k pages] = register k
//!   pair:  [store] = register 0; register 0 = [load]
//! call.lanes = registers 0 to 3
//! ```
//!
//! Loads alone and stores alone wait for nothing but the load and store units: that is throughput. 16 of them hide the
//! loop's own two instructions even where a core does three accesses a cycle.
//!
//! A pair stores what the pair before has loaded. Where the load needs what the store wrote, that is a chain, and a
//! pair takes the whole way from register to register: the latency of forwarding, or of waiting until the store is in
//! the cache. The chain holds however store and load overlap, if only in a byte: a load delivers its register as a
//! whole, and a store waits for its register as a whole. Where they do not overlap there is no chain, and pairs take
//! as long as their throughput allows. A load that is only thought to need the store (because the low 12 bits of their
//! addresses overlap) waits for the store's data all the same. That data comes from the load before: so the pairs form
//! a chain, and what a wait costs can be seen.
//!
//! Values stay in vector registers at all sizes, so that none pays for a transfer between register files. Addresses are
//! in two registers: some cores forward from store to load by the text of the address, before it is computed.

use membound_core::kernel::isa::Isa;
use membound_core::kernel::scan::{REGISTER, Scan};
use membound_core::kernel::{Unsupported, Width};

use crate::asm::instruction_set::{Ability, Address, InstructionSet, on_a_line};
use crate::code::{Call, MachineCode};

pub(crate) fn scan<S: InstructionSet>(scan: Scan, isa: Isa) -> Result<MachineCode, Unsupported> {
    if !scan.exists() {
        return Err(Unsupported::NoSuchInstruction("a scan's accesses are of 4, 8, 16, 32 or 64 bytes"));
    }
    let width = match scan.bytes().into_iter().max() {
        Some(64) => Width::W512,
        Some(32) => Width::W256,
        _ => Width::W128,
    };
    S::check(Ability::Width(width), isa)?;
    on_a_line(|padding| generate::<S>(scan, isa, padding))
}

fn generate<S: InstructionSet>(scan: Scan, isa: Isa, padding: usize) -> Result<MachineCode, Unsupported> {
    let mut asm = S::new(isa);
    let [stored, loaded] = scan.bytes();
    let widest = stored.max(loaded);
    let lane = |register: usize| S::of_call(Call::LANES + (register * REGISTER) as i32);
    let [stores, loads] = [S::POINTERS[0], S::POINTERS[1]];
    asm.prologue();
    asm.load_word(stores, S::of_call(Call::POINTERS));
    asm.load_word(loads, S::of_call(Call::POINTERS + 8));
    for register in 0..Scan::PLACES as usize {
        asm.load_bytes(widest, register, lane(register));
    }
    asm.pad(padding);
    let again = asm.here();
    for access in 0..Scan::ACCESSES {
        let place = if scan.is_paired() { 0 } else { access % Scan::PLACES };
        let at = |base| Address { base, offset: place as i64 * 4096 };
        if stored > 0 {
            asm.store_bytes(stored, at(stores), place as usize);
        }
        if loaded > 0 {
            asm.load_bytes(loaded, place as usize, at(loads));
            if loaded < stored {
                asm.clear_beyond(loaded, place as usize);
            }
        }
    }
    asm.count_down(S::REPETITIONS, again);
    for register in 0..Scan::PLACES as usize {
        asm.store_bytes(widest, lane(register), register);
    }
    asm.end(again)
}
