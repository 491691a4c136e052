//! `membound fleet run`: one plan on all nodes that a launcher has given us.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::cli::args;
use crate::cli::args::{Done, RunArgs};
use crate::cli::pingpong::PingPongArgs;
use crate::cli::say;
use crate::cli::usage::usage;
use crate::cli::{measure, pingpong};
use crate::fleet::child::Child;
use crate::fleet::follow::Left;
use crate::fleet::joined::Joined;
use crate::fleet::lead::Task;
use crate::fleet::word::{Hello, Plan};
use crate::fleet::world::World;
use crate::fleet::{Begun, Patience, follow, lead, summary};
use crate::now::since_1970;
use membound_core::record::world::ThreadLevel;
use membound_core::units::{counted, parse_duration, utc_compact};
use membound_measure::mpi::Mpi;
use membound_measure::os::{arguments, signals};

/// Flags of `membound fleet run`.
#[derive(Debug, Clone, Args)]
pub struct FleetRunArgs {
    /// Folder for the records and the summary, seen by rank 0 [default: membound-fleet-DATE here]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// What a node may take; then it is ended, and what it has finished is kept
    #[arg(long, value_name = "TIME", value_parser = patience, default_value = NODE_TIMEOUT)]
    pub node_timeout: Duration,
    /// A node that says nothing for so long is lost, and left behind
    #[arg(long, value_name = "TIME", value_parser = patience, default_value = SILENCE)]
    pub silence: Duration,
    /// No notes on stderr
    #[arg(long, short)]
    pub quiet: bool,
    /// What each node measures: a subcommand and flags of membound, such as `-- latency --budget 30s`; rank 0's count. With
    /// `-- pingpong` all ranks join [default: the default run]
    #[arg(last = true, value_name = "PLAN")]
    pub plan: Vec<String>,
}

/// What a node may take, and may be silent, where the user says nothing else.
const NODE_TIMEOUT: &str = "5min";
const SILENCE: &str = "30s";

impl FleetRunArgs {
    /// Where all ranks join, none is ended or left behind without the others.
    fn refuse_what_is_each_nodes(&self) -> anyhow::Result<()> {
        let given = [("--node-timeout", self.node_timeout, NODE_TIMEOUT), ("--silence", self.silence, SILENCE)];
        let other = given.iter().find(|(_, time, usual)| patience(usual) != Ok(*time));
        other.map_or(Ok(()), |(flag, ..)| {
            Err(usage(format!("leave {flag} out: in `-- pingpong` all ranks join, and none is ended by itself")))
        })
    }
}

const TOOL: &str = concat!("membound ", env!("CARGO_PKG_VERSION"));
/// The record of a plan in which all ranks join.
const MESSAGES: &str = "pingpong.jsonl";
/// What a user without MPI can do.
const BY_HAND: &str = "Without MPI: run `membound --out DIR` on each node and copy the records into one folder; that is a \
                       fleet too: `membound fleet screen DIR`";

fn patience(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).map_err(|fault| fault.to_string())?;
    let possible = Duration::from_secs(1)..=Duration::from_secs(30 * 86400);
    if possible.contains(&time) { Ok(time) } else { Err(format!("'{text}' is not between 1 s and 30 days")) }
}

/// What a plan is, once it is read as a command line of its own.
#[derive(Debug)]
pub struct Planned {
    /// Its flags, where it leaves a record of one node, and the time that it takes.
    pub run: Option<(RunArgs, Duration)>,
    /// The messages that it measures, where all ranks must join in.
    pub pingpong: Option<PingPongArgs>,
}

/// Reads a plan: whoever knows all commands does.
pub type Read = fn(&[String]) -> Result<Planned, clap::Error>;

/// Runs one rank. Messages are this rank's alone until all leave.
pub fn run(args: &FleetRunArgs, read: Read) -> anyhow::Result<Done> {
    if let Ok(Planned { pingpong: Some(plan), .. }) = read(&args.plan) {
        return join(args, plan);
    }
    let mpi = Mpi::join(ThreadLevel::Single).map_err(|fault| usage(format!("{fault}\n{BY_HAND}")))?;
    signals::catch_interrupts();
    let mut world = Joined::new(&mpi);
    let hello = Hello::here(TOOL, measure::host(), args.plan.clone());
    let (done, left) = if mpi.rank() == 0 {
        lead(args, read, hello, &mut world, &mpi.library().version)
    } else {
        let look = Patience::new(args.node_timeout, args.silence).look;
        let left = follow::follow(&mut world, hello, &mut start, look, args.silence, &signals::interrupted);
        (Ok(Done::ok(String::new())), left)
    };
    drop(world);
    match left {
        Left::Together => done,
        Left::Abandoned(code) => {
            if let Err(fault) = done {
                say::note(format_args!("{fault:#}"));
            }
            mpi.abandon(code)
        }
    }
}

/// A plan in which all ranks join: messages between them. Its record is one, and rank 0 writes it.
fn join(args: &FleetRunArgs, mut plan: pingpong::PingPongArgs) -> anyhow::Result<Done> {
    plan.run.quiet |= args.quiet;
    pingpong::run_into(&plan, &|| {
        has_no_place(&args.plan)?;
        args.refuse_what_is_each_nodes()?;
        Ok(Some(folder(args.out.as_deref())?.join(MESSAGES)))
    })
}

/// Rank 0, from its flags to everybody's leave. What there is to say is said before: whoever leaves without the others may
/// be ended by the launcher.
fn lead(
    args: &FleetRunArgs,
    read: Read,
    hello: Hello,
    world: &mut dyn World,
    mpi: &str,
) -> (anyhow::Result<Done>, Left) {
    let (told, gone, code) = match led(args, read, hello, world, mpi) {
        Ok((failed, gone)) => (Ok(Done { text: String::new(), failed }), gone, i32::from(failed)),
        Err(fault) => (Err(fault), HashSet::new(), 2),
    };
    let left = lead::part(world, &gone, code, args.silence, signals::interrupted());
    (told, left)
}

