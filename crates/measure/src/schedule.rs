//! Running cases: an [`Executor`] takes samples, [`run`] decides which case is visited when and for how long.

use membound_core::in_order::InOrder;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use membound_core::case::{Case, Protocol, Work};
use membound_core::kernel::Variant;
use membound_core::memory::MemorySpec;
use membound_core::plan::Plan;
use membound_core::record::hand_overs::Distance;
use membound_core::record::{Clock, Measurement, Outcome, World};
use membound_core::stats::quantiles::median;
use membound_core::stats::states::{VISITS_MIN, uncertainty};

use crate::distances::{Met, RARE, Watch};

/// More rounds than any time has room for.
pub const ROUNDS_MOST: u32 = 1000;
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
    /// The time by which a run is laid out: a simulated machine has its own, in which an hour takes no time.
    fn now(&self) -> Instant {
        Instant::now()
    }
    /// Lets a moment pass, in which nothing is to be done.
    fn idle(&mut self) {
        std::thread::yield_now();
    }
}

/// How much one visit may take.
#[allow(missing_debug_implementations)] // It holds closures.
pub struct Quota<'a> {
    /// Samples to take whatever the time, where none of them is [long](membound_core::case::LONG_SAMPLE).
    pub least_samples: usize,
    /// Samples after which to stop.
    pub most_samples: usize,
    /// Time after which to stop.
    pub time: Duration,
    /// Whether the user wants to stop.
    pub interrupted: &'a (dyn Fn() -> bool + Sync),
}

impl Quota<'_> {
    /// Whether so many samples are enough, in a visit whose time ends then.
    pub(crate) fn is_met(&self, samples: usize, deadline: Instant) -> bool {
        samples >= self.most_samples || (samples >= self.least_samples && Instant::now() >= deadline)
    }
}

/// How a run is laid out in time.
#[allow(missing_debug_implementations)] // It holds closures.
pub struct Schedule<'a> {
    /// Seed of the order of visits.
    pub seed: u64,
    /// When the run started: visits are dated from it.
    pub started: Instant,
    /// When to stop, whatever is left.
    pub deadline: Instant,
    /// Samples of one visit.
    pub samples: usize,
    /// Rounds after which to stop, and visits of a case of the headline.
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

/// Times that a headline is visited in the whole of a run, apart in time, where there is room for it.
const PASSES: u32 = 10;
/// Passes after which memory is drawn anew: mapping and filling it takes longer than its samples.
const REDRAWN: u32 = 3;
/// Share of a run that its first touch of memory may come to by that: a host may back a gigabyte in a tenth of a second or in three.
const FIRST_TOUCH_SHARE: f64 = 0.1;
/// A run that may have no time for all of a first pass.
const SHORT: Duration = Duration::from_secs(20);
/// Share of a run that its headline may take beyond the first pass.
const HEADLINE_SHARE: f64 = 0.6;
/// A figure of the headline is sure when its interval is within this share on either side.
const SURE: f64 = 0.03;
/// Share of a run beside it for cases whose visit takes less than this share of the dearest one's: those in memory take up to a hundred
/// times as long as those in caches, and would leave these no more visits than there are passes.
const CHEAP_SHARE: f64 = 0.06;
const CHEAP: f64 = 0.1;
/// What a case of the headline waits at least from one visit to the next, as a share of the run: visits close together
/// meet the same state of the machine.
const APART: f64 = 0.02;
/// The same while the machine is in a state that it is rarely in, and the share of the run that the headline may then take.
const APART_WHILE_RARE: f64 = 0.005;
const HEADLINE_SHARE_WHILE_RARE: f64 = 0.7;
/// A visit is to the fast state if it takes no longer than the fastest by this factor.
const IN_STATE: f64 = 1.1;

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
    run_plan(&Plan::of(cases), executor, schedule, sink, progress)
}

/// The same, stage by stage; a pass over the headline comes first, and further ones come between other visits.
///
/// # Errors
/// Those of `sink`.
pub fn run_plan(
    plan: &Plan,
    executor: &mut dyn Executor,
    schedule: &Schedule<'_>,
    sink: &mut dyn FnMut(Measurement) -> io::Result<()>,
    progress: &mut dyn FnMut(Progress<'_>),
) -> io::Result<()> {
    let mut run = Run::new(executor, schedule, sink, progress);
    let mut headline = Headline::new(&plan.headline, &run);
    let mut stages: Vec<Vec<State>> =
        plan.stages.iter().map(|stage| stage.iter().map(|_| State::default()).collect()).collect();
    for round in 0..schedule.most_rounds {
        let is_open = |states: &[State]| states.iter().any(|state| !state.done);
        if run.is_over() || !stages.iter().any(|states| is_open(states)) {
            break;
        }
        if round > 0 || plan.headline.is_empty() {
            run.begin_round();
        }
        let mut is_any_visited = false;
        for (number, cases) in plan.stages.iter().enumerate() {
            let later: usize = stages[number + 1..].iter().flatten().filter(|state| !state.done).count();
            is_any_visited |= run.stage(cases, &mut stages[number], round, later, &mut headline)?;
        }
        // What is left of the time is too short for any of them.
        if !is_any_visited {
            break;
        }
    }
    headline.finish(&mut run)
}

/// What all visits of a run need.
struct Run<'a, 'b> {
    executor: &'a mut dyn Executor,
    schedule: &'a Schedule<'b>,
    sink: &'a mut dyn FnMut(Measurement) -> io::Result<()>,
    progress: &'a mut dyn FnMut(Progress<'_>),
    random: fastrand::Rng,
    visits: u64,
    pace: Pace,
    distances: Watch,
    filled: Filled,
}

