//! Which stream goes to which node: the placement of whole streams that lets a loop's pass end soonest.
//!
//! The model is arithmetic over measured figures. A stream costs the node it lies on the time of its loads and of its
//! stores; nodes serve their streams at the same time, so the slowest node ends the pass:
//!
//! ```text
//! node    = sum over its streams of  loaded / load rate + stored / store rate      rates of all cores
//! cores   = the same sum over all streams, by the rates of one core, / cores
//! pass    = the longest of all nodes and of cores
//! ```
//!
//! *cores* is there because a core has so many lines in flight and no more: a line that takes long to come from a slow node
//! keeps a fast node waiting. One core alone therefore gets its streams one after the other, however many nodes there are.
//!
//! What the model does not know is a path that nodes share (a link between packages, a mesh): there the sum of the nodes'
//! rates is never reached. The other end is that nodes serve one after the other; that gain is told as well, and the truth
//! lies between the two.
//!
//! The store rate is that of the `store` kernel, payload over time. With regular stores it has the read that a store begins
//! with in it. So a stream that is loaded and stored is not charged for that read twice.

use membound_core::in_order::{InOrder, distinct};
use std::cmp::Ordering;

use schemars::JsonSchema;
use serde::Serialize;

use membound_core::kernel::StoreKind;
use membound_core::kernel::catalog::Rows;
use membound_core::kernel::formula::Formula;
use membound_core::units::{Bytes, Nanoseconds, significant};

/// Most streams and tiers that are looked through: 4^8 placements.
pub const STREAMS_MOST: usize = 8;
/// See [`STREAMS_MOST`].
pub const TIERS_MOST: usize = 4;
/// Times that differ by less than this share are equal: sums in another order differ in their last digits.
const SAME: f64 = 1e-9;

/// Rates of some cores at one node: [value, low, high] in bytes a second, with a 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Speed {
    /// Loads alone.
    pub load_bps: [f64; 3],
    /// Stores alone, as payload: with regular stores the read before each store is in the time.
    pub store_bps: [f64; 3],
}

/// A node that streams can lie on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Tier {
    /// Number of the node.
    pub node: u32,
    /// What streams may take there, in bytes.
    pub free: Bytes,
    /// By all cores together.
    pub all: Speed,
    /// By one core alone; absent where it was not measured, and then cores set no limit.
    pub one: Option<Speed>,
}

/// An array of a loop, and what one pass over it moves.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Stream {
    /// Its name in the loop.
    pub name: String,
    /// Its size.
    pub bytes: Bytes,
    /// Bytes loaded in a pass, without those that regular stores load by themselves.
    pub loaded: Bytes,
    /// Bytes stored in a pass.
    pub stored: Bytes,
}

/// What is to be placed, and where it could go.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The streams, at most [`STREAMS_MOST`].
    pub streams: Vec<Stream>,
    /// The nodes, at most [`TIERS_MOST`].
    pub tiers: Vec<Tier>,
    /// Cores that run the loop.
    pub cores: usize,
    /// The node on which everything lies if nothing is done.
    pub default: u32,
}

/// Where each stream should go, and what that gains.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Advice {
    /// The answer in a sentence.
    pub says: String,
    /// The streams with their nodes.
    pub streams: Vec<Placed>,
    /// The nodes with what they hold.
    pub nodes: Vec<NodeLoad>,
    /// Seconds of one pass: [value, low, high].
    pub pass_s: [f64; 3],
    /// The node that takes longest; absent where the cores' lines in flight are the limit.
    pub limited_by: Option<u32>,
    /// The node on which everything lies if nothing is done.
    pub default: u32,
    /// Speed against everything on that node: [ratio, low, high]; absent where it can't hold everything.
    pub gain: Option<[f64; 3]>,
    /// The same, should the nodes serve one after the other and not at once: what a path that they share can make of it.
    pub gain_in_turn: Option<[f64; 3]>,
    /// Whether the gain's interval lies above 1; where the default node can't hold everything: whether there was a choice.
    pub pays: bool,
}

