//! An answer said once: sentences, the tables they come from, charts, and what to know about them. An output draws any
//! section in its own way, and adds no word to it.

use crate::chart::Chart;
use crate::flag::Flag;
use crate::missing::Missing;
use crate::rate::{Cost, Rate};
use crate::row::AnyRow;
use crate::wording::{farther, gbps, spread};
use membound_core::units::Nanoseconds;

/// A whole answer: what stands above all sections, and the sections.
#[derive(Debug, Clone, Default)]
pub struct Document {
    /// What it is about.
    pub title: String,
    /// What it was worked out from, a line each.
    pub facts: Vec<String>,
    /// The answer in whole sentences, most important first.
    pub sentences: Vec<String>,
    /// What it comes from.
    pub sections: Vec<Section>,
}

/// Something to say, and what belongs to it.
#[derive(Debug, Clone, Default)]
pub struct Item {
    /// What is the case.
    pub text: String,
    /// What else there is to it, each with its name: `cure`, `test`. A name may be empty.
    pub below: Vec<(&'static str, String)>,
}

/// What is told of one question.
#[derive(Debug, Clone, Default)]
pub struct Section {
    /// Its place in a page: `#streams`.
    pub id: &'static str,
    /// What stands above it.
    pub title: String,
    /// How to read it.
    pub about: String,
    /// The answer in whole sentences. A terminal shows them above all sections.
    pub sentences: Vec<String>,
    /// Values by their names.
    pub facts: Vec<(String, String)>,
    /// What has more to it than a line, most important first.
    pub items: Vec<Item>,
    /// What the answer comes from.
    pub tables: Vec<Table>,
    /// Lines that stand as they are, in letters of one width: a format that others have set.
    pub verbatim: Vec<String>,
    /// The same to look at.
    pub charts: Vec<Chart>,
    /// What else is to be said, an item each.
    pub notes: Vec<String>,
    /// What a summary leaves out, and a page opens on demand, an item each.
    pub details: Vec<String>,
    /// What could not be measured, and why.
    pub missing: Vec<Missing>,
}

impl Section {
    /// Whether there is nothing to show.
    pub fn is_empty(&self) -> bool {
        self.charts.is_empty() && self.sentences.is_empty() && !self.has_more()
    }

    /// Whether it says more than its sentences, without its charts.
    pub fn has_more(&self) -> bool {
        let Section { facts, items, tables, verbatim, notes, details, missing, .. } = self;
        let lists = [verbatim, notes, details].iter().all(|lines| lines.is_empty());
        !(facts.is_empty() && items.is_empty() && tables.is_empty() && missing.is_empty() && lists)
    }
}

impl Document {
    /// With those sections that have something to show.
    pub fn new(title: impl Into<String>, sentences: Vec<String>, sections: impl IntoIterator<Item = Section>) -> Self {
        let sections = sections.into_iter().filter(|section| !section.is_empty()).collect();
        Document { title: title.into(), facts: Vec::new(), sentences, sections }
    }
}

impl Cell {
    /// A rate in GB/s, its spread on demand.
    pub(crate) fn gbps(rate: Rate) -> Cell {
        Cell { text: gbps(rate.value()), hint: spread(&rate), ..Cell::default() }
    }

    /// The same with its spread beside it where the figure alone would mislead: one fast visit of many is a range far wider than 10 %.
    pub(crate) fn gbps_if_sure(rate: Rate) -> Cell {
        const SURE: [f64; 2] = [0.1, 0.5];
        let sure = SURE[usize::from(rate.has_interval())];
        let cell = Cell::gbps(rate);
        let text = if farther(rate.interval()) > sure { format!("{} {}", cell.text, cell.hint) } else { cell.text };
        Cell { text, ..cell }
    }

    /// What something takes, its ends on demand.
    pub(crate) fn time(cost: Cost) -> Cell {
        let [low, high] = cost.ends().map(Nanoseconds);
        Cell { text: Nanoseconds(cost.value()).to_string(), hint: format!("{low} to {high}"), ..Cell::default() }
    }

    /// A text whose ground is the deeper coloured the worse it is, from 0 to 1.
    pub fn heated(text: impl Into<String>, heat: f64) -> Cell {
        Cell { heat: heat.is_finite().then_some(heat), ..Cell::from(text.into()) }
    }
}

/// Columns of equal length, below a caption.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// What it shows.
    pub caption: String,
    /// Its columns; the first names the lines.
    pub columns: Vec<Column>,
    /// Titles between lines: before the line of that index.
    pub titles: Vec<(usize, String)>,
    /// What follows from it, an item each.
    pub notes: Vec<String>,
    /// Whether a page opens it on demand only.
    pub is_folded: bool,
}

/// A column, filled from above.
#[derive(Debug, Clone)]
pub struct Column {
    /// What stands above it; `\n` is where a narrow output may break it.
    pub head: String,
    /// Whether its cells are set right, as figures are.
    pub is_right: bool,
    /// Where it is shown.
    pub room: Room,
    /// One a line.
    pub cells: Vec<Cell>,
}

impl Column {
    /// Its heading on one line; a word that was broken at a hyphen is whole again.
    pub(crate) fn head_in_line(&self) -> String {
        self.head.replace("-\n", "").replace('\n', " ")
    }

    /// Whether the same stands in each of its cells.
    pub(crate) fn is_constant(&self) -> bool {
        self.cells.windows(2).all(|pair| pair[0] == pair[1]) && !self.cells.iter().any(Cell::is_blank)
    }
}

