//! Paragraphs, items and tables, as wide as the terminal.

use std::cell::Cell;
use std::ops::RangeInclusive;

use anstyle::Style;

use crate::flag::Flag;

/// Columns that text can be set in. Longer lines are hard to read, and shorter ones hold no table.
const WIDTHS: RangeInclusive<usize> = 80..=200;

thread_local! {
    /// As colour, a matter of where text goes and of no view: set once, around all that draws.
    static COLUMNS: Cell<usize> = const { Cell::new(80) };
}

/// What `draw` makes with so many columns, as far as text can have them; 80 elsewhere.
pub fn at_width<T>(columns: usize, draw: impl FnOnce() -> T) -> T {
    let before = COLUMNS.replace(columns.clamp(*WIDTHS.start(), *WIDTHS.end()));
    let drawn = draw();
    COLUMNS.set(before);
    drawn
}

/// Columns that text is set in.
pub(crate) fn columns_across() -> usize {
    COLUMNS.get()
}

pub(crate) const BOLD: Style = Style::new().bold();

pub(crate) const DIM: Style = Style::new().dimmed();

pub(crate) fn joined(sections: impl IntoIterator<Item = String>) -> String {
    sections.into_iter().filter(|section| !section.is_empty()).collect::<Vec<_>>().join("\n")
}

pub(crate) fn flag_letters(flags: &[Flag]) -> String {
    flags.iter().map(|flag| flag.letter()).collect()
}

/// One column of a table, filled from above.
#[derive(Clone)]
pub(crate) struct Column {
    pub(crate) head: String,
    pub(crate) cells: Vec<String>,
    pub(crate) is_right: bool,
}

impl Column {
    pub(crate) fn width(&self) -> usize {
        self.cells
            .iter()
            .map(String::as_str)
            .chain(self.head.lines())
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    }

    pub(crate) fn padded(&self, cell: &str, width: usize) -> String {
        if self.is_right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
    }
}

pub(crate) fn width(columns: &[Column], gap: usize) -> usize {
    columns.iter().map(|column| column.width() + gap).sum::<usize>() - gap
}

/// Columns two spaces apart, or one where the table would be too wide.
pub(crate) fn table(columns: &[Column]) -> String {
    let gap = if width(columns, 2) > columns_across() { " " } else { "  " };
    let widths: Vec<usize> = columns.iter().map(Column::width).collect();
    let line = |cell: &dyn Fn(&Column) -> String| {
        let cells: Vec<String> =
            columns.iter().zip(&widths).map(|(column, width)| column.padded(&cell(column), *width)).collect();
        cells.join(gap).trim_end().to_string() + "\n"
    };
    let rows = columns.first().map_or(0, |column| column.cells.len());
    let body: String = (0..rows).map(|index| line(&|column| column.cells[index].clone())).collect();
    // Heads stand on the table: a short one leaves the lines above it empty.
    let tallest = columns.iter().map(|column| column.head.lines().count()).max().unwrap_or(0);
    let word = |column: &Column, index: usize| {
        let missing = tallest - column.head.lines().count();
        index.checked_sub(missing).and_then(|index| column.head.lines().nth(index)).unwrap_or_default().to_string()
    };
    let heads: String = (0..tallest).map(|index| line(&|column| word(column, index))).collect();
    styled(BOLD, &heads) + &body
}

pub(crate) fn head(text: &str) -> String {
    styled(BOLD, &paragraph(text, ""))
}

pub(crate) fn note(text: &str) -> String {
    styled(DIM, &paragraph(text, ""))
}

/// A list item: the first line hangs out.
pub(crate) fn item(text: &str) -> String {
    let text = paragraph(text, "  ");
    text.strip_prefix("  ").map_or_else(String::new, |rest| format!("- {rest}"))
}

/// Styles each line by itself, so that no line break falls inside.
pub(crate) fn styled(style: Style, text: &str) -> String {
    text.lines().map(|line| format!("{style}{line}{style:#}\n")).collect()
}

/// Text wrapped at the terminal's width, every line indented. Control characters, which a host name or a file may
/// bring along, are shown as what they are.
pub(crate) fn paragraph(text: &str, indent: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns_across() => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("{indent}{word}")),
        }
    }
    lines.into_iter().map(|line| line + "\n").collect()
}
