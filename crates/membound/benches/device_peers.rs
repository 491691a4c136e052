//! A device's copies against clpeak's (OpenCL) or nvbandwidth's (CUDA), and its kernels against BabelStream's: the same sizes, the same
//! kinds of buffers, in turns.
//!
//! `cargo bench --bench device_peers [-- --babelstream PATH --device opencl:0 --only Copy,Triad --rounds N --times N --seed N]`
//! `cargo bench --bench device_peers -- --device cuda:0 --nvbandwidth PATH --babelstream PATH`
//!
//! Each round is a visit of ours and a run of theirs, in random order; what counts is the ratio of their rates, round by round:
//! the median and its interval, since what a neighbour of the host does may spoil a run of either side.
//! Both sides' figure is that of a whole visit, all bytes over all time, since clpeak and BabelStream give no other; beside
//! nvbandwidth it is, as there, the median of three parts.
//!
//! - *Copies.* clpeak 1.1.2 (`transfer_bandwidth.cpp`) copies between memory of `new float[]` and a buffer of
//!   `CL_MEM_ALLOC_HOST_PTR` by blocking commands, 20 times after one. The size follows from the device (`clpeaks_bytes`): 512 MiB
//!   on most. That is the action `write` or `read` of our kind `alloc-host`, at that size. A case is made for it: a plan of `kinds`
//!   or `copies` leaves out buffers of which memory does not hold eight. clpeak copies zeros onto zeros, which some processors do faster than
//!   with other data (Zen 3: by 6 %): what the processor gains by them is measured in each round, by `memcpy`, and our rates are multiplied
//!   by the median of that, if it is more than chance.
//! - *Copies by CUDA.* nvbandwidth copies 512 MiB between memory of `cuMemHostAlloc` and the device's, 16 times after a spinning kernel,
//!   timed by events, and gives the median of three. That is the action `copy` or `copy-back` of our kind `pinned`, and the same of
//!   `plain` within the device, each copy waited for.
//! - *Kernels.* BabelStream's version for the device's interface, one kernel a run (`--only`), so that both sides repeat one loop over the same arrays.
//!   Its first repetition, which compiles, counts on neither side.
//!
//! A row that has no counterpart says why it is not compared.
//!
//! `ok`: the ratio's 95 % interval lies within 3 %, or above. `short`: it lies below 0.97. `unsure`: anything else, so nothing was
//! shown: give more rounds. The exit code does not depend on that; it is 2 where the device or clpeak is missing.

mod common;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use common::{Bench, Visit, print_row, stop};
use membound_core::case::{Case, USUAL_MEMORY, Work};
use membound_core::machine::devices::{Api, Device, DeviceKind, DeviceName};
use membound_core::stats;
use membound_core::units::Bytes;
use membound_core::work::device::{Action, Buffer, DeviceWork};
use membound_measure::executor::{device, worker};

#[derive(Parser)]
struct Options {
    /// The device, of OpenCL or CUDA
    #[arg(long, default_value = "opencl:0")]
    device: DeviceName,
    /// BabelStream, built for that interface (`ocl-stream`, `cuda-stream`)
    #[arg(long)]
    babelstream: Option<PathBuf>,
    /// nvbandwidth
    #[arg(long)]
    nvbandwidth: Option<PathBuf>,
    /// What to compare, by the peers' names: enqueueWriteBuffer, Copy, Triad ... [default: all]
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Turns: ours and the peer's
    #[arg(long, default_value_t = 8)]
    rounds: u32,
    /// Repetitions of a kernel in a run of BabelStream's
    #[arg(long, default_value_t = 20)]
    times: u32,
    /// Elements of each of BabelStream's arrays (its own default)
    #[arg(long, default_value_t = 1 << 25)]
    elements: u64,
    /// Seed of the order within rounds
    #[arg(long)]
    seed: Option<u64>,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    fn wants(&self, contest: &Contest) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == contest.name)
    }
}

/// Ratios within this distance of 1 are called equal.
const EQUAL: f64 = 0.03;

/// What a peer does, and our action that does the same, or why there is none.
struct Contest {
    /// The peer's own name for it.
    name: &'static str,
    /// Bytes of a copy, where not the peer's own default.
    bytes: Option<Bytes>,
    ours: Result<(Buffer, Action), &'static str>,
}

const fn same(name: &'static str, buffer: Buffer, action: Action) -> Contest {
    Contest { name, bytes: None, ours: Ok((buffer, action)) }
}

