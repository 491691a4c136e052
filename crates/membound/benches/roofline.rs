//! How near the roofline's predictions come to what is measured, in one run.
//!
//! `cargo bench --bench roofline [-- --seconds S --seed N --without-512]`
//!
//! One thread, twelve loops of known balance in the first-level cache and in memory, beside the ceilings that the
//! predictions rest on. All of a level are visited in turns, in random order; the levels one after the other, since a
//! core that waits for memory has another clock than one that computes. A prediction rests on loops without arithmetic
//! and on arithmetic without loads and stores, never on the loop itself. It holds where the median comes within 10 %;
//! where the whole interval does, that is said.
//!
//! Arithmetic of 512 bits has clocks of its own on Intel's cores, which change every few 10 us (docs/method/core-clock.md):
//! `--without-512` holds the model against the same loops without that.

mod common;

use std::time::{Duration, Instant};

use clap::Parser;
use common::{print_row, stop};
use membound::cli::measure::{Session, measure};
use membound_analyze::experiments::bandwidth::rows::BandwidthRow;
use membound_analyze::of_record as model;
use membound_analyze::report::Report;
use membound_core::case::{Case, Work};
use membound_core::experiments::frame::Frame;
use membound_core::experiments::roofline;
use membound_core::in_order::each_once;
use membound_core::kernel::catalog::Kernel;
use membound_core::kernel::isa::Isa;
use membound_core::kernel::{Element, StoreKind};
use membound_core::units::{percent, significant};
use membound_measure::executor::here::Here;
use membound_measure::memory::places::Places;

