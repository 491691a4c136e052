//! `membound compare`: records, folders of records, files of figures by hand, or the output of other tools. Two sides are judged,
//! more are columns.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::args::{Done, Format, is_same, with_page};
use crate::cli::count::percentage;
use crate::cli::say;
use crate::cli::usage;
use membound_analyze::across::adapters;
use membound_analyze::across::adapters::counterpart;
use membound_analyze::across::adapters::tool::Foreign;
use membound_analyze::across::compare;
use membound_analyze::across::compare::comparison::{Comparison, Side, Source};
use membound_analyze::across::compare::figures::Figure;
use membound_analyze::across::compare::row::{ComparisonRow, Verdict};
use membound_analyze::across::compare::several::several;
use membound_analyze::across::sections::compare as sections;
use membound_analyze::of_record;
use membound_analyze::output as view;
use membound_core::record::{Record, records_in};
use membound_core::units::counted;

/// Flags of `membound compare`.
#[derive(Debug, Clone, Args)]
pub struct CompareArgs {
    /// The base: a record (.jsonl), a folder with the records of several runs, figures by hand (.csv with the columns
    /// name,unit,better,value and optionally clock), or the output of STREAM, likwid-bench, lat_mem_rd, Intel MLC, sysbench
    /// memory, nvbandwidth (JSON), OSU or NetPIPE
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// What is held against it, likewise
    #[arg(value_name = "B")]
    pub b: PathBuf,
    /// More sides, such as records of other modes: all stand side by side as columns, held against A
    #[arg(value_name = "C", conflicts_with = "fail_on_regression")]
    pub others: Vec<PathBuf>,
    /// How to compare
    #[command(flatten)]
    pub how: HowArgs,
}

/// Flags of all that compares.
#[derive(Debug, Clone, Args)]
pub struct HowArgs {
    /// Differences up to this many percent are not called faster or slower, however certain they are
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = noise, allow_hyphen_values = true)]
    pub noise: f64,
    /// End with exit code 1 if any cell is slower, or crashes or goes wrong in B alone
    #[arg(long)]
    pub fail_on_regression: bool,
    /// List all cells, also those without a significant difference
    #[arg(long)]
    pub all: bool,
    /// Write a page to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print as
    #[arg(long, value_parser = Format::of_rows(), default_value = "table")]
    pub format: Format,
}

fn noise(text: &str) -> Result<f64, String> {
    percentage(text, 0.0, 1000.0)
        .ok_or_else(|| format!("'{text}' is no noise; give a percentage from 0 to 1000, such as 2"))
}

/// Compares.
pub fn run(args: &CompareArgs) -> anyhow::Result<Done> {
    let both = [given(&args.a)?, given(&args.b)?];
    let others = args.others.iter().map(|path| given(path)).collect::<anyhow::Result<Vec<Given>>>()?;
    let (sides, words) = alike(both)?;
    let [a, b] = sides;
    let by_hand = |side: &Side| matches!(side.source, Source::Figures(_));
    let others = others.into_iter().map(Given::plain).collect::<anyhow::Result<Vec<Side>>>()?;
    if others.iter().any(|side| by_hand(side) != by_hand(&a)) || !others.is_empty() && !words.notes.is_empty() {
        return Err(usage("some sides are figures, others are records; give all of a kind, or two"));
    }
    if !others.is_empty() {
        return side_by_side(args, [a, b].into_iter().chain(others).collect());
    }
    let mut comparison = compare::compare(&a, &b, args.how.noise / 100.0);
    if comparison.rows.is_empty() {
        return Err(usage([&[nothing_in_common(&comparison)], &words.notes[..]].concat().join("\n")));
    }
    words.put_into(&mut comparison);
    if is_same(&args.a, &args.b) {
        comparison.notes.insert(0, "A and B are the same: nothing can differ. Give another record.".into());
    }
    let text = match args.how.format {
        Format::Csv => view::csv::comparison(&comparison),
        Format::Json => view::json::comparison(&comparison),
        format => format.drawn(&sections::document(&comparison, args.how.all)),
    };
    if args.how.format.is_for_programs() {
        // Rows alone on stdout; what they can't say is talk.
        let broken = comparison.broken_sentence();
        for line in comparison.findings.iter().take(1).chain(&broken).chain(&comparison.notes) {
            say::remark(line);
        }
        for change in &comparison.changes {
            say::remark(format_args!("not the same: {}: {} in A, {} in B", change.what, change.a, change.b));
        }
    }
    let is_worse = comparison.count(Verdict::Slower) > 0 || comparison.broken().next().is_some();
    let done = Done { text, failed: args.how.fail_on_regression && is_worse };
    let document = || sections::document(&comparison, true);
    let done = with_page(done, args.how.html.as_deref(), args.how.format, args.how.fail_on_regression, document)?;
    match unjudged(&comparison).filter(|_| args.how.fail_on_regression && !is_worse) {
        Some(why) => done.unjudged(&why),
        None => Ok(done),
    }
}

