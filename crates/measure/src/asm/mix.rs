//! Mixes of reads and writes as machine code. Accesses have 128 bits, which every processor has; memory is slower than
//! that.

use membound_core::kernel::mix::{LINES, Mix, STRIDE};
use membound_core::kernel::{Element, Unsupported, Width};
use membound_core::units::LINE;

use crate::asm::instruction_set::{Address, InstructionSet, Shape};
use crate::code::{Call, MachineCode};

/// Holds what is stored.
const SCALAR: usize = 4;

/// The code that walks from its [`Call`]'s first pointer on; what it stores is the call's scalar.
pub(crate) fn mix<S: InstructionSet>(mix: Mix) -> Result<MachineCode, Unsupported> {
    let mut asm = S::new(S::BASELINE);
    let base = S::POINTERS[0];
    asm.prologue();
    asm.load_word(base, S::of_call(Call::POINTERS));
    asm.fill_from(Shape { width: Width::W128, element: Element::Double }, SCALAR, S::of_call(Call::SCALAR));
    let again = asm.here();
    for line in 0..LINES {
        let at = |part: usize| Address { base, offset: (line * LINE) as i64 + 16 * part as i64 };
        for part in 0..4 {
            match mix {
                Mix::Nt => asm.store_aligned(true, at(part), SCALAR),
                _ => asm.load_aligned(part, at(part)),
            }
        }
        for part in (0..4).filter(|_| mix != Mix::Nt && mix.stores(line)) {
            asm.store_aligned(false, at(part), SCALAR);
        }
    }
    asm.advance(base, STRIDE as i32);
    asm.count_down(S::REPETITIONS, again);
    if mix == Mix::Nt {
        asm.fence_stores();
    }
    asm.end(again)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn code_moves_the_bytes_it_claims() {
        for mix in Mix::ALL {
            let listing = crate::asm::listing(&crate::asm::mix(*mix).unwrap());
            let count = |what: &str| listing.lines().filter(|line| line.contains(what)).count() as u64;
            let stored = count("movaps [rbx") + count("movntps [rbx");
            let loaded = count("movaps xmm");
            assert_eq!([16 * loaded, 16 * stored], mix.bytes(), "{mix}:\n{listing}");
        }
    }
}
