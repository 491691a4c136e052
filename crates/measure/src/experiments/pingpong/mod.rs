//! Messages between processes. Rank 0 decides everything: which case is visited, how many messages make a sample, when
//! there are enough; the others do as they are told ([`follow`]).
//!
//! ```text
//! rank 0:  order | ready? | go: n messages | done? | go: n messages | done? | ... | go: 0 | result?
//! others:          pin, map                  play                     play                  give back
//! ```
//! Each pair times itself, after a handshake of its own, so that what the orders take is in no sample. Ranks are told to go
//! one after the other, so the last pair starts the later the more there are; samples last the longer.

pub mod hello;
pub mod player;
pub mod words;

use crate::experiments::pingpong::hello::{Hello, hosts};
use membound_core::record::Unit;

use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use crate::bench::{Probe, StealMeter, measured};
use crate::experiments::pingpong::player::{Player, Report};
use crate::experiments::pingpong::words::{Order, Part, pause, receive, send, tag};
use crate::mpi::{Mpi, MpiError};
use crate::no_visit::NoVisit;
use crate::os::clock::Ticker;
use crate::os::signals;
use crate::schedule::{Executor, Quota};
use crate::warm_up::WarmUp;
use membound_core::case::{Case, Work};
use membound_core::experiments::pingpong::Host;
use membound_core::memory::Obtained;
use membound_core::record::world::Launcher;
use membound_core::record::{Clock, Outcome, Sample, Samples, Volume, World, WorldHost};
use membound_core::units::Bytes;
use membound_core::work::pingpong::{MessageMode, PingPong, Seat};

/// A sample lasts at least this long.
const SAMPLE: Duration = Duration::from_millis(1);
/// And so much longer for each rank that plays: they are told to start one after the other, about 1 us apart.
const SAMPLE_PER_RANK: Duration = Duration::from_micros(100);
/// Span over which the clock's rate is measured.
pub const CALIBRATION: Duration = Duration::from_millis(50);

/// Any other rank than 0: does what it is told until it is told to leave.
///
/// # Errors
/// Where a message can't be sent or received: peers may be gone.
pub fn follow(mpi: &Mpi) -> Result<(), MpiError> {
    // Rank 0 hears of an interrupt too, and says when to leave.
    signals::catch_interrupts();
    player::rest();
    let ticker = Ticker::detect();
    let mut buffers = None;
    loop {
        match next_order(mpi)? {
            Order::End => return Ok(()),
            Order::Visit(part) => {
                let mut player = Player::new(mpi, ticker, &part, buffers.take());
                send(mpi, &player.as_ref().map(|_| ()).map_err(said), 0, tag::ANSWER)?;
                loop {
                    let mut go = [0; 8];
                    mpi.receive(&mut go, 0, tag::GO)?;
                    match (u64::from_le_bytes(go), &mut player) {
                        (0, _) => break,
                        (repetitions, Ok(player)) => {
                            let report = player.play(repetitions)?;
                            mpi.send(&report.to_bytes(), 0, tag::DONE)?;
                        }
                        (_, Err(_)) => {}
                    }
                }
                send(mpi, &player.as_ref().map(Player::obtained).map_err(said), 0, tag::ANSWER)?;
                buffers = player.ok().and_then(Player::leave);
            }
        }
    }
}

/// Waits without taking the CPU from those that are measured; an orphan whose launcher is gone leaves.
fn next_order(mpi: &Mpi) -> Result<Order, MpiError> {
    let (since, parent) = (Instant::now(), crate::os::processes::parent_id());
    loop {
        if let Some(waiting) = mpi.probe(tag::ORDER)? {
            let order = receive(mpi, waiting.bytes, waiting.from, tag::ORDER)?;
            // What can't be read came from another version, of which rank 0 has told.
            return Ok(order.unwrap_or(Order::End));
        }
        if crate::os::processes::parent_id() != parent {
            return Ok(Order::End);
        }
        pause(since);
    }
}

/// What a rank says of a visit that gave nothing.
fn said(why: &NoVisit) -> Outcome {
    why.clone().into()
}

