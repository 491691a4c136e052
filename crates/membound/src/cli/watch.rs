//! `membound watch`: a slow background probe, because a node gets slow between checks.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;

use crate::cli::args::{Done, Format, kernels_named, number, working_set};
use crate::cli::check::percent;
use crate::cli::measure::{Session, header, host, list};
use crate::cli::usage::usage;
use crate::cli::words::{chosen, kernels};
use crate::cli::{metrics, say};
use crate::now::since_1970;
use crate::watch;
use crate::watch::diary::{Before, Diary};
use crate::watch::{Plan, World};
use membound_analyze::across::check::stranger;
use membound_analyze::across::watch::{Standing, Watch, WatchRow, named};
use membound_analyze::output::{json, prometheus};
use membound_core::case::{Case, USUAL_MEMORY};
use membound_core::experiments::choice;
use membound_core::experiments::choice::Choice;
use membound_core::experiments::frame::Frame;
use membound_core::experiments::latency::{LatencyChoice, latency_choice};
use membound_core::kernel::chase::Order;
use membound_core::machine::Machine;
use membound_core::machine::cpuset::CpuSet;
use membound_core::record::Header;
use membound_core::stats::change_point::LEASTS;
use membound_core::units::{Bytes, parse_duration};
use membound_measure::executor::here::Here;
use membound_measure::memory::places::Places;
use membound_measure::os::outfile::Readers;
use membound_measure::os::{busy, outfile, processes, signals};
use membound_measure::turn;
use membound_measure::turn::Turn;

/// Flags of `membound watch`.
#[derive(Debug, Clone, Args)]
pub struct WatchArgs {
    /// From one probe to the next, give or take a tenth [default: 5min, or longer where a probe would take more than 0.1 % of a core]
    #[arg(long, value_name = "TIME", value_parser = pause, allow_hyphen_values = true)]
    pub every: Option<Duration>,
    /// End after so long [default: when told to, by Ctrl-C or SIGTERM]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    pub lasts: Option<Duration>,
    /// Add what is measured to this record (.jsonl), and go on from what is in it [default: membound-watch-HOST.jsonl in the current
    /// folder]
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// The least change that is told
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = least)]
    pub least: f64,
    /// Run on the first of these CPUs, such as 3
    #[arg(long, value_name = "LIST", value_parser = CpuSet::parse)]
    pub cpus: Option<CpuSet>,
    /// Kernels, by one thread (see `membound kernel --list`) [default: load]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = kernels(), hide_possible_values = true)]
    pub kernel: Vec<String>,
    /// Their working sets [default: one in the first-level cache and one in memory]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = working_set)]
    pub size: Vec<Bytes>,
    /// Leave out the latency of memory
    #[arg(long)]
    pub no_latency: bool,
    /// Samples of one case and probe, spread over up to 10 s
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = number(3, 1000))]
    pub samples: u32,
    /// Probe also while others use the machine; what they disturb still has no figure
    #[arg(long)]
    pub force: bool,
    /// Write how it stands to this file (.prom) for Prometheus' textfile collector
    #[arg(long, value_name = "FILE")]
    pub prometheus: Option<PathBuf>,
    /// Probes and checks that have this file in common wait for each other [default: that of `membound check`]
    #[arg(long, value_name = "FILE")]
    pub lock: Option<PathBuf>,
    /// Show the cases and measure nothing
    #[arg(long)]
    pub list: bool,
    /// Print what happens as lines of text, or as JSON objects
    #[arg(long, value_parser = chosen::<Format>(&["table", "jsonl"]), default_value = "table")]
    pub format: Format,
}

/// The usual time from one probe to the next.
const EVERY: Duration = Duration::from_secs(300);
/// The samples of a visit are spread over so long at the most: a machine that others share is slow for some 100 ms at a time, or for
/// seconds.
const SPREAD: Duration = Duration::from_secs(10);
/// All visits of a probe take no more than this share of the time to the next.
const SPREAD_SHARE: f64 = 0.5;
/// What is waited before a busy machine is told from an idle one.
const QUIET_SPAN: Duration = Duration::from_millis(300);
/// How long a check is waited for: no longer than it lasts.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often a watcher that sleeps looks whether it is to end.
const LOOKS_EVERY: Duration = Duration::from_millis(500);
/// Clocks of two runs whose rates differ by more than this are not one: samples are counted in their ticks.
const CLOCK_SHARE: f64 = 1e-3;

