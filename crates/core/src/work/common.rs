//! A kernel over arrays in one block, each so many bytes further than the one before would have it.
//!
//! ```text
//! COMMON /block/ a(n), pad1, b(n), pad2, c(n)
//!
//! | a ........ |....|+| b ........ |....|+| c ........ |     + the offset
//! |<-- whole slots -->|
//! ```
//! A Fortran COMMON holds arrays one after the other, so padding decides how equal elements lie to each other. Each
//! array is rounded up to whole slots: then the offset alone is what differs, whatever the working set.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kernel::Variant;
use crate::kernel::streams::SLOT;
use crate::units::Bytes;

/// A kernel and the padding between its arrays.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Common {
    /// The kernel.
    pub variant: Variant,
    /// Bytes by which each array starts further in its slot than the one before: whole elements.
    pub offset_bytes: u32,
}

impl Common {
    /// Whether there is such a block: a kernel that is known and finds its places itself, and an offset of whole elements.
    pub fn exists(&self) -> bool {
        let is_plain = self.variant.row().is_some_and(|kernel| !kernel.formula().gathers());
        is_plain && u64::from(self.offset_bytes).is_multiple_of(self.variant.element.bytes())
    }

    /// Bytes from the start of an array of so many bytes to that of the next.
    pub fn pitch(&self, array: Bytes) -> u64 {
        array.0.next_multiple_of(SLOT) + u64::from(self.offset_bytes)
    }
}

impl fmt::Display for Common {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, arrays in one block, each {} further", self.variant, Bytes(self.offset_bytes.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{USUAL_MEMORY, steady};
    use crate::kernel::{Element, StoreKind, Width};

    fn block(kernel: &str, element: Element, offset_bytes: u32) -> Common {
        let case = steady(kernel, Width::W128, StoreKind::Regular, USUAL_MEMORY, vec![0], Bytes::mib(1)).over(element);
        Common { variant: case.variant().unwrap().clone(), offset_bytes }
    }

    #[test]
    fn places_by_hand() {
        let triad = block("triad", Element::Double, 72);
        assert_eq!((triad.pitch(Bytes(1)), triad.pitch(Bytes::mib(2))), ((2 << 20) + 72, (2 << 20) + 72));
        assert_eq!(triad.pitch(Bytes((2 << 20) + 8)), (4 << 20) + 72);
        assert!(triad.exists() && !block("triad", Element::Double, 4).exists());
        assert!(block("triad", Element::Float, 4).exists());
        let gathering = crate::kernel::catalog::Kernel::find("a[i] = b[k[i]]").unwrap().name;
        assert!(!block(gathering, Element::Double, 64).exists() && !block("no such", Element::Double, 64).exists());
    }
}
