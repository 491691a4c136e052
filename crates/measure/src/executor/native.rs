//! Measures on this machine: kernels over their streams; what is done to pages is in `pages.rs`, how threads start
//! together and are timed in `team.rs`.

#![allow(unsafe_code)]

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::answers::timed_scalar;
use crate::arena::{Arenas, Arrays, Layout};
use crate::bench::{Codes, Probe, Tools, check_whole_accesses, compile, measured, volume};
use crate::chaser::Chaser;
use crate::code::{Call, Executable};
use crate::controllers::Controllers;
use crate::crew::{Line, Part};
use crate::executor::with_room;
use crate::experiments::addrmap::Prober;
use crate::experiments::c2c::Passer;
use crate::experiments::loaded::Loader;
use crate::experiments::offsets::Scanner;
use crate::experiments::page_cache::Surroundings;
use crate::experiments::rounding::Adder;
use crate::experiments::{c2c as handover, energy as idle, flops, latency, loaded, offsets as scan, pages, streams};
use crate::memory::places::Places;
use crate::memory::touch::FirstTouch;
use crate::meters::Meters;
use crate::no_visit::NoVisit;
use crate::os::clock::Ticker;
use crate::schedule::{Executor, Quota};
use crate::team::{Task, Team};
use crate::{controllers, crew, meters as energy, team};
use membound_core::case::{Case, Protocol, Work};
use membound_core::kernel::Variant;
use membound_core::kernel::catalog::Kernel;
use membound_core::kernel::isa::Isa;
use membound_core::memory::Obtained;
use membound_core::record::{Clock, Measured, Outcome, Samples, Volume};
use membound_core::work::common::Common;
use membound_core::work::page_cache::{PageCache, Workers};

/// The clock's calibration: its error is that of two readings (below 100 ns) over this span.
const CALIBRATION: Duration = Duration::from_millis(20);
/// Ticks that a sample lasts at least, so that reading the clock is below 0.1 % of it: 40 us at the 25 MHz of many Arm
/// processors.
const TICKS_LEAST: f64 = 1000.0;

/// Time for samples beside page cache, however long filling it took.
const LEAST_BESIDE_CACHE: Duration = Duration::from_millis(200);

/// The executor that measures.
#[derive(Debug)]
pub struct Native {
    ticker: Ticker,
    clock: Clock,
    isa: Isa,
    probe: Probe,
    codes: Codes<Variant>,
    arenas: Arenas,
    /// Check every element, not windows.
    verify: bool,
    /// What lies between two samples of a lone thread.
    apart: Duration,
    scanner: Scanner,
    passer: Passer,
    loader: Loader,
    prober: Prober,
    chaser: Chaser,
    adder: Adder,
    /// Meters of energy, looked for when they are first asked for; or why there are none.
    meters: Option<Result<Mutex<Meters>, String>>,
    /// Counters of the memory controllers, looked for when a case first reaches memory; nothing where there are none.
    controllers: Option<Option<Mutex<Controllers>>>,
}

impl Native {
    /// Calibrates the clock and prepares to run `cases`.
    pub fn new(cases: &[Case], places: Places, verify: bool) -> Result<Self, NoVisit> {
        let ticker = Ticker::detect();
        let mut native = Native {
            ticker,
            clock: ticker.calibrate(CALIBRATION),
            isa: crate::asm::detect(),
            probe: Probe::new(ticker)?,
            codes: Codes::default(),
            arenas: Arenas::new(places, |spec| spec),
            verify,
            apart: Duration::ZERO,
            scanner: Scanner::default(),
            passer: Passer::default(),
            loader: Loader::default(),
            prober: Prober::default(),
            chaser: Chaser::default(),
            adder: Adder::default(),
            meters: None,
            controllers: None,
        };
        native.expect(cases);
        Ok(native)
    }

    /// From now on a lone thread sleeps so long between two samples of a kernel or a chase.
    pub fn pause(&mut self, apart: Duration) {
        self.apart = apart;
    }

    /// The clock that samples are read from.
    pub fn ticker(&self) -> Ticker {
        self.ticker
    }
}

