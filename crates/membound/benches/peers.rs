//! membound against likwid-bench: same kernel, same working set, same CPUs, same payload bytes.
//!
//! `cargo bench --bench peers [-- --level L1 --kernel copy --threads 2 --rounds N --seconds S --screenings N --seed N]`
//!
//! Each row is a contest of the two tools' best code. First both sides' candidates are screened: ours are all widths,
//! unrolled as the tool does it; likwid's are all its variants of the kernel; each is tried as often as any other. Then the two
//! winners meet in rounds, in random order within a round: the two visits of a round are a pair, so that a slow spell of the machine
//! falls on both.
//!
//! - *Payload*: both count what the loop reads and writes, without write-allocates (`likwid-bench -l KERNEL` tells the
//!   bytes of an element: they are ours). likwid's `update` stores what it loaded; ours here is `rewrite`, which clears a
//!   bit in between: a multiplication costs 4 % in L2 (Emerald Rapids, 128 bits).
//! - *Stores*: `store` means regular stores, `nt store` non-temporal ones, on both sides. Elsewhere stores are regular,
//!   but at memory level the better kind counts, on each side for itself, if likwid has both.
//! - *Figure*: all bytes over all time of a visit, since that is the only one that likwid gives. It is hard on our side:
//!   likwid's threads run freely, ours meet before each sample, so each waits for the other's disturbances, too. On a busy
//!   machine that can be most of the time.
//! - *Pages*: huge ones on both sides (see `common/likwid.rs`).
//!
//! `ok`: the ratio's 95 % interval lies above 0.98. `short`: it lies below. `unsure`: it holds 0.98, so nothing was shown: give more
//! rounds, for all rows. The exit code does not depend on that; it is 2 where likwid-bench is missing.

mod common;
#[path = "common/likwid.rs"]
mod likwid;

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Parser;
use common::{Bench, Visit, print_row, stop};
use likwid::Likwid;
use membound_core::case::Case;
use membound_core::kernel::catalog::Kernel;
use membound_core::kernel::{StoreKind, Width};
use membound_core::stats;
use membound_core::stats::compare;
use membound_core::units::Bytes;

#[derive(Parser)]
struct Options {
    /// Levels to look at: L1, L2, L3, memory [default: all]
    #[arg(long, value_delimiter = ',')]
    level: Vec<String>,
    /// Contests to hold: load, store, 'nt store', copy, triad, daxpy, update [default: all]
    #[arg(long, value_delimiter = ',')]
    kernel: Vec<String>,
    /// Threads [default: 1 and all]
    #[arg(long, value_delimiter = ',')]
    threads: Vec<usize>,
    /// Rounds in which the winners meet
    #[arg(long, default_value_t = 10)]
    rounds: u32,
    /// Seconds of one visit, on each side
    #[arg(long, default_value_t = 0.1)]
    seconds: f64,
    /// Times that each candidate is tried; its best counts
    #[arg(long, default_value_t = 1)]
    screenings: u32,
    /// Seed of the order within rounds
    #[arg(long)]
    seed: Option<u64>,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

/// The least ratio that is as good as theirs.
const EQUIVALENT: f64 = 0.98;

/// What is compared: our kernel and likwid's names for it.
struct Contest {
    name: &'static str,
    kernel: &'static str,
    store: StoreKind,
    likwid: &'static [&'static str],
    /// With non-temporal stores, which compete at memory level; empty where likwid has none.
    likwid_nt: &'static [&'static str],
}

const fn contest(
    name: &'static str,
    kernel: &'static str,
    likwid: &'static [&'static str],
    likwid_nt: &'static [&'static str],
) -> Contest {
    Contest { name, kernel, store: StoreKind::Regular, likwid, likwid_nt }
}

const CONTESTS: [Contest; 7] = [
    // load_mem loads with movntdqa, which is an ordinary load on ordinary memory.
    contest("load", "load", &["load", "load_mem"], &[]),
    contest("store", "store", &["store"], &[]),
    Contest { store: StoreKind::Nt, ..contest("nt store", "store", &["store_mem"], &[]) },
    contest("copy", "copy", &["copy"], &["copy_mem"]),
    contest("triad", "triad", &["stream"], &["stream_mem"]),
    contest("daxpy", "daxpy", &["daxpy"], &["daxpy_mem"]),
    contest("update", "rewrite", &["update"], &[]),
];

/// So many of likwid's candidates, the best with few threads, are tried with more: each start takes it a second.
const KEPT: usize = 2;

/// One row of the table.
struct Row<'a> {
    contest: &'a Contest,
    level: String,
    working_set: Bytes,
    cpus: Vec<u32>,
}

