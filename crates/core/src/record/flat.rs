//! A line's fields, all at one level: how lines are read. An enum that is told apart by a field would be read twice, once into
//! pieces of any type and then from these, with code for each.

use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::case::Case;
use crate::memory::Obtained;
use crate::record::{End, Environment, Measured, Outcome, Samples, Volume};
use crate::units::Bytes;

/// Which line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Header,
    Measurement,
    End,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum What {
    Measured,
    Unavailable,
    Crashed,
    Invalid,
}

/// Any line but a header, of which only the kind is read. `C` is a [`Case`] or its text.
#[derive(Deserialize)]
pub(super) struct Flat<C> {
    /// Absent where an outcome stands by itself.
    #[serde(rename = "type")]
    pub kind: Option<Kind>,
    case: Option<C>,
    round: Option<u32>,
    started_s: Option<f64>,
    elapsed_s: Option<f64>,
    outcome: Option<What>,
    reason: Option<String>,
    volume: Option<Volume>,
    repetitions: Option<u64>,
    core_clock_links: Option<u64>,
    samples: Option<Samples>,
    obtained: Option<Obtained>,
    wall_s: Option<f64>,
    interrupted: Option<bool>,
    planned: Option<u64>,
    peak_memory: Option<Bytes>,
    after: Option<Environment>,
}

/// A visit whose case may still be text.
pub(super) struct Visit<C> {
    pub case: C,
    pub round: u32,
    pub started_s: f64,
    pub elapsed_s: f64,
    pub outcome: Outcome,
}

/// A field that must be there.
fn needed<T>(field: Option<T>, name: &str) -> Result<T, String> {
    field.ok_or_else(|| format!("missing field `{name}`"))
}

impl<C> Flat<C> {
    pub fn visit(mut self) -> Result<Visit<C>, String> {
        Ok(Visit {
            case: needed(self.case.take(), "case")?,
            round: needed(self.round, "round")?,
            started_s: needed(self.started_s, "started_s")?,
            elapsed_s: needed(self.elapsed_s, "elapsed_s")?,
            outcome: self.outcome()?,
        })
    }

    fn outcome(self) -> Result<Outcome, String> {
        let reason = || needed(self.reason, "reason");
        Ok(match needed(self.outcome, "outcome")? {
            What::Measured => Outcome::Measured(Box::new(Measured {
                volume: needed(self.volume, "volume")?,
                repetitions: needed(self.repetitions, "repetitions")?,
                core_clock_links: needed(self.core_clock_links, "core_clock_links")?,
                samples: needed(self.samples, "samples")?,
                obtained: needed(self.obtained, "obtained")?,
            })),
            What::Unavailable => Outcome::Unavailable { reason: reason()? },
            What::Crashed => Outcome::Crashed { reason: reason()? },
            What::Invalid => Outcome::Invalid { reason: reason()? },
        })
    }

    pub fn end(self) -> Result<End, String> {
        Ok(End {
            wall_s: needed(self.wall_s, "wall_s")?,
            interrupted: needed(self.interrupted, "interrupted")?,
            planned: needed(self.planned, "planned")?,
            peak_memory: self.peak_memory,
            after: needed(self.after, "after")?,
        })
    }
}

impl<'de> Deserialize<'de> for Outcome {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Flat::<Case>::deserialize(from)?.outcome().map_err(D::Error::custom)
    }
}
