//! After how many uses a kind of memory that costs more at first pays.
//!
//! n uses take t_first + (n - 1) t_steady. Two kinds are level after
//! `n = 1 + (difference of first uses) / (gain of each later use)`. Both differences have an interval, and that of
//! their quotient is Fieller's (1954): it is open where the gain might be none.

use crate::rate::Cost;
use crate::section::Cell;
use membound_core::stats::Z95;
use membound_core::units::count;

/// From which use on a kind is cheaper in sum, by t_first + (n - 1) t_steady.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BreakEven {
    /// From the first use on.
    AtOnce,
    /// After so many uses: [n, low, high]; an end that the intervals leave open is absent.
    After {
        /// Uses.
        uses: f64,
        /// Lower end of the 95 % interval.
        low: f64,
        /// Upper end; absent where it might be never.
        high: Option<f64>,
    },
    /// Cheaper to begin with, dearer after so many uses.
    Until {
        /// Uses.
        uses: f64,
    },
    /// Never: dearer to begin with, and not faster after that.
    Never,
    /// Neither first use nor later uses differ by more than the intervals.
    Alike,
}

impl BreakEven {
    /// From which use on the kind is the better choice, in a table.
    pub(crate) fn cell(self) -> Cell {
        match self {
            BreakEven::AtOnce => "at once".into(),
            BreakEven::After { uses, low, high } => {
                let wide = BreakEven::wide_ends(uses, low, high).map_or_else(String::new, |ends| format!(" {ends}"));
                Cell { text: count(uses) + &wide, hint: BreakEven::ends(low, high), ..Cell::default() }
            }
            BreakEven::Until { uses } => format!("up to {}", count(uses.floor())).into(),
            BreakEven::Never => "never".into(),
            BreakEven::Alike => "no matter".into(),
        }
    }

    /// `[1, 6]`
    fn ends(low: f64, high: Option<f64>) -> String {
        format!("[{}, {}]", count(low), high.map_or_else(|| "never".into(), count))
    }

    /// The same where it may be far more uses: then the number alone misleads.
    pub(crate) fn wide_ends(uses: f64, low: f64, high: Option<f64>) -> Option<String> {
        /// So many times the uses.
        const FAR: f64 = 1.5;
        high.is_none_or(|high| high > FAR * uses).then(|| BreakEven::ends(low, high))
    }
}

fn standard_error(low: f64, high: f64) -> f64 {
    (high - low) / (2.0 * Z95)
}

/// A gain that may be larger than this is not none.
const NO_GAIN: f64 = 1.05;

/// From (this kind's, the base's) first and later uses, and this kind's speed against the base's. Nothing where it begins dearer and
/// seems faster, but by too few visits to be sure.
pub(crate) fn break_even(first: (Cost, Cost), steady: (Cost, Cost), gain: [f64; 3]) -> Option<BreakEven> {
    let error = |cost: Cost| standard_error(cost.ends()[0], cost.ends()[1]);
    let dearer = first.0.value() - first.1.value();
    let dearer_error = error(first.0).hypot(error(first.1));
    let share = 1.0 - 1.0 / gain[0];
    let saved = steady.1.value() * share;
    let share_error = standard_error(1.0 - 1.0 / gain[1], 1.0 - 1.0 / gain[2]);
    let saved_error = (steady.1.value() * share_error).hypot(share * error(steady.1));
    let is_dearer = dearer > Z95 * dearer_error;
    let is_cheaper = dearer < -Z95 * dearer_error;
    let is_faster = gain[1] > 1.0;
    let is_slower = gain[2] < 1.0;
    let uses = 1.0 + dearer / saved;
    Some(match (is_dearer, is_cheaper) {
        (true, _) if is_faster => {
            let [low, high] = quotient(dearer, dearer_error, saved, saved_error);
            // By Fieller's formula and by division the same number may differ in its last digit.
            BreakEven::After { uses, low: (1.0 + low?.max(0.0)).min(uses), high: high.map(|h| (1.0 + h).max(uses)) }
        }
        (true, _) if gain[0] > 1.0 && gain[2] > NO_GAIN => return None,
        (true, _) => BreakEven::Never,
        (_, true) if is_slower => BreakEven::Until { uses },
        (_, true) => BreakEven::AtOnce,
        _ if is_faster => BreakEven::AtOnce,
        _ if is_slower => BreakEven::Never,
        _ => BreakEven::Alike,
    })
}