/// Why no cell could be slower, whatever happened: a gate that passes then would be none.
fn unjudged(comparison: &Comparison) -> Option<String> {
    let cure = comparison.more_values();
    let all = comparison.rows.len();
    (comparison.count(Verdict::TooFew) == all).then(|| {
        format!("none of {} has values enough to tell slower from chance; {cure}", counted(all as u64, "cell"))
    })
}

/// More than two sides, as columns.
fn side_by_side(args: &CompareArgs, mut sides: Vec<Side>) -> anyhow::Result<Done> {
    if args.how.format.is_for_programs() {
        return Err(usage("--format json and csv hold comparisons of two sides; give two, or leave --format out"));
    }
    if args.how.fail_on_regression {
        return Err(usage("--fail-on-regression holds two sides against each other; give two"));
    }
    // Records of several folders may bear one name.
    let paths: Vec<&PathBuf> = [&args.a, &args.b].into_iter().chain(&args.others).collect();
    for at in 0..sides.len() {
        if sides.iter().enumerate().any(|(other, side)| other != at && side.name == sides[at].name) {
            sides[at].name = paths[at].display().to_string();
        }
    }
    let several = several(&sides, args.how.noise / 100.0);
    if several.cells.is_empty() {
        return Err(usage("no side has a cell in common with the first; measure all with the same command and flags"));
    }
    let done = Done::ok(args.how.format.drawn(&sections::columns(&several, args.how.all)));
    let document = || sections::columns(&several, true);
    with_page(done, args.how.html.as_deref(), args.how.format, false, document)
}

/// What stands at a path.
enum Given {
    /// Records or figures by hand.
    Side(Side),
    /// The output of another tool, with its file's name.
    Foreign(String, Foreign),
}

impl Given {
    /// A side as it is: of another tool its figures.
    fn plain(self) -> anyhow::Result<Side> {
        Ok(match self {
            Given::Side(side) => side,
            Given::Foreign(name, foreign) => Side { name, source: Source::Figures(foreign.figures()) },
        })
    }
}

/// What is said of sides that are figures of another tool.
#[derive(Default)]
struct Words {
    about: [Option<String>; 2],
    notes: Vec<String>,
}

impl Words {
    fn put_into(self, comparison: &mut Comparison) {
        for (about, words) in comparison.about.iter_mut().zip(self.about) {
            *about = words.unwrap_or_else(|| std::mem::take(about));
        }
        comparison.notes.splice(0..0, self.notes);
    }
}