/// A stream and its node.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Placed {
    /// The stream.
    #[serde(flatten)]
    pub stream: Stream,
    /// The node it should lie on.
    pub node: u32,
}

/// A node as advised.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct NodeLoad {
    /// The node and its rates.
    #[serde(flatten)]
    pub tier: Tier,
    /// Bytes of the streams that it should hold.
    pub holds: Bytes,
    /// Seconds that it takes for them in a pass.
    pub busy_s: f64,
    /// Speed of the advice against everything on this node: [ratio, low, high]; absent where it can't hold everything.
    pub gain: Option<[f64; 3]>,
}

/// Why there is no advice; the text says what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAdvice {
    /// Nothing to place, or nowhere to go.
    #[error("there is nothing to place: give the streams that are loaded or stored a size, and name at least one node")]
    Nothing,
    /// More than can be looked through.
    #[error(
        "{streams} streams on {tiers} nodes are too many; give at most {STREAMS_MOST} streams and {TIERS_MOST} nodes"
    )]
    TooMany {
        /// Streams given.
        streams: usize,
        /// Nodes given.
        tiers: usize,
    },
    /// A stream or a node was given twice.
    #[error("{what} is given twice; give it once")]
    Twice {
        /// Which.
        what: String,
    },
    /// A rate that is none.
    #[error("node {node} has a rate that is not above 0; give what it loads and stores a second")]
    NoRate {
        /// The node.
        node: u32,
    },
    /// The default node is not among the nodes.
    #[error("there are no figures of node {node}, where streams lie by default; nodes with figures: {known}")]
    NoDefault {
        /// The node.
        node: u32,
        /// The nodes given.
        known: String,
    },
    /// No placement of whole streams fits.
    #[error(
        "the streams do not fit whole: {needed} in all, the largest {largest}; free are {free}. Give smaller sizes, free \
         memory, or spread a large stream over several nodes (numactl --interleave)"
    )]
    NoRoom {
        /// Bytes of all streams.
        needed: Bytes,
        /// Bytes of the largest.
        largest: Bytes,
        /// What is free on each node.
        free: String,
    },
    /// A size for a stream that the loop does not have, or none for one that it has.
    #[error("the loop has the streams {known}; give each of them a size, and no other")]
    OtherStreams {
        /// The loop's streams.
        known: String,
    },
}

/// The streams of a loop with what a pass over each moves: every element is touched once, or once for each of its rows where
/// rows are too long to stay in a cache. `sizes` names each stream once.
///
/// # Errors
/// If `sizes` are not those of the loop's streams.
pub fn streams(
    formula: &Formula,
    rows: Rows,
    store: StoreKind,
    sizes: &[(String, Bytes)],
) -> Result<Vec<Stream>, NoAdvice> {
    let known = || formula.streams.iter().map(|stream| stream.name.as_str()).collect::<Vec<_>>().join(", ");
    let other = || NoAdvice::OtherStreams { known: known() };
    if sizes.len() != formula.streams.len() {
        return Err(other());
    }
    let stream = |(index, stream): (usize, &membound_core::kernel::formula::Stream)| {
        let bytes = sizes.iter().find(|(name, _)| *name == stream.name).ok_or_else(other)?.1;
        let sweeps = distinct(formula.loads().iter().filter(|a| a.stream == index).map(|a| a.row));
        let loads = if rows == Rows::Long { sweeps.len() } else { sweeps.len().min(1) } as u64;
        // The read that a regular store begins with is the load.
        let loads = loads.saturating_sub(u64::from(stream.stored && store.write_allocates()));
        let stored = if stream.stored { bytes } else { Bytes(0) };
        Ok(Stream { name: stream.name.clone(), bytes, loaded: Bytes(bytes.0.saturating_mul(loads)), stored })
    };
    formula.streams.iter().enumerate().map(stream).collect()
}