impl Executor for Native {
    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    fn expect(&mut self, cases: &[Case]) {
        self.arenas.expect(cases);
        self.chaser.expect(cases);
    }

    fn begin_round(&mut self) {
        self.arenas.give_back();
        self.loader.give_back();
        self.chaser.give_back();
        self.adder.give_back();
    }

    fn visit(&mut self, case: &Case, quota: &Quota<'_>) -> Outcome {
        with_room(self, |native| native.try_visit(case, quota))
    }
}

impl Native {
    /// A visit, as far as memory allows that is not kept for other cases.
    pub(crate) fn try_visit(&mut self, case: &Case, quota: &Quota<'_>) -> Result<Measured, NoVisit> {
        check_registers(self.isa, crate::asm::detect())?;
        if case.protocol == Protocol::Energy {
            self.find_meters()?;
        }
        let tools = |sample: Duration| Tools {
            ticker: self.ticker,
            isa: self.isa,
            probe: &self.probe,
            places: self.arenas.places(),
            hz: self.clock.hz,
            sample: sample.max(Duration::from_secs_f64(TICKS_LEAST / self.clock.hz.0)),
        };
        // A team decides by itself how long its samples are.
        let of_team = tools(team::SAMPLE);
        let team = || Team::new(case, quota, &of_team).with_pauses(self.apart);
        if !matches!(case.work, Work::Chase(_) | Work::Loaded(_)) {
            self.chaser.interrupt();
        }
        match &case.work {
            Work::Kernel(variant) => {
                self.run_kernel(case, variant, quota, &|_, _| Ok(()), &mut together).map(|(measured, _)| measured)
            }
            Work::PageCache(work) => self.run_beside_cache(case, work, quota),
            Work::Page(work) => pages::measure(case, *work, team(), &of_team),
            Work::Chase(chase) => latency::visit(&mut self.chaser, case, *chase, team(), of_team.places),
            Work::Flops(flops) => flops::measure(case, *flops, team(), self.isa),
            Work::Streams(streams) => streams::measure(case, *streams, team(), of_team.places),
            Work::Common(work) => self.run_in_block(case, work, quota),
            Work::Plain(work) => crate::experiments::plain::measure(case, *work, team(), of_team.places),
            Work::Idle => idle::measure(metered(team(), case, &self.meters)),
            Work::Scan(scan) => self.scanner.visit(case, *scan, quota, &tools(scan::SAMPLE)),
            Work::Conflict(batch) => self.prober.visit(case, batch, quota, &tools(scan::SAMPLE)),
            Work::Rounding(way) => self.adder.visit(case, way, quota, &tools(scan::SAMPLE)),
            Work::Handover(work) => self.passer.visit(case, *work, quota, &tools(handover::SAMPLE)),
            Work::Loaded(work) => {
                self.loader.visit(case, work.load, &mut self.chaser, quota, &tools(loaded::sample(work.load)))
            }
            Work::Device(_) | Work::Copies(_) => {
                Err(NoVisit::impossible("a device is measured in a process with its driver"))
            }
            Work::PingPong(_) => {
                Err(NoVisit::impossible("messages need processes; start them with `mpirun membound pingpong`"))
            }
        }
    }

