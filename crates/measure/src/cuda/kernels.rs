//! What a device is told to do: the kernels of `kernels.ptx`, each with what its threads may touch.

#![allow(unsafe_code)]

use std::ffi::CString;
use std::sync::Arc;

use crate::cuda::calls::{Argument, Function, Memory, Module, Session};
use crate::driver;
use crate::driver::{Loop, Memory as _, SCALAR};
use crate::no_visit::NoVisit;
use membound_core::kernel::chase;

/// The kernels as text, which the driver compiles for its device.
const SOURCE: &str = include_str!("kernels.ptx");

/// Of the chase in `kernels.ptx`.
const LINKS_A_ROUND: u64 = 8;

/// The kernels, compiled for a device.
pub(crate) struct Kernels {
    module: Module,
    stream: [Function; 4],
    words: Function,
    put: Function,
    chase: Function,
}

/// Addresses on a device, each of the place after its own, and where a chase stands.
pub(crate) struct Cycle {
    places: Memory,
    at: Memory,
}

impl Kernels {
    pub fn new(session: &Arc<Session>) -> Result<Self, NoVisit> {
        let source = CString::new(SOURCE).unwrap_or_default();
        let module = session.load(&source).map_err(|(failure, said)| match NoVisit::from(failure) {
            NoVisit::Impossible(why) if !said.is_empty() => NoVisit::impossible(format!("{why}: {said}")),
            other => other,
        })?;
        let [copy, scale, add, triad] = [c"copy", c"scale", c"add", c"triad"].map(|name| module.function(name));
        let [words, put, chase] = [c"words", c"put", c"chase"].map(|name| module.function(name));
        Ok(Kernels { stream: [copy?, scale?, add?, triad?], words: words?, put: put?, chase: chase?, module })
    }
}

impl driver::Kernels for Kernels {
    type Memory = Memory;
    type Cycle = Cycle;

    fn element_bytes(&self) -> usize {
        8
    }

    fn stream(&mut self, which: Loop, [a, b, c]: [&Memory; 3], times: u64) -> Result<(), NoVisit> {
        // Whole pages, so that pairs of elements lie within them.
        let each = if matches!(which, Loop::Copy | Loop::Scale) { 2 } else { 1 };
        let items = a.bytes() / 8 / each;
        assert!(b.bytes() >= a.bytes() && c.bytes() >= a.bytes());
        let memory = [a, b, c].map(Argument::Memory);
        let arguments: Vec<Argument<'_>> =
            memory.into_iter().chain([Argument::Double(SCALAR), Argument::Word(items as u64)]).collect();
        // SAFETY: three arrays, a scalar and a length, as in kernels.ptx; a thread below that length touches its own element or
        // pair, and all arrays have so many, as asserted.
        Ok(unsafe { self.module.run(self.stream[which as usize], &arguments, items, times) }?)
    }

    fn words(&mut self, to: &Memory, from: &Memory) -> Result<(), NoVisit> {
        let items = to.bytes().min(from.bytes()) / 8;
        let arguments = [Argument::Memory(to), Argument::Memory(from), Argument::Word(items as u64)];
        // SAFETY: two arrays and a length, as in kernels.ptx; a thread below that length touches its own word, and both have so
        // many.
        Ok(unsafe { self.module.run(self.words, &arguments, items, 1) }?)
    }

    fn put(&mut self, to: &Memory, word: u64) -> Result<(), NoVisit> {
        assert!(to.bytes() >= 8);
        // SAFETY: an array and a word, as in kernels.ptx; it touches the first word, which is there.
        Ok(unsafe { self.module.run(self.put, &[Argument::Memory(to), Argument::Word(word)], 1, 1) }?)
    }

    fn cycle(&self, cycle: &chase::Cycle, words: &mut [f64]) -> Result<Cycle, NoVisit> {
        let mut places = Memory::of_device(self.module.session(), size_of_val(words))?;
        let mut at = Memory::of_device(self.module.session(), 8)?;
        // Addresses: a load then needs nothing but the load before it.
        cycle.write(words, places.address());
        places.write(words)?;
        at.write(&cycle.starts(places.address(), 1))?;
        Ok(Cycle { places, at })
    }

    fn follow(&mut self, Cycle { at, .. }: &mut Cycle, links: u64) -> Result<(), NoVisit> {
        assert!(links.is_multiple_of(LINKS_A_ROUND));
        let arguments = [Argument::Memory(at), Argument::Word(links / LINKS_A_ROUND)];
        // SAFETY: an array and a number, as in kernels.ptx; it touches words of the cycle's places by addresses of them: all of its
        // words are, by `cycle`, nobody else writes to them, and `at` begins at one of these and ends at one.
        Ok(unsafe { self.module.run(self.chase, &arguments, 1, 1) }?)
    }

    fn stands_at(&self, Cycle { places, at }: &mut Cycle) -> Result<u64, NoVisit> {
        let mut word = [0u64];
        at.read(&mut word)?;
        Ok(word[0].wrapping_sub(places.address()) / 8)
    }
}
