//! Arithmetic in registers on this machine: each thread of a team repeats the same trips.

#![allow(unsafe_code)]

use super::native::{crashed, unavailable};
use super::team::{Task, Team};
use crate::kernel::Isa;
use crate::kernel::code::{Call, Executable};
use crate::kernel::flops::Flops;
use crate::kernel::scan::REGISTER;
use crate::memory::Obtained;
use crate::plan::Case;
use crate::record::{Measured, Outcome, Volume};

/// All chains start from this number. Timed chains multiply by -1 and add 1, so that they stay whole numbers of any
/// element for as long as a sample may last; and a wrong number of links shows.
const START: f64 = 3.0;
const TIMED: [f64; 2] = [-1.0, 1.0];

/// Measures `flops` with a team.
pub(super) fn measure(case: &Case, flops: Flops, team: Team<'_>, isa: Isa) -> Result<Measured, Outcome> {
    let code = flops.assemble(isa).map_err(unavailable)?;
    let code = Executable::new(&code)
        .map_err(|fault| unavailable(format!("executable memory was refused ({fault}); let code be generated")))?;
    let mut tasks: Vec<Chains<'_>> = case.cpus.iter().map(|_| Chains::new(flops, &code)).collect();
    // Factors and addends that tell each operation from every other.
    for (factor, addend, trips) in [(2.0, 5.0, 1), (2.0, 1.0, 1), (-1.0, 7.0, 3)] {
        tasks[0].play(factor, addend, trips)?;
    }
    let (samples, repetitions) = team.measure(&mut tasks)?;
    let threads = case.cpus.len() as u64;
    let volume = Volume { elements: threads, flops: threads * flops.per_trip(), ..Volume::default() };
    Ok(Measured { volume, repetitions, core_clock_links: 0, samples, obtained: Obtained::default() })
}

/// The chains of one thread.
struct Chains<'a> {
    flops: Flops,
    code: &'a Executable,
    call: Call,
    /// Factor and addend of the call.
    done: Option<[f64; 2]>,
}

impl Chains<'_> {
    fn new(flops: Flops, code: &Executable) -> Chains<'_> {
        Chains { flops, code, call: Call::empty(1), done: None }
    }

    /// So many trips, held against plain Rust.
    fn play(&mut self, factor: f64, addend: f64, trips: u64) -> Result<(), Outcome> {
        self.aim(factor, addend);
        self.trips(trips)?;
        self.check()
    }

    fn aim(&mut self, factor: f64, addend: f64) {
        let element = self.flops.element;
        let lane = |number: f64| {
            let mut lane = [0; REGISTER];
            lane.copy_from_slice(&element.encode(&vec![number; REGISTER / element.bytes() as usize]));
            lane
        };
        self.call = Call::of_scan([0; 2], &[lane(factor), lane(addend), lane(START), [0; REGISTER]], 1);
        self.done = Some([factor, addend]);
    }

    fn trips(&mut self, trips: u64) -> Result<(), Outcome> {
        self.call.repetitions = trips;
        // SAFETY: the code reads and writes registers and its own argument, no other memory.
        unsafe { self.code.run(&mut self.call) }.map_err(crashed)
    }

    fn check(&self) -> Result<(), Outcome> {
        let Some([factor, addend]) = self.done else { return Ok(()) };
        let element = self.flops.element;
        let Some(expect) = self.flops.play(START, factor, addend, self.call.repetitions) else { return Ok(()) };
        let bytes = self.flops.width.bytes(element) as usize;
        let found = element.decode(&self.call.registers()[3][..bytes]);
        match found.iter().all(|number| *number == expect) {
            true => Ok(()),
            false => Err(Outcome::Invalid {
                reason: format!("the generated code disagrees with plain Rust: {found:?}, not {expect}"),
            }),
        }
    }
}

impl Task for Chains<'_> {
    fn begin(&mut self) -> Result<(), Outcome> {
        let [factor, addend] = TIMED;
        self.aim(factor, addend);
        self.trips(1)
    }

    fn renew(&mut self) -> Result<u64, Outcome> {
        self.check()?;
        let [factor, addend] = TIMED;
        self.aim(factor, addend);
        self.trips(1)?;
        Ok(0)
    }

    fn run(&mut self, repetitions: u64) -> Result<(), Outcome> {
        self.trips(repetitions)
    }

    fn end(&mut self) -> Result<(), Outcome> {
        self.check()
    }
}
