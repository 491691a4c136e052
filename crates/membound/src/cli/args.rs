//! Flags that several commands share, what they leave behind, and where pages go.

use crate::cli::count::Threads;
use crate::cli::memory::MemoryList;
use crate::cli::say;
use crate::cli::usage::usage;
use crate::cli::words::{chosen, kernels, one_of};
use membound_analyze::report::Report;
use membound_analyze::section::Document;
use membound_core::case::{Case, USUAL_MEMORY};
use membound_core::experiments::choice::Choice;
use membound_core::kernel::catalog::{CATALOG, Kernel};
use membound_core::kernel::{Element, LoadKind, StoreKind, Width};
use membound_core::machine::Machine;
use membound_core::machine::cpuset::CpuSet;
use membound_core::machine::devices::DeviceName;
use membound_core::memory::MemoryKind;
use membound_core::memory::policy::NODES;
use membound_core::units::{Bytes, parse_duration};
use membound_measure::memory::places::Places;
#[cfg(feature = "report")]
use membound_measure::os::outfile::Reserved;
use membound_measure::schedule::ROUNDS_MOST;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};

use crate::cli::{memory, words};
use membound_analyze::output as view;
use membound_core::experiments::frame::Frame;
/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Text for people
    Table,
    /// Comma-separated rows
    Csv,
    /// One JSON array of rows
    Json,
    /// A JSON object for each row; a command that measures prints them as soon as it knows them
    Jsonl,
    /// Markdown, as GitHub reads it
    Markdown,
}

impl Format {
    /// For answers that are sentences and tables of their own kind, not rows.
    pub fn of_answers() -> impl TypedValueParser<Value = Format> {
        chosen(&["table", "json", "markdown"])
    }

    /// For rows that are worked out from records, all at once.
    pub fn of_rows() -> impl TypedValueParser<Value = Format> {
        chosen(&["table", "csv", "json", "markdown"])
    }

    /// Whether it is rows for programs, which hold neither warnings nor notes.
    pub fn is_for_programs(self) -> bool {
        matches!(self, Format::Csv | Format::Json | Format::Jsonl)
    }

    /// An answer for people.
    pub fn drawn(self, document: &Document) -> String {
        match self {
            Format::Markdown => view::markdown::document(document),
            _ => view::terminal::section::document(document),
        }
    }
}

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum Color {
    Auto,
    Always,
    Never,
}

/// Flags of everything that measures.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// Time to spend, such as 30s or 1h30m
    #[arg(long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    pub budget: Option<Duration>,
    /// Samples of one case and visit
    #[arg(long, value_name = "N", default_value_t = SAMPLES, value_parser = number(3, 10_000))]
    pub samples: u32,
    /// Visits of each case after which to stop, if the time is not over before; fewer where intervals are narrow
    #[arg(long, value_name = "N", value_parser = number(1, ROUNDS_MOST))]
    pub rounds: Option<u32>,
    /// Seed of the order in which cases are visited; drawn and recorded if not given
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Use these CPUs only, such as 0-3,8
    #[arg(long, value_name = "LIST", value_parser = CpuSet::parse)]
    pub cpus: Option<CpuSet>,
    /// Show the cases and measure nothing
    #[arg(long)]
    pub list: bool,
    /// Check every element after each case, not only windows
    #[arg(long)]
    pub verify: bool,
    /// Print results as
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// No progress and no notes on stderr
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// Write a record of all samples to this new file (.jsonl)
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Write a page to this new file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// When to colour
    #[arg(long, value_enum, default_value_t = Color::Auto, global = true)]
    pub color: Color,
}

