//! Sections, drawn as parts of the page.

use std::collections::BTreeSet;

use maud::{Markup, html};

use crate::flag::Flag;
use crate::missing::Missing;
use crate::output::html::parts::{boxed, marked, sortable};
use crate::section::{Cell, Document, Item, Section, Table};

/// Share of the heat's colour at its deepest: text on it must stay readable, in light and dark.
const HEAT_MOST: f64 = 60.0;

pub(crate) fn drawn(section: Section) -> crate::output::html::parts::Section {
    let is_empty = section.sentences.is_empty() && !section.has_more();
    let Section { id, title, about, sentences, facts, items, tables, verbatim, charts, notes, details, missing } =
        section;
    let flags: BTreeSet<Flag> = tables.iter().flat_map(|table| table.flags_seen()).collect();
    let body = html! {
        @for sentence in &sentences { p { (marked(sentence)) } }
        @if !items.is_empty() { dl.warnings { @for item in &items { (of_item(item)) } } }
        @for table in &tables { (of_table(table)) }
        @if !flags.is_empty() { dl.facts { @for flag in &flags { dt { (flag) } dd { (flag.means()) } } } }
        @if !verbatim.is_empty() {
            div.box tabindex="0" role="region" aria-label=(title) { pre { (verbatim.join("\n")) } }
        }
        @if !facts.is_empty() { dl.facts { @for (name, value) in &facts { dt { (name) } dd { (value) } } } }
        (list(&notes))
        @if !details.is_empty() { details { summary { "More" } (list(&details)) } }
        @if !missing.is_empty() { p { "Not measured:" } (list(&missing.iter().map(Missing::line).collect::<Vec<_>>())) }
    };
    crate::output::html::parts::Section { id, title, about, charts, body: (!is_empty).then_some(body) }
}

/// A whole answer as a page.
pub fn document(document: Document) -> String {
    let Document { title, facts, sentences, sections } = document;
    let first_screen = html! {
        h1 { (title) }
        p.facts { @for line in &facts { (line) br; } }
        @for (index, sentence) in sentences.iter().enumerate() {
            p.lead[index == 0].finding[index > 0] { (sentence) }
        }
    };
    let sections: Vec<_> = sections.into_iter().map(drawn).collect();
    let tool = concat!("membound ", env!("CARGO_PKG_VERSION"));
    crate::output::html::parts::document(&title, first_screen, tool, &sections).into_string()
}

fn of_item(item: &Item) -> Markup {
    html! {
        dt { (marked(&item.text)) }
        @for (name, text) in &item.below {
            dd { @if !["", "cure"].contains(name) { (name) ": " } @if *name == "test" { code { (text) } } @else { (marked(text)) } }
        }
    }
}

fn list(items: &[String]) -> Markup {
    html! { @if !items.is_empty() { ul { @for item in items { li { (marked(item)) } } } } }
}

fn of_table(table: &Table) -> Markup {
    // Few lines are found at a glance, and titles between lines belong where they stand.
    const MANY: usize = 30;
    let is_long = table.height() >= MANY && table.titles.is_empty();
    let framed = if is_long { sortable } else { boxed };
    let whole = framed(&table.caption, &to_the_right(table), html! { (heads(table)) (lines(table)) });
    html! {
        @if table.is_folded { details { summary { (table.caption) } (whole) } } @else { (whole) }
        (list(&table.notes))
    }
}

/// Columns of numbers, told once for a table: `r3 r4`, or all but the first. A class of each cell would be a tenth of the page.
fn to_the_right(table: &Table) -> String {
    if table.columns.len() > 1 && table.columns[1..].iter().all(|column| column.is_right) {
        return "numbers".into();
    }
    let right = table.columns.iter().enumerate().filter(|(_, column)| column.is_right);
    right.map(|(place, _)| format!("r{}", place + 1)).collect::<Vec<_>>().join(" ")
}

fn heads(table: &Table) -> Markup {
    html! { thead { tr { @for column in &table.columns { th.num[column.is_right] { (column.head_in_line()) } } } } }
}

fn lines(table: &Table) -> Markup {
    html! {
        tbody { @for line in 0..table.height() {
            @for (_, title) in table.titles.iter().filter(|(at, _)| *at == line) {
                tr { th.group colspan=(table.columns.len()) { (title) } }
            }
            // The ends of lines and cells are understood.
            tr; @for (place, column) in table.columns.iter().enumerate() {
                @if place == 0 { th; (text(&column.cells[line])) } @else { (of_cell(&column.cells[line])) }
            }
        } }
    }
}

fn of_cell(cell: &Cell) -> Markup {
    let heat = cell.heat.map(|heat| format!("--heat: {:.0}%", HEAT_MOST * heat.clamp(0.0, 1.0)));
    let hint = Some(&cell.hint).filter(|hint| !hint.is_empty());
    html! {
        @if let Some(heat) = heat { td.heat style=(heat) title=[hint]; } @else { td title=[hint]; }
        @if cell.is_strong { b { (text(cell)) } } @else { (text(cell)) }
    }
}

fn text(cell: &Cell) -> Markup {
    html! {
        @for (place, flag) in cell.flags.iter().enumerate() { @if place > 0 { " " } (flag) }
        @if cell.text == "-" { "–" } @else { (cell.indented()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line below another was flush with it.
    #[test]
    fn lines_below_others_hang_in() {
        let table = Table::new("").left("", ["memory", "  far apart"]);
        let drawn = of_table(&table).into_string();
        assert!(drawn.contains(">\u{2002}\u{2002}far apart"), "{drawn}");
    }
}
