//! The page of a comparison.

use maud::{Markup, html};

use super::{Section, boxed, charts, document, text};
use crate::model::compare::{Change, Comparison, ComparisonRow};
use crate::view::{chart, compared_figure, compared_names, map_line_name, speed_figure, verdict_word};

const CELLS: &str = "Speed of B in % of A's, with 95 % intervals; above 100 B is better, also where a lower figure is. \
    faster and slower: by more than chance (family-wise 95 %) and by more than the noise allowed.";
const CHANGES: &str = "What is not the same on both sides may be the cause of any difference below.";

/// The page.
pub fn comparison(comparison: &Comparison) -> String {
    let sections = [
        changes(&comparison.changes),
        Section {
            body: Some(html! { @for (name, rows) in comparison.groups() { (table(name, &rows)) } }),
            ..charts("cells", "Cells", CELLS, chart::comparison(comparison))
        },
        maps(comparison),
        one_sided(comparison),
        notes(comparison),
    ];
    let sections: Vec<Section> = sections.into_iter().filter(|section| !section.is_empty()).collect();
    let [a, b] = &comparison.names;
    document(&format!("{b} against {a}"), first_screen(comparison), "membound compare", &sections).into_string()
}

fn first_screen(comparison: &Comparison) -> Markup {
    let [a, b] = &comparison.names;
    html! {
        h1 { (b) " against " (a) }
        p.facts { @for line in compared_names(comparison) { (line) br; } }
        @for (index, finding) in comparison.findings.iter().enumerate() {
            p.lead[index == 0].finding[index > 0] { (finding) }
        }
    }
}

fn changes(changes: &[Change]) -> Section {
    let table = || {
        boxed(
            "Not the same on both sides",
            html! {
                thead { tr { th { "what" } th { "A" } th { "B" } } }
                tbody { @for change in changes { tr { th { (change.what) } td { (change.a) } td { (change.b) } } } }
            },
        )
    };
    text("changes", "Not the same", CHANGES, (!changes.is_empty()).then(table))
}

fn table(name: &str, rows: &[&ComparisonRow]) -> Markup {
    boxed(
        name,
        html! {
            thead { tr {
                th { "cell" } th.num { "A" } th.num { "B" } th.num { "B's speed, %" } th.num { "at equal clock, %" } th { "verdict" }
            } }
            tbody { @for row in rows { tr {
                th { (row.what) }
                td.num { (compared_figure(row.a, row)) }
                td.num { (compared_figure(row.b, row)) }
                td.num { (speed_figure(row.speed, row.speed_ci95)) }
                td.num { (speed_figure(row.speed_at_equal_clock, row.speed_at_equal_clock_ci95)) }
                td { (verdict_word(row.verdict)) }
            } } }
        },
    )
}

/// Latency maps of all records.
fn maps(comparison: &Comparison) -> Section {
    let lines: Vec<_> = comparison
        .reports
        .iter()
        .flat_map(|(name, report)| report.latency.map.iter().map(move |line| (name, line)))
        .collect();
    let table = || {
        boxed(
            "Memory latency over CPUs, ns: greatest, mean, least, standard deviation",
            html! {
                thead { tr {
                    th { "record" } th { "memory" } th.num { "CPUs" } th.num { "max" } th.num { "avg" } th.num { "min" } th.num { "sd" }
                } }
                tbody { @for (name, line) in &lines { tr {
                    th { (name) }
                    td { (map_line_name(line)) }
                    td.num { (line.cores.len()) }
                    @for ns in [line.max, line.avg, line.min, line.sd] { td.num { (format!("{ns:.1}")) } }
                } } }
            },
        )
    };
    text("maps", "Latency by CPU and node", "", (!lines.is_empty()).then(table))
}

fn one_sided(comparison: &Comparison) -> Section {
    let table = || {
        boxed(
            "Figures without a counterpart",
            html! {
                thead { tr { th { "cell" } th { "level" } th.num { "A" } th.num { "B" } th { "why not on the other side" } } }
                tbody { @for row in &comparison.one_sided { tr {
                    th { (row.what) }
                    td { (row.group) }
                    td.num { (compared_figure(row.a, row)) }
                    td.num { (compared_figure(row.b, row)) }
                    td { (row.reason.as_deref().unwrap_or("not measured there")) }
                } } }
            },
        )
    };
    text("one-sided", "On one side only", "", (!comparison.one_sided.is_empty()).then(table))
}

fn notes(comparison: &Comparison) -> Section {
    let list = || html! { ul { @for note in &comparison.notes { li { (note) } } } };
    text("notes", "Notes", "", (!comparison.notes.is_empty()).then(list))
}
