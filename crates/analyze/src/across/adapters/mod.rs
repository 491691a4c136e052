//! Output of other tools, read so that old figures can be held against ours. One file per tool, and a line in [`TOOLS`].
//!
//! An adapter finds figures in text and says what each is a figure *of*, in our terms ([`tool::Asks`]): kernel, stores, threads, working
//! set. It knows no record; [`counterpart`] finds the row that answers, or says why there is none.

pub mod counterpart;
mod likwid;
mod lmbench;
mod mlc;
mod netpipe;
mod nvbandwidth;
mod osu;
mod stream;
mod sysbench;
pub mod tool;

use std::path::{Path, PathBuf};

use membound_core::input;

use self::tool::{Fault, Foreign, Tool};

/// Bytes of a file at most: lat_mem_rd over many strides prints some ten thousand lines.
const FILE_MOST: u64 = 16 << 20;
/// Figures of a file at most.
const FIGURES_MOST: usize = 100_000;
/// All tools, those with the most telling signs first.
pub const TOOLS: [Tool; 8] =
    [stream::TOOL, likwid::TOOL, mlc::TOOL, nvbandwidth::TOOL, sysbench::TOOL, osu::TOOL, netpipe::TOOL, lmbench::TOOL];

/// Why a text can't be used.
#[derive(Debug, thiserror::Error)]
pub enum AdapterError {
    /// It can't be read.
    #[error("cannot read {path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// No tool prints this.
    #[error(
        "{path} is neither a record (.jsonl), nor figures by hand (.csv), nor the output of a tool that is known here: {known}"
    )]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The tools.
        known: String,
    },
    /// The output of a tool, but not as it prints it.
    #[error("{path}:{line}: this looks like {tool}, but {fault}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The tool.
        tool: &'static str,
        /// What is wrong with it.
        fault: String,
    },
}

/// Whether a text is the output of a tool that is known here.
pub fn tool_of(text: &str) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| (tool.is_output)(text))
}

/// Reads the output of a tool from a file.
pub fn read(path: &Path) -> Result<Foreign, AdapterError> {
    let text = input::text(path, FILE_MOST).map_err(|source| AdapterError::Unreadable { path: path.into(), source })?;
    parse(&text, path)
}

/// Reads the output of a tool; `path` is for errors.
pub fn parse(text: &str, path: &Path) -> Result<Foreign, AdapterError> {
    let known = || TOOLS.iter().map(|tool| tool.name).collect::<Vec<_>>().join(", ");
    let tool = tool_of(text).ok_or_else(|| AdapterError::Unknown { path: path.into(), known: known() })?;
    let fault = |Fault { line, what }| AdapterError::Line { path: path.into(), line, tool: tool.name, fault: what };
    let readings = (tool.readings)(text).map_err(fault)?;
    match readings.len() {
        0 => Err(fault(Fault { line: 1, what: "it holds no figure".into() })),
        count if count > FIGURES_MOST => Err(fault(Fault { line: 1, what: format!("it has {count} figures") })),
        _ => Ok(Foreign { tool, readings }),
    }
}
