//! This machine at rest: a thread that sleeps while meters are read around it.

use std::time::Duration;

use super::team::{Task, Team};
use crate::record::{Measured, Outcome, Volume};

/// One repetition.
const NAP: Duration = Duration::from_millis(1);

/// Takes samples of nothing.
pub(super) fn measure(team: Team<'_>) -> Result<Measured, Outcome> {
    let (samples, repetitions) = team.measure(&mut [Sleep])?;
    let obtained = crate::memory::Obtained::default();
    Ok(Measured { volume: Volume::default(), repetitions, core_clock_links: 1, samples, obtained })
}

struct Sleep;

impl Task for Sleep {
    fn begin(&mut self) -> Result<(), Outcome> {
        Ok(())
    }

    fn renew(&mut self) -> Result<u64, Outcome> {
        Ok(0)
    }

    fn run(&mut self, repetitions: u64) -> Result<(), Outcome> {
        std::thread::sleep(NAP * u32::try_from(repetitions).unwrap_or(u32::MAX));
        Ok(())
    }

    fn end(&mut self) -> Result<(), Outcome> {
        Ok(())
    }
}
