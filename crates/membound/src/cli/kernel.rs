//! `membound kernel`: a loop of the user's own, measured; the catalog; the machine code that will run.

use std::time::Duration;

use clap::Args;

use crate::cli::args::{ChoiceArgs, Done, Format, PlaceArgs, RunArgs, refuse};
use crate::cli::measure::Job;
use crate::cli::usage;
use crate::cli::words::one_of;
use membound_analyze::across::sections::kernel as sections;
use membound_analyze::output::terminal;
use membound_analyze::report::Report;
use membound_core::case as plan;
use membound_core::case::Case;
use membound_core::experiments::bandwidth;
use membound_core::experiments::choice::{Choice, kernels};
use membound_core::kernel::catalog::{CATALOG, Kernel};
use membound_core::kernel::formula::{Formula, IndexOrder};
use membound_core::kernel::{LoadKind, StoreKind, Unsupported, Variant, Width};
use membound_core::units::words;
use membound_measure::asm::{assemble, listing};

words! {
    /// What index streams hold.
    IndexWord, "order of indices" {
        /// Every place once, in random order.
        Random = "random",
        /// One place after the other.
        Sequential = "sequential",
    }
}

/// Flags of `membound kernel`. `--list` alone lists the kernels, with a loop its cases.
#[derive(Debug, Clone, Args)]
#[command(mut_arg("kernel", |flag| flag.hide(true)))]
pub struct KernelArgs {
    /// The loop: one or more statements for each element, such as 'a[i] = b[i] + s*c[i]' or 'x += a[i]*b[i]'.
    /// + - * / min max sqrt abs fma; offsets b[i-1]; gathers b[k[i]]; a kernel's name does, too
    #[arg(value_name = "LOOP", conflicts_with = "listing")]
    pub text: Option<String>,
    /// Show the machine code of this kernel or loop, decoded from the bytes that will run
    #[arg(long, value_name = "NAME|LOOP")]
    pub listing: Option<String>,
    /// Give a scalar of the loop a value of its own, such as s=0.25 [default: 3, or 1 where a stream is changed in place]
    #[arg(long, value_name = "NAME=NUMBER", value_parser = scalar, allow_hyphen_values = true)]
    pub set: Vec<(String, f64)>,
    /// What index streams hold [default: random]
    #[arg(long, value_name = "ORDER", value_parser = one_of::<IndexWord>())]
    pub index: Option<IndexWord>,
    /// What to measure
    #[command(flatten)]
    pub choice: ChoiceArgs,
    /// Where memory comes from
    #[command(flatten)]
    pub places: PlaceArgs,
    /// How to run
    #[command(flatten)]
    pub run: RunArgs,
}

/// Enough for the usual choice on a quiet machine.
pub(crate) const BUDGET: Duration = Duration::from_secs(15);

fn scalar(text: &str) -> Result<(String, f64), String> {
    let (name, value) =
        text.split_once('=').ok_or_else(|| format!("'{text}' gives no scalar a value, as s=0.25 does"))?;
    match value.trim().parse::<f64>() {
        Ok(value) if value.is_finite() => Ok((name.trim().into(), value)),
        _ => Err(format!("'{}' is no number such as 0.25 or 1e-3", value.trim())),
    }
}

/// Measures a loop, or tells what there is.
pub fn run(args: &KernelArgs) -> anyhow::Result<Done> {
    match (&args.text, &args.listing) {
        (Some(text), _) => measured(kernel(text, args)?, args),
        (None, Some(name)) => {
            refuse_what_measures(args)?;
            code(kernel(name, args)?, args).map(Done::ok)
        }
        (None, None) if args.run.list => {
            refuse([("--format", args.run.format != Format::Table)], "--list prints names and loops as text")?;
            Ok(Done::ok(catalog()))
        }
        (None, None) => Err(usage(
            "give a loop, such as 'a[i] = b[i] + s*c[i]', --list for the kernels there are, or --listing NAME",
        )),
    }
}

/// The kernel of that name, or the loop with what the flags say of it.
fn kernel(name: &str, args: &KernelArgs) -> anyhow::Result<&'static Kernel> {
    if !args.choice.kernel.is_empty() {
        return Err(usage("--kernel does not apply here: give the loop itself; `membound bandwidth` takes --kernel"));
    }
    let known = CATALOG.iter().find(|kernel| kernel.name == name);
    if args.set.is_empty() && args.index.is_none() {
        return Kernel::find(name).map_err(usage);
    }
    let mut formula = Formula::parse(known.map_or(name, |kernel| kernel.text)).map_err(usage)?;
    for (at, (scalar, value)) in args.set.iter().enumerate() {
        if args.set[..at].iter().any(|(other, _)| other == scalar) {
            return Err(usage(format!("--set gives the scalar '{scalar}' two values; give it one")));
        }
        formula.set(scalar, *value).map_err(usage)?;
    }
    if args.index.is_some() && !formula.gathers() {
        return Err(usage("the loop has no index stream, such as k in b[k[i]]; leave out --index"));
    }
    match args.index {
        Some(IndexWord::Random) => formula.order = IndexOrder::Random,
        Some(IndexWord::Sequential) => formula.order = IndexOrder::Sequential,
        None => {}
    }
    Kernel::find(&formula.to_string()).map_err(usage)
}