fn least(text: &str) -> Result<f64, String> {
    let [low, high] = LEASTS;
    percent(text).ok().filter(|share| (low..=high).contains(share)).ok_or_else(|| {
        let [low, high] = LEASTS.map(|share| 100.0 * share);
        format!("'{text}' is no change that can be told; give a percentage from {low} to {high}, such as 5%")
    })
}

fn pause(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).map_err(|fault| fault.to_string())?;
    let fits = (Duration::from_secs(1)..=Duration::from_secs(86_400)).contains(&time);
    fits.then_some(time).ok_or_else(|| format!("'{text}' is no time between two probes; give 1s to 24h"))
}

impl WatchArgs {
    fn cases(&self, frame: &Frame) -> anyhow::Result<Vec<Case>> {
        let usual = [frame.memory_size(1)].into_iter().chain(frame.in_caches(1).first().map(|(_, size)| *size));
        let sizes: Vec<Bytes> = if self.size.is_empty() { usual.collect() } else { self.size.clone() };
        let names = if self.kernel.is_empty() { vec!["load".to_string()] } else { self.kernel.clone() };
        let known = kernels_named(&names)?;
        let choice =
            Choice { kernels: known, sizes, threads: vec![1], widths: vec![frame.widest()], ..Choice::default() };
        let mut cases = choice::kernels(frame, &choice).map_err(usage)?;
        if !self.no_latency {
            let choice = LatencyChoice {
                sizes: vec![frame.memory_size(1)],
                memory: vec![USUAL_MEMORY],
                orders: vec![Order::Random],
                strides: Vec::new(),
                chains: Vec::new(),
            };
            cases.extend(latency_choice(frame, &choice).map_err(usage)?);
        }
        Ok(cases)
    }

    /// What lies between two samples of a visit.
    fn apart(&self, cases: usize) -> Duration {
        let every = self.every.unwrap_or(EVERY).min(self.lasts.unwrap_or(Duration::MAX));
        SPREAD.min(every.mul_f64(SPREAD_SHARE) / cases.max(1) as u32) / self.samples
    }
}

/// Watches. What happens is printed as it happens.
pub fn run(args: &WatchArgs) -> anyhow::Result<Done> {
    let machine = membound_measure::machine::live();
    let frame = Frame::new(&machine, membound_measure::asm::detect(), args.cpus.as_ref()).map_err(usage)?;
    let cases = args.cases(&frame)?;
    if args.list {
        return Ok(Done::ok(list(&cases)));
    }
    let probes = named(&cases, &frame);
    let mut here = Here::new(&cases, Places::default(), false)?;
    here.pause(args.apart(cases.len()));
    let session = session(&machine, args);
    let fresh = header(&here, &session);
    let path = args.record.clone().unwrap_or_else(|| PathBuf::from(format!("membound-watch-{}.jsonl", host())));
    let lock = args.lock.clone().unwrap_or_else(turn::usual_path);
    if let Some(metrics) = &args.prometheus {
        metrics::refuse_other(metrics, &[("--record", Some(path.as_path())), ("--lock", Some(lock.as_path()))])?;
    }
    let known = |fault: &dyn std::fmt::Display| {
        usage(format!("{} can't be added to: {fault}; choose another file with --record", path.display()))
    };
    let (mut diary, before) = Diary::open(&path, fresh.clone()).map_err(|fault| known(&fault))?;
    let mut watch = Watch::new(&probes, args.least, &fresh);
    if let Some(before) = before {
        other(&before.header, &fresh).map_or(Ok(()), |fault| Err(known(&fault)))?;
        go_on(&mut watch, &before);
    }
    signals::catch_interrupts();
    let plan = Plan {
        probes,
        every: args.every.unwrap_or(EVERY),
        is_thrifty: args.every.is_none(),
        samples: args.samples as usize,
        lasts: args.lasts,
    };
    let mut around = Around { args, lock };
    let mut unheard = None;
    let mut tell = |row: &WatchRow| {
        let text = if args.format == Format::Jsonl { json::watch(row) } else { row.line() + "\n" };
        unheard = say::answer(&text).err().or(unheard.take());
    };
    let mut shower = Shower { path: args.prometheus.clone(), is_failing: false };
    let mut show = |standing: &Standing<'_>| shower.show(standing);
    let came = watch::watch(&plan, watch, &mut diary, &mut here, &mut around, &mut tell, &mut show);
    match unheard.filter(|fault| fault.kind() != std::io::ErrorKind::BrokenPipe) {
        Some(fault) => Err(fault).context("what happened can't be printed"),
        None => Ok(Done { text: String::new(), failed: came.falls > 0 }),
    }
}

