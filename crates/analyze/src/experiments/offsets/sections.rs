//! What offsets cost: crossings of lines and pages, 4 KiB aliasing, and forwarding from store to load.

use membound_core::in_order::InOrder;
use std::collections::BTreeSet;

use crate::answer::Answer;
use crate::chart::{Axis, Chart, Point, Scale, Series, line};
use crate::experiments::offsets::rows::OffsetRow;
use crate::flag::Flag;
use crate::missing::gathered;
use crate::rate::Cost;
use crate::row::AnyRow;
use crate::section::{Cell, Section, Table};

use membound_core::kernel::scan::Scan;
use membound_core::units::significant;

/// A question about offsets: which scans answer it, and how.
struct Question {
    id: &'static str,
    title: &'static str,
    about: &'static str,
    is_of: fn(Scan) -> bool,
    table: fn(&[&OffsetRow]) -> Table,
    charts: &'static [Drawing],
}

/// A chart: its title, axis and scale, and which scans it draws.
type Drawing = (&'static str, &'static str, Scale, fn(Scan) -> bool);

const FROM_BOUNDARY: &str = "first byte, from a page boundary (a line is 64 B)";

const QUESTIONS: [Question; 3] = [
    Question {
        id: "alignment",
        title: "Line and page crossing",
        about: "Core clock cycles for one access of many that do not wait for each other, median over offsets. Across 16 B and \
                32 B: inside a line.",
        is_of: |scan| is_load(scan) || is_store(scan),
        table: crossings,
        // A page crossing is so dear that a linear axis would hide all else.
        charts: &[
            ("Loads around a page boundary", FROM_BOUNDARY, Scale::Log, is_load),
            ("Stores around a page boundary", FROM_BOUNDARY, Scale::Log, is_store),
        ],
    },
    Question {
        id: "aliasing",
        title: "4 KiB aliasing",
        about: "Cycles for a store and a load from another page: places in their pages apart, or overlapping, where the load begins \
                before the store's place or inside it.",
        is_of: is_aliasing,
        table: aliasing,
        charts: &[("4 KiB aliasing", "load's place in its page, from the store's", Scale::Linear, is_aliasing)],
    },
    Question {
        id: "forwarding",
        title: "Store-to-load forwarding",
        about: "Cycles from store to load and back into a register: load at the same place / elsewhere inside the store / \
                overlapping it partly.",
        is_of: is_forwarding,
        table: forwarding,
        charts: &[("Store-to-load forwarding", "load's first byte, from the store's", Scale::Linear, is_forwarding)],
    },
];

fn is_load(scan: Scan) -> bool {
    matches!(scan, Scan::Load { .. })
}

fn is_store(scan: Scan) -> bool {
    matches!(scan, Scan::Store { .. })
}

fn is_aliasing(scan: Scan) -> bool {
    matches!(scan, Scan::Aliasing { .. })
}

fn is_forwarding(scan: Scan) -> bool {
    matches!(scan, Scan::Forwarding { .. })
}

impl Answer for Vec<OffsetRow> {
    fn sentences(&self) -> Vec<String> {
        let pairs = [[crossing(self), blocks(self)], [aliases(self), forwards(self)]];
        let joined = |pair: [Option<String>; 2]| pair.into_iter().flatten().collect::<Vec<_>>().join(" ");
        pairs.map(joined).into_iter().filter(|said| !said.is_empty()).collect()
    }

    fn sections(&self) -> Vec<Section> {
        let section = |Question { id, title, about, is_of, table, charts }: &Question| {
            let (rows, faults): (Vec<&OffsetRow>, Vec<_>) =
                self.iter().filter(|row| is_of(row.scan())).partition(|row| is_known(row));
            let missing = gathered(faults.into_iter().map(|row| (row.what(), &row.quality)));
            Section {
                id,
                title: (*title).into(),
                about: (*about).into(),
                tables: if rows.is_empty() { Vec::new() } else { vec![table(&rows)] },
                charts: charts.iter().filter_map(|drawing| chart(&rows, drawing)).collect(),
                missing,
                ..Section::default()
            }
        };
        QUESTIONS.iter().map(section).filter(|section| !section.is_empty()).collect()
    }
}

