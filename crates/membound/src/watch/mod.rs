//! Watching a machine between checks: when a probe is made, what is kept of it, and what is told.
//!
//! ```text
//! wait | others here? -> told, wait | for each case: take the turn, visit, keep, judge | give memory back | wait ...
//! ```
//! Whatever fails is told once and tried again at the next probe: nothing ends watching but its time, or a signal.

pub mod diary;

use std::collections::VecDeque;
use std::time::Duration;

use membound_analyze::across::check::Probe;
use membound_analyze::across::watch::{Event, NoFigure, Standing, Watch, WatchRow};
use membound_core::in_order::InOrder;
use membound_core::record::{Line, Measurement};
use membound_core::units::counted;
use membound_measure::os::signals;
use membound_measure::schedule::{Executor, Quota};

use crate::watch::diary::Diary;

/// The share of a core that watching takes at most, where the user says nothing else.
const SHARE: f64 = 0.001;
/// Probes lie apart by what was asked for, give or take this share: machines that were started together are not probed together.
const JITTER: f64 = 0.1;
/// A visit does not last: its samples are a number, whatever the time. This only ends one on a machine that hardly runs.
const VISIT: Duration = Duration::from_secs(3600);
/// Where the time from one probe to the next was longer than planned by this, nothing ran meanwhile.
const GAP: Duration = Duration::from_secs(60);

/// What watching is told.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Cases, and what they stand for.
    pub probes: Vec<Probe>,
    /// From one probe to the next; what the user asked for, or the least that is usual.
    pub every: Duration,
    /// Whether probes may be rarer, so that watching takes no more than a thousandth of a core.
    pub is_thrifty: bool,
    /// Samples of one visit.
    pub samples: usize,
    /// When to end; absent: when told to.
    pub lasts: Option<Duration>,
}

/// What there is around the watcher.
pub trait World {
    /// What holds the right to measure.
    type Turn;
    /// Seconds since 1970.
    fn now_unix_s(&self) -> f64;
    /// Sleeps, or less where the user wants to stop.
    fn sleep(&mut self, time: Duration);
    /// Whether the user wants to stop.
    fn is_over(&self) -> bool;
    /// CPU time that watching took so far.
    fn cpu_time(&self) -> Duration;
    /// Why nothing should be probed now: others use the machine.
    fn others(&mut self) -> Option<String>;
    /// The right to measure; or why not now.
    ///
    /// # Errors
    /// Who has it, in words.
    fn turn(&mut self) -> Result<Self::Turn, String>;
}

/// What came of watching.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watched {
    /// Probes made.
    pub probes: u64,
    /// Falls told.
    pub falls: u64,
}

/// Watches until it is over. What happens goes to `tell`, how it stands after each attempt and at the end to `show`.
pub fn watch<W: World>(
    plan: &Plan,
    mut watch: Watch,
    diary: &mut Diary,
    executor: &mut dyn Executor,
    world: &mut W,
    tell: &mut dyn FnMut(&WatchRow),
    show: &mut dyn FnMut(&Standing<'_>),
) -> Watched {
    let began = world.now_unix_s();
    let cpu_before = world.cpu_time();
    let mut watcher =
        Watcher { plan, diary, tell, came: Watched { probes: 0, falls: 0 }, pause: None, trouble: Vec::new() };
    let mut random = fastrand::Rng::new();
    let (mut pace, mut last_probe) = (Pace::new(plan), None);
    watcher.begin(&watch, world);
    let is_over = |world: &W| {
        let lasted = Duration::try_from_secs_f64(world.now_unix_s() - began).unwrap_or_default();
        world.is_over() || plan.lasts.is_some_and(|lasts| lasted >= lasts)
    };
    while !is_over(world) {
        let cpu = world.cpu_time();
        let is_whole = watcher.probe(&mut watch, executor, world);
        if is_whole {
            last_probe = Some(world.now_unix_s() as u64);
        }
        show(&watcher.standing(&watch, last_probe, world.cpu_time().saturating_sub(cpu_before)));
        if let Some(note) = pace.took(world.cpu_time().saturating_sub(cpu), is_whole) {
            watcher.say(Event::Note, note, world);
        }
        let jittered = pace.every.mul_f64(1.0 + JITTER * (2.0 * random.f64() - 1.0));
        let left = plan.lasts.map_or(jittered, |lasts| {
            lasts.saturating_sub(Duration::try_from_secs_f64(world.now_unix_s() - began).unwrap_or_default())
        });
        watcher.wait(jittered.min(left), world);
    }
    let wall = (world.now_unix_s() - began).max(f64::MIN_POSITIVE);
    let cpu = world.cpu_time().saturating_sub(cpu_before);
    watcher.end(cpu, wall, world);
    // Whoever looks from outside must not take an end for a pause.
    show(&Standing { is_paused: false, ..watcher.standing(&watch, last_probe, cpu) });
    watcher.came
}

/// From one probe to the next, so that watching takes no more than its share.
#[derive(Debug)]
struct Pace {
    planned: Duration,
    is_thrifty: bool,
    every: Duration,
    /// CPU time of the last probes.
    last: VecDeque<Duration>,
}

impl Pace {
    /// One probe that took long, on a busy machine for one, is not what they take.
    const PROBES: usize = 5;
    /// A little more than probes take: the next is not told again.
    const SPARE: f64 = 1.2;
    /// And where they could lie closer by less than this, they stay.
    const NEAR: f64 = 1.25;

    fn new(plan: &Plan) -> Self {
        Pace { planned: plan.every, is_thrifty: plan.is_thrifty, every: plan.every, last: VecDeque::new() }
    }

    /// What probes take: the median of the last.
    fn typical(&self) -> Duration {
        let mut sorted: Vec<Duration> = self.last.iter().copied().collect();
        sorted.order_by_key(|cpu| *cpu);
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    }

    /// After a probe: what to tell where probes lie otherwise from now on.
    fn took(&mut self, cpu: Duration, is_whole: bool) -> Option<String> {
        // What was broken off tells only what a probe takes at the least.
        if !self.is_thrifty || !is_whole && cpu <= self.typical() {
            return None;
        }
        self.last.push_back(cpu);
        if self.last.len() > Self::PROBES {
            self.last.pop_front();
        }
        let typical = self.typical();
        let least = typical.div_f64(SHARE);
        let every = if least <= self.planned { self.planned } else { least.mul_f64(Self::SPARE) };
        if least <= self.every && self.every <= every.mul_f64(Self::NEAR) {
            return None;
        }
        self.every = every;
        Some(format!(
            "a probe takes {:.0} ms of CPU time, so probes are {:.0} s apart: less than 0.1 % of a core; --every chooses",
            typical.as_secs_f64() * 1e3,
            every.as_secs_f64()
        ))
    }
}

struct Watcher<'a> {
    plan: &'a Plan,
    diary: &'a mut Diary,
    tell: &'a mut dyn FnMut(&WatchRow),
    came: Watched,
    /// Why nothing is probed.
    pause: Option<String>,
    /// What can't be done, by what it is about.
    trouble: Vec<(String, String)>,
}