const fn without(name: &'static str, why: &'static str) -> Contest {
    Contest { name, bytes: None, ours: Err(why) }
}

/// By the lines that clpeak prints.
const COPIES: [Contest; 8] = [
    same("enqueueWriteBuffer", Buffer::AllocHost, Action::Write),
    same("enqueueReadBuffer", Buffer::AllocHost, Action::Read),
    without("enqueueWriteBuffer non-blocking", WAITED_FOR),
    without("enqueueReadBuffer non-blocking", WAITED_FOR),
    without("enqueueMapBuffer(for read)", NOT_APART),
    without("memcpy from mapped ptr", STORED_AND_LOADED),
    without("enqueueUnmap(after write)", NOT_APART),
    without("memcpy to mapped ptr", STORED_AND_LOADED),
];
const WAITED_FOR: &str = "membound waits for each command; clpeak queues 20";
const NOT_APART: &str = "membound times mapping and unmapping as one, clpeak each alone";
const STORED_AND_LOADED: &str = "membound stores to or loads from a mapped buffer, and copies none by memcpy";

/// By nvbandwidth's names of its tests.
const CUDA_COPIES: [Contest; 5] = [
    same("host_to_device_memcpy_ce", Buffer::Pinned, Action::Copy),
    same("device_to_host_memcpy_ce", Buffer::Pinned, Action::CopyBack),
    // So large that waiting for each, which nvbandwidth does not, is no part of it: 512 MiB take 0.35 ms on an H100.
    Contest { bytes: Some(Bytes::gib(2)), ..same("device_local_copy", Buffer::Plain, Action::Copy) },
    without("host_to_device_bidirectional_memcpy_ce", "it counts one way of two, membound both"),
    without("host_to_device_memcpy_sm", "membound copies by the driver, not by kernels of the device"),
];

/// By BabelStream's names.
const KERNELS: [Contest; 5] = [
    same("Copy", Buffer::Plain, Action::KernelCopy),
    same("Mul", Buffer::Plain, Action::KernelScale),
    same("Add", Buffer::Plain, Action::KernelAdd),
    same("Triad", Buffer::Plain, Action::KernelTriad),
    without("Dot", "membound has STREAM's four loops on a device, of which none is a sum"),
];

fn main() {
    // Devices' drivers live in a process of their own, which is this program once more.
    if worker::serve() {
        return;
    }
    let options = Options::parse();
    let mut arena = Arena::new(&options);
    println!("{}", arena.bench.machine.summary());
    println!("{}: {}, {}", options.device, arena.device.title, arena.device.driver);
    println!("seed {}, {} rounds\n", arena.seed, options.rounds);
    heading();
    copies(&mut arena, &options);
    kernels(&mut arena, &options);
    let counts: Vec<String> = arena.verdicts.iter().map(|(verdict, count)| format!("{count} {verdict}")).collect();
    println!("\n{}", counts.join(", "));
}

/// Our side, and what came of it.
struct Arena {
    bench: Bench,
    device: Device,
    /// Of its platform, and of the device within it, as OpenCL's loader lists them.
    numbers: [usize; 2],
    cpus: Vec<u32>,
    random: fastrand::Rng,
    seed: u64,
    verdicts: BTreeMap<&'static str, u32>,
}

impl Arena {
    fn new(options: &Options) -> Self {
        let name = options.device;
        if name.api == Api::Vulkan {
            stop("no peer knows Vulkan's devices; give --device opencl:N or cuda:N");
        }
        let found = device::discover(&[name.api]);
        let why = found.absent.first().map_or("see `membound devices`", |(_, why)| why).to_owned();
        let at = found.devices.iter().position(|device| device.name == name);
        let at = at.unwrap_or_else(|| stop(format!("no {name}: {why}")));
        // Devices of a platform follow each other, and name its driver.
        let mut platforms: Vec<&str> = found.devices[..=at].iter().map(|device| device.driver.as_str()).collect();
        platforms.dedup();
        let driver = &found.devices[at].driver;
        let before = found.devices[..at].iter().filter(|device| device.driver == *driver).count();
        let numbers = [platforms.len() - 1, before];
        let device = found.devices[at].clone();
        let bench = Bench::new();
        let cpus = bench.frame.placement.first(1).unwrap_or_else(|fault| stop(fault));
        let seed = options.seed.unwrap_or_else(common::fresh_seed);
        let random = fastrand::Rng::with_seed(seed);
        Arena { bench, device, numbers, cpus, random, seed, verdicts: BTreeMap::new() }
    }