impl<'a, 'b> Run<'a, 'b> {
    fn new(
        executor: &'a mut dyn Executor,
        schedule: &'a Schedule<'b>,
        sink: &'a mut dyn FnMut(Measurement) -> io::Result<()>,
        progress: &'a mut dyn FnMut(Progress<'_>),
    ) -> Self {
        let random = fastrand::Rng::with_seed(schedule.seed);
        let hz = executor.clock().hz.0;
        let (pace, distances, filled) = (Pace::default(), Watch::default(), Filled { hz, ..Filled::default() });
        Run { executor, schedule, sink, progress, random, visits: 0, pace, distances, filled }
    }

    fn now(&self) -> Instant {
        self.executor.now()
    }

    fn left(&self) -> Duration {
        self.schedule.deadline.saturating_duration_since(self.now())
    }

    fn is_over(&self) -> bool {
        self.left().is_zero() || (self.schedule.interrupted)()
    }

    fn begin_round(&mut self) {
        self.executor.begin_round();
        self.filled.begin_round();
    }

    /// Whether there is time to touch memory once more, as one round did so far.
    fn may_draw_anew(&self) -> bool {
        let total = self.schedule.deadline.saturating_duration_since(self.schedule.started);
        self.filled.touched_after_next_round() <= total.mul_f64(FIRST_TOUCH_SHARE)
    }

    /// Visits each open case of a stage once, and lets the headline in between. `later` cases share the time that is left.
    fn stage(
        &mut self,
        cases: &[Case],
        states: &mut [State],
        round: u32,
        later: usize,
        headline: &mut Headline<'_>,
    ) -> io::Result<bool> {
        let mut is_any_visited = false;
        let open: Vec<usize> = (0..cases.len()).filter(|&i| !states[i].done).collect();
        let order = order(open, cases, states, self.pace, self.left(), &mut self.random);
        for (position, &index) in order.iter().enumerate() {
            headline.take_turn(self)?;
            let fair = headline.others(self.left()) / (order.len() - position + later) as u32;
            let before = self.visits;
            self.visit(&cases[index], &mut states[index], round, fair)?;
            is_any_visited |= self.visits > before;
        }
        Ok(is_any_visited)
    }

    /// Visits a case, if that can end in time. Returns what it took.
    fn visit(&mut self, case: &Case, state: &mut State, round: u32, fair: Duration) -> io::Result<Duration> {
        let left = self.left();
        let new = self.filled.new_bytes(case);
        let cost = state.expected(case, self.pace) + self.filled.time(case, new);
        if (self.schedule.interrupted)() || left.is_zero() || left < cost.mul_f64(1.2) {
            state.done |= left.is_zero();
            return Ok(Duration::ZERO);
        }
        (self.progress)(Progress { case, round, visits: self.visits });
        let (measurement, cost) = visit(case, round, self.executor, self.schedule, [fair, left]);
        state.note(case, &measurement.outcome, cost, self.schedule);
        state.note_distance(self.distances.note(case, &measurement.outcome));
        if self.filled.note(case, &measurement.outcome, new, cost) {
            state.cost = Duration::ZERO;
        } else {
            self.pace.note(case, &measurement.outcome, cost);
        }
        self.visits += 1;
        (self.sink)(measurement)?;
        Ok(cost)
    }
}

/// The cases of the headline, and when they were visited.
struct Headline<'a> {
    cases: &'a [(Case, f64)],
    states: Vec<State>,
    last: Vec<Option<Instant>>,
    began: Instant,
    total: Duration,
    passes: u32,
    /// When the next pass is due, and what visits took so far; of that, those that only cheap cases had a share for.
    due: Instant,
    spent: Duration,
    spent_on_cheap: Duration,
    /// Threads of the last visit, where that met a state that is rare for them.
    rare: Option<usize>,
}

impl<'a> Headline<'a> {
    fn new(cases: &'a [(Case, f64)], run: &Run<'_, '_>) -> Self {
        let (began, total) = (run.now(), run.left());
        let states = cases.iter().map(|_| State::default()).collect();
        Headline {
            cases,
            states,
            last: vec![None; cases.len()],
            began,
            total,
            passes: 0,
            due: began,
            spent: Duration::ZERO,
            spent_on_cheap: Duration::ZERO,
            rare: None,
        }
    }

    /// What of the time that is left the other cases get.
    fn others(&self, left: Duration) -> Duration {
        if self.cases.is_empty() { left } else { left.mul_f64(1.0 - HEADLINE_SHARE) }
    }

    /// A pass, where one is due; else the least sure case, where it was not visited lately. A rare state is made use of.
    fn take_turn(&mut self, run: &mut Run<'_, '_>) -> io::Result<()> {
        if self.cases.is_empty() {
            return Ok(());
        }
        let now = run.now();
        if now >= self.due {
            return self.pass(run);
        }
        if self.spent - self.spent_on_cheap < self.share(HEADLINE_SHARE, now)
            && let Some(index) = self.least_sure(APART, |_| true, run)
        {
            self.visit(index, run)?;
        }
        while let Some(index) = self.next_cheap(run) {
            let spent = self.spent;
            let is_visited = self.visit(index, run)?;
            self.spent_on_cheap += self.spent - spent;
            if !is_visited {
                break;
            }
        }
        while let Some(index) = self.while_it_lasts(run) {
            if !self.visit(index, run)? {
                break;
            }
        }
        Ok(())
    }