/// Flags that choose cases.
#[derive(Debug, Clone, Args)]
pub struct ChoiceArgs {
    /// Working sets over all threads, such as 24KiB,1MiB [default: one in each level]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = working_set)]
    pub size: Vec<Bytes>,
    /// Kernels (see `membound kernel --list`), or all
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = kernels(), hide_possible_values = true)]
    pub kernel: Vec<String>,
    /// Store kinds
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = one_of::<StoreKind>())]
    pub store: Vec<StoreKind>,
    /// Load kinds
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = one_of::<LoadKind>())]
    pub load: Vec<LoadKind>,
    /// Widths [default: the two widest]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = one_of::<Width>())]
    pub width: Vec<Width>,
    /// What streams are arrays of: double (8 bytes), float (4 bytes)
    #[arg(long, default_value_t = Element::Double, value_parser = one_of::<Element>())]
    pub element: Element,
    /// Memory kinds, such as 4k,thp,huge-2m,file-shared [default: thp], and where they lie: KIND@PLACE or PLACE, a place
    /// being node1, bind:0-1, preferred:1, interleave:0-1, weighted:0=3,1=1 or first-touch; or the memory of single
    /// streams: a=huge-2m,b=node1
    #[arg(long, value_name = "LIST", value_parser = words::memory())]
    pub memory: Vec<MemoryList>,
    /// Bind all pages to this NUMA node, where --memory names no place
    #[arg(long, value_name = "NODE", value_parser = node_number())]
    pub node: Option<u32>,
    /// Thread counts, such as 1,4,all [default: 1 and all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = words::threads(), hide_possible_values = true)]
    pub threads: Vec<Threads>,
    /// Accesses in one trip of the main loop
    #[arg(long, value_name = "N", value_parser = number(1, 32))]
    pub unroll: Option<u32>,
    /// Start every stream this many bytes beyond a line: less than 64, in whole elements
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub misalign: u32,
}

/// How much of a report to print.
#[derive(Debug, Clone, Default, Args)]
pub struct DetailArgs {
    /// Print all sections, not only the first screen
    #[arg(long, conflicts_with = "section")]
    pub all: bool,
    /// Print these sections instead of the first screen
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = PossibleValuesParser::new(view::parts()))]
    pub section: Vec<String>,
}

impl DetailArgs {
    /// Refuses them where all is printed anyway: sections are of the table alone.
    pub(crate) fn refuse_unless(&self, is_table: bool) -> anyhow::Result<()> {
        let given = [("--all", self.all && !is_table), ("--section", !self.section.is_empty() && !is_table)];
        refuse(given, "it chooses sections of --format table, and any other format prints all there is")
    }

    /// What is to be printed of a report.
    pub fn text(&self, report: &Report) -> String {
        match (self.all, &self.section[..]) {
            (true, _) => view::terminal::summary(report),
            (false, []) => view::terminal::overview(report),
            (false, names) => view::terminal::chosen(report, names),
        }
    }
}

/// Where memory comes from that has a place.
#[derive(Debug, Clone, Args)]
pub struct PlaceArgs {
    /// Folder on the disk whose files are measured; they have no name and vanish [default: the current folder]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Folder on a file system for persistent memory (DAX)
    #[arg(long, value_name = "DIR")]
    pub dax: Option<PathBuf>,
    /// Resource file of a PCI device, such as /sys/bus/pci/devices/0000:00:04.0/resource2, which is only read; for `kinds` also a
    /// device with a driver, such as opencl:0, cuda:0 or vulkan:0 (`membound devices` lists both)
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<PathBuf>,
    /// The same file again: this device may be written to, which destroys what is in its memory
    #[arg(long, value_name = "DEVICE")]
    pub allow_device_writes: Option<PathBuf>,
}

/// Refuses the first of these flags that was given, and would be ignored.
pub(crate) fn refuse(flags: impl IntoIterator<Item = (&'static str, bool)>, why: &str) -> anyhow::Result<()> {
    match flags.into_iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => Err(usage(format!("{why}; leave out {flag}"))),
        None => Ok(()),
    }
}

