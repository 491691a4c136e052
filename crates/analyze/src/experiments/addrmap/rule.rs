//! Rules by which address bits choose a target, and the rule that explains answers best.

use fastrand::Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::experiments::addrmap::linear::{Basis, parity};

/// Two lines have the same target if all masks pick an even number of the bits in which their addresses differ, and the
/// addresses leave the same remainder.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Rule {
    /// Masks in reduced form: each has its lowest bit for itself. Each halves the lines.
    pub masks: Vec<u64>,
    /// A remainder beside them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remainder: Option<Remainder>,
}

/// A remainder by an odd number; even ones are this and masks of single bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Remainder {
    /// Bits below this one do not count: the address is divided by 2 to this power first.
    pub shift: u32,
    /// What it is divided by then.
    pub divisor: u64,
}

impl Remainder {
    /// All that are looked for: blocks of a line to 64 KiB, up to 15 targets.
    fn all() -> impl Iterator<Item = Remainder> {
        (6..=16).flat_map(|shift| (3..16).step_by(2).map(move |divisor| Remainder { shift, divisor }))
    }

    fn is_same(self, [a, b]: [u64; 2]) -> bool {
        (a >> self.shift) % self.divisor == (b >> self.shift) % self.divisor
    }
}

impl Rule {
    /// Whether two addresses have the same target.
    pub fn is_same(&self, pair: [u64; 2]) -> bool {
        let differ = pair[0] ^ pair[1];
        self.masks.iter().all(|mask| !parity(differ, *mask)) && self.remainder.is_none_or(|rest| rest.is_same(pair))
    }

    /// How many targets there are.
    pub fn targets(&self) -> u64 {
        self.remainder.map_or(1, |rest| rest.divisor) << self.masks.len().min(32)
    }

    /// Where the rule is a plain modulo: (shift, divisor), such as (6, 8) for the three bits above the line.
    pub fn modulo(&self) -> Option<(u32, u64)> {
        let first = self.masks.first().map(|mask| mask.trailing_zeros());
        let shift = self.remainder.map(|rest| rest.shift).or(first)?;
        let is_next = |(place, mask): (usize, &u64)| *mask == 1 << (shift as usize + place);
        self.masks.iter().enumerate().all(is_next).then(|| (shift, self.targets()))
    }
}

/// A pair of addresses, and whether it was seen to conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The addresses.
    pub pair: [u64; 2],
    /// Whether it conflicts.
    pub conflicts: bool,
}

/// How well a rule explains answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fit {
    /// The rule.
    pub rule: Rule,
    /// Conflicts between lines that have the same target by the rule.
    pub explained: usize,
    /// Conflicts between others.
    pub unexplained: usize,
    /// Pairs with the same target by the rule that do not conflict.
    pub refuted: usize,
    /// Dimension of the differences between lines with the same target.
    pub dimension: usize,
}

/// Conflicts beyond the dimension that a rule must explain. Had the rule a mask too many, a conflict would obey that mask
/// with probability 1/2: 16 in a row do so once in 65,536 times.
const SURPLUS: usize = 16;
/// Least share of conflicts explained, and of pairs with the same target that do conflict. In memory with open rows two
/// lines of one row do not conflict though their bank is the same; with four row bits known that is one pair in 16.
const SHARE_MIN: f64 = 0.8;
/// A remainder by an odd number is tried where at least this share of conflicts obeys it; by chance a third would.
const REMAINDER_SHARE_MIN: f64 = 0.8;
/// Subsets of the conflicts that masks are worked out from. Each is some 40 conflicts, of which one in a hundred may be
/// wrong: two subsets in three are free of such.
const SUBSETS: usize = 24;

impl Fit {
    fn of(rule: Rule, answers: &[Answer], bits: u64) -> Fit {
        let count = |conflicts: bool, same: bool| {
            answers.iter().filter(|a| a.conflicts == conflicts && rule.is_same(a.pair) == same).count()
        };
        let (explained, unexplained, refuted) = (count(true, true), count(true, false), count(false, true));
        let dimension = (bits.count_ones() as usize).saturating_sub(rule.masks.len());
        Fit { rule, explained, unexplained, refuted, dimension }
    }

    fn wrong(&self) -> usize {
        self.unexplained + self.refuted
    }

    /// Whether there are answers enough that the rule is not what chance makes of any answers.
    pub fn is_sound(&self) -> bool {
        let share = |others: usize| self.explained as f64 / (self.explained + others).max(1) as f64;
        self.rule.targets() > 1
            && self.explained >= self.dimension + SURPLUS
            && share(self.unexplained) >= SHARE_MIN
            && share(self.refuted) >= SHARE_MIN
    }
}

