//! Running cases: an [`Executor`] takes samples, [`run`] decides which case is visited when and for how long.

pub mod arena;
#[cfg(target_arch = "x86_64")]
mod chase;
#[cfg(target_arch = "x86_64")]
mod conflict;
pub mod energy;
pub mod fake;
#[cfg(target_arch = "x86_64")]
mod flops;
#[cfg(target_arch = "x86_64")]
mod handover;
#[cfg(target_arch = "x86_64")]
pub mod here;
#[cfg(target_arch = "x86_64")]
mod idle;
#[cfg(target_arch = "x86_64")]
mod loaded;
#[cfg(all(feature = "kvm", target_os = "linux", target_arch = "x86_64"))]
pub mod microvm;
#[cfg(target_arch = "x86_64")]
pub mod native;
#[cfg(target_arch = "x86_64")]
mod page_cache;
#[cfg(target_arch = "x86_64")]
mod pages;
#[cfg(target_arch = "x86_64")]
pub mod pingpong;
#[cfg(target_arch = "x86_64")]
mod rounding;
#[cfg(target_arch = "x86_64")]
mod scan;
#[cfg(target_arch = "x86_64")]
mod streams;
pub mod sweep;
pub mod sys;
#[cfg(target_arch = "x86_64")]
mod team;

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use crate::plan::{Case, Protocol, Work};
use crate::record::{Clock, Environment, Measurement, Outcome, World};
use crate::units::Bytes;

/// Visits to a scan: a slow spell that falls on one of them does not show in a median of three. The samples of a scan
/// are of many quantities, one an offset, so how narrow their interval is says nothing; and they are many.
const SCAN_VISITS: usize = 3;

/// Takes samples: this machine, a small virtual machine on it, a simulation, later a GPU.
pub trait Executor {
    /// The clock that samples are counted in.
    fn clock(&self) -> Clock;
    /// The processes that take part, where it is not this one alone.
    fn world(&self) -> Option<World> {
        None
    }
    /// Announces cases, so that memory for the largest can be reserved.
    fn expect(&mut self, cases: &[Case]);
    /// A new round of visits begins. Memory kept from the last one is given back: where its pages happened to lie is
    /// luck that lasts as long as they do, and shows in the intervals only if each round draws anew.
    fn begin_round(&mut self) {}
    /// Takes samples of one case.
    fn visit(&mut self, case: &Case, quota: &Quota<'_>) -> Outcome;
}

/// How much one visit may take.
#[allow(missing_debug_implementations)] // It holds closures.
pub struct Quota<'a> {
    /// Samples to take whatever the time.
    pub least_samples: usize,
    /// Samples after which to stop.
    pub most_samples: usize,
    /// Time after which to stop.
    pub time: Duration,
    /// Whether the user wants to stop.
    pub interrupted: &'a (dyn Fn() -> bool + Sync),
}

/// How a run is laid out in time.
#[allow(missing_debug_implementations)] // It holds closures.
pub struct Schedule<'a> {
    /// Seed of the order of visits.
    pub seed: u64,
    /// When to stop, whatever is left.
    pub deadline: Instant,
    /// Samples of one visit.
    pub samples: usize,
    /// Rounds after which to stop.
    pub most_rounds: u32,
    /// Whether a case's visits so far (durations by repetition) are enough.
    pub settled: &'a dyn Fn(&[Vec<f64>]) -> bool,
    /// Whether the user wants to stop.
    pub interrupted: &'a (dyn Fn() -> bool + Sync),
}

/// Where a run stands; for a progress bar.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// The case that comes next.
    pub case: &'a Case,
    /// The round, from 0.
    pub round: u32,
    /// Visits done.
    pub visits: u64,
}

