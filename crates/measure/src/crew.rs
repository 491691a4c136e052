//! Processes that take samples together, each with one thread and memory of its own, as a program of several processes does.
//!
//! ```text
//! parent:  start, tell the part | all are ready | go at T      | all have told | ... | end | sum up
//! worker:  map, touch, ready    |               | run from T on, tell          | ... |     | check, done
//! ```
//!
//! They talk in lines of JSON over a socket. A process needs some 50 us to wake, which no sample may contain: all spin from
//! well before T on. Their clock is one, the processor's or the kernel's. What [`team`](crate::team) does with threads is
//! done here with processes, and samples are told alike.

use std::io;
use std::io::{BufRead, BufReader, Write};
use std::process::Child;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::bench::{StealMeter, Tools, elapsed, keep_probes, measured, pin};
use crate::memory::places::SharedPlaces;
use crate::no_visit::NoVisit;
use crate::os::processes::{Talk, signal_of, start_worker};
use crate::os::thread;
use crate::os::thread::ThreadUsage;
use crate::schedule::Quota;
use crate::team::{SAMPLE, Task};
use crate::threads;
use crate::warm_up::WarmUp;
use membound_core::case::Case;
use membound_core::json;
use membound_core::machine::devices::{Api, DeviceName};
use membound_core::memory::Obtained;
use membound_core::memory::policy::Policy;
use membound_core::record::probes::Reading;
use membound_core::record::{Measured, Outcome, Sample, Samples, Volume};

/// From the word to go to the start: as long as a busy host may take to wake all.
const GO_AHEAD: Duration = Duration::from_millis(2);

/// What a process is started for.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Errand<P> {
    /// A part of a case.
    Part(P),
    /// To list the devices of an interface.
    Devices(Api),
    /// To take samples on a device, until nobody asks any more.
    Device(DeviceName),
}

/// What one process does: a kernel on one CPU.
#[derive(Debug, Serialize, Deserialize)]
pub struct Part {
    /// The CPU's own kernel and working set.
    pub case: Case,
    /// Where its memory is to come from, before it is touched; nothing: from wherever the kernel likes.
    pub policy: Option<Policy>,
    /// Check every element.
    pub verify: bool,
    /// Where its memory comes from, and how much there is for it.
    pub places: SharedPlaces,
}

/// What a worker is told once it is ready.
#[derive(Debug, Serialize, Deserialize)]
enum Word {
    /// A sample of so many repetitions: all probe from one tick on, and run from the other on.
    Go { at: u64, start: u64, repetitions: u64 },
    /// That was the last one.
    End,
}

/// What a worker says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// Its memory is mapped and touched.
    Ready,
    /// A sample is done.
    Taken(Taken),
    /// All is done, and what a repetition moved, in which memory.
    Done { volume: Volume, obtained: Box<Obtained> },
    /// It can't, or something went wrong.
    Refused(Outcome),
}

/// A worker's part of a sample.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Taken {
    start: u64,
    end: u64,
    lost_us: u32,
    switches: u32,
    faults: u32,
    is_moved: bool,
    /// What the probe told before and after: ticks of the chain and of wide additions.
    probes: [[u32; 2]; 2],
}

/// One end of what a parent and its worker talk over.
#[derive(Debug)]
pub(crate) struct Line {
    from: BufReader<Talk>,
    to: Talk,
}

impl Line {
    pub fn over(talk: Talk) -> io::Result<Self> {
        Ok(Line { to: talk.try_clone()?, from: BufReader::new(talk) })
    }

    pub fn say(&mut self, what: &impl Serialize) -> io::Result<()> {
        let text = json::text(what) + "\n";
        self.to.write_all(text.as_bytes())
    }

    /// What the other end says next; nothing where it has gone.
    pub fn hear<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let mut text = String::new();
        match self.from.read_line(&mut text)? {
            0 => Ok(None),
            _ => Ok(Some(serde_json::from_str(&text)?)),
        }
    }
}

fn broken(fault: io::Error) -> NoVisit {
    NoVisit::Broken(format!("a measuring process can't be talked to: {fault}"))
}

