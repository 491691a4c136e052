//! The experiment: which pairs to ask for next, and what the answers say. Both follow from the answers alone, so that
//! simulations, this machine and a record from a file go the same way.
//!
//! ```text
//! screen -> heat -> contrast -> [ask -> confirm] ... -> check
//!   ^                   |
//!   +--- more pairs ----+
//! ```
//! With T targets one random pair in T conflicts. They are found by asking all once (*screen*), the slower quarter three
//! times more (*heat*), and the slowest of these beside ordinary ones nine times more (*contrast*). Each choice is made by
//! earlier answers than those it is judged by. If the contrast shows two groups, pairs on its upper side are conflicts.
//! Then pairs are asked until a rule explains enough conflicts, and last it must foretell pairs that it never saw.

use membound_core::in_order::InOrder;
use std::collections::BTreeMap;

use fastrand::Rng;

use crate::experiments::addrmap::rule::{Answer, Fit, Rule, fit};
use membound_core::stats::quantiles::{Modes, median};
use membound_core::stats::{self, Z95};
use membound_core::units::{Bytes, LINE};
use membound_core::work::addrmap::Stage;

/// A pair of lines, counted from the start of the memory.
pub type Lines = [u32; 2];

/// Pairs of the first batch: it says little, but after it is known where the memory lies.
const FIRST: usize = 64;
/// Pairs of the screens. The last still sees 512 targets: 64 of its pairs conflict.
const SCREENS: [usize; 3] = [512, 4096, 32768];
/// One in so many screened pairs gets a heat.
const HEATED: usize = 4;
/// Times each of them is asked.
const HEAT: usize = 3;
/// The slowest pairs and the ordinary ones in a contrast.
const SLOWEST: usize = 64;
const ORDINARY: usize = 32;
/// Times each of them is asked.
const CONTRAST: usize = 9;
/// Fresh answers that decide about a pair whose first was slow.
const CONFIRM: usize = 5;
/// Pairs in a batch of further questions.
const ASK: usize = 512;
/// Pairs in a check, of each sort.
const CHECK: usize = 64;
/// Pairs asked at most.
const PAIRS_MOST: usize = 60_000;
/// Least share of a check that conflicts as foretold, and that does not. The first is less for the sake of rows (see
/// `rule.rs`).
const CHECK_MIN: [f64; 2] = [0.8, 0.9];

/// Memory that pairs are drawn from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Space {
    /// Bytes of a page.
    page: Bytes,
    /// Pages.
    pages: u64,
    /// Physical address of each; empty where unknown.
    frames: Vec<u64>,
}

impl Space {
    /// Memory of whole pages whose place is not known: only lines of one page are held against each other.
    pub fn new(page: Bytes, bytes: Bytes) -> Self {
        let page = Bytes(page.0.max(2 * LINE));
        Space { page, pages: (bytes.0 / page.0).max(1), frames: Vec::new() }
    }

    /// The same with its pages at these physical addresses. Fewer than there are pages are not believed.
    pub fn at(self, frames: &[u64]) -> Self {
        if frames.len() as u64 == self.pages { Space { frames: frames.to_vec(), ..self } } else { self }
    }

    /// Whether addresses are physical ones; else they are places in a page.
    pub fn is_physical(&self) -> bool {
        !self.frames.is_empty()
    }

    /// A pair of different lines, of one page where the places of pages are unknown.
    fn draw(&self, random: &mut Rng) -> Lines {
        let lines = self.page.0 / LINE;
        let first = random.u64(0..self.pages);
        let second = if self.is_physical() { random.u64(0..self.pages) } else { first };
        loop {
            let pair = [first, second].map(|page| (page * lines + random.u64(0..lines)) as u32);
            if pair[0] != pair[1] {
                return pair;
            }
        }
    }

