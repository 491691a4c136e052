//! The instruction sets that decide which variants exist.

use crate::kernel::Width;

/// The instruction sets that decide which variants exist. Read with CPUID and XCR0: a set that the operating system
/// does not save is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Isa {
    /// 256-bit vectors and three-operand forms.
    pub avx: bool,
    /// 256-bit movntdqa.
    pub avx2: bool,
    /// Fused multiply-add.
    pub fma: bool,
    /// 512-bit vectors.
    pub avx512: bool,
    /// movntdqa.
    pub sse41: bool,
    /// movntsd and movntss: a non-temporal store of one element.
    pub sse4a: bool,
}

impl Isa {
    /// The widths there are, narrow first.
    pub fn widths(self) -> Vec<Width> {
        Width::ALL.iter().copied().filter(|&w| self.has_width(w)).collect()
    }

    /// Whether accesses can be as wide.
    pub fn has_width(self, width: Width) -> bool {
        match width {
            Width::Scalar | Width::W128 => true,
            Width::W256 => self.avx,
            Width::W512 => self.avx512,
        }
    }
}
