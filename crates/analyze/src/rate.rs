//! Rates and costs: what the machine does when it is undisturbed, what one gets, and how sure that is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use membound_core::stats::states::{Capability, Ends, States};
use membound_core::stats::{Summary, compare};

/// A figure with its spread.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Figure {
    /// Best sample: the greatest of a rate, the least of a cost.
    pub best: f64,
    /// Median of the samples: half of them were better. Disturbed ones count, so on a shared host it moves from run to run.
    pub median: f64,
    /// 95 % interval of the median: [low, high].
    pub ci95: [f64; 2],
    /// What the machine does when it is undisturbed: the figure that tables show and that is compared.
    pub capability: Capability,
    /// What one gets, disturbed or not: work over time of all visits, wherever the host had the CPUs.
    pub experienced: f64,
    /// Share of the visits that were undisturbed.
    pub undisturbed_share: f64,
}

/// A rate; best is the greatest.
pub type Rate = Figure;
/// A cost in the row's unit; best is the least.
pub type Cost = Figure;

impl Figure {
    /// Where there is nothing but a value and its 95 % interval.
    pub fn plain(best: f64, value: f64, ci95: [f64; 2]) -> Figure {
        let [low, high] = ci95;
        let capability = Capability { value, low, high, ends: Ends::Ci95 };
        Figure { best, median: value, ci95, capability, experienced: value, undisturbed_share: 1.0 }
    }

    pub(crate) fn new(best: f64, summary: &Summary, states: Option<States>) -> Figure {
        let Summary { median, ci95, .. } = *summary;
        match states {
            Some(States { capability, experienced, undisturbed: undisturbed_share }) => {
                Figure { best, median, ci95, capability, experienced, undisturbed_share }
            }
            // Nothing is positive.
            None => Figure::plain(best, median, ci95),
        }
    }

    /// The figure that is shown and compared.
    pub fn value(self) -> f64 {
        self.capability.value
    }

    /// The ends of its interval, or of its range where visits are too few for one: [low, high].
    pub fn ends(self) -> [f64; 2] {
        [self.capability.low, self.capability.high]
    }

    /// Whether its ends are those of an interval.
    pub fn has_interval(self) -> bool {
        self.capability.ends == Ends::Ci95
    }

    /// What its ends are called.
    pub(crate) fn ends_word(self) -> &'static str {
        if self.has_interval() { "95 % interval" } else { "range" }
    }

    /// The figure with its ends: [value, low, high].
    pub fn interval(self) -> [f64; 3] {
        [self.capability.value, self.capability.low, self.capability.high]
    }

    /// Whether no value lies between the ends of both.
    pub(crate) fn is_apart(self, other: Figure) -> bool {
        let ([low, high], [other_low, other_high]) = (self.wide(), other.wide());
        low > other_high || other_low > high
    }

    /// The ends between which it can be taken to lie. A few visits that agree by chance are not apart from a few others: a range
    /// reaches as far again to either side, and at least by 1 %.
    pub(crate) fn wide(self) -> [f64; 2] {
        let [low, high] = self.ends();
        let more = if self.has_interval() { 1.0 } else { (high / low).max(1.01) };
        [low / more, high * more]
    }

    /// The figure with [these ends](Self::wide): [value, low, high].
    pub(crate) fn widened(self) -> [f64; 3] {
        let [low, high] = self.wide();
        [self.value(), low, high]
    }

    /// Whether a single sample is all there is.
    fn is_of_one_sample(self) -> bool {
        !self.has_interval() && self.capability.low == self.capability.high
    }

    /// This figure over another one: [ratio, low, high]. It is the ratio of what tables show of both, so that whoever divides these
    /// finds it; how sure it is, their [wide ends](Self::wide) tell. Of one sample of either nothing does, and both ends are the ratio.
    pub(crate) fn over(self, other: Figure) -> [f64; 3] {
        let ratio = compare::of_figures(self.widened(), other.widened());
        if self.is_of_one_sample() || other.is_of_one_sample() { [ratio[0]; 3] } else { ratio }
    }

    /// The same ratio where the visits of both tell better how sure it is: as wide as their `estimate` of it.
    pub(crate) fn over_as_sure_as(self, other: Figure, estimate: [f64; 3]) -> [f64; 3] {
        let shown = self.value() / other.value();
        estimate.map(|end| end * shown / estimate[0])
    }

    /// So many times that.
    pub(crate) fn times(self, factor: f64) -> Figure {
        self.each(|value| value * factor)
    }

    /// A rate of costs, or a cost of rates: by a function that rises or falls throughout.
    pub(crate) fn each(self, of: impl Fn(f64) -> f64) -> Figure {
        let ends = |[low, high]: [f64; 2]| {
            let (low, high) = (of(low), of(high));
            [low.min(high), low.max(high)]
        };
        let Capability { value, low, high, ends: kind } = self.capability;
        let [low, high] = ends([low, high]);
        Figure {
            best: of(self.best),
            median: of(self.median),
            ci95: ends(self.ci95),
            capability: Capability { value: of(value), low, high, ends: kind },
            experienced: of(self.experienced),
            undisturbed_share: self.undisturbed_share,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_few(value: f64, [low, high]: [f64; 2]) -> Figure {
        let capability = Capability { value, low, high, ends: Ends::Range };
        Figure { capability, ..Figure::plain(value, value, [low, high]) }
    }

    /// 9 to 11 are 22 % from end to end, so 7.36 to 13.4 can be; a half of that is the ratio to exactly 2.
    #[test]
    fn a_range_says_less_of_a_ratio_than_an_interval() {
        let two = Figure::plain(2.0, 2.0, [2.0; 2]);
        let rounded = |ratio: [f64; 3]| ratio.map(|end| (end * 1e3).round());
        assert_eq!(rounded(Figure::plain(10.0, 10.0, [9.0, 11.0]).over(two)), [5000.0, 4500.0, 5500.0]);
        assert_eq!(rounded(of_few(10.0, [9.0, 11.0]).over(two)), [5000.0, 3682.0, 6722.0]);
        assert_eq!(
            rounded(of_few(10.0, [9.999, 10.001]).over(two)),
            [5000.0, 4950.0, 5051.0],
            "chance, by 1 % at least"
        );
        assert_eq!(rounded(of_few(10.0, [10.0; 2]).over(two)), [5000.0; 3], "one sample");
        assert_eq!(rounded(two.over(of_few(10.0, [10.0; 2]))), [200.0; 3]);
    }
}
