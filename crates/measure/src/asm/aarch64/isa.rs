//! What processors have.

use membound_core::kernel::isa::Isa;
use membound_core::kernel::{Element, LoadKind, StoreKind, Unsupported, Width};

use crate::asm::instruction_set::{Ability, Content, LineStore};
#[cfg(target_arch = "aarch64")]
use crate::os::{registers, sve};

/// What a processor lacks that has no instructions for strings.
pub(super) const NO_MOPS: &str = "instructions that copy and set memory (FEAT_MOPS)";
/// The same of blocks of zeros.
const NO_ZVA: &str = "dc zva that programs may use: its system prohibits it (DCZID_EL0)";

/// What every processor of Armv8-A has: vectors of 128 bits, and loads and stores of two registers.
pub(super) const NEON: Isa = Isa { neon: true, fma: true, ..Isa::NONE };

/// What this processor has.
#[cfg(target_arch = "aarch64")]
pub fn detect() -> Isa {
    Isa {
        lse: std::arch::is_aarch64_feature_detected!("lse"),
        sve_bytes: sve::register_bytes(),
        zva_bytes: registers::zero_block_bytes(),
        mops: registers::has_mops(),
        ..NEON
    }
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
        Ability::Store { store: StoreKind::Rep | StoreKind::Zero, .. } => return check_whole(ability, isa),
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
        Ability::Line(LineStore::Movdir64b) => Never("movdir64b is an instruction of x86 alone"),
        Ability::Line(LineStore::Clzero) => Never("clzero is an instruction of x86 alone"),
        Ability::Line(LineStore::DcZva) if isa.zva_bytes == 0 => Lacks(NO_ZVA),
        _ => return Ok(()),
    })
}

/// The same of instructions that write whole blocks or arrays.
fn check_whole(ability: Ability, isa: Isa) -> Result<(), Unsupported> {
    use Unsupported::{NoSuchInstruction as Never, NotOnThisProcessor as Lacks};
    let Ability::Store { store, width, load, content } = ability else { return Ok(()) };
    Err(match (store, content) {
        (StoreKind::Zero, Content::Copy | Content::Number | Content::Computed) => {
            Never("dc zva writes nothing but zeros; use --kernel init, or --store regular")
        }
        (StoreKind::Zero, _) if width != Width::Scalar => Never("dc zva has no width; use --width scalar"),
        (StoreKind::Zero, _) if isa.zva_bytes == 0 => Lacks(NO_ZVA),
        (StoreKind::Rep, _) if !isa.mops => Lacks(NO_MOPS),
        (StoreKind::Rep, Content::Computed) => Never("instructions for strings can only copy and fill"),
        (StoreKind::Rep, Content::Number) => {
            Never("set writes the same byte everywhere; use --kernel init, which writes zeros, or --store regular")
        }
        (StoreKind::Rep, _) if width != Width::Scalar => Never("cpyf and set have no width; use --width scalar"),
        (StoreKind::Rep, _) if load == LoadKind::Nt => Never("cpyf is used with regular loads; use --load regular"),
        _ => return Ok(()),
    })
}
