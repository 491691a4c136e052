//! A visit to a chase: what a load costs that waits for the one before it, to one thread or to each of several at once.

use membound_core::case::Case;
use membound_core::kernel::chase::Chase;
use membound_core::record::{Measured, Unit, Volume};

use crate::bench::measured;
use crate::chaser::{Chaser, Links};
use crate::memory::places::Places;
use crate::no_visit::NoVisit;
use crate::team::Team;

/// Visits `case`, which is this chase on each of its CPUs.
pub(crate) fn visit(
    chaser: &mut Chaser,
    case: &Case,
    chase: Chase,
    team: Team<'_>,
    places: &Places,
) -> Result<Measured, NoVisit> {
    let follow = |links: &mut [Links<'_>]| team.measure(links);
    let (taken, obtained) = chaser.follow_each(case, chase, places, follow)?;
    let accesses = Chase::LINKS * u64::from(chase.chains) * case.threads() as u64;
    let volume = Volume { units: accesses, unit: Unit::Access, loaded: 8 * accesses, ..Volume::default() };
    Ok(measured(volume, taken, obtained))
}
