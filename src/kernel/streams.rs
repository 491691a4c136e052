//! Many streams at once, each so many bytes from the next: what their mutual alignment does to them. And their walk as
//! x86-64 machine code.
//!
//! ```text
//! stream 0 | lines ........ |  pitch = a whole number of slots + the offset
//! stream 1                 | lines ........ |
//! for each line: line of stream 0, line of stream 1, ... ; pointer += 64
//! ```

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::{Bytes, words};

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

/// Bytes of a line.
const LINE: u64 = 64;
/// Streams start in slots of this many bytes, so that their places in it differ by the offset alone. It is a huge page:
/// within one, physical addresses are known to lie as these do.
const SLOT: u64 = 2 << 20;

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
        let plural = if self.streams == 1 { "" } else { "s" };
        write!(f, "{} {} stream{plural}, each {} further", self.touch, self.streams, Bytes(self.offset_bytes.into()))
    }
}

#[cfg(target_arch = "x86_64")]
mod code {
    use iced_x86::code_asm::*;

    use super::{LINE, Streams, Touch};
    use crate::kernel::Unsupported;
    use crate::kernel::code::{Call, MachineCode};
    use crate::kernel::probe::build;
    use crate::kernel::x86_64::{epilogue, finish, prologue};

    /// Bytes of one access: SSE2, which every x86-64 core has; memory is slower than any core's narrow accesses.
    const ACCESS: u64 = 16;

    impl Streams {
        /// The code that walks `call.blocks` lines of each stream from the call's first pointer on, with streams `pitch`
        /// bytes apart. Writes store the call's scalar; what is read is added up in the call's first lanes.
        pub fn assemble(self, pitch: u64) -> Result<MachineCode, Unsupported> {
            let farthest = i32::try_from(pitch * u64::from(self.streams));
            if !self.exists() || farthest.is_err() {
                return Err(Unsupported::NoSuchInstruction(
                    "streams must be 1 to 32 and lie within 2 GiB; give a smaller --size",
                ));
            }
            build(|asm| {
                let (mut again, mut line, mut exit) = (asm.create_label(), asm.create_label(), asm.create_label());
                let sums = [xmm0, xmm1, xmm2, xmm3];
                prologue(asm)?;
                asm.movsd_2(xmm4, qword_ptr(r15 + Call::SCALAR))?;
                asm.unpcklpd(xmm4, xmm4)?;
                asm.set_label(&mut again)?;
                sums.into_iter().try_for_each(|sum| asm.xorpd(sum, sum))?;
                asm.mov(rbx, qword_ptr(r15 + Call::POINTERS))?;
                asm.mov(rcx, qword_ptr(r15 + Call::BLOCKS))?;
                asm.set_label(&mut line)?;
                let at = |stream: u32, part: usize| {
                    xmmword_ptr(rbx + (u64::from(stream) * pitch + part as u64 * ACCESS) as i32)
                };
                for stream in 0..self.streams {
                    for (part, sum) in sums.into_iter().enumerate() {
                        match self.touch {
                            Touch::Read => asm.addpd(sum, at(stream, part))?,
                            Touch::Write => asm.movaps(at(stream, part), xmm4)?,
                            Touch::Copy if self.is_written(stream) => {}
                            Touch::Copy => {
                                asm.movaps(xmm5, at(stream, part))?;
                                asm.movaps(at(stream + self.streams / 2, part), xmm5)?;
                            }
                        }
                    }
                }
                asm.add(rbx, LINE as i32)?;
                asm.dec(rcx)?;
                asm.jnz(line)?;
                asm.dec(r14)?;
                asm.jnz(again)?;
                for (part, sum) in sums.into_iter().enumerate() {
                    asm.movaps(xmmword_ptr(r15 + Call::LANES + 16 * part as i32), sum)?;
                }
                epilogue(asm, &mut exit, false)?;
                finish(asm, line, exit)
            })
        }
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