    /// The least sure of the cheap cases, while these have a share left.
    fn next_cheap(&self, run: &Run<'_, '_>) -> Option<usize> {
        let has_room = self.spent_on_cheap < self.share(CHEAP_SHARE, run.now());
        if has_room { self.least_sure(APART, |index| self.is_cheap(index), run) } else { None }
    }

    /// What else is not sure and likely to meet the rare state of the last visit.
    fn while_it_lasts(&self, run: &Run<'_, '_>) -> Option<usize> {
        let threads = self.rare.filter(|_| self.spent < self.share(HEADLINE_SHARE_WHILE_RARE, run.now()))?;
        let is_meant = |index: usize| self.cases[index].0.threads() == threads;
        self.least_sure(APART_WHILE_RARE, is_meant, run)
    }

    fn is_cheap(&self, index: usize) -> bool {
        let dearest = self.states.iter().map(|state| state.cost).max().unwrap_or_default();
        let cost = self.states[index].cost;
        // Nothing is known after a visit that filled memory.
        !cost.is_zero() && cost < dearest.mul_f64(CHEAP)
    }

    /// This share of the time since the first pass.
    fn share(&self, share: f64, now: Instant) -> Duration {
        now.saturating_duration_since(self.began).mul_f64(share)
    }

    /// What is left of the time goes to what is not sure yet.
    fn finish(&mut self, run: &mut Run<'_, '_>) -> io::Result<()> {
        // What takes longer than there is time left.
        let mut too_dear = vec![false; self.cases.len()];
        while !run.is_over() && self.unsure(run).any(|(index, _)| !too_dear[index]) {
            let Some(index) = self.least_sure(APART, |index| !too_dear[index], run) else {
                // All were visited just now.
                run.executor.idle();
                continue;
            };
            too_dear[index] = !self.visit(index, run)?;
        }
        Ok(())
    }

    fn pass(&mut self, run: &mut Run<'_, '_>) -> io::Result<()> {
        if self.passes == 0 {
            return self.first_pass(run);
        }
        let mut order: Vec<usize> = (0..self.cases.len()).collect();
        run.random.shuffle(&mut order);
        let (began, spent) = (run.now(), self.spent);
        if self.passes.is_multiple_of(REDRAWN) && run.may_draw_anew() {
            run.begin_round();
        }
        order.into_iter().try_for_each(|index| self.visit(index, run).map(drop))?;
        self.passes += 1;
        let cost = self.spent - spent;
        self.due = began + (self.total / PASSES).max(cost.div_f64(HEADLINE_SHARE));
        Ok(())
    }

    /// It fills memory that later visits find filled, so what it takes says nothing of a pass, and is not the headline's to pay:
    /// a host may take seconds to back a gigabyte. Where there is time for all of it, large cases of several threads come first, since
    /// those fill at once; in a short run those of one thread, which do not wait where others hold a CPU.
    fn first_pass(&mut self, run: &mut Run<'_, '_>) -> io::Result<()> {
        run.begin_round();
        let mut order: Vec<usize> = (0..self.cases.len()).collect();
        if self.total > SHORT {
            order.order_by_key(|&index| {
                let case = &self.cases[index].0;
                let is_large = case.share().0 > Filled::LARGE;
                (is_large, Reverse(if is_large { case.threads() } else { 0 }))
            });
        }
        order.into_iter().try_for_each(|index| self.visit(index, run).map(drop))?;
        (self.passes, self.began, self.spent) = (1, run.now(), Duration::ZERO);
        self.total = run.left();
        self.due = self.began + self.total / PASSES;
        Ok(())
    }

    /// Visits are short: what a state of the machine does to one, it does to all samples of it. Returns whether there was
    /// room for it.
    fn visit(&mut self, index: usize, run: &mut Run<'_, '_>) -> io::Result<bool> {
        if self.states[index].batches.len() >= run.schedule.most_rounds as usize {
            return Ok(false);
        }
        let before = run.visits;
        let fair = self.total.mul_f64(HEADLINE_SHARE / 2.0) / (PASSES * self.cases.len() as u32);
        let (case, state) = (&self.cases[index].0, &mut self.states[index]);
        let cost = run.visit(case, state, state.batches.len() as u32, fair)?;
        let is_rare = match (state.distance, run.distances.rare()) {
            (Some(distance), Some(rare)) => distance == rare,
            _ => state.is_rare(),
        };
        self.rare = is_rare.then_some(case.threads());
        self.spent += cost;
        self.last[index] = Some(run.now());
        Ok(run.visits > before)
    }

    /// Cases that are not sure, each with its uncertainty by its weight. One whose visits agree is as unsure as one with hardly
    /// any while it has not met CPUs at the distance that is rare.
    fn unsure(&self, run: &Run<'_, '_>) -> impl Iterator<Item = (usize, f64)> + '_ {
        let (rare, most) = (run.distances.rare(), run.schedule.most_rounds as usize);
        let is_open = move |state: &State| !state.is_impossible && state.batches.len() < most;
        let cases = self.states.iter().zip(self.cases).enumerate().filter(move |(_, (state, _))| is_open(state));
        let lacks = move |state: &State| rare.is_some_and(|rare| state.lacks(rare));
        let unsure = cases.map(move |(index, (state, (_, weight)))| {
            (index, if lacks(state) { 1.0 } else { uncertainty(&state.batches) }, *weight)
        });
        unsure.filter(|(_, unsure, _)| *unsure > SURE).map(|(index, unsure, weight)| (index, unsure * weight))
    }

    /// Of those that are meant and were not visited for such a share of the run.
    fn least_sure(&self, apart: f64, is_meant: impl Fn(usize) -> bool, run: &Run<'_, '_>) -> Option<usize> {
        let (apart, now) = (self.total.mul_f64(apart), run.now());
        let is_ready = |(index, _): &(usize, f64)| {
            self.last[*index].is_none_or(|last| now.saturating_duration_since(last) >= apart) && is_meant(*index)
        };
        self.unsure(run).filter(is_ready).max_by(|a, b| a.1.total_cmp(&b.1)).map(|(index, _)| index)
    }
}

