//! Sections, drawn as wide as the terminal.

use std::collections::BTreeSet;

use crate::flag::Flag;
use crate::output::terminal::text::{Column, columns_across, head, item, joined, note, paragraph, table, width};
use crate::section;
use crate::section::{Cell, Document, Item, Room, Section, Table};

/// Where the values of facts begin.
const LABEL: usize = 20;
/// Columns that a name has at least, where it is set on several lines.
const NAME: usize = 12;
/// How far the lines of a name hang in, but for the first.
const HANG: usize = 2;
/// A table of more columns is a matrix: in parts it would say nothing.
const MATRIX: usize = 12;

/// A section: its sentences stand above all sections already, its charts no terminal can show.
pub fn drawn(section: &Section) -> String {
    let Section { title, about, facts, items, verbatim, notes, details, missing, .. } = section;
    let (wide, tables): (Vec<&Table>, Vec<&Table>) = section.tables.iter().partition(|table| table.is_wide());
    let lists = [verbatim, notes, details].iter().all(|lines| lines.is_empty());
    if tables.is_empty() && facts.is_empty() && items.is_empty() && missing.is_empty() && lists {
        return String::new();
    }
    let flags: BTreeSet<Flag> = tables.iter().flat_map(|table| table.flags_seen()).collect();
    let mut text = head(title) + &note(about);
    text.extend(items.iter().map(of_item));
    for (index, table) in tables.iter().enumerate() {
        // Without a caption only a blank line keeps it apart.
        text.push_str(if index > 0 && table.caption.is_empty() { "\n" } else { "" });
        text += &of_table(table);
    }
    text.extend(wide.iter().filter(|table| table.is_folded).map(|table| elsewhere(table)));
    text.extend(verbatim.iter().map(|line| format!("{line}\n")));
    text.extend(facts.iter().map(|(name, value)| labelled(&format!("  {name:<0$}", LABEL - 3), value)));
    text.extend(notes.iter().chain(details).map(|note| item(note)));
    text.extend(flags.iter().map(|flag| paragraph(&format!("{} {flag}: {}", flag.letter(), flag.means()), "  ")));
    text.extend(missing.iter().map(|reason| item(&reason.line())));
    text
}

/// A whole answer: its sentences, what it was worked out from, its sections.
pub fn document(document: &Document) -> String {
    let answer: String = document
        .sentences
        .iter()
        .enumerate()
        .map(|(index, text)| if index == 0 { head(text) } else { item(text) })
        .collect();
    let facts = document.facts.iter().map(|line| note(line)).collect();
    joined([answer, facts].into_iter().chain(document.sections.iter().map(drawn)))
}

/// Where a table of many lines is.
fn elsewhere(table: &Table) -> String {
    item(&format!("{} ({} lines, on the page or by --format markdown)", table.caption, table.height()))
}

fn of_item(one: &Item) -> String {
    let below = |(name, text): &(&str, String)| match *name {
        "" => paragraph(text, "  "),
        "cure" => paragraph(&format!("-> {text}"), "  "),
        "test" => command(text),
        name => paragraph(&format!("{name}: {text}"), "  "),
    };
    item(&one.text) + &one.below.iter().map(below).collect::<String>()
}

/// A command to type, on several lines that a shell takes as one where it is long; a flag stays with its value.
fn command(text: &str) -> String {
    let mut lines = vec![String::from("  test:")];
    for (index, part) in text.split(" --").enumerate() {
        let part = if index == 0 { part.to_string() } else { format!("--{part}") };
        let line = lines.last_mut().expect("there is a first line");
        if index == 0 || line.chars().count() + part.chars().count() + " ".len() + " \\".len() <= columns_across() {
            *line += &format!(" {part}");
        } else {
            lines.push(format!("      {part}"));
        }
    }
    lines.join(" \\\n") + "\n"
}

/// A label and a value that goes on in the value's column.
fn labelled(label: &str, value: &str) -> String {
    let indent = LABEL.max(label.chars().count() + 1);
    let room = columns_across() - indent;
    let value: String = value.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    let line = |(index, line): (usize, &String)| {
        let label = if index == 0 { label } else { "" };
        format!("{label:<indent$}{line}").trim_end().to_string() + "\n"
    };
    broken(&value, room).iter().enumerate().map(line).collect()
}