    fn case(&self, buffer: Buffer, action: Action, working_set: Bytes) -> Case {
        let work = DeviceWork::new(self.device.name, buffer, action);
        Case::new(Work::Device(work), USUAL_MEMORY, self.cpus.clone(), working_set)
    }

    /// A visit of so long.
    fn visit(&mut self, case: &Case, time: Duration) -> Visit {
        self.bench.visit(case, time).unwrap_or_else(|reason| stop(format!("{case}: {reason}")))
    }

    /// Prints a row from the rates of each round.
    fn judge(&mut self, peer: &str, name: &str, size: Bytes, ours: &[f64], theirs: &[f64]) {
        let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
        let ratio = stats::summarize(&[&ratios]).map_or([f64::NAN; 3], |s| [s.median, s.ci95[0], s.ci95[1]]);
        let verdict = verdict(ratio);
        *self.verdicts.entry(verdict).or_insert(0) += 1;
        let gbps = |rates: &[f64]| format!("{:.2}", stats::summarize(&[rates]).map_or(f64::NAN, |s| s.median) / 1e9);
        print_row(&[
            (&peer, -12),
            (&name, -31),
            (&size.to_string(), 8),
            (&gbps(ours), 13),
            (&gbps(theirs), 10),
            (&format!("{:.3}", ratio[0]), 6),
            (&format!("[{:.3}, {:.3}]", ratio[1], ratio[2]), 16),
            (&verdict, -6),
        ]);
    }

    fn pass_over(&mut self, peer: &str, name: &str, why: &str) {
        *self.verdicts.entry("not compared").or_insert(0) += 1;
        print_row(&[(&peer, -12), (&name, -31), (&format!("not compared: {why}"), -1)]);
    }
}

/// All of a peer's copies, of which a run does each.
fn copies(arena: &mut Arena, options: &Options) {
    let (peer, all, size): (_, &[Contest], _) = match options.device.api {
        Api::Cuda => ("nvbandwidth", &CUDA_COPIES, Bytes::mib(512)),
        _ => ("clpeak", &COPIES, clpeaks_bytes(&arena.device)),
    };
    let wanted = || all.iter().filter(|contest| options.wants(contest));
    if options.device.api == Api::Cuda && options.nvbandwidth.is_none() {
        wanted().for_each(|contest| arena.pass_over(peer, contest.name, "no nvbandwidth (give --nvbandwidth PATH)"));
        return;
    }
    // A run of the peer's is of one size.
    let mut sizes: Vec<Bytes> = wanted().filter(|c| c.ours.is_ok()).map(|c| c.bytes.unwrap_or(size)).collect();
    sizes.dedup();
    for size_of_run in sizes {
        let contests: Vec<(&Contest, (Buffer, Action))> = wanted()
            .filter(|contest| contest.bytes.unwrap_or(size) == size_of_run)
            .filter_map(|contest| Some((contest, contest.ours.ok()?)))
            .collect();
        copies_of(arena, options, peer, &contests, size_of_run);
    }
    for (name, why) in wanted().filter_map(|contest| Some((contest.name, contest.ours.err()?))) {
        arena.pass_over(peer, name, why);
    }
}