/// The order of a round: random, but those of a [group](Case::group) are visited one after the other, and those
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
    let first = |(position, &index): (usize, &usize)| {
        cases[index].group().map_or(position, |group| *groups.entry(group).or_insert(position))
    };
    let firsts: Vec<usize> = order.iter().enumerate().map(first).collect();
    let mut is_dear = vec![false; order.len()];
    for (&first, &index) in firsts.iter().zip(&order) {
        is_dear[first] |= states[index].expected(&cases[index], pace) > fair;
    }
    let place = |&first: &usize| {
        let index = order[first];
        let is_planned = is_dear[first] && states[index].batches.is_empty();
        (is_dear[first], if is_planned { index } else { first })
    };
    let places: Vec<(bool, usize)> = firsts.iter().map(place).collect();
    let mut placed: Vec<_> = places.into_iter().zip(order).collect();
    placed.order_by_key(|(place, _)| *place);
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
        let left = schedule.deadline.saturating_duration_since(executor.now());
        let Some(asked) = case.filter(|_| !left.is_zero() && !(schedule.interrupted)()) else { break };
        progress(Progress { case: &asked, round, visits: u64::from(round) });
        let (measurement, _) = visit(&asked, round, executor, schedule, [left, left]);
        case = next(Some(&measurement)).filter(|_| measurement.outcome.measured().is_some());
        sink(measurement)?;
    }
    Ok(())
}

/// Visits a case, for its fair share of the time that is left. Says how long that took, too.
fn visit(
    case: &Case,
    round: u32,
    executor: &mut dyn Executor,
    schedule: &Schedule<'_>,
    [fair, left]: [Duration; 2],
) -> (Measurement, Duration) {
    let started = executor.now();
    let outcome = executor.visit(case, &quota(case, schedule, fair, left));
    let elapsed = executor.now().saturating_duration_since(started);
    let started_s = started.saturating_duration_since(schedule.started).as_secs_f64();
    let measurement = Measurement::new(case.clone(), round, outcome);
    (Measurement { started_s, elapsed_s: elapsed.as_secs_f64(), ..measurement }, elapsed)
}

/// Memory that was filled since it was drawn, and how fast that went.
#[derive(Default)]
struct Filled {
    hz: f64,
    /// Bytes by memory, CPU and part: what kernels store to, what they only load, what chases follow.
    bytes: HashMap<(MemorySpec, u32, usize), u64>,
    /// Bytes that a thread filled in a second, when last a large part was new; nothing yet.
    rate: Option<f64>,
    /// Rounds so far, and what touching their memory first took.
    rounds: u32,
    touched: Duration,
}

impl Filled {
    /// Bytes of a thread beyond which filling takes longer than samples do, and from which on it tells of the rate.
    const LARGE: u64 = 64 << 20;

    /// All memory is given back.
    fn begin_round(&mut self) {
        self.bytes.clear();
        self.rounds += 1;
    }

    /// What first touch will have taken after a round more, if that takes what rounds took on average.
    fn touched_after_next_round(&self) -> Duration {
        self.touched + self.touched / self.rounds.max(1)
    }

    /// What each thread of a case needs of the parts.
    fn parts(case: &Case) -> [u64; 3] {
        let share = case.share().0;
        match (&case.work, case.variant().and_then(Variant::row)) {
            // Pages of their own, each time.
            (Work::Page(_), _) => [0; 3],
            _ if case.protocol == Protocol::FirstUse => [0; 3],
            (Work::Chase(_), _) => [0, 0, share],
            (_, Some(kernel)) => {
                let streams = kernel.formula().streams;
                let stored = streams.iter().filter(|stream| stream.stored).count() as u64;
                let each = share / streams.len().max(1) as u64;
                [stored * each, share - stored * each, 0]
            }
            _ => [share, 0, 0],
        }
    }

    /// Bytes that the thread with most to fill must fill.
    fn new_bytes(&self, case: &Case) -> u64 {
        let missing = |cpu: u32| {
            let parts = Filled::parts(case).into_iter().enumerate();
            parts.map(|(part, needed)| needed.saturating_sub(self.of(case, cpu, part))).sum()
        };
        case.cpus.iter().map(|&cpu| missing(cpu)).max().unwrap_or(0)
    }

    fn of(&self, case: &Case, cpu: u32, part: usize) -> u64 {
        self.bytes.get(&(case.memory, cpu, part)).copied().unwrap_or(0)
    }

    /// What filling so much for each thread will take.
    fn time(&self, case: &Case, new: u64) -> Duration {
        let share = case.share().0.max(1);
        match self.rate {
            Some(rate) if case.moves_memory() => Duration::from_secs_f64(new as f64 / rate),
            _ => case.filling_time().mul_f64(new as f64 / share as f64),
        }
    }

