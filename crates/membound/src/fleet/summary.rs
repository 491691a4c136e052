//! What came of a fleet's run: `fleet.json` beside the records, and the sentence for people.

use crate::fleet::word::NodeOutcome;
use membound_core::json;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fleet::word::shortened;
use membound_core::units::{counted, significant};
use membound_measure::os::outfile;
use membound_measure::os::outfile::Readers;

/// Version of the summary's schema; raised when a reader of the old one would misread the new one.
pub const SCHEMA: u32 = 1;
/// Its file's name.
pub const FILE: &str = "fleet.json";
/// Clocks that are farther apart than this are told of: records are dated by them.
const APART_S: f64 = 1.0;

/// A fleet's run, as it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// [`SCHEMA`] of the writer.
    pub schema: u32,
    /// Name and version of the tool.
    pub tool: String,
    /// The command line of rank 0.
    pub command: Vec<String>,
    /// What each node was to do: arguments of membound; none are the default run.
    pub plan: Vec<String>,
    /// Start, seconds since 1970 (UTC), by the clock of rank 0.
    pub started_unix_s: u64,
    /// Seconds since then.
    pub wall_s: f64,
    /// Whether no more will change.
    pub complete: bool,
    /// What carried messages, as it calls itself.
    pub mpi: String,
    /// Ranks in all.
    pub ranks: usize,
    /// The nodes, in the order of their lowest ranks.
    pub nodes: Vec<NodeSummary>,
    /// What gathering cost.
    pub gathering: Gathering,
}

/// What came of one node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeSummary {
    /// Its name here, and that of its record.
    pub name: String,
    /// Its host's name; empty if its rank never spoke.
    pub host: String,
    /// Random number of its host's last boot.
    pub boot_id: String,
    /// The rank that measures.
    pub rank: usize,
    /// Ranks on it.
    pub ranks: usize,
    /// Its tool and version.
    pub tool: String,
    /// Its clock against that of rank 0; absent where it was not compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockOffset>,
    /// What came of it.
    pub outcome: NodeOutcome,
    /// Why, where that is not plain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its record's file, in the folder of the summary; absent while it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
    /// Bytes of its record that are here.
    pub bytes: u64,
    /// Visits in its record; 0 while more may come.
    pub visits: u64,
}

/// How far a clock is ahead of that of rank 0.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockOffset {
    /// Seconds that it is ahead; negative if it is behind.
    pub offset_s: f64,
    /// Half of the time that question and answer took: the offset is not farther from the truth.
    pub error_s: f64,
}

/// What gathering cost rank 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gathering {
    /// Pieces that arrived.
    pub pieces: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Seconds from the first question to the end.
    pub wall_s: f64,
    /// CPU seconds of rank 0 in them.
    pub cpu_s: f64,
}

impl Summary {
    /// Whether anything is not as asked for.
    pub fn failed(&self) -> bool {
        self.nodes.iter().any(|node| node.outcome != NodeOutcome::Measured)
    }

    /// Writes it to the folder: a reader finds the old one or the new one, and never half of one.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let text = json::pretty(self) + "\n";
        outfile::replace(&folder.join(FILE), text.as_bytes(), Readers::Usual)
    }

    /// What to tell people, in 80 columns: how many nodes came to what, and why each that is not measured is not.
    pub fn text(&self) -> String {
        let mut counts: BTreeMap<NodeOutcome, usize> = BTreeMap::new();
        self.nodes.iter().for_each(|node| *counts.entry(node.outcome).or_default() += 1);
        let counts: Vec<String> = counts.iter().map(|(outcome, count)| format!("{count} {}", outcome.word())).collect();
        let mut text = format!("{}: {}", counted(self.nodes.len(), "node"), counts.join(", "));
        let told: Vec<String> = self.nodes.iter().filter_map(told).collect();
        match told.as_slice() {
            [one] if text.len() + one.len() + 3 <= COLUMNS => text.push_str(&format!(" ({one})\n")),
            lines => {
                text.push('\n');
                lines.iter().for_each(|line| text.push_str(&format!("  {}\n", shortened(line, COLUMNS - 2))));
            }
        }
        for node in &self.nodes {
            if let Some(clock) = node.clock.filter(|clock| clock.offset_s.abs() > APART_S + clock.error_s) {
                let side = if clock.offset_s > 0.0 { "ahead of" } else { "behind" };
                let by = significant(clock.offset_s.abs());
                let line = format!("{}: its clock is {by} s {side} that of rank 0, and dates its record", node.name);
                text.push_str(&format!("  {}\n", shortened(&line, COLUMNS - 2)));
            }
        }
        text
    }
}