/// Both sides, made alike: where one is another tool's and the other a record, that record's rows beside its figures.
fn alike(given: [Given; 2]) -> anyhow::Result<([Side; 2], Words)> {
    let is_beside = given.iter().any(|given| matches!(given, Given::Foreign(..)));
    let about = |given: &Given| match given {
        Given::Foreign(_, foreign) => Some(foreign.about()),
        Given::Side(side) => (is_beside && is_records(side)).then(|| "a record, with its rows of the same work".into()),
    };
    let mut words = Words { about: [about(&given[0]), about(&given[1])], notes: Vec::new() };
    let sides = match given {
        [Given::Foreign(name, foreign), Given::Side(side)] if is_records(&side) => {
            let [theirs, ours] = beside(name, &foreign, side, &mut words.notes)?;
            [theirs, ours]
        }
        [Given::Side(side), Given::Foreign(name, foreign)] if is_records(&side) => {
            let [theirs, ours] = beside(name, &foreign, side, &mut words.notes)?;
            [ours, theirs]
        }
        [a, b] => [a.plain()?, b.plain()?],
    };
    if sides.iter().any(is_records) && !sides.iter().all(is_records) {
        return Err(usage("some sides are figures by hand, others are records; give all of a kind"));
    }
    Ok((sides, words))
}

fn is_records(side: &Side) -> bool {
    matches!(side.source, Source::Records(_))
}

/// Figures of another tool and the rows of one record beside them.
fn beside(name: String, foreign: &Foreign, side: Side, notes: &mut Vec<String>) -> anyhow::Result<[Side; 2]> {
    let records = if let Source::Records(records) = &side.source { &records[..] } else { &[] };
    let [record] = records else {
        return Err(usage(
            "the output of another tool is held against one record; give a record (.jsonl) instead of a folder",
        ));
    };
    let held = counterpart::held(foreign, &of_record::report(record));
    notes.extend(held.notes);
    let figures = |name, figures| Side { name, source: Source::Figures(figures) };
    Ok([figures(name, held.theirs), figures(side.name, held.ours)])
}

fn given(path: &Path) -> anyhow::Result<Given> {
    let name = path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned());
    let ends = |with: &str| !path.is_dir() && path.extension().is_some_and(|end| end.eq_ignore_ascii_case(with));
    let side = |source| Given::Side(Side { name: name.clone(), source });
    if ends("csv") {
        return Ok(side(Source::Figures(Figure::read(path).map_err(usage)?)));
    }
    // A record may have any name; what is none of its lines may be the text of a tool.
    match records(path) {
        Ok(records) => Ok(side(Source::Records(records))),
        Err(fault) if path.is_dir() || ends("jsonl") || ends("part") || !path.exists() => Err(fault),
        Err(fault) => match adapters::read(path) {
            Ok(foreign) => Ok(Given::Foreign(name, foreign)),
            Err(other) => Err(usage(format!("{other}; read as a record: {fault}"))),
        },
    }
}

/// A record, or those of a folder, by name.
pub(crate) fn records(path: &Path) -> anyhow::Result<Vec<Record>> {
    let paths = if path.is_dir() { records_in(path).map_err(usage)? } else { vec![path.into()] };
    paths.iter().map(|path| Record::read(path).map_err(usage)).collect()
}

/// Both sides' first cells, and what would give them one in common.
fn nothing_in_common(comparison: &Comparison) -> String {
    let first = |verdict: Verdict| {
        let row = comparison.one_sided.iter().find(|row| row.verdict == verdict);
        row.map_or_else(|| "nothing measured".into(), |row| format!("'{}'", row.what))
    };
    let count = |verdict: Verdict| comparison.one_sided.iter().filter(|row| row.verdict == verdict).count();
    let of = |verdict: Verdict| comparison.one_sided.iter().filter(move |row| row.verdict == verdict);
    let is_other = |a: &ComparisonRow, b: &ComparisonRow| a.what == b.what && a.unit != b.unit;
    let other = of(Verdict::OnlyA).find_map(|a| Some((a, of(Verdict::OnlyB).find(|b| is_other(a, b))?)));
    if let Some((a, b)) = other {
        return format!(
            "A and B have nothing in common: '{}' is in {} in A and in {} in B; write both in one unit",
            a.what, a.unit, b.unit
        );
    }
    format!(
        "A and B have nothing in common: A has {} cells, such as {}; B has {}, such as {}; measure both with the same \
         command and flags",
        count(Verdict::OnlyA),
        first(Verdict::OnlyA),
        count(Verdict::OnlyB),
        first(Verdict::OnlyB)
    )
}