/// Fieller's 95 % interval of a / b for independent a, b > 0; an open end is absent.
fn quotient(a: f64, a_error: f64, b: f64, b_error: f64) -> [Option<f64>; 2] {
    let (p, q, r) = (a * a - (Z95 * a_error).powi(2), a * b, b * b - (Z95 * b_error).powi(2));
    let root = (q * q - p * r).max(0.0).sqrt();
    if r > 0.0 { [Some((q - root) / r), Some((q + root) / r)] } else { [Some(p / (q + root)), None] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(value: f64) -> Cost {
        Cost::plain(value, value, [value; 2])
    }

    /// R. Garg's figures (REFERENCE S0): steady 3.8, 5.7, 0.33 GB/s; first 22, 81, 164 ms; 32 MB.
    #[test]
    fn the_published_experiment() {
        let seconds = |gbps: f64| exact(32e6 / (gbps * 1e9));
        let compare = |first: f64, gbps: f64| {
            let gain = [gbps / 3.8; 3];
            break_even((exact(first), exact(0.022)), (seconds(gbps), seconds(3.8)), gain).unwrap()
        };
        // (81 - 22) / (8.421 - 5.614) = 21.0 copies after the first.
        let BreakEven::After { uses, low, high } = compare(0.081, 5.7) else { panic!("{:?}", compare(0.081, 5.7)) };
        assert!((uses - 22.02).abs() < 0.01 && (low - uses).abs() < 1e-9 && (high.unwrap() - uses).abs() < 1e-9);
        assert_eq!(compare(0.164, 0.33), BreakEven::Never);
    }

    #[test]
    fn every_case_has_its_answer() {
        let loose = |value: f64| Cost::plain(value, value, [value * 0.9, value * 1.1]);
        let of = |first: f64, steady: f64| {
            let gain = [1.0 / steady, 0.95 / steady, 1.05 / steady];
            break_even((loose(first), loose(5.0)), (loose(steady), loose(1.0)), gain).unwrap()
        };
        assert_eq!(of(4.0, 1.0), BreakEven::AtOnce);
        assert_eq!(of(5.0, 0.8), BreakEven::AtOnce);
        assert_eq!(of(5.0, 1.0), BreakEven::Alike);
        assert_eq!(of(5.0, 1.3), BreakEven::Never);
        assert_eq!(of(9.0, 1.0), BreakEven::Never);
        // 3 saved at first, 1 lost each time: level after 4 uses.
        assert_eq!(of(2.0, 2.0), BreakEven::Until { uses: 4.0 });
        assert!(matches!(of(9.0, 0.5), BreakEven::After { high: Some(_), .. }));
        // Dearer, and 1.76 times as fast or 0.69 or 4.5: nobody knows. At most 1.04 times: it does not pay.
        let dearer = |gain| break_even((loose(9.0), loose(5.0)), (loose(0.6), loose(1.0)), gain);
        assert_eq!(dearer([1.76, 0.69, 4.5]), None);
        assert_eq!(dearer([1.01, 0.98, 1.04]), Some(BreakEven::Never));
    }

    #[test]
    fn far_ends_are_shown_with_the_uses() {
        let cell = |uses, low, high| BreakEven::After { uses, low, high }.cell();
        let shown =
            [cell(2.0, 1.0, Some(6.0)), cell(20.0, 18.0, Some(29.0)), cell(20.0, 9.0, None)].map(|cell| cell.text);
        assert_eq!(shown, ["2 [1, 6]", "20", "20 [9, never]"]);
        assert_eq!(cell(20.0, 18.0, Some(29.0)).hint, "[18, 29]");
    }

    #[test]
    fn a_gain_that_may_be_none_leaves_the_break_even_open() {
        assert_eq!(quotient(10.0, 0.0, 2.0, 0.0), [Some(5.0), Some(5.0)]);
        let [low, high] = quotient(10.0, 0.0, 2.0, 1.5);
        assert!((low.unwrap() - 10.0 / (2.0 + Z95 * 1.5)).abs() < 1e-9 && high.is_none());
        // By hand: ends are 10 / (2 +- 1.96 * 0.5).
        let [low, high] = quotient(10.0, 0.0, 2.0, 0.5);
        assert!((low.unwrap() - 10.0 / 2.98).abs() < 1e-9 && (high.unwrap() - 10.0 / 1.02).abs() < 1e-9);
    }
}
