//! A loop of a user's own: what it needs of the memory for each operation, how fast it ran, and what held it back.

use membound_core::in_order::{InOrder, each_once};
use std::collections::BTreeSet;

use crate::across::sections::warnings;
use crate::experiments::bandwidth::rows::BandwidthRow;
use crate::missing::gathered;
use crate::section::{Document, Section, Table};
use crate::warning::Warning;
use crate::wording::{SPREAD_CAPTION, gbps, spread, threads as threads_word};
use membound_core::case::Protocol;
use membound_core::kernel::catalog::Kernel;
use membound_core::units::{percent, significant};

/// The answer in a sentence for each loop, and a row a case.
pub fn document(rows: &[BandwidthRow], distrust: &[Warning]) -> Document {
    let (sentences, sections): (Vec<String>, Vec<Section>) = loops(rows, |_| true).into_iter().unzip();
    let sentences = if sentences.is_empty() { vec!["No rows: nothing was measured.".into()] } else { sentences };
    Document::new("membound kernel", sentences, sections.into_iter().chain([warnings::section(distrust)]))
}

/// The answer for each loop that is a user's own.
pub(crate) fn sentences(rows: &[BandwidthRow]) -> Vec<String> {
    loops(rows, Kernel::is_own).into_iter().map(|(sentence, _)| sentence).collect()
}

/// The rows of each loop that is a user's own, in one section. What is missing is told with that of all kernels.
pub(crate) fn sections(rows: &[BandwidthRow]) -> Vec<Section> {
    let sections = loops(rows, Kernel::is_own).into_iter().map(|(_, section)| section);
    sections.reduce(together).map(|section| Section { missing: Vec::new(), ..section }).into_iter().collect()
}

/// A page has one place of each name: the tables of a second loop stand below those of the first, each named after its loop.
fn together(first: Section, second: Section) -> Section {
    let named = |section: &Section| {
        let caption =
            |table: &Table| if table.caption.is_empty() { section.title.clone() } else { table.caption.clone() };
        section.tables.iter().map(|table| Table { caption: caption(table), ..table.clone() }).collect::<Vec<_>>()
    };
    let tables = [named(&first), named(&second)].concat();
    let notes = each_once(first.notes.into_iter().chain(second.notes));
    Section { title: "Loops of your own".into(), tables, notes, ..first }
}

/// The sentence and the rows of each such loop.
fn loops(rows: &[BandwidthRow], is_asked: impl Fn(&Kernel) -> bool) -> Vec<(String, Section)> {
    let (stream, own): (Vec<&BandwidthRow>, Vec<&BandwidthRow>) =
        rows.iter().partition(|row| row.case.protocol == Protocol::Stream);
    let names: BTreeSet<&str> = own.iter().map(|row| row.kernel()).collect();
    let kernels = names.into_iter().filter_map(Kernel::named).filter(|kernel| is_asked(kernel));
    kernels.map(|kernel| of_kernel(kernel, &own, &stream)).collect()
}

fn of_kernel(kernel: &Kernel, rows: &[&BandwidthRow], stream: &[&BandwidthRow]) -> (String, Section) {
    let mut rows: Vec<&BandwidthRow> = rows.iter().copied().filter(|row| row.kernel() == kernel.name).collect();
    rows.order_by_key(|row| (row.threads(), row.case.working_set, row.store(), row.width()));
    let text = |cell: fn(&BandwidthRow) -> String| rows.iter().map(|row| cell(row)).collect::<Vec<_>>();
    let number = |cell: fn(&BandwidthRow) -> Option<String>| rows.iter().map(|row| cell(row)).collect::<Vec<_>>();
    let table = Table::new("")
        .right("threads", text(|row| row.threads().to_string()))
        .left("store", text(BandwidthRow::store_words))
        .right("size", text(|row| row.case.working_set.to_string()))
        .left("level", text(|row| row.level.clone().unwrap_or_default()))
        .right(
            "GB/s",
            number(|row| row.payload_bps.as_ref().map(|rate| format!("{} {}", gbps(rate.value()), spread(rate)))),
        )
        .right("on the\nbus", number(|row| row.bus_bps.map(|rate| gbps(rate.value()))))
        .right("GF/s", number(|row| row.flops_per_s.map(giga)))
        .right("B/cycle", number(|row| row.bytes_per_cycle.map(significant)))
        .flags(rows.iter().copied())
        .without_blanks();
    let section = Section {
        id: "kernel",
        title: kernel.text.into(),
        about: format!("GB/s is payload, GF/s 10^9 flops per second; {SPREAD_CAPTION}."),
        tables: vec![table],
        notes: notes(kernel),
        missing: gathered(rows.iter().map(|row| (row.store_words(), &row.quality))),
        ..Section::default()
    };
    (sentence(kernel, &rows, stream), section)
}

