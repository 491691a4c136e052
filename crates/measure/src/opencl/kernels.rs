//! What a device is told to do: the kernels of `kernels.cl`, each with what its work items may touch.

#![allow(unsafe_code)]

use std::sync::Arc;

use crate::driver;
use crate::driver::{Loop, Memory as _, SCALAR};
use crate::no_visit::NoVisit;
use crate::opencl::calls::{Argument, Kernel, Memory, Session};
use membound_core::kernel::chase;

const SOURCE: &str = include_str!("kernels.cl");

/// The kernels, compiled for a device.
pub(crate) struct Kernels {
    session: Arc<Session>,
    fill: Kernel,
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
        let program = Arc::new(session.build(SOURCE, options).map_err(refused)?);
        Ok(Kernels {
            session: session.clone(),
            fill: program.kernel(c"fill")?,
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

    /// How many elements each of STREAM's arrays has: those of the first.
    fn elements(&self, [a, b, c]: [&Memory; 3]) -> usize {
        assert!(b.bytes() >= a.bytes() && c.bytes() >= a.bytes());
        a.bytes() / if self.has_double { 8 } else { 4 }
    }

    fn number(&self, value: f64) -> Argument<'static> {
        if self.has_double { Argument::Double(value) } else { Argument::Single(value as f32) }
    }
}

impl driver::Kernels for Kernels {
    type Memory = Memory;
    type Cycle = Cycle;

    fn element_bytes(&self) -> usize {
        if self.has_double { 8 } else { 4 }
    }

    fn fill(&mut self, [a, b, c]: [&Memory; 3], values: [f64; 3]) -> Result<bool, NoVisit> {
        let items = self.elements([a, b, c]);
        let [x, y, z] = values.map(|value| self.number(value));
        let arguments = [Argument::Memory(a), Argument::Memory(b), Argument::Memory(c), x, y, z];
        // SAFETY: three arrays and three numbers, as in kernels.cl; a work item touches its own element, and all arrays have so many.
        unsafe { self.fill.run(&arguments, items, 1) }?;
        Ok(true)
    }

    fn stream(&mut self, which: Loop, [a, b, c]: [&Memory; 3], times: u64) -> Result<(), NoVisit> {
        let items = self.elements([a, b, c]);
        let arguments = [Argument::Memory(a), Argument::Memory(b), Argument::Memory(c), self.number(SCALAR)];
        // SAFETY: three arrays and a scalar, as in kernels.cl; a work item touches its own element, and all arrays have so many.
        Ok(unsafe { self.stream[which as usize].run(&arguments, items, times) }?)
    }

    fn words(&mut self, to: &Memory, from: &Memory) -> Result<(), NoVisit> {
        let items = to.bytes().min(from.bytes()) / 8;
        // SAFETY: two arrays, as in kernels.cl; a work item touches its own word, and both have so many.
        Ok(unsafe { self.words.run(&[Argument::Memory(to), Argument::Memory(from)], items, 1) }?)
    }

    fn put(&mut self, to: &Memory, word: u64) -> Result<(), NoVisit> {
        assert!(to.bytes() >= 8);
        // SAFETY: an array and a word, as in kernels.cl; it touches the first word, which is there.
        Ok(unsafe { self.put.run(&[Argument::Memory(to), Argument::Word(word)], 1, 1) }?)
    }

    fn cycle(&self, places: &chase::Cycle, words: &mut [f64]) -> Result<Cycle, NoVisit> {
        let flags = crate::opencl::calls::flags::READ_WRITE;
        let mut next = Memory::buffer(&self.session, flags, size_of_val(words), None)?;
        let mut at = Memory::buffer(&self.session, flags, 8, None)?;
        let first = write_indices(places, words);
        next.write(words)?;
        at.write(&[first])?;
        Ok(Cycle { next, at })
    }

    fn follow(&mut self, Cycle { next, at }: &mut Cycle, links: u64) -> Result<(), NoVisit> {
        let arguments = [Argument::Memory(next), Argument::Memory(at), Argument::Word(links)];
        // SAFETY: two arrays and a number, as in kernels.cl; it touches words of `next` by indices of words of it: all are, by
        // `cycle`, nobody else writes to it, and `at` begins at one of these and ends at one.
        Ok(unsafe { self.chase.run(&arguments, 1, 1) }?)
    }

    fn stands_at(&self, cycle: &mut Cycle) -> Result<u64, NoVisit> {
        let mut at = [0u64];
        cycle.at.read(&mut at)?;
        Ok(at[0])
    }
}

/// Writes into the word of each place the index of the next place's. Returns that of the first one's.
fn write_indices(places: &chase::Cycle, words: &mut [f64]) -> u64 {
    places.write(words, 0);
    words.iter_mut().for_each(|word| *word = f64::from_bits(word.to_bits() / 8));
    places.starts(0, 1).first().map_or(0, |address| address / 8)
}

/// Indices on a device, each of the place after its own, and where a chase stands.
pub(crate) struct Cycle {
    next: Memory,
    at: Memory,
}

#[cfg(test)]
mod tests {
    use super::*;
    use membound_core::kernel::chase::{Chase, Order};
    use membound_core::units::{Bytes, LINE};

    #[test]
    fn a_cycle_leads_where_its_words_say() {
        let cycle = Chase::of(Order::Random).cycle(Bytes(100 * LINE), 1);
        let mut next = vec![0.0; cycle.words()];
        let first = write_indices(&cycle, &mut next);
        let follow = |at: &u64| Some(next[*at as usize].to_bits());
        let places: Vec<u64> = std::iter::successors(Some(first), follow).take(101).collect();
        let after = |links| cycle.after(0, 1, links)[0] / 8;
        assert_eq!((places[100], places[7], places[99]), (first, after(7), after(99)));
        let mut sorted = places[..100].to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).map(|place| place * LINE / 8).collect::<Vec<_>>());
    }
}
