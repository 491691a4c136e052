//! Figures by hand, from other tools or from papers: a CSV file with a line each.
//!
//! ```text
//! name,unit,better,value,clock
//! Euler3D,Hz,higher,0.971,1.5GHz
//! Kraken,ms,lower,6512.7,1.5GHz
//! ```
//!
//! `clock` may be left out, as a column or in a line. Several lines of one name are several runs.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use membound_core::input;
use membound_core::stats::states::Better;
use membound_core::units::Hertz;

/// Bytes of a file at most.
const FILE_MOST: u64 = 16 << 20;

/// One figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// What it is a figure of.
    pub name: String,
    /// Its unit, as it is to be shown.
    pub unit: String,
    /// Which way is better.
    pub better: Better,
    /// The figure: positive and finite.
    pub value: f64,
    /// The clock that it was measured at.
    pub clock: Option<Hertz>,
}

/// Why figures can't be read, and what helps.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// The file can't be read.
    #[error("cannot read {path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A line is wrong.
    #[error(
        "{path}:{line}: {fault}; write name,unit,better,value or name,unit,better,value,clock, such as Kraken,ms,lower,5883,1.5GHz"
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        fault: String,
    },
    /// Nothing but a head.
    #[error("{path} holds no figures; below the head `name,unit,better,value` write a line for each")]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

#[derive(Deserialize)]
struct Line {
    name: String,
    unit: String,
    better: String,
    value: String,
    #[serde(default)]
    clock: Option<String>,
}

impl Figure {
    /// Reads a file of figures.
    pub fn read(path: &Path) -> Result<Vec<Figure>, FigureError> {
        let text =
            input::text(path, FILE_MOST).map_err(|source| FigureError::Unreadable { path: path.into(), source })?;
        Figure::parse(text.as_bytes(), path)
    }

    /// Figures in text; `path` is for errors.
    pub fn parse(text: &[u8], path: &Path) -> Result<Vec<Figure>, FigureError> {
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).comment(Some(b'#')).from_reader(text);
        let mut figures = Vec::new();
        let mut lines = reader.deserialize::<Line>();
        while let Some(line) = lines.next() {
            let end = lines.reader().position().byte();
            let at = |fault| FigureError::Line { path: path.into(), line: last_line(text, end), fault };
            let line = line.map_err(|fault| at(plain(&fault)))?;
            figures.push(line.figure().map_err(at)?);
        }
        if figures.is_empty() { Err(FigureError::Empty { path: path.into() }) } else { Ok(figures) }
    }
}

/// The last line with anything in it of so many bytes, from 1. A CSV reader's own count is where it began to look for a record:
/// before comments and empty lines.
fn last_line(text: &[u8], bytes: u64) -> u64 {
    let read = text[..bytes as usize].trim_ascii_end();
    1 + read.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// What a CSV reader says, without its own counting of lines.
fn plain(fault: &csv::Error) -> String {
    match fault.kind() {
        csv::ErrorKind::Deserialize { err, .. } => err.kind().to_string(),
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("{len} fields where the head has {expected_len}")
        }
        _ => fault.to_string(),
    }
}

impl Line {
    fn figure(self) -> Result<Figure, String> {
        let value = self.value.parse::<f64>().ok().filter(|value| value.is_finite() && *value > 0.0);
        let value = value.ok_or_else(|| format!("'{}' is no number above zero", self.value))?;
        let better = self.better.parse::<Better>().map_err(|fault| fault.to_string())?;
        let clock = self.clock.filter(|text| !text.is_empty());
        let clock = clock.map(|text| text.parse::<Hertz>().map_err(|fault| fault.to_string())).transpose()?;
        if self.name.is_empty() {
            return Err("a figure without a name".into());
        }
        Ok(Figure { name: self.name, unit: self.unit, better, value, clock })
    }
}
