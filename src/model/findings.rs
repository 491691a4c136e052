//! Sentences: the answer, and what limits or disturbs it.

use std::collections::BTreeSet;

use super::rows;
use super::stores::ratio_text;
use super::{Cost, OffsetRow, PageRow, Quality, Rate, Rated, Report, Row, Status, Warning};
use crate::kernel::scan::Scan;
use crate::memory::MemoryKind;
use crate::memory::behaviour::IGNORED;
use crate::plan::PageWork;
use crate::record::Record;
use crate::units::{BytesPerSecond, Hertz, Nanoseconds, significant};

/// The answer, most important first.
pub(super) fn sentences(report: &Report) -> Vec<String> {
    let mut all = Vec::new();
    all.extend(levels(report));
    all.extend(threads(report));
    all.extend(stores(report));
    all.extend(write_allocate(report));
    all.extend(report.weightings.iter().map(super::Weighting::sentence));
    all.extend(report.kinds.iter().flat_map(super::kinds::sentences));
    all.extend(super::latency::sentences(report));
    all.extend(pages(report));
    // What offsets cost is two answers: accesses alone, and loads beside stores.
    for pair in [[crossing(report), blocks(report)], [aliasing(report), forwarding(report)]] {
        let said: Vec<String> = pair.into_iter().flatten().collect();
        all.extend((!said.is_empty()).then(|| said.join(" ")));
    }
    all.extend(super::handover::sentences(report));
    all.extend(super::loaded::sentences(report));
    all.extend(super::addrmap::sentences(report));
    all.extend(super::numa::sentences(report));
    all.extend(super::page_cache::sentences(report));
    all.extend(super::energy::sentences(report));
    all.extend(super::rounding::sentences(&report.rounding));
    all.extend(super::streams::sentences(&report.congestion));
    all.extend(super::pingpong::sentences(report));
    all
}

fn rate(row: &Row) -> Option<BytesPerSecond> {
    row.payload_bps.map(|rate| BytesPerSecond(rate.median))
}

fn best<'a>(report: &'a Report, level: &str, kernel: &str, threads: usize) -> Option<&'a Row> {
    let level = report.levels.iter().find(|l| l.name == level)?;
    let best = level.best.iter().find(|b| b.kernel == kernel && b.threads == threads)?;
    report.rows.get(best.row)
}

fn most_threads(report: &Report) -> usize {
    report.rows.iter().map(|row| row.threads).max().unwrap_or(1)
}

fn levels(report: &Report) -> Option<String> {
    let parts: Vec<String> = report
        .levels
        .iter()
        .filter_map(|level| {
            let speed = rate(best(report, &level.name, "load", 1)?)?;
            let capacity = level.capacity.map_or(String::new(), |capacity| format!(" (ends at {capacity})"));
            Some(format!("{speed} from {}{capacity}", level.name))
        })
        .collect();
    let clock =
        report.rows.iter().find_map(|row| row.core_clock_hz).map_or(String::new(), |hz| format!(" at {}", Hertz(hz)));
    (!parts.is_empty()).then(|| format!("One core{clock} loads {}.", parts.join(", ")))
}

fn threads(report: &Report) -> Option<String> {
    let threads = most_threads(report);
    let (one, all) = (best(report, "memory", "load", 1)?, best(report, "memory", "load", threads)?);
    let (one_rate, all_rate) = (rate(one)?, rate(all)?);
    if threads == 1 {
        return None;
    }
    let mut text =
        format!("{threads} threads load {all_rate} from memory, {} x one thread", significant(all_rate.0 / one_rate.0));
    if let Some(modes) = all.modes {
        text.push_str(&format!(
            "; it flips between {} and {} ({:.0} % of samples fast)",
            BytesPerSecond(modes.low),
            BytesPerSecond(modes.high),
            modes.high_share * 100.0
        ));
    }
    Some(text + ".")
}

fn stores(report: &Report) -> Option<String> {
    let of = |threads: usize| {
        report
            .crossovers
            .iter()
            .find(|c| c.kernel == "copy" && c.threads == threads && c.store == crate::kernel::StoreKind::Nt)
    };
    let parts: Vec<String> = [1, most_threads(report)]
        .iter()
        .filter_map(|&threads| of(threads))
        .map(|c| format!("{} ({} thread{})", c.says, c.threads, if c.threads == 1 { "" } else { "s" }))
        .collect();
    let mut parts = parts;
    parts.dedup();
    (!parts.is_empty()).then(|| format!("Copying, {}.", parts.join("; ")))
}