fn main() {
    let options = Options::parse();
    let likwid = Likwid::find().unwrap_or_else(|fault| stop(fault));
    let mut arena = Arena { bench: Bench::new(), likwid, random: fastrand::Rng::new(), seconds: options.seconds };
    let seed = options.seed.unwrap_or_else(common::fresh_seed);
    arena.random.seed(seed);
    println!("{}\nseed {seed}, {} rounds of {} s\n", arena.bench.machine.summary(), options.rounds, options.seconds);
    let rows = rows(&arena, &options);
    arena.expect(&rows);
    heading();
    let (mut verdicts, mut hopeful) = (BTreeMap::new(), BTreeMap::new());
    for row in &rows {
        *verdicts.entry(hold(&mut arena, row, &options, &mut hopeful)).or_insert(0) += 1;
    }
    let counts: Vec<String> = verdicts.iter().map(|(verdict, count)| format!("{count} {verdict}")).collect();
    println!("\n{} rows: {}", rows.len(), counts.join(", "));
}

fn rows<'a>(arena: &Arena, options: &Options) -> Vec<Row<'a>> {
    let most = arena.bench.frame.placement.most();
    let mut counts = if options.threads.is_empty() { vec![1, most] } else { options.threads.clone() };
    counts.dedup();
    let cpus: Vec<Vec<u32>> = counts.into_iter().map(|threads| arena.cpus(threads)).collect();
    let wanted = |list: &[String], name: &str| list.is_empty() || list.iter().any(|word| word == name);
    let mut rows = Vec::new();
    for contest in CONTESTS.iter().filter(|contest| wanted(&options.kernel, contest.name)) {
        for cpus in &cpus {
            for (level, working_set) in arena.bench.levels(contest.kernel, cpus.len()) {
                if wanted(&options.level, &level) {
                    rows.push(Row { contest, level, working_set, cpus: cpus.clone() });
                }
            }
        }
    }
    if rows.is_empty() {
        stop("nothing to compare; see --help for the levels and kernels there are");
    }
    // Stable: level by level, kernels in the order of the table, few threads first.
    rows.sort_by(|a, b| a.level.cmp(&b.level));
    rows
}

/// Both sides.
struct Arena {
    bench: Bench,
    likwid: Likwid,
    random: fastrand::Rng,
    seconds: f64,
}

impl Arena {
    /// The CPUs that likwid puts so many threads on: ours go to the same ones.
    fn cpus(&self, threads: usize) -> Vec<u32> {
        let run = self.likwid.run("load", Bytes(threads as u64 * 65536), threads, 10);
        let cpus = run.map(|run| run.cpus).unwrap_or_default();
        if cpus.len() == threads {
            cpus
        } else {
            stop(format!("likwid-bench can't run {threads} threads; give fewer with --threads"))
        }
    }

    /// Reserves memory once for all rows, as a run of the tool does.
    fn expect(&mut self, rows: &[Row<'_>]) {
        let bench = &self.bench;
        let case = |row: &Row<'_>| {
            bench.case(row.contest.kernel, Width::Scalar, row.contest.store, &row.cpus, row.working_set)
        };
        let cases: Vec<Case> = rows.iter().map(case).collect();
        self.bench.expect(&cases);
    }

    fn visit(&mut self, case: &Case) -> Option<Visit> {
        let visit = self.bench.visit(case, Duration::from_secs_f64(self.seconds));
        visit.map_err(|reason| eprintln!("{case}: {reason}")).ok()
    }

    /// As many iterations as take the time of a visit at `bps`.
    fn likwids(&self, kernel: &str, case: &Case, bps: f64) -> Option<likwid::Run> {
        let iterations = (self.seconds * bps / payload(case)).max(3.0) as u64;
        let run = self.likwid.run(kernel, case.working_set, case.threads(), iterations);
        if run.is_none() {
            eprintln!("{kernel}: likwid-bench failed");
        }
        run
    }
}

/// Payload bytes of one pass.
fn payload(case: &Case) -> f64 {
    let variant = common::variant(case);
    let bytes = variant.row().map_or(8, |kernel: &Kernel| kernel.traffic(variant.store, variant.element).payload());
    case.working_set.0 as f64 / common::streams(&variant.kernel) as f64 / variant.element.bytes() as f64 * bytes as f64
}

