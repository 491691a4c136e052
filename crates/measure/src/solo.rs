//! A thread that takes samples by itself: pinned, warmed up, timed by the clock of all samples. Other threads may run beside
//! it, but none is timed with it.
//!
//! ```text
//! begin, warm up | probe | approach [run] leave, taken | ... | probe, arrange | probe | ... | end
//!                  \______________________ a round _____________________/
//! ```
//! Only `run` is timed; what disturbed the thread is counted from before `approach` to after `leave`. Samples that belong
//! together (one for each offset of a scan) are a round: whether there is time for more is asked between rounds, and of
//! a round that was interrupted nothing is kept. For most tasks each sample is a round.

use std::time::{Duration, Instant};

use crate::bench::{StealMeter, Tools, elapsed, keep_probes, pin};
use crate::no_visit::NoVisit;
use crate::os::thread;
use crate::os::thread::ThreadUsage;
use crate::schedule::Quota;
use crate::threads::{join, start};
use crate::warm_up::WarmUp;
use membound_core::record::probes::Reading;
use membound_core::record::{Sample, Samples};

/// Samples from one probe of the core, and one look whether the user wants to stop, to the next; where a round is shorter,
/// one before and one after it. Samples of long rounds last some 10 us, as long as the probe itself.
pub(crate) const PROBE_PERIOD: usize = 64;

/// What the thread does: the sample itself, and what must happen around it. An error ends the visit.
pub(crate) trait Task {
    /// Once, on the pinned thread, before anything is timed.
    fn begin(&mut self) -> Result<(), NoVisit> {
        Ok(())
    }

    /// Once, after that: brings caches and clock to where samples find them. Returns the repetitions of a sample.
    fn warm_up(&mut self, solo: &Solo<'_>) -> Result<u64, NoVisit>
    where
        Self: Sized,
    {
        solo.warm_up(self)
    }

    /// Right before each sample, not timed.
    fn approach(&mut self, _repetitions: u64) -> Result<(), NoVisit> {
        Ok(())
    }

    /// The sample. Returns whether it was done to its end: if not, the visit ends without it.
    fn run(&mut self, repetitions: u64) -> Result<bool, NoVisit>;

    /// Right after each sample, not timed.
    fn leave(&mut self) {}

    /// Takes note of a sample, and adds to it what disturbed others that take part.
    fn taken(&mut self, _sample: &mut Sample) {}

    /// Puts the samples of a round in the order in which they are kept.
    fn arrange(&mut self, _round: &mut [Sample]) {}

    /// Once, after the last sample: checks what was left behind, and adds columns of its own.
    fn end(&mut self, samples: &mut Samples) -> Result<(), NoVisit>;
}

/// A visit to a case by one thread.
pub(crate) struct Solo<'a> {
    cpu: u32,
    quota: Quota<'a>,
    tools: &'a Tools<'a>,
    /// Samples of a round.
    round: usize,
}

impl<'a> Solo<'a> {
    /// As many samples as the quota says, each a round.
    pub fn new(cpu: u32, quota: &'a Quota<'a>, tools: &'a Tools<'a>) -> Self {
        let least_samples = quota.least_samples.max(1);
        Solo { cpu, quota: Quota { least_samples, ..*quota }, tools, round: 1 }
    }

    /// Rounds of so many samples: one at least, and more while there is time.
    pub fn in_rounds(self, round: usize, most: usize) -> Self {
        Solo { round, quota: Quota { least_samples: 1, most_samples: most, ..self.quota }, ..self }
    }

    /// Takes samples on a thread of its own; with them come the repetitions of each.
    pub fn measure<T: Task + Send>(&self, task: &mut T) -> Result<(Samples, u64), NoVisit> {
        std::thread::scope(|scope| join(start(scope, || self.lead(task))?))
    }

