//! Hand-overs on this machine: two pinned threads pass a line back and forth. The first is timed: a sample is so many
//! round trips. The second answers until it is told to stop, so nothing but the line itself is between the two.
//!
//! The first hand-over of a sample finds the line answered already, and the answer to the last is not waited for: with
//! thousands of round trips a sample, below 0.1 %.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::Quota;
use super::native::{CORE_CLOCK_LINKS, core_clock, crashed, pin, unavailable};
use super::scan::Tools;
use super::sys::{self, Peer, ThreadUsage};
use super::team::{StealMeter, WarmUp};
use crate::kernel::code::Executable;
use crate::kernel::handover::{self, Side};
use crate::memory::{Obtained, Region};
use crate::plan::{Case, Handover, Home};
use crate::record::{BASE_PAGE, Measured, Outcome, Sample, Samples, Volume};
use crate::units::Bytes;

/// As long as any sample: the two clock readings around it are below 0.1 %.
pub(super) const SAMPLE: Duration = super::team::SAMPLE;
/// A side that has not answered for so long will not: its CPU is taken. Of waiting counts only time in which the waiting
/// thread itself ran, or a host that stopped both would look like a partner that is gone.
const PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of a line.
const LINE: u64 = 64;

/// Visits a case, which is this hand-over between two CPUs. Each visit has a page of its own and takes another line of
/// it: where a line's home is in the caches depends on its address.
pub(super) fn visit(
    case: &Case,
    handover: Handover,
    visits: u64,
    quota: &Quota<'_>,
    code: &Executable,
    tools: &Tools<'_>,
) -> Result<Outcome, Outcome> {
    let &[first, second] = &case.cpus[..] else {
        return Err(unavailable("it needs two cores; let this process use another CPU (taskset, cpuset, --cpus)"));
    };
    let mut region = Region::new(case.memory, Bytes(BASE_PAGE), tools.places).map_err(unavailable)?;
    if first == second || !region.is_writable() {
        return Err(unavailable("a line passes between two different CPUs, in memory that may be written"));
    }
    let line = region.address() + visits % (BASE_PAGE / LINE) * LINE;
    let pair = Pair { line, code, tools, quota, cpus: [first, second], go: Go::default() };
    let (samples, repetitions) = pair.play(&mut region, handover.home)?;
    let volume = Volume { elements: 2, ..Volume::default() };
    let obtained: Obtained = region.inspect(Bytes(BASE_PAGE));
    let core_clock_links = CORE_CLOCK_LINKS;
    Ok(Outcome::Measured(Box::new(Measured { volume, repetitions, core_clock_links, samples, obtained })))
}

/// What the two threads tell each other beside the line.
#[derive(Default)]
struct Go {
    /// Threads that are on their CPUs and have touched what they are to touch.
    arrived: AtomicU32,
    /// The second thread's number to the kernel; 0 until it runs.
    partner: AtomicU32,
    stop: AtomicBool,
}

struct Pair<'a> {
    /// Address of the line, in a page that nothing else uses while both play.
    line: u64,
    code: &'a Executable,
    tools: &'a Tools<'a>,
    quota: &'a Quota<'a>,
    cpus: [u32; 2],
    go: Go,
}

