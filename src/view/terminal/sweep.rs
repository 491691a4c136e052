//! What a sweep did: a line a node.

use super::{Column, head, item, note, table};
use crate::machine::NodeRoom;
use crate::run::sweep::NodeSweep;
use crate::units::Bytes;

/// Before and after, and why it ended.
pub fn sweep(nodes: &[NodeSweep]) -> String {
    let before = |of: fn(&NodeRoom) -> Bytes| nodes.iter().map(move |node| of(&node.before).to_string());
    let after = |of: fn(&NodeRoom) -> Bytes| {
        nodes.iter().map(move |node| node.after.as_ref().map_or_else(|| "-".into(), |room| of(room).to_string()))
    };
    let columns = [
        Column::right("node", nodes.iter().map(|node| node.node.to_string())),
        Column::right("memory", before(|room| room.total)),
        Column::right("touched", nodes.iter().map(|node| node.touched_bytes.to_string())),
        Column::right("page cache\nbefore", before(|room| room.page_cache)),
        Column::right("\nafter", after(|room| room.page_cache)),
        Column::right("free\nbefore", before(|room| room.free)),
        Column::right("\nafter", after(|room| room.free)),
        Column::left("ended", nodes.iter().map(|node| node.end.to_string())),
    ];
    let reasons = nodes.iter().filter_map(|node| Some(item(&format!("node {}: {}", node.node, node.reason.as_ref()?))));
    head("Page cache pushed out")
        + &note("Memory was bound to each node, touched until nothing more could be had, and given back.")
        + &table(&columns)
        + &reasons.collect::<String>()
}
