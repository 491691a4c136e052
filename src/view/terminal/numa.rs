//! Memory from everywhere: the matrix, then each pair with all its figures, and what saturates a domain.

use super::{
    COLUMNS, Column, findings, flag_letters, head, item, legend, note, number, reason_lines, table, warnings, width,
};
use crate::model::{Cost, Numa, NumaInitiator, NumaRow, Rate, Report};
use crate::plan::Way;
use crate::units::significant;
use crate::view::{SPREAD_CAPTION, first_reasons, gbps, numa_matrices, spread};

/// Pairs of initiator and node that are shown figure by figure; of more the matrices must do.
const PAIRS_MOST: usize = 24;

/// What `membound numa` shows: the answer, the tables, what to distrust.
pub fn numa(report: &Report) -> String {
    if report.numa.is_none() {
        return "Too little was measured for a matrix; give a longer --budget, or a smaller --size.\n".into();
    }
    let sections = [findings(report), section(report), warnings(report)];
    sections.into_iter().filter(|section| !section.is_empty()).collect::<Vec<_>>().join("\n")
}

/// The tables. Empty where no matrix was measured.
pub(super) fn section(report: &Report) -> String {
    let Some(numa) = &report.numa else { return String::new() };
    let reasons = reason_lines(&first_reasons(&numa.rows));
    let left_out: String = numa.left_out.iter().map(|text| item(text)).collect();
    let sections = [kinds(numa), matrices(numa), pairs(numa), saturation(numa), side_caches(numa), left_out + &reasons];
    sections.into_iter().filter(|section| !section.is_empty()).collect::<Vec<_>>().join("\n")
}

/// What each node is, and why.
fn kinds(numa: &Numa) -> String {
    if numa.kinds.len() < 2 {
        return String::new();
    }
    let line = |kind: &crate::model::MeasuredNode| {
        let word = match kind.is_confirmed {
            Some(true) => "; what was measured agrees",
            Some(false) => "; what was measured disagrees",
            None => "",
        };
        let says: Vec<&str> = kind.nature.evidence.iter().map(|evidence| evidence.says.as_str()).collect();
        item(&format!("node {}: {} ({}{word})", kind.nature.node, kind.nature.kind, says.join("; ")))
    };
    head("Nodes") + &numa.kinds.iter().map(line).collect::<String>()
}

/// A matrix for each telling figure, where there is more than one place on a side.
fn matrices(numa: &Numa) -> String {
    if numa.initiators.len() < 2 && numa.nodes.len() < 2 {
        return String::new();
    }
    let mut text = String::new();
    for matrix in numa_matrices(numa) {
        let cell = |from: &NumaInitiator, to: u32| match matrix.row(numa, from, to) {
            Some(row) if matrix.is_best(numa, from, to) => format!("{}*", figure(row)),
            Some(row) => format!("{} ", figure(row)),
            None => "- ".into(),
        };
        let froms = || numa.initiators.iter();
        let mut columns = vec![Column::left("from \\ to", froms().map(|from| from.name.clone()))];
        columns.extend(
            numa.nodes.iter().map(|&to| Column::right(&format!("node {to} "), froms().map(|from| cell(from, to)))),
        );
        columns.retain(|column| !column.is_blank());
        if width(&columns, 1) <= COLUMNS && !columns.is_empty() {
            text += &(note(&format!("{}, medians; * is the row's best:", matrix.title)) + &table(&columns) + "\n");
        }
    }
    if text.is_empty() { text } else { head("Memory from everywhere") + text.trim_end_matches('\n') + "\n" }
}

fn figure(row: &NumaRow) -> String {
    let rate = row.payload_bps.map(|rate| gbps(rate.median));
    rate.or_else(|| row.latency_ns.map(|cost| significant(cost.median))).unwrap_or_else(|| "-".into())
}