/// Lines of so many columns: breaks behind commas, at spaces of parts that are wider than that, and behind commas and slashes of words
/// that are.
fn broken(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let breaks = |part: &str, at: &'static [char]| if part.trim_end().chars().count() > room { at } else { &[] };
    let pieces = text.split_inclusive(", ").flat_map(|part| part.split_inclusive(breaks(part, &[' '])));
    for piece in pieces.flat_map(|word| word.split_inclusive(breaks(word, &[',', '/']))) {
        let line = lines.last_mut().expect("there is a first line");
        if !line.trim().is_empty() && line.chars().count() + piece.trim_end().chars().count() > room {
            lines.push(piece.into());
        } else {
            line.push_str(piece);
        }
    }
    lines
}

fn of_table(all: &Table) -> String {
    let mut columns: Vec<(Room, Column)> = Vec::new();
    for (place, column) in all.columns.iter().enumerate().filter(|(_, column)| column.room != Room::Wide) {
        columns.push((column.room, of_column(column, place, all)));
    }
    let is_too_wide = |columns: &[(Room, Column)]| {
        columns.iter().map(|(_, column)| column.width() + 1).sum::<usize>() > columns_across() + 1
    };
    while is_too_wide(&columns) {
        let Some(spare) = columns.iter().rposition(|(room, _)| *room == Room::Spare) else { break };
        columns.remove(spare);
    }
    let columns: Vec<Column> = columns.into_iter().map(|(_, column)| column).collect();
    let columns = with_long_names(&columns).unwrap_or(columns);
    let notes: String = all.notes.iter().map(|note| item(note)).collect();
    let caption = if all.caption.is_empty() { String::new() } else { item(&all.caption) };
    let Some(parts) = in_parts(columns) else {
        let lines = item("Wider than a terminal: see the page, or --format markdown.");
        return caption + &lines + &notes;
    };
    caption + &parts.iter().map(|columns| table(columns)).collect::<String>() + &notes
}

/// Columns that stand side by side; those that find no room stand below, behind the columns that name a line once more. `None` of a
/// matrix that finds no room, and of columns that are too wide by themselves.
fn in_parts(columns: Vec<Column>) -> Option<Vec<Vec<Column>>> {
    let fits = |columns: &Vec<Column>| width(columns, 1) <= columns_across();
    if columns.len() > MATRIX {
        return fits(&columns).then(|| vec![columns]);
    }
    let names = names(&columns);
    let mut columns = columns.into_iter();
    let first: Vec<Column> = columns.by_ref().take(names).collect();
    let mut parts = vec![first.clone()];
    for column in columns {
        let last = parts.last_mut()?;
        last.push(column);
        if !fits(last) {
            let column = last.pop()?;
            parts.push(first.iter().cloned().chain([column]).collect());
        }
    }
    parts.iter().all(fits).then_some(parts)
}

/// How many of the first columns tell each line from all others; 1 where they would take half of the room, and leave too little for the
/// rest.
fn names(columns: &[Column]) -> usize {
    let height = columns.first().map_or(0, |column| column.cells.len());
    // The lines below a title are told apart from those below another.
    let is_title = |line: usize| columns.iter().skip(1).all(|column| column.cells[line].is_empty());
    let mut title = 0;
    let mut below = |line| {
        title += usize::from(is_title(line));
        title
    };
    let titles: Vec<usize> = (0..height).map(&mut below).collect();
    let tell_apart = |count: &usize| {
        let name = |line: usize| columns[..*count].iter().map(|column| &column.cells[line]).collect::<Vec<_>>();
        (0..height).map(|line| (titles[line], name(line))).collect::<BTreeSet<_>>().len() == height
    };
    let fits = |count: &usize| 2 * width(&columns[..*count], 1) <= columns_across();
    (1..columns.len()).take_while(fits).find(tell_apart).unwrap_or(1)
}

