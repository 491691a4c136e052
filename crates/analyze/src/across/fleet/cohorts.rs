//! Which machines should be alike: those of the same hardware. What a setting or a fault changes must not part a node from its
//! neighbours, or it would be compared with nobody: the numbers of modules, clocks and settings are no part of what a
//! cohort is. Cores, memory, the speed that modules are made for and the number of NUMA nodes part a cohort only where enough nodes
//! have the one and enough have the other: a single node that has less is one that lost some.

use membound_core::in_order::InOrder;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::across::fleet::nodes::{Facts, Fleet, Hardware};
use membound_core::units::Bytes;

/// Fewer nodes than this say nothing about which of them is odd.
pub const COHORT_LEAST: usize = 4;
/// A part of a cohort is a cohort of its own from this share on.
const PART: f64 = 0.1;
/// Sizes of memory that differ by less are one size, of which some modules may be missing.
const SIZES: f64 = 1.6;

/// Machines that should be alike.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cohort {
    pub name: String,
    pub nodes: Vec<usize>,
    /// What most of them have.
    pub hardware: Arc<Hardware>,
}

impl Cohort {
    /// Why it can't be screened.
    pub fn left_out(&self, fleet: &Fleet) -> Option<String> {
        let measured = self.nodes.iter().filter(|node| !fleet.nodes[**node].figures.is_empty()).count();
        let what = if measured == self.nodes.len() { "" } else { "with figures " };
        match measured {
            0 => Some("nothing was measured".into()),
            1 => Some(format!(
                "alone {what}of its kind, so nothing says how fast it should be; {COHORT_LEAST} are needed"
            )),
            n if n < COHORT_LEAST => {
                Some(format!("only {n} {what}of a kind, too few to say which is odd; {COHORT_LEAST} are needed"))
            }
            _ => None,
        }
    }
}

/// All cohorts, the largest first.
pub(crate) fn cohorts(fleet: &Fleet) -> Vec<Cohort> {
    let mut alike: BTreeMap<[&str; 3], Vec<usize>> = BTreeMap::new();
    for (index, node) in fleet.nodes.iter().enumerate() {
        let Hardware { processor, signature, caches, .. } = &*node.hardware;
        alike.entry([processor, signature, caches]).or_default().push(index);
    }
    let wholes = alike.into_values().flat_map(|nodes| by_cores(fleet, nodes));
    let mut cohorts: Vec<Cohort> = wholes.flat_map(|whole| parted(fleet, whole)).collect();
    cohorts.order_by_key(|cohort| std::cmp::Reverse(cohort.nodes.len()));
    name_apart(&mut cohorts);
    cohorts
}

/// A number that may part a cohort, the ratio from which on two of it are not the same, and how it is written.
type Trait = (fn(&Facts) -> Option<f64>, f64, fn(f64) -> String);

const TRAITS: [Trait; 3] = [
    (|facts| facts.memory_bytes.map(|bytes| bytes as f64), SIZES, |bytes| memory(bytes as u64)),
    (|facts| facts.module_rated_mt_s.map(f64::from), 1.01, |rate| format!("modules of {rate} MT/s")),
    (|facts| facts.numa_nodes.map(f64::from), 1.01, |nodes| format!("{nodes} NUMA nodes")),
];

/// As machines are sold: firmware and kernel keep a part from the count.
fn memory(bytes: u64) -> String {
    let gib = (bytes + (1 << 29)) >> 30;
    if gib >= 8 { Bytes::gib(gib).to_string() } else { Bytes(bytes).to_string() }
}

/// So many nodes are enough to be a part of their own.
fn least_part(nodes: usize) -> usize {
    (PART * nodes as f64).max(COHORT_LEAST as f64) as usize
}

/// Machines that differ in cores and packages alone, parted by them. Few that have less than many others lost some and stay with
/// these; where nobody has many of a number, nobody can say which is odd.
fn by_cores(fleet: &Fleet, nodes: Vec<usize>) -> Vec<Cohort> {
    let least = least_part(nodes.len());
    let mut alike: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
    for node in nodes {
        let Hardware { cores, packages, .. } = *fleet.nodes[node].hardware;
        alike.entry((cores, packages)).or_default().push(node);
    }
    let cohort = |nodes: Vec<usize>| {
        let hardware = fleet.nodes[nodes[0]].hardware.clone();
        Cohort { name: hardware.name(), nodes, hardware }
    };
    let (mut many, few): (Vec<Cohort>, Vec<Cohort>) =
        alike.into_values().map(cohort).partition(|part| part.nodes.len() >= least);
    let mut alone = Vec::new();
    for part in few {
        match many.iter_mut().find(|whole| whole.hardware.cores >= part.hardware.cores) {
            Some(whole) => whole.nodes.extend(part.nodes),
            None => alone.push(part),
        }
    }
    many.iter_mut().for_each(|whole| whole.nodes.sort_unstable());
    many.into_iter().chain(alone).collect()
}

fn parted(fleet: &Fleet, whole: Cohort) -> Vec<Cohort> {
    let mut parts = vec![whole];
    for (value, ratio, text) in TRAITS {
        parts = parts.into_iter().flat_map(|part| split(fleet, part, value, ratio, text)).collect();
    }
    parts
}

/// Parts a cohort where a number jumps. Nodes of parts too small to stand alone go to the next larger one: they lost something.
/// Those that don't tell go to the part with most nodes.
fn split(
    fleet: &Fleet,
    whole: Cohort,
    value: fn(&Facts) -> Option<f64>,
    ratio: f64,
    text: fn(f64) -> String,
) -> Vec<Cohort> {
    let least = least_part(whole.nodes.len());
    let of = |node: &usize| value(&fleet.nodes[*node].facts);
    let (mut known, mut rest): (Vec<usize>, Vec<usize>) = whole.nodes.iter().partition(|node| of(node).is_some());
    let number = |node: &usize| of(node).unwrap_or(0.0);
    known.order_by(|a, b| number(a).total_cmp(&number(b)).then(a.cmp(b)));
    let (mut parts, mut few): (Vec<Vec<usize>>, Vec<usize>) = (Vec::new(), Vec::new());
    for part in known.chunk_by(|a, b| number(b) < ratio * number(a)) {
        if part.len() < least { few.extend(part) } else { parts.push(part.to_vec()) }
    }
    if parts.len() < 2 {
        return vec![whole];
    }
    let middles: Vec<f64> = parts.iter().map(|part| number(&part[part.len() / 2])).collect();
    for node in few {
        let place = middles.iter().position(|middle| *middle > number(&node)).unwrap_or(parts.len() - 1);
        parts[place].push(node);
    }
    let mut parts: Vec<(f64, Vec<usize>)> = middles.into_iter().zip(parts).collect();
    parts.order_by_key(|part| std::cmp::Reverse(part.1.len()));
    parts[0].1.append(&mut rest);
    let cohort = |(middle, mut nodes): (f64, Vec<usize>)| {
        nodes.sort_unstable();
        Cohort { name: format!("{}, {}", whole.name, text(middle)), nodes, hardware: whole.hardware.clone() }
    };
    parts.into_iter().map(cohort).collect()
}

/// Cohorts of one name differ in what the name leaves out.
fn name_apart(cohorts: &mut [Cohort]) {
    let names: Vec<String> = cohorts.iter().map(|cohort| cohort.name.clone()).collect();
    for cohort in cohorts.iter_mut() {
        if names.iter().filter(|name| **name == cohort.name).count() > 1 {
            let Hardware { signature, caches, .. } = &*cohort.hardware;
            cohort.name = format!("{}, {signature}, {caches}", cohort.name);
        }
    }
}