/// What one element needs, how fast it goes from the largest working set, and what holds it back there.
fn sentence(kernel: &Kernel, rows: &[&BandwidthRow], stream: &[&BandwidthRow]) -> String {
    let Some(first) = rows.first() else { return kernel.text.into() };
    let measured: Vec<&BandwidthRow> =
        rows.iter().copied().filter(|row| row.sound(row.payload_bps).is_some()).collect();
    let fastest = |sets: &dyn Fn(&BandwidthRow) -> bool| {
        let rate = |row: &&&BandwidthRow| row.payload_bps.map_or(0.0, |rate| rate.value());
        measured.iter().filter(|row| sets(row)).max_by(|a, b| rate(a).total_cmp(&rate(b))).copied()
    };
    let Some(size) = measured.iter().map(|row| row.case.working_set).max() else {
        return format!("{}; nothing was measured.", needs(kernel, first));
    };
    let Some(far) = fastest(&|row| row.case.working_set == size) else { return needs(kernel, first) };
    let near_size = measured.iter().filter(|row| row.threads() == far.threads()).map(|row| row.case.working_set).min();
    let near = fastest(&|row| row.threads() == far.threads() && Some(row.case.working_set) == near_size);
    let flops = far.flops_per_s.map_or_else(String::new, |flops| format!(" and {} GF/s", giga(flops)));
    format!(
        "{}; {} GB/s{flops} from {} ({}, {}){}{}.",
        needs(kernel, far),
        far.payload_bps.map_or_else(|| "-".into(), |rate| gbps(rate.value())),
        place(far),
        threads_word(far.threads()),
        far.store_words(),
        of_stream(far, stream),
        near.map_or_else(String::new, |near| held_back(near, far)),
    )
}

/// `2 flops, 24 B payload (32 B with write-allocate): 16 B/flop, 0.0625 flop/B`
fn needs(kernel: &Kernel, row: &BandwidthRow) -> String {
    let (traffic, flops) = (kernel.traffic(row.store(), row.element()), kernel.formula().flops());
    let (payload, bus) = (traffic.payload(), traffic.bus());
    let allocated = if bus > payload { format!(" ({bus} B with write-allocate)") } else { String::new() };
    let word = if flops == 1 { "flop" } else { "flops" };
    let balance = match flops {
        0 => String::new(),
        _ => format!(
            ", {} B/flop on the bus ({} flop/B)",
            significant(bus as f64 / f64::from(flops)),
            significant(f64::from(flops) / bus as f64)
        ),
    };
    format!("{}: {flops} {word}, {payload} B payload{allocated} an element{balance}", kernel.text)
}

/// `, 92 % of STREAM triad here (23.1 GB/s)`: with the same threads, memory and stores, where the loop's working set is
/// no smaller than a third of STREAM's.
fn of_stream(far: &BandwidthRow, stream: &[&BandwidthRow]) -> String {
    let place = |row: &BandwidthRow| (row.threads(), row.case.memory);
    let is_ours = |row: &&&BandwidthRow| {
        let is_same_store =
            far.variant().row().is_some_and(|kernel| kernel.formula().store().is_none()) || row.store() == far.store();
        row.kernel() == "triad" && place(row) == place(far) && is_same_store && row.quality.is_measured()
    };
    let triad = stream.iter().filter(is_ours).find(|row| 3 * far.case.working_set.0 >= row.case.working_set.0);
    let rates = triad.and_then(|row| row.payload_bps).zip(far.payload_bps);
    rates.map_or_else(String::new, |(triad, own)| {
        format!(", {} of STREAM triad here ({} GB/s)", percent(own.value() / triad.value()), gbps(triad.value()))
    })
}

