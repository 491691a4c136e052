//! What every adapter speaks of: a tool, its figures, and what each is a figure of.

use membound_core::kernel::chase::Order;
use membound_core::kernel::{StoreKind, Width};
use membound_core::stats::states::Better;
use membound_core::units::{Bytes, counted};
use membound_core::work::copies::CopyWork;
use membound_core::work::pingpong::MessageMode;

use crate::across::compare::figures::Figure;

/// 1e6 bytes, which most tools call MB.
pub(super) const MB: f64 = 1e6;

/// A tool whose output is read.
#[derive(Debug)]
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// What its figures count, in a sentence.
    pub counts: &'static str,
    /// Whether a text is its output.
    pub(super) is_output: fn(&str) -> bool,
    /// The figures in it.
    pub(super) readings: fn(&str) -> Result<Vec<Reading>, Fault>,
}

/// A figure of another tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// As its tool calls it.
    pub name: String,
    /// The figure, in the unit of its kind.
    pub value: f64,
    /// What it is a figure of.
    pub asks: Asks,
}

/// What a figure is a figure of, in our terms.
#[derive(Debug, Clone, PartialEq)]
pub enum Asks {
    /// Payload in 1e9 bytes per second.
    Bandwidth(Loop),
    /// Nanoseconds of a dependent load.
    Latency {
        /// The order in which lines are visited, if the output tells; of several each is held against it.
        orders: &'static [Order],
        /// Bytes from one place to the next.
        stride_bytes: u32,
        /// Working set; in memory where absent.
        bytes: Option<Bytes>,
    },
    /// A message between two processes: nanoseconds of `pingpong`, else 1e9 bytes per second.
    Message(MessageMode, Bytes),
    /// Copies between the host's memory and devices': 1e9 bytes per second that arrive, of large copies.
    Copy(CopyWork),
    /// Nothing that membound measures, with the reason; the unit stands beside it.
    Nothing(&'static str, &'static str),
}

/// A loop over arrays.
#[derive(Debug, Clone, PartialEq)]
pub struct Loop {
    /// The kernel.
    pub kernel: &'static str,
    /// The kinds of store that it may have had; of several each is held against it.
    pub stores: &'static [StoreKind],
    /// Its width, if the output tells.
    pub width: Option<Width>,
    /// Threads; all where absent.
    pub threads: Option<usize>,
    /// All its arrays together; in memory where absent.
    pub bytes: Option<Bytes>,
    /// Whether the tool prints the best of several passes.
    pub is_best: bool,
}

impl Asks {
    /// Unit and which way is better.
    fn unit(&self) -> (&'static str, Better) {
        match self {
            Asks::Bandwidth(_) | Asks::Copy(_) => ("GB/s", Better::Higher),
            Asks::Latency { .. } | Asks::Message(MessageMode::PingPong, _) => ("ns", Better::Lower),
            Asks::Message(..) => ("GB/s", Better::Higher),
            Asks::Nothing(unit, _) => (unit, if *unit == "ns" { Better::Lower } else { Better::Higher }),
        }
    }
}

/// A tool's figures.
#[derive(Debug)]
pub struct Foreign {
    /// The tool.
    pub tool: &'static Tool,
    /// What it printed.
    pub readings: Vec<Reading>,
}

impl Foreign {
    /// How many figures there are, and whose.
    pub fn about(&self) -> String {
        format!("{} of {}", counted(self.readings.len() as u64, "figure"), self.tool.name)
    }

    /// Its figures as they are, to be held against those of another file.
    pub fn figures(&self) -> Vec<Figure> {
        self.readings.iter().map(|reading| reading.figure(reading.name.clone())).collect()
    }
}

impl Reading {
    pub(super) fn figure(&self, name: String) -> Figure {
        let (unit, better) = self.asks.unit();
        Figure { name, unit: unit.into(), better, value: self.value, clock: None }
    }
}

/// What is wrong with a text, and in which line.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

/// A number above zero, at most so large that no product of three overflows.
pub(super) fn number(text: &str, line: usize) -> Result<f64, Fault> {
    let value = text.parse::<f64>().ok().filter(|value| *value > 0.0 && *value < 1e30);
    value.ok_or_else(|| Fault { line, what: format!("'{text}' is no number above zero") })
}

/// The lines of a text with their numbers, from 1.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()))
}

/// The number behind some words, wherever a line has them: `Using 2 threads` for ("Using ", " threads").
pub(super) fn between(text: &str, before: &str, behind: &str) -> Option<f64> {
    let (_, rest) = text.split_once(before)?;
    let (word, _) = rest.split_once(behind)?;
    word.trim().parse::<f64>().ok().filter(|value| *value > 0.0 && *value < 1e18)
}

/// Bytes of a count that a tool printed.
pub(super) fn bytes(count: f64) -> Bytes {
    Bytes(count.clamp(0.0, 1e18) as u64)
}
