//! What is told of commands beside their flags: groups, examples, how they end, what they read from the environment. Help,
//! manual pages and completions come from here.

use std::path::Path;

use clap::{Arg, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::cli::args::Done;
use crate::cli::say;
use crate::cli::usage::usage;
use membound_core::plain::EXPERIMENTS;
use membound_core::plain_experiments;
use membound_measure::os::outfile::Reserved;

/// Declares what plain experiments have here: their place among the commands that measure, and their examples.
macro_rules! plain {
    ($($file:ident: $Work:ident),+ $(,)?) => {
        const MEASURE: &[&str] = &[
            "bandwidth",
            "stores",
            "stream",
            $(stringify!($file),)+
            "kinds",
            "copies",
            "latency",
            "c2c",
            "loaded",
            "numa",
            "kernel",
            "rounding",
            "addrmap",
            "pingpong",
        ];

        const PLAIN: &[Examples] = &[$((
            stringify!($file),
            [
                (concat!("membound ", stringify!($file)), "At all sizes, by one thread and by all, beside vector kernels"),
                (concat!("membound ", stringify!($file), " --size 1MiB,1GiB --threads 1"), "At two sizes"),
            ],
        )),+];
    };
}

plain_experiments!(plain);

/// What commands are for, in the order in which help lists them.
pub const GROUPS: [(&str, &[&str]); 4] = [
    ("Measure", MEASURE),
    ("Explain", &["machine", "devices", "roofline", "advise", "report"]),
    ("Compare", &["compare", "diff"]),
    ("Operate", &["check", "watch", "fleet", "sweep", "schema", "completions", "man"]),
];

/// Two for a command, whose name stands first: what to type, and what it does.
pub type Examples = (&'static str, [(&'static str, &'static str); 2]);

/// Those of each command, in the order in which the reference lists commands.
pub fn examples() -> impl Iterator<Item = &'static Examples> {
    [BANDWIDTH, PLAIN, OTHERS].into_iter().flatten()
}

const BANDWIDTH: &[Examples] = &[
    (
        "",
        [
            ("membound", "Characterise this machine in a minute"),
            ("membound --quick --out /tmp/mem", "The same table in 5 s; record and page in a folder"),
        ],
    ),
    (
        "bandwidth",
        [
            ("membound bandwidth --kernel copy,triad --threads 1,all", "Two kernels at each level"),
            ("membound bandwidth --kernel load --size 1GiB --memory 4k,thp", "Does the page size matter?"),
        ],
    ),
    (
        "stores",
        [
            ("membound stores", "Where do non-temporal stores win?"),
            ("membound stores --kernel copy --threads all --budget 1min", "For copies by all cores"),
        ],
    ),
    (
        "stream",
        [
            ("membound stream", "STREAM's table for this machine"),
            ("membound stream --memory node0,node1", "A table for each node"),
        ],
    ),
];

const OTHERS: &[Examples] = &[
    (
        "kinds",
        [
            ("membound kinds", "Which kind of memory should a buffer be?"),
            ("membound kinds --memory 4k,thp,huge-2m --size 256MiB", "Three page sizes, a large buffer"),
        ],
    ),
    (
        "devices",
        [
            ("membound devices", "What --device can name here, and what its driver says of it"),
            ("membound devices --format json", "The same for programs"),
        ],
    ),
    (
        "copies",
        [
            ("membound copies", "All devices, each way and both at once"),
            ("membound copies --device opencl:0 --size 64..256MiB", "One device, at powers of two"),
        ],
    ),
    (
        "latency",
        [
            ("membound latency", "Latency of each level, and lines in flight"),
            ("membound latency --map", "Each CPU against each node"),
        ],
    ),
    (
        "c2c",
        [
            ("membound c2c", "What passing a line between each two CPUs costs"),
            ("membound c2c --cpus 0-3", "Between four of them"),
        ],
    ),
    (
        "loaded",
        [
            ("membound loaded", "Latency over bandwidth, up to saturation"),
            ("membound loaded --mix 100:0 --steps 8", "Reads alone, fewer points"),
        ],
    ),
    (
        "numa",
        [
            ("membound numa", "Bandwidth and latency of each node from each set of CPUs"),
            ("membound numa --page-cache --budget 5min", "What page cache does to a program beside it"),
        ],
    ),
    (
        "kernel",
        [
            ("membound kernel 'a[i] = b[i] + s*c[i]'", "Measure a loop of your own"),
            ("membound kernel --listing triad --store nt", "The machine code that will run"),
        ],
    ),
    (
        "rounding",
        [
            ("membound rounding", "Which ways of adding up change the sum?"),
            ("membound rounding --kernel dot --size 64MiB", "Of a dot product"),
        ],
    ),
    (
        "addrmap",
        [
            ("membound addrmap", "Which address bits choose the channel or bank?"),
            ("membound addrmap --memory huge-1g", "From pages of 1 GiB, which tell more bits"),
        ],
    ),
    (
        "pingpong",
        [
            ("mpirun -np 2 membound pingpong", "One pair of processes"),
            ("mpirun -np 8 membound pingpong --pairs 1,2,4 --size 0..1MiB", "Up to four pairs at once"),
        ],
    ),
    (
        "machine",
        [
            ("membound machine", "Cores, caches, nodes, memory, limits"),
            ("membound machine --spec zen4", "Peaks and balance from a specification sheet"),
        ],
    ),
    (
        "roofline",
        [
            ("membound roofline --svg roofline.svg", "Measure, and draw the chart"),
            ("membound roofline membound-HOST-DATE.jsonl", "From a record"),
        ],
    ),
    (
        "advise",
        [
            ("membound advise triad --size 12GiB numa.jsonl", "From a record of membound numa"),
            ("membound advise triad --size 12GiB --tier 0=90GB/s:96GiB,1=400GB/s:16GiB", "From figures by hand"),
        ],
    ),
    (
        "report",
        [
            ("membound report membound-HOST-DATE.jsonl --section latency", "One section of a record"),
            ("membound report records/ --out pages/", "A page for each record of a folder"),
        ],
    ),
    (
        "compare",
        [
            ("membound compare before.jsonl after.jsonl", "What differs by more than chance?"),
            ("membound compare before/ after/ --fail-on-regression", "Several runs a side; exit code 1 if slower"),
        ],
    ),
    (
        "diff",
        [
            ("membound diff", "The last two records of this host, here"),
            ("membound diff records/ --all", "In another folder, with all cells"),
        ],
    ),
    (
        "check",
        [
            ("membound check --record /var/lib/membound/healthy.jsonl", "Make a baseline while the node is healthy"),
            ("membound check --baseline /var/lib/membound/healthy.jsonl", "Is it as fast as it was?"),
        ],
    ),
    (
        "watch",
        [
            (
                "membound watch --record /var/lib/membound/watch.jsonl",
                "Probe this node every 5 minutes until told to end",
            ),
            ("membound watch --every 10s --for 15min --format jsonl", "For a quarter of an hour, as JSON lines"),
        ],
    ),
    (
        "fleet run",
        [
            ("srun --ntasks-per-node=1 membound fleet run --out fleet", "The default run on each node"),
            ("mpirun -npernode 1 membound fleet run -- latency --budget 30s", "Another plan"),
        ],
    ),
    (
        "fleet screen",
        [
            ("membound fleet screen fleet/", "Which nodes are not like the others?"),
            ("membound fleet screen fleet/ --baseline last-month/", "What got slower since?"),
        ],
    ),
    (
        "sweep",
        [
            ("membound sweep", "Push page cache out of all nodes"),
            ("membound sweep --node 1 --share 50%", "Out of half of one node"),
        ],
    ),
    (
        "schema",
        [("membound schema record", "Of one line of a record"), ("membound schema row", "Of one row of --format json")],
    ),
    (
        "completions",
        [
            ("membound completions bash > ~/.local/share/bash-completion/completions/membound", "For bash"),
            ("membound completions fish > ~/.config/fish/completions/membound.fish", "For fish"),
        ],
    ),
    (
        "man",
        [
            ("membound man latency | man -l -", "Read the page of a command"),
            ("membound man --out /usr/local/share/man/man1", "Install all pages"),
        ],
    ),
];

/// Flags that a command takes only to say who takes them: no help lists them.
pub const REFUSED: [(&str, &[&str]); 2] = [
    ("stores", &["store", "load", "unroll", "misalign", "energy", "offsets"]),
    ("stream", &["kernel", "load", "unroll", "misalign", "energy", "offsets"]),
];

/// What a command takes without `--budget`.
const BUDGETS: [(&str, &str); 15] = [
    ("", "60s; with --quick 5s"),
    ("bandwidth", "15s; with --energy 30s, with --offsets 90s"),
    ("stores", "30s"),
    ("stream", "15s"),
    ("kinds", "60s; of a device's buffers 2min"),
    ("copies", "60s"),
    ("kernel", "15s"),
    ("c2c", "30s"),
    ("loaded", "30s"),
    ("addrmap", "30s"),
    ("latency", "14.5s"),
    ("numa", "30s; with --page-cache 5min"),
    ("pingpong", "60s"),
    ("roofline", "30s"),
    ("rounding", "15s"),
];
/// Defaults of flags whose help says another command's.
const DEFAULTS: [(&str, &str, &str); 5] = [
    ("stores", "size", "a sweep from 4KiB to memory"),
    ("stores", "width", "the widest"),
    ("stream", "size", "arrays as large as STREAM's rules ask for"),
    ("stream", "width", "the widest"),
    ("stream", "threads", "all"),
];
/// The same of plain experiments.
const PLAIN_BUDGET: &str = "30s";

const EXIT_STATUS: [(&str, &str); 3] = [
    ("0", "Done."),
    ("1", "A measurement failed or is invalid, nothing could be measured at all, or a file could not be written."),
    ("2", "Wrong usage: nothing was measured."),
];

const EXIT_STATUS_OF_CHECK: [(&str, &str); 3] = [
    ("0", "Healthy, skipped because the node is busy, or too noisy to tell: a note says which."),
    ("1", "Degraded."),
    ("2", "The node could not be checked, the result could not be written or printed, or wrong usage."),
];

const EXIT_STATUS_OF_WATCH: [(&str, &str); 3] = [
    ("0", "Watching ended, as told or after its time, and no figure fell."),
    ("1", "A figure fell while it was watched, whether it has recovered or not."),
    ("2", "It could not watch, or wrong usage."),
];

const ENVIRONMENT: [(&str, &str); 6] = [
    ("COLUMNS", "Width of text, 80 to 200 [default: that of the terminal, or 80]."),
    ("NO_COLOR, CLICOLOR, CLICOLOR_FORCE", "Whether text is coloured, where --color does not say."),
    ("SLURMD_NODENAME", "The node's name, which %n stands for in the path of a baseline."),
    (
        "MEMBOUND_MPI",
        "The MPI library to load, a path or a name [default: what the loader finds, such as libmpi.so.40].",
    ),
    ("TMPDIR", "Where a lock and a node's record of a fleet lie for the time of a run [default: /tmp]."),
    ("OMPI_*, PMI_*, PMIX_*, PALS_*, SLURM_*", "Rank and number of the processes that a launcher started."),
];

/// A command line with what its help says beside flags.
pub fn dressed(mut command: Command) -> Command {
    for (name, flags) in REFUSED {
        command = command
            .mut_subcommand(name, |one| flags.iter().fold(one, |one, flag| one.mut_arg(flag, |flag| flag.hide(true))));
    }
    let plain = EXPERIMENTS.iter().map(|experiment| (experiment.name, PLAIN_BUDGET));
    for (name, usual) in BUDGETS.into_iter().chain(plain) {
        let told = |budget| defaulting(budget, usual);
        command = match name {
            "" => command.mut_arg("budget", told),
            name => command.mut_subcommand(name, |one| one.mut_arg("budget", told)),
        };
    }
    for (name, flag, usual) in DEFAULTS {
        command = command.mut_subcommand(name, |one| one.mut_arg(flag, |flag| defaulting(flag, usual)));
    }
    for (name, examples) in examples() {
        let text = listed(examples);
        command = match name.split_once(' ') {
            None if name.is_empty() => command.after_help(text),
            None => command.mut_subcommand(name, |one| one.after_help(text)),
            Some((group, name)) => {
                command.mut_subcommand(group, |group| group.mut_subcommand(name, |one| one.after_help(text)))
            }
        };
    }
    let groups = groups(&command);
    command.before_help(groups).override_usage("membound [OPTIONS]\n       membound <COMMAND>").help_template(
        "{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}Options of the default run:\n{options}{after-help}",
    )
}

/// A flag whose help ends with this default, in place of another.
fn defaulting(flag: Arg, usual: &str) -> Arg {
    let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
    let what = help.split(" [default: ").next().unwrap_or_default();
    flag.help(format!("{what} [default: {usual}]"))
}

fn listed(examples: &[(&str, &str); 2]) -> String {
    let lines = examples.map(|(command, what)| format!("  {command}\n      {what}"));
    format!("Examples:\n{}", lines.join("\n"))
}

/// Commands by what they are for.
fn groups(command: &Command) -> String {
    let line = |name: &&str| {
        let about = command.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
        let about = about.unwrap_or_default();
        let first = about.split(['\n', ';', ':']).next().unwrap_or_default().to_string();
        let lines = wrapped(&first, 66);
        format!("  {name:<12}{}\n", lines.join(&format!("\n{:14}", "")))
    };
    let group = |(title, names): (&str, &[&str])| format!("{title}:\n{}", names.iter().map(line).collect::<String>());
    GROUPS.map(group).join("\n")
}

/// Lines of so many characters at most, but for longer words.
fn wrapped(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= most => *line += &format!(" {word}"),
            _ => lines.push(word.into()),
        }
    }
    lines
}