fn is_known(row: &OffsetRow) -> bool {
    row.quality.is_measured() && row.cycles.is_some()
}

fn scans(rows: &[&OffsetRow]) -> BTreeSet<Scan> {
    rows.iter().map(|row| row.scan()).collect()
}

/// The median, with its interval on demand.
fn cycles(rows: &[&OffsetRow], scan: Scan, place: &str) -> Option<Cell> {
    let row = rows.iter().find(|row| row.scan() == scan && row.place == place)?;
    let cycles = row.cycles?;
    let [median, low, high] = cycles.interval();
    let [best, low, high] = [cycles.best, low, high].map(significant);
    let hint = format!("{} offsets; {} {low} to {high}, best {best}", row.count, cycles.ends_word());
    Some(Cell { text: significant(median), hint, ..Cell::default() })
}

fn crossings(rows: &[&OffsetRow]) -> Table {
    let scans: Vec<Scan> = scans(rows).into_iter().collect();
    let name = |scan: &Scan| format!("{} {} B", if is_load(*scan) { "load" } else { "store" }, bytes(*scan));
    let mut table = Table::new("").left("access", scans.iter().map(name));
    for (place, head) in [
        ("aligned", "aligned"),
        ("inside a line", "inside\na line"),
        ("crosses 16 B", "across\n16 B"),
        ("crosses 32 B", "across\n32 B"),
        ("crosses a line", "across\na line"),
        ("crosses a page", "across\na page"),
    ] {
        table = table.right(head, scans.iter().map(|scan| cycles(rows, *scan, place)));
    }
    table.left("flag", scans.iter().map(|scan| flags(rows, |row| row.scan() == *scan)))
}

/// What there is to know about any of these rows.
fn flags(rows: &[&OffsetRow], is_ours: impl Fn(&OffsetRow) -> bool) -> Cell {
    let of_rows: Vec<&OffsetRow> = rows.iter().copied().filter(|row| is_ours(row)).collect();
    let seen = Flag::ALL.iter().filter(|flag| of_rows.iter().any(|row| row.quality.has(**flag)));
    Cell { flags: seen.copied().collect(), ..Cell::default() }
}

fn aliasing(rows: &[&OffsetRow]) -> Table {
    let scans = scans(rows);
    let cells = |place| scans.iter().map(move |scan| cycles(rows, *scan, place));
    Table::new("")
        .left("access", scans.iter().map(|scan| format!("{} B", scan.bytes()[0])))
        .right("apart", cells("apart"))
        .right("aliases\nbefore", cells("aliases before"))
        .right("aliases\ninside", cells("aliases inside"))
        .left("flag", scans.iter().map(|scan| flags(rows, |row| row.scan() == *scan)))
}

/// A matrix: stores down, loads across.
fn forwarding(rows: &[&OffsetRow]) -> Table {
    let sizes = |part: usize| -> BTreeSet<u64> { rows.iter().map(|row| row.scan().bytes()[part]).collect() };
    let cell = |stored: u64, loaded: u64| {
        let scan = Scan::Forwarding { stored: stored as u32, loaded: loaded as u32 };
        let cycles = |place| {
            let row = rows.iter().find(|row| row.scan() == scan && row.place == place);
            row.and_then(|row| row.cycles).map_or_else(|| "-".into(), |cost| format!("{:.0}", cost.value()))
        };
        ["same place", "inside the store", "overlaps partly"].map(cycles).join(" / ")
    };
    let stored = sizes(0);
    let table = Table::new("").left("store", stored.iter().map(|bytes| format!("{bytes} B")));
    let table = sizes(1).into_iter().fold(table, |table, loaded| {
        table.right(&format!("load {loaded} B"), stored.iter().map(|&stored| cell(stored, loaded)))
    });
    table.left("flag", stored.iter().map(|&stored| flags(rows, |row| row.scan().bytes()[0] == stored)))
}

/// Bytes on either side of a page boundary that the charts of crossings show.
const AROUND: i64 = 128;
const PAGE: i64 = 4096;

