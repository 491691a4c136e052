//! Arithmetic in registers on this machine: each thread of a team repeats the same trips.

#![allow(unsafe_code)]

use crate::bench::{executable, measured};
use crate::code::{Call, Executable};
use crate::no_visit::NoVisit;
use crate::team::{Task, Team};
use membound_core::case::Case;
use membound_core::kernel::flops::Flops;
use membound_core::kernel::isa::Isa;
use membound_core::kernel::scan::REGISTER;
use membound_core::machine::spec::Balance;
use membound_core::memory::Obtained;
use membound_core::record::{Measured, Unit, Volume};

/// All chains start from this number. Timed chains multiply by -1 and add 1, so that they stay whole numbers of any
/// element for as long as a sample may last; and a wrong number of links shows.
const START: f64 = 3.0;
const TIMED: [f64; 2] = [-1.0, 1.0];

/// Measures `flops` with a team.
pub(crate) fn measure(case: &Case, flops: Flops, team: Team<'_>, isa: Isa) -> Result<Measured, NoVisit> {
    let code = executable(crate::asm::flops(flops, isa))?;
    let chains = crate::asm::chains_of_flops(flops, isa);
    let mut tasks: Vec<Chains<'_>> = case.cpus.iter().map(|_| Chains::new(flops, chains, &code)).collect();
    // Factors and addends that tell each operation from every other.
    for (factor, addend, trips) in [(2.0, 5.0, 1), (2.0, 1.0, 1), (-1.0, 7.0, 3)] {
        tasks[0].play(factor, addend, trips)?;
    }
    let taken = team.measure(&mut tasks)?;
    let threads = case.cpus.len() as u64;
    let flops = threads * flops.per_trip(chains);
    let volume = Volume { units: threads, unit: Unit::Trip, flops, ..Volume::default() };
    Ok(measured(volume, taken, Obtained::default()))
}

/// The chains of one thread.
struct Chains<'a> {
    flops: Flops,
    /// How many they are.
    chains: u64,
    code: &'a Executable,
    call: Call,
    /// Factor and addend of the call.
    done: Option<[f64; 2]>,
}

impl Chains<'_> {
    fn new(flops: Flops, chains: u64, code: &Executable) -> Chains<'_> {
        Chains { flops, chains, code, call: Call::empty(1), done: None }
    }

    /// So many trips, held against plain Rust.
    fn play(&mut self, factor: f64, addend: f64, trips: u64) -> Result<(), NoVisit> {
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

    fn trips(&mut self, trips: u64) -> Result<(), NoVisit> {
        self.call.repetitions = trips;
        // SAFETY: the code reads and writes registers and its own argument, no other memory.
        Ok(unsafe { self.code.run(&mut self.call) }?)
    }

    fn check(&self) -> Result<(), NoVisit> {
        let Some([factor, addend]) = self.done else { return Ok(()) };
        let element = self.flops.element;
        let Some(expect) = play(self.flops, self.chains, factor, addend, self.call.repetitions) else { return Ok(()) };
        let bytes = self.flops.width.bytes(element) as usize;
        let found = element.decode(&self.call.registers()[3][..bytes]);
        match found.iter().all(|number| *number == expect) {
            true => Ok(()),
            false => Err(NoVisit::Disagrees(format!(": {found:?}, not {expect}"))),
        }
    }
}

/// What so many trips make of the start, where it is exact.
fn play(flops: Flops, chains: u64, factor: f64, addend: f64, trips: u64) -> Option<f64> {
    if flops.balance == Balance::Fma && crate::asm::ACCUMULATES {
        // Products that are all the same are added.
        return Flops { balance: Balance::Add, ..flops }.play(chains, START, factor, factor * addend, trips);
    }
    flops.play(chains, START, factor, addend, trips)
}

impl Task for Chains<'_> {
    fn begin(&mut self) -> Result<(), NoVisit> {
        let [factor, addend] = TIMED;
        self.aim(factor, addend);
        self.trips(1)
    }

    fn renew(&mut self) -> Result<u64, NoVisit> {
        self.check()?;
        let [factor, addend] = TIMED;
        self.aim(factor, addend);
        self.trips(1)?;
        Ok(0)
    }

    fn run(&mut self, repetitions: u64) -> Result<(), NoVisit> {
        self.trips(repetitions)
    }

    fn end(&mut self) -> Result<(), NoVisit> {
        self.check()
    }
}
