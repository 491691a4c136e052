//! How far each node of a cohort is from its neighbours, cell by cell and for cells that belong together.
//!
//! *A cell.* d is the logarithm of the node's figure less the cohort's median, turned so that below zero is slower; z is d in
//! scales. The scale is how healthy nodes differ (median absolute deviation), never less than what nodes' own samples leave open,
//! and for a node whose own samples leave more open, that.
//!
//! *A set of cells.* A single figure that is 3 % low says little where healthy nodes differ by 1 %; forty of them say a
//! lot, unless they are one thing measured forty times. How much is not assumed but seen: a node's score is the mean z of the
//! set's cells (each z cut at [`CUT`], so that one wild figure does not decide), and scores are held against those of the
//! cohort's other nodes in the same way as figures are. Where all cells of a node move together, scores spread as much as
//! single cells do, and nothing is gained.
//!
//! *Twice.* Nodes that stand out are left out the second time: what is healthy is learned from the others, tails on both sides
//! then.

use crate::across::fleet::cells::{Cell, Set, sets};
use crate::across::fleet::finding::{CellSpread, Deviation, GroupSpread, Options, PERCENTILES};
use crate::across::fleet::nodes::Fleet;
use membound_core::in_order::{InOrder, each_once};
use membound_core::stats::cohort;
use membound_core::stats::cohort::Spread;
use membound_core::stats::quantiles::{median, median_in_place, quantile};

/// Where a z is cut within a set.
const CUT: f64 = 6.0;
/// No figure is taken to be more repeatable from node to node than this.
const SCALE_LEAST: f64 = 1e-4;
/// Nor a score of a set.
const SCORE_LEAST: f64 = 1e-3;
/// Chances above this are no findings under any correction, and are not worked out.
const CHANCE_MOST: f64 = 1e-3;
/// Nodes without which the tail of sets is not looked at, and the degrees of freedom at most that are then taken for it.
const TAIL_NODES: usize = 50;
/// See [`TAIL_NODES`].
const FREEDOM_OF_FEW: f64 = 10.0;
/// Nodes that must have a cell for it to be compared.
const HAVE_IT: usize = crate::across::fleet::cohorts::COHORT_LEAST;
/// A node must have this share of a set's cells to be judged by it.
const PART_OF_SET: f64 = 0.5;

/// The distances of a cohort.
#[derive(Debug)]
pub(crate) struct Distances {
    /// Indices of the nodes in the fleet.
    pub nodes: Vec<usize>,
    /// Indices of the cells in the fleet: columns.
    pub cells: Vec<usize>,
    pub sets: Vec<Set>,
    /// Student's degrees of freedom of the tails of sets and of single cells.
    pub freedom: [f64; 2],
    pub tests: usize,
    /// Logarithms, node by node; NaN where a node lacks the cell.
    logs: Vec<f32>,
    /// Deviations d, the same way.
    deviations: Vec<f32>,
    /// z, the same way.
    z: Vec<f32>,
    /// Standardised scores of sets, node by node; NaN where a node lacks too many cells.
    scores: Vec<f32>,
    /// Of each column.
    spreads: Vec<Option<Spread>>,
    errors: Vec<f32>,
    signs: Vec<f64>,
    /// Chances up to this one are none, among all nodes.
    least_chance: f64,
    /// And up to this one, of a node that stands out.
    allowed: f64,
    noise: f64,
    /// Nodes (by place) that stand out.
    flagged: Vec<bool>,
}

