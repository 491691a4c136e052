//! Kernels: what is done to memory. A kernel is a row of [`CATALOG`](catalog::CATALOG) or a loop of a user's own; its text decides its
//! streams, its traffic and the machine code that runs. [`Variant`] adds what the streams are arrays of and how they are
//! touched: element, width, store kind, load kind, unroll.

pub mod catalog;
pub mod chase;
pub mod exact;
pub mod flops;
pub mod formula;
pub mod isa;
pub mod mix;
pub mod naive;
pub mod parser;
pub mod scan;
pub mod streams;
pub mod unusual;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kernel::parser::FormulaError;
use crate::units::words;

words! {
    /// What streams are arrays of: all of a variant's streams are of the same element.
    #[derive(Default)]
    Element, "element" {
        /// A double-precision number of 8 bytes (binary64 of IEEE 754).
        #[default]
        Double = "double",
        /// A single-precision number of 4 bytes (binary32 of IEEE 754).
        Float = "float",
    }
}

words! {
    /// How many bits one instruction loads or stores.
    Width, "width" {
        /// One element at a time.
        Scalar = "scalar",
        /// Two doubles or four floats: SSE2, or AVX's 128-bit forms.
        W128 = "128",
        /// Four doubles or eight floats: AVX.
        W256 = "256",
        /// Eight doubles or sixteen floats: AVX-512.
        W512 = "512",
    }
}

words! {
    /// How a stream is written.
    StoreKind, "store kind" {
        /// Through the caches, with a write-allocate.
        Regular = "regular",
        /// Non-temporal (streaming): around the caches through write-combining buffers.
        Nt = "nt",
        /// maskmovdqu: non-temporal, byte-masked, at any alignment.
        NtMasked = "nt-masked",
        /// The processor's own string copy: rep movs and rep stos, on Arm cpyf and set.
        Rep = "rep",
        /// Whole blocks of zeros, each by one instruction that need not read what it overwrites: Arm's dc zva.
        Zero = "zero",
    }
}

words! {
    /// How a stream is read.
    LoadKind, "load kind" {
        /// Through the caches.
        Regular = "regular",
        /// movntdqa: a hint that matters on write-combining memory only. On Arm `ldnp` or `ldnt1d`, hints too.
        Nt = "nt",
    }
}

impl Element {
    /// Bytes of one element.
    pub fn bytes(self) -> u64 {
        match self {
            Element::Double => 8,
            Element::Float => 4,
        }
    }

    /// Elements in a cache line of 64 bytes.
    pub fn in_line(self) -> u64 {
        64 / self.bytes()
    }

    /// Every whole number up to this one is exact. Beyond it lie even ones only, and a sum that grows by one stays there:
    /// half-way cases are rounded to the even neighbour.
    pub fn exact_up_to(self) -> f64 {
        match self {
            Element::Double => (1u64 << f64::MANTISSA_DIGITS) as f64,
            Element::Float => (1u64 << f32::MANTISSA_DIGITS) as f64,
        }
    }

    /// Numbers as they lie in memory, each rounded to the nearest that an element can hold.
    pub fn encode(self, numbers: &[f64]) -> Vec<u8> {
        match self {
            Element::Double => numbers.iter().flat_map(|number| number.to_le_bytes()).collect(),
            Element::Float => numbers.iter().flat_map(|number| (*number as f32).to_le_bytes()).collect(),
        }
    }

    /// Places in a stream as they lie in memory: whole numbers of an element's size.
    pub fn encode_index(self, places: &[f64]) -> Vec<u8> {
        places.iter().flat_map(|place| (*place as u64).to_le_bytes().into_iter().take(self.bytes() as usize)).collect()
    }

    /// The numbers that lie in `bytes`; what is left over at the end is none.
    pub fn decode(self, bytes: &[u8]) -> Vec<f64> {
        match self {
            Element::Double => bytes.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect(),
            Element::Float => bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes).into()).collect(),
        }
    }

    /// Whether it is the one that records and tables leave unsaid.
    pub fn is_usual(&self) -> bool {
        *self == Element::default()
    }
}