impl PlaceArgs {
    /// Its flags, and whether each was given.
    pub fn flags(&self) -> [(&'static str, bool); 4] {
        let PlaceArgs { dir, dax, device, allow_device_writes } = self;
        [
            ("--dir", dir.is_some()),
            ("--dax", dax.is_some()),
            ("--device", device.is_some()),
            ("--allow-device-writes", allow_device_writes.is_some()),
        ]
    }

    /// The device that has a driver, where the user named one.
    pub fn driven(&self) -> Option<DeviceName> {
        self.device.as_ref()?.to_str()?.parse().ok()
    }

    /// The places that the user named for these cases, and the usual ones for the rest.
    pub fn of(&self, cases: &[Case]) -> anyhow::Result<Places> {
        if self.allow_device_writes.is_some() && self.allow_device_writes != self.device {
            return Err(usage(
                "--allow-device-writes must name the same file as --device; only that one is written to",
            ));
        }
        if let Some(name) = self.driven() {
            return Err(usage(format!(
                "{name} has buffers of its own, which `membound kinds --device {name}` measures; name a PCI device's resource \
                 file here"
            )));
        }
        if let Some(path) = self.device.as_ref().filter(|path| !path.exists()) {
            return Err(usage(format!(
                "there is no device {}; `membound devices` lists what --device can name",
                path.display()
            )));
        }
        self.refuse_idle(cases)?;
        let usual = Places::default();
        Ok(Places {
            folder: self.dir.clone().unwrap_or(usual.folder),
            dax: self.dax.clone(),
            bar: self.device.clone(),
            bar_writes: self.allow_device_writes.is_some(),
            ..usual
        })
    }

    /// Refuses a place in which none of these cases has memory: other memory than the user means would be measured.
    fn refuse_idle(&self, cases: &[Case]) -> anyhow::Result<()> {
        let lies =
            |is_in: fn(MemoryKind) -> bool| cases.iter().flat_map(Case::memories).any(|memory| is_in(memory.kind));
        let idle = [
            ("--dir", self.dir.is_some() && !lies(MemoryKind::is_on_disk), "file-shared"),
            ("--dax", self.dax.is_some() && !lies(|kind| kind == MemoryKind::Dax), "dax"),
            ("--device", self.device.is_some() && !lies(MemoryKind::is_of_a_device), "bar"),
        ];
        match idle.into_iter().find(|(_, is_idle, _)| *is_idle) {
            Some((flag, _, kind)) => Err(usage(format!(
                "nothing here lies in the place that {flag} names; name a kind of memory that does, such as --memory {kind}, or \
                 leave out {flag}"
            ))),
            None => Ok(()),
        }
    }
}

impl ChoiceArgs {
    /// The choice in the plan's terms.
    pub fn choice(&self, frame: &Frame) -> anyhow::Result<Choice> {
        let kernels = kernels_named(&self.kernel)?;
        let (mut memory, streams) = memory::chosen(&self.memory, self.node)?;
        if memory.is_empty() {
            memory.push(memory::on(USUAL_MEMORY.kind, self.node));
        }
        Ok(Choice {
            kernels,
            sizes: self.size.clone(),
            stores: self.store.clone(),
            loads: self.load.clone(),
            widths: self.width.clone(),
            element: self.element,
            memory,
            streams,
            threads: self.threads.iter().map(|threads| threads.count(frame)).collect(),
            unroll: self.unroll,
            misaligned_bytes: misalignment(self.misalign, self.element)?,
        })
    }
}

/// Samples of a visit, where the user names no number.
const SAMPLES: u32 = 7;

impl RunArgs {
    /// The flags that say how to measure, and whether each was given: nothing else heeds them.
    pub fn flags_of_measuring(&self) -> [(&'static str, bool); 9] {
        [
            ("--record", self.record.is_some()),
            ("--html", self.html.is_some()),
            ("--budget", self.budget.is_some()),
            ("--samples", self.samples != SAMPLES),
            ("--rounds", self.rounds.is_some()),
            ("--seed", self.seed.is_some()),
            ("--cpus", self.cpus.is_some()),
            ("--list", self.list),
            ("--verify", self.verify),
        ]
    }

    /// Reads the machine and what a plan needs of it.
    pub fn frame(&self) -> anyhow::Result<(Machine, Frame)> {
        let machine = membound_measure::machine::live();
        let frame = self.frame_of(&machine)?;
        Ok((machine, frame))
    }

    /// What a plan needs of a machine.
    pub fn frame_of(&self, machine: &Machine) -> anyhow::Result<Frame> {
        Frame::new(machine, membound_measure::asm::detect(), self.cpus.as_ref()).map_err(usage)
    }
}

/// What a finished command leaves to `main`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// Text for stdout.
    pub text: String,
    /// Whether a measurement failed, is invalid, or the run was interrupted: exit code 1.
    pub failed: bool,
}

impl Done {
    /// The same, and something that was asked for besides could not be left behind: told, and exit code 1.
    pub fn lacking(self, fault: &anyhow::Error) -> Self {
        say::note(format_args!("{fault:#}"));
        Done { failed: true, ..self }
    }

