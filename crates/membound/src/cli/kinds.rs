//! `membound kinds`: which kind of memory should a buffer be, and what do its pages and its alignment cost?

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::cli::args::{Done, PlaceArgs, RunArgs, node_number, refuse, working_set};
use crate::cli::count::Threads;
use crate::cli::measure::Job;
use crate::cli::memory::MemoryList;
use crate::cli::usage::usage;
use crate::cli::words::one_of;
use crate::cli::{memory, words};
use membound_analyze::output::terminal;
use membound_analyze::report::Report;
use membound_core::case::Case;
use membound_core::experiments::choice::{Breadth, Choice};
use membound_core::experiments::frame::Frame;
use membound_core::experiments::{device, kinds, offsets, pages};
use membound_core::kernel::{Element, Width};
use membound_core::machine::devices::{Device, DeviceName};
use membound_core::memory::{MemoryKind, MemorySpec};
use membound_core::units::Bytes;
use membound_measure::executor::device::discover;

/// Flags of `membound kinds`.
#[derive(Debug, Clone, Args)]
pub struct KindsArgs {
    /// Kinds, such as 4k,thp,wc [default: all], and where they lie, such as thp@node1 (see `membound bandwidth --help`)
    #[arg(long, value_name = "LIST", value_parser = words::memory())]
    pub memory: Vec<MemoryList>,
    /// Bind their pages to this NUMA node, where --memory names no place
    #[arg(long, value_name = "NODE", value_parser = node_number())]
    pub node: Option<u32>,
    /// Size of the buffer [default: 32MiB, less where memory is short]
    #[arg(long, value_name = "SIZE", value_parser = working_set)]
    pub size: Option<Bytes>,
    /// Threads that share the buffer
    #[arg(long, value_name = "N", value_parser = words::threads(), hide_possible_values = true)]
    pub threads: Option<Threads>,
    /// Width [default: the widest]
    #[arg(long, value_parser = one_of::<Width>())]
    pub width: Option<Width>,
    /// What the buffer is an array of: double (8 bytes), float (4 bytes)
    #[arg(long, default_value_t = Element::Double, value_parser = one_of::<Element>())]
    pub element: Element,
    /// Parts to measure [default: all; with --memory or --node all but offsets]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub part: Vec<Part>,
    /// Where memory comes from
    #[command(flatten)]
    pub places: PlaceArgs,
    /// How to run
    #[command(flatten)]
    pub run: RunArgs,
}

/// A part of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// First use, copying, storing and loading for each kind
    Buffers,
    /// What a page costs: faults, zeroing, giving back, copy-on-write, collapse
    Pages,
    /// What an offset costs: crossing lines and pages, aliasing, forwarding
    Offsets,
    /// Of a device with a driver: STREAM's kernels and a pointer chase, done by the device
    Kernels,
    /// Of a device with a driver: what its copies cost the processor, and the other way round
    Contention,
}

const BUDGET: Duration = Duration::from_secs(60);
/// A round of all kinds of buffers takes some 20 s.
const BUDGET_ON_DEVICES: Duration = Duration::from_secs(120);

impl KindsArgs {
    /// What a run takes without `--budget`.
    pub(crate) fn usual_budget(&self) -> Duration {
        if self.places.driven().is_some() { BUDGET_ON_DEVICES } else { BUDGET }
    }

    fn wants(&self, part: Part) -> bool {
        self.part.is_empty() || self.part.contains(&part)
    }

    /// Parts that only something else has.
    fn refuse_parts(&self, parts: &[Part], owner: &str) -> anyhow::Result<()> {
        let word =
            |part: &Part| part.to_possible_value().map_or_else(String::new, |value| value.get_name().to_string());
        match self.part.iter().find(|part| parts.contains(part)) {
            Some(part) => Err(usage(format!("--part {} is one of {owner}", word(part)))),
            None => Ok(()),
        }
    }