    /// Takes a visit in that had so much to fill. Returns whether that was most of what it took.
    fn note(&mut self, case: &Case, outcome: &Outcome, new: u64, cost: Duration) -> bool {
        let Some(visit) = outcome.measured() else { return false };
        for &cpu in &case.cpus {
            for (part, needed) in Filled::parts(case).into_iter().enumerate() {
                let filled = self.bytes.entry((case.memory, cpu, part)).or_default();
                *filled = needed.max(*filled);
            }
        }
        if let Some(touch) = visit.samples.first_touch {
            self.touched += Duration::from_secs_f64(touch.ticks as f64 / self.hz);
        }
        let sampled = (visit.samples.warm_up_ticks + visit.samples.sampling_ticks) as f64 / self.hz;
        let filling = cost.as_secs_f64() - sampled;
        if new >= Filled::LARGE && filling > 0.0 {
            self.rate = Some(new as f64 / filling);
        }
        new >= Filled::LARGE && filling > 0.5 * cost.as_secs_f64()
    }
}

/// How much longer than planned visits take on this machine: the most that two long visits did, since one may have been stopped. Some
/// can only be known by that: pages that a host backs anew, memory slower than most. The greatest, and the second.
#[derive(Clone, Copy, Default)]
struct Pace([f64; 2]);

impl Pace {
    /// Shorter visits say nothing: what they take is their samples.
    const LONG: Duration = Duration::from_millis(50);

    fn note(&mut self, case: &Case, outcome: &Outcome, cost: Duration) {
        if case.least_time() > Pace::LONG && outcome.measured().is_some() {
            let [most, second] = self.0;
            let own = cost.as_secs_f64() / case.least_time().as_secs_f64();
            self.0 = [most.max(own), second.max(own.min(most))];
        }
    }

    fn expected(self, case: &Case) -> Duration {
        case.least_time().mul_f64(self.0[1].max(1.0))
    }
}

#[derive(Default)]
struct State {
    done: bool,
    /// The machine can't.
    is_impossible: bool,
    cost: Duration,
    batches: Vec<Vec<f64>>,
    /// How far apart the CPUs of the last visit were, and visits at either distance.
    distance: Option<Distance>,
    at: [usize; 2],
    /// Whether its visits tell, and those that met CPUs at both distances.
    tells: bool,
    mixed: usize,
}

impl State {
    /// What the next visit will take: as long as the last one, or what such a case should take here.
    fn expected(&self, case: &Case, pace: Pace) -> Duration {
        if self.cost.is_zero() { pace.expected(case) } else { self.cost }
    }

    fn note_distance(&mut self, met: Met) {
        self.distance = None;
        match met {
            Met::Nothing => {}
            Met::Unknown => self.tells = true,
            Met::Mixed => self.mixed += 1,
            Met::At(distance) => {
                (self.tells, self.distance) = (true, Some(distance));
                self.at[distance as usize] += 1;
            }
        }
    }

    /// Whether it has met CPUs at this distance too seldom, and may do so.
    fn lacks(&self, rare: Distance) -> bool {
        self.tells && self.at[rare as usize] < VISITS_MIN && self.mixed < VISITS_MIN
    }

    /// Whether the last visit met the case's fast state, and few others did.
    fn is_rare(&self) -> bool {
        let visits: Vec<f64> = self.batches.iter().filter_map(|batch| median(batch.iter().copied())).collect();
        let least = visits.iter().copied().fold(f64::INFINITY, f64::min);
        let is_fast = |visit: &f64| *visit <= least * IN_STATE;
        let fast = visits.iter().filter(|visit| is_fast(visit)).count();
        visits.last().is_some_and(is_fast) && (fast as f64) < RARE * visits.len() as f64
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
            _ => (self.done, self.is_impossible) = (true, true),
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use membound_core::case::{USUAL_MEMORY, steady};
    use membound_core::kernel::chase::{Chase, Order};
    use membound_core::kernel::{StoreKind, Width};
    use membound_core::machine::devices::{Api, DeviceName};
    use membound_core::record::{FirstTouch, Measured, Sample, Samples};
    use membound_core::units::{Bytes, Hertz};
    use membound_core::work::device::{Action, Buffer, DeviceWork};

    /// A machine that does all cases alike, but of 3 KiB takes another time at each visit.
    struct Machine {
        visits: u64,
        began: Instant,
        /// What has passed since, and what a visit takes.
        passed: Duration,
        visit: Duration,
    }

    impl Machine {
        fn new(visit: Duration) -> Self {
            Machine { visits: 0, began: Instant::now(), passed: Duration::ZERO, visit }
        }
    }

    /// What a visit takes, where nothing else is said.
    const VISIT: Duration = Duration::from_micros(20);

    impl Executor for Machine {
        fn clock(&self) -> Clock {
            Clock { name: "none".into(), hz: Hertz(1e9), overhead_ticks: 0 }
        }

        fn expect(&mut self, _cases: &[Case]) {}

        fn visit(&mut self, case: &Case, _quota: &Quota<'_>) -> Outcome {
            (self.visits, self.passed) = (self.visits + 1, self.passed + self.visit);
            let is_unsteady = case.working_set == Bytes::kib(3);
            let ticks = if is_unsteady { 1000 + 97 * (self.visits * self.visits % 19) } else { 1000 };
            let samples = Samples::from_iter([Sample { ticks, ..Sample::default() }]);
            Measured { repetitions: 1, core_clock_links: 1, samples, ..Measured::default() }.into()
        }

        fn now(&self) -> Instant {
            self.began + self.passed
        }

        fn idle(&mut self) {
            self.passed += VISIT;
        }
    }

    fn case(kib: u64) -> Case {
        steady("load", Width::Scalar, StoreKind::Regular, USUAL_MEMORY, vec![0], Bytes::kib(kib))
    }

    /// A visit settles what is no headline.
    fn schedule(started: Instant, time: Duration) -> Schedule<'static> {
        Schedule {
            seed: 3,
            started,
            deadline: started + time,
            samples: 1,
            most_rounds: ROUNDS_MOST,
            settled: &|_| true,
            interrupted: &|| false,
        }
    }

