//! What a sweep did: a line a node.

use crate::section::{Document, Section, Table};
use membound_core::machine::room::NodeRoom;
use membound_core::units::Bytes;
use membound_core::work::sweep::{NodeSweep, SweepEnd};

/// Before and after, and why it ended.
pub fn document(nodes: &[NodeSweep]) -> Document {
    let before = |of: fn(&NodeRoom) -> Bytes| nodes.iter().map(move |node| of(&node.before).to_string());
    let after =
        |of: fn(&NodeRoom) -> Bytes| nodes.iter().map(move |node| node.after.as_ref().map(|room| of(room).to_string()));
    let table = Table::new("")
        .right("node", nodes.iter().map(|node| node.node.to_string()))
        .right("memory", before(|room| room.total))
        .right("touched", nodes.iter().map(|node| node.touched_bytes.to_string()))
        .right("page cache\nbefore", before(|room| room.page_cache))
        .right("\nafter", after(|room| room.page_cache))
        .right("free\nbefore", before(|room| room.free))
        .right("\nafter", after(|room| room.free))
        .left("ended", nodes.iter().map(|node| node.end.to_string()));
    let reason = |node: &NodeSweep| match node.end {
        SweepEnd::Share => Some("as much was touched as --share allows".to_string()),
        _ => node.reason.clone(),
    };
    let reasons = nodes.iter().filter_map(|node| Some(format!("node {}: {}", node.node, reason(node)?)));
    let about = "Memory was bound to each node, touched until nothing more could be had, and given back.";
    let title = "Page cache before and after a sweep".to_string();
    let section =
        Section { about: about.into(), tables: vec![table], notes: reasons.collect(), title, ..Section::default() };
    Document::new("membound sweep", Vec::new(), [section])
}