    /// The same on the calling thread, which stays on the CPU from then on.
    pub fn lead<T: Task>(&self, task: &mut T) -> Result<(Samples, u64), NoVisit> {
        pin(self.cpu)?;
        task.begin()?;
        let deadline = Instant::now() + self.quota.time;
        let now = || self.tools.ticker.now();
        let mut since = now();
        let repetitions = task.warm_up(self)?;
        let (mut samples, mut steal) = (Samples::default(), StealMeter::new());
        samples.warm_up_ticks = now().saturating_sub(std::mem::replace(&mut since, now()));
        loop {
            let taken = samples.ticks.len();
            if self.quota.is_met(taken, deadline) {
                break;
            }
            let most = self.quota.most_samples - taken;
            let Some(round) = self.round(task, repetitions, most, &mut steal)? else { break };
            for sample in round {
                samples.push(sample);
                keep_probes(&mut samples, std::iter::once(sample.probes));
            }
        }
        if samples.ticks.is_empty() {
            return Err(NoVisit::Stopped);
        }
        samples.sampling_ticks = now().saturating_sub(since);
        task.end(&mut samples)?;
        Ok((samples, repetitions))
    }

    /// The samples of a round, `most` at most; nothing, where it was interrupted.
    fn round<T: Task>(
        &self,
        task: &mut T,
        repetitions: u64,
        most: usize,
        steal: &mut StealMeter,
    ) -> Result<Option<Vec<Sample>>, NoVisit> {
        let (mut round, mut reading) = (Vec::<Sample>::new(), Reading::default());
        while round.len() < self.round.min(most) {
            if round.len() % PROBE_PERIOD == 0 {
                if (self.quota.interrupted)() {
                    return Ok(None);
                }
                reading = self.probe(&mut round);
            }
            let Some(sample) = self.sample(task, repetitions)? else { return Ok(None) };
            let (core_clock_ticks, probes) = (reading.chain_ticks.into(), [reading, Reading::default()]);
            let mut sample = Sample { core_clock_ticks, probes, steal_jiffies: steal.since_last(), ..sample };
            task.taken(&mut sample);
            round.push(sample);
        }
        self.probe(&mut round);
        task.arrange(&mut round);
        Ok(Some(round))
    }

    /// Reads the probe, after those samples that had none after them.
    fn probe(&self, round: &mut [Sample]) -> Reading {
        let reading = self.tools.probe.read();
        for sample in round.iter_mut().rev().take_while(|sample| sample.probes[1] == Reading::default()) {
            sample.probes[1] = reading;
        }
        reading
    }

    /// A sample, and what disturbed the thread; nothing, where it was stopped.
    fn sample<T: Task>(&self, task: &mut T, repetitions: u64) -> Result<Option<Sample>, NoVisit> {
        let before = ThreadUsage::now();
        task.approach(repetitions)?;
        let ticks = self.ticks(task, repetitions)?;
        task.leave();
        let disturbed = before.until_now();
        let migrations = u32::from(thread::current_cpu().is_some_and(|cpu| cpu != self.cpu));
        Ok(ticks.map(|ticks| Sample { ticks, migrations, ..disturbed }))
    }

    /// Ticks of so many repetitions; nothing, where they were stopped.
    fn ticks<T: Task>(&self, task: &mut T, repetitions: u64) -> Result<Option<u64>, NoVisit> {
        let start = self.tools.ticker.now();
        let is_whole = task.run(repetitions)?;
        let ticks = elapsed(start, self.tools.ticker.now())?;
        Ok(is_whole.then_some(ticks))
    }

    /// Repeats the sample until it is long enough and no longer gets faster.
    pub fn warm_up<T: Task>(&self, task: &mut T) -> Result<u64, NoVisit> {
        self.warm_up_lasting(task, Duration::ZERO)
    }

    /// The same, for so long at least.
    pub fn warm_up_lasting<T: Task>(&self, task: &mut T, least: Duration) -> Result<u64, NoVisit> {
        let (mut warm_up, mut repetitions) = (WarmUp::new(self.tools.sample, self.tools.hz).lasting(least), 1);
        while let Some(ticks) = self.ticks(task, repetitions)?
            && let Some(more) = warm_up.next(ticks, repetitions)
        {
            repetitions = more;
        }
        Ok(repetitions)
    }