    /// The bits in which pages' places differ, 0 where these are unknown.
    pub(crate) fn differences(&self) -> u64 {
        self.frames.iter().fold(0, |bits, frame| bits | (frame ^ self.frames[0]))
    }

    fn address(&self, line: u32) -> u64 {
        let offset = u64::from(line) * LINE;
        let frame = self.frames.get((offset / self.page.0) as usize).copied().unwrap_or(0);
        frame + offset % self.page.0
    }

    fn addresses(&self, pair: Lines) -> [u64; 2] {
        pair.map(|line| self.address(line))
    }
}

/// A batch of pairs and what they took.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// What for.
    pub stage: Stage,
    /// The pairs, as they were asked.
    pub pairs: Vec<Lines>,
    /// Nanoseconds of each, as far as there was time.
    pub times: Vec<f64>,
}

impl Batch {
    fn answers(&self) -> impl Iterator<Item = (Lines, f64)> + '_ {
        self.pairs.iter().copied().zip(self.times.iter().copied())
    }

    /// The median of each pair's answers.
    fn medians(&self) -> Vec<(Lines, f64)> {
        let mut all: BTreeMap<Lines, Vec<f64>> = BTreeMap::new();
        self.answers().for_each(|(pair, time)| all.entry(pair).or_default().push(time));
        all.into_iter().filter_map(|(pair, times)| Some((pair, median(times)?))).collect()
    }
}

/// What was found out.
#[derive(Debug, Clone, PartialEq)]
pub enum Solution {
    /// A rule that foretold new pairs.
    Determined(Determined),
    /// No rule, and why.
    Undetermined(String),
}

/// A rule and what speaks for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Determined {
    /// The rule.
    pub rule: Rule,
    /// New pairs, with the same target by the rule and with different ones: how many behaved so.
    pub agreed: [usize; 2],
    /// How many were asked.
    pub checked: [usize; 2],
}

impl Determined {
    /// Lower end of the 95 % interval (Wilson) of the share of new pairs that the rule is right about, 0 to 1.
    pub fn confidence(&self) -> f64 {
        let n = self.checked.iter().sum::<usize>().max(1) as f64;
        let share = self.agreed.iter().sum::<usize>() as f64 / n;
        let half = Z95 * (share * (1.0 - share) / n + (Z95 / (2.0 * n)).powi(2)).sqrt();
        (share + Z95 * Z95 / (2.0 * n) - half) / (1.0 + Z95 * Z95 / n)
    }
}

/// All batches so far.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Evidence(Vec<Batch>);

/// What is to be done next.
enum Step {
    Screen(usize),
    Heat,
    Contrast,
    Confirm(Vec<Lines>),
    Ask(usize),
    Check(Rule),
    Done,
}

impl Evidence {
    /// Adds a batch and its answers.
    pub fn add(&mut self, batch: Batch) {
        self.0.push(batch);
    }

    /// The next pairs to ask for; nothing, when the verdict is final.
    pub fn next(&self, space: &Space, random: &mut Rng) -> Option<(Stage, Vec<Lines>)> {
        let mut draw = |count: usize| (0..count).map(|_| space.draw(random)).collect::<Vec<_>>();
        Some(match self.step(space) {
            Step::Screen(pairs) => (Stage::Screen, draw(pairs)),
            Step::Ask(pairs) => (Stage::Ask, draw(pairs)),
            Step::Heat => (Stage::Heat, again(self.heated(), HEAT)),
            Step::Contrast => (Stage::Contrast, again(self.contrasted(), CONTRAST)),
            Step::Confirm(pairs) => (Stage::Confirm, again(pairs, CONFIRM)),
            Step::Check(rule) => (Stage::Check, again(foretold(&rule, space, random), CONFIRM)),
            Step::Done => return None,
        })
    }