/// How much room a column needs to be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// Always there.
    Any,
    /// Left out of a terminal where the table would be too wide; the last such column goes first.
    Spare,
    /// Never in a terminal.
    Wide,
}

/// What stands at one place of a table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cell {
    /// The text; `-` where there is nothing.
    pub text: String,
    /// Whether it is to catch the eye.
    pub is_strong: bool,
    /// How deep its ground is coloured, from 0 to 1.
    pub heat: Option<f64>,
    /// What is said on demand only, where an output can.
    pub hint: String,
    /// Flags in place of a text: letters in a terminal, words elsewhere.
    pub flags: Vec<Flag>,
}

impl Cell {
    /// Where there is no figure.
    pub fn none() -> Cell {
        "-".into()
    }

    /// What there is to know about a row.
    pub fn flags(row: &dyn AnyRow) -> Cell {
        Cell { flags: row.quality().map_or_else(Vec::new, |quality| quality.flags.clone()), ..Cell::default() }
    }

    /// The text where spaces count for nothing: those in front, which set a line below another, are wide ones.
    pub(crate) fn indented(&self) -> String {
        let text = self.text.trim_start_matches(' ');
        "\u{2002}".repeat(self.text.len() - text.len()) + text
    }

    /// Whether nothing stands there.
    pub fn is_blank(&self) -> bool {
        self.flags.is_empty() && ["", "-"].contains(&self.text.trim())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell { text, ..Cell::default() }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        text.to_string().into()
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(cell: Option<T>) -> Cell {
        cell.map_or_else(Cell::none, Into::into)
    }
}

impl Table {
    /// Without columns.
    pub fn new(caption: impl Into<String>) -> Table {
        Table { caption: caption.into(), ..Table::default() }
    }

    /// With one more column, set left.
    pub fn left<C: Into<Cell>>(mut self, head: &str, cells: impl IntoIterator<Item = C>) -> Table {
        self.add(head, &mut cells.into_iter().map(Into::into));
        self
    }

    /// Takes cells one by one: what collects them is compiled once, not for each of some hundred columns.
    fn add(&mut self, head: &str, cells: &mut dyn Iterator<Item = Cell>) {
        self.columns.push(Column { head: head.into(), is_right: false, room: Room::Any, cells: cells.collect() });
    }

    /// With one more column, set right.
    pub fn right<C: Into<Cell>>(self, head: &str, cells: impl IntoIterator<Item = C>) -> Table {
        let mut table = self.left(head, cells);
        table.last().is_right = true;
        table
    }

    /// The last column needs so much room.
    pub fn in_room(mut self, room: Room) -> Table {
        self.last().room = room;
        self
    }

    /// With the flags of rows, a row a line, as its last column.
    pub fn flags<'a, R: AnyRow + 'a>(self, rows: impl IntoIterator<Item = &'a R>) -> Table {
        self.left("flag", rows.into_iter().map(|row| Cell::flags(row)))
    }

    /// Without columns that hold nothing.
    pub fn without_blanks(mut self) -> Table {
        self.columns.retain(|column| !column.cells.iter().all(Cell::is_blank));
        self
    }

    /// Opened on demand only, in a page.
    pub fn folded(self) -> Table {
        Table { is_folded: true, ..self }
    }

    /// Never in a terminal, which has no room for so many lines.
    pub fn wide(mut self) -> Table {
        self.columns.iter_mut().for_each(|column| column.room = Room::Wide);
        self
    }

    /// Whether no terminal shows it.
    pub fn is_wide(&self) -> bool {
        self.columns.iter().all(|column| column.room == Room::Wide)
    }

    /// With what follows from it.
    pub fn with_notes(self, notes: Vec<String>) -> Table {
        Table { notes, ..self }
    }

    /// Lines, titles between them not counted.
    pub fn height(&self) -> usize {
        self.columns.first().map_or(0, |column| column.cells.len())
    }

    /// Flags that occur, each once, in the order of their table.
    pub fn flags_seen(&self) -> impl Iterator<Item = Flag> {
        let seen = |flag: &&Flag| self.columns.iter().flat_map(|c| &c.cells).any(|cell| cell.flags.contains(flag));
        Flag::ALL.iter().filter(seen).copied()
    }

    fn last(&mut self) -> &mut Column {
        self.columns.last_mut().expect("a column is there before anything is said of it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use membound_core::stats::states::{Capability, Ends};

    /// One visit of nine at 11.2 GB/s, the others at 7.84 and more: 30 % less.
    #[test]
    fn a_fast_visit_of_many_is_no_figure_by_itself() {
        let shown = |value: f64, low: f64, high: f64, ends| {
            let [value, low, high] = [value, low, high].map(|gbps| gbps * 1e9);
            Cell::gbps_if_sure(Rate {
                capability: Capability { value, low, high, ends },
                ..Rate::plain(value, value, [low, high])
            })
            .text
        };
        assert_eq!(shown(11.2, 7.84, 11.2, Ends::Range), "11.2 ~30%");
        assert_eq!(shown(11.2, 10.6, 11.2, Ends::Range), "11.2");
        assert_eq!(shown(11.2, 7.84, 11.2, Ends::Ci95), "11.2");
        assert_eq!(shown(11.4, 8.4, 27.0, Ends::Ci95), "11.4 [8.40, 27.0]");
    }
}