/// What holds it back: the memory where it runs faster from the smallest working set, beyond chance; the core only where the
/// intervals leave no room for a difference. Intervals that overlap show neither.
fn held_back(near: &BandwidthRow, far: &BandwidthRow) -> String {
    let (Some(quick), Some(slow)) = (near.payload_bps, far.payload_bps) else { return String::new() };
    if near.case.working_set == far.case.working_set {
        return "; what bounds it takes a second, smaller --size to tell".into();
    }
    let (close, distant) = (place(near), place(far));
    let times = significant(quick.value() / slow.value());
    if quick.is_apart(slow) && quick.value() > slow.value() {
        format!(", bound by {distant}: from {close} it runs {times} times as fast")
    } else if quick.wide()[1] <= NO_FASTER * slow.wide()[0] {
        format!(", compute-bound: no faster from {close} than from {distant}")
    } else {
        let [one, other] = [quick, slow].map(|rate| rate.ends().map(gbps).join(" to "));
        format!(
            "; what bounds it is not shown: {times} times as fast from {close}, but the figures are too uncertain ({one} GB/s and \
             {other})"
        )
    }
}

/// A loop that gains less from the nearest level has nothing to wait for but the core.
const NO_FASTER: f64 = 1.1;

fn place(row: &BandwidthRow) -> String {
    row.level.clone().unwrap_or_else(|| row.case.working_set.to_string())
}

fn notes(kernel: &Kernel) -> Vec<String> {
    let gathers = "Gathered elements count once each, as payload and on the bus. In random order a core reads a line of \
                   64 B for each as soon as the stream does not fit its caches.";
    kernel.formula().gathers().then(|| gathers.into()).into_iter().collect()
}

fn giga(per_s: f64) -> String {
    significant(per_s / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quality::Status;
    use membound_core::case::{USUAL_MEMORY, steady};
    use membound_core::kernel::{StoreKind, Width};
    use membound_core::units::Bytes;

    #[test]
    fn loops_share_a_section() {
        let section = |text: &str| Section {
            id: "kernel",
            title: text.into(),
            tables: vec![Table::new("")],
            notes: vec!["gathers".into()],
            ..Section::default()
        };
        let all = ["a[i] = 1*s", "a[i] = 2*s", "a[i] = 3*s"].map(section).into_iter().reduce(together).unwrap();
        let captions: Vec<&str> = all.tables.iter().map(|table| table.caption.as_str()).collect();
        assert_eq!(captions, ["a[i] = 1*s", "a[i] = 2*s", "a[i] = 3*s"]);
        assert_eq!((all.title.as_str(), all.notes.len()), ("Loops of your own", 1));
    }

    /// From memory the triad seems as fast as from L1, which the row itself calls impossible: without it one size is left.
    #[test]
    fn what_cannot_be_right_bounds_nothing() {
        let row = |level: &str, size, outcome| {
            let case = steady("triad", Width::W512, StoreKind::Regular, USUAL_MEMORY, vec![0], size);
            let mut row = BandwidthRow::in_memory(case, [100e9, 99e9, 101e9]);
            (row.level, row.quality.outcome) = (Some(level.into()), outcome);
            row
        };
        let said = |outcome| {
            let (near, far) = (row("L1", Bytes::kib(16), Status::Measured), row("memory", Bytes::gib(1), outcome));
            sentence(Kernel::named("triad").unwrap(), &[&near, &far], &[])
        };
        assert!(said(Status::Measured).contains("compute-bound: no faster from L1 than from memory"));
        let told = said(Status::Invalid);
        assert!(told.contains("100 GB/s from L1") && told.contains("takes a second, smaller --size"), "{told}");
    }
}
