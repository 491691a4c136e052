//! Hand-overs on this machine: two pinned threads pass a line back and forth. The first is timed: a sample is so many
//! round trips. The second answers until it is told to stop, so nothing but the line itself is between the two.
//!
//! The first hand-over of a sample finds the line answered already, and the answer to the last is not waited for: with
//! thousands of round trips a sample, below 0.1 %.

#![allow(unsafe_code)]

use membound_core::record::Unit;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::asm::handover;
use crate::asm::handover::Side;
use crate::bench::{Tools, executable, measured, pin};
use crate::code::{Call, Executable};
use crate::memory::region::Region;
use crate::memory::touch;
use crate::no_visit::NoVisit;
use crate::os::thread;
use crate::os::thread::{Peer, ThreadUsage};
use crate::schedule::Quota;
use crate::solo::{Solo, Task};
use crate::threads;
use crate::threads::{Meeting, Met, Stop};
use membound_core::case::Case;
use membound_core::record::{Measured, Sample, Samples, Volume};
use membound_core::units::{BASE_PAGE, Bytes};
use membound_core::work::c2c::{Handover, Home};

/// As long as any sample: the two clock readings around it are below 0.1 %.
pub(crate) const SAMPLE: Duration = crate::team::SAMPLE;
/// A side that has not answered for so long will not: its CPU is taken. Of waiting counts only time in which the waiting
/// thread itself ran, or a host that stopped both would look like a partner that is gone.
const PATIENCE: Duration = Duration::from_secs(1);
use membound_core::units::LINE;

/// Has lines handed over; keeps the code from visit to visit.
#[derive(Debug, Default)]
pub(crate) struct Passer {
    code: Option<Executable>,
    visits: u64,
}

impl Passer {
    /// Visits a case, which is this hand-over between two CPUs. Each visit has a page of its own and takes another line of
    /// it: where a line's home is in the caches depends on its address.
    pub fn visit(
        &mut self,
        case: &Case,
        handover: Handover,
        quota: &Quota<'_>,
        tools: &Tools<'_>,
    ) -> Result<Measured, NoVisit> {
        self.visits += 1;
        let code = match &mut self.code {
            Some(code) => code,
            none => none.insert(executable(crate::asm::handover())?),
        };
        let &[first, second] = &case.cpus[..] else {
            return Err(NoVisit::TwoCores("; let this process use another CPU (taskset, cpuset, --cpus)"));
        };
        let mut region = Region::new(case.memory, Bytes(BASE_PAGE), tools.places)?;
        if first == second || !region.is_writable() {
            return Err(NoVisit::impossible("a line passes between two different CPUs, in memory that may be written"));
        }
        let line = region.address() + self.visits % (BASE_PAGE / LINE) * LINE;
        let cpus = [first, second];
        let (partner, meeting, stop) = (AtomicU32::new(0), Meeting::default(), Stop::default());
        let pair = Pair { line, code, quota, cpus, partner, meeting, stop };
        let taken = pair.play(&mut region, handover.home, tools)?;
        let volume = Volume { units: 2, unit: Unit::HandOver, ..Volume::default() };
        let obtained = region.inspect(Bytes(BASE_PAGE));
        Ok(measured(volume, taken, obtained))
    }
}

/// What the two threads share beside the line.
struct Pair<'a> {
    /// Address of the line, in a page that nothing else uses while both play.
    line: u64,
    code: &'a Executable,
    quota: &'a Quota<'a>,
    cpus: [u32; 2],
    /// The second thread's number to the kernel; 0 until it runs.
    partner: AtomicU32,
    meeting: Meeting,
    stop: Stop,
}