/// likwid's kernels worth trying again, by level and contest.
type Hopeful = BTreeMap<(String, &'static str), Vec<String>>;

/// Holds a contest and prints its row; returns the verdict.
fn hold(arena: &mut Arena, row: &Row<'_>, options: &Options, hopeful: &mut Hopeful) -> &'static str {
    let pair = screen_ours(arena, row, options.screenings)
        .and_then(|ours| Some((screen_likwid(arena, row, &ours, options.screenings, hopeful)?, ours)));
    let Some((theirs, mut ours)) = pair else {
        println!("{:<6}  {:<8}  {:>7}  nothing to compare", row.level, row.contest.name, row.cpus.len());
        return "not compared";
    };
    ours.case.working_set = theirs.working_set;
    let [a, b] = meet(arena, &ours, &theirs, options);
    let ratio = ratio_of_pairs(&a, &b);
    let verdict = verdict(ratio);
    print(row, &ours, &theirs, [&a, &b].map(|figures| median(figures)), ratio, verdict);
    verdict
}

/// Our best, and how fast it was when screened.
struct Ours {
    case: Case,
    bps: f64,
}

/// likwid's best, and the working set that it makes of the one asked for.
struct Theirs {
    kernel: String,
    working_set: Bytes,
    bps: f64,
}

/// Whether non-temporal stores compete beside regular ones.
fn both_stores(row: &Row<'_>) -> bool {
    row.level == "memory" && !row.contest.likwid_nt.is_empty()
}

fn screen_ours(arena: &mut Arena, row: &Row<'_>, times: u32) -> Option<Ours> {
    let mut stores = vec![row.contest.store];
    stores.extend(both_stores(row).then_some(StoreKind::Nt));
    let mut cases = Vec::new();
    for &width in &arena.bench.frame.widths {
        for &store in &stores {
            cases.push(arena.bench.case(row.contest.kernel, width, store, &row.cpus, row.working_set));
        }
    }
    let tries = (0..times).flat_map(|_| cases.iter());
    let screened = tries.filter_map(|case| Some(Ours { bps: arena.visit(case)?.payload_bps(), case: case.clone() }));
    screened.max_by(|a, b| a.bps.total_cmp(&b.bps))
}

fn screen_likwid(arena: &Arena, row: &Row<'_>, ours: &Ours, times: u32, hopeful: &mut Hopeful) -> Option<Theirs> {
    let mut names = arena.likwid.variants(row.contest.likwid);
    if both_stores(row) {
        names.extend(arena.likwid.variants(row.contest.likwid_nt));
    }
    let hopeful = hopeful.entry((row.level.clone(), row.contest.name)).or_insert(names);
    let run = |kernel: &String| {
        let run = arena.likwids(kernel, &ours.case, ours.bps)?;
        Some(Theirs { kernel: kernel.clone(), working_set: run.working_set, bps: run.payload_bps })
    };
    let mut screened: Vec<Theirs> = (0..times).flat_map(|_| hopeful.iter()).filter_map(run).collect();
    screened.sort_by(|a, b| b.bps.total_cmp(&a.bps));
    hopeful.clear();
    for theirs in &screened {
        if hopeful.len() < KEPT && !hopeful.contains(&theirs.kernel) {
            hopeful.push(theirs.kernel.clone());
        }
    }
    screened.into_iter().next()
}

/// Payload bytes a second of each side, round by round.
fn meet(arena: &mut Arena, ours: &Ours, theirs: &Theirs, options: &Options) -> [Vec<f64>; 2] {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        let ours_first = arena.random.bool();
        for ours_now in [ours_first, !ours_first] {
            if ours_now {
                a.push(arena.visit(&ours.case).map_or(f64::NAN, |visit| visit.payload_bps()));
            } else {
                let run = arena.likwids(&theirs.kernel, &ours.case, theirs.bps);
                b.push(run.map_or(f64::NAN, |run| run.payload_bps));
            }
        }
    }
    [a, b]
}

/// The typical ratio of a round, with its 95 % interval.
fn ratio_of_pairs(a: &[f64], b: &[f64]) -> [f64; 3] {
    let ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| a / b).collect();
    compare::ratio_of_draws(&ratios.chunks(1).collect::<Vec<_>>(), &[&[1.0], &[1.0]])
}

fn median(figures: &[f64]) -> f64 {
    stats::summarize(&[figures]).map_or(f64::NAN, |summary| summary.median)
}

fn verdict([_, low, high]: [f64; 3]) -> &'static str {
    if low >= EQUIVALENT {
        "ok"
    } else if high < EQUIVALENT {
        "short"
    } else if high >= EQUIVALENT {
        "unsure"
    } else {
        "not compared"
    }
}

fn heading() {
    print_row(&[
        (&"level", -6),
        (&"kernel", -8),
        (&"threads", 7),
        (&"set", 8),
        (&"membound", -14),
        (&"GB/s", 7),
        (&"likwid-bench", -20),
        (&"GB/s", 7),
        (&"ratio", 6),
        (&"95 % interval", 16),
        (&"", -6),
    ]);
}

fn print(row: &Row<'_>, ours: &Ours, theirs: &Theirs, medians: [f64; 2], ratio: [f64; 3], verdict: &str) {
    let variant = common::variant(&ours.case);
    print_row(&[
        (&row.level, -6),
        (&row.contest.name, -8),
        (&row.cpus.len(), 7),
        (&theirs.working_set.to_string(), 8),
        (&format!("{} {}", variant.width, variant.store), -14),
        (&format!("{:.1}", medians[0] / 1e9), 7),
        (&theirs.kernel, -20),
        (&format!("{:.1}", medians[1] / 1e9), 7),
        (&format!("{:.3}", ratio[0]), 6),
        (&format!("[{:.3}, {:.3}]", ratio[1], ratio[2]), 16),
        (&verdict, -6),
    ]);
}
