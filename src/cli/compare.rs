//! `membound compare`: two records, two folders of records, or two files of figures by hand.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{Done, Format, usage};
use crate::model::compare::{self, Comparison, Figure, Side, Source, Verdict};
use crate::record::{Record, records_in};
use crate::view;

/// Flags of `membound compare`.
#[derive(Debug, Clone, Args)]
pub struct CompareArgs {
    /// The base: a record (.jsonl), a folder with the records of several runs, or figures by hand (.csv with the columns
    /// name,unit,better,value and optionally clock)
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// What is held against it, likewise
    #[arg(value_name = "B")]
    pub b: PathBuf,
    /// Differences up to this many percent are not called faster or slower, however certain they are
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = noise)]
    pub noise: f64,
    /// End with exit code 1 if any cell is slower
    #[arg(long)]
    pub fail_on_regression: bool,
    /// List all cells, also those without a significant difference
    #[arg(long)]
    pub all: bool,
    /// Write a page to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print as
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

fn noise(text: &str) -> Result<f64, String> {
    let percent = text.trim().trim_end_matches('%').parse::<f64>().ok();
    percent
        .filter(|percent| (0.0..=1000.0).contains(percent))
        .ok_or_else(|| format!("'{text}' is no noise; give a percentage from 0 to 1000, such as 2"))
}

/// Compares.
pub fn run(args: &CompareArgs) -> anyhow::Result<Done> {
    let (a, b) = (side(&args.a)?, side(&args.b)?);
    if matches!(a.source, Source::Figures(_)) != matches!(b.source, Source::Figures(_)) {
        return Err(usage("one side is figures by hand, the other is records; give two of a kind"));
    }
    let mut comparison = compare::compare(&a, &b, args.noise / 100.0);
    if comparison.rows.is_empty() {
        return Err(usage(nothing_in_common(&comparison)));
    }
    if is_same(&args.a, &args.b) {
        comparison.notes.insert(0, "A and B are the same: nothing can differ. Give another record.".into());
    }
    let mut text = match args.format {
        Format::Table => view::terminal::comparison(&comparison, args.all),
        Format::Csv => view::csv::comparison(&comparison),
        Format::Json => view::json::comparison(&comparison),
    };
    if args.format != Format::Table {
        // Rows alone on stdout; what they can't say is talk.
        for line in comparison.findings.iter().take(1).chain(&comparison.notes) {
            eprintln!("membound: {line}");
        }
        for change in &comparison.changes {
            eprintln!("membound: not the same: {}: {} in A, {} in B", change.what, change.a, change.b);
        }
    }
    if let Some(path) = &args.html {
        write_page(&comparison, path)?;
        if args.format == Format::Table {
            text.push_str(&format!("\nWritten: {}\n", path.display()));
        }
    }
    Ok(Done { text, failed: args.fail_on_regression && comparison.count(Verdict::Slower) > 0 })
}

/// What stands at a path.
fn side(path: &Path) -> anyhow::Result<Side> {
    let name = path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned());
    let is_figures = !path.is_dir() && path.extension().is_some_and(|end| end.eq_ignore_ascii_case("csv"));
    let source =
        if is_figures { Source::Figures(Figure::read(path).map_err(usage)?) } else { Source::Records(records(path)?) };
    Ok(Side { name, source })
}

/// A record, or those of a folder, by name.
pub(super) fn records(path: &Path) -> anyhow::Result<Vec<Record>> {
    let paths = if path.is_dir() { records_in(path).map_err(usage)? } else { vec![path.into()] };
    paths.iter().map(|path| Record::read(path).map_err(usage)).collect()
}

fn is_same(a: &Path, b: &Path) -> bool {
    let whole = |path: &Path| std::fs::canonicalize(path).ok();
    whole(a).is_some() && whole(a) == whole(b)
}

/// Both sides' first cells, and what would give them one in common.
fn nothing_in_common(comparison: &Comparison) -> String {
    let first = |verdict: Verdict| {
        let row = comparison.one_sided.iter().find(|row| row.verdict == verdict);
        row.map_or_else(|| "nothing measured".into(), |row| format!("'{}'", row.what))
    };
    let count = |verdict: Verdict| comparison.one_sided.iter().filter(|row| row.verdict == verdict).count();
    format!(
        "A and B have nothing in common: A has {} cells, such as {}; B has {}, such as {}; measure both with the same \
         command and flags",
        count(Verdict::OnlyA),
        first(Verdict::OnlyA),
        count(Verdict::OnlyB),
        first(Verdict::OnlyB)
    )
}

/// Writes the page, which may replace its older self.
#[cfg(feature = "report")]
fn write_page(comparison: &Comparison, path: &Path) -> anyhow::Result<()> {
    std::fs::write(path, view::html::comparison(comparison))
        .map_err(|fault| usage(format!("cannot write {}: {fault}; choose another file with --html", path.display())))
}

/// This build has no pages.
#[cfg(not(feature = "report"))]
fn write_page(_comparison: &Comparison, _path: &Path) -> anyhow::Result<()> {
    Err(usage("this build of membound writes no pages (feature `report` is off); leave out --html"))
}
