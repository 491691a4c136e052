//! `membound pingpong`: messages between the processes of an MPI launcher. Rank 0 plans, records and prints; the others do
//! as they are told and say nothing.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;

use crate::cli::args::{Done, RunArgs, number};
use crate::cli::measure;
use crate::cli::measure::{Page, Session};
use crate::cli::say;
use crate::cli::usage::usage;
use crate::cli::words::one_of;
use membound_analyze::output::terminal;
use membound_analyze::report::Report;
use membound_core::case::Case;
use membound_core::experiments::pingpong;
use membound_core::experiments::pingpong::{Host, Locality, PingPongChoice, Sizes};
use membound_core::record::Clock;
use membound_core::record::world::ThreadLevel;
use membound_core::work::pingpong::{Buffers, MessageMode};
use membound_measure::experiments::pingpong::hello::{GatherError, Hello, gather, greet, hosts};
use membound_measure::experiments::pingpong::{CALIBRATION, PingPongs, dismiss, follow};
use membound_measure::mpi::launcher::Launched;
use membound_measure::mpi::{Mpi, MpiError, launcher};
use membound_measure::os::clock::Ticker;
use membound_measure::os::signals;

/// Flags of `membound pingpong`. Start it by an MPI launcher, such as `mpirun -np 2 membound pingpong`.
#[derive(Debug, Clone, Args)]
pub struct PingPongArgs {
    /// Pairs that send at once, such as 1,2,3 [default: each number up to 4, then two a doubling, and all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub pairs: Vec<usize>,
    /// What a pair does: pingpong (half a round trip counts), one-way, exchange (both send at once) [default: pingpong]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = one_of::<MessageMode>(), hide_possible_values = true)]
    pub mode: Vec<MessageMode>,
    /// Bytes of messages: sizes, and ranges of powers of two such as 0..64MiB [default: that]
    #[arg(long = "size", value_name = "LIST", value_delimiter = ',')]
    pub sizes: Vec<Sizes>,
    /// Sizes of a range for each doubling
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number(1, 16))]
    pub steps: u32,
    /// Where messages lie: same (one buffer to send from, one to receive to: small ones stay in caches), rotating (through
    /// more than the caches hold), in-place (sent back from where they were received) [default: same]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = one_of::<Buffers>(), hide_possible_values = true)]
    pub buffers: Vec<Buffers>,
    /// Where partners sit: cache (behind one), package (behind two of one package), machine (in two packages), network (on
    /// two hosts) [default: all there are]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = one_of::<Locality>(), hide_possible_values = true)]
    pub place: Vec<Locality>,
    /// Which threads MPI is told may make calls, whatever do: single, funneled, serialized, multiple. What a program pays
    /// for asking for more
    #[arg(long, value_name = "LEVEL", default_value_t = ThreadLevel::Single, value_parser = one_of::<ThreadLevel>(), hide_possible_values = true)]
    pub mpi_threads: ThreadLevel,
    /// Let more processes run on a host than it has CPUs for them; every row is then flagged
    #[arg(long)]
    pub oversubscribe: bool,
    /// How to run
    #[command(flatten)]
    pub run: RunArgs,
}

pub(crate) const BUDGET: Duration = Duration::from_secs(60);
/// A launcher ends all processes when the first one fails: the others leave rank 0 the time to say why.
const AFTER_YOU: Duration = Duration::from_millis(500);

/// Rank 0 first waits for all to greet; its watchdog counts from then on.
const LONGER_THAN_RANK_0: Duration = Duration::from_secs(60);

/// Joins the world and does this rank's part.
pub fn run(args: &PingPongArgs) -> anyhow::Result<Done> {
    run_into(args, &|| Ok(args.run.record.clone()))
}

