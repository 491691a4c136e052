//! A cell of a comparison as a tidy row, and the words in it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quality::Fault;
use membound_core::stats::states::Better;
use membound_core::units::words;

words! {
    /// What is to be said of a cell. Families are all cells of a comparison.
    Verdict, "verdict" {
        /// B is better, by more than chance (family-wise 95 %) and noise.
        Faster = "faster",
        /// B is worse, by more than chance and noise.
        Slower = "slower",
        /// B differs by more than chance, but not beyond the noise that was allowed.
        WithinNoise = "within-noise",
        /// The difference may be chance.
        NotSignificant = "not-significant",
        /// The slower side is as fast as the other was in some of its visits, or the hosts never had the CPUs of both sides as far
        /// apart: states of a host, of which one run a side can't tell a difference.
        HostState = "host-state",
        /// Too few visits or records to tell.
        TooFew = "too-few",
        /// There is a figure of A alone.
        OnlyA = "only-a",
        /// There is a figure of B alone.
        OnlyB = "only-b",
    }
}

words! {
    /// By which rule the two sides of a cell were found to be the same.
    Matched, "rule" {
        /// All is the same.
        Case = "case",
        /// All but the numbers of the CPUs; where several CPUs mean the same, they are one cell.
        Meaning = "meaning",
        /// All but numbers of CPUs and the working set: the largest in the same level of each side.
        Level = "level",
        /// Figures by hand: name and unit.
        Name = "name",
    }
}

/// A cell of the comparison: one tidy row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparisonRow {
    /// `comparison`.
    pub metric: String,
    /// The level or experiment that it belongs to: `L1`, `memory`, `pages`, ...; two levels where they are not the same.
    pub group: String,
    /// What was measured, in words.
    pub what: String,
    /// By which rule the sides were matched; absent for a figure of one side.
    pub matched: Option<Matched>,
    /// Unit of `a` and `b`.
    pub unit: String,
    /// Which way is better.
    pub better: Better,
    /// Side A when undisturbed: geometric mean of its undisturbed visits, or of its runs where a side has several.
    pub a: Option<f64>,
    /// Side B.
    pub b: Option<f64>,
    /// Speed of B against A: above 1 B is better, whichever way figures are better (b / a, or a / b).
    pub speed: Option<f64>,
    /// Its 95 % interval, of this cell for itself: [low, high]. Absent where there are too few draws.
    pub speed_ci95: Option<[f64; 2]>,
    /// The interval that holds together with those of all other cells, with 95 %.
    pub speed_ci95_family: Option<[f64; 2]>,
    /// Probability of such a difference by chance, of this cell for itself.
    pub p: Option<f64>,
    /// The same corrected for the number of cells (Holm): below 0.05 it is significant.
    pub p_family: Option<f64>,
    /// What is to be said.
    pub verdict: Verdict,
    /// Speed of B against A if both cores had the same clock (`a` and `b` in core clock cycles). Absent where a clock is not
    /// known.
    pub speed_at_equal_clock: Option<f64>,
    /// Its 95 % interval.
    pub speed_at_equal_clock_ci95: Option<[f64; 2]>,
    /// Core clock of each side in hertz.
    pub clock_hz: Option<[f64; 2]>,
    /// Independent observations of each side: visits, or runs where a side has several.
    pub draws: [usize; 2],
    /// Visits that each side would need before one can tell: those it has may all have been disturbed. Absent where they are
    /// enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needed: Option<usize>,
    /// Why one side has no figure, where it says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether that is a crash or a wrong result.
    #[serde(skip)]
    pub is_failure: bool,
}

impl ComparisonRow {
    /// With this as the reason.
    pub(crate) fn because_of(self, fault: Option<&Fault>) -> ComparisonRow {
        let is_failure = fault.is_some_and(Fault::is_failure);
        ComparisonRow { reason: fault.map(ToString::to_string), is_failure, ..self }
    }

    /// Whether chance does not explain the difference.
    pub fn is_significant(&self) -> bool {
        matches!(self.verdict, Verdict::Faster | Verdict::Slower | Verdict::WithinNoise)
    }
}