/// The best placement of whole streams, found by looking at all of them. Of placements that are equally fast it is the one
/// with the fewest bytes on the node with the least free memory, then on the next such node; then the one whose first
/// stream lies on the node named first. Where no gain is sure, everything stays on the default node.
///
/// # Errors
/// If there is nothing to place, too much to look through, figures that can't be, or no room.
pub fn advise(question: &Question) -> Result<Advice, NoAdvice> {
    check(question)?;
    let rates = question.rates(0);
    let mut least = f64::INFINITY;
    question.each_fit(&mut |places| least = least.min(question.pass(places, &rates)));
    let scarce = question.scarce_first();
    let mut best: Option<(Vec<u64>, Vec<usize>)> = None;
    question.each_fit(&mut |places| {
        if question.pass(places, &rates) <= least * (1.0 + SAME) {
            let holds = scarce.iter().map(|&tier| question.holds(places, tier)).collect();
            let candidate = (holds, places.to_vec());
            if best.as_ref().is_none_or(|best| candidate.cmp(best) == Ordering::Less) {
                best = Some(candidate);
            }
        }
    });
    let (_, places) = best.ok_or_else(|| question.no_room())?;
    let advice = question.advice(&places);
    if advice.pays || advice.gain.is_none() {
        return Ok(advice);
    }
    // Then the advice is to leave everything; what it says still tells of the best.
    let says = advice.says;
    Ok(Advice { says, ..question.advice(&vec![question.default_tier(); places.len()]) })
}

fn check(question: &Question) -> Result<(), NoAdvice> {
    let (streams, tiers) = (question.streams.len(), question.tiers.len());
    let is_moved = |stream: &Stream| stream.loaded > Bytes(0) || stream.stored > Bytes(0);
    if tiers == 0 || question.cores == 0 || !question.streams.iter().any(is_moved) {
        return Err(NoAdvice::Nothing);
    }
    if streams > STREAMS_MOST || tiers > TIERS_MOST {
        return Err(NoAdvice::TooMany { streams, tiers });
    }
    let names = question.streams.iter().map(|stream| format!("stream {}", stream.name));
    let mut seen = std::collections::BTreeSet::new();
    if let Some(what) =
        names.chain(question.tiers.iter().map(|t| format!("node {}", t.node))).find(|w| !seen.insert(w.clone()))
    {
        return Err(NoAdvice::Twice { what });
    }
    let is_rate = |rate: &[f64; 3]| rate.iter().all(|value| value.is_finite() && *value > 0.0);
    let are_rates = |speed: &Speed| is_rate(&speed.load_bps) && is_rate(&speed.store_bps);
    if let Some(tier) = question.tiers.iter().find(|tier| !are_rates(&tier.all) || !tier.one.iter().all(are_rates)) {
        return Err(NoAdvice::NoRate { node: tier.node });
    }
    if question.tiers.iter().all(|tier| tier.node != question.default) {
        let known = question.tiers.iter().map(|tier| tier.node.to_string()).collect::<Vec<_>>().join(", ");
        return Err(NoAdvice::NoDefault { node: question.default, known });
    }
    Ok(())
}

/// Rates of a tier: load and store by all cores, load and store by one.
type Rates = [f64; 4];

impl Question {
    /// The middle (0), the low (1) or the high (2) ends of all rates. A rate that was not measured sets no limit.
    fn rates(&self, which: usize) -> Vec<Rates> {
        let unlimited = Speed { load_bps: [f64::INFINITY; 3], store_bps: [f64::INFINITY; 3] };
        let of_tier = |tier: &Tier| {
            let one = tier.one.unwrap_or(unlimited);
            [tier.all.load_bps[which], tier.all.store_bps[which], one.load_bps[which], one.store_bps[which]]
        };
        self.tiers.iter().map(of_tier).collect()
    }

    /// Calls `visit` with every placement that fits, as indices of tiers.
    fn each_fit(&self, visit: &mut dyn FnMut(&[usize])) {
        let mut free: Vec<u64> = self.tiers.iter().map(|tier| tier.free.0).collect();
        self.place_rest(&mut Vec::new(), &mut free, visit);
    }

