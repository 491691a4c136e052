//! What a machine can do at most, and what a specification sheet promises.

use super::{Column, head, item, note, number, paragraph, table};
use crate::machine::{Cores, Sheet};
use crate::model::limits::Limits;
use crate::units::{BytesPerSecond, significant};

/// The limits of a machine, with the sheet they are from; or that there is none, and what helps.
pub fn limits(limits: &Limits) -> String {
    known(limits)
}

pub(super) fn known(limits: &Limits) -> String {
    let mut text = head("Limits");
    match &limits.sheet {
        Some(name) => text += &item(&format!("Sheet: {name}.")),
        None => {
            text += &item(
                "No sheet: no specification sheet is for this processor. Name one with --spec (`membound machine --spec \
                 list` shows those there are), or write one: METHODOLOGY.md, section 26.",
            );
        }
    }
    if let Some(clock) = &limits.clock_hz {
        text += &item(&format!("Clock: {}.", clock.says));
    }
    match &limits.memory_bps {
        Some(memory) => {
            text += &item(&format!("Memory: {} ({}): {}.", BytesPerSecond(memory.value), memory.basis, memory.says));
        }
        None => text += &item("Memory: unknown; the best measured figure will be its roof."),
    }
    for cache in &limits.caches {
        let part = |name: &str, limit: &Option<crate::model::limits::Limit>| {
            limit.as_ref().map(|limit| format!("{name} {} ({})", BytesPerSecond(limit.value), limit.basis))
        };
        let parts: Vec<String> =
            part("loads", &cache.load_bps).into_iter().chain(part("stores", &cache.store_bps)).collect();
        text += &item(&format!("{}, one core: {}.", cache.level, parts.join(", ")));
    }
    let most = limits.flops.iter().max_by(|a, b| a.per_cycle.total_cmp(&b.per_cycle));
    if let Some(most) = most {
        let second =
            most.per_s.as_ref().map_or(String::new(), |limit| format!(", {} GF/s", significant(limit.value / 1e9)));
        text += &item(&format!(
            "Arithmetic, one core: {} flops in a cycle{second} ({}, {}, {}).",
            significant(most.per_cycle),
            most.balance,
            most.width,
            most.element
        ));
    }
    text
}

/// A machine on paper: its peaks and its balance.
pub fn sheet(sheet: &Sheet) -> String {
    let memory = sheet.memory.first();
    let rate = memory.and_then(|memory| memory.bytes_per_s());
    let mut text = paragraph(&answer(sheet, rate), "");
    text += &format!("\n{}", head("Arithmetic"));
    let rows: Vec<(&Cores, u32, String, f64)> = sheet.cores.iter().flat_map(peaks).collect();
    let count = |cores: &Cores| number(cores.count.map(f64::from), |count| count.to_string());
    let columns = [
        Column::left("cores", rows.iter().map(|row| row.0.name.clone())),
        Column::right("number", rows.iter().map(|row| count(row.0))),
        Column::right("GHz", rows.iter().map(|row| number(row.0.clock_ghz, significant))),
        Column::left("element", rows.iter().map(|row| if row.1 == 64 { "double" } else { "float" }.into())),
        Column::left("with", rows.iter().map(|row| row.2.clone())),
        Column::right("flops\na cycle", rows.iter().map(|row| significant(row.3))),
        Column::right(
            "GF/s",
            rows.iter().map(|row| number(row.0.cycles_per_s().map(|cycles| cycles * row.3 / 1e9), significant)),
        ),
    ];
    text += &table(&columns);
    for memory in &sheet.memory {
        text += &format!("\n{}", head("Memory"));
        text += &item(&memory_words(memory));
        if let Some(source) = &memory.source {
            text += &note(&format!("  {source}"));
        }
    }
    text + &format!("\n{}", head("Source")) + &paragraph(&sheet.source, "")
}

fn answer(sheet: &Sheet, rate: Option<f64>) -> String {
    let memory = rate.map_or("memory unknown".into(), |rate| format!("memory {}", BytesPerSecond(rate)));
    match (sheet.flops(64), rate) {
        (Some(flops), Some(rate)) => format!(
            "{}: {} GF/s in double precision, {memory}: machine balance {} B/flop, {} flop/B.",
            sheet.name,
            significant(flops / 1e9),
            significant(rate / flops),
            significant(flops / rate)
        ),
        (Some(flops), None) => {
            format!("{}: {} GF/s in double precision, {memory}.", sheet.name, significant(flops / 1e9))
        }
        (None, _) => {
            format!("{}: flops a second unknown, since number or clock of the cores is; {memory}.", sheet.name)
        }
    }
}

/// The most of each element and width.
fn peaks(cores: &Cores) -> Vec<(&Cores, u32, String, f64)> {
    let mut found = Vec::new();
    for row in &cores.arithmetic {
        for &bits in &row.element_bits {
            let width = row.width_bits.map_or("one element".into(), |width| format!("{width} bits"));
            let name = row.name.clone().unwrap_or(width);
            found.extend(row.most(bits).map(|most| (cores, bits, name, most)));
        }
    }
    found.sort_by_key(|row| row.1);
    found
}

fn memory_words(memory: &crate::machine::Channels) -> String {
    let rate = memory.bytes_per_s().map_or("unknown".into(), |rate| BytesPerSecond(rate).to_string());
    let how = match (memory.channels, memory.mt_s, memory.width_bits) {
        (Some(channels), Some(mt_s), Some(bits)) => format!("{channels} channels x {mt_s} MT/s x {bits} bits"),
        _ => {
            let part = |name: &str, value: Option<f64>| value.map(|value| format!("{value} GB/s {name}"));
            let parts = part("read", memory.read_gb_s).into_iter().chain(part("written", memory.write_gb_s));
            parts.collect::<Vec<_>>().join(" and ")
        }
    };
    format!("{}: {rate}: {how}.", memory.name)
}
