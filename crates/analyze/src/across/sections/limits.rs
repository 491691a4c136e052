//! What a machine can do at most, and what a specification sheet promises.

use crate::across::limits::{Limit, Limits, MemoryLimit};
use crate::section::{Document, Section, Table};
use membound_core::in_order::InOrder;
use membound_core::machine::spec::{Channels, Cores, Sheet, SheetCache};
use membound_core::units::{BytesPerSecond, significant};

/// The limits of a machine, with the sheet they are from; or that there is none, and what helps.
pub fn section(limits: &Limits) -> Section {
    let sheet = match &limits.sheet {
        Some(name) => format!("Sheet: {name}."),
        None => {
            "No sheet: no specification sheet is for this processor. Name one with --spec (`membound machine --spec \
                 list` shows those there are), or write one: docs/experiments/roofline.md."
                .into()
        }
    };
    let clock = limits.clock_hz.as_ref().map(|clock| format!("Clock: {}.", clock.says));
    let memory = |memory: &MemoryLimit| {
        let name = memory.title();
        match &memory.bps {
            Some(limit) => format!("{name}: {} ({}): {}.", BytesPerSecond(limit.value), limit.basis, limit.says),
            None => format!("{name}: no peak is known; the best measured figure will be its roof."),
        }
    };
    let mut notes: Vec<String> = std::iter::once(sheet).chain(clock).chain(limits.memory.iter().map(memory)).collect();
    let part = |name: &str, limit: &Option<Limit>| {
        limit.as_ref().map(|limit| format!("{name} {} ({})", BytesPerSecond(limit.value), limit.basis))
    };
    notes.extend(limits.caches.iter().map(|cache| {
        let parts = part("loads", &cache.load_bps).into_iter().chain(part("stores", &cache.store_bps));
        format!("{}, one core: {}.", cache.level, parts.collect::<Vec<_>>().join(", "))
    }));
    let most = limits.flops.iter().max_by(|a, b| a.per_cycle.total_cmp(&b.per_cycle));
    notes.extend(most.map(|most| {
        let second =
            most.per_s.as_ref().map_or(String::new(), |limit| format!(", {} GF/s", significant(limit.value / 1e9)));
        format!(
            "Arithmetic, one core: {} flops in a cycle{second} ({}, {}, {}).",
            significant(most.per_cycle),
            most.balance,
            most.width,
            most.element
        )
    }));
    Section { id: "limits", title: "Limits".into(), notes, ..Section::default() }
}

/// A machine on paper: its peaks and its balance.
pub fn sheet(sheet: &Sheet) -> Document {
    // Balance is that of the fastest memory whose peak is known.
    let rate = sheet.memory.iter().filter_map(Channels::bytes_per_s).reduce(f64::max);
    let rows: Vec<(&Cores, u32, String, f64)> = sheet.cores.iter().flat_map(peaks).collect();
    let table = Table::new("")
        .left("cores", rows.iter().map(|row| row.0.name.clone()))
        .right("number", rows.iter().map(|row| row.0.count.map(|count| count.to_string())))
        .right("GHz", rows.iter().map(|row| row.0.clock_ghz.map(significant)))
        .left("element", rows.iter().map(|row| if row.1 == 64 { "double" } else { "float" }))
        .left("with", rows.iter().map(|row| row.2.clone()))
        .right("flops\na cycle", rows.iter().map(|row| significant(row.3)))
        .right("GF/s", rows.iter().map(|row| row.0.cycles_per_s().map(|cycles| significant(cycles * row.3 / 1e9))));
    let arithmetic = Section { title: "Arithmetic".into(), tables: vec![table], ..Section::default() };
    let caches: Vec<(&str, &SheetCache)> =
        sheet.cores.iter().flat_map(|cores| cores.caches.iter().map(|cache| (cores.name.as_str(), cache))).collect();
    let ports = |cell: fn(&SheetCache) -> Option<f64>| caches.iter().map(move |cache| cell(cache.1).map(significant));
    let table = Table::new("Loads, stores, both: bytes in a cycle of one core.")
        .left("cores", caches.iter().map(|cache| cache.0.to_string()))
        .left("cache", caches.iter().map(|cache| format!("L{}", cache.1.level)))
        .right("size", caches.iter().map(|cache| cache.1.bytes().map(|bytes| bytes.to_string())))
        .right("shared\nby", caches.iter().map(|cache| cache.1.shared_by.map(|cores| cores.to_string())))
        .right("loads", ports(|cache| cache.load_bytes))
        .right("stores", ports(|cache| cache.store_bytes))
        .right("both", ports(|cache| cache.both_bytes))
        .without_blanks();
    let tables = if caches.is_empty() { Vec::new() } else { vec![table] };
    let caches = Section { title: "Caches".into(), tables, ..Section::default() };
    let memory = |memory: &Channels| Section {
        title: "Memory".into(),
        notes: std::iter::once(memory_words(memory)).chain(memory.source.clone()).collect(),
        ..Section::default()
    };
    let source = Section { title: "Source".into(), notes: vec![sheet.source.clone()], ..Section::default() };
    let sections = [arithmetic, caches].into_iter().chain(sheet.memory.iter().map(memory)).chain([source]);
    Document::new(&sheet.name, vec![answer(sheet, rate)], sections)
}

fn answer(sheet: &Sheet, rate: Option<f64>) -> String {
    let per_watt = |bits: u32, name: &str| {
        Some(format!(" {} GF/W in {name} precision.", significant(sheet.flops(bits)? / 1e9 / sheet.watts?)))
    };
    let watts = [(32, "single"), (64, "double")].into_iter().filter_map(|(bits, name)| per_watt(bits, name));
    balance(sheet, rate) + &watts.collect::<String>()
}

fn balance(sheet: &Sheet, rate: Option<f64>) -> String {
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
            format!("{}: flops per second unknown, since number or clock of the cores is; {memory}.", sheet.name)
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
    found.order_by_key(|row| row.1);
    found
}

fn memory_words(memory: &Channels) -> String {
    let rate = memory.bytes_per_s().map_or("unknown".into(), |rate| BytesPerSecond(rate).to_string());
    let size = memory.size.as_ref().map_or(String::new(), |size| format!(", {size}"));
    let how = match (memory.channels, memory.mt_s, memory.width_bits) {
        (Some(channels), Some(mt_s), Some(bits)) => format!("{channels} channels x {mt_s} MT/s x {bits} bits"),
        _ => {
            let part = |name: &str, value: Option<f64>| value.map(|value| format!("{value} GB/s {name}"));
            let parts = part("read", memory.read_gb_s).into_iter().chain(part("written", memory.write_gb_s));
            let told: Vec<String> = parts.collect();
            if told.is_empty() { "no source tells its peak".into() } else { told.join(" and ") }
        }
    };
    format!("{}{size}: {rate}: {how}.", memory.name)
}