fn chart(rows: &[&OffsetRow], &(title, x, scale, is_ours): &Drawing) -> Option<Chart> {
    let first_rows = rows.iter().filter(|row| !row.curve.is_empty() && is_ours(row.scan()));
    let series: Vec<Series> = first_rows.map(|row| curve(row)).collect();
    let name = if matches!(scale, Scale::Log) { "core clock cycles (log)" } else { "core clock cycles" };
    let about = "Points between equal neighbours are left out.";
    let (x, y) = (Axis::new(x, "B", Scale::Offsets), Axis::new(name, "cycles", scale));
    (!series.is_empty()).then(|| Chart::new(title.into(), about.into(), x, y, series))
}

/// Colour says the bytes of the store, dashes those of the load.
fn curve(row: &OffsetRow) -> Series {
    let [stored, loaded] = row.scan().bytes();
    let colour = |bytes: u64| (bytes.max(4).ilog2() - 2) as usize;
    let (name, colour, dash, shown) = match row.scan() {
        Scan::Load { bytes } | Scan::Store { bytes } | Scan::Aliasing { bytes } => {
            (format!("{bytes} B"), colour(bytes.into()), 0, true)
        }
        // Twenty-five lines at once can't be told apart; the legend brings in the others.
        Scan::Forwarding { .. } => {
            (format!("{stored} B to {loaded} B"), colour(stored), colour(loaded), stored == loaded)
        }
    };
    // A page's first bytes stand for those behind its end: there lies another page.
    let around = |at: i64| match at {
        ..=AROUND => Some(at),
        _ if at >= PAGE - AROUND => Some(at - PAGE),
        _ => None,
    };
    let at = |&(offset, cycles): &(i64, f64)| {
        let cycles = format!("{:.2}", cycles.max(0.01)).parse().unwrap_or(0.01);
        Some((around(offset)? as f64, cycles, cycles, cycles, row.quality.samples))
    };
    let mut points: Vec<Point> = row.curve.iter().filter_map(at).collect();
    points.order_by(|a, b| a.0.total_cmp(&b.0));
    Series { colour, dash, shown, ..line(name, changes(points)) }
}

/// Without the points between equal neighbours: a step needs its two ends. Equal is what differs by less than the line
/// is thick.
fn changes(points: Vec<Point>) -> Vec<Point> {
    let is_equal = |a: &Point, b: &Point| (a.1 - b.1).abs() <= 0.02 * a.1.abs().max(b.1.abs());
    let mut kept: Vec<Point> = Vec::new();
    for (index, point) in points.iter().enumerate() {
        let is_between = kept.last().is_some_and(|last| is_equal(last, point))
            && points.get(index + 1).is_some_and(|next| is_equal(point, next));
        if !is_between {
            kept.push(*point);
        }
    }
    kept
}

/// A cost that differs from another by less than this factor is the same.
const SAME_COST: f64 = 1.1;

fn cost(rows: &[OffsetRow], scan: Scan, place: &str) -> Option<Cost> {
    let row = rows.iter().find(|row| row.scan() == scan && row.place == place && is_told(row))?;
    row.cycles
}

/// Whether sentences rest on a row. The range of visits that were disturbed tells of what disturbed them.
fn is_told(row: &OffsetRow) -> bool {
    is_known(row) && !(row.quality.has(Flag::Disturbed) && row.quality.has(Flag::FewSamples))
}

/// Whether `cost` is more than `base` by more than either's uncertainty.
fn is_dearer(cost: Cost, base: Cost) -> bool {
    cost.ends()[0] > base.ends()[1] && cost.value() > SAME_COST * base.value()
}

/// The greater of what is stored and loaded.
fn bytes(scan: Scan) -> u64 {
    scan.bytes().into_iter().max().unwrap_or(0)
}

/// The widest scan of its kind that has an answer.
fn widest<T>(rows: &[OffsetRow], is_kind: fn(Scan) -> bool, answer: impl Fn(Scan) -> Option<T>) -> Option<T> {
    let mut scans: Vec<Scan> = rows.iter().map(|row| row.scan()).filter(|scan| is_kind(*scan)).collect();
    scans.order_by_key(|scan| scan.bytes());
    scans.into_iter().rev().find_map(answer)
}

