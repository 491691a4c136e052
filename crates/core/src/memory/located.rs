//! Where the pages of a policy were found, and whether that is what the policy says.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::memory::policy::Policy;
use crate::memory::proof::Proof;
use crate::units::Bytes;

/// Pages found on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodePages {
    /// The node.
    pub node: u32,
    /// Pages.
    pub pages: u64,
}

/// Where the pages of memory with a policy were found, over all mappings with this policy and page size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Located {
    /// The policy.
    pub policy: Policy,
    /// Bytes of the pages counted here.
    pub page: Bytes,
    /// Pages that were touched. Where they are more than a million, that many are looked up, spread evenly.
    pub touched: u64,
    /// Pages found on each node, nodes ascending. What is touched but not here holds nothing yet.
    pub on: Vec<NodePages>,
    /// Pages by which a node's share may differ from its weight: mappings end within a round.
    pub slack: u64,
    /// Why they could not be looked up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
}

/// Who tells where pages lie.
pub const BY: &str = if cfg!(windows) { "QueryWorkingSetEx" } else { "move_pages" };

/// Part of the pages by which shares may differ beyond that, where not all pages were looked up: far more than the
/// standard error of a million draws (0.05 %).
const DRAWN: f64 = 0.01;

impl Located {
    /// Pages found on any node.
    pub fn found(&self) -> u64 {
        self.on.iter().map(|found| found.pages).sum()
    }

    /// Pages found on a node.
    pub fn on_node(&self, node: u32) -> u64 {
        self.on.iter().filter(|found| found.node == node).map(|found| found.pages).sum()
    }

    /// Pages found where the policy wants pages at all.
    fn inside(&self) -> u64 {
        let nodes = self.policy.nodes();
        self.on.iter().filter(|found| nodes.contains(found.node)).map(|found| found.pages).sum()
    }

    /// Pages by which a share may differ.
    fn tolerance(&self) -> u64 {
        let drawn = if self.found() < self.touched { self.found() as f64 * DRAWN } else { 0.0 };
        self.slack + drawn as u64
    }

    /// The policy as a claim about its pages.
    fn claim(&self) -> String {
        let nodes = self.policy.nodes();
        let named = match nodes.only() {
            Some(node) => format!("node {node}"),
            None => format!("nodes {nodes}"),
        };
        let weights: Vec<String> = self.policy.shares().iter().map(|(_, weight)| weight.to_string()).collect();
        match self.policy {
            Policy::FirstTouch => "on the node of first touch".into(),
            Policy::Bind(_) => format!("bound to {named}"),
            Policy::Preferred(_) => format!("on {named} while it has room"),
            Policy::Interleave(_) => format!("interleaved over {named}"),
            Policy::Weighted(_) => format!("interleaved over {named} as {}", weights.join(":")),
        }
    }

    /// What was seen: `65536 of 65536 pages`, `node 0: 768, node 1: 256 of 1024 pages`.
    fn seen(&self) -> String {
        if let Some(refusal) = &self.refusal {
            return format!("not looked up: {refusal}");
        }
        let (found, nodes) = (self.found(), self.policy.nodes());
        let counts = |on: &mut dyn Iterator<Item = &NodePages>| {
            on.map(|found| format!("node {}: {}", found.node, found.pages)).collect::<Vec<_>>().join(", ")
        };
        let what = if self.page == Bytes::kib(4) { "pages".into() } else { format!("pages of {}", self.page) };
        let mut text = if self.policy.shares().is_empty() {
            let mut outside = self.on.iter().filter(|found| !nodes.contains(found.node));
            let others = if self.inside() < found { format!("; {}", counts(&mut outside)) } else { String::new() };
            format!("{} of {found} {what}{others}", self.inside())
        } else {
            format!("{} of {found} {what}, to within {}", counts(&mut self.on.iter()), self.tolerance())
        };
        if found < self.touched {
            text += &format!(" ({} were touched)", self.touched);
        }
        text
    }

    /// Why this contradicts the policy; preferring a node promises nothing.
    pub fn fault(&self) -> Option<String> {
        let (found, shares) = (self.found(), self.policy.shares());
        let total: u64 = shares.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let is_off = |&(node, weight): &(u32, u8)| {
            let due = u128::from(found) * u128::from(weight) / u128::from(total.max(1));
            self.on_node(node).abs_diff(due as u64) > self.tolerance()
        };
        let contradicts = match self.policy {
            Policy::FirstTouch | Policy::Preferred(_) => false,
            Policy::Bind(_) => self.inside() < found,
            Policy::Interleave(_) | Policy::Weighted(_) => {
                shares.iter().any(is_off) || found - self.inside() > self.tolerance()
            }
        };
        contradicts.then(|| {
            let (claim, seen) = (self.claim(), self.seen());
            format!("memory is not {claim} ({seen}); make room there, give a smaller --size, or choose another place")
        })
    }

    /// The claim and what was seen of it. It holds where all pages are where the policy wants them.
    pub fn proof(&self) -> Proof {
        let overflowed = matches!(self.policy, Policy::Preferred(_)) && self.inside() < self.found();
        let holds = self.refusal.is_none() && self.fault().is_none() && !overflowed;
        Proof::new(&self.claim(), BY, self.seen(), holds)
    }

    fn and(mut self, other: &Located) -> Located {
        self.touched += other.touched;
        self.slack += other.slack;
        self.on = summed(&[&self.on, &other.on]);
        self.refusal = self.refusal.or_else(|| other.refusal.clone());
        self
    }
}