/// Whether anything failed, and who is gone.
fn led(
    args: &FleetRunArgs,
    read: Read,
    hello: Hello,
    world: &mut dyn World,
    mpi: &str,
) -> anyhow::Result<(bool, HashSet<usize>)> {
    check(&args.plan, args.node_timeout, read)?;
    let folder = folder(args.out.as_deref())?;
    let say = |text: &str| {
        if !args.quiet {
            say::note(text);
        }
    };
    let task = Task {
        folder: &folder,
        hello,
        patience: Patience::new(args.node_timeout, args.silence),
        command: arguments::command_line(),
        mpi: mpi.into(),
    };
    let led = lead::lead(world, task, &mut start, &signals::interrupted, &mut |text| say(text)).map_err(|fault| {
        usage(format!("cannot write to {}: {fault}; choose another folder with --out", folder.display()))
    })?;
    let records = led.summary.nodes.iter().filter(|node| node.record.is_some()).count();
    let records = counted(records, "record");
    let mut text = led.summary.text();
    text.push_str(&format!("Written: {} ({records} and {})\n", folder.display(), summary::FILE));
    let _ = say::answer(&text);
    Ok((led.summary.failed(), led.gone))
}

/// Starts to measure on this node.
fn start(plan: &Plan) -> Begun<'static> {
    let timeout = Duration::try_from_secs_f64(plan.timeout_s).map_err(|fault| fault.to_string())?;
    Ok(Box::new(Child::start(&plan.arguments, with_output, timeout)?))
}

/// A plan's arguments, and a place for its record.
fn with_output(folder: &Path, arguments: &[String]) -> Vec<String> {
    let (mut line, rest) = match arguments.split_first() {
        Some((command, rest)) if !command.starts_with('-') => {
            (vec![command.clone(), "--record".into(), folder.join("record.jsonl").display().to_string()], rest)
        }
        _ => (vec!["--out".into(), folder.display().to_string()], arguments),
    };
    line.extend_from_slice(rest);
    line
}

/// Whether a plan leaves it to the fleet where records go.
fn has_no_place(plan: &[String]) -> anyhow::Result<()> {
    const PLACES: [&str; 5] = ["--record", "--out", "--html", "--svg", "--hwloc"];
    let own = |flag: &&String| PLACES.contains(&flag.split('=').next().unwrap_or_default());
    plan.iter().find(own).map_or(Ok(()), |flag| {
        Err(usage(format!(
            "leave {flag} out of the plan: a fleet gathers its records itself; say where with `fleet run --out DIR`"
        )))
    })
}

/// Whether a plan can be measured by a fleet, before anything is.
pub(crate) fn check(plan: &[String], node_timeout: Duration, read: Read) -> anyhow::Result<()> {
    has_no_place(plan)?;
    let planned = read(plan).map_err(|fault| {
        let fault = fault.to_string();
        let first = fault.lines().next().unwrap_or_default().trim_start_matches("error: ");
        usage(format!("the plan `{}` can't be run: {first}", plan.join(" ")))
    })?;
    let Some((run, budget)) = planned.run else {
        return Err(usage(format!(
            "the plan `{}` measures nothing that one node can; give one such as `-- bandwidth --budget 30s`, or none",
            plan.join(" ")
        )));
    };
    if run.list {
        return Err(usage(format!("--list measures nothing; try it alone: membound {}", plan.join(" "))));
    }
    if budget >= node_timeout {
        return Err(usage(format!(
            "the plan takes {} s and a node may take {} s: give the plan a shorter --budget, or a longer --node-timeout",
            budget.as_secs_f64(),
            node_timeout.as_secs_f64()
        )));
    }
    Ok(())
}

/// The folder for results, made if need be. It must not hold those of another run: whatever reads a fleet reads all records of a folder.
fn folder(out: Option<&Path>) -> anyhow::Result<PathBuf> {
    let usual = || PathBuf::from(format!("membound-fleet-{}", utc_compact(since_1970().as_secs())));
    let folder = out.map_or_else(usual, Path::to_path_buf);
    args::make_folder(&folder)?;
    match result_in(&folder) {
        None => Ok(folder),
        Some(file) => Err(usage(format!(
            "{} holds the results of another run ({file}); choose another folder with --out",
            folder.display()
        ))),
    }
}

/// A result that lies in a folder, of whatever run.
fn result_in(folder: &Path) -> Option<String> {
    let names = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let is_result = |name: &String| name == summary::FILE || name.ends_with(".jsonl") || name.ends_with(".jsonl.part");
    names.filter(is_result).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(Into::into).collect()
    }

    #[test]
    fn a_record_has_its_place_in_every_plan() {
        let check = |plan: &str, expect: &str| assert_eq!(with_output(Path::new("/t"), &words(plan)), words(expect));
        check("", "--out /t");
        check("--budget 5s", "--out /t --budget 5s");
        check("latency --budget 5s", "latency --record /t/record.jsonl --budget 5s");
    }

    #[test]
    fn results_of_another_run_are_not_joined() {
        for name in ["fleet.json", "pingpong.jsonl", "n1.jsonl", "n1.jsonl.part"] {
            let out = tempfile::tempdir().unwrap();
            std::fs::write(out.path().join("notes.txt"), "").unwrap();
            assert!(folder(Some(out.path())).is_ok());
            std::fs::write(out.path().join(name), "").unwrap();
            let said = folder(Some(out.path())).unwrap_err().to_string();
            assert!(said.contains("another run") && said.contains(name), "{said}");
        }
    }
}