fn write_allocate(report: &Report) -> Option<String> {
    let threads = most_threads(report);
    let parts: Vec<String> = ["store", "copy", "triad"]
        .iter()
        .filter_map(|kernel| report.write_allocate.iter().find(|w| w.kernel == *kernel && w.threads == threads))
        .map(|w| format!("{} {} of {} possible", w.kernel, ratio_text(w.gain), significant(w.bound)))
        .collect();
    let plural = if threads == 1 { "thread" } else { "threads" };
    (!parts.is_empty()).then(|| {
        format!(
            "Avoiding the write-allocate with nt stores gains in memory ({threads} {plural}): {}.",
            parts.join(", ")
        )
    })
}

/// What pages cost, from measured rows alone.
fn pages(report: &Report) -> Option<String> {
    let of_one = |work, kind| page_row(report, work, kind, |threads| threads == 1);
    let one = of_one(PageWork::Touch, MemoryKind::Base)?;
    let mut text = format!("First touch of a {} page costs {}", one.page_bytes, page_cost(one)?);
    text += &of_one(PageWork::Touch, MemoryKind::Thp).and_then(|huge| huge_pages(one, huge)).unwrap_or_default();
    for (work, words) in [(PageWork::Populate, "populating in advance"), (PageWork::CopyOnWrite, "copy-on-write")] {
        if let Some(cost) = of_one(work, MemoryKind::Base).and_then(|row| row.page_ns) {
            text += &format!("; {words} costs {} a page", Nanoseconds(cost.median));
        }
    }
    let all = page_row(report, PageWork::Touch, MemoryKind::Base, |threads| threads > 1);
    if let Some((all, speed)) = all.and_then(|all| Some((all, times(all.bps, one.bps)?))) {
        text += &format!("; {} threads together fault {speed} times as fast as one", all.threads);
    }
    Some(text + ".")
}

/// Huge pages against base pages, where they were obtained.
fn huge_pages(base: &PageRow, huge: &PageRow) -> Option<String> {
    let by_byte = |row: &PageRow| row.faults_per_page.map(|faults| faults / row.page_bytes.0 as f64);
    let fewer = by_byte(base)? / by_byte(huge).filter(|faults| *faults > 0.0)?;
    let (size, cost, speed) = (huge.page_bytes, page_cost(huge)?, times(huge.bps, base.bps)?);
    let text = format!(
        ", of a {size} page {cost}: {} times fewer faults, {speed} times as fast by the byte",
        significant(fewer)
    );
    (size > base.page_bytes).then_some(text)
}

/// The measured row of a work and kind with the most threads that `is_wanted` takes.
fn page_row(report: &Report, work: PageWork, kind: MemoryKind, is_wanted: impl Fn(usize) -> bool) -> Option<&PageRow> {
    let is_ours = |row: &&PageRow| (row.work, row.memory) == (work, kind) && row.quality.is_measured();
    report.pages.iter().filter(is_ours).filter(|row| is_wanted(row.threads)).max_by_key(|row| row.threads)
}

/// `250 ns (16.4 GB/s)`
fn page_cost(row: &PageRow) -> Option<String> {
    Some(format!("{} ({})", Nanoseconds(row.page_ns?.median), BytesPerSecond(row.bps?.median)))
}

fn times(fast: Option<Rate>, slow: Option<Rate>) -> Option<String> {
    Some(significant(fast?.median / slow?.median))
}

/// A cost that differs from another by less than this factor is the same.
const SAME_COST: f64 = 1.1;

fn offset_cost(report: &Report, scan: Scan, place: &str) -> Option<Cost> {
    let row = report.offsets.iter().find(|row| row.scan == scan && row.place == place && row.quality.is_measured())?;
    row.cycles
}

/// Whether `cost` is more than `base` by more than either's uncertainty.
fn is_dearer(cost: Cost, base: Cost) -> bool {
    cost.ci95[0] > base.ci95[1] && cost.median > SAME_COST * base.median
}

fn scans(report: &Report) -> impl Iterator<Item = Scan> + '_ {
    let mut seen = BTreeSet::new();
    report.offsets.iter().map(|row| row.scan).filter(move |scan| seen.insert(*scan))
}

/// The widest scan of its kind.
fn widest(report: &Report, is_kind: fn(&Scan) -> bool) -> Option<Scan> {
    scans(report).filter(is_kind).max_by_key(|scan| scan.bytes())
}

fn crossing(report: &Report) -> Option<String> {
    let part = |name, is_kind: fn(&Scan) -> bool| {
        let scan = widest(report, is_kind)?;
        let cost = |place| offset_cost(report, scan, place).map(|cost| significant(cost.median));
        let (aligned, line, page) = (cost("aligned")?, cost("crosses a line")?, cost("crosses a page")?);
        let bytes = scan.bytes().into_iter().max().unwrap_or(0);
        Some(format!(
            "a {name} of {bytes} B takes {aligned} cycles aligned, {line} across a line, {page} across a page"
        ))
    };
    let load = part("load", |scan| matches!(scan, Scan::Load { .. }));
    let store = part("store", |scan| matches!(scan, Scan::Store { .. }));
    let parts: Vec<String> = load.into_iter().chain(store).collect();
    (!parts.is_empty()).then(|| format!("Back to back, {}.", parts.join("; ")))
}