    /// What was to be judged can't be: it is shown, and the fault is wrong usage, exit code 2.
    ///
    /// # Errors
    /// Always.
    pub fn unjudged(self, why: &str) -> anyhow::Result<Self> {
        // Who can't read what there is reads why.
        let _ = say::answer(&self.text);
        Err(usage(format!("can't be judged: {why}")))
    }

    /// Text and success.
    pub fn ok(text: String) -> Self {
        Done { text, failed: false }
    }
}

/// What is done, and its page, where one was asked for: where that can't be written the command has failed, and what it has to show
/// is shown. Exit code 1 of a gate is its verdict and nothing else, so there the fault is exit code 2, unless the verdict is 1.
pub(crate) fn with_page(
    done: Done,
    page: Option<&Path>,
    format: Format,
    is_gate: bool,
    document: impl FnOnce() -> Document,
) -> anyhow::Result<Done> {
    let Some(path) = page else { return Ok(done) };
    match write_page(document(), path) {
        Ok(()) if format == Format::Table => {
            Ok(Done { text: format!("{}\nWritten: {}\n", done.text, path.display()), ..done })
        }
        Ok(()) => Ok(done),
        Err(fault) if is_gate && !done.failed => {
            // Who can't have the page reads what was found.
            let _ = say::answer(&done.text);
            Err(fault)
        }
        Err(fault) => Ok(done.lacking(&fault)),
    }
}

/// Writes an answer as a page, a new file.
#[cfg(feature = "report")]
fn write_page(document: Document, path: &Path) -> anyhow::Result<()> {
    new_page(&view::html::section::document(document), path, "--html")
}

/// A page in a new file; the flag chooses another place.
#[cfg(feature = "report")]
pub(crate) fn new_page(page: &str, path: &Path, flag: &str) -> anyhow::Result<()> {
    let cannot = |fault| usage(format!("cannot write {}: {fault}; choose another place with {flag}", path.display()));
    let mut file = Reserved::new(path).map_err(cannot)?;
    say::into(&mut file, page).map_err(cannot)
}

/// This build has no pages.
#[cfg(not(feature = "report"))]
fn write_page(_document: Document, _path: &Path) -> anyhow::Result<()> {
    Err(no_pages("--html"))
}

/// What a build without pages says of a flag that asks for one.
pub(crate) fn no_pages(flag: &str) -> anyhow::Error {
    usage(format!("this build of membound writes no pages (feature `report` is off); leave out {flag}"))
}

/// Kernels by their names; `all` is every one of the catalog.
pub(crate) fn kernels_named(names: &[String]) -> anyhow::Result<Vec<&'static Kernel>> {
    let mut kernels: Vec<&'static Kernel> = Vec::new();
    for name in names {
        match name.as_str() {
            "all" => kernels.extend(CATALOG),
            name => kernels.push(Kernel::find(name).map_err(usage)?),
        }
    }
    Ok(kernels)
}

