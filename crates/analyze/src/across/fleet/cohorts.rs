//! Which machines should be alike: those of the same hardware. What a setting or a fault changes must not part a node from its
//! neighbours, or it would be compared with nobody: the numbers of modules, clocks and settings are no part of what a
//! cohort is. Memory, the speed that modules are made for and the number of NUMA nodes part a cohort only where enough nodes have
//! the one and enough have the other: a single node that has less is one that lost some.

use membound_core::in_order::InOrder;
use std::collections::BTreeMap;

use crate::across::fleet::nodes::{Facts, Fleet};
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
}

impl Cohort {
    /// Why it can't be screened.
    pub fn left_out(&self, fleet: &Fleet) -> Option<String> {
        if self.nodes.iter().all(|node| fleet.nodes[*node].figures.is_empty()) {
            return Some("nothing was measured".into());
        }
        match self.nodes.len() {
            1 => Some(format!("alone of its kind, so nothing says how fast it should be; {COHORT_LEAST} are needed")),
            n if n < COHORT_LEAST => {
                Some(format!("only {n} of a kind, too few to say which is odd; {COHORT_LEAST} are needed"))
            }
            _ => None,
        }
    }
}

/// All cohorts, the largest first.
pub(crate) fn cohorts(fleet: &Fleet) -> Vec<Cohort> {
    let mut alike: BTreeMap<&crate::across::fleet::nodes::Hardware, Vec<usize>> = BTreeMap::new();
    for (index, node) in fleet.nodes.iter().enumerate() {
        alike.entry(&node.hardware).or_default().push(index);
    }
    let mut cohorts: Vec<Cohort> =
        alike.into_iter().flat_map(|(hardware, nodes)| parted(fleet, &hardware.name(), nodes)).collect();
    cohorts.order_by_key(|cohort| std::cmp::Reverse(cohort.nodes.len()));
    name_apart(fleet, &mut cohorts);
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

fn parted(fleet: &Fleet, name: &str, nodes: Vec<usize>) -> Vec<Cohort> {
    let mut parts = vec![Cohort { name: name.into(), nodes }];
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
    let least = (PART * whole.nodes.len() as f64).max(COHORT_LEAST as f64) as usize;
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
        Cohort { name: format!("{}, {}", whole.name, text(middle)), nodes }
    };
    parts.into_iter().map(cohort).collect()
}

/// Cohorts of one name differ in what the name leaves out.
fn name_apart(fleet: &Fleet, cohorts: &mut [Cohort]) {
    let names: Vec<String> = cohorts.iter().map(|cohort| cohort.name.clone()).collect();
    for cohort in cohorts.iter_mut() {
        if names.iter().filter(|name| **name == cohort.name).count() > 1
            && let Some(node) = cohort.nodes.first()
        {
            let hardware = &fleet.nodes[*node].hardware;
            cohort.name = format!("{}, {}, {}", cohort.name, hardware.signature, hardware.caches);
        }
    }
}
