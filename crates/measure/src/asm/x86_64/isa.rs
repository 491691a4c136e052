//! What processors have.

use membound_core::kernel::isa::Isa;
use membound_core::kernel::{LoadKind, StoreKind, Unsupported, Width};

use crate::asm::instruction_set::{Ability, Content, LineStore};

/// What this processor has.
pub fn detect() -> Isa {
    Isa {
        avx: is_x86_feature_detected!("avx"),
        avx2: is_x86_feature_detected!("avx2"),
        fma: is_x86_feature_detected!("fma"),
        fma_delays_stores: is_zen_3(),
        avx512: is_x86_feature_detected!("avx512f"),
        sse41: is_x86_feature_detected!("sse4.1"),
        sse4a: is_x86_feature_detected!("sse4a"),
        movdir64b: has_movdir64b(),
        clzero: has_clzero(),
        ..Isa::NONE
    }
}

/// AMD's Zen 3: beside 32 bytes stored a cycle it fuses two products in three cycles. In its first level a triad moves 64 bytes a
/// cycle so, and 95 with multiplication and addition apart; loops that store nothing lose nothing by it. (Zen 4 moves 90 so.)
fn is_zen_3() -> bool {
    let cpuid = raw_cpuid::CpuId::new();
    let is_amd = cpuid.get_vendor_info().is_some_and(|vendor| vendor.as_str() == "AuthenticAMD");
    is_amd && cpuid.get_feature_info().is_some_and(|of| is_model_of_zen_3(of.family_id(), of.model_id()))
}

/// Those of family 25 that are no Zen 4: 0 to 15 (EPYC 7003), 32 to 95 (Ryzen 5000 and 6000).
fn is_model_of_zen_3(family: u8, model: u8) -> bool {
    family == 25 && matches!(model, 0..16 | 32..96)
}

/// CPUID leaf 7, ECX, bit 28 (Intel's manual, volume 2A).
fn has_movdir64b() -> bool {
    raw_cpuid::cpuid!(0).eax >= 7 && raw_cpuid::cpuid!(7, 0).ecx & 1 << 28 != 0
}

/// CPUID leaf 0x80000008, EBX, bit 0 (AMD's manual, volume 3).
fn has_clzero() -> bool {
    raw_cpuid::CpuId::new().get_processor_capacity_feature_info().is_some_and(|info| info.has_cl_zero())
}

/// Why this is not there, if it is not.
pub(super) fn check(ability: Ability, isa: Isa) -> Result<(), Unsupported> {
    use Unsupported::{NoSuchInstruction as Never, NotOnThisProcessor as Lacks};
    Err(match ability {
        Ability::Width(Width::W512) if !isa.avx512 => Lacks("AVX-512"),
        Ability::Width(Width::W256) if !isa.avx => Lacks("AVX"),
        Ability::Store { store: StoreKind::NtMasked, width, .. } if width > Width::W128 => {
            Never("masked non-temporal stores (maskmovdqu) are 128 bits wide")
        }
        Ability::Store { store: StoreKind::Rep, content: Content::Computed, .. } => {
            Never("rep movs and rep stos can only copy and fill")
        }
        Ability::Store { store: StoreKind::Rep, width, .. } if width != Width::Scalar => {
            Never("rep movs and rep stos have no width; use --width scalar")
        }
        Ability::Store { store: StoreKind::Rep, load: LoadKind::Nt, .. } => Never("rep movs has no non-temporal load"),
        Ability::Store { store: StoreKind::Zero, .. } => {
            Never("kernels write blocks of zeros by one instruction (dc zva) on Arm alone")
        }
        Ability::Line(LineStore::Movdir64b) if !isa.movdir64b => Lacks("direct stores of 64 bytes (MOVDIR64B)"),
        Ability::Line(LineStore::Clzero) if !isa.clzero => Lacks("instruction that fills a line with zeros (CLZERO)"),
        Ability::Line(LineStore::DcZva) => Never("dc zva is an instruction of Arm alone"),
        Ability::LoadNt(Width::Scalar) => Never("there is no scalar non-temporal load"),
        Ability::LoadNt(Width::W128) if !isa.sse41 => Lacks("SSE4.1"),
        Ability::LoadNt(Width::W256) if !isa.avx2 => Lacks("AVX2"),
        Ability::Gather(Width::W128) if !isa.avx2 => Lacks("AVX2, which gathers need; use --width scalar"),
        Ability::Gather(Width::W256) if !isa.avx2 => Lacks("AVX2, which gathers need"),
        Ability::MultiplyAdd if !isa.fma => Lacks("FMA"),
        _ => return Ok(()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As AMD numbers them: Milan, Vermeer, Rembrandt, Cezanne; Genoa, Raphael, Phoenix, Bergamo; Rome, Turin.
    #[test]
    fn models_of_zen_3() {
        for (family, model) in [(25, 0x01), (25, 0x21), (25, 0x44), (25, 0x50)] {
            assert!(is_model_of_zen_3(family, model), "{family}/{model:#x}");
        }
        for (family, model) in [(25, 0x11), (25, 0x61), (25, 0x74), (25, 0xa0), (23, 0x31), (26, 0x02)] {
            assert!(!is_model_of_zen_3(family, model), "{family}/{model:#x}");
        }
    }
}
