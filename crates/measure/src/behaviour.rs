//! What type memory is that this process has mapped, by how it behaves ([`membound_core::memory::behaviour`]): its lines are touched by
//! machine code, beside those of write-back memory.

#![allow(unsafe_code)]

use crate::bench::executable;
use crate::code::{Call, Executable};
use crate::memory::places::Places;
use crate::memory::region::Region;
use crate::no_visit::NoVisit;
use crate::os::clock::Ticker;
use membound_core::memory::behaviour::{self, Lines, PROBE, Touch};
use membound_core::memory::proof::Proof;
use membound_core::memory::{MemoryKind, MemorySpec};
use membound_core::units::{Hertz, LINE};

/// Whether memory behaves as that of type `kind`, and what shows it; what contradicts otherwise. Its contents are lost.
pub(crate) fn prove(
    kind: MemoryKind,
    words: &mut [f64],
    ticker: Ticker,
    hz: Hertz,
) -> Result<Result<Proof, String>, NoVisit> {
    let mut codes = Vec::new();
    for touch in Touch::ALL {
        codes.push(executable(crate::asm::touch(touch))?);
    }
    let lines = |words| NativeLines::new(words, &codes, ticker, hz);
    // What a program gets is write-back memory on every system.
    let mut write_back = Region::new(MemorySpec::of(MemoryKind::Base), PROBE, &Places::default())?;
    let reference = behaviour::observe_reference(&mut lines(write_back.words()))?;
    let seen = behaviour::observe(&mut lines(words))?;
    Ok(behaviour::prove(kind, &seen, &reference))
}

/// Lines of memory.
struct NativeLines<'a> {
    words: &'a mut [f64],
    /// In the order of [`Touch`].
    codes: &'a [Executable],
    ticker: Ticker,
    ns_per_tick: f64,
}

impl<'a> NativeLines<'a> {
    /// The first of these words, as many as are touched, filled so that there are pages.
    fn new(words: &'a mut [f64], codes: &'a [Executable], ticker: Ticker, hz: Hertz) -> Self {
        let touched = words.len().min(PROBE.0 as usize / 8);
        let words = &mut words[..touched];
        words.fill(0.0);
        NativeLines { words, codes, ticker, ns_per_tick: 1e9 / hz.0 }
    }

    fn lines(&self) -> u64 {
        size_of_val(self.words) as u64 / LINE
    }

    fn pass(&mut self, touch: Touch, lines: u64) -> Result<u64, NoVisit> {
        assert!(lines <= self.lines());
        let mut call = Call::empty(1);
        call.pointers[0] = self.words.as_mut_ptr() as u64;
        call.blocks = lines;
        let start = self.ticker.now();
        // SAFETY: the code touches so many lines from this address on, which are borrowed words, as asserted, and no others.
        unsafe { self.codes[touch as usize].run(&mut call) }?;
        Ok(self.ticker.now() - start)
    }
}

impl Lines for NativeLines<'_> {
    type Fault = NoVisit;

    fn touch(&mut self, touches: &[Touch]) -> Result<Vec<f64>, NoVisit> {
        let lines = self.lines();
        // A pass over no lines is the cost of a call and of reading the clock.
        let overhead = self.pass(Touch::Load, 0)?;
        let ns_per_tick = self.ns_per_tick;
        let cost = |ticks: u64| ticks.saturating_sub(overhead).max(1) as f64 * ns_per_tick / lines.max(1) as f64;
        touches.iter().map(|touch| self.pass(*touch, lines).map(cost)).collect()
    }
}
