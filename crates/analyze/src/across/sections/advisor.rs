//! Which stream goes to which node.

use crate::across::advisor::{Advice, NodeLoad};
use crate::across::recipes::{Recipe, recipes};
use crate::section::{Document, Item, Section, Table};
use crate::wording::ratio;
use membound_core::kernel::StoreKind;
use membound_core::units::{Bytes, Nanoseconds, significant};

/// The answer, what it rests on, and how to do it. `kernel` is a name of the catalog and its stores, for a check by
/// measurement.
pub fn document(advice: &Advice, kernel: Option<(&str, StoreKind)>) -> Document {
    let how = [check(advice, kernel), Some(program(advice))].into_iter().flatten().collect();
    let how = Section { id: "how", title: "How".into(), items: how, ..Section::default() };
    let sections = [streams(advice), nodes(advice), how].into_iter().chain(lines(advice));
    Document::new("membound advise", vec![advice.says.clone()], sections)
}

fn streams(advice: &Advice) -> Section {
    let all = &advice.streams;
    let table = Table::new("")
        .left("stream", all.iter().map(|placed| placed.stream.name.clone()))
        .right("size", all.iter().map(|placed| placed.stream.bytes.to_string()))
        .right("loaded", all.iter().map(|placed| moved(placed.stream.loaded)))
        .right("stored", all.iter().map(|placed| moved(placed.stream.stored)))
        .right("node", all.iter().map(|placed| placed.node.to_string()));
    let about = "What one pass moves; the read before a regular store counts with the store.";
    Section { id: "streams", title: "Streams".into(), about: about.into(), tables: vec![table], ..Section::default() }
}

fn moved(bytes: Bytes) -> String {
    if bytes == Bytes(0) { "-".into() } else { bytes.to_string() }
}

fn nodes(advice: &Advice) -> Section {
    let cells = |cell: fn(&NodeLoad) -> String| advice.nodes.iter().map(cell);
    let table = Table::new("")
        .right("node", cells(|node| node.tier.node.to_string()))
        .right("free", cells(|node| node.tier.free.to_string()))
        .right("holds", cells(|node| moved(node.holds)))
        .right("load\nGB/s", cells(|node| significant(node.tier.all.load_bps[0] / 1e9)))
        .right("store\nGB/s", cells(|node| significant(node.tier.all.store_bps[0] / 1e9)))
        .right(
            "one core\nGB/s",
            advice.nodes.iter().map(|node| node.tier.one.map(|one| significant(one.load_bps[0] / 1e9))),
        )
        .right("busy", cells(|node| if node.holds == Bytes(0) { "-".into() } else { time(node.busy_s) }))
        .right("gain over all\non this node", cells(|node| node.gain.map_or_else(|| "too small".into(), gain)))
        .without_blanks();
    let limit = match advice.limited_by {
        Some(node) => format!("node {node}"),
        None => "the lines that the cores keep in flight".into(),
    };
    let pass = time(advice.pass_s[0]);
    let about = format!("A pass takes {pass}, limited by {limit}. Nodes are taken to serve at the same time.");
    Section { id: "nodes", title: "Nodes".into(), about, tables: vec![table], ..Section::default() }
}

fn time(seconds: f64) -> String {
    Nanoseconds(seconds * 1e9).to_string()
}

/// A ratio; without an interval where there is none.
fn gain(gain: [f64; 3]) -> String {
    if gain[1] == gain[2] { significant(gain[0]) } else { ratio(gain) }
}

/// The command that measures it, where one can.
fn check(advice: &Advice, kernel: Option<(&str, StoreKind)>) -> Option<Item> {
    let (kernel, store) = kernel?;
    let first = advice.streams.first().map(|placed| placed.stream.bytes);
    if advice.streams.iter().any(|placed| Some(placed.stream.bytes) != first) {
        return None;
    }
    let size = as_flag(Bytes(advice.streams.iter().map(|placed| placed.stream.bytes.0).sum()));
    let store = if store == StoreKind::Regular { String::new() } else { format!(" --store {store}") };
    let places: Vec<String> =
        advice.streams.iter().map(|placed| format!("{}=node{}", placed.stream.name, placed.node)).collect();
    // A loop's text would be several words.
    let kernel = if kernel.contains('[') { format!("'{kernel}'") } else { kernel.into() };
    let command = format!("membound bandwidth --kernel {kernel}{store} --size {size} --memory {}", places.join(","));
    Some(Item { text: "Check it:".into(), below: vec![("test", command)] })
}

/// What a program would do.
fn program(advice: &Advice) -> Item {
    let placement = advice.placement();
    let line = |(node, names): &(&NodeLoad, Vec<&str>)| {
        let (id, names) = (node.tier.node, names.join(", "));
        match id == advice.default {
            true => format!("{names}: as usual; node {id} is where memory comes from by default"),
            false => format!(
                "{names}: numa_alloc_onnode(BYTES, {id}) of libnuma, or hbw_malloc(BYTES) of memkind where node {id} is \
                 high-bandwidth memory"
            ),
        }
    };
    let lines = match &placement[..] {
        [(node, _)] => vec![format!("numactl --membind={} PROGRAM", node.tier.node)],
        several => several.iter().map(line).collect(),
    };
    Item { text: "In a program:".into(), below: lines.into_iter().map(|line| ("", line)).collect() }
}

/// What to write, for each way that programs have; nothing where one command does it.
fn lines(advice: &Advice) -> Option<Section> {
    let written = |Recipe { what, headers, lines }: Recipe| {
        let includes = headers.iter().map(|header| format!("  #include <{header}>"));
        let lines: Vec<String> = includes.chain(lines.into_iter().map(|line| format!("  {line}"))).collect();
        std::iter::once(format!("{what}:")).chain(lines).chain([String::new()]).collect::<Vec<_>>()
    };
    let mut verbatim: Vec<String> = recipes(advice).into_iter().flat_map(written).collect();
    verbatim.pop();
    let is_one = advice.placement().len() < 2;
    (!is_one && !verbatim.is_empty()).then(|| Section {
        id: "lines",
        title: "Lines to write".into(),
        verbatim,
        ..Section::default()
    })
}

/// A size as a flag takes it: `18GiB`; in bytes where a unit would round it.
fn as_flag(size: Bytes) -> String {
    let text = size.to_string().replace(' ', "");
    if text.parse() == Ok(size) { text } else { size.0.to_string() }
}