impl Pair<'_> {
    /// Has both threads play; samples, and the round trips of each.
    fn play(&self, page: &mut Region, home: Home, tools: &Tools<'_>) -> Result<(Samples, u64), NoVisit> {
        let (firsts, seconds) = match home {
            Home::First => (Some(page), None),
            Home::Second => (None, Some(page)),
        };
        std::thread::scope(|scope| {
            let partner = threads::start(scope, || self.answer(seconds))?;
            let mut first = First { pair: self, page: firsts, partner: None };
            let solo = Solo::new(self.cpus[0], self.quota, tools);
            let led = threads::start(scope, move || solo.lead(&mut first)).map(threads::join);
            self.stop.raise();
            threads::wait_out(|| partner.is_finished(), std::iter::once(&self.partner));
            let answered = threads::join(partner);
            led.and_then(|led| answered.and(led))
        })
    }

    /// Touches the page, if it is to, and waits for the other.
    fn arrive(&self, cpu: u32, page: Option<&mut Region>) -> Result<(), NoVisit> {
        if let Some(page) = page {
            touch::touch_words(page, |words| words.fill(0.0))?;
        }
        self.meeting.arrive();
        match self.meeting.wait_for(2, PATIENCE, || self.stop.is_raised()) {
            Met::All | Met::Stopped => Ok(()),
            Met::TooLate => Err(self.no_answer(cpu)),
        }
    }

    fn no_answer(&self, waiting: u32) -> NoVisit {
        let cpu = if self.cpus[0] == waiting { self.cpus[1] } else { self.cpus[0] };
        NoVisit::NoAnswer { cpu, patience: PATIENCE }
    }

    /// The second thread: hands the line back whenever it comes, until the first has enough. Its failure stops the first.
    fn answer(&self, page: Option<&mut Region>) -> Result<(), NoVisit> {
        self.partner.store(thread::thread_id(), Ordering::Release);
        let arrived = pin(self.cpus[1]).and_then(|()| self.arrive(self.cpus[1], page));
        let result = arrived.and_then(|()| self.pass(Side::Second, u64::MAX));
        self.stop.raise();
        result.map(|_| ())
    }

    /// Hands the line over so many times; false where all was stopped before.
    fn pass(&self, side: Side, handovers: u64) -> Result<bool, NoVisit> {
        let mut call: Call = handover::call(self.line, side, handovers);
        let mut waiting_since: Option<u64> = None;
        loop {
            // SAFETY: the line lies in this visit's page, which stays mapped and writable until both threads ended;
            // both only touch it by atomic instructions.
            unsafe { self.code.run(&mut call) }?;
            let left = handover::left(&call);
            if left == 0 || self.stop.is_raised() || (self.quota.interrupted)() {
                return Ok(left == 0);
            }
            let now = ThreadUsage::now().cpu_ns;
            let since = *waiting_since.get_or_insert(now);
            if left < call.repetitions {
                waiting_since = None;
            } else if side == Side::First && u128::from(now - since) > PATIENCE.as_nanos() {
                return Err(self.no_answer(self.cpus[0]));
            }
            call.repetitions = left;
        }
    }
}

/// The first thread, which is timed: a repetition is a round trip.
struct First<'a> {
    pair: &'a Pair<'a>,
    page: Option<&'a mut Region>,
    /// The second thread, seen from here.
    partner: Option<Peer>,
}

impl Task for First<'_> {
    fn begin(&mut self) -> Result<(), NoVisit> {
        self.pair.arrive(self.pair.cpus[0], self.page.take())
    }

    fn warm_up(&mut self, solo: &Solo<'_>) -> Result<u64, NoVisit> {
        let repetitions = solo.warm_up(self)?;
        self.partner = Some(Peer::new(self.pair.partner.load(Ordering::Acquire), self.pair.cpus[1]));
        Ok(repetitions)
    }

    fn run(&mut self, repetitions: u64) -> Result<bool, NoVisit> {
        self.pair.pass(Side::First, repetitions)
    }

    fn taken(&mut self, sample: &mut Sample) {
        self.partner.iter_mut().for_each(|partner| partner.disturb(sample));
    }

    fn end(&mut self, _samples: &mut Samples) -> Result<(), NoVisit> {
        Ok(())
    }
}