impl Distances {
    pub fn of(fleet: &Fleet, nodes: &[usize], options: Options) -> Distances {
        let cells = common_cells(fleet, nodes);
        let of_cells: Vec<&Cell> = cells.iter().map(|cell| &fleet.cells[*cell]).collect();
        let (logs, errors) = matrices(fleet, nodes, &cells);
        let mut distances = Distances {
            sets: sets(&of_cells),
            signs: of_cells.iter().map(|cell| cell.sign()).collect(),
            nodes: nodes.to_vec(),
            freedom: [f64::NAN; 2],
            tests: 0,
            deviations: vec![f32::NAN; logs.len()],
            z: vec![f32::NAN; logs.len()],
            scores: Vec::new(),
            spreads: vec![None; cells.len()],
            logs,
            errors,
            least_chance: 0.0,
            allowed: 0.0,
            noise: options.noise,
            flagged: vec![false; nodes.len()],
            cells,
        };
        distances.measure();
        distances.judge(options, false);
        distances.forgive_most(options);
        if distances.flagged.iter().any(|flagged| *flagged) {
            distances.measure();
            distances.judge(options, true);
            distances.forgive_most(options);
        }
        distances
    }

    /// Where half of them stand out, that is how far nodes differ from visit to visit, as guests of busy hosts do: judged by all, few or
    /// none of them are odd.
    fn forgive_most(&mut self, options: Options) {
        if 2 * self.flagged.iter().filter(|flagged| **flagged).count() >= self.nodes.len() {
            self.flagged.fill(false);
            self.measure();
            self.judge(options, true);
        }
    }

    fn width(&self) -> usize {
        self.cells.len()
    }