/// In a worker: takes samples of its task as it is told. Returns no samples, since its parent has them, and the repetitions of
/// the last one.
pub(crate) fn follow<T: Task>(
    task: &mut T,
    cpu: u32,
    tools: &Tools<'_>,
    line: &mut Line,
) -> Result<(Samples, u64), NoVisit> {
    pin(cpu)?;
    task.begin()?;
    line.say(&Answer::Ready).map_err(broken)?;
    let mut last = 1;
    while let Some(Word::Go { at, start, repetitions }) = line.hear().map_err(broken)? {
        task.renew()?;
        let taken = sample(task, cpu, tools, [at, start], repetitions)?;
        line.say(&Answer::Taken(taken)).map_err(broken)?;
        last = repetitions;
    }
    task.end()?;
    Ok((Samples::default(), last))
}

/// Probes from one tick on, and runs from the other on.
fn sample<T: Task>(
    task: &mut T,
    cpu: u32,
    tools: &Tools<'_>,
    [at, go_at]: [u64; 2],
    repetitions: u64,
) -> Result<Taken, NoVisit> {
    let probe = || {
        let Reading { chain_ticks, wide_ticks } = tools.probe.read();
        [chain_ticks, wide_ticks]
    };
    threads::spin_until(tools.ticker, at);
    let before = probe();
    let late_us = threads::late_us(tools, go_at);
    let usage = ThreadUsage::now();
    threads::spin_until(tools.ticker, go_at);
    task.approach()?;
    let start = tools.ticker.now();
    task.run(repetitions)?;
    let end = tools.ticker.now();
    elapsed(start, end)?;
    let Sample { lost_us, switches, faults, .. } = usage.until_now();
    let is_moved = thread::current_cpu().is_some_and(|now| now != cpu);
    let lost_us = lost_us.saturating_add(late_us);
    Ok(Taken { start, end, lost_us, switches, faults, is_moved, probes: [before, probe()] })
}

/// SIGKILL.
const KILLED: i32 = 9;

/// This program once more, as a worker; ended with this value.
#[derive(Debug)]
pub(crate) struct WorkerProcess(Child);

impl WorkerProcess {
    /// Starts one, and what to talk to it over.
    pub fn start() -> io::Result<(Self, Talk)> {
        let (child, talk) = start_worker()?;
        Ok((WorkerProcess(child), talk))
    }