/// A manual page.
///
/// # Errors
/// There is no such command.
pub fn page(mut all: Command, names: &[String]) -> anyhow::Result<String> {
    all.build();
    let mut one = &all;
    for name in names.iter().flat_map(|name| name.split_whitespace()) {
        let none = || usage(format!("there is no command '{}'; membound --help lists them", names.join(" ")));
        one = one.find_subcommand(name).ok_or_else(none)?;
    }
    troff(one, &names.join(" "))
}

fn troff(command: &Command, name: &str) -> anyhow::Result<String> {
    // Once it is built, a command knows its whole name: `membound-fleet-run`.
    let man = Man::new(command.clone());
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    sections(name).to_writer(&mut page)?;
    Ok(String::from_utf8(page)?)
}

fn sections(name: &str) -> Roff {
    let mut roff = Roff::new();
    let own = examples().filter(|(of, _)| *of == name || of.split(' ').next() == Some(name) && !name.is_empty());
    roff.control("SH", ["EXAMPLES"]);
    for (command, what) in own.flat_map(|(_, examples)| examples) {
        roff.control("TP", []).text([bold(*command)]).text([roman(format!("{what}."))]);
    }
    let status = match name {
        "check" => EXIT_STATUS_OF_CHECK,
        "watch" => EXIT_STATUS_OF_WATCH,
        _ => EXIT_STATUS,
    };
    for (title, terms) in [("EXIT STATUS", &status[..]), ("ENVIRONMENT", &ENVIRONMENT[..])] {
        roff.control("SH", [title]);
        for (term, meaning) in terms {
            roff.control("TP", []).text([bold(*term)]).text([roman(*meaning)]);
        }
    }
    roff
}