    /// Working sets in the order of visits, in KiB.
    fn visited(plan: &Plan, time: Duration) -> Vec<u64> {
        visits_of(plan, &mut Machine::new(VISIT), time)
    }

    fn visits_of(plan: &Plan, machine: &mut dyn Executor, time: Duration) -> Vec<u64> {
        let mut found = Vec::new();
        let schedule = schedule(machine.now(), time);
        let mut sink = |visit: Measurement| {
            found.push(visit.case.working_set.0 >> 10);
            Ok(())
        };
        run_plan(plan, machine, &schedule, &mut sink, &mut |_| {}).unwrap();
        found
    }

    #[test]
    fn the_headline_comes_first_and_the_least_sure_case_most_often() {
        let headline = (1..=4).map(|kib| (case(kib), 1.0)).collect();
        let plan = Plan::new(headline, vec![(3..=9).map(case).collect(), (8..=12).map(case).collect()]);
        assert_eq!(plan.cases().len(), 12, "each once");
        let found = visited(&plan, Duration::from_millis(300));
        assert_eq!(found[..4], [1, 2, 3, 4]);
        let visits = |kib: u64| found.iter().filter(|visited| **visited == kib).count();
        let first = |kib: u64| found.iter().position(|visited| *visited == kib).unwrap();
        assert!((5..=12).all(|kib| visits(kib) == 1), "{found:?}");
        assert!((5..=9).map(first).max() < (10..=12).map(first).min(), "stage by stage: {found:?}");
        assert!(visits(3) > visits(1), "{found:?}");
    }

    #[test]
    fn rounds_end_a_run_before_its_time_does() {
        let plan = Plan::new((1..=2).map(|kib| (case(kib), 1.0)).collect(), vec![(2..=4).map(case).collect()]);
        let (mut machine, mut found) = (Machine::new(VISIT), Vec::new());
        let (started, time) = (machine.now(), Duration::from_secs(60));
        let schedule = Schedule { most_rounds: 2, settled: &|_| false, ..schedule(started, time) };
        let mut sink = |visit: Measurement| {
            found.push(visit.case.working_set.0 >> 10);
            Ok(())
        };
        run_plan(&plan, &mut machine, &schedule, &mut sink, &mut |_| {}).unwrap();
        found.sort_unstable();
        assert_eq!(found, [1, 1, 2, 2, 3, 3, 4, 4]);
        assert!(machine.now() < started + time / 2);
    }

    /// However little time there is, and whatever else of it is cheap.
    #[test]
    fn what_is_held_against_each_other_is_visited_together() {
        let device = DeviceName { api: Api::OpenCl, number: 0 };
        let of = |action, cpus: &[u32], mib: u64| Case {
            work: Work::Device(DeviceWork::new(device, Buffer::Plain, action)),
            cpus: cpus.to_vec(),
            ..case(mib << 10)
        };
        let held = [
            of(Action::HostTriad, &[0], 300),
            of(Action::HostTriadBesideCopy, &[0, 1], 300),
            of(Action::CopyBesideHostTriad, &[0, 1], 1),
        ];
        let cases: Vec<Case> = (1..=20).map(case).chain(held).collect();
        let (states, open) = (cases.iter().map(|_| State::default()).collect::<Vec<_>>(), (0..cases.len()).collect());
        let (left, mut random) = (Duration::from_millis(500), fastrand::Rng::with_seed(7));
        let order = order(open, &cases, &states, Pace::default(), left, &mut random);
        assert!(
            order[..20].iter().all(|index| *index < 20) && order[20..].iter().all(|index| *index >= 20),
            "{order:?}"
        );
    }

    /// A visit that was stopped for seconds says nothing of the next; two slow ones are a slow machine.
    #[test]
    fn one_slow_visit_makes_no_slow_machine() {
        let large = steady("load", Width::Scalar, StoreKind::Regular, USUAL_MEMORY, vec![0], Bytes::gib(1));
        let quota = Quota { least_samples: 1, most_samples: 1, time: Duration::ZERO, interrupted: &|| false };
        let outcome = Machine::new(VISIT).visit(&case(1), &quota);
        let (planned, mut pace) = (large.least_time(), Pace::default());
        pace.note(&large, &outcome, 60 * planned);
        assert_eq!(pace.expected(&large), planned);
        pace.note(&large, &outcome, 3 * planned);
        let expected = pace.expected(&large).as_secs_f64() / planned.as_secs_f64();
        assert!((expected - 3.0).abs() < 1e-6, "{expected}");
    }