    fn row<'a>(&self, matrix: &'a [f32], place: usize) -> &'a [f32] {
        &matrix[place * self.width()..(place + 1) * self.width()]
    }

    /// Places of the nodes that healthy ones are learned from.
    fn healthy(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|place| !self.flagged[*place]).collect()
    }

    /// Deviations and z of all cells, scores of all sets, against the nodes that do not stand out.
    fn measure(&mut self) {
        let (width, healthy) = (self.width(), self.healthy());
        let mut values: Vec<f64> = Vec::with_capacity(healthy.len());
        for column in 0..width {
            let at = |place: &usize| place * width + column;
            let known = |matrix: &[f32], values: &mut Vec<f64>| {
                values.clear();
                values.extend(healthy.iter().map(|place| f64::from(matrix[at(place)])).filter(|x| x.is_finite()));
            };
            known(&self.errors, &mut values);
            let open = median_in_place(&mut values).unwrap_or(0.0).max(SCALE_LEAST);
            known(&self.logs, &mut values);
            let Some(mut spread) = cohort::spread(&mut values) else { continue };
            spread.scale = spread.scale.max(open);
            self.spreads[column] = Some(spread);
            for place in 0..self.nodes.len() {
                let at = at(&place);
                let d = self.signs[column] * (f64::from(self.logs[at]) - spread.middle);
                self.deviations[at] = d as f32;
                self.z[at] = (d / spread.scale.max(f64::from(self.errors[at]))) as f32;
            }
        }
        self.scores = self.all_scores(&healthy);
    }

    fn all_scores(&self, healthy: &[usize]) -> Vec<f32> {
        let (count, places) = (self.sets.len(), self.nodes.len());
        let mut scores = vec![f32::NAN; count * places];
        for (index, set) in self.sets.iter().enumerate() {
            for place in 0..places {
                scores[place * count + index] = score(self.row(&self.z, place), set) as f32;
            }
            let mut known: Vec<f64> = healthy
                .iter()
                .map(|place| f64::from(scores[place * count + index]))
                .filter(|score| score.is_finite())
                .collect();
            let spread = cohort::spread(&mut known);
            for place in 0..places {
                let score = &mut scores[place * count + index];
                *score = spread.map_or(f32::NAN, |spread| {
                    ((f64::from(*score) - spread.middle) / spread.scale.max(SCORE_LEAST)) as f32
                });
            }
        }
        scores
    }

    /// Tails, chances, and who stands out. At first tails are looked at where faults don't lead.
    fn judge(&mut self, options: Options, is_second: bool) {
        self.freedom = [
            self.tail_of(&self.scores, self.sets.len(), true, is_second),
            self.tail_of(&self.z, self.width(), false, is_second),
        ];
        let is_test = |x: &&f32| x.is_finite();
        self.tests = self.scores.iter().filter(is_test).count() + self.z.iter().filter(is_test).count();
        // A node's own chance: its least, times the number of its tests (Bonferroni), which is a lower rate instead.
        let each = (self.tests as f64 / self.nodes.len().max(1) as f64).max(1.0);
        let least = |place| self.far(place).into_iter().map(|far| far.p).min_by(f64::total_cmp);
        let mut chances: Vec<f64> = (0..self.nodes.len()).filter_map(least).collect();
        self.allowed = options.rate / each;
        // Among few nodes an odd one widens the very scale that it is held against: at first it need not stand out among all.
        let is_easy = !is_second && self.nodes.len() < TAIL_NODES;
        self.least_chance =
            if is_easy { self.allowed } else { cohort::least_chance(&mut chances, self.nodes.len(), self.allowed) };
        self.flagged =
            (0..self.nodes.len()).map(|place| self.far(place).iter().any(|far| self.stands_out(far))).collect();
    }

    /// Whether this makes a node stand out.
    fn stands_out(&self, far: &Far) -> bool {
        far.p <= self.least_chance && far.effect.abs() >= self.noise
    }

    fn tail_of(&self, matrix: &[f32], width: usize, is_of_sets: bool, is_second: bool) -> f64 {
        // A scale can't be known better than the cohort is large.
        let most = cohort::FREEDOM_MOST.min(self.nodes.len() as f64 - 1.0);
        // Sets overlap: few nodes show no tail of theirs, however many sets there are.
        if is_of_sets && self.nodes.len() < TAIL_NODES {
            return most.min(FREEDOM_OF_FEW);
        }
        let amounts = |is_ours: &dyn Fn(usize, f32) -> bool| -> Vec<f64> {
            let all = matrix.iter().enumerate().filter(|(at, x)| x.is_finite() && is_ours(at / width.max(1), **x));
            all.map(|(_, x)| f64::from(x.abs())).collect()
        };
        let fast = cohort::tail(&mut amounts(&|place, x| x > 0.0 && !self.flagged[place]));
        let both = if is_second { cohort::tail(&mut amounts(&|place, _| !self.flagged[place])) } else { None };
        let least = [fast, both].into_iter().flatten().fold(most, f64::min);
        least.max(cohort::FREEDOM_LEAST)
    }

    /// What of a node is so far off that it may be a finding.
    fn far(&self, place: usize) -> Vec<Far> {
        let mut found = Vec::new();
        for (index, score) in self.scores[place * self.sets.len()..(place + 1) * self.sets.len()].iter().enumerate() {
            if let Some(p) = rare(*score, self.freedom[0]) {
                found.push(Far { what: What::Set(index), effect: self.effect(place, index), p });
            }
        }
        for (column, z) in self.row(&self.z, place).iter().enumerate() {
            if let Some(p) = rare(*z, self.freedom[1]) {
                let effect = f64::from(self.row(&self.deviations, place)[column]).exp() - 1.0;
                found.push(Far { what: What::Cell(column), effect, p });
            }
        }
        found
    }

    /// The median deviation of a node in a set, as a share: -0.12 is 12 % slower. NaN where it lacks too many cells.
    pub fn effect(&self, place: usize, set: usize) -> f64 {
        self.effect_of(place, &self.sets[set].columns)
    }

    fn effect_of(&self, place: usize, columns: &[usize]) -> f64 {
        let row = self.row(&self.deviations, place);
        let mut known: Vec<f64> =
            columns.iter().map(|column| f64::from(row[*column])).filter(|d| d.is_finite()).collect();
        if (known.len() as f64) < PART_OF_SET * columns.len() as f64 {
            return f64::NAN;
        }
        median_in_place(&mut known).map_or(f64::NAN, |d| d.exp() - 1.0)
    }

    /// The same over the cells that `is_wanted` takes; nothing where there are none.
    pub fn effect_where(&self, fleet: &Fleet, place: usize, is_wanted: impl Fn(&Cell) -> bool) -> Option<f64> {
        let wanted = |column: &usize| is_wanted(&fleet.cells[self.cells[*column]]);
        let columns: Vec<usize> = (0..self.width()).filter(wanted).collect();
        Some(self.effect_of(place, &columns)).filter(|effect| !columns.is_empty() && effect.is_finite())
    }

    /// The standardised score of a node in a set.
    pub fn score(&self, place: usize, set: usize) -> f64 {
        f64::from(self.scores[place * self.sets.len() + set])
    }

    /// Places of the nodes that stand out.
    pub fn flagged(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|place| self.flagged[*place]).collect()
    }

    /// Indices of the sets that stand side by side in a map.
    pub fn side_by_side(&self) -> Vec<usize> {
        (0..self.sets.len()).filter(|set| self.sets[*set].is_shown).collect()
    }

    /// What of a node that stands out is a finding, most first, what deviates the other way last. Where a set tells, its parts need
    /// not: of overlapping sets those are named that stand side by side, others only where none of these makes the node stand out.
    /// Which way a node deviates is said by what makes it stand out: the rest, seen by itself, may be chance among so many nodes.
    pub fn deviations_of(&self, fleet: &Fleet, place: usize) -> Vec<Deviation> {
        let found: Vec<Far> =
            self.far(place).into_iter().filter(|far| far.p <= self.allowed && far.effect.abs() >= self.noise).collect();
        let is_shown = |far: &Far| matches!(far.what, What::Set(set) if self.sets[set].is_shown);
        let is_set = |far: &Far| matches!(far.what, What::Set(_));
        let tiers: [&dyn Fn(&Far) -> bool; 2] = [&is_shown, &is_set];
        let tells = |is_ours: &&&dyn Fn(&Far) -> bool| found.iter().any(|far| is_ours(far) && self.stands_out(far));
        let tier = tiers.iter().find(tells);
        let mut chosen: Vec<&Far> = found.iter().filter(|far| tier.is_none_or(|is_ours| is_ours(far))).collect();
        // A deficit is what is looked for, if there is one.
        let is_slower = chosen.iter().any(|far| far.effect < 0.0 && self.stands_out(far));
        chosen.order_by(|a, b| {
            let rank = |far: &Far| (is_slower != (far.effect < 0.0), -far.effect.abs());
            rank(a).partial_cmp(&rank(b)).unwrap_or(std::cmp::Ordering::Equal)
        });
        let name = |far: &Far| match far.what {
            What::Set(set) => self.sets[set].name.clone(),
            What::Cell(column) => fleet.cells[self.cells[column]].what.clone(),
        };
        chosen.iter().map(|far| Deviation { group: name(far), deviation: far.effect, p: far.p }).collect()
    }

    /// Levels in which a node is as its neighbours: no set of the level deviates.
    pub fn levels_alike(&self, fleet: &Fleet, place: usize, noise: f64) -> Vec<String> {
        let first = |set: usize| self.sets[set].columns.first().map(|column| &fleet.cells[self.cells[*column]]);
        let cells = self.side_by_side().into_iter().filter_map(first);
        let of_levels = cells.filter(|cell| cell.is_of_level() && cell.level != "between levels");
        let levels = each_once(of_levels.map(|cell| cell.level.as_str()));
        let is_alike = |level: &&str| {
            let ours = self.side_by_side().into_iter().filter(|set| {
                self.sets[*set].columns.iter().all(|column| fleet.cells[self.cells[*column]].level == **level)
            });
            !ours.into_iter().any(|set| self.effect(place, set).abs() >= noise)
        };
        levels.into_iter().filter(is_alike).map(String::from).collect()
    }

    /// How healthy nodes spread in a set.
    pub fn spread(&self, set: usize) -> Option<GroupSpread> {
        let mut all: Vec<f64> = self
            .healthy()
            .into_iter()
            .map(|place| self.effect(place, set))
            .filter(|effect| effect.is_finite())
            .collect();
        all.sort_by(f64::total_cmp);
        let at = |percent: u32| quantile(&all, f64::from(percent) / 100.0);
        let set = &self.sets[set];
        (!all.is_empty()).then(|| GroupSpread {
            group: set.name.clone(),
            cells: set.columns.len(),
            percentiles: PERCENTILES.map(at),
        })
    }

    /// What is typical of each cell.
    pub fn typical(&self, fleet: &Fleet) -> Vec<CellSpread> {
        let of = |(column, cell): (usize, &usize)| {
            let spread = self.spreads[column]?;
            let places = 0..self.nodes.len();
            let nodes = places.filter(|place| self.row(&self.logs, *place)[column].is_finite()).count();
            Some(CellSpread { cell: *cell, median: spread.middle.exp(), scale: spread.scale, nodes })
        };
        let mut cells: Vec<CellSpread> = self.cells.iter().enumerate().filter_map(of).collect();
        cells.order_by(|a, b| fleet.cells[a.cell].what.cmp(&fleet.cells[b.cell].what));
        cells
    }

    /// The median over nodes of a set's cells, as the cells' own figures moved: for fleets that are differences. Share and
    /// standard error.
    pub fn middle(&self, set: usize) -> Option<(f64, f64)> {
        let columns = &self.sets[set].columns;
        let mut all: Vec<f64> = (0..self.nodes.len())
            .filter_map(|place| {
                let row = self.row(&self.logs, place);
                let of = |column: &usize| self.signs[*column] * f64::from(row[*column]);
                median(columns.iter().map(of).filter(|x| x.is_finite()))
            })
            .collect();
        let count = all.len() as f64;
        let spread = cohort::spread(&mut all)?;
        // Of a median, which is less certain than a mean.
        Some((spread.middle.exp() - 1.0, (std::f64::consts::FRAC_PI_2 / count).sqrt() * spread.scale))
    }
}

