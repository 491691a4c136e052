//! This machine at rest: a thread that sleeps while meters are read around it.

use std::time::Duration;

use crate::bench::measured;
use crate::no_visit::NoVisit;
use crate::team::{Task, Team};
use membound_core::memory::Obtained;
use membound_core::record::{Measured, Volume};

/// One repetition.
const NAP: Duration = Duration::from_millis(1);

/// Takes samples of nothing.
pub(crate) fn measure(team: Team<'_>) -> Result<Measured, NoVisit> {
    let taken = team.measure(&mut [Sleep])?;
    Ok(measured(Volume::default(), taken, Obtained::default()))
}

struct Sleep;

impl Task for Sleep {
    fn run(&mut self, repetitions: u64) -> Result<(), NoVisit> {
        std::thread::sleep(NAP * u32::try_from(repetitions).unwrap_or(u32::MAX));
        Ok(())
    }

    fn end(&mut self) -> Result<(), NoVisit> {
        Ok(())
    }
}