    fn step(&self, space: &Space) -> Step {
        let Some(last) = self.0.last() else { return Step::Screen(FIRST) };
        let screens = self.0.iter().filter(|batch| batch.stage == Stage::Screen).count();
        match (last.stage, self.groups()) {
            (Stage::Screen, _) if screens == 1 => Step::Screen(SCREENS[0]),
            (Stage::Screen, _) => Step::Heat,
            (Stage::Heat, _) => Step::Contrast,
            (Stage::Check, _) => Step::Done,
            // The first screen counts as one.
            (_, None) => SCREENS.get(screens - 1).map_or(Step::Done, |&pairs| Step::Screen(pairs)),
            (_, Some(groups)) => self.learn(space, threshold(groups)),
        }
    }

    /// What to ask when conflicts can be told from other pairs.
    fn learn(&self, space: &Space, threshold: f64) -> Step {
        let times = self.times();
        let suspects: Vec<Lines> =
            times.iter().filter(|(_, t)| conflicts(t, threshold).is_none()).map(|t| *t.0).collect();
        if !suspects.is_empty() {
            return Step::Confirm(suspects);
        }
        let answers = answers(&times, space, threshold);
        match fit(&answers).filter(Fit::is_sound) {
            Some(found) => Step::Check(found.rule),
            None if is_exhausted(&answers) => Step::Done,
            None => Step::Ask(ASK.max(answers.len() / 4)),
        }
    }

    /// The two groups that pairs fall into; nothing, before a contrast or where they are one.
    pub fn groups(&self) -> Option<Modes> {
        let contrast = self.0.iter().rev().find(|batch| batch.stage == Stage::Contrast)?;
        let medians: Vec<f64> = contrast.medians().into_iter().map(|(_, time)| time).collect();
        stats::summarize(&[&medians])?.modes
    }

    /// Different pairs that were asked.
    pub fn pairs(&self) -> usize {
        self.times().len()
    }

    /// What the answers say.
    pub fn verdict(&self, space: &Space) -> Solution {
        if let (Some(groups), Some(check)) = (self.groups(), self.0.iter().find(|batch| batch.stage == Stage::Check)) {
            return self.judge(check, space, threshold(groups));
        }
        let pairs = self.pairs();
        let why = match (self.step(space), self.groups()) {
            (Step::Done, None) => format!(
                "none of {pairs} pairs is clearly slower than the others: there is one target, or conflicts do not show in time"
            ),
            (Step::Done, Some(groups)) => {
                let answers = answers(&self.times(), space, threshold(groups));
                let conflicts = answers.iter().filter(|answer| answer.conflicts).count();
                format!(
                    "{conflicts} of {pairs} pairs conflict, but by no rule of XOR masks and a remainder over the known bits"
                )
            }
            _ => format!("it ended after {pairs} pairs, before there was an answer; give a larger --budget"),
        };
        Solution::Undetermined(why)
    }

    /// Holds the rule against pairs that it was not learnt from.
    fn judge(&self, check: &Batch, space: &Space, threshold: f64) -> Solution {
        let answers = answers(&self.times(), space, threshold);
        let Some(Fit { rule, .. }) = fit(&answers) else {
            return Solution::Undetermined("the record holds a check, but nothing that a rule could come from".into());
        };
        let (mut agreed, mut checked) = ([0; 2], [0; 2]);
        for (pair, time) in check.medians() {
            let is_same = rule.is_same(space.addresses(pair));
            let sort = usize::from(!is_same);
            checked[sort] += 1;
            agreed[sort] += usize::from((time > threshold) == is_same);
        }
        let holds =
            |sort: usize| checked[sort] >= CHECK / 2 && agreed[sort] as f64 >= CHECK_MIN[sort] * checked[sort] as f64;
        if holds(0) && holds(1) {
            return Solution::Determined(Determined { rule, agreed, checked });
        }
        let [same, other] = [0, 1].map(|sort| format!("{} of {}", agreed[sort], checked[sort]));
        Solution::Undetermined(format!(
            "the rule that explains the answers best fails on new pairs: {same} foretold conflicts were seen, and no conflict \
             in {other} others"
        ))
    }