/// Copies of one size, of which a run of the peer's does all.
fn copies_of(arena: &mut Arena, options: &Options, peer: &str, contests: &[(&Contest, (Buffer, Action))], size: Bytes) {
    let names: Vec<&str> = contests.iter().map(|(contest, _)| contest.name).collect();
    let mut rates: Vec<[Vec<f64>; 3]> = vec![Default::default(); contests.len()];
    for _ in 0..options.rounds {
        let is_ours_first = arena.random.bool();
        for is_ours in [is_ours_first, !is_ours_first] {
            let theirs = match (&options.nvbandwidth, options.device.api) {
                _ if is_ours => BTreeMap::new(),
                (Some(program), Api::Cuda) => nvbandwidth(program, &names, size),
                _ => clpeak(arena.numbers, &names),
            };
            for ((contest, (buffer, action)), [a, b, gains]) in contests.iter().zip(&mut rates) {
                if is_ours {
                    let case = arena.case(*buffer, *action, size);
                    let visit = arena.visit(&case, COPYING);
                    let is_of_three = options.device.api == Api::Cuda;
                    let bps = if is_of_three { visit.payload_bps_of_three() } else { visit.payload_bps() };
                    // Each byte is loaded and stored, and the peers count it once.
                    a.push(bps / 2.0);
                    let is_by_processor = arena.device.kind == DeviceKind::Cpu;
                    gains.push(if is_by_processor { gain_by_zeros(*action, size) } else { 1.0 });
                } else {
                    let missing = || stop(format!("{peer} gave no figure of {}", contest.name));
                    b.push(theirs.get(contest.name).copied().unwrap_or_else(missing));
                }
            }
        }
    }
    for ((contest, _), [ours, theirs, gains]) in contests.iter().zip(&rates) {
        // What zeros gain is the processor's, not the round's, and nothing as long as it may be nothing.
        let gain = stats::summarize(&[gains]).filter(|gain| gain.ci95[0] > 1.0).map_or(1.0, |gain| gain.median);
        let ours: Vec<f64> = ours.iter().map(|rate| rate * gain).collect();
        arena.judge(peer, contest.name, size, &ours, theirs);
        if gain != 1.0 {
            println!("{:12} {:31} ours times {gain:.3}, by which copies of zeros are faster here", "", "");
        }
    }
}

/// About 20 copies of 512 MiB by a memory of 10 GB/s, which is what a run of clpeak's does; 100 over a link of 55 GB/s, where
/// nvbandwidth does 48.
const COPYING: Duration = Duration::from_secs(1);

/// How much faster this processor copies zeros onto zeros than other data onto the same, between memory that lies in its pages as the program's
/// (`malloc`) and PoCL's buffers do: bytes of a page before them.
fn gain_by_zeros(action: Action, size: Bytes) -> f64 {
    const PROGRAM: usize = 16;
    const BUFFER: usize = 128;
    const TURNS: usize = 4;
    let [from, to] = if action == Action::Read { [BUFFER, PROGRAM] } else { [PROGRAM, BUFFER] };
    let doubles = size.0 as usize / 8;
    let fresh = || vec![1.0f64; doubles + 1024];
    let (mut source, mut target) = (fresh(), fresh());
    let (source, target) = (in_page(&mut source, from, doubles), in_page(&mut target, to, doubles));
    let mut seconds = [0.0; 2];
    for turn in 0..=TURNS {
        for side in [turn % 2, 1 - turn % 2] {
            source.fill([0.0, 3.0][side]);
            // Both sides copy again and again: what is stored is what was there.
            target.copy_from_slice(black_box(source));
            let start = Instant::now();
            target.copy_from_slice(black_box(source));
            black_box(&mut *target);
            // The first copies find neither memory nor clock warm.
            seconds[side] += if turn == 0 { 0.0 } else { start.elapsed().as_secs_f64() };
        }
    }
    seconds[1] / seconds[0]
}

/// So many doubles that begin so many bytes behind the start of a page.
fn in_page(memory: &mut [f64], offset: usize, doubles: usize) -> &mut [f64] {
    let start = memory.as_ptr() as usize;
    let first = (start.next_multiple_of(4096) - start + offset) / 8;
    &mut memory[first..first + doubles]
}

/// Bytes of clpeak's buffer (`common.cpp`, `transfer_bandwidth.cpp`): half of what one buffer may have, a multiple of a work group,
/// and at most 2^27 `float`s with a processor, 2^29 with any other device.
fn clpeaks_bytes(device: &Device) -> Bytes {
    const ITEM: u64 = 4;
    const GROUP: u64 = 256;
    let most = if device.kind == DeviceKind::Cpu { 1 << 27 } else { 1 << 29 };
    Bytes((device.largest_buffer.0 / ITEM / 2).min(most) / GROUP * GROUP * ITEM)
}