/// Writes all pages: `membound.1`, `membound-latency.1`, `membound-fleet-run.1`.
///
/// # Errors
/// The folder can't be made, or a page stands there already.
pub fn write(all: Command, folder: &Path) -> anyhow::Result<Done> {
    let cannot = |what: &Path, fault: std::io::Error| {
        usage(format!("cannot write {}: {fault}; choose another folder with --out", what.display()))
    };
    std::fs::create_dir_all(folder).map_err(|fault| cannot(folder, fault))?;
    for name in names() {
        let page = page(all.clone(), std::slice::from_ref(&name))?;
        let file = if name.is_empty() { "membound.1".into() } else { format!("membound-{}.1", name.replace(' ', "-")) };
        let path = folder.join(file);
        let mut file = Reserved::new(&path).map_err(|fault| cannot(&path, fault))?;
        say::into(&mut file, &page).map_err(|fault| cannot(&path, fault))?;
    }
    Ok(Done::ok(format!("Written: {} pages in {}\n", names().len(), folder.display())))
}

/// Of all commands that have a page; the first is membound itself.
fn names() -> Vec<String> {
    let groups = GROUPS.iter().flat_map(|(_, names)| *names).map(ToString::to_string);
    let nested = examples().map(|(name, _)| name.to_string()).filter(|name| name.contains(' '));
    std::iter::once(String::new()).chain(groups).chain(nested).collect()
}