/// Both, with one entry for each policy and page size.
pub(crate) fn merged(left: Vec<Located>, right: Vec<Located>) -> Vec<Located> {
    let mut all: Vec<Located> = Vec::new();
    for located in left.into_iter().chain(right) {
        match all.iter_mut().find(|known| (known.policy, known.page) == (located.policy, located.page)) {
            Some(known) => *known = known.clone().and(&located),
            None => all.push(located),
        }
    }
    all
}

/// Pages on each node over all counts, nodes ascending.
pub fn summed(counts: &[&[NodePages]]) -> Vec<NodePages> {
    let mut sum: BTreeMap<u32, u64> = BTreeMap::new();
    for found in counts.iter().copied().flatten() {
        *sum.entry(found.node).or_insert(0) += found.pages;
    }
    sum.into_iter().map(|(node, pages)| NodePages { node, pages }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Obtained;

    fn located(policy: &str, touched: u64, slack: u64, on: &[(u32, u64)]) -> Located {
        let on = on.iter().map(|&(node, pages)| NodePages { node, pages }).collect();
        Located { policy: policy.parse().unwrap(), page: Bytes::kib(4), touched, on, slack, refusal: None }
    }

    fn check(located: &Located, claim: &str, seen: &str, holds: bool, is_fault: bool) {
        assert_eq!(located.proof(), Proof::new(claim, BY, seen, holds));
        assert_eq!(located.fault().is_some(), is_fault, "{located:?}");
    }

    #[test]
    fn bound_pages_lie_there_and_nowhere_else() {
        check(&located("node1", 64, 0, &[(1, 64)]), "bound to node 1", "64 of 64 pages", true, false);
        let astray = located("node1", 64, 0, &[(0, 1), (1, 63)]);
        check(&astray, "bound to node 1", "63 of 64 pages; node 0: 1", false, true);
        assert!(astray.fault().unwrap().contains("; node 0: 1); make room"), "{:?}", astray.fault());
        check(&located("bind:0-1", 9, 0, &[(0, 9)]), "bound to nodes 0-1", "9 of 9 pages", true, false);
        check(&located("node0", 90, 0, &[(0, 9)]), "bound to node 0", "9 of 9 pages (90 were touched)", true, false);
    }

    #[test]
    fn a_preferred_node_may_overflow_and_that_is_told() {
        let claim = "on node 1 while it has room";
        check(&located("preferred:1", 8, 0, &[(1, 8)]), claim, "8 of 8 pages", true, false);
        check(&located("preferred:1", 8, 0, &[(0, 6), (1, 2)]), claim, "2 of 8 pages; node 0: 6", false, false);
    }

    #[test]
    fn shares_are_as_asked_within_what_pages_allow() {
        let (even, odd) = ("interleaved over nodes 0-1", "interleaved over nodes 0-1 as 3:1");
        let seen =
            |a: u64, b: u64, slack: u64| format!("node 0: {a}, node 1: {b} of {} pages, to within {slack}", a + b);
        // Of 101 pages 50.5 are due to each, of 1024 pages 768 and 256.
        check(&located("interleave:0-1", 101, 2, &[(0, 51), (1, 50)]), even, &seen(51, 50, 2), true, false);
        check(&located("interleave:0-1", 101, 2, &[(0, 53), (1, 48)]), even, &seen(53, 48, 2), false, true);
        check(&located("weighted:0=3,1=1", 1024, 4, &[(0, 764), (1, 260)]), odd, &seen(764, 260, 4), true, false);
        check(&located("weighted:0=3,1=1", 1024, 4, &[(0, 763), (1, 261)]), odd, &seen(763, 261, 4), false, true);
        check(&located("weighted:0=3,1=1", 512, 4, &[(0, 256), (1, 256)]), odd, &seen(256, 256, 4), false, true);
        // A third node has no share.
        assert!(located("interleave:0-1", 100, 2, &[(0, 48), (1, 48), (2, 4)]).fault().is_some());
        // A million of many: 1 % more.
        assert!(located("interleave:0-1", 1 << 30, 0, &[(0, 509_000), (1, 491_000)]).fault().is_none());
        assert!(located("interleave:0-1", 1 << 30, 0, &[(0, 511_000), (1, 489_000)]).fault().is_some());
    }

    #[test]
    fn what_was_not_looked_up_is_neither_proved_nor_a_fault() {
        let refusal = Some("EPERM".into());
        let hidden = Located { refusal, ..located("node1", 64, 0, &[]) };
        check(&hidden, "bound to node 1", "not looked up: EPERM", false, false);
    }

    #[test]
    fn mappings_are_counted_together() {
        let obtained = |located: Located| Obtained {
            proofs: vec![Proof::new("locked in memory", "smaps", "all", true), located.proof()],
            located: vec![located],
            ..Obtained::default()
        };
        let both = obtained(located("node1", 64, 0, &[(1, 64)])).and(obtained(located("node1", 36, 0, &[(1, 36)])));
        let seen: Vec<&str> = both.proofs.iter().map(|proof| proof.seen.as_str()).collect();
        assert_eq!(seen, ["all", "100 of 100 pages"]);
        assert_eq!(both.misplaced(), None);
        let other = obtained(located("node0", 5, 0, &[(0, 4), (1, 1)]));
        let all = both.and(other);
        assert_eq!(all.located.len(), 2);
        assert_eq!(all.proofs.len(), 3);
        assert!(all.misplaced().unwrap().contains("not bound to node 0"));
    }
}