    /// All answers about each pair but those of checks, in order of time.
    fn times(&self) -> BTreeMap<Lines, Vec<f64>> {
        let mut times: BTreeMap<Lines, Vec<f64>> = BTreeMap::new();
        for (pair, time) in self.0.iter().filter(|batch| batch.stage != Stage::Check).flat_map(Batch::answers) {
            times.entry(pair).or_default().push(time);
        }
        times
    }

    fn last(&self, stage: Stage) -> Vec<(Lines, f64)> {
        let batch = self.0.iter().rev().find(|batch| batch.stage == stage);
        let mut medians = batch.map(Batch::medians).unwrap_or_default();
        medians.order_by(|a, b| b.1.total_cmp(&a.1));
        medians
    }

    /// The slower pairs of the last screen.
    fn heated(&self) -> Vec<Lines> {
        let screened = self.last(Stage::Screen);
        screened.iter().take(screened.len().div_ceil(HEATED)).map(|(pair, _)| *pair).collect()
    }

    /// The slowest pairs of the last heat, and ordinary ones of the last screen: those around three quarters of the way
    /// down, which are apart from others even where half of all pairs conflict.
    fn contrasted(&self) -> Vec<Lines> {
        let (heat, screened) = (self.last(Stage::Heat), self.last(Stage::Screen));
        let ordinary = screened.iter().skip((screened.len() / 4 * 3).saturating_sub(ORDINARY / 2)).take(ORDINARY);
        heat.iter().take(SLOWEST).chain(ordinary).map(|(pair, _)| *pair).collect()
    }
}

/// Pairs several times, one round after the other, so that a slow spell does not fall on one pair alone.
fn again(pairs: Vec<Lines>, times: usize) -> Vec<Lines> {
    pairs.repeat(times)
}

/// New pairs: some that have the same target by the rule, and some that do not.
fn foretold(rule: &Rule, space: &Space, random: &mut Rng) -> Vec<Lines> {
    /// Draws after which a sort of pair is given up: a rule of 512 targets needs some 30,000 for its conflicts.
    const DRAWS: usize = 1_000_000;
    let mut pairs = Vec::new();
    for is_same in [true, false] {
        let drawn = (0..DRAWS).map(|_| space.draw(random));
        pairs.extend(drawn.filter(|pair| rule.is_same(space.addresses(*pair)) == is_same).take(CHECK));
    }
    pairs
}

/// Between the groups: as far from one as from the other in proportion, since timings scatter in proportion.
fn threshold(groups: Modes) -> f64 {
    (groups.low * groups.high).sqrt()
}

/// Whether a pair conflicts; unknown as long as a slow first answer is not confirmed. That first answer does not count
/// then: it chose the pair.
fn conflicts(times: &[f64], threshold: f64) -> Option<bool> {
    let (first, fresh) = times.split_first()?;
    if *first <= threshold {
        return Some(false);
    }
    (fresh.len() >= CONFIRM).then(|| median(fresh.iter().copied()).is_some_and(|time| time > threshold))
}

fn answers(times: &BTreeMap<Lines, Vec<f64>>, space: &Space, threshold: f64) -> Vec<Answer> {
    let answer = |(pair, times): (&Lines, &Vec<f64>)| {
        Some(Answer { pair: space.addresses(*pair), conflicts: conflicts(times, threshold)? })
    };
    times.iter().filter_map(answer).collect()
}

/// Whether more answers would not help: a rule would have shown by now.
fn is_exhausted(answers: &[Answer]) -> bool {
    let bits = answers.iter().fold(0, |bits, a| bits | (a.pair[0] ^ a.pair[1]));
    let conflicts = answers.iter().filter(|answer| answer.conflicts).count();
    conflicts >= 4 * bits.count_ones() as usize + 64 || answers.len() >= PAIRS_MOST
}
