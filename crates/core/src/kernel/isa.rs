//! The instruction sets that decide which variants exist.

use crate::kernel::Width;

/// The instruction sets that decide which variants exist, of all architectures. On x86 they are read with CPUID and XCR0,
/// on Arm from what the kernel tells: a set that the operating system does not save is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Isa {
    /// 256-bit vectors and three-operand forms.
    pub avx: bool,
    /// 256-bit movntdqa.
    pub avx2: bool,
    /// Fused multiply-add.
    pub fma: bool,
    /// Whether it holds up stores, so that a loop that stores is faster with multiplication and addition apart.
    pub fma_delays_stores: bool,
    /// 512-bit vectors.
    pub avx512: bool,
    /// movntdqa.
    pub sse41: bool,
    /// movntsd and movntss: a non-temporal store of one element.
    pub sse4a: bool,
    /// Arm's vectors of 128 bits, two of which one instruction loads or stores.
    pub neon: bool,
    /// Arm's atomic instructions (LSE): compare and swap in one.
    pub lse: bool,
    /// Bytes of a register of Arm's SVE; 0 without it.
    pub sve_bytes: u32,
    /// Bytes that one instruction of Arm's (dc zva) fills with zeros; 0 where the system prohibits it.
    pub zva_bytes: u32,
    /// Arm's instructions that copy and set memory (FEAT_MOPS).
    pub mops: bool,
    /// x86's copy of 64 bytes as one direct store.
    pub movdir64b: bool,
    /// An instruction of AMD's processors that fills a line with zeros.
    pub clzero: bool,
}

impl Isa {
    /// None of them.
    pub const NONE: Isa = Isa {
        avx: false,
        avx2: false,
        fma: false,
        fma_delays_stores: false,
        avx512: false,
        sse41: false,
        sse4a: false,
        neon: false,
        lse: false,
        sve_bytes: 0,
        zva_bytes: 0,
        mops: false,
        movdir64b: false,
        clzero: false,
    };

    /// Whether `x*y + z` becomes one instruction in a loop that stores, or in one that doesn't.
    pub fn contracts(self, stores: bool) -> bool {
        self.fma && !(stores && self.fma_delays_stores)
    }

    /// The same, where a product is added in one instruction or apart as asked, not as is faster.
    pub fn fusing(self, is_fused: bool) -> Isa {
        Isa { fma: self.fma && is_fused, fma_delays_stores: false, ..self }
    }

    /// The widths there are, narrow first.
    pub fn widths(self) -> Vec<Width> {
        Width::ALL.iter().copied().filter(|&w| self.has_width(w)).collect()
    }

    /// Whether accesses can be as wide.
    pub fn has_width(self, width: Width) -> bool {
        match width {
            Width::Scalar | Width::W128 => true,
            Width::W256 => self.avx || self.neon,
            Width::W512 => self.avx512 || self.sve_bytes >= 64,
        }
    }
}