const COLUMNS: usize = 80;

/// Why a node is not measured, if it isn't.
fn told(node: &NodeSummary) -> Option<String> {
    let why = match (&node.reason, node.outcome) {
        (_, NodeOutcome::Measured) => return None,
        (Some(reason), _) => reason.clone(),
        (None, outcome) => outcome.word().into(),
    };
    let kept = match (node.outcome, node.visits) {
        (NodeOutcome::Faulty, _) | (_, 0) => String::new(),
        (_, visits) => format!("; {} kept", counted(visits as usize, "visit")),
    };
    Some(format!("{}: {why}{kept}", node.name))
}

/// The published schema of the summary.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Summary).to_value()
}

#[cfg(test)]
mod tests {
    use crate::fleet::word::NodeOutcome;

    use super::*;

    fn node(name: &str, outcome: NodeOutcome, reason: Option<&str>, visits: u64) -> NodeSummary {
        NodeSummary {
            name: name.into(),
            host: name.into(),
            boot_id: String::new(),
            rank: 0,
            ranks: 1,
            tool: "membound 0.1.0".into(),
            clock: None,
            outcome,
            reason: reason.map(Into::into),
            record: None,
            bytes: 0,
            visits,
        }
    }

    fn summary(nodes: Vec<NodeSummary>) -> Summary {
        Summary {
            schema: SCHEMA,
            tool: "membound 0.1.0".into(),
            command: Vec::new(),
            plan: Vec::new(),
            started_unix_s: 0,
            wall_s: 0.0,
            complete: true,
            mpi: String::new(),
            ranks: nodes.len(),
            nodes,
            gathering: Gathering::default(),
        }
    }

    #[test]
    fn one_sentence_tells_of_all() {
        let fine = |name: &str| node(name, NodeOutcome::Measured, None, 9);
        let lost = node("n2", NodeOutcome::Lost, Some("no word for 30 s"), 0);
        assert_eq!(summary(vec![fine("n1")]).text(), "1 node: 1 measured\n");
        let four = summary(vec![fine("n1"), lost.clone(), fine("n3"), fine("n4")]);
        assert_eq!(four.text(), "4 nodes: 3 measured, 1 lost (n2: no word for 30 s)\n");
        assert!(four.failed());
        let crashed = node("n3", NodeOutcome::Crashed, Some("signal 11"), 12);
        assert_eq!(
            summary(vec![fine("n1"), lost, crashed]).text(),
            "3 nodes: 1 measured, 1 crashed, 1 lost\n  n2: no word for 30 s\n  n3: signal 11; 12 visits kept\n"
        );
    }

    #[test]
    fn no_line_is_wider_than_a_terminal() {
        let long = "x".repeat(200);
        let node = NodeSummary {
            clock: Some(ClockOffset { offset_s: -12.0, error_s: 1e-4 }),
            ..node(&long, NodeOutcome::Refused, Some(&long), 1)
        };
        let text = summary(vec![node.clone(), node]).text();
        assert_eq!(text.lines().count(), 5, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn clocks_apart_are_told_of() {
        let at = |offset_s: f64| {
            let clock = Some(ClockOffset { offset_s, error_s: 0.2 });
            summary(vec![NodeSummary { clock, ..node("n1", NodeOutcome::Measured, None, 1) }]).text()
        };
        assert!(at(12.25).contains("  n1: its clock is 12.2 s ahead of that of rank 0"), "{}", at(12.25));
        assert!(at(-3.0).contains("3.00 s behind that of rank 0"));
        assert!(!at(1.1).contains("clock"), "within the error of a second");
    }

    #[test]
    fn a_summary_is_replaced_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let mut written = summary(vec![node("n1", NodeOutcome::Running, None, 0)]);
        written.write(folder.path()).unwrap();
        written.nodes[0].outcome = NodeOutcome::TimedOut;
        written.write(folder.path()).unwrap();
        let text = std::fs::read_to_string(folder.path().join(FILE)).unwrap();
        assert!(text.contains("\"timed_out\""));
        assert_eq!(serde_json::from_str::<Summary>(&text).unwrap(), written);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