/// Each pair by one core and by all, all ways.
fn pairs(numa: &Numa) -> String {
    let mut lines: Vec<(&NumaInitiator, u32, usize, Vec<&NumaRow>)> = Vec::new();
    for initiator in &numa.initiators {
        for &node in &numa.nodes {
            for cores in [1, initiator.cores.len()] {
                let is_ours = |row: &&NumaRow| (&row.initiator, row.node, row.cores) == (&initiator.name, node, cores);
                let rows: Vec<&NumaRow> = numa.rows.iter().filter(is_ours).collect();
                let is_new = !lines.iter().any(|line| (&line.0.name, line.1, line.2) == (&initiator.name, node, cores));
                if !rows.is_empty() && is_new {
                    lines.push((initiator, node, cores, rows));
                }
            }
        }
    }
    if lines.is_empty() || lines.len() > 2 * PAIRS_MOST {
        return String::new();
    }
    let cell = |rows: &[&NumaRow], way: Way| {
        let row = rows.iter().find(|row| row.way == way);
        let rate = |rate: &Rate| format!("{} {}", gbps(rate.median), spread(rate));
        let cost = |cost: &Cost| {
            let Cost { best, median, ci95 } = *cost;
            format!("{} {}", significant(median), spread(&Rate { best, median, ci95 }))
        };
        let text = row.and_then(|row| row.payload_bps.as_ref().map(rate).or_else(|| row.latency_ns.as_ref().map(cost)));
        text.unwrap_or_else(|| "-".into())
    };
    let mut columns = vec![
        Column::left("from", lines.iter().map(|line| line.0.name.clone())),
        Column::right("node", lines.iter().map(|line| line.1.to_string())),
        Column::right("cores", lines.iter().map(|line| line.2.to_string())),
    ];
    for &way in Way::ALL {
        let name = if way == Way::Latency { "latency\nns".to_string() } else { way.to_string().replace(' ', "\n") };
        let column = Column::right(&name, lines.iter().map(|line| cell(&line.3, way)));
        if column.cells.iter().any(|cell| cell != "-") {
            columns.push(column);
        }
    }
    let figures = 3..columns.len();
    let flags = |rows: &[&NumaRow]| {
        let all: std::collections::BTreeSet<String> =
            rows.iter().flat_map(|row| row.quality.flags.iter().cloned()).collect();
        flag_letters(&all.into_iter().collect::<Vec<_>>())
    };
    columns.push(Column::left("flag", lines.iter().map(|line| flags(&line.3))));
    if width(&columns, 1) > COLUMNS {
        // Six ways with their spread are wide: medians alone fit.
        for column in &mut columns[figures] {
            column.cells.iter_mut().for_each(|cell| {
                *cell = cell.split(' ').next().unwrap_or_default().to_string();
            });
        }
    }
    head("Each initiator and node")
        + &note(&format!("GB/s payload and ns: {SPREAD_CAPTION}, where there is room."))
        + &table(&columns)
        + &legend(&numa.rows)
}

fn saturation(numa: &Numa) -> String {
    let curves = &numa.saturation;
    if curves.is_empty() {
        return String::new();
    }
    let points = |curve: &crate::model::Saturation| {
        let points: Vec<String> =
            curve.points.iter().map(|(cores, rate)| format!("{cores}: {}", gbps(rate.median))).collect();
        points.join(", ")
    };
    let line = |curve: &crate::model::Saturation| {
        let crate::model::Saturation { initiator, node, way, cores, limit, .. } = curve;
        item(&format!("{initiator}, {way} from node {node}: {}; 95 % at {cores}; limit: {limit}", points(curve)))
    };
    head("How many cores saturate a domain")
        + &note("Cores: GB/s payload, medians; the fewest with 95 % of the best; what keeps it there.")
        + &curves.iter().map(line).collect::<String>()
}

fn side_caches(numa: &Numa) -> String {
    let mut text = String::new();
    for cache in &numa.side_caches {
        let columns = [
            Column::right("working set", cache.points.iter().map(|point| point.0.to_string())),
            Column::right(
                "of the cache",
                cache.points.iter().map(|point| significant(point.0.0 as f64 / cache.claimed.0.max(1) as f64)),
            ),
            Column::right("GB/s", cache.points.iter().map(|(_, rate)| number(Some(rate.median), gbps))),
        ];
        text += &(head(&format!("Memory-side cache of node {}, {}", cache.node, cache.claimed)) + &table(&columns));
    }
    text
}