    #[test]
    fn memory_is_new_once_for_each_cpu_and_part() {
        let of = |name, cpus: &[u32], mib: u64| {
            steady(name, Width::Scalar, StoreKind::Regular, USUAL_MEMORY, cpus.to_vec(), Bytes::mib(mib))
        };
        let mut filled = Filled { hz: 1e9, ..Filled::default() };
        let quota = Quota { least_samples: 1, most_samples: 1, time: Duration::ZERO, interrupted: &|| false };
        let outcome = Machine::new(VISIT).visit(&case(1), &quota);
        let mib = |bytes: u64| bytes >> 20;
        let both = of("load", &[0, 1], 400);
        assert_eq!(mib(filled.new_bytes(&both)), 200, "each thread");
        assert!(filled.note(&both, &outcome, 200 << 20, Duration::from_secs(2)), "all of it was filling");
        assert_eq!(filled.rate, Some(f64::from(100 << 20)));
        assert_eq!(mib(filled.new_bytes(&of("load", &[1], 200))), 0, "by the thread on CPU 1");
        assert_eq!(mib(filled.new_bytes(&of("load", &[1], 300))), 100);
        assert_eq!(mib(filled.new_bytes(&of("copy", &[0], 200))), 100, "where it stores");
        assert_eq!(filled.time(&of("copy", &[0], 200), 100 << 20), Duration::from_secs(1));
        assert!(!filled.note(&of("copy", &[0], 200), &outcome, 100, Duration::from_secs(2)), "nothing to speak of");
        assert_eq!(mib(filled.new_bytes(&of("copy", &[0], 200))), 0);
        let chase = Case { work: Work::Chase(Chase::of(Order::Random)), ..of("load", &[0], 200) };
        assert_eq!(mib(filled.new_bytes(&chase)), 200, "memory of its own");
        assert_eq!(filled.new_bytes(&Case { protocol: Protocol::FirstUse, ..chase }), 0, "new each time");
    }

    #[test]
    fn memory_is_filled_by_several_threads_at_once() {
        let large = |threads: u32, mib: u64| Case { cpus: (0..threads).collect(), ..case(mib << 10) };
        let headline = [large(1, 1), large(2, 2), large(1, 200), large(2, 400)];
        let plan = Plan::new(headline.map(|case| (case, 1.0)).into(), vec![vec![case(9)]]);
        let found = visited(&plan, Duration::from_secs(30));
        assert_eq!(found.iter().take(4).map(|kib| kib >> 10).collect::<Vec<_>>(), [1, 2, 400, 200]);
    }

    /// A machine that takes 30 ms for a visit in memory, and never the same time for one in a cache.
    struct Dear(Machine);

    impl Executor for Dear {
        fn clock(&self) -> Clock {
            self.0.clock()
        }

        fn expect(&mut self, _cases: &[Case]) {}

        fn visit(&mut self, case: &Case, quota: &Quota<'_>) -> Outcome {
            let is_dear = case.working_set > Bytes::mib(1);
            self.0.visit = if is_dear { Duration::from_millis(30) } else { VISIT };
            let mut outcome = self.0.visit(case, quota);
            if let (Outcome::Measured(visit), false) = (&mut outcome, is_dear) {
                visit.samples.ticks = vec![1000 + self.0.visits * 618 % 1000];
            }
            outcome
        }

        fn now(&self) -> Instant {
            self.0.now()
        }

        fn idle(&mut self) {
            self.0.idle();
        }
    }

    #[test]
    fn cheap_cases_do_not_wait_for_dear_ones() {
        const CHEAP: u64 = 2;
        let headline = (1..=CHEAP).chain((2..10).map(|mib| mib << 10)).map(|kib| (case(kib), 1.0)).collect();
        let others = (20..400).map(|mib| case(mib << 10)).collect();
        let plan = Plan::new(headline, vec![others]);
        let found = visits_of(&plan, &mut Dear(Machine::new(VISIT)), Duration::from_secs(4));
        let visits = |kib: u64| found.iter().filter(|visited| **visited == kib).count();
        let dearest = (2..10).map(|mib| visits(mib << 10)).max().unwrap();
        assert!((1..=CHEAP).all(|kib| visits(kib) > 2 * dearest), "{} and {}, {dearest}", visits(1), visits(2));
    }

    /// A machine on which even a look at the clock takes 100 us.
    struct Slow(Machine, Cell<u32>);

    impl Executor for Slow {
        fn clock(&self) -> Clock {
            self.0.clock()
        }

        fn expect(&mut self, _cases: &[Case]) {}

        fn visit(&mut self, case: &Case, quota: &Quota<'_>) -> Outcome {
            let is_dear = case.working_set > Bytes::mib(1);
            self.0.visit = Duration::from_millis(if is_dear { 100 } else { 1 });
            self.0.visit(case, quota)
        }

        fn now(&self) -> Instant {
            self.1.set(self.1.get() + 1);
            assert!(self.1.get() < 100_000, "it never ends");
            self.0.now() + self.1.get() * Duration::from_micros(100)
        }
    }

    /// What is left after the first pass, 100 us to 5 ms, has room for some visits or none, and cheap cases want more.
    #[test]
    fn a_run_ends_that_has_no_room_for_what_it_wants() {
        let headline = [1, 2, 3, 2 << 10].map(|kib| (case(kib), 1.0)).into();
        let plan = Plan::new(headline, vec![(4..40).map(case).collect()]);
        for us in (100..5000).step_by(100) {
            let mut machine = Slow(Machine::new(VISIT), Cell::new(0));
            let found = visits_of(&plan, &mut machine, Duration::from_micros(103_000 + 4000 + us));
            assert!(found.len() >= 4, "{found:?}");
        }
    }

    /// A host that takes this long to back the memory of a round.
    struct Backed {
        machine: Machine,
        takes: Duration,
        rounds: u32,
        is_new: bool,
    }