fn measured(kernel: &'static Kernel, args: &KernelArgs) -> anyhow::Result<Done> {
    let (job, frame) = Job::begin(&args.run, BUDGET, table)?;
    let choice = Choice { kernels: vec![kernel], ..args.choice.choice(&frame)? };
    let mut cases = kernels(&frame, &choice).map_err(usage)?;
    refuse_what_no_code_does(&cases)?;
    // Sizes that the user chose may be those of a cache.
    if choice.sizes.is_empty() {
        cases.extend(bandwidth::triad_beside(&frame, &choice).map_err(usage)?);
    }
    job.placed(&args.places).finish(&cases)
}

fn table(report: &Report) -> String {
    terminal::section::document(&sections::document(&report.rows, &report.warnings))
}

/// A loop of which no case has machine code is wrong usage; else those that have none say why among the others.
fn refuse_what_no_code_does(cases: &[Case]) -> anyhow::Result<()> {
    let isa = membound_measure::asm::detect();
    let tried: Vec<Result<_, Unsupported>> =
        cases.iter().filter_map(Case::variant).map(|variant| assemble(variant, isa)).collect();
    match tried.iter().find_map(|result| result.as_ref().err()) {
        Some(fault) if tried.iter().all(Result::is_err) => Err(usage(fault)),
        _ => Ok(()),
    }
}

fn catalog() -> String {
    let mut text = format!("{:<12} {:<9} {:>5}  {}\n", "KERNEL", "TRAFFIC", "FLOPS", "LOOP");
    for kernel in CATALOG {
        let (letters, flops) = (kernel.traffic_letters(), kernel.formula().flops());
        text.push_str(&format!("{:<12} {letters:<9} {flops:>5}", kernel.name));
        for (index, line) in lines_of_loop(kernel.text).into_iter().enumerate() {
            let indent = [2, INDENT + 2][index.min(1)];
            text.push_str(&format!("{:indent$}{line}\n", ""));
        }
        text.push_str(&format!("{:INDENT$}{}\n", "", kernel.about));
    }
    text.push_str(
        "\nTraffic for each element (of 8 bytes; 4 with --element float): L loads,\nS stores, WA a write-allocate with \
         regular stores.\n",
    );
    text
}

/// Columns before a loop in the catalog.
const INDENT: usize = 30;

/// A loop in lines that fit a terminal beside its name, broken before an operator.
fn lines_of_loop(text: &str) -> Vec<String> {
    const WIDTH: usize = 80 - INDENT - 2;
    let mut lines = vec![String::new()];
    for part in text.split_inclusive(" + ") {
        // The operator goes with what follows it.
        let part = part.strip_suffix("+ ").unwrap_or(part);
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(part),
            Some(line) if line.len() + part.trim_end().len() + 2 <= WIDTH => *line += &format!("+ {part}"),
            _ => lines.push(format!("+ {part}")),
        }
    }
    lines.into_iter().map(|line| line.trim_end().into()).collect()
}

/// A flag that a listing would ignore is refused.
fn refuse_what_measures(args: &KernelArgs) -> anyhow::Result<()> {
    let ChoiceArgs { size, memory, node, threads, misalign, .. } = &args.choice;
    let own = [
        ("--size", !size.is_empty()),
        ("--memory", !memory.is_empty()),
        ("--node", node.is_some()),
        ("--threads", !threads.is_empty()),
        ("--misalign", *misalign > 0),
        ("--format", args.run.format != Format::Table),
    ];
    let all = own.into_iter().chain(args.places.flags()).chain(args.run.flags_of_measuring());
    refuse(all, "--listing shows machine code and measures nothing")
}

/// The machine code of each width, store and load kind asked for.
fn code(kernel: &Kernel, args: &KernelArgs) -> anyhow::Result<String> {
    let choice = &args.choice;
    let widest = membound_measure::asm::detect().widths().last().copied().unwrap_or(Width::Scalar);
    let widths = if choice.width.is_empty() { &[widest][..] } else { &choice.width };
    let stores = if choice.store.is_empty() { &[StoreKind::Regular][..] } else { &choice.store };
    let loads = if choice.load.is_empty() { &[LoadKind::Regular][..] } else { &choice.load };
    let mut listings = Vec::new();
    for &width in widths {
        for store in stores {
            for load in loads {
                listings.push(code_of(kernel, choice, (width, *store, *load))?);
            }
        }
    }
    Ok(listings.join("\n"))
}

fn code_of(
    kernel: &Kernel,
    choice: &ChoiceArgs,
    (width, store, load): (Width, StoreKind, LoadKind),
) -> anyhow::Result<String> {
    let isa = membound_measure::asm::detect();
    let usual = plan::usual(kernel.name, width, store);
    let variant = Variant { element: choice.element, load, unroll: choice.unroll.unwrap_or(usual.unroll), ..usual };
    let machine_code = assemble(&variant, isa).map_err(usage)?;
    let head = format!("; {variant}, unroll {}: {}\n; {}\n", variant.unroll, kernel.text, kernel.traffic_letters());
    Ok(head + &listing(&machine_code))
}