    fn place_rest(&self, places: &mut Vec<usize>, free: &mut [u64], visit: &mut dyn FnMut(&[usize])) {
        let Some(stream) = self.streams.get(places.len()) else { return visit(places) };
        for tier in 0..free.len() {
            if let Some(left) = free[tier].checked_sub(stream.bytes.0) {
                let before = std::mem::replace(&mut free[tier], left);
                places.push(tier);
                self.place_rest(places, free, visit);
                places.pop();
                free[tier] = before;
            }
        }
    }

    /// Seconds of each tier, and of the cores.
    fn times(&self, places: &[usize], rates: &[Rates]) -> (Vec<f64>, f64) {
        let (mut busy, mut cores) = (vec![0.0; rates.len()], 0.0);
        for (stream, &tier) in self.streams.iter().zip(places) {
            let [load, store, core_load, core_store] = rates[tier];
            let (loaded, stored) = (stream.loaded.0 as f64, stream.stored.0 as f64);
            busy[tier] += loaded / load + stored / store;
            cores += (loaded / core_load + stored / core_store) / self.cores as f64;
        }
        (busy, cores)
    }

    /// Seconds of a pass: tiers serve at the same time.
    fn pass(&self, places: &[usize], rates: &[Rates]) -> f64 {
        let (busy, cores) = self.times(places, rates);
        busy.into_iter().fold(cores, f64::max)
    }

    /// Seconds of a pass in which tiers serve one after the other.
    fn pass_in_turn(&self, places: &[usize], rates: &[Rates]) -> f64 {
        let (busy, cores) = self.times(places, rates);
        busy.iter().sum::<f64>().max(cores)
    }

    /// Bytes on a tier.
    fn holds(&self, places: &[usize], tier: usize) -> u64 {
        self.streams.iter().zip(places).filter(|(_, at)| **at == tier).map(|(stream, _)| stream.bytes.0).sum()
    }

    /// Indices of the tiers, the one with the least free memory first.
    fn scarce_first(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.tiers.len()).collect();
        order.order_by_key(|&tier| (self.tiers[tier].free, tier == self.default_tier(), self.tiers[tier].node));
        order
    }

    /// `value` at the middle of all rates, with an interval: what each rate's own interval does to the logarithm of the
    /// value, squared and added up (variance estimates recovery, as for ratios of medians). A rate on which two times
    /// depend alike cancels in their ratio.
    fn with_interval(&self, value: impl Fn(&[Rates]) -> f64) -> [f64; 3] {
        let middle = self.rates(0);
        let ends = [self.rates(1), self.rates(2)];
        let at_middle = value(&middle);
        let (mut down, mut up) = (0.0f64, 0.0f64);
        for tier in 0..middle.len() {
            for rate in 0..middle[tier].len() {
                let moved = ends.each_ref().map(|end| {
                    let mut rates = middle.clone();
                    rates[tier][rate] = end[tier][rate];
                    (value(&rates) / at_middle).ln()
                });
                down = down.hypot(moved[0].min(moved[1]).min(0.0));
                up = up.hypot(moved[0].max(moved[1]).max(0.0));
            }
        }
        [at_middle, at_middle * (-down).exp(), at_middle * up.exp()]
    }

    fn default_tier(&self) -> usize {
        self.tiers.iter().position(|tier| tier.node == self.default).unwrap_or_default()
    }

    fn total(&self) -> u64 {
        self.streams.iter().map(|stream| stream.bytes.0).fold(0, u64::saturating_add)
    }

    fn no_room(&self) -> NoAdvice {
        let free: Vec<String> = self.tiers.iter().map(|tier| format!("{} on node {}", tier.free, tier.node)).collect();
        let largest = self.streams.iter().map(|stream| stream.bytes).max().unwrap_or_default();
        NoAdvice::NoRoom { needed: Bytes(self.total()), largest, free: free.join(", ") }
    }

    fn advice(&self, places: &[usize]) -> Advice {
        let total = self.total();
        let against = |tier: usize, ours: &dyn Fn(&[Rates]) -> f64| {
            let all_there = vec![tier; self.streams.len()];
            (self.tiers[tier].free.0 >= total)
                .then(|| self.with_interval(|rates| self.pass(&all_there, rates) / ours(rates)))
        };
        let at_once = |rates: &[Rates]| self.pass(places, rates);
        let (busy, cores) = self.times(places, &self.rates(0));
        let node = |tier: usize| NodeLoad {
            tier: self.tiers[tier],
            holds: Bytes(self.holds(places, tier)),
            busy_s: busy[tier],
            gain: against(tier, &at_once),
        };
        let slowest = (0..busy.len()).max_by(|a, b| busy[*a].total_cmp(&busy[*b]).then(b.cmp(a))).unwrap_or_default();
        let default = self.default_tier();
        let placed =
            |(stream, &tier): (&Stream, &usize)| Placed { stream: stream.clone(), node: self.tiers[tier].node };
        let gain = against(default, &at_once);
        let mut advice = Advice {
            says: String::new(),
            streams: self.streams.iter().zip(places).map(placed).collect(),
            nodes: (0..self.tiers.len()).map(node).collect(),
            pass_s: self.with_interval(at_once),
            limited_by: (busy[slowest] >= cores).then(|| self.tiers[slowest].node),
            default: self.default,
            gain,
            gain_in_turn: against(default, &|rates| self.pass_in_turn(places, rates)),
            pays: gain.map_or(self.tiers.len() > 1, |[_, low, _]| low > 1.0 + SAME),
        };
        advice.says = sentence(&advice);
        advice
    }
}