    /// Ticks that a sample lasts at least.
    pub fn sample_ticks(&self) -> u64 {
        self.tools.sample_ticks()
    }

    /// Repetitions from `first` on that make a sample long enough, where warming up is no question: of each sample a part
    /// goes before it. `grown` says how many to try after so many that took so many ticks.
    pub fn long_enough<T: Task>(
        &self,
        task: &mut T,
        first: u64,
        grown: impl Fn(u64, u64) -> u64,
    ) -> Result<u64, NoVisit> {
        let mut repetitions = first;
        loop {
            task.approach(repetitions)?;
            let Some(ticks) = self.ticks(task, repetitions)? else { return Ok(repetitions) };
            task.approach(repetitions)?;
            // The faster of two: one alone may have been interrupted.
            let ticks = self.ticks(task, repetitions)?.map_or(ticks, |again| again.min(ticks));
            if ticks >= self.tools.sample_ticks() {
                return Ok(repetitions);
            }
            repetitions = grown(repetitions, ticks);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::bench::Probe;
    use crate::memory::places::Places;
    use crate::os::clock::Ticker;
    use crate::threads;

    use membound_core::units::Hertz;

    /// Numbers its samples, and keeps those of a round backwards.
    #[derive(Default)]
    struct Numbering {
        taken: u32,
        has_ended: bool,
    }

    impl Task for Numbering {
        fn warm_up(&mut self, _solo: &Solo<'_>) -> Result<u64, NoVisit> {
            Ok(7)
        }

        fn run(&mut self, _repetitions: u64) -> Result<bool, NoVisit> {
            Ok(true)
        }

        fn taken(&mut self, sample: &mut Sample) {
            self.taken += 1;
            sample.setup_ticks = self.taken.into();
        }

        fn arrange(&mut self, round: &mut [Sample]) {
            round.reverse();
        }

        fn end(&mut self, _samples: &mut Samples) -> Result<(), NoVisit> {
            self.has_ended = true;
            Ok(())
        }
    }

    /// The numbers of the samples kept from rounds of 100, where the user wants to stop at the n-th look.
    fn kept(time: Duration, stop_at: usize) -> Result<Vec<u64>, NoVisit> {
        let looks = AtomicUsize::new(0);
        let interrupted = || looks.fetch_add(1, Ordering::Relaxed) >= stop_at;
        let quota = Quota { least_samples: 1, most_samples: 1, time, interrupted: &interrupted };
        let (ticker, isa, sample) = (Ticker::detect(), crate::asm::detect(), Duration::ZERO);
        let (probe, places) = (Probe::new(ticker).unwrap(), Places::default());
        let tools = Tools { ticker, isa, probe: &probe, places: &places, hz: Hertz(1e9), sample };
        let (cpu, mut task) = (thread::current_cpu().unwrap(), Numbering::default());
        let (samples, repetitions) = Solo::new(cpu, &quota, &tools).in_rounds(100, 300).measure(&mut task)?;
        assert!(task.has_ended && repetitions == 7);
        Ok(samples.setup_ticks)
    }

    #[test]
    fn rounds_are_kept_whole_and_in_order() {
        let first: Vec<u64> = (1..=100).rev().collect();
        assert_eq!(kept(Duration::ZERO, 99).unwrap(), first, "one round, however short the time");
        assert_eq!(kept(Duration::from_secs(99), 99).unwrap().len(), 300);
        // It looks before each half of a round.
        assert_eq!(kept(Duration::from_secs(99), 3).unwrap(), first, "half a round is none");
        assert!(matches!(kept(Duration::from_secs(99), 1), Err(NoVisit::Stopped)));
    }

    #[test]
    fn a_refused_thread_is_an_answer() {
        let refused = threads::planted::limit(0, || kept(Duration::ZERO, 9));
        assert!(matches!(refused, Err(NoVisit::Thread(_))), "{refused:?}");
    }
}