/// What trouble with the record is about.
const RECORD: &str = "the record";

impl Watcher<'_> {
    fn say(&mut self, event: Event, reason: impl Into<String>, world: &impl World) {
        (self.tell)(&WatchRow::plain(event, world.now_unix_s() as u64, reason));
    }

    fn standing<'w>(&self, watch: &'w Watch, last_probe_unix_s: Option<u64>, cpu: Duration) -> Standing<'w> {
        let (probes, is_paused, unwritten) = (self.came.probes, self.pause.is_some(), self.diary.waiting());
        Standing { watch, last_probe_unix_s, probes, is_paused, unwritten, cpu }
    }

    fn begin(&mut self, watch: &Watch, world: &impl World) {
        let names: Vec<&str> = watch.series.iter().map(|series| series.quantity.as_str()).collect();
        let needed = watch.series.iter().map(|series| series.needed()).max().unwrap_or(0);
        let known = match needed {
            0 => String::new(),
            1 => "; one more probe is needed before a change can be told".into(),
            n => format!("; {n} more probes are needed before a change can be told"),
        };
        let every = self.plan.every.as_secs_f64();
        self.say(Event::Started, format!("{}, every {every:.0} s{known}", names.join(", ")), world);
    }

    fn end(&mut self, cpu: Duration, wall: f64, world: &impl World) {
        let Watched { probes, falls } = self.came;
        let unwritten = match self.diary.waiting() + self.diary.lost() {
            0 => String::new(),
            n => format!(", {} that could not be written", counted(n, "line")),
        };
        let (probes, falls) = (counted(probes, "probe"), counted(falls, "fall"));
        let share = 100.0 * cpu.as_secs_f64() / wall;
        let text =
            format!("{probes}, {falls}{unwritten}; {:.2} s of CPU time, {share:.2} % of a core", cpu.as_secs_f64());
        self.say(Event::Ended, text, world);
    }

    /// Visits each case, unless others use the machine. Returns whether all were visited.
    fn probe<W: World>(&mut self, watch: &mut Watch, executor: &mut dyn Executor, world: &mut W) -> bool {
        let mut is_whole = true;
        for (n, probe) in self.plan.probes.iter().enumerate() {
            // The turn is given back between two cases: a check waits for one of them at the most.
            let busy = if n == 0 { world.others() } else { None };
            let turn = match busy.map_or_else(|| world.turn(), Err) {
                Ok(turn) => turn,
                Err(why) => {
                    self.pause(why, world);
                    is_whole = false;
                    break;
                }
            };
            let began = world.now_unix_s();
            let quota = Quota {
                least_samples: self.plan.samples,
                most_samples: self.plan.samples,
                time: VISIT,
                interrupted: &signals::interrupted,
            };
            let outcome = executor.visit(&probe.case, &quota);
            drop(turn);
            if world.is_over() {
                is_whole = false;
                break;
            }
            let round = u32::try_from(self.came.probes).unwrap_or(u32::MAX);
            let started_s = (began - self.diary.started_unix_s() as f64).max(0.0);
            let elapsed_s = (world.now_unix_s() - began).max(0.0);
            let visit = Measurement { started_s, elapsed_s, ..Measurement::new(probe.case.clone(), round, outcome) };
            is_whole &= self.take(&probe.quantity, visit, watch, world);
        }
        // Where its pages lie is drawn anew in each probe, and between probes memory is others'.
        executor.begin_round();
        self.came.probes += u64::from(is_whole);
        if is_whole {
            self.resume(world);
        }
        is_whole
    }

    /// Keeps a visit and judges it. Returns whether it has a figure.
    fn take<W: World>(&mut self, quantity: &str, visit: Measurement, watch: &mut Watch, world: &mut W) -> bool {
        let noted = watch.note(&visit, world.now_unix_s() as u64);
        for row in &noted.rows {
            self.came.falls += u64::from(row.event == Event::Fall);
            (self.tell)(row);
        }
        let written = self.diary.keep(Line::Measurement(Box::new(visit)));
        let waiting = self.diary.waiting();
        let fault =
            written.err().map(|fault| format!("{fault}; what was measured is kept in memory ({waiting} so far)"));
        self.note_trouble(RECORD, fault, world);
        match noted.no_figure {
            // Whether what failed before works again is not known.
            Some(NoFigure::Disturbed(why)) => {
                self.pause(why, world);
                false
            }
            Some(NoFigure::Failed(why)) => {
                self.note_trouble(quantity, Some(why), world);
                false
            }
            None => {
                self.note_trouble(quantity, None, world);
                true
            }
        }
    }

    /// Tells trouble when it begins or changes its kind, and when it is over.
    fn note_trouble(&mut self, about: &str, fault: Option<String>, world: &impl World) {
        let kind = |text: &str| text.split([';', '(']).next().unwrap_or_default().to_string();
        let known = self.trouble.iter().position(|(what, _)| what == about);
        match (known, fault) {
            (None, None) => {}
            (Some(at), None) => {
                self.trouble.remove(at);
                self.say(Event::Mended, format!("{about} works again"), world);
            }
            (Some(at), Some(fault)) if kind(&self.trouble[at].1) == kind(&fault) => {}
            (known, Some(fault)) => {
                known.map(|at| self.trouble.remove(at));
                self.trouble.push((about.into(), fault.clone()));
                self.say(Event::Fault, format!("{about}: {fault}"), world);
            }
        }
    }

    fn pause(&mut self, why: String, world: &impl World) {
        if self.pause.replace(why.clone()).is_none() {
            self.say(Event::Paused, why, world);
        }
    }

    fn resume(&mut self, world: &impl World) {
        if self.pause.take().is_some() {
            self.say(Event::Resumed, "probes go on", world);
        }
    }

    fn wait(&mut self, time: Duration, world: &mut impl World) {
        let before = world.now_unix_s();
        world.sleep(time);
        let slept = Duration::try_from_secs_f64(world.now_unix_s() - before).unwrap_or_default();
        if slept > time + GAP {
            let text = format!(
                "nothing was probed for {:.0} s: the process was stopped, or the machine slept",
                slept.as_secs_f64()
            );
            self.say(Event::Gap, text, world);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_lie_apart_by_what_the_last_of_them_took() {
        let seconds = Duration::from_secs;
        let plan = Plan { probes: Vec::new(), every: seconds(300), is_thrifty: true, samples: 1, lasts: None };
        let mut pace = Pace::new(&plan);
        let mut took = |ms: u64, is_whole: bool| {
            let is_told = pace.took(Duration::from_millis(ms), is_whole).is_some();
            (pace.every, is_told)
        };
        assert_eq!(took(200, true), (seconds(300), false));
        // 0.5 s are a thousandth of 500 s; and a fifth more.
        assert_eq!(took(500, true), (seconds(600), true));
        assert_eq!(took(500, true), (seconds(600), false));
        // 200, 500, 500, 200: the greater of the middle ones. Nothing was visited beside others.
        assert_eq!([took(200, true), took(0, false)], [(seconds(600), false); 2]);
        // 200, 500, 500, 200, 200: as near as planned again. 500, 500, 200, 200, 900, and then 500, 200, 200, 900, 200.
        assert_eq!([took(200, true), took(900, true)], [(seconds(300), true), (seconds(600), true)]);
        assert_eq!([took(200, true), took(200, true)], [(seconds(300), true), (seconds(300), false)]);
        let mut obeyed = Pace::new(&Plan { is_thrifty: false, ..plan });
        assert_eq!((obeyed.took(seconds(9), true), obeyed.every), (None, seconds(300)));
    }
}
