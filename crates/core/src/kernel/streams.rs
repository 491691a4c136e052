//! Many streams at once, each so many bytes from the next: what their mutual alignment does to them.
//!
//! ```text
//! stream 0 | lines ........ |  pitch = a whole number of slots + the offset
//! stream 1                 | lines ........ |
//! for each line: line of stream 0, line of stream 1, ... ; pointer += 64
//! ```

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::{Bytes, LINE, counted, words};

words! {
    /// What is done to each line of the streams.
    Touch, "touch" {
        /// All streams are read.
        Read = "read",
        /// All streams are written.
        Write = "write",
        /// The first half of the streams is copied to the second.
        Copy = "copy",
    }
}

/// Streams start in slots of this many bytes, so that their places in it differ by the offset alone. It is a huge page:
/// within one, physical addresses are known to lie as these do.
pub(crate) const SLOT: u64 = 2 << 20;

/// Streams and how they lie to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Streams {
    /// What is done to them.
    pub touch: Touch,
    /// How many of each thread; even for copies.
    pub streams: u32,
    /// Bytes by which each starts further in its slot than the one before: whole lines.
    pub offset_bytes: u32,
}

impl Streams {
    /// Most streams of a thread.
    pub const MOST: u32 = 32;

    /// Whether there are such streams.
    pub fn exists(self) -> bool {
        let is_even = self.touch != Touch::Copy || self.streams.is_multiple_of(2);
        (1..=Self::MOST).contains(&self.streams) && is_even && u64::from(self.offset_bytes).is_multiple_of(LINE)
    }

    /// Lines of each stream, where one thread has so many bytes.
    pub fn lines(self, share: Bytes) -> u64 {
        (share.0 / LINE / u64::from(self.streams.max(1))).max(1)
    }

    /// Bytes from one stream's start to the next's.
    pub fn pitch(self, share: Bytes) -> u64 {
        (self.lines(share) * LINE).next_multiple_of(SLOT) + u64::from(self.offset_bytes)
    }

    /// Bytes from the first stream's start to the last one's end.
    pub fn span(self, share: Bytes) -> Bytes {
        Bytes(u64::from(self.streams.max(1) - 1) * self.pitch(share) + self.lines(share) * LINE)
    }

    /// Whether this stream is written.
    pub fn is_written(self, stream: u32) -> bool {
        match self.touch {
            Touch::Read => false,
            Touch::Write => true,
            Touch::Copy => stream >= self.streams / 2,
        }
    }

    /// Bytes loaded, stored and write-allocated by one walk of one thread.
    pub fn bytes(self, share: Bytes) -> [u64; 3] {
        let all = self.lines(share) * LINE * u64::from(self.streams);
        match self.touch {
            Touch::Read => [all, 0, 0],
            Touch::Write => [0, all, all],
            Touch::Copy => [all / 2, all / 2, all / 2],
        }
    }
}

impl fmt::Display for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let streams = counted(self.streams, "stream");
        write!(f, "{} {streams}, each {} further", self.touch, Bytes(self.offset_bytes.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_by_hand() {
        // 8 streams of 1 MiB: a slot of 2 MiB each, and 128 bytes further.
        let streams = Streams { touch: Touch::Copy, streams: 8, offset_bytes: 128 };
        assert_eq!((streams.lines(Bytes::mib(8)), streams.pitch(Bytes::mib(8))), (16384, (2 << 20) + 128));
        assert_eq!(streams.span(Bytes::mib(8)), Bytes(7 * ((2 << 20) + 128) + (1 << 20)));
        assert_eq!(streams.bytes(Bytes::mib(8)), [4 << 20; 3]);
        assert_eq!((0..8).map(|stream| streams.is_written(stream)).filter(|written| *written).count(), 4);
        assert!(streams.exists() && !Streams { streams: 7, ..streams }.exists());
        assert!(!Streams { offset_bytes: 32, ..streams }.exists() && !Streams { streams: 34, ..streams }.exists());
    }
}
