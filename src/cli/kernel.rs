//! `membound kernel`: the catalog, and the machine code that will run.

use clap::Args;

use super::usage;
use crate::kernel::{CATALOG, Element, Isa, Kernel, LoadKind, StoreKind, Variant, Width, assemble, listing};
use crate::plan;

/// Flags of `membound kernel`.
#[derive(Debug, Clone, Args)]
pub struct KernelArgs {
    /// Show all kernels with their loops and traffic
    #[arg(long, required_unless_present = "listing", conflicts_with = "listing")]
    pub list: bool,
    /// Show the machine code of this kernel, decoded from the bytes that will run
    #[arg(long, value_name = "NAME")]
    pub listing: Option<String>,
    /// Width: scalar, 128, 256, 512 [default: the widest]
    #[arg(long)]
    pub width: Option<Width>,
    /// What streams are arrays of: double (8 bytes), float (4 bytes)
    #[arg(long, default_value_t = Element::Double)]
    pub element: Element,
    /// Store kind: regular, nt, nt-masked, rep
    #[arg(long, default_value_t = StoreKind::Regular)]
    pub store: StoreKind,
    /// Load kind: regular, nt
    #[arg(long, default_value_t = LoadKind::Regular)]
    pub load: LoadKind,
    /// Accesses in one trip of the main loop
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=32))]
    pub unroll: Option<u32>,
}

/// The text to print.
pub fn run(args: &KernelArgs) -> anyhow::Result<String> {
    match &args.listing {
        Some(name) => code(name, args),
        None => Ok(catalog()),
    }
}

fn catalog() -> String {
    let mut text = format!("{:<12} {:<9} {:>5}  {}\n", "KERNEL", "TRAFFIC", "FLOPS", "LOOP");
    for kernel in CATALOG {
        let (letters, flops) = (kernel.traffic_letters(), kernel.formula().flops());
        text.push_str(&format!(
            "{:<12} {letters:<9} {flops:>5}  {}\n{:>29} {}\n",
            kernel.name, kernel.text, "", kernel.about
        ));
    }
    text.push_str(
        "\nTraffic for each element (of 8 bytes; 4 with --element float): L loads, S stores, WA a write-allocate with \
         regular stores.\n",
    );
    text
}

fn code(name: &str, args: &KernelArgs) -> anyhow::Result<String> {
    let kernel = Kernel::find(name).map_err(usage)?;
    let isa = Isa::detect();
    let width = args.width.or_else(|| isa.widths().last().copied()).unwrap_or(Width::Scalar);
    let variant = Variant {
        kernel: name.into(),
        element: args.element,
        width,
        store: args.store,
        load: args.load,
        unroll: args.unroll.unwrap_or_else(|| plan::unroll(width)),
    };
    let machine_code = assemble(&variant, isa).map_err(usage)?;
    let head = format!("; {variant}, unroll {}: {}\n; {}\n", variant.unroll, kernel.text, kernel.traffic_letters());
    Ok(head + &listing(&machine_code))
}