/// The rule that is wrong about the fewest answers; nothing, where no pair conflicts.
///
/// Conflicts obey every mask of the true rule, so the masks are what is orthogonal to their differences. A single wrong
/// conflict spoils that, so masks are worked out from many subsets too, most of which have none.
pub fn fit(answers: &[Answer]) -> Option<Fit> {
    let bits = answers.iter().fold(0, |bits, a| bits | (a.pair[0] ^ a.pair[1]));
    let asked = Basis::of(answers.iter().map(|a| a.pair[0] ^ a.pair[1]));
    // What all pairs obey, asked for or not, tells nothing.
    let idle = asked.null_space(bits);
    let conflicts: Vec<[u64; 2]> = answers.iter().filter(|a| a.conflicts).map(|a| a.pair).collect();
    let mut random = Rng::with_seed(conflicts.len() as u64);
    let mut best: Option<Fit> = None;
    for remainder in std::iter::once(None).chain(Remainder::all().map(Some)) {
        let obeys = |pair: &[u64; 2]| remainder.is_none_or(|rest: Remainder| rest.is_same(*pair));
        let mut differences: Vec<u64> = conflicts.iter().filter(|p| obeys(p)).map(|[a, b]| a ^ b).collect();
        if differences.is_empty() || (differences.len() as f64) < REMAINDER_SHARE_MIN * conflicts.len() as f64 {
            continue;
        }
        let size = (bits.count_ones() as usize + SURPLUS / 2).min(differences.len());
        for subset in 0..=SUBSETS {
            let used = if subset == 0 { differences.len() } else { size };
            let masks = masks(&differences[..used], bits, &idle);
            let found = Fit::of(Rule { masks, remainder }, answers, bits);
            if best.as_ref().is_none_or(|best| found.wrong() < best.wrong()) {
                best = Some(found);
            }
            random.shuffle(&mut differences);
        }
    }
    best
}

fn masks(differences: &[u64], bits: u64, idle: &Basis) -> Vec<u64> {
    let obeyed = Basis::of(differences.iter().copied()).null_space(bits);
    Basis::of(obeyed.vectors().iter().map(|mask| idle.reduce(*mask))).vectors().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(count: usize, bits: u32, is_same: impl Fn(u64, u64) -> bool) -> Vec<Answer> {
        let mut random = Rng::with_seed(3);
        let mut line = || random.u64(0..1 << (bits - 6)) << 6;
        let mut answer = || [line(), line()];
        (0..count).map(|_| answer()).map(|pair| Answer { pair, conflicts: is_same(pair[0], pair[1]) }).collect()
    }

    #[test]
    fn three_bits_above_the_line() {
        let fit = fit(&answers(600, 21, |a, b| a / 64 % 8 == b / 64 % 8)).unwrap();
        assert_eq!(fit.rule.masks, [1 << 6, 1 << 7, 1 << 8]);
        assert_eq!((fit.rule.targets(), fit.rule.modulo()), (8, Some((6, 8))));
        assert!(fit.is_sound() && fit.wrong() == 0, "{fit:?}");
    }

    #[test]
    fn a_remainder_by_twelve_of_blocks_of_four_lines() {
        let fit = fit(&answers(900, 24, |a, b| a / 256 % 12 == b / 256 % 12)).unwrap();
        assert_eq!(fit.rule.remainder, Some(Remainder { shift: 8, divisor: 3 }));
        assert_eq!((fit.rule.modulo(), fit.rule.targets()), (Some((8, 12)), 12));
        assert!(fit.is_sound());
    }

    #[test]
    fn an_interleave_that_is_no_modulo() {
        let fit = fit(&answers(400, 21, |a, b| parity(a ^ b, 0x2040))).unwrap();
        // Lines with different parity conflict: the opposite of a rule, and not sound.
        assert!(!fit.is_sound());
        let fit = super::fit(&answers(400, 21, |a, b| !parity(a ^ b, 0x2040))).unwrap();
        assert_eq!((fit.rule.masks.as_slice(), fit.rule.modulo()), (&[0x2040][..], None));
    }

    #[test]
    fn some_wrong_answers_do_no_harm() {
        let mut all = answers(800, 21, |a, b| !parity(a ^ b, 0x42040) && !parity(a ^ b, 0x81080));
        for answer in all.iter_mut().step_by(200) {
            answer.conflicts = !answer.conflicts;
        }
        let fit = fit(&all).unwrap();
        assert_eq!(fit.rule.masks, [0x42040, 0x81080]);
        assert!(fit.is_sound());
    }

    #[test]
    fn too_few_conflicts_are_not_sound() {
        assert_eq!(fit(&[]), None);
        let few = answers(60, 21, |a, b| a / 64 % 8 == b / 64 % 8);
        assert!(!fit(&few).unwrap().is_sound());
    }

    #[test]
    fn pages_that_lie_alike_tell_no_masks() {
        // Bits 22 and 23 are always equal: nothing can be said of their sum.
        let both = |line: u64| line | (line & 1 << 22) << 1;
        let mut all = answers(600, 23, |a, b| a / 64 % 2 == b / 64 % 2);
        all.iter_mut().for_each(|answer| answer.pair = answer.pair.map(both));
        assert_eq!(fit(&all).unwrap().rule.masks, [1 << 6]);
    }
}
