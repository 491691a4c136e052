//! The answer as Markdown, as GitHub reads it: to be kept beside code, or pasted where people talk about it.

use crate::across::sections;
use crate::across::sections::overview::Screen;
use crate::missing::Missing;
use crate::output::{ending, machine_line};
use crate::report::Report;
use crate::section::{Cell, Column, Document, Item, Section, Table};
use membound_core::units::utc;

/// Columns of what is set in letters of one width.
const COLUMNS: usize = 100;

/// The whole report: the answer, what it comes from, what to distrust.
pub fn report(report: &Report) -> String {
    let host = if report.host.is_empty() { "membound report" } else { &report.host };
    let mut parts = vec![format!("# {}\n", plain(host))];
    parts.push(paragraph(&format!("{}, {}", report.tool, utc(report.started_unix_s))));
    parts.push(paragraph(&machine_line(&report.machine)));
    let screen = Screen { columns: COLUMNS, is_whole: true };
    parts.extend(sections::overview::sections(report, screen).iter().map(section));
    parts.push(list(&report.findings));
    for (_, sections) in report.sections() {
        parts.extend(sections.into_iter().map(|one| rest_of(one, &report.findings)));
    }
    let [warnings, host, _, verdict] = ending(report);
    let roofline = sections::roofline::section(&report.roofline, &report.rows);
    parts.extend([warnings, host, roofline, verdict].iter().filter(|part| !part.is_empty()).map(section));
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

/// A text of the terminal as it stands.
pub fn fenced(text: &str) -> String {
    let text = anstream::adapter::strip_str(text).to_string();
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}text\n{}\n{fence}\n", text.trim_end())
}

/// One section; empty where it says nothing.
pub fn section(section: &Section) -> String {
    let Section { title, about, sentences, facts, items, tables, verbatim, notes, details, missing, .. } = section;
    let heading = if title.is_empty() { String::new() } else { format!("## {}\n", plain(title)) };
    let mut parts = vec![heading, list(sentences), paragraph(about)];
    parts.push(items.iter().map(of_item).collect());
    parts.extend(tables.iter().map(table));
    if !verbatim.is_empty() {
        parts.push(fenced(&verbatim.join("\n")));
    }
    parts.push(facts.iter().map(|(name, value)| format!("- **{}**: {}\n", plain(name), plain(value))).collect());
    parts.extend([list(notes), list(details)]);
    if !missing.is_empty() {
        parts.extend([paragraph("Not measured:"), list(&missing.iter().map(Missing::line).collect::<Vec<_>>())]);
    }
    parts.retain(|part| !part.is_empty());
    // Charts are not drawn here: a section of nothing else would be a heading alone.
    let is_bare = parts.len() == usize::from(!title.is_empty());
    if is_bare { String::new() } else { parts.join("\n") }
}

/// A section without the sentences that stand above all sections.
fn rest_of(mut one: Section, told: &[String]) -> String {
    one.sentences.retain(|sentence| !told.contains(sentence));
    section(&one)
}

/// A whole answer.
pub fn document(document: &Document) -> String {
    let mut parts = vec![format!("# {}\n", plain(&document.title)), list(&document.sentences), list(&document.facts)];
    parts.extend(document.sections.iter().cloned().map(|one| rest_of(one, &document.sentences)));
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

fn of_item(item: &Item) -> String {
    let below = |(name, text): &(&str, String)| match *name {
        "" => format!("  - {}\n", plain(text)),
        "test" => format!("  - test: `{}`\n", text.replace('`', "'")),
        name => format!("  - {name}: {}\n", plain(text)),
    };
    format!("- {}\n", plain(&item.text)) + &item.below.iter().map(below).collect::<String>()
}

fn table(table: &Table) -> String {
    let line = |cells: &mut dyn Iterator<Item = String>| format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "));
    let mut text = if table.caption.is_empty() { String::new() } else { format!("**{}**\n\n", plain(&table.caption)) };
    text += &line(&mut table.columns.iter().map(head));
    text += &line(&mut table.columns.iter().map(|column| if column.is_right { "--:" } else { "---" }.into()));
    for index in 0..table.height() {
        for (_, title) in table.titles.iter().filter(|(at, _)| *at == index) {
            let blank = table.columns.iter().skip(1).map(|_| String::new());
            text += &line(&mut std::iter::once(format!("**{}**", plain(title))).chain(blank));
        }
        text += &line(&mut table.columns.iter().map(|column| cell(&column.cells[index])));
    }
    if table.notes.is_empty() { text } else { text + "\n" + &list(&table.notes) }
}

fn head(column: &Column) -> String {
    plain(column.head_in_line().trim())
}

fn cell(cell: &Cell) -> String {
    let words = cell.flags.iter().map(|flag| flag.word()).collect::<Vec<_>>().join(" ");
    let text = plain(&if words.is_empty() { cell.indented() } else { words });
    let text = text.trim_end();
    if cell.is_strong { format!("**{text}**") } else { text.into() }
}

fn paragraph(text: &str) -> String {
    if text.is_empty() { String::new() } else { plain(text) + "\n" }
}

fn list(items: &[String]) -> String {
    items.iter().map(|item| format!("- {}\n", plain(item))).collect()
}

/// Text that means itself: what Markdown or HTML would take for its own is escaped. Names of hosts and files may hold
/// anything.
fn plain(text: &str) -> String {
    let escaped = |c: char| match c {
        '\\' | '|' | '*' | '[' | ']' => format!("\\{c}"),
        '<' => "&lt;".into(),
        '&' => "&amp;".into(),
        c if c.is_control() => " ".into(),
        c => c.to_string(),
    };
    text.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heading_never_stands_alone() {
        let bare = Section { title: "Samples".into(), ..Section::default() };
        assert_eq!(section(&bare), "");
        let said = Section { sentences: vec!["fast".into()], ..bare };
        assert_eq!(section(&said), "## Samples\n\n- fast\n");
    }

    #[test]
    fn a_table_keeps_its_cells_apart() {
        let strong = Cell { is_strong: true, ..Cell::from("2 ") };
        let table = Table::new("a|b").left("x", ["  <i>"]).right("GB/\ns", [strong]).with_notes(vec!["n*".into()]);
        let section = Section { title: "T".into(), tables: vec![table], ..Section::default() };
        let expected =
            "## T\n\n**a\\|b**\n\n| x | GB/ s |\n| --- | --: |\n| \u{2002}\u{2002}&lt;i> | **2** |\n\n- n\\*\n";
        assert_eq!(super::section(&section), expected);
    }

    #[test]
    fn a_fence_is_longer_than_what_it_holds() {
        assert_eq!(fenced("a ``` b\n"), "````text\na ``` b\n````\n");
    }
}
