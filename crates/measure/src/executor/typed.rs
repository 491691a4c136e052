//! Memory types where the system maps them for any program (Windows): the case runs as others do, once each of its types is
//! proved by behaviour ([`membound_core::memory::behaviour`]). Where that fails, no sample is taken.

#![allow(unsafe_code)]

use std::collections::HashMap;

use crate::asm::probe;
use crate::bench::executable;
use crate::code::{Call, Executable};
use crate::executor::memory_types;
use crate::executor::native::Native;
use crate::memory::places::Places;
use crate::memory::region::Region;
use crate::no_visit::NoVisit;
use crate::os::clock::Ticker;
use crate::os::memory::TYPES;
use crate::schedule::{Executor, Quota};
use crate::threads::pinned;
use membound_core::case::Case;
use membound_core::memory::behaviour::{self, Lines, Touch};
use membound_core::memory::proof::Proof;
use membound_core::memory::{MemoryKind, MemorySpec};
use membound_core::record::{Clock, Measured, Outcome};
use membound_core::units::Bytes;

/// What is touched to see how a type behaves: it fits into the first-level cache.
const PROBE: Bytes = Bytes::kib(16);
const LINE: u64 = 64;

/// Runs cases in memory of given types.
#[derive(Debug)]
pub struct Typed {
    clock: Clock,
    ticker: Ticker,
    places: Places,
    verify: bool,
    /// Made for the first case.
    native: Option<Native>,
    expected: Vec<Case>,
    /// What came of proving a type.
    verdicts: HashMap<MemoryKind, Result<Proof, String>>,
}

impl Typed {
    /// Prepares to run `cases`, by a clock that the caller has calibrated.
    pub fn new(cases: &[Case], ticker: Ticker, clock: Clock, places: Places, verify: bool) -> Self {
        let expected = cases.to_vec();
        Typed { clock, ticker, places, verify, native: None, expected, verdicts: HashMap::new() }
    }

    fn try_visit(&mut self, case: &Case, quota: &Quota<'_>) -> Result<Outcome, NoVisit> {
        let kinds = memory_types(case);
        if let Some(kind) = kinds.iter().find(|kind| !TYPES.contains(kind)) {
            return Err(NoVisit::impossible(match TYPES {
                [] if cfg!(target_arch = "x86_64") => "this build has no micro-VM; build with the feature kvm".into(),
                [] => String::from("memory types are chosen by x86's page tables, in a micro-VM that x86-64 alone has"),
                _ => format!("{kind}: this system maps write-back, write-combining and uncached memory alone"),
            }));
        }
        let cpu = case.cpus.first().copied().unwrap_or(0);
        let proofs: Vec<Proof> = kinds.iter().map(|kind| self.proved(*kind, cpu)).collect::<Result<_, _>>()?;
        let native = match &mut self.native {
            Some(native) => native,
            none => none.insert(Native::new(&self.expected, self.places.clone(), self.verify)?),
        };
        Ok(match native.visit(case, quota) {
            Outcome::Measured(mut measured) => {
                let Measured { obtained, .. } = &mut *measured;
                obtained.proofs.extend(proofs);
                Outcome::Measured(measured)
            }
            other => other,
        })
    }

    /// Proves a type, or remembers the verdict.
    fn proved(&mut self, kind: MemoryKind, cpu: u32) -> Result<Proof, NoVisit> {
        let ns_per_tick = 1e9 / self.clock.hz.0;
        let verdict = match self.verdicts.get(&kind) {
            Some(verdict) => verdict.clone(),
            None => {
                let ticker = self.ticker;
                // A failure to run is no verdict: it is tried again at the next visit.
                let verdict = pinned(cpu, || prove(kind, ticker, ns_per_tick))?;
                self.verdicts.insert(kind, verdict.clone());
                verdict
            }
        };
        verdict.map_err(NoVisit::Wrong)
    }
}

impl Executor for Typed {
    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    fn expect(&mut self, cases: &[Case]) {
        self.expected = cases.to_vec();
        if let Some(native) = &mut self.native {
            native.expect(cases);
        }
    }

    fn begin_round(&mut self) {
        if let Some(native) = &mut self.native {
            native.begin_round();
        }
    }

    fn visit(&mut self, case: &Case, quota: &Quota<'_>) -> Outcome {
        self.try_visit(case, quota).unwrap_or_else(Into::into)
    }
}

/// Observes memory of type `kind` and write-back memory beside it.
fn prove(kind: MemoryKind, ticker: Ticker, ns_per_tick: f64) -> Result<Result<Proof, String>, NoVisit> {
    let mut codes = Vec::new();
    for touch in [probe::Touch::Load, probe::Touch::StoreWord, probe::Touch::StoreLine, probe::Touch::Flush] {
        codes.push(executable(crate::asm::touch(touch))?);
    }
    let lines = |kind| {
        let mut region = Region::new(MemorySpec::of(kind), PROBE, &Places::default())?;
        // So that there are pages.
        region.contents().fill(0);
        Ok::<_, NoVisit>(NativeLines { region, codes: &codes, ticker, ns_per_tick })
    };
    let reference = behaviour::observe_reference(&mut lines(MemoryKind::Wb)?)?;
    let seen = behaviour::observe(&mut lines(kind)?)?;
    Ok(behaviour::prove(kind, &seen, &reference))
}

/// The lines of a region.
struct NativeLines<'a> {
    region: Region,
    /// In the order of [`Touch`].
    codes: &'a [Executable],
    ticker: Ticker,
    ns_per_tick: f64,
}

impl NativeLines<'_> {
    fn pass(&self, touch: Touch, blocks: u64) -> Result<u64, NoVisit> {
        let mut call = Call::empty(1);
        call.pointers[0] = self.region.address();
        call.blocks = blocks;
        let start = self.ticker.now();
        // SAFETY: the code touches so many lines from this address on, which are the region's, and no others.
        unsafe { self.codes[touch as usize].run(&mut call) }?;
        Ok(self.ticker.now() - start)
    }
}

impl Lines for NativeLines<'_> {
    type Fault = NoVisit;

    fn touch(&mut self, touches: &[Touch]) -> Result<Vec<f64>, NoVisit> {
        let lines = PROBE.0 / LINE;
        // A pass over no lines is the cost of a call and of reading the clock.
        let overhead = self.pass(Touch::Load, 0)?;
        let cost = |ticks: u64| ticks.saturating_sub(overhead).max(1) as f64 * self.ns_per_tick / lines as f64;
        touches.iter().map(|touch| self.pass(*touch, lines).map(cost)).collect()
    }
}