    /// What was measured, and what the thread on each CPU obtained. `place` may say where a thread's pages are to come from
    /// before they are touched; `take` takes the samples.
    fn run_kernel(
        &mut self,
        case: &Case,
        variant: &Variant,
        quota: &Quota<'_>,
        place: &dyn Fn(u32, &Arrays<'_>) -> Result<(), NoVisit>,
        take: Take<'_>,
    ) -> Result<(Measured, Vec<(u32, Obtained)>), NoVisit> {
        let kernel = Kernel::find(&variant.kernel)?;
        let isa = self.isa;
        let code = self.codes.get(variant.clone(), || compile(variant, isa))?;
        if case.working_set >= controllers::LEAST {
            self.controllers.get_or_insert_with(|| controllers::open(&crate::machine::source()));
        }
        let layout = Layout::new(kernel, variant.element, case);
        let arrays = case.cpus.iter().map(|&cpu| self.arenas.arrays(cpu, kernel, &layout));
        let arrays: Vec<Arrays<'_>> = arrays.collect::<Result<_, _>>()?;
        if let Some(reason) = arrays.iter().find_map(Arrays::refusal) {
            return Err(NoVisit::impossible(reason));
        }
        case.cpus.iter().zip(&arrays).try_for_each(|(&cpu, arrays)| place(cpu, arrays))?;
        let places = self.arenas.places();
        let (ticker, hz, sample) = (self.ticker, self.clock.hz, team::SAMPLE);
        let tools = Tools { ticker, isa, probe: &self.probe, places, hz, sample };
        let team = metered(Team::new(case, quota, &tools).with_pauses(self.apart), case, &self.meters);
        let team = match &self.controllers {
            Some(Some(controllers)) if case.working_set >= controllers::LEAST => team.counted(controllers),
            _ => team,
        };
        let passes = |arrays| Passes {
            arrays,
            variant,
            kernel,
            layout: &layout,
            code,
            ticker,
            verify: self.verify,
            call: Call::empty(1),
            passes: 0,
        };
        let mut tasks: Vec<Passes<'_>> = arrays.into_iter().map(passes).collect();
        let results = take(team, &tools, &mut tasks);
        let threads: Vec<(u32, Obtained)> =
            case.cpus.iter().zip(&mut tasks).map(|(&cpu, task)| (cpu, task.arrays.obtained())).collect();
        let obtained = threads.iter().map(|(_, obtained)| obtained.clone()).reduce(Obtained::and).unwrap_or_default();
        let elements = tasks.iter().map(|task| task.call.elements(variant)).sum();
        // After a crash memory may be missing; the next case gets new one.
        if !results.as_ref().is_err_and(NoVisit::is_crash) {
            for (&cpu, task) in case.cpus.iter().zip(tasks) {
                self.arenas.keep(cpu, task.arrays);
            }
        }
        Ok((measured(volume(kernel, variant, elements), results?, obtained), threads))
    }

    /// The same beside a filled page cache, on memory of its own that is given back afterwards.
    fn run_beside_cache(&mut self, case: &Case, work: &PageCache, quota: &Quota<'_>) -> Result<Measured, NoVisit> {
        let started = Instant::now();
        self.arenas.give_back();
        let places = self.arenas.places().clone();
        let around = Surroundings::new(case, work, &places, quota)?;
        let time = quota.time.saturating_sub(started.elapsed()).max(LEAST_BESIDE_CACHE);
        let kept = std::mem::replace(&mut self.arenas, Arenas::new(places, |spec| spec));
        let place = |cpu: u32, arrays: &Arrays<'_>| match around.policy(work.cure, cpu)? {
            Some(policy) => Ok(arrays.place(policy)?),
            None => Ok(()),
        };
        let quota = Quota { time, ..*quota };
        let result = match work.workers {
            Workers::Threads => self.run_kernel(case, &work.variant, &quota, &place, &mut together),
            Workers::Processes => self.run_processes(case, work, &around, &quota),
        };
        self.arenas = kept;
        let (mut measured, threads) = result?;
        measured.obtained.page_cache = Some(around.found(&threads));
        Ok(measured)
    }

    /// The kernel on each CPU in a process of its own.
    fn run_processes(
        &self,
        case: &Case,
        work: &PageCache,
        around: &Surroundings,
        quota: &Quota<'_>,
    ) -> Result<(Measured, Vec<(u32, Obtained)>), NoVisit> {
        let (share, processes, places) = (case.share(), case.cpus.len(), self.arenas.places());
        let part = |&cpu: &u32| {
            let (variant, verify) = (work.variant.clone(), self.verify);
            let case = Case { cpus: vec![cpu], working_set: share, work: Work::Kernel(variant), ..case.clone() };
            Ok(Part { case, policy: around.policy(work.cure, cpu)?, verify, places: places.shared_by(processes) })
        };
        let parts: Vec<Part> = case.cpus.iter().map(part).collect::<Result<_, NoVisit>>()?;
        let (ticker, isa) = (self.ticker, self.isa);
        let tools = Tools { ticker, isa, probe: &self.probe, places, hz: self.clock.hz, sample: team::SAMPLE };
        crew::measure(&parts, quota, &tools)
    }

