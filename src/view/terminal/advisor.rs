//! Which stream goes to which node.

use super::{Column, head, item, note, number, paragraph, ratio, styled, table};
use crate::kernel::StoreKind;
use crate::model::advisor::{Advice, NodeLoad};
use crate::units::{Bytes, Nanoseconds, significant};

/// The answer, what it rests on, and how to do it. `kernel` is a name of the catalog and its stores, for a check by
/// measurement.
pub fn advice(advice: &Advice, kernel: Option<(&str, StoreKind)>) -> String {
    let answer = styled(super::BOLD, &paragraph(&advice.says, ""));
    [answer, streams(advice), nodes(advice), doing(advice, kernel)].join("\n")
}

fn streams(advice: &Advice) -> String {
    let all = &advice.streams;
    let columns = [
        Column::left("stream", all.iter().map(|placed| placed.stream.name.clone())),
        Column::right("size", all.iter().map(|placed| placed.stream.bytes.to_string())),
        Column::right("loaded", all.iter().map(|placed| moved(placed.stream.loaded))),
        Column::right("stored", all.iter().map(|placed| moved(placed.stream.stored))),
        Column::right("node", all.iter().map(|placed| placed.node.to_string())),
    ];
    head("Streams")
        + &note("What one pass moves; the read before a regular store counts with the store.")
        + &table(&columns)
}

fn moved(bytes: Bytes) -> String {
    if bytes == Bytes(0) { "-".into() } else { bytes.to_string() }
}

fn nodes(advice: &Advice) -> String {
    let nodes = &advice.nodes;
    let right = |head: &str, cell: &dyn Fn(&NodeLoad) -> String| Column::right(head, nodes.iter().map(cell));
    let rate = |bps: f64| significant(bps / 1e9);
    let one = |node: &NodeLoad| number(node.tier.one.map(|one| one.load_bps[0]), |bps| significant(bps / 1e9));
    let time = |seconds: f64| Nanoseconds(seconds * 1e9).to_string();
    let mut columns = vec![
        right("node", &|node| node.tier.node.to_string()),
        right("free", &|node| node.tier.free.to_string()),
        right("holds", &|node| moved(node.holds)),
        right("load\nGB/s", &|node| rate(node.tier.all.load_bps[0])),
        right("store\nGB/s", &|node| rate(node.tier.all.store_bps[0])),
        right("one core\nGB/s", &one),
        right("busy", &|node| if node.holds == Bytes(0) { "-".into() } else { time(node.busy_s) }),
        right("gain over all\non this node", &|node| node.gain.map_or_else(|| "too small".into(), gain)),
    ];
    columns.retain(|column| column.cells.iter().any(|cell| cell != "-"));
    let limit = match advice.limited_by {
        Some(node) => format!("node {node}"),
        None => "the lines that the cores keep in flight".into(),
    };
    let about = format!(
        "A pass takes {}, limited by {limit}. Nodes are taken to serve at the same time.",
        time(advice.pass_s[0])
    );
    head("Nodes") + &note(&about) + &table(&columns)
}

/// A ratio; without an interval where there is none.
fn gain(gain: [f64; 3]) -> String {
    if gain[1] == gain[2] { significant(gain[0]) } else { ratio(gain) }
}

/// What to type, and what a program would do.
fn doing(advice: &Advice, kernel: Option<(&str, StoreKind)>) -> String {
    let mut text = head("How");
    let first = advice.streams.first().map(|placed| placed.stream.bytes);
    let is_even = advice.streams.iter().all(|placed| Some(placed.stream.bytes) == first);
    if let (Some((kernel, store)), true) = (kernel, is_even) {
        let size = Bytes(advice.streams.iter().map(|placed| placed.stream.bytes.0).sum());
        let store = if store == StoreKind::Regular { String::new() } else { format!(" --store {store}") };
        let places: Vec<String> =
            advice.streams.iter().map(|placed| format!("{}=node{}", placed.stream.name, placed.node)).collect();
        // On two lines that a shell takes as one.
        let (size, places) = (as_flag(size), places.join(","));
        text += &format!(
            "Check it:\n  membound bandwidth --kernel {kernel}{store} --size {size} \\\n      --memory {places}\n"
        );
    }
    text += "In a program:\n";
    let placement = advice.placement();
    if let [(node, _)] = placement[..] {
        return text + &format!("  numactl --membind={} PROGRAM\n", node.tier.node);
    }
    for (node, names) in &placement {
        let (id, names) = (node.tier.node, names.join(", "));
        text += &item(&if id == advice.default {
            format!("{names}: as usual; node {id} is where memory comes from by default")
        } else {
            format!(
                "{names}: numa_alloc_onnode(BYTES, {id}) of libnuma, or hbw_malloc(BYTES) of memkind where node {id} is \
                 high-bandwidth memory"
            )
        });
    }
    text
}

/// A size as a flag takes it: `18GiB`; in bytes where a unit would round it.
fn as_flag(size: Bytes) -> String {
    let text = size.to_string().replace(' ', "");
    if text.parse() == Ok(size) { text } else { size.0.to_string() }
}