    /// The cases of a device.
    fn cases_of(&self, frame: &Frame, device: &Device) -> anyhow::Result<Vec<Case>> {
        self.refuse_parts(&[Part::Pages, Part::Offsets], "the processor's own memory; leave --device out")?;
        let own = [("--memory", !self.memory.is_empty()), ("--node", self.node.is_some())];
        let places = self.places.flags().into_iter().filter(|(flag, _)| *flag != "--device");
        refuse(own.into_iter().chain(places), "a device with a driver has kinds of buffers of its own")?;
        refuse(self.flags_of_work(), "what a device with a driver works on is chosen by --size and --part alone")?;
        let parts = device::Parts {
            buffers: self.wants(Part::Buffers),
            kernels: self.wants(Part::Kernels),
            contention: self.wants(Part::Contention),
        };
        device::device(frame, device, self.size, parts).map_err(usage)
    }

    /// Flags that choose how the processor works on the buffer.
    fn flags_of_work(&self) -> [(&'static str, bool); 3] {
        [
            ("--threads", self.threads.is_some()),
            ("--width", self.width.is_some()),
            ("--element", !self.element.is_usual()),
        ]
    }

    /// The kinds that were named, and where they lie; where a node alone was named, all kinds on it.
    fn memory(&self) -> anyhow::Result<Vec<MemorySpec>> {
        let named = memory::without_streams(&self.memory, self.node)?;
        let all = || MemoryKind::ALL.iter().map(|&kind| memory::on(kind, self.node)).collect();
        Ok(if named.is_empty() && self.node.is_some() { all() } else { named })
    }

    fn cases(&self, frame: &Frame) -> anyhow::Result<Vec<Case>> {
        self.refuse_parts(&[Part::Kernels, Part::Contention], "a device with a driver, such as --device opencl:0")?;
        if !self.wants(Part::Buffers) {
            let size = [("--size", self.size.is_some())];
            refuse(size.into_iter().chain(self.flags_of_work()), "it chooses the buffer, which --part leaves out")?;
        }
        let choice = Choice {
            memory: self.memory()?,
            sizes: self.size.into_iter().collect(),
            threads: self.threads.map(|threads| threads.count(frame)).into_iter().collect(),
            widths: self.width.into_iter().collect(),
            element: self.element,
            ..Choice::default()
        };
        // Who names kinds of memory asks about those alone, where they are to lie.
        let asked = &choice.memory;
        let of_kind = |kind: MemoryKind| asked.iter().copied().filter(move |memory| memory.kind == kind);
        let placed = |case: Case| match asked.is_empty() {
            true => vec![case],
            false => of_kind(case.memory.kind).map(|memory| Case { memory, ..case.clone() }).collect(),
        };
        let mut cases = Vec::new();
        let wants = |part: Part| self.wants(part);
        if wants(Part::Buffers) {
            cases.extend(kinds::kinds(frame, &choice, Breadth::Whole).map_err(usage)?);
        }
        if wants(Part::Pages) {
            cases.extend(pages::first_touch(frame, Breadth::Whole).map_err(usage)?.into_iter().flat_map(placed));
        }
        if wants(Part::Offsets) && (asked.is_empty() || !self.part.is_empty()) {
            cases.extend(offsets::alignment(frame, Breadth::Whole));
        }
        Ok(cases)
    }
}

/// Measures and shows.
pub fn run(args: &KindsArgs) -> anyhow::Result<Done> {
    if let Some(name) = args.places.driven() {
        return run_on(args, name);
    }
    let table = |report: &Report| terminal::answers(report, &["kinds", "pages", "offsets"]);
    let (job, frame) = Job::begin(&args.run, args.usual_budget(), table)?;
    job.placed(&args.places).finish(&args.cases(&frame)?)
}

/// The same on a device with a driver. What can't be planned without knowing the device is planned for one of no limits, so
/// that a machine without a driver has its outcome in the record.
fn run_on(args: &KindsArgs, name: DeviceName) -> anyhow::Result<Done> {
    let table = |report: &Report| terminal::answer(report, &report.device);
    let (job, frame) = Job::begin(&args.run, args.usual_budget(), table)?;
    let listed = discover(&[name.api]);
    let absent = listed.absent.iter().find(|(api, _)| *api == name.api).map(|(_, why)| why.clone());
    let gone = || format!("there is no {name}; `membound devices` lists what there is");
    let found = listed.devices.into_iter().find(|device| device.name == name);
    let device: Result<Device, String> = found.ok_or_else(|| absent.unwrap_or_else(gone));
    let cases = args.cases_of(&frame, device.as_ref().unwrap_or(&Device::unknown(name)))?;
    job.from_now(args.usual_budget()).on(device).finish(&cases)
}