/// An answer of this rank, whatever its length.
fn answer<T: DeserializeOwned>(mpi: &Mpi, from: usize) -> Result<Result<T, Outcome>, MpiError> {
    // Answers are short: where something can't be done, and where pages lie.
    const MOST: usize = 1 << 16;
    let unreadable = || Err(NoVisit::Broken(format!("rank {from} sent an answer that can't be read")).into());
    Ok(receive(mpi, MOST, from, tag::ANSWER)?.unwrap_or_else(unreadable))
}

/// Rank 0: takes samples with the others' help.
pub struct PingPongs<'a> {
    mpi: &'a Mpi,
    launcher: Launcher,
    hosts: Vec<Host>,
    /// Ticks a second of each rank's clock.
    rates: Vec<f64>,
    ticker: Ticker,
    clock: Clock,
    probe: Probe,
    /// Buffers of rank 0's own last visit.
    buffers: Option<player::Buffer>,
    /// Why no more can be measured.
    fault: Option<MpiError>,
}

impl std::fmt::Debug for PingPongs<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PingPongs").field("mpi", self.mpi).field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

impl<'a> PingPongs<'a> {
    /// Takes the lead over these ranks, by their greetings.
    pub fn new(mpi: &'a Mpi, launcher: Launcher, greetings: &[Hello], clock: Clock) -> Result<Self, NoVisit> {
        Ok(PingPongs {
            mpi,
            launcher,
            hosts: hosts(greetings),
            rates: greetings.iter().map(|greeting| greeting.clock_hz).collect(),
            ticker: Ticker::detect(),
            clock,
            probe: Probe::new(Ticker::detect())?,
            buffers: None,
            fault: None,
        })
    }

    /// Why no more can be measured, if so: peers are gone, and the world can't be left in order.
    pub fn fault(&self) -> Option<&MpiError> {
        self.fault.as_ref()
    }

    /// The rank on each seat, pair by pair: those of a host sit down in order.
    fn seated(&self, work: &PingPong) -> Option<Vec<[usize; 2]>> {
        let mut waiting: Vec<_> = self.hosts.iter().map(|host| host.ranks.iter().copied()).collect();
        let mut next = |seat: Seat| waiting.get_mut(seat.host as usize)?.next();
        work.pairs.iter().map(|&[a, b]| Some([next(a)?, next(b)?])).collect()
    }

    fn try_visit(&mut self, case: &Case, quota: &Quota<'_>) -> Result<Result<Outcome, Outcome>, MpiError> {
        let Work::PingPong(work) = &case.work else {
            return Ok(Err(NoVisit::impossible("it is no matter of messages").into()));
        };
        let Some(ranks) = self.seated(work) else {
            return Ok(Err(NoVisit::impossible("there are too few processes for it").into()));
        };
        let mut cast = Cast { mpi: self.mpi, ranks: ranks.concat(), own: None };
        for (pair, seats) in ranks.iter().zip(&work.pairs) {
            for side in [0, 1] {
                let (partner, is_first) = (pair[1 - side], side == 0);
                let part = Box::new(Part { case: case.clone(), seat: seats[side], partner, is_first });
                if pair[side] > 0 {
                    send(self.mpi, &Order::Visit(part), pair[side], tag::ORDER)?;
                } else {
                    cast.own = Some(Player::new(self.mpi, self.ticker, &part, self.buffers.take()));
                }
            }
        }
        let samples = match cast.ready()? {
            Ok(()) => self.samples(&mut cast, work, quota)?,
            Err(outcome) => Err(outcome),
        };
        let obtained = cast.end()?;
        self.buffers = cast.own.and_then(Result::ok).and_then(Player::leave);
        Ok(samples.and_then(|taken| Ok(measured(volume(case, work), taken, obtained?).into())))
    }