fn session(machine: &Machine, args: &WatchArgs) -> Session {
    Session { seed: 0, ..Session::silent(machine.clone(), Instant::now(), args.samples as usize) }
}

/// Why a record can't be gone on with: what it holds would not be comparable, or is another machine's of the same kind.
fn other(before: &Header, now: &Header) -> Option<String> {
    let clocks = [&before.clock, &now.clock];
    let ratio = clocks[1].hz.0 / clocks[0].hz.0;
    let is_elsewhere = before.host != now.host;
    let host = || is_elsewhere.then(|| format!("it is of another host ({}); this is {}", before.host, now.host));
    stranger(&before.machine, &now.machine).or_else(host).or_else(|| {
        let is_same = clocks[0].name == clocks[1].name && (ratio - 1.0).abs() < CLOCK_SHARE;
        (!is_same).then(|| {
            format!(
                "its clock is {} of {}, and now it is {} of {}",
                clocks[0].name, clocks[0].hz, clocks[1].name, clocks[1].hz
            )
        })
    })
}

/// What was told then is not told again.
fn go_on(watch: &mut Watch, before: &Before) {
    for visit in &before.visits {
        let when = before.header.started_unix_s as f64 + visit.started_s + visit.elapsed_s;
        watch.note(visit, when as u64);
    }
}

/// This machine.
struct Around<'a> {
    args: &'a WatchArgs,
    lock: PathBuf,
}

impl World for Around<'_> {
    type Turn = Option<Turn>;

    fn now_unix_s(&self) -> f64 {
        since_1970().as_secs_f64()
    }

    fn sleep(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until && !signals::interrupted() {
            std::thread::sleep(LOOKS_EVERY.min(until.saturating_duration_since(Instant::now())));
        }
    }

    fn is_over(&self) -> bool {
        signals::interrupted()
    }

    fn cpu_time(&self) -> Duration {
        processes::cpu_time()
    }

    fn others(&mut self) -> Option<String> {
        if self.args.force {
            return None;
        }
        busy::others(QUIET_SPAN).map(|busy| busy.to_string())
    }

    fn turn(&mut self) -> Result<Option<Turn>, String> {
        let lock = self.lock.display();
        let why = match Turn::take(&self.lock, Instant::now() + PATIENCE) {
            Ok(Some(turn)) => return Ok(Some(turn)),
            Ok(None) => format!("{} holds {lock}", outfile::lock_holder(&self.lock)),
            Err(fault) => format!("{lock} can't be locked: {fault}; choose another file with --lock"),
        };
        if self.args.force { Ok(None) } else { Err(why) }
    }
}

/// The file for Prometheus.
struct Shower {
    path: Option<PathBuf>,
    is_failing: bool,
}

impl Shower {
    /// Where it can't be written, that is said once.
    fn show(&mut self, standing: &Standing<'_>) {
        let Some(path) = &self.path else { return };
        match say::file(path, &prometheus::watch(standing), Readers::Everybody) {
            Err(fault) if !self.is_failing => {
                say::note(format_args!("cannot write {}: {fault}; it is tried again at each probe", path.display()));
                self.is_failing = true;
            }
            Err(_) => {}
            Ok(()) => self.is_failing = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_can_be_told_is_parsed() {
        assert_eq!((least("5%"), least("0.1%"), least(" 80 ")), (Ok(0.05), Ok(0.001), Ok(0.8)));
        for text in ["0%", "0.09%", "81%", "90%", "99%", "-5%", "NaN", "five", ""] {
            let fault = least(text).unwrap_err();
            assert!(fault.contains("from 0.1 to 80"), "{text}: {fault}");
        }
    }
}