    /// Waits for its end. Returns how it ended, with a cure where there is one.
    pub fn ended(&mut self) -> String {
        match self.0.wait().map(|status| (signal_of(status), status)) {
            // So the kernel ends it before any other.
            Ok((Some(KILLED), _)) => format!("by signal {KILLED}; if memory ran out, give a smaller --size"),
            Ok((Some(signal), _)) => format!("by signal {signal}"),
            Ok((None, status)) => format!("with {status}"),
            Err(fault) => format!("unseen ({fault})"),
        }
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // It has ended, or nobody needs what it does.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process that measures its part.
struct Worker {
    process: WorkerProcess,
    line: Line,
    cpu: u32,
}

impl Worker {
    fn start(part: &Part) -> Result<Self, NoVisit> {
        let refused = |fault: io::Error| {
            let cure = match fault.kind() {
                // This system starts none.
                io::ErrorKind::Unsupported => "run threads",
                _ => "raise the limit on processes (ulimit -u, pids.max of the control group), or run threads",
            };
            NoVisit::impossible(format!("a measuring process could not be started ({fault}); {cure}"))
        };
        let (process, talk) = WorkerProcess::start().map_err(refused)?;
        let cpu = part.case.cpus.first().copied().unwrap_or_default();
        let mut worker = Worker { process, line: Line::over(talk).map_err(broken)?, cpu };
        worker.say(&Errand::Part(part))?;
        Ok(worker)
    }

    fn say(&mut self, what: &impl Serialize) -> Result<(), NoVisit> {
        self.line.say(what).map_err(|fault| self.lost(fault))
    }

    fn hear(&mut self) -> Result<Answer, NoVisit> {
        match self.line.hear().map_err(|fault| self.lost(fault))? {
            Some(Answer::Refused(Outcome::Crashed { reason })) => Err(NoVisit::Broken(reason)),
            Some(Answer::Refused(Outcome::Invalid { reason })) => Err(NoVisit::Wrong(reason)),
            Some(Answer::Refused(Outcome::Unavailable { reason })) => Err(NoVisit::impossible(reason)),
            Some(answer) => Ok(answer),
            None => Err(self.ended()),
        }
    }

    /// Why nothing can be said or heard.
    fn lost(&mut self, fault: io::Error) -> NoVisit {
        match fault.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => self.ended(),
            _ => broken(fault),
        }
    }

    fn ended(&mut self) -> NoVisit {
        NoVisit::Broken(format!("the measuring process on CPU {} ended {}", self.cpu, self.process.ended()))
    }

    /// What it says where only that can come.
    fn hear_only<R>(&mut self, of: impl FnOnce(Answer) -> Option<R>) -> Result<R, NoVisit> {
        let cpu = self.cpu;
        let astray = || NoVisit::Broken(format!("the measuring process on CPU {cpu} has lost its place"));
        of(self.hear()?).ok_or_else(astray)
    }
}

/// Has each process do its part at the same time. Returns what was measured, and what the process on each CPU obtained.
pub(crate) fn measure(
    parts: &[Part],
    quota: &Quota<'_>,
    tools: &Tools<'_>,
) -> Result<(Measured, Vec<(u32, Obtained)>), NoVisit> {
    // All are started before one is waited for: they touch their memory side by side.
    let mut workers: Vec<Worker> = parts.iter().map(Worker::start).collect::<Result<_, _>>()?;
    for worker in &mut workers {
        worker.hear_only(|answer| matches!(answer, Answer::Ready).then_some(()))?;
    }
    let (samples, repetitions) = take(&mut workers, quota, tools)?;
    let (mut volumes, mut obtained) = (Vec::new(), Vec::new());
    for worker in &mut workers {
        worker.say(&Word::End)?;
    }
    for worker in &mut workers {
        let done =
            |answer| if let Answer::Done { volume, obtained } = answer { Some((volume, *obtained)) } else { None };
        let (volume, own) = worker.hear_only(done)?;
        volumes.push(volume);
        obtained.push((worker.cpu, own));
    }
    if samples.ticks.is_empty() {
        return Err(NoVisit::OutOfTime);
    }
    let all = obtained.iter().map(|(_, own)| own.clone()).reduce(Obtained::and).unwrap_or_default();
    let volume = volumes.into_iter().reduce(together).unwrap_or_default();
    Ok((measured(volume, (samples, repetitions), all), obtained))
}

fn together(a: Volume, b: Volume) -> Volume {
    Volume {
        units: a.units + b.units,
        unit: a.unit,
        loaded: a.loaded + b.loaded,
        stored: a.stored + b.stored,
        write_allocated: a.write_allocated + b.write_allocated,
        flops: a.flops + b.flops,
    }
}

/// Samples until there are enough, and the repetitions of each.
fn take(workers: &mut [Worker], quota: &Quota<'_>, tools: &Tools<'_>) -> Result<(Samples, u64), NoVisit> {
    let (mut samples, mut steal) = (Samples::default(), StealMeter::new());
    let (mut warm_up, mut repetitions) = (Some(WarmUp::new(SAMPLE, tools.hz)), 1);
    let ahead = (GO_AHEAD.as_secs_f64() * tools.hz.0) as u64;
    let (deadline, mut since) = (Instant::now() + quota.time, tools.ticker.now());
    loop {
        if quota.is_met(samples.ticks.len(), deadline) || (quota.interrupted)() {
            break;
        }
        let at = tools.ticker.now() + ahead;
        // Each process has its own idea of how long a probe takes; all start by this one's.
        let go = Word::Go { at, start: at + tools.probe.most_ticks, repetitions };
        workers.iter_mut().try_for_each(|worker| worker.say(&go))?;
        let taken = |worker: &mut Worker| {
            worker.hear_only(|answer| if let Answer::Taken(taken) = answer { Some(taken) } else { None })
        };
        let parts: Vec<Taken> = workers.iter_mut().map(taken).collect::<Result<_, _>>()?;
        let next = warm_up.as_mut().map(|warm_up| warm_up.next(whole(&parts), repetitions));
        let now = tools.ticker.now();
        match next {
            Some(Some(more)) => repetitions = more,
            Some(None) => {
                warm_up = None;
                samples.warm_up_ticks = now.saturating_sub(std::mem::replace(&mut since, now));
            }
            None => {
                keep(&mut samples, &parts, steal.since_last());
                samples.sampling_ticks += now.saturating_sub(std::mem::replace(&mut since, now));
            }
        }
    }
    Ok((samples, repetitions))
}

/// From the first start to the last end.
fn whole(parts: &[Taken]) -> u64 {
    let [start, end] = [parts.iter().map(|part| part.start).min(), parts.iter().map(|part| part.end).max()];
    end.unwrap_or(1).saturating_sub(start.unwrap_or(0)).max(1)
}

fn keep(samples: &mut Samples, parts: &[Taken], steal_jiffies: u32) {
    if parts.len() > 1 {
        samples.thread_ticks.resize(parts.len(), Vec::new());
        samples.thread_ticks.iter_mut().zip(parts).for_each(|(column, part)| column.push(part.end - part.start));
    }
    let readings = |part: &Taken| part.probes.map(|[chain_ticks, wide_ticks]| Reading { chain_ticks, wide_ticks });
    keep_probes(samples, parts.iter().map(readings));
    let sum = |of: fn(&Taken) -> u32| parts.iter().map(of).fold(0, u32::saturating_add);
    samples.push(Sample {
        ticks: whole(parts),
        core_clock_ticks: parts.first().map_or(0, |part| part.probes[1][0].into()),
        lost_us: sum(|part| part.lost_us),
        steal_jiffies,
        switches: sum(|part| part.switches),
        faults: sum(|part| part.faults),
        migrations: sum(|part| u32::from(part.is_moved)),
        ..Sample::default()
    });
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::os::processes;
    use crate::team::tests::with_tools;
    use membound_core::units::Hertz;

    #[test]
    fn both_ends_hear_each_other_and_that_one_has_gone() {
        let (here, there) = processes::talk().unwrap();
        let (mut here, mut there) = (Line::over(here).unwrap(), Line::over(there).unwrap());
        here.say(&Word::Go { at: 7, start: 9, repetitions: 3 }).unwrap();
        assert!(matches!(there.hear().unwrap(), Some(Word::Go { at: 7, start: 9, repetitions: 3 })));
        there.say(&Answer::Refused(Outcome::Unavailable { reason: "no\nroom".into() })).unwrap();
        let heard: Option<Answer> = here.hear().unwrap();
        assert!(matches!(heard, Some(Answer::Refused(Outcome::Unavailable { reason })) if reason == "no\nroom"));
        drop(there);
        assert!(here.hear::<Answer>().unwrap().is_none());
    }

    struct Nothing;

    impl Task for Nothing {
        fn run(&mut self, _repetitions: u64) -> Result<(), NoVisit> {
            Ok(())
        }

        fn end(&mut self) -> Result<(), NoVisit> {
            Ok(())
        }
    }

    /// At a tick per nanosecond: whoever comes 5 ms late says so.
    #[test]
    fn a_sample_starts_when_its_parent_says_or_is_late() {
        with_tools(Hertz(1e9), |tools| {
            let sample = |at: u64, start: u64| sample(&mut Nothing, 0, tools, [at, start], 1).unwrap();
            let now = tools.ticker.now();
            let start = now + 5 * tools.probe.most_ticks;
            assert!(sample(now, start).start >= start);
            assert!(sample(now, tools.ticker.now() - 5_000_000).lost_us >= 5000);
        });
    }

    /// The kernel's choice when memory runs out.
    #[test]
    fn a_process_that_was_killed_is_told_with_the_cure() {
        let child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let (here, there) = processes::talk().unwrap();
        let mut worker = Worker { process: WorkerProcess(child), line: Line::over(here).unwrap(), cpu: 3 };
        worker.process.0.kill().unwrap();
        drop(there);
        for said in [worker.hear().map(drop), worker.say(&Word::End)] {
            let Err(NoVisit::Broken(why)) = said else { panic!("{said:?}") };
            assert!(why.starts_with("the measuring process on CPU 3 ended by signal 9"), "{why}");
            assert!(why.ends_with("give a smaller --size"), "{why}");
        }
    }

    /// By hand: from tick 100 to 190, of which one took 80 and the other 85.
    #[test]
    fn a_sample_lasts_from_the_first_start_to_the_last_end() {
        let part = |start, end| Taken {
            start,
            end,
            lost_us: 2,
            switches: 1,
            faults: 0,
            is_moved: false,
            probes: [[5, 6], [7, 8]],
        };
        let mut samples = Samples::default();
        keep(&mut samples, &[part(100, 180), part(105, 190)], 0);
        assert_eq!((&samples.ticks[..], &samples.thread_ticks[..]), (&[90][..], &[vec![80], vec![85]][..]));
        assert_eq!((samples.lost_us[0], samples.switches[0], samples.core_clock_ticks[0]), (4, 2, 7));
        assert!(samples.is_consistent());
    }
}