    impl Executor for Backed {
        fn clock(&self) -> Clock {
            self.machine.clock()
        }

        fn expect(&mut self, _cases: &[Case]) {}

        fn begin_round(&mut self) {
            (self.rounds, self.is_new) = (self.rounds + 1, true);
        }

        fn visit(&mut self, case: &Case, quota: &Quota<'_>) -> Outcome {
            let mut outcome = self.machine.visit(case, quota);
            if let (Outcome::Measured(visit), true) = (&mut outcome, std::mem::take(&mut self.is_new)) {
                let ticks = self.takes.as_nanos() as u64;
                visit.samples.first_touch = Some(FirstTouch { bytes: 1 << 30, ticks });
            }
            outcome
        }

        fn now(&self) -> Instant {
            self.machine.now()
        }
    }

    #[test]
    fn memory_is_drawn_anew_while_first_touch_is_a_small_share() {
        const TOTAL: Duration = Duration::from_secs(60);
        let plan = Plan::new((1..=3).map(|kib| (case(kib), 1.0)).collect(), vec![(4..=9).map(case).collect()]);
        let rounds = |share: f64| {
            let mut host =
                Backed { machine: Machine::new(VISIT), takes: TOTAL.mul_f64(share), rounds: 0, is_new: false };
            let schedule = schedule(host.now(), TOTAL);
            let (mut sink, mut progress) = (|_| Ok(()), |_: Progress<'_>| {});
            let mut run = Run::new(&mut host, &schedule, &mut sink, &mut progress);
            let mut headline = Headline::new(&plan.headline, &run);
            for _ in 0..10 {
                headline.pass(&mut run).unwrap();
            }
            host.rounds
        };
        assert_eq!(rounds(0.0), 4, "the first pass, the fourth, the seventh, the tenth");
        assert_eq!(rounds(0.04), 2, "two take 8 % of the run, three would take 12 %");
        assert_eq!(rounds(0.06), 1, "two would take 12 %");
    }

    /// A host that has two CPUs far apart at some visits, which changes no case's time.
    struct Host {
        machine: Machine,
        is_far: fn(u64) -> bool,
    }

    impl Executor for Host {
        fn clock(&self) -> Clock {
            self.machine.clock()
        }

        fn expect(&mut self, _cases: &[Case]) {}

        fn visit(&mut self, case: &Case, quota: &Quota<'_>) -> Outcome {
            let mut outcome = self.machine.visit(case, quota);
            let Outcome::Measured(measured) = &mut outcome else { panic!() };
            let ticks = if (self.is_far)(self.machine.visits) { 150 } else { 40 };
            measured.samples.probes.get_or_insert_default().push_hand_overs([ticks].into_iter());
            outcome
        }

        fn now(&self) -> Instant {
            self.machine.now()
        }

        fn idle(&mut self) {
            self.machine.idle();
        }
    }

    /// Visits to six cases of a headline, by working set in KiB, at which the host had their CPUs far apart; beside others of two
    /// threads.
    fn far_visits(others: u64, seconds: u64, is_far: fn(u64) -> bool) -> HashMap<u64, usize> {
        let two = |kib: u64| Case { cpus: vec![0, 1], ..case(kib) };
        let plan = Plan::new((1..=6).map(|kib| (two(kib), 1.0)).collect(), vec![(7..7 + others).map(two).collect()]);
        let mut host = Host { machine: Machine::new(Duration::from_millis(1)), is_far };
        let schedule = schedule(host.now(), Duration::from_secs(seconds));
        let mut far = HashMap::new();
        let mut sink = |visit: Measurement| {
            let Outcome::Measured(measured) = visit.outcome else { panic!() };
            let is_far = measured.samples.probes.unwrap().hand_over_ticks[0][0] == 150;
            *far.entry(visit.case.working_set.0 >> 10).or_insert(0) += usize::from(is_far);
            Ok(())
        };
        run_plan(&plan, &mut host, &schedule, &mut sink, &mut |_| {}).unwrap();
        far.retain(|kib, _| *kib <= 6);
        far
    }

    #[test]
    fn each_case_of_several_threads_meets_cpus_at_the_distance_that_is_rare() {
        // Each agrees with itself all the time, and would be sure after its passes.
        let far = far_visits(3, 1, |visit| visit / 8 % 5 == 1);
        assert!(far.len() == 6 && far.values().all(|visits| *visits >= VISITS_MIN), "{far:?}");
    }

    /// Late in the run: nobody knew of two distances before.
    #[test]
    fn a_spell_that_comes_once_is_made_use_of() {
        let far = far_visits(1300, 4, |visit| (1200..1300).contains(&visit));
        assert!(far.len() == 6 && far.values().all(|visits| *visits >= VISITS_MIN), "{far:?}");
    }

    #[test]
    fn a_rare_state_is_the_fast_one_of_few_visits() {
        let is_rare = |visits: &[f64]| {
            State { batches: visits.iter().map(|visit| vec![*visit; 3]).collect(), ..State::default() }.is_rare()
        };
        assert!(is_rare(&[200.0, 190.0, 200.0, 210.0, 100.0]));
        assert!(is_rare(&[100.0, 190.0, 200.0, 210.0, 200.0, 105.0]));
        assert!(!is_rare(&[200.0, 190.0, 200.0, 100.0, 200.0]), "it is over");
        assert!(!is_rare(&[200.0, 100.0, 105.0]), "most visits are in it");
        assert!(!is_rare(&[100.0]) && !is_rare(&[]));
    }
}