pub(crate) fn misalignment(bytes: u32, element: Element) -> anyhow::Result<u32> {
    let size = element.bytes() as u32;
    if bytes < 64 && bytes.is_multiple_of(size) {
        return Ok(bytes);
    }
    Err(usage(format!(
        "--misalign {bytes} is no multiple of {size} from 0 to {}: streams are arrays of {size}-byte elements",
        64 - size
    )))
}

/// A number within these, both included.
pub(crate) fn number(least: u32, most: u32) -> impl Fn(&str) -> Result<u32, String> + Clone + Send + Sync {
    move |text| {
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| format!("give a number from {least} to {most}"))
    }
}

/// A node's number, as far as Linux has them.
pub(crate) fn node_number() -> impl Fn(&str) -> Result<u32, String> + Clone + Send + Sync {
    number(0, NODES as u32 - 1)
}

pub(crate) fn working_set(text: &str) -> Result<Bytes, String> {
    match text.parse::<Bytes>() {
        Ok(Bytes(0)) => Err("a working set of 0 bytes measures nothing; give at least 1KiB".into()),
        Ok(size) => Ok(size),
        Err(fault) => Err(fault.to_string()),
    }
}

/// Makes the folder of `--out`, if need be.
pub(crate) fn make_folder(path: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(path).map_err(|fault| {
        let why = if path.is_file() { "it is a file".into() } else { fault.to_string() };
        usage(format!("cannot use {} for results: {why}; choose another folder with --out", path.display()))
    })
}

/// Whether two paths name one file, be it there or not.
pub(crate) fn is_same(a: &Path, b: &Path) -> bool {
    let beside = |path: &Path| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some(folder.canonicalize().ok()?.join(path.file_name()?))
    };
    let whole = |path: &Path| path.canonicalize().ok().or_else(|| beside(path));
    whole(a).is_some() && whole(a) == whole(b)
}

/// The current folder, for default paths.
pub(crate) fn here() -> PathBuf {
    PathBuf::from(".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use membound_core::case::{StreamMemory, Work};
    use membound_core::memory::MemorySpec;

    #[test]
    fn a_place_in_which_nothing_lies_is_refused() {
        let case = |kind: MemoryKind| Case::new(Work::Idle, MemorySpec::of(kind), vec![0], Bytes::kib(16));
        let none = PlaceArgs { dir: None, dax: None, device: None, allow_device_writes: None };
        let some = || Some(PathBuf::from("/"));
        let places = [
            ("--dir", PlaceArgs { dir: some(), ..none.clone() }, MemoryKind::FilePrivateCold, "--memory file-shared"),
            ("--dax", PlaceArgs { dax: some(), ..none.clone() }, MemoryKind::Dax, "--memory dax"),
            ("--device", PlaceArgs { device: some(), ..none.clone() }, MemoryKind::BarWc, "--memory bar"),
        ];
        assert!(none.of(&[case(MemoryKind::Thp)]).is_ok());
        for (flag, places, kind, cure) in places {
            let said = places.of(&[case(MemoryKind::Thp), case(MemoryKind::Tmpfs)]).unwrap_err().to_string();
            assert!(said.contains(cure) && said.contains(&format!("leave out {flag}")), "{said}");
            assert!(places.of(&[case(MemoryKind::Thp), case(kind)]).is_ok(), "{flag}");
            let stream = StreamMemory { stream: "a".into(), memory: MemorySpec::of(kind) };
            let of_a_stream = Case { streams: vec![stream], ..case(MemoryKind::Thp) };
            assert!(places.of(&[of_a_stream]).is_ok(), "{flag}, one stream");
        }
    }
}