    /// The part of one process of several: what it does is told over `line`.
    pub(crate) fn work(&mut self, part: &Part, line: &mut Line) -> Result<(Volume, Obtained), NoVisit> {
        let Work::Kernel(variant) = &part.case.work else { return Err(NoVisit::impossible("this is no kernel")) };
        let place = |_: u32, arrays: &Arrays<'_>| part.policy.map_or(Ok(()), |policy| Ok(arrays.place(policy)?));
        let mut follow = |_: Team<'_>, tools: &Tools<'_>, tasks: &mut [Passes<'_>]| match (tasks, &part.case.cpus[..]) {
            ([task], [cpu]) => crew::follow(task, *cpu, tools, line),
            _ => Err(NoVisit::OneThread("a process has")),
        };
        let quota = Quota { least_samples: 1, most_samples: 1, time: Duration::ZERO, interrupted: &|| false };
        let (measured, _) = self.run_kernel(&part.case, variant, &quota, &place, &mut follow)?;
        Ok((measured.volume, measured.obtained))
    }

    /// The same over arrays in one block that is mapped anew in each visit: where its pages lie is drawn again.
    fn run_in_block(&mut self, case: &Case, work: &Common, quota: &Quota<'_>) -> Result<Measured, NoVisit> {
        self.arenas.give_back();
        let places = self.arenas.places().clone();
        let kept = std::mem::replace(&mut self.arenas, Arenas::new(places, |spec| spec));
        let result = self.run_kernel(case, &work.variant, quota, &|_, _| Ok(()), &mut together);
        self.arenas = kept;
        result.map(|(measured, _)| measured)
    }

    /// Looks for meters of energy, once.
    fn find_meters(&mut self) -> Result<(), NoVisit> {
        let hz = self.clock.hz;
        let find = || {
            let all = energy::open(&crate::machine::live().energy, &crate::machine::source(), hz)?;
            Ok(Mutex::new(all.moving(&std::thread::sleep)?))
        };
        match self.meters.get_or_insert_with(find) {
            Ok(_) => Ok(()),
            Err(reason) => Err(NoVisit::impossible(reason.clone())),
        }
    }
}

/// Code is made for the length that SVE registers had at the start, which a thread hands on to those that it starts: whoever
/// sets another one (prctl PR_SVE_SET_VL) would have all later code do something else.
fn check_registers(planned: Isa, here: Isa) -> Result<(), NoVisit> {
    if planned.sve_bytes == here.sve_bytes {
        return Ok(());
    }
    Err(NoVisit::impossible(format!(
        "SVE registers have {} bytes now and had {} when this run began: something set their length (prctl); measure again",
        here.sve_bytes, planned.sve_bytes
    )))
}