/// What loads and stores alone say: the widest of each.
fn of_both(rows: &[OffsetRow], start: &str, part: impl Fn(&str, Scan) -> Option<String>) -> Option<String> {
    let [load, store] = [("load", is_load as fn(Scan) -> bool), ("store", is_store)]
        .map(|(name, is_kind)| widest(rows, is_kind, |scan| part(name, scan)));
    let parts: Vec<String> = load.into_iter().chain(store).collect();
    (!parts.is_empty()).then(|| format!("{start}, {}.", parts.join("; ")))
}

fn crossing(rows: &[OffsetRow]) -> Option<String> {
    of_both(rows, "Back to back", |name, scan| {
        let cost = |place| cost(rows, scan, place).map(|cost| significant(cost.value()));
        let (aligned, line, page) = (cost("aligned")?, cost("crosses a line")?, cost("crosses a page")?);
        let bytes = bytes(scan);
        Some(format!(
            "a {name} of {bytes} B takes {aligned} cycles aligned, {line} across a line, {page} across a page"
        ))
    })
}

/// Cores whose data path is narrower than a line pay for crossing its parts too.
fn blocks(rows: &[OffsetRow]) -> Option<String> {
    of_both(rows, "Inside a line", |name, scan| {
        let aligned = cost(rows, scan, "aligned")?;
        let dearer = |place| Some((place, cost(rows, scan, place).filter(|cost| is_dearer(*cost, aligned))?));
        let (place, dear) = ["crosses 16 B", "crosses 32 B"].into_iter().find_map(dearer)?;
        let [cost, aligned] = [dear, aligned].map(|cost| significant(cost.value()));
        Some(format!("a {name} of {} B that {place} takes {cost} cycles instead of {aligned}", bytes(scan)))
    })
}

/// The widest access that aliasing makes dearer, by the dearer of its places; where none is, and the widest surely is not, that.
fn aliases(rows: &[OffsetRow]) -> Option<String> {
    let pair = |scan| {
        let [before, inside] = ["aliases before", "aliases inside"].map(|place| cost(rows, scan, place));
        let (before, inside) = (before?, inside?);
        let dearer = if before.value() > inside.value() { before } else { inside };
        Some((dearer, cost(rows, scan, "apart")?))
    };
    let dearer = widest(rows, is_aliasing, |scan| {
        let (aliases, apart) = pair(scan).filter(|(aliases, apart)| is_dearer(*aliases, *apart))?;
        let [takes, base] = [aliases, apart].map(|cost| significant(cost.value()));
        Some(format!(
            "A load of {} B and a store to another page that overlap modulo 4 KiB take {takes} cycles per pair instead of {base} \
             (4 KiB aliasing).",
            scan.bytes()[0]
        ))
    });
    let no_dearer = || {
        let (scan, (aliases, apart)) = widest(rows, is_aliasing, |scan| Some((scan, pair(scan)?)))?;
        let [takes, base] = [aliases, apart].map(|cost| significant(cost.value()));
        (aliases.value() <= SAME_COST * apart.value()).then(|| {
            format!(
                "A load and a store to another page that overlap modulo 4 KiB cost no more for it: a pair of {} B takes {takes} \
                 cycles there, {base} elsewhere.",
                scan.bytes()[0]
            )
        })
    };
    dearer.or_else(no_dearer)
}

fn forwards(rows: &[OffsetRow]) -> Option<String> {
    let range = |place: &str| {
        let ours = rows.iter().filter(|row| is_forwarding(row.scan()) && row.place == place && is_told(row));
        let medians: Vec<f64> = ours.filter_map(|row| row.cycles).map(|cost| cost.value()).collect();
        let least = medians.iter().copied().reduce(f64::min)?;
        let (least, most) = (significant(least), significant(medians.into_iter().fold(0.0, f64::max)));
        Some(if least == most { least } else { format!("{least} to {most}") })
    };
    let [same, inside, partly] = ["same place", "inside the store", "overlaps partly"].map(range);
    let (same, inside, partly) = (same?, inside?, partly?);
    Some(format!(
        "From a store to a load at the same place it takes {same} cycles, to one elsewhere inside it {inside}, to one that \
         overlaps it partly {partly}."
    ))
}
