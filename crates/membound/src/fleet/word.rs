//! What ranks say to each other: one line of JSON, and behind it the bytes of a record where a piece of one is sent. JSON, so
//! that ranks of other versions are at least understood well enough to be refused.

use membound_analyze::output::visible::is_hidden;
use membound_core::json;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Raised when ranks of an older membound would misunderstand what is said.
pub const PROTOCOL: u32 = 1;

/// Bytes of a piece at most. With the greatest number of nodes that are asked at once, it bounds the memory of gathering: 4 MiB.
pub const PIECE: usize = 64 << 10;
/// Bytes of a message at most: a piece, and words about it; or a greeting with its plan.
pub const MESSAGE_MOST: usize = 2 * PIECE;

/// What came of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeOutcome {
    /// Its record is whole.
    Measured,
    /// Its record is whole; cases in it failed, are invalid or were interrupted.
    Faulty,
    /// It measures, or its record is on its way.
    Running,
    /// What measured was ended by a signal, or gave up.
    Crashed,
    /// It was not done in time, and was ended.
    TimedOut,
    /// Its rank said nothing any more.
    Lost,
    /// It may not take part, or can't begin.
    Refused,
    /// The run was interrupted before it was done.
    Interrupted,
    /// Its record could not be written here.
    Unwritten,
}

impl NodeOutcome {
    /// In words.
    pub fn word(self) -> &'static str {
        match self {
            NodeOutcome::Measured => "measured",
            NodeOutcome::Faulty => "faulty",
            NodeOutcome::Running => "running",
            NodeOutcome::Crashed => "crashed",
            NodeOutcome::TimedOut => "timed out",
            NodeOutcome::Lost => "lost",
            NodeOutcome::Refused => "refused",
            NodeOutcome::Interrupted => "interrupted",
            NodeOutcome::Unwritten => "unwritten",
        }
    }
}

/// A word from rank to rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "word", rename_all = "snake_case")]
pub enum Word {
    /// To rank 0: who I am.
    Hello(Box<Hello>),
    /// From rank 0: what time is it?
    Ping {
        /// Which time this is asked.
        turn: u32,
    },
    /// To rank 0: so late.
    Pong {
        /// Which time this was asked.
        turn: u32,
        /// Nanoseconds since 1970 on the node's clock.
        unix_ns: u64,
    },
    /// From rank 0: measure this.
    Measure(Plan),
    /// From rank 0, again and again: hold still, I am here.
    Still,
    /// From rank 0: give me your record from `at` on.
    Ask {
        /// Bytes that are here already.
        at: u64,
        /// Bytes to send at most.
        most: usize,
    },
    /// To rank 0: a piece of the record.
    Piece(Piece),
    /// From rank 0: everything is done; say when you have heard.
    Last,
    /// To rank 0: heard.
    Bye,
    /// From rank 0: go.
    Leave {
        /// Without MPI_Finalize, which waits for ranks that will never come.
        abandon: bool,
        /// The exit code in that case.
        code: i32,
    },
}

/// Who a rank is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`] of the rank.
    pub protocol: u32,
    /// Name and version of its tool: `membound 0.1.0`.
    pub tool: String,
    /// Version of the records that it writes.
    pub record_schema: u32,
    /// Its host's name.
    pub host: String,
    /// The name of its node as Slurm knows it: several may share a host.
    pub slurm_node: Option<String>,
    /// Random number of its host's last boot: tells apart hosts of one name. Empty where it can't be read.
    pub boot_id: String,
    /// The plan on its own command line.
    pub arguments: Vec<String>,
}

impl Hello {
    /// This rank's, with the plan on its command line.
    pub fn here(tool: &str, host: String, arguments: Vec<String>) -> Self {
        Hello {
            protocol: PROTOCOL,
            tool: tool.into(),
            record_schema: membound_core::record::SCHEMA,
            host,
            slurm_node: std::env::var("SLURMD_NODENAME").ok().filter(|name| !name.is_empty()),
            boot_id: membound_measure::os::machine::boot_id(),
            arguments,
        }
    }
}

/// What a node is to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Arguments of membound, without any that say where results go.
    pub arguments: Vec<String>,
    /// Seconds that it may take.
    pub timeout_s: f64,
    /// Seconds without a word of rank 0 after which it is given up: the patience of rank 0, twice.
    pub silence_s: f64,
}

/// A piece of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Piece {
    /// Where it begins.
    pub at: u64,
    /// Bytes of complete lines that the node has.
    pub bytes: u64,
    /// How the node stands.
    pub state: State,
}

/// How a node's measuring stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It goes on.
    Running,
    /// It is over.
    Ended {
        /// How it ended.
        outcome: NodeOutcome,
        /// Why, where that is not plain.
        reason: Option<String>,
    },
}

impl Word {
    /// As a message, with a piece's bytes.
    pub fn pack(&self, bytes: &[u8]) -> Vec<u8> {
        let mut message = json::text(self).into_bytes();
        message.push(b'\n');
        message.extend_from_slice(bytes);
        message
    }

    /// From a message: nothing, where it is no word of this version.
    pub fn unpack(message: &[u8]) -> Option<(Word, &[u8])> {
        let end = message.iter().position(|byte| *byte == b'\n')?;
        let (word, bytes) = message.split_at(end);
        Some((serde_json::from_str(std::str::from_utf8(word).ok()?).ok()?, bytes.get(1..)?))
    }
}

/// What another machine says, fit for one line of a terminal.
pub fn shortened(text: &str, most: usize) -> String {
    let line: String = text.chars().map(|c| if c.is_control() || is_hidden(c) { ' ' } else { c }).collect();
    let line = line.trim();
    if line.chars().count() <= most {
        return line.into();
    }
    line.chars().take(most.saturating_sub(3)).collect::<String>() + "..."
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_others_say_fits_a_line() {
        assert_eq!(shortened("  plain\n", 10), "plain");
        assert_eq!(shortened("a\x1b[31mb\nc", 10), "a [31mb c");
        assert_eq!(shortened("0123456789ab", 10), "0123456...");
        assert_eq!(shortened("äöüäöüäöüä", 10), "äöüäöüäöüä");
    }

    #[test]
    fn words_arrive_as_they_were_sent() {
        let state = State::Ended { outcome: NodeOutcome::Crashed, reason: Some("signal 11\nand a line".into()) };
        let word = Word::Piece(Piece { at: 7, bytes: 9, state });
        let message = word.pack(b"a\nb\0");
        assert_eq!(Word::unpack(&message), Some((word, &b"a\nb\0"[..])));
        // A hello with what only a later version says is understood.
        let later = br#"{"word":"hello","protocol":9,"tool":"membound 9","record_schema":9,"host":"h","boot_id":"","arguments":[],"mood":"good"}"#;
        let (word, _) = Word::unpack(&[&later[..], b"\n"].concat()).unwrap();
        assert!(matches!(word, Word::Hello(hello) if hello.tool == "membound 9" && hello.slurm_node.is_none()));
    }

    proptest! {
        #[test]
        fn foreign_bytes_are_no_word(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some((word, rest)) = Word::unpack(&bytes) {
                let again = word.pack(rest);
                prop_assert_eq!(Word::unpack(&again), Some((word, rest)));
            }
        }
    }
}
