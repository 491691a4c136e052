//! What a device is told to do: the kernels of `kernels.cl`, each with what its work items may touch.

#![allow(unsafe_code)]

use std::sync::Arc;

use crate::no_visit::NoVisit;
use crate::opencl::calls::{Argument, Kernel, Memory, Session};
use crate::opencl::failure::Failure;

const SOURCE: &str = include_str!("kernels.cl");

/// STREAM's scalar, which single precision holds exactly, too.
pub(crate) const SCALAR: f64 = 3.0;

/// STREAM's loops, in the order of [`Kernels::stream`]'s kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loop {
    Copy,
    Scale,
    Add,
    Triad,
}

/// The kernels, compiled for a device.
pub(crate) struct Kernels {
    stream: [Kernel; 4],
    words: Kernel,
    put: Kernel,
    chase: Kernel,
    has_double: bool,
}

impl Kernels {
    pub fn new(session: &Arc<Session>, has_double: bool) -> Result<Self, NoVisit> {
        let options = if has_double { "-D DOUBLE" } else { "" };
        let refused = |why| NoVisit::impossible(format!("the device's compiler refuses our kernels: {why}"));
        let program = session.build(SOURCE, options).map_err(refused)?;
        Ok(Kernels {
            stream: [
                program.kernel(c"copy")?,
                program.kernel(c"scale")?,
                program.kernel(c"add")?,
                program.kernel(c"triad")?,
            ],
            words: program.kernel(c"words")?,
            put: program.kernel(c"put")?,
            chase: program.kernel(c"chase")?,
            has_double,
        })
    }

    /// Bytes of an element of STREAM's arrays.
    pub fn element_bytes(&self) -> usize {
        if self.has_double { 8 } else { 4 }
    }

    /// Runs a loop over three arrays.
    pub fn stream(&mut self, which: Loop, [a, b, c]: [&Memory; 3]) -> Result<(), Failure> {
        let items = a.bytes() / self.element_bytes();
        assert!(b.bytes() >= a.bytes() && c.bytes() >= a.bytes());
        let scalar = if self.has_double { Argument::Double(SCALAR) } else { Argument::Single(SCALAR as f32) };
        let arguments = [Argument::Memory(a), Argument::Memory(b), Argument::Memory(c), scalar];
        // SAFETY: three arrays and a scalar, as in kernels.cl; a work item touches its own element, and all arrays have so many,
        // as asserted.
        unsafe { self.stream[which as usize].run(&arguments, items) }
    }

    /// Has the device read `from` into `to`, as many words as `from` has or `to` has room for.
    pub fn words(&mut self, to: &Memory, from: &Memory) -> Result<(), Failure> {
        let items = to.bytes().min(from.bytes()) / 8;
        // SAFETY: two arrays, as in kernels.cl; a work item touches its own word, and both have so many.
        unsafe { self.words.run(&[Argument::Memory(to), Argument::Memory(from)], items) }
    }

    /// Has the device store a word to the start of `to`.
    pub fn put(&mut self, to: &Memory, word: u64) -> Result<(), Failure> {
        assert!(to.bytes() >= 8);
        // SAFETY: an array and a word, as in kernels.cl; it touches the first word, which is there.
        unsafe { self.put.run(&[Argument::Memory(to), Argument::Word(word)], 1) }
    }

    /// Follows so many links of `next` from the place in `at`, and leaves there where it ends.
    ///
    /// # Panics
    /// Where `at` has no word.
    ///
    /// # Safety
    /// Each word of `next` and the first of `at` must be the index of a word of `next`.
    pub unsafe fn chase(&mut self, next: &Memory, at: &Memory, links: u64) -> Result<(), Failure> {
        assert!(at.bytes() >= 8);
        let arguments = [Argument::Memory(next), Argument::Memory(at), Argument::Word(links)];
        // SAFETY: two arrays and a number, as in kernels.cl; it touches words of `next` by indices that the caller vouches for.
        unsafe { self.chase.run(&arguments, 1) }
    }
}

/// Indices, each of the place after its own, on a device, and where a chase stands.
pub(crate) struct Cycle {
    next: Memory,
    at: Memory,
}

impl Cycle {
    /// One cycle through places so many words apart, in the order of `order`.
    pub fn new(session: &Arc<Session>, order: &[usize], words: usize) -> Result<Self, Failure> {
        let flags = crate::opencl::calls::flags::READ_WRITE;
        let mut indices = vec![0u64; order.len().max(1) * words];
        for (&place, &next) in order.iter().zip(order.iter().cycle().skip(1)) {
            indices[place * words] = (next * words) as u64;
        }
        let mut next = Memory::buffer(session, flags, size_of_val(&indices[..]), None)?;
        let mut at = Memory::buffer(session, flags, 8, None)?;
        next.write(&indices)?;
        at.write(&[0])?;
        Ok(Cycle { next, at })
    }

    /// Follows so many links.
    pub fn follow(&mut self, kernels: &mut Kernels, links: u64) -> Result<(), Failure> {
        // SAFETY: all words of `next` are multiples of the distance below its length, or 0, by `new`; nobody else writes to
        // it; `at` begins at 0 and ends at one of these.
        unsafe { kernels.chase(&self.next, &self.at, links) }
    }

    /// Where it stands.
    pub fn at(&mut self) -> Result<u64, Failure> {
        let mut at = [0];
        self.at.read(&mut at)?;
        Ok(at[0])
    }
}