/// Takes the samples of tasks that are ready: samples, and the repetitions of each.
type Take<'a> = &'a mut dyn FnMut(Team<'_>, &Tools<'_>, &mut [Passes<'_>]) -> Result<(Samples, u64), NoVisit>;

/// By threads of this process.
fn together(team: Team<'_>, _: &Tools<'_>, tasks: &mut [Passes<'_>]) -> Result<(Samples, u64), NoVisit> {
    team.measure(tasks)
}

/// A team whose samples meters are read around, where the case wants that.
fn metered<'a>(team: Team<'a>, case: &Case, meters: &'a Option<Result<Mutex<Meters>, String>>) -> Team<'a> {
    match meters {
        Some(Ok(meters)) if case.protocol == Protocol::Energy => team.metered(meters),
        _ => team,
    }
}

/// Passes of one thread over its streams. On cache lines of its own: its call's results are written in each sample.
#[repr(align(128))]
struct Passes<'a> {
    arrays: Arrays<'a>,
    variant: &'a Variant,
    kernel: &'static Kernel,
    layout: &'a Layout,
    code: &'a Executable,
    ticker: Ticker,
    verify: bool,
    call: Call,
    /// Since memory was last fresh.
    passes: u64,
}

impl Passes<'_> {
    /// Aims the call at streams at these addresses.
    fn aim(&mut self, addresses: &[u64]) {
        let (rows, columns) = (self.layout.contents.rows as u64, self.layout.contents.columns as u64);
        self.call = Call::new(&self.kernel.formula(), self.variant, addresses, rows, columns);
        self.call.scalar = timed_scalar(self.kernel);
        self.passes = 0;
    }
}

impl Task for Passes<'_> {
    fn begin(&mut self) -> Result<(), NoVisit> {
        let addresses = self.arrays.prepare()?;
        self.aim(&addresses);
        check_whole_accesses(self.variant, &self.call)?;
        self.arrays.check_exact(self.variant, &self.call)
    }

    fn first_touch(&self) -> FirstTouch {
        self.arrays.touched()
    }

    /// Makes fresh memory fresh again.
    fn renew(&mut self) -> Result<u64, NoVisit> {
        if !self.arrays.is_fresh() {
            return Ok(0);
        }
        self.end()?;
        self.arrays.unmap();
        let start = self.ticker.now();
        let addresses = self.arrays.map()?;
        let ticks = self.ticker.now() - start;
        self.aim(&addresses);
        Ok(ticks)
    }

    fn run(&mut self, repetitions: u64) -> Result<(), NoVisit> {
        self.call.repetitions = repetitions;
        self.passes += repetitions;
        // SAFETY: `call` was made for this thread's own arena, which is mapped, touched and long enough for the layout.
        Ok(unsafe { self.code.run(&mut self.call) }?)
    }

    /// Compares what the passes left behind with the naive twin.
    fn end(&mut self) -> Result<(), NoVisit> {
        if self.passes == 0 {
            return Ok(());
        }
        if !self.arrays.check(self.variant, &self.call, self.passes, self.verify)? {
            self.begin()?;
            self.run(1)?;
            self.arrays.check(self.variant, &self.call, 1, self.verify)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::skip;
    use crate::threads::planted;
    use membound_core::case::{USUAL_MEMORY, steady};
    use membound_core::kernel::{StoreKind, Width};
    use membound_core::units::Bytes;
    use membound_core::work::c2c::{Handover, Home};
    use membound_core::work::loaded::{Load, Loaded};

    #[test]
    fn registers_of_another_length_are_no_figure() {
        let of = |sve_bytes| Isa { sve_bytes, ..Isa::NONE };
        assert!(check_registers(of(0), of(0)).is_ok() && check_registers(of(32), of(32)).is_ok());
        let reason = check_registers(of(64), of(16)).unwrap_err().to_string();
        assert!(reason.contains("have 16 bytes now and had 64") && reason.contains("; measure again"), "{reason}");
    }

    /// Whatever needs several threads, and is refused the first, the second or a later one, says so and comes back.
    #[test]
    fn a_refused_thread_is_an_answer() {
        let cpus: Vec<u32> = crate::machine::live().usable_cpus().iter().take(2).collect();
        if cpus.len() < 2 {
            skip("this machine has one CPU");
            return;
        }
        let sum = steady("sum", Width::Scalar, StoreKind::Regular, USUAL_MEMORY, cpus, Bytes::mib(1));
        let handover = Case { work: Work::Handover(Handover { home: Home::First }), ..sum.clone() };
        let load = Loaded { load: Load::Idle, chase: Bytes::kib(512) };
        let loaded = Case { work: Work::Loaded(load), ..sum.clone() };
        let mut native = Native::new(&[], Places::default(), false).unwrap();
        let quota = Quota { least_samples: 1, most_samples: 1, time: Duration::ZERO, interrupted: &|| false };
        for case in [sum, handover, loaded] {
            for started in 0..2 {
                let outcome = planted::limit(started, || native.visit(&case, &quota));
                let Outcome::Unavailable { reason } = outcome else { panic!("{case} {started}: {outcome:?}") };
                assert!(reason.contains("could not be started") && reason.contains("ulimit -u"), "{case}: {reason}");
            }
        }
    }
}