/// Visits `cases` in rounds, in random order, until each is settled or the time is over. Rounds lie apart in time, so
/// that a slow spell of a shared machine falls on all cases alike and shows as spread, not as a difference between
/// cases. Each visit is handed to `sink` before the next one starts.
///
/// # Errors
/// Those of `sink`: a record that can't be written ends the run.
pub fn run(
    cases: &[Case],
    executor: &mut dyn Executor,
    schedule: &Schedule<'_>,
    sink: &mut dyn FnMut(Measurement) -> io::Result<()>,
    progress: &mut dyn FnMut(Progress<'_>),
) -> io::Result<()> {
    let mut random = fastrand::Rng::with_seed(schedule.seed);
    let mut states: Vec<State> = cases.iter().map(|_| State::default()).collect();
    let (mut visits, mut pace) = (0, Pace::default());
    for round in 0..schedule.most_rounds {
        let open: Vec<usize> = (0..cases.len()).filter(|&i| !states[i].done).collect();
        if open.is_empty() {
            break;
        }
        let left = schedule.deadline.saturating_duration_since(Instant::now());
        let order = order(open, cases, &states, pace, left, &mut random);
        executor.begin_round();
        for (position, &index) in order.iter().enumerate() {
            let left = schedule.deadline.saturating_duration_since(Instant::now());
            // A visit that can't end in time is not begun.
            let cost = states[index].expected(&cases[index], pace);
            if (schedule.interrupted)() || left < cost.mul_f64(1.2) || left.is_zero() {
                states[index].done |= left.is_zero();
                continue;
            }
            let case = &cases[index];
            progress(Progress { case, round, visits });
            let fair = left / (order.len() - position) as u32;
            let started = Instant::now();
            let outcome = executor.visit(case, &quota(case, schedule, fair, left));
            states[index].note(case, &outcome, started.elapsed(), schedule);
            pace.note(case, &outcome, started.elapsed());
            visits += 1;
            sink(Measurement { case: case.clone(), round, outcome })?;
        }
        if schedule.deadline <= Instant::now() || (schedule.interrupted)() {
            break;
        }
    }
    Ok(())
}

/// The order of a round: random, but cases that share what a visit prepares are visited one after the other, and those
/// that take more than a fair share of the time come last, so that the others are not what is left out if time is short.
/// Where not even each of those can be visited once, the first of the plan are.
fn order(
    open: Vec<usize>,
    cases: &[Case],
    states: &[State],
    pace: Pace,
    left: Duration,
    random: &mut fastrand::Rng,
) -> Vec<usize> {
    const FAIR: u32 = 4;
    let fair = FAIR * left / open.len().max(1) as u32;
    let (mut order, mut groups) = (open, HashMap::new());
    random.shuffle(&mut order);
    let place = |(position, &index): (usize, &usize)| {
        let is_dear = states[index].expected(&cases[index], pace) > fair;
        let position = if is_dear && states[index].batches.is_empty() { index } else { position };
        let group = cases[index].shares().map_or(position, |shared| *groups.entry(shared).or_insert(position));
        (is_dear, group)
    };
    let places: Vec<(bool, usize)> = order.iter().enumerate().map(place).collect();
    let mut placed: Vec<_> = places.into_iter().zip(order).collect();
    placed.sort_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, index)| index).collect()
}