/// Bytes a second by the names of the lines; what comes after those that were asked for is not waited for.
fn clpeak([platform, device]: [usize; 2], names: &[&str]) -> BTreeMap<String, f64> {
    let (platform, device) = (platform.to_string(), device.to_string());
    let mut clpeak = Command::new("clpeak");
    clpeak.args(["--transfer-bandwidth", "-p", &platform, "-d", &device]).stdout(Stdio::piped());
    let mut running =
        clpeak.spawn().unwrap_or_else(|fault| stop(format!("cannot run clpeak: {fault}; apt-get install clpeak")));
    let lines = BufReader::new(running.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
    let rate = |line: String| {
        let (name, rate) = line.split_once(" : ")?;
        Some((name.trim().to_owned(), rate.trim().parse::<f64>().ok()? * 1e9))
    };
    let asked = lines.filter_map(rate).filter(|(name, _)| names.contains(&name.as_str())).take(names.len()).collect();
    let _ = running.kill();
    let _ = running.wait();
    asked
}

/// Bytes a second by the names of the tests. Device 0 is the first that CUDA shows, and the only one of which `SUM` tells where there
/// is one.
fn nvbandwidth(program: &Path, names: &[&str], size: Bytes) -> BTreeMap<String, f64> {
    let size = (size.0 >> 20).to_string();
    let mut what = vec!["-b", &size, "-t"];
    what.extend(names);
    let text = run(program, &what, "build it");
    let line = |line: &str| {
        let (name, rate) = line.strip_prefix("SUM ")?.split_once(' ')?;
        Some((name.to_owned(), rate.trim().parse::<f64>().ok()? * 1e9))
    };
    text.lines().filter_map(line).collect()
}

fn kernels(arena: &mut Arena, options: &Options) {
    let wanted = || KERNELS.iter().filter(|contest| options.wants(contest));
    let Some(program) = &options.babelstream else {
        for contest in wanted() {
            let why = contest.ours.err().unwrap_or("no BabelStream (give --babelstream PATH)");
            arena.pass_over("BabelStream", contest.name, why);
        }
        return;
    };
    let size = Bytes(3 * 8 * options.elements);
    for contest in wanted() {
        let (buffer, action) = match contest.ours {
            Ok(ours) => ours,
            Err(why) => {
                arena.pass_over("BabelStream", contest.name, why);
                continue;
            }
        };
        let case = arena.case(buffer, action, size);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            let is_ours_first = arena.random.bool();
            for is_ours in [is_ours_first, !is_ours_first] {
                match is_ours {
                    true => ours.push(arena.visit(&case, WORKING).payload_bps()),
                    false => theirs.push(babelstream(program, contest.name, options)),
                }
            }
        }
        arena.judge("BabelStream", contest.name, size, &ours, &theirs);
    }
}

/// About 20 repetitions over BabelStream's own default of 768 MiB, by a memory of 30 GB/s.
const WORKING: Duration = Duration::from_millis(500);

/// Bytes a second of a kernel: those of a repetition over the mean time of all but the first.
fn babelstream(program: &Path, kernel: &str, options: &Options) -> f64 {
    let (elements, times) = (options.elements.to_string(), options.times.to_string());
    let device = options.device.number.to_string();
    let what = ["--only", kernel, "--arraysize", &elements, "--numtimes", &times, "--device", &device, "--csv"];
    let text = run(program, &what, "build it with MODEL=ocl or MODEL=cuda");
    // function, num_times, n_elements, sizeof, max_MB_per_sec, min_runtime, max_runtime, avg_runtime
    let row = text.lines().map(|line| line.split(',').collect::<Vec<_>>()).find(|row| row[0] == kernel);
    let number = |column: usize| row.as_ref()?.get(column)?.parse::<f64>().ok();
    let arrays = if matches!(kernel, "Copy" | "Mul") { 2.0 } else { 3.0 };
    let bps = || Some(arrays * number(2)? * number(3)? / number(7)?);
    bps().unwrap_or_else(|| stop(format!("{}: no figure of {kernel} in {text:?}", program.display())))
}

fn run(program: &Path, arguments: &[&str], cure: &str) -> String {
    let name = program.display();
    match Command::new(program).args(arguments).output() {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
        Ok(output) => stop(format!("{name}: {}", String::from_utf8_lossy(&output.stderr))),
        Err(fault) => stop(format!("cannot run {name}: {fault}; {cure}")),
    }
}

fn verdict([_, low, high]: [f64; 3]) -> &'static str {
    // One that is as good at least is `ok`, however far above it may be.
    if low >= 1.0 - EQUAL {
        "ok"
    } else if high < 1.0 - EQUAL {
        "short"
    } else {
        "unsure"
    }
}

fn heading() {
    print_row(&[
        (&"peer", -12),
        (&"its name for it", -31),
        (&"bytes", 8),
        (&"membound GB/s", 13),
        (&"peer GB/s", 10),
        (&"ratio", 6),
        (&"95 % interval", 16),
        (&"", -6),
    ]);
}
