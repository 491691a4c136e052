//! Memory types where the system maps them for any program (Windows): the case runs as others do, once each of its types is
//! proved by behaviour ([`membound_core::memory::behaviour`]). Where that fails, no sample is taken.

use std::collections::HashMap;

use crate::behaviour::prove;
use crate::executor::native::Native;
use crate::executor::{memory_types, with_room};
use crate::memory::places::Places;
use crate::memory::region::Region;
use crate::no_visit::NoVisit;
use crate::os::clock::Ticker;
use crate::os::memory::TYPES;
use crate::schedule::{Executor, Quota};
use crate::threads::pinned;
use membound_core::case::Case;
use membound_core::memory::behaviour::PROBE;
use membound_core::memory::proof::Proof;
use membound_core::memory::{MemoryKind, MemorySpec};
use membound_core::record::{Clock, Measured, Outcome};

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

    /// A visit, as far as memory allows that is not kept for other cases.
    pub(crate) fn try_visit(&mut self, case: &Case, quota: &Quota<'_>) -> Result<Measured, NoVisit> {
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
        let mut measured = native.try_visit(case, quota)?;
        measured.obtained.proofs.extend(proofs);
        Ok(measured)
    }

    /// Proves a type, or remembers the verdict.
    fn proved(&mut self, kind: MemoryKind, cpu: u32) -> Result<Proof, NoVisit> {
        let verdict = match self.verdicts.get(&kind) {
            Some(verdict) => verdict.clone(),
            None => {
                let (ticker, hz) = (self.ticker, self.clock.hz);
                // A failure to run is no verdict: it is tried again at the next visit.
                let verdict = pinned(cpu, || {
                    let mut region = Region::new(MemorySpec::of(kind), PROBE, &Places::default())?;
                    prove(kind, region.words(), ticker, hz)
                })?;
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
        with_room(self, |typed| typed.try_visit(case, quota))
    }
}