/// The same with a place for the record that rank 0 finds. It does so in the world, from which it can send the others home:
/// launchers do not tell them that it never came.
pub fn run_into(args: &PingPongArgs, place: &dyn Fn() -> anyhow::Result<Option<PathBuf>>) -> anyhow::Result<Done> {
    let started = Instant::now();
    let launched = launcher::launched().ok_or_else(not_launched)?;
    // What the launcher lets this process use, before an MPI can change it.
    let machine = membound_measure::machine::live();
    let mpi = match Mpi::join(args.mpi_threads) {
        Ok(mpi) => mpi,
        Err(fault) if launched.rank == 0 => return Err(told(fault)),
        Err(fault) => leave_silently(&fault),
    };
    let clock = Ticker::detect().calibrate(CALIBRATION);
    let hello = Hello::new(&machine, args.run.cpus.as_ref(), &clock);
    if mpi.rank() > 0 {
        // Rank 0 can end without a word, by its own watchdog for one, and not every launcher ends the others then.
        let last = 3 * args.run.budget.unwrap_or(BUDGET) + LONGER_THAN_RANK_0;
        signals::watch(last, last + AFTER_YOU);
        return match greet(&mpi, &hello).and_then(|()| follow(&mpi)) {
            Ok(()) => Ok(Done::ok(String::new())),
            Err(fault) => abandon(mpi, &format!("rank {}: {fault}", launched.rank), 1),
        };
    }
    let greetings = match gather(&mpi, hello) {
        Ok(greetings) => greetings,
        Err(fault @ (GatherError::Silent { .. } | GatherError::Mpi(_))) => abandon(mpi, &fault.to_string(), 2),
        Err(fault) => return dismissed(mpi, Err(usage(fault))),
    };
    let hosts = hosts(&greetings);
    let cases = match pingpong::pingpong(&hosts, &args.choice()) {
        Ok(cases) => cases,
        Err(fault) => return dismissed(mpi, Err(usage(fault))),
    };
    if args.run.list {
        return dismissed(mpi, Ok(Done::ok(seats(&hosts) + &measure::list(&cases))));
    }
    let record = match place() {
        Ok(record) => record,
        Err(fault) => return dismissed(mpi, Err(fault)),
    };
    let session = Session::new(&args.run, machine, started + args.run.budget.unwrap_or(BUDGET), record);
    let (done, fault) = lead(&mpi, launched, &greetings, clock, &cases, &session, args);
    match (done, fault) {
        (done, None) => dismissed(mpi, done),
        // The world can't be left in order, which would wait for peers that are gone: so all is said here.
        (Ok(done), Some(fault)) => {
            let _ = say::answer(&done.text);
            abandon(mpi, &fault.to_string(), 1)
        }
        (Err(other), Some(fault)) => abandon(mpi, &format!("{other:#}; {fault}"), 1),
    }
}

/// Measures and shows; and why no more could be measured, if so.
fn lead(
    mpi: &Mpi,
    launched: Launched,
    greetings: &[Hello],
    clock: Clock,
    cases: &[Case],
    session: &Session,
    args: &PingPongArgs,
) -> (anyhow::Result<Done>, Option<MpiError>) {
    let mut pingpongs = match PingPongs::new(mpi, launched.launcher, greetings, clock) {
        Ok(pingpongs) => pingpongs,
        Err(fault) => return (Err(fault.into()), None),
    };
    let page = match Page::reserve(&args.run) {
        Ok(page) => page,
        Err(fault) => return (Err(fault), None),
    };
    let table = |report: &Report| terminal::answer(report, &report.messages);
    let done = measure::measure(cases, &mut pingpongs, session).map(|finished| {
        let (report, done) = finished.shown(session, &args.run, table);
        page.write(&report, done)
    });
    (done, pingpongs.fault().cloned())
}

impl PingPongArgs {
    fn choice(&self) -> PingPongChoice {
        PingPongChoice {
            pairs: self.pairs.clone(),
            modes: self.mode.clone(),
            sizes: match self.sizes.is_empty() {
                true => pingpong::octaves(pingpong::LARGEST_MESSAGE, self.steps),
                false => Sizes::all(&self.sizes, self.steps),
            },
            buffers: self.buffers.clone(),
            places: self.place.clone(),
            oversubscribe: self.oversubscribe,
        }
    }
}

/// Which ranks run where, and the CPUs that they may sit on.
fn seats(hosts: &[Host]) -> String {
    let list = |numbers: &mut dyn Iterator<Item = u32>| {
        numbers.collect::<membound_core::machine::cpuset::CpuSet>().to_string()
    };
    let host = |host: &Host| {
        let ranks = list(&mut host.ranks.iter().map(|rank| *rank as u32));
        format!("{}: ranks {ranks}, CPUs {}\n", host.name, list(&mut host.slots.iter().map(|slot| slot.cpu)))
    };
    hosts.iter().map(host).collect()
}

fn not_launched() -> anyhow::Error {
    usage(
        "messages need two processes, and no MPI launcher started this one; run `mpirun -np 2 membound pingpong`, or under \
         Slurm `srun -n 2 --mpi=pmi2 membound pingpong` (MPICH) or `--mpi=pmix` (Open MPI)",
    )
}

/// A library that is missing or of the wrong kind is a matter of how this was started.
fn told(fault: MpiError) -> anyhow::Error {
    match fault {
        MpiError::Failed { .. } => fault.into(),
        _ => usage(fault),
    }
}

fn leave_silently(fault: &MpiError) -> ! {
    std::thread::sleep(AFTER_YOU);
    std::process::exit(if matches!(fault, MpiError::Failed { .. }) { 1 } else { 2 })
}

/// The end of rank 0's part: all others leave.
fn dismissed(mpi: Mpi, done: anyhow::Result<Done>) -> anyhow::Result<Done> {
    match dismiss(&mpi) {
        Ok(()) => done,
        Err(fault) => abandon(mpi, &fault.to_string(), 1),
    }
}

fn abandon(mpi: Mpi, why: &str, code: i32) -> ! {
    let _ = say::answer("");
    say::note(why);
    mpi.abandon(code)
}