/// Visits cases that follow from the answers so far, until `next` has none, time ends or one can't be measured. `next`
/// gets what came of the case before. An error means that nothing could be written.
pub fn follow(
    next: &mut dyn FnMut(Option<&Measurement>) -> Option<Case>,
    executor: &mut dyn Executor,
    schedule: &Schedule<'_>,
    sink: &mut dyn FnMut(Measurement) -> io::Result<()>,
    progress: &mut dyn FnMut(Progress<'_>),
) -> io::Result<()> {
    let mut case = next(None);
    for round in 0.. {
        let left = schedule.deadline.saturating_duration_since(Instant::now());
        let Some(asked) = case.filter(|_| !left.is_zero() && !(schedule.interrupted)()) else { break };
        progress(Progress { case: &asked, round, visits: u64::from(round) });
        let outcome = executor.visit(&asked, &quota(&asked, schedule, left, left));
        let measurement = Measurement { case: asked, round, outcome };
        case = next(Some(&measurement)).filter(|_| matches!(measurement.outcome, Outcome::Measured(_)));
        sink(measurement)?;
    }
    Ok(())
}

/// How much longer than planned visits take on this machine: the most that a long visit did. Some can only be known by
/// that: pages that a host backs anew, memory slower than most.
#[derive(Clone, Copy, Default)]
struct Pace(f64);

impl Pace {
    /// Shorter visits say nothing: what they take is their samples.
    const LONG: Duration = Duration::from_millis(50);

    fn note(&mut self, case: &Case, outcome: &Outcome, cost: Duration) {
        if case.least_time() > Pace::LONG && matches!(outcome, Outcome::Measured(_)) {
            self.0 = self.0.max(cost.as_secs_f64() / case.least_time().as_secs_f64());
        }
    }

    fn expected(self, case: &Case) -> Duration {
        case.least_time().mul_f64(self.0.max(1.0))
    }
}

#[derive(Default)]
struct State {
    done: bool,
    cost: Duration,
    batches: Vec<Vec<f64>>,
}

impl State {
    /// What the next visit will take: as long as the last one, or what such a case should take here.
    fn expected(&self, case: &Case, pace: Pace) -> Duration {
        if self.cost.is_zero() { pace.expected(case) } else { self.cost }
    }

    fn note(&mut self, case: &Case, outcome: &Outcome, cost: Duration, schedule: &Schedule<'_>) {
        self.cost = cost;
        match outcome {
            Outcome::Measured(measured) => {
                let per_repetition = |ticks: &u64| *ticks as f64 / measured.repetitions as f64;
                self.batches.push(measured.samples.ticks.iter().map(per_repetition).collect());
                self.done = match case.work {
                    Work::Scan(_) => self.batches.len() >= SCAN_VISITS,
                    Work::Conflict(_) => true,
                    _ => (schedule.settled)(&self.batches),
                };
            }
            _ => self.done = true,
        }
    }
}

fn quota<'a>(case: &Case, schedule: &Schedule<'a>, fair: Duration, left: Duration) -> Quota<'a> {
    match case.protocol {
        Protocol::Steady | Protocol::Refilled | Protocol::FirstUse | Protocol::Energy => Quota {
            least_samples: 2.min(schedule.samples),
            most_samples: schedule.samples,
            time: fair.max(Duration::from_millis(2)).min(left),
            interrupted: schedule.interrupted,
        },
        // STREAM: NTIMES is 10, of which the first is left out.
        Protocol::Stream => Quota { least_samples: 9, most_samples: 9, time: left, interrupted: schedule.interrupted },
    }
}

/// Reads the machine's changing state.
pub fn environment() -> Environment {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| {
        let line = meminfo.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok().map(Bytes::kib)
    };
    let load = std::fs::read_to_string("/proc/loadavg").ok();
    Environment {
        available: field("MemAvailable:"),
        page_cache: field("Cached:"),
        node_free: node_free(),
        load_average: load.and_then(|text| text.split_whitespace().next()?.parse().ok()),
        steal_s: steal_jiffies().map(|jiffies| jiffies as f64 / 100.0),
    }
}

fn node_free() -> Vec<(u32, Bytes)> {
    let Ok(entries) = std::fs::read_dir("/sys/devices/system/node") else { return Vec::new() };
    let free = |entry: std::fs::DirEntry| {
        let node: u32 = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
        let text = std::fs::read_to_string(entry.path().join("meminfo")).ok()?;
        let line = text.lines().find(|line| line.contains("MemFree:"))?;
        let kib = line.split_whitespace().rev().nth(1)?.parse().ok()?;
        Some((node, Bytes::kib(kib)))
    };
    let mut nodes: Vec<_> = entries.flatten().filter_map(free).collect();
    nodes.sort_unstable();
    nodes
}

/// Steal time of all CPUs since boot, in the kernel's ticks; absent where /proc/stat does not say.
fn steal_jiffies() -> Option<u64> {
    use std::io::Read;
    let mut head = [0u8; 256];
    let mut file = std::fs::File::open("/proc/stat").ok()?;
    let read = file.read(&mut head).ok()?;
    let text = std::str::from_utf8(&head[..read]).ok()?;
    text.lines().next()?.split_whitespace().nth(8)?.parse().ok()
}