impl Advice {
    /// The nodes that hold streams, with those streams' names: the default node last.
    pub fn placement(&self) -> Vec<(&NodeLoad, Vec<&str>)> {
        let names = |node: u32| self.streams.iter().filter(move |s| s.node == node).map(|s| s.stream.name.as_str());
        let mut held: Vec<(&NodeLoad, Vec<&str>)> =
            self.nodes.iter().map(|n| (n, names(n.tier.node).collect())).collect();
        held.retain(|(_, names)| !names.is_empty());
        held.order_by_key(|(node, _)| node.tier.node == self.default);
        held
    }
}

fn sentence(advice: &Advice) -> String {
    let parts: Vec<String> = advice
        .placement()
        .iter()
        .map(|(node, names)| format!("{} ({}) on node {}", listed(names), node.holds, node.tier.node))
        .collect();
    let (places, default) = (listed(&parts), advice.default);
    let Some(gain) = advice.gain else {
        let time = Nanoseconds(advice.pass_s[0] * 1e9);
        return format!("Put {places}: a pass takes {time}. Node {default} alone can't hold all streams.");
    };
    if !advice.pays {
        let best = format!(" ({places} would be {} x, which is no sure gain)", interval(gain));
        let best = if gain[0] > 1.0 + SAME { best } else { String::new() };
        return format!("Nothing to gain: leave all streams on node {default}{best}.");
    }
    let mut text = format!("Put {places}: expect {} x the speed of all on node {default}", interval(gain));
    if let Some(in_turn) = advice.gain_in_turn.filter(|in_turn| in_turn[0] < gain[0] * (1.0 - SAME)) {
        text += &format!("; {} x should the nodes share one path", interval(in_turn));
    }
    text + "."
}

/// `1.70 [1.65, 1.76]`; without an interval where there is none.
fn interval([value, low, high]: [f64; 3]) -> String {
    let [value, low, high] = [value, low, high].map(significant);
    if low == high { value } else { format!("{value} [{low}, {high}]") }
}

/// `a`, `a and b`, `a, b and c`
fn listed<S: AsRef<str>>(names: &[S]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match names.split_last() {
        Some((last, [])) => (*last).into(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
        None => String::new(),
    }
}
