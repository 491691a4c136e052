//! What processors have.

use membound_core::kernel::isa::Isa;
use membound_core::kernel::{Element, LoadKind, StoreKind, Unsupported, Width};

use crate::asm::instruction_set::Ability;
#[cfg(target_arch = "aarch64")]
use crate::os::sve;

/// What every processor of Armv8-A has: vectors of 128 bits, and loads and stores of two registers.
pub(super) const NEON: Isa = Isa { neon: true, fma: true, ..Isa::NONE };

/// What this processor has.
#[cfg(target_arch = "aarch64")]
pub fn detect() -> Isa {
    Isa { lse: std::arch::is_aarch64_feature_detected!("lse"), sve_bytes: sve::register_bytes(), ..NEON }
}

/// Why this is not there, if it is not.
pub(super) fn check(ability: Ability, isa: Isa) -> Result<(), Unsupported> {
    use Unsupported::{NoSuchInstruction as Never, NotOnThisProcessor as Lacks};
    Err(match ability {
        Ability::Width(Width::W512) if isa.sve_bytes < 64 => Lacks("SVE with registers of 512 bits or more"),
        Ability::Width(Width::W256) if !isa.neon => Lacks("NEON"),
        Ability::Store { store: StoreKind::NtMasked, .. } => {
            Never("masked non-temporal stores (maskmovdqu) are x86's alone")
        }
        Ability::Store { store: StoreKind::Rep, is_copy_or_fill: false, .. } => {
            Never("instructions for strings can only copy and fill")
        }
        Ability::Store { store: StoreKind::Rep, .. } => {
            Never("rep movs and rep stos are x86's alone; Arm's counterpart (FEAT_MOPS) is not used")
        }
        Ability::Store { store: StoreKind::Nt, width, .. } if width < Width::W256 => {
            Never("non-temporal stores (stnp) are of two registers: 256 bits")
        }
        Ability::Store { store: StoreKind::Nt, load: LoadKind::Nt, width, .. } | Ability::LoadNt(width)
            if width < Width::W256 =>
        {
            Never("non-temporal loads (ldnp) are of two registers: 256 bits")
        }
        Ability::Gather(width) if width > Width::Scalar && width.bytes(Element::Double) > isa.sve_bytes.into() => {
            Lacks("SVE with registers of that width, which gathers need; use --width scalar")
        }
        Ability::Gather(Width::W128) => Never("gathers (ld1d, ld1w) are used at 256 and 512 bits; use --width scalar"),
        Ability::MultiplyAdd if !isa.fma => Lacks("FMA"),
        _ => return Ok(()),
    })
}