impl Pair<'_> {
    /// Has both threads play; samples, and the round trips of each.
    fn play(&self, page: &mut Region, home: Home) -> Result<(Samples, u64), Outcome> {
        let (firsts, seconds) = match home {
            Home::First => (Some(page), None),
            Home::Second => (None, Some(page)),
        };
        std::thread::scope(|scope| {
            let partner = scope.spawn(|| self.answer(seconds));
            let leader = scope.spawn(|| self.lead(firsts));
            let panicked = |_| Err(Outcome::Crashed { reason: "a measuring thread panicked".into() });
            let led = leader.join().unwrap_or_else(panicked);
            self.go.stop.store(true, Ordering::Release);
            // Where its CPU is taken for good, it can hear of that on another one only. It may be about to pin itself.
            while !partner.is_finished() {
                sys::unpin(self.go.partner.load(Ordering::Acquire));
                std::thread::sleep(Duration::from_micros(100));
            }
            let answered = partner.join().unwrap_or_else(|_| Err(crashed("a measuring thread panicked")));
            answered.and(led)
        })
    }

    /// Goes to its CPU, touches the page if it is to, and waits for the other.
    fn arrive(&self, cpu: u32, page: Option<&mut Region>) -> Result<(), Outcome> {
        pin(cpu)?;
        if let Some(page) = page {
            sys::touch_words(page, |words| words.fill(0.0)).map_err(crashed)?;
        }
        self.go.arrived.fetch_add(1, Ordering::AcqRel);
        let since = Instant::now();
        while self.go.arrived.load(Ordering::Acquire) < 2 && !self.is_stopped() {
            if since.elapsed() > PATIENCE {
                return Err(self.no_answer(cpu));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        self.go.stop.load(Ordering::Acquire)
    }

    fn no_answer(&self, waiting: u32) -> Outcome {
        let other = if self.cpus[0] == waiting { self.cpus[1] } else { self.cpus[0] };
        unavailable(format!(
            "CPU {other} did not answer for {} s: another task holds it; free it, or leave it out with --cpus",
            PATIENCE.as_secs()
        ))
    }

    /// The second thread: hands the line back whenever it comes, until the first has enough. Its failure stops the first.
    fn answer(&self, page: Option<&mut Region>) -> Result<(), Outcome> {
        self.go.partner.store(sys::thread_id(), Ordering::Release);
        let result = self.arrive(self.cpus[1], page).and_then(|()| self.pass(Side::Second, u64::MAX));
        self.go.stop.store(true, Ordering::Release);
        result.map(|_| ())
    }

    /// Hands the line over so many times; false where all was stopped before.
    fn pass(&self, side: Side, handovers: u64) -> Result<bool, Outcome> {
        let mut call = handover::call(self.line, side, handovers);
        let mut waiting_since: Option<u64> = None;
        loop {
            // SAFETY: the line lies in this visit's page, which stays mapped and writable until both threads ended;
            // both only touch it by atomic instructions.
            unsafe { self.code.run(&mut call) }.map_err(crashed)?;
            let left = handover::left(&call);
            if left == 0 || self.is_stopped() || (self.quota.interrupted)() {
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

    /// The first thread: finds how many round trips make a sample, then takes samples.
    fn lead(&self, page: Option<&mut Region>) -> Result<(Samples, u64), Outcome> {
        let deadline = Instant::now() + self.quota.time;
        self.arrive(self.cpus[0], page)?;
        let (mut warm_up, mut repetitions) = (WarmUp::new(self.tools.sample, self.tools.hz), 1);
        while let Some(ticks) = self.ticks(repetitions)?
            && let Some(more) = warm_up.next(ticks, repetitions)
        {
            repetitions = more;
        }
        let mut partner = Peer::new(self.go.partner.load(Ordering::Acquire), self.cpus[1]);
        let (mut samples, mut steal) = (Samples::default(), StealMeter::new());
        while samples.ticks.len() < self.quota.most_samples {
            let is_late = samples.ticks.len() >= self.quota.least_samples && Instant::now() >= deadline;
            let Some(sample) = (if is_late { None } else { self.sample(repetitions)? }) else { break };
            let (switches, is_moved) = partner.since_last();
            samples.push(Sample {
                core_clock_ticks: core_clock(self.tools.chain, self.tools.ticker),
                steal_jiffies: steal.since_last(),
                switches: sample.switches + switches,
                migrations: sample.migrations + u32::from(is_moved),
                ..sample
            });
        }
        if samples.ticks.is_empty() {
            return Err(unavailable("it was stopped before a sample was done"));
        }
        Ok((samples, repetitions))
    }

    /// A sample; nothing, where it was stopped.
    fn sample(&self, repetitions: u64) -> Result<Option<Sample>, Outcome> {
        let before = ThreadUsage::now();
        let Some(ticks) = self.ticks(repetitions)? else { return Ok(None) };
        let migrations = u32::from(sys::current_cpu().is_some_and(|cpu| cpu != self.cpus[0]));
        Ok(Some(Sample { ticks, fastest_thread_ticks: ticks, migrations, ..before.until_now() }))
    }

    /// Ticks of so many round trips; nothing, where they were stopped.
    fn ticks(&self, repetitions: u64) -> Result<Option<u64>, Outcome> {
        let start = self.tools.ticker.now();
        let is_whole = self.pass(Side::First, repetitions)?;
        let ticks = (self.tools.ticker.now() - start).max(1);
        Ok(is_whole.then_some(ticks))
    }
}