    /// Checks what arrives, finds how many repetitions make a sample, takes samples, and checks again.
    fn samples(
        &self,
        cast: &mut Cast<'_, '_>,
        work: &PingPong,
        quota: &Quota<'_>,
    ) -> Result<Result<(Samples, u64), Outcome>, MpiError> {
        let deadline = Instant::now() + quota.time;
        if let Err(outcome) = cast.verify()? {
            return Ok(Err(outcome));
        }
        let (mut warm_up, mut repetitions) = (WarmUp::new(lasting(cast.ranks.len()), self.clock.hz), 1);
        while !(quota.interrupted)() {
            let reports = cast.round(repetitions)?;
            let slowest = self.pair_ticks(cast, &reports).into_iter().max().unwrap_or(1);
            let Some(more) = warm_up.next(slowest, repetitions) else { break };
            repetitions = more;
        }
        let (mut samples, mut steal) = (Samples::default(), StealMeter::new());
        samples.pair_ticks = vec![Vec::new(); work.pairs.len()];
        while !quota.is_met(samples.ticks.len(), deadline) && !(quota.interrupted)() {
            let reports = cast.round(repetitions)?;
            let ticks = self.pair_ticks(cast, &reports);
            let sum = |of: fn(&Report) -> u64| {
                let total: u64 = reports.iter().map(of).sum();
                u32::try_from(total).unwrap_or(u32::MAX)
            };
            samples.push(Sample {
                ticks: ticks.iter().copied().max().unwrap_or(1),
                core_clock_ticks: self.probe.read().chain_ticks.into(),
                lost_us: sum(|report| report.lost_us),
                steal_jiffies: steal.since_last(),
                switches: sum(|report| report.switches),
                faults: sum(|report| report.faults),
                migrations: sum(|report| report.is_elsewhere),
                ..Sample::default()
            });
            samples.pair_ticks.iter_mut().zip(ticks).for_each(|(column, ticks)| column.push(ticks));
        }
        if samples.ticks.is_empty() {
            return Ok(Err(NoVisit::Stopped.into()));
        }
        Ok(cast.verify()?.map(|()| (samples, repetitions)))
    }

    /// What each pair took, in ticks of rank 0's clock. Ranks on its host read the same clock.
    fn pair_ticks(&self, cast: &Cast<'_, '_>, reports: &[Report]) -> Vec<u64> {
        let own = self.hosts.first().map(|host| &host.ranks);
        let on_own_clock = |(rank, report): (usize, &Report)| {
            let is_here = own.is_some_and(|ranks| ranks.contains(&rank));
            let rate = self.rates.get(rank).filter(|_| !is_here).map_or(1.0, |hz| self.clock.hz.0 / hz);
            ((report.ticks as f64 * rate).round() as u64).max(1)
        };
        let firsts = cast.ranks.iter().copied().zip(reports).step_by(2);
        firsts.map(on_own_clock).collect()
    }
}

impl Executor for PingPongs<'_> {
    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    fn world(&self) -> Option<World> {
        let host = |host: &Host| WorldHost {
            name: host.name.clone(),
            ranks: host.ranks.clone(),
            cpus: host.slots.iter().map(|slot| slot.cpu).collect(),
        };
        Some(World {
            launcher: self.launcher,
            library: self.mpi.library().clone(),
            threads: self.mpi.threads(),
            ranks: self.mpi.size(),
            hosts: self.hosts.iter().map(host).collect(),
        })
    }

    fn expect(&mut self, _cases: &[Case]) {}

    fn visit(&mut self, case: &Case, quota: &Quota<'_>) -> Outcome {
        if self.fault.is_some() {
            return NoVisit::impossible("MPI failed in a case before this one").into();
        }
        match self.try_visit(case, quota) {
            Ok(outcome) => outcome.unwrap_or_else(|outcome| outcome),
            Err(fault) => {
                let why = NoVisit::Broken(fault.to_string());
                self.fault = Some(fault);
                why.into()
            }
        }
    }
}

/// What a sample of so many ranks lasts at least, so that the time between the first start and the last is about 1 % of it.
fn lasting(ranks: usize) -> Duration {
    SAMPLE + SAMPLE_PER_RANK * u32::try_from(ranks).unwrap_or(u32::MAX)
}