impl Width {
    /// Bytes in one access.
    pub fn bytes(self, element: Element) -> u64 {
        match self {
            Width::Scalar => element.bytes(),
            Width::W128 => 16,
            Width::W256 => 32,
            Width::W512 => 64,
        }
    }

    /// Bits in one access.
    pub fn bits(self, element: Element) -> u32 {
        8 * self.bytes(element) as u32
    }

    /// Elements in one access.
    pub fn elements(self, element: Element) -> u64 {
        self.bytes(element) / element.bytes()
    }
}

impl StoreKind {
    /// Whether a store first reads the line it writes (read for ownership). `rep` is counted as if it did: processors
    /// avoid it from some length on, and the difference is what the measurement shows.
    pub fn write_allocates(self) -> bool {
        matches!(self, StoreKind::Regular | StoreKind::Rep)
    }

    /// Whether a store goes around the caches, through buffers that a fence must empty.
    pub fn bypasses_caches(self) -> bool {
        matches!(self, StoreKind::Nt | StoreKind::NtMasked)
    }
}

/// A kernel and how it touches its streams: exactly one piece of machine code.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Variant {
    /// The kernel's name in the catalog, or the text of a user's loop.
    pub kernel: String,
    /// What its streams are arrays of; where it is not said: doubles.
    #[serde(default, skip_serializing_if = "Element::is_usual")]
    pub element: Element,
    /// Width of each access.
    pub width: Width,
    /// How streams are written.
    pub store: StoreKind,
    /// How streams are read.
    pub load: LoadKind,
    /// Accesses of `width` to each stream in one trip of the main loop.
    pub unroll: u32,
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.kernel, self.width, self.store)?;
        if self.load == LoadKind::Nt {
            f.write_str(", nt load")?;
        }
        if self.element.is_usual() { Ok(()) } else { write!(f, ", {}", self.element) }
    }
}

/// Why a variant does not exist, here or anywhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// The processor (or the operating system) lacks the instructions.
    #[error("this processor has no {0}")]
    NotOnThisProcessor(&'static str),
    /// No such instruction exists.
    #[error("{0}")]
    NoSuchInstruction(&'static str),
    /// The catalog has no such row.
    #[error("unknown kernel '{name}'; `membound kernel --list` shows all: {known}")]
    UnknownKernel {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A loop that can't be read, or whose elements can't be computed side by side.
    #[error("{0}")]
    Loop(FormulaError),
    /// The assembler refused: a fault of this program.
    #[error("the assembler refused the kernel: {0}")]
    Assembler(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_back_as_far_as_they_fit() {
        for &element in Element::ALL {
            let most = element.exact_up_to();
            let numbers = [0.0, -3.0, 0.5, most, -most];
            let bytes = element.encode(&numbers);
            assert_eq!(bytes.len() as u64, 5 * element.bytes());
            assert_eq!(element.decode(&bytes), numbers);
            assert_eq!(element.decode(&bytes[..bytes.len() - 1]), numbers[..4]);
            assert_eq!(element.decode(&element.encode(&[most + 1.0])), [most], "{element}");
        }
    }

    #[test]
    fn an_old_records_variant_is_one_over_doubles() {
        let old = r#"{"kernel":"triad","width":"256","store":"nt","load":"regular","unroll":16}"#;
        let double: Variant = serde_json::from_str(old).unwrap();
        assert_eq!(double.element, Element::Double);
        assert_eq!(serde_json::to_string(&double).unwrap(), old);
        let float = Variant { element: Element::Float, ..double.clone() };
        let text = serde_json::to_string(&float).unwrap();
        assert!(text.contains(r#""element":"float""#), "{text}");
        assert_eq!(serde_json::from_str::<Variant>(&text).unwrap(), float);
        assert_eq!((double.to_string(), float.to_string()), ("triad 256 nt".into(), "triad 256 nt, float".into()));
    }
}