#[derive(Parser)]
struct Options {
    /// Seconds of the whole run
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    /// Seed of the order of visits
    #[arg(long)]
    seed: Option<u64>,
    /// Vectors of 256 bits at most
    #[arg(long)]
    without_512: bool,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

/// The loops, each with its element.
const LOOPS: [(&str, Element); 12] = [
    ("scale", Element::Double),
    ("add", Element::Double),
    ("triad", Element::Double),
    ("schoenauer", Element::Double),
    ("update", Element::Double),
    ("daxpy", Element::Double),
    ("sum", Element::Double),
    ("dot", Element::Double),
    ("jacobi", Element::Double),
    ("jacobi-long", Element::Double),
    ("triad", Element::Float),
    ("dot", Element::Float),
];
/// What a prediction may be off.
const MARGIN: f64 = 0.10;

fn main() {
    let options = Options::parse();
    let seed = options.seed.unwrap_or_else(common::fresh_seed);
    let machine = membound_measure::machine::live();
    let detected = membound_measure::asm::detect();
    let isa = Isa { avx512: detected.avx512 && !options.without_512, ..detected };
    let frame = Frame::new(&machine, isa, None).unwrap_or_else(|fault| stop(fault));
    let time = Duration::from_secs_f64(options.seconds);
    let cases = cases(&frame);
    println!("{}\nseed {seed}, {} cases\n", machine.summary(), cases.len());
    let (nearest, memory): (Vec<Case>, Vec<Case>) =
        cases.iter().cloned().partition(|case| case.working_set < frame.memory_size(1));
    let curve =
        memory.iter().chain(&nearest).filter(|case| case.variant().is_some_and(|v| v.kernel == "load")).cloned();
    let parts = [("L1", nearest.clone(), 31), ("memory", each_once(memory.iter().cloned().chain(curve)), 7)];
    let mut found = [0; 3];
    for (level, cases, samples) in parts {
        let mut here = Here::new(&cases, Places::default(), false).unwrap_or_else(|fault| stop(fault));
        let deadline = Instant::now() + time / 2;
        let session = Session { seed, ..Session::silent(machine.clone(), deadline, samples) };
        let finished = measure(&cases, &mut here, &session).unwrap_or_else(|fault| stop(fault));
        let counts = show(&model::report(&finished.record), level);
        found = std::array::from_fn(|index| found[index] + counts[index]);
    }
    let [all, middle, whole] = found;
    println!("{middle} of {all} within {} of the prediction, {whole} with their whole interval", percent(MARGIN));
}

/// The usual cases of one thread, the loops that are not among them, and single-precision ones with their ceilings.
fn cases(frame: &Frame) -> Vec<Case> {
    let usual = roofline::roofline(frame, 1, Duration::MAX).unwrap_or_else(|fault| stop(fault));
    let mut cases: Vec<Case> = usual.into_iter().filter(|case| case.threads() == 1).collect();
    let of = |cases: &[Case], kernel: &str| -> Vec<Case> {
        let is_ours = |case: &&Case| case.variant().is_some_and(|variant| variant.kernel == kernel);
        cases.iter().filter(is_ours).cloned().collect()
    };
    let with = |case: Case, kernel: &str, element: Element| match case.work {
        Work::Kernel(variant) => Case {
            work: Work::Kernel(membound_core::kernel::Variant { kernel: kernel.into(), element, ..variant }),
            ..case
        },
        _ => case,
    };
    let long = of(&cases, "jacobi").into_iter().map(|case| with(case, "jacobi-long", Element::Double));
    let single = ["load", "store", "copy", "add", "triad", "dot"].into_iter().flat_map(|kernel| {
        let sizes = of(&cases, "triad")
            .into_iter()
            .filter(|case| case.variant().is_some_and(|variant| variant.store == StoreKind::Regular));
        sizes.map(move |case| with(case, kernel, Element::Float)).collect::<Vec<_>>()
    });
    let more: Vec<Case> = long.chain(single.collect::<Vec<_>>()).collect();
    cases.extend(more);
    each_once(cases)
}

/// Prints a level's loops; how many there are, how many come within the margin, how many with their whole interval.
fn show(report: &Report, level: &str) -> [usize; 3] {
    println!("{level}");
    heading();
    let mut counts = [0; 3];
    for (kernel, element) in LOOPS {
        match ratio(report, level, kernel, element) {
            Some([middle, whole]) => {
                counts = [counts[0] + 1, counts[1] + usize::from(middle), counts[2] + usize::from(whole)];
            }
            None => println!("{kernel}, {element}: not measured in {level}"),
        }
    }
    println!();
    counts
}

fn heading() {
    print_row(&[
        (&"loop", -40),
        (&"flop/B", 7),
        (&"predicted", 10),
        (&"measured", 10),
        (&"measured/predicted [95 %]", 28),
        (&"waits for", -11),
        (&"", -13),
    ]);
}

/// Prints a line; whether the median and whether the whole interval lies within the margin.
fn ratio(report: &Report, level: &str, kernel: &str, element: Element) -> Option<[bool; 2]> {
    let is_ours =
        |row: &BandwidthRow| row.kernel() == kernel && row.element() == element && row.store() == StoreKind::Regular;
    let mut points = report.roofline.points.iter().filter(|point| point.level == level);
    let point = points.find(|point| report.rows.get(point.row).is_some_and(is_ours))?;
    let [middle, low, high] = point.fraction;
    let is_within = (middle - 1.0).abs() <= MARGIN;
    let whole = low >= 1.0 - MARGIN && high <= 1.0 + MARGIN;
    let text = Kernel::named(kernel).map_or(kernel, |kernel| kernel.text);
    let name: String = format!("{text} ({element})").chars().take(40).collect();
    print_row(&[
        (&name, -40),
        (&significant(point.intensity), 7),
        (&significant(point.predicted / 1e9), 10),
        (&significant(point.flops_per_s[0] / 1e9), 10),
        (&format!("{middle:.3} [{low:.3}, {high:.3}]"), 28),
        (&point.bound.map_or_else(|| "unknown".into(), |bound| bound.to_string()), -11),
        (&["beyond 10 %", "within 10 %", "wholly within"][usize::from(is_within) + usize::from(whole)], -13),
    ]);
    Some([is_within, whole])
}