/// Cores whose data path is narrower than a line pay for crossing its parts too.
fn blocks(report: &Report) -> Option<String> {
    let part = |scan: Scan| {
        let name = if matches!(scan, Scan::Load { .. }) { "load" } else { "store" };
        let aligned = offset_cost(report, scan, "aligned")?;
        let dearer = |place| offset_cost(report, scan, place).filter(|cost| is_dearer(*cost, aligned));
        let place = ["crosses 16 B", "crosses 32 B"].into_iter().find(|place| dearer(place).is_some())?;
        let [cost, aligned] = [dearer(place)?, aligned].map(|cost| significant(cost.median));
        let bytes = scan.bytes().into_iter().max().unwrap_or(0);
        Some(format!("a {name} of {bytes} B that {place} takes {cost} cycles instead of {aligned}"))
    };
    // Of several sizes the widest speaks for all.
    let last = |is_kind: fn(&Scan) -> bool| scans(report).filter(is_kind).filter_map(part).last();
    let load = last(|scan| matches!(scan, Scan::Load { .. }));
    let store = last(|scan| matches!(scan, Scan::Store { .. }));
    let parts: Vec<String> = load.into_iter().chain(store).collect();
    (!parts.is_empty()).then(|| format!("Inside a line, {}.", parts.join("; ")))
}

fn aliasing(report: &Report) -> Option<String> {
    let scan = widest(report, |scan| matches!(scan, Scan::Aliasing { .. }))?;
    let (aliases, apart) = (offset_cost(report, scan, "aliases")?, offset_cost(report, scan, "apart")?);
    let (bytes, base) = (scan.bytes()[0], significant(apart.median));
    let text = if is_dearer(aliases, apart) {
        let more = significant(aliases.median - apart.median);
        format!(
            "A load of {bytes} B waits {more} cycles for a store in another page whose place it overlaps modulo 4 KiB \
             (4 KiB aliasing; {base} cycles a pair elsewhere)."
        )
    } else {
        format!(
            "A load does not wait for a store in another page that it overlaps modulo 4 KiB: a pair of {bytes} B takes {} \
             cycles there, {base} elsewhere.",
            significant(aliases.median)
        )
    };
    Some(text)
}

fn forwarding(report: &Report) -> Option<String> {
    let range = |place: &str| {
        let is_ours = |row: &&OffsetRow| matches!(row.scan, Scan::Forwarding { .. }) && row.quality.is_measured();
        let rows = report.offsets.iter().filter(is_ours).filter(|row| row.place == place);
        let medians: Vec<f64> = rows.filter_map(|row| row.cycles).map(|cost| cost.median).collect();
        let least = medians.iter().copied().reduce(f64::min)?;
        let (least, most) = (significant(least), significant(medians.into_iter().fold(0.0, f64::max)));
        Some(if least == most { least } else { format!("{least} to {most}") })
    };
    let [same, inside, partly] = ["same place", "inside the store", "overlaps partly"].map(range);
    let (same, inside, partly) = (same?, inside?, partly?);
    Some(format!(
        "From a store to a load at the same place it takes {same} cycles, to one elsewhere inside it {inside}, to one that \
         overlaps it partly {partly}."
    ))
}

/// What disturbed or limits the figures, with its cure.
pub(super) fn warnings(report: &Report, record: &Record) -> Vec<Warning> {
    let mut all = Vec::new();
    all.extend(simulated(report));
    all.extend(faults(report));
    all.extend(flagged(report));
    all.extend(levels_differ(report));
    let said = |words: Vec<Words>| words.into_iter().map(|(text, cure)| Warning { text, cure });
    let (machine, run) = (super::warnings::of_machine(&report.machine), super::warnings::of_run(record));
    let page_cache = super::page_cache::warnings(report);
    said(all).chain(machine).chain(run).chain(said(unfinished(report, record))).chain(page_cache).collect()
}

type Words = (String, String);

fn words(text: impl Into<String>, cure: impl Into<String>) -> Words {
    (text.into(), cure.into())
}

fn simulated(report: &Report) -> Option<Words> {
    (report.clock.name == "simulated")
        .then(|| words("these figures are simulated, nothing was measured", "measure on a machine"))
}