/// Something of a node that is far off.
struct Far {
    what: What,
    effect: f64,
    p: f64,
}

/// By index.
enum What {
    Set(usize),
    Cell(usize),
}

/// The chance of so many scales, where it is small.
fn rare(scales: f32, freedom: f64) -> Option<f64> {
    // Every chance that is small enough lies beyond: 3.29 scales of a normal distribution, more of any other.
    if scales.is_nan() || scales.abs() < 3.0 {
        return None;
    }
    Some(cohort::chance(scales.into(), freedom)).filter(|chance| *chance < CHANCE_MOST)
}

/// The mean z of a set's cells; NaN where too many are missing.
fn score(z: &[f32], set: &Set) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for column in &set.columns {
        let z = f64::from(z[*column]);
        if z.is_finite() {
            sum += z.clamp(-CUT, CUT);
            count += 1.0;
        }
    }
    if count == 0.0 || count < PART_OF_SET * set.columns.len() as f64 { f64::NAN } else { sum / count }
}

/// The cells that enough nodes have.
fn common_cells(fleet: &Fleet, nodes: &[usize]) -> Vec<usize> {
    let mut count = vec![0usize; fleet.cells.len()];
    for node in nodes {
        fleet.nodes[*node].figures.iter().for_each(|figure| count[figure.cell as usize] += 1);
    }
    (0..count.len()).filter(|cell| count[*cell] >= HAVE_IT).collect()
}

/// Logarithms and errors, node by node.
fn matrices(fleet: &Fleet, nodes: &[usize], cells: &[usize]) -> (Vec<f32>, Vec<f32>) {
    let mut column = vec![usize::MAX; fleet.cells.len()];
    cells.iter().enumerate().for_each(|(place, cell)| column[*cell] = place);
    let mut logs = vec![f32::NAN; nodes.len() * cells.len()];
    let mut errors = logs.clone();
    for (place, node) in nodes.iter().enumerate() {
        for figure in &fleet.nodes[*node].figures {
            if let Some(at) =
                logs.get_mut(place * cells.len()..).and_then(|row| row.get_mut(column[figure.cell as usize]))
            {
                *at = figure.log;
                errors[place * cells.len() + column[figure.cell as usize]] = figure.error;
            }
        }
    }
    (logs, errors)
}