/// Tells all other ranks to leave.
pub fn dismiss(mpi: &Mpi) -> Result<(), MpiError> {
    (1..mpi.size()).try_for_each(|rank| send(mpi, &Order::End, rank, tag::ORDER))
}

/// What one repetition of all pairs moves.
fn volume(case: &Case, work: &PingPong) -> Volume {
    let (units, messages) = match work.mode {
        MessageMode::PingPong => (2, 2),
        MessageMode::OneWay => (1, 1),
        MessageMode::Exchange => (1, 2),
    };
    let Bytes(size) = case.working_set;
    let bytes = messages * size * work.pairs.len() as u64;
    Volume { units, unit: Unit::Message, loaded: bytes, stored: bytes, ..Volume::default() }
}

/// The ranks that take part in a visit, pair by pair, and rank 0's own part if it is one of them.
struct Cast<'a, 'b> {
    mpi: &'a Mpi,
    ranks: Vec<usize>,
    own: Option<Result<Player<'b>, NoVisit>>,
}

impl Cast<'_, '_> {
    fn others(&self) -> impl Iterator<Item = usize> + '_ {
        self.ranks.iter().copied().filter(|rank| *rank > 0)
    }

    /// Waits until all are on their seats; an error is what keeps one of them from it.
    fn ready(&mut self) -> Result<Result<(), Outcome>, MpiError> {
        let mut all = self.own.as_ref().map_or(Ok(()), |own| own.as_ref().map(|_| ()).map_err(said));
        for rank in self.ranks.iter().copied().filter(|rank| *rank > 0) {
            all = all.and(answer(self.mpi, rank)?);
        }
        Ok(all)
    }

    fn go(&self, repetitions: u64) -> Result<(), MpiError> {
        self.others().try_for_each(|rank| self.mpi.send(&repetitions.to_le_bytes(), rank, tag::GO))
    }

    /// All play so many repetitions; what each of them says of it, in the order of ranks.
    fn round(&mut self, repetitions: u64) -> Result<Vec<Report>, MpiError> {
        self.go(repetitions)?;
        let own = match &mut self.own {
            Some(Ok(player)) => Some(player.play(repetitions)?),
            _ => None,
        };
        let report = |rank: &usize| match own.as_ref().filter(|_| *rank == 0) {
            Some(own) => Ok(own.clone()),
            None => {
                let mut bytes = [0; Report::BYTES];
                self.mpi.receive(&mut bytes, *rank, tag::DONE)?;
                Ok(Report::from_bytes(&bytes))
            }
        };
        self.ranks.iter().map(report).collect()
    }

    /// One message each way, of which every byte is looked at.
    fn verify(&mut self) -> Result<Result<(), Outcome>, MpiError> {
        let reports = self.round(player::VERIFY)?;
        let faulty = self.ranks.iter().zip(&reports).find(|(_, report)| report.wrong_bytes > 0);
        Ok(match faulty {
            Some((rank, report)) => {
                let reason = format!("data check failed: {} byte(s) arrived wrong at rank {rank}", report.wrong_bytes);
                Err(NoVisit::Wrong(reason).into())
            }
            None => Ok(()),
        })
    }

    /// Ends the visit; what memory all of them had.
    fn end(&mut self) -> Result<Result<Obtained, Outcome>, MpiError> {
        self.go(0)?;
        let own = self.own.as_ref().map(|own| own.as_ref().map(Player::obtained).map_err(said));
        let mut all: Vec<Result<Obtained, Outcome>> = own.into_iter().collect();
        for rank in self.ranks.iter().copied().filter(|rank| *rank > 0) {
            all.push(answer(self.mpi, rank)?);
        }
        let whole: Result<Vec<Obtained>, Outcome> = all.into_iter().collect();
        Ok(whole.map(|all| all.into_iter().reduce(Obtained::and).unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_last_longer_the_more_ranks_are_told_to_start() {
        // 1 ms, and 0.1 ms a rank; the last of 128 hears some 128 us after the first.
        assert_eq!([2, 128].map(lasting), [Duration::from_micros(1200), Duration::from_micros(13_800)]);
    }
}
