//! This machine at rest: a thread that sleeps while meters are read around it.

use std::time::Duration;

use crate::bench::CORE_CLOCK_LINKS;
use crate::no_visit::NoVisit;
use crate::team::{Task, Team};
use membound_core::record::{Measured, Volume};

/// One repetition.
const NAP: Duration = Duration::from_millis(1);

/// Takes samples of nothing.
pub(crate) fn measure(team: Team<'_>) -> Result<Measured, NoVisit> {
    let (samples, repetitions) = team.measure(&mut [Sleep])?;
    let obtained = membound_core::memory::Obtained::default();
    Ok(Measured { volume: Volume::default(), repetitions, core_clock_links: CORE_CLOCK_LINKS, samples, obtained })
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