fn faults(report: &Report) -> Vec<Words> {
    let mut found = Vec::new();
    let is_ignored = |quality: &Quality| quality.reason.as_ref().is_some_and(|reason| reason.starts_with(IGNORED));
    let mut ignored: Vec<MemoryKind> = Vec::new();
    for row in report.rows.iter().filter(|row| is_ignored(&row.quality)) {
        ignored.extend(row.streams.iter().map(|named| named.memory.kind).chain([row.memory]));
    }
    ignored.retain(|kind| kind.is_memory_type());
    ignored.sort_unstable();
    ignored.dedup();
    if !ignored.is_empty() {
        let names = ignored.iter().map(|kind| kind.word()).collect::<Vec<_>>().join(", ");
        found.push(words(
            format!("{IGNORED}: {names} behave as write-back, so they were not measured"),
            "measure them on a host of your own, or where KVM heeds the guest's page attributes",
        ));
    }
    for outcome in [Status::Crashed, Status::Invalid] {
        let is_so = |row: &&dyn Rated| row.quality().outcome == outcome && !is_ignored(row.quality());
        let rows: Vec<&dyn Rated> = report.rated().filter(is_so).collect();
        if let Some(first) = rows.first() {
            let reason = first.quality().reason.as_deref().unwrap_or_default();
            found.push(words(
                format!("{} cases {outcome}; the first: {}: {reason}", rows.len(), first.what()),
                "do not use their figures; run with --verify and report it",
            ));
        }
    }
    found
}

/// How far each figure of kernels and pages can be trusted.
fn qualities(report: &Report) -> Vec<&Quality> {
    let on_nodes = report.numa.iter().flat_map(|numa| &numa.kernels);
    let kernels = report.rows.iter().chain(on_nodes).map(|row| &row.quality);
    kernels.chain(report.pages.iter().map(|row| &row.quality)).filter(|quality| quality.samples > 0).collect()
}

/// A flag that at least this share of rows carries is worth a warning of its own.
const MANY: f64 = 0.05;

fn flagged(report: &Report) -> Vec<Words> {
    let all = qualities(report);
    let measured = all.len().max(1);
    let mut found = Vec::new();
    let about = [
        (
            "bimodal",
            "samples fall into two groups: the speed flips between two values",
            "look at the modes, not only the median; on a shared host repeat when it is quiet",
        ),
        (
            "drift",
            "the speed changed by more than 10 % from round to round",
            "something else used the machine; compare within one run only",
        ),
        ("steal", "the hypervisor took CPU time away", "ask for dedicated cores, or repeat when the host is quiet"),
        ("switches", "other work ran on the measured CPUs", "stop it, or leave it CPUs of its own with --cpus"),
        (
            "clock-changed",
            "the core clock changed",
            "fix the clock with the performance governor; compare bytes per cycle",
        ),
        ("faults", "pages were taken away and faulted in again", "switch NUMA balancing and page migration off"),
        (
            "imbalanced",
            "threads with equal work took unequal time",
            "look for other work on the slower CPU, or repeat: its memory lies otherwise then",
        ),
        ("migrated", "threads ran on other CPUs than asked for", "check cpusets"),
        (
            "pages-differ",
            "other pages were obtained than asked for",
            "see `obtained` in the rows; free memory or set THP to madvise",
        ),
    ];
    for (flag, seen, cure) in about {
        let rows = all.iter().filter(|quality| quality.has(flag)).count();
        if rows as f64 > MANY * measured as f64 {
            found.push(words(format!("{seen} ({rows} of {measured} cases)"), cure));
        }
    }
    found
}

fn levels_differ(report: &Report) -> Vec<Words> {
    let mut found = Vec::new();
    for level in &report.levels {
        if let (Some(capacity), Some(claimed)) = (level.capacity, level.claimed) {
            let ratio = capacity.0 as f64 / claimed.0.max(1) as f64;
            if !(0.6..=1.6).contains(&ratio) {
                found.push(words(
                    format!("{} ends at {capacity} in the curve, the system says {claimed}", level.name),
                    "a shared or partitioned cache gives each tenant less, a hypervisor may misstate it; the curve is what programs get",
                ));
            }
        }
    }
    found
}

fn unfinished(report: &Report, record: &Record) -> Vec<Words> {
    let mut found = Vec::new();
    match &report.end {
        None => found.push(words(
            "the record has no end: the run was killed",
            "its finished cases are complete; run again for the rest",
        )),
        Some(end) => {
            if end.interrupted {
                found.push(words("the run was interrupted", "its finished cases are complete; run again for the rest"));
            }
            let missing = end.planned.saturating_sub(rows::visits(record).len() as u64);
            if missing > 0 && !end.interrupted {
                found.push(words(
                    format!("the budget ended before {missing} of {} cases were visited", end.planned),
                    "give a longer --budget",
                ));
            }
        }
    }
    let all = qualities(report);
    let wide = all.iter().filter(|quality| quality.has("wide-interval")).count();
    if wide > 0 {
        found.push(words(
            format!("{wide} of {} cases have intervals wider than ±5 %", all.len()),
            "give a longer --budget, or a quieter machine",
        ));
    }
    found
}