/// A table that is too wide, with the longest names on several lines, where it fits so. Figures, which stand on the right, stay whole.
fn with_long_names(columns: &[Column]) -> Option<Vec<Column>> {
    let excess = width(columns, 1).checked_sub(columns_across()).filter(|excess| *excess > 0)?;
    let (place, names) =
        columns.iter().enumerate().filter(|(_, column)| !column.is_right).max_by_key(|(_, column)| column.width())?;
    let room = names.width().checked_sub(excess).filter(|room| *room >= NAME)?;
    let lines: Vec<Vec<String>> = names.cells.iter().map(|name| on_lines(name, room)).collect();
    let column = |(at, column): (usize, &Column)| {
        let mut cells = Vec::new();
        for (lines, cell) in lines.iter().zip(&column.cells) {
            let below = (1..lines.len()).map(|line| if at == place { lines[line].clone() } else { String::new() });
            cells.push(if at == place { lines[0].clone() } else { cell.clone() });
            cells.extend(below);
        }
        Column { cells, ..column.clone() }
    };
    let columns: Vec<Column> = columns.iter().enumerate().map(column).collect();
    (width(&columns, 1) <= columns_across()).then_some(columns)
}

/// A name on lines of so many columns; all but the first hang in.
fn on_lines(name: &str, room: usize) -> Vec<String> {
    if name.chars().count() <= room {
        return vec![name.into()];
    }
    let indent = name.chars().take_while(|letter| *letter == ' ').count() + HANG;
    let line = |(index, line): (usize, String)| {
        if index == 0 { line.trim_end().into() } else { format!("{:indent$}{}", "", line.trim()) }
    };
    broken(name, room.saturating_sub(indent)).into_iter().enumerate().map(line).collect()
}

/// Titles between lines stand in the first column, whose other cells are indented then.
fn of_column(column: &section::Column, place: usize, all: &Table) -> Column {
    let indent = if place == 0 && !all.titles.is_empty() { "  " } else { "" };
    let mut cells = Vec::new();
    for (index, cell) in column.cells.iter().enumerate() {
        let titles = all.titles.iter().filter(|(at, _)| *at == index);
        cells.extend(titles.map(|(_, title)| if place == 0 { title.clone() } else { String::new() }));
        cells.push(format!("{indent}{}", text(cell)));
    }
    Column { head: column.head.clone(), cells, is_right: column.is_right }
}

fn text(cell: &Cell) -> String {
    if cell.flags.is_empty() { cell.text.clone() } else { crate::output::terminal::text::flag_letters(&cell.flags) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What tells two lines apart may stand at the end of their names, and a cut figure is a wrong one.
    #[test]
    fn nothing_is_cut() {
        let names = ["  load 256 regular, 24 KiB, 1 thread", "  load 256 regular, 24 KiB, 2 threads"];
        let figures = |letter: char| [String::from(letter).repeat(26), "1".into()];
        let drawn = of_table(&Table::new("").left("", names).right("a", figures('a')).right("b", figures('b')));
        let lines: Vec<&str> = drawn.lines().collect();
        assert_eq!(lines[1].split_whitespace().next_back(), Some(&*figures('b')[0]), "{drawn}");
        assert_eq!([lines[2], lines[4]], ["    24 KiB, 1 thread", "    24 KiB, 2 threads"], "{drawn}");
        assert!(lines.len() == 5 && lines[1..].iter().all(|line| line.chars().count() <= 80), "{drawn}");
    }

    /// Three columns of 40 and one of names at 80: one beside the names at a time.
    #[test]
    fn what_finds_no_room_stands_below() {
        let wide = |letter: char| [String::from(letter).repeat(40), "1".into()];
        let named = Table::new("").left("kind", ["heap", "wc"].map(String::from));
        let drawn = of_table(&named.clone().right("a", wide('a')).right("b", wide('b')).right("c", wide('c')));
        let lines: Vec<&str> = drawn.lines().collect();
        assert_eq!(lines.len(), 9, "{drawn}");
        assert!(lines.iter().all(|line| line.len() < 80), "{drawn}");
        assert_eq!(lines.iter().filter(|line| line.starts_with("heap")).count(), 3, "{drawn}");
        // Names alone tell no line from the other: what does so is repeated.
        let twice = Table::new("").left("kind", ["heap", "heap"]).right("size", ["4 KiB", "8 KiB"]);
        let drawn = of_table(&twice.right("a", wide('a')).right("b", wide('b')));
        assert_eq!(drawn.lines().filter(|line| line.starts_with("heap  8 KiB")).count(), 2, "{drawn}");
        let too_wide = of_table(&named.right("a", ["a".repeat(90), "1".into()]));
        assert!(too_wide.contains("Wider than a terminal"), "{too_wide}");
    }
}
