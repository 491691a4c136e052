//! What pages cost: a table by work, a chart of one thread.

use crate::answer::Answer;
use crate::chart::{Axis, Chart, Scale, Series, Shape, line, rounded};
use crate::experiments::pages::rows::PageRow;
use crate::flag::Flag;
use crate::missing::reasons;
use crate::rate::Rate;
use crate::section::{Section, Table};
use crate::wording::{SPREAD_CAPTION, gbps, threads, time, times};
use membound_core::memory::MemoryKind;
use membound_core::units::{BASE_PAGE, BytesPerSecond, Nanoseconds, significant};
use membound_core::work::pages::PageWork;

const ABOUT: &str = "Each thread works on a fresh mapping of its own: time for each of its pages, bytes of all threads a second, \
    page faults for each page. A page is as large as was obtained. Times:";

impl Answer for Vec<PageRow> {
    fn sentences(&self) -> Vec<String> {
        sentence(self).into_iter().collect()
    }

    fn sections(&self) -> Vec<Section> {
        if self.is_empty() {
            return Vec::new();
        }
        let works = by_work(self);
        let nothing = || vec!["Nothing was measured.".into()];
        vec![Section {
            id: "pages",
            title: "What pages cost".into(),
            about: format!("{ABOUT} {SPREAD_CAPTION}."),
            sentences: self.sentences(),
            tables: if works.is_empty() { Vec::new() } else { vec![table(&works)] },
            charts: if works.is_empty() { Vec::new() } else { vec![chart(self, &works)] },
            notes: if works.is_empty() { nothing() } else { Vec::new() },
            missing: reasons(self),
            ..Section::default()
        }]
    }
}

/// The rows that have figures, by work.
fn by_work(rows: &[PageRow]) -> Vec<(PageWork, Vec<&PageRow>)> {
    let of_work = |&work: &PageWork| {
        let rows: Vec<&PageRow> = rows.iter().filter(|row| row.work() == work && row.page_ns.is_some()).collect();
        (!rows.is_empty()).then_some((work, rows))
    };
    PageWork::ALL.iter().filter_map(of_work).collect()
}

fn table(works: &[(PageWork, Vec<&PageRow>)]) -> Table {
    let rows: Vec<&PageRow> = works.iter().flat_map(|(_, rows)| rows.iter().copied()).collect();
    let mut titles = Vec::new();
    let mut line = 0;
    for (work, rows) in works {
        titles.push((line, work.to_string()));
        line += rows.len();
    }
    let table = Table::new("")
        .left("", rows.iter().map(|row| row.case.memory.kind.to_string()))
        .right("threads", rows.iter().map(|row| row.case.threads().to_string()))
        .right("page", rows.iter().map(|row| row.page_bytes.to_string()))
        .right("time\nper page", rows.iter().map(|row| row.page_ns.as_ref().map(time)))
        .right("GB/s", rows.iter().map(|row| row.bps.map(|rate| gbps(rate.value()))))
        .right("faults\nper page", rows.iter().map(|row| row.faults_per_page.map(significant)))
        .flags(rows);
    Table { titles, ..table }
}

/// What pages cost by work, a bar each memory kind. Pages differ in size, so that the cost is for 4 KiB of them.
fn chart(all: &[PageRow], works: &[(PageWork, Vec<&PageRow>)]) -> Chart {
    let fewest = all.iter().map(|row| row.case.threads()).min().unwrap_or(1);
    let rows = |kind: MemoryKind| {
        let of_kind = move |row: &PageRow| (row.case.memory.kind, row.case.threads()) == (kind, fewest);
        works.iter().enumerate().filter_map(move |(at, (_, rows))| Some((at, *rows.iter().find(|row| of_kind(row))?)))
    };
    let mut kinds: Vec<MemoryKind> = MemoryKind::ALL.iter().copied().filter(|kind| rows(*kind).count() > 0).collect();
    // A kind with a single work would leave room for its bar at all the others.
    if kinds.iter().any(|kind| rows(*kind).count() > 1) {
        kinds.retain(|kind| rows(*kind).count() > 1);
    }
    let point = |(at, row): (usize, &PageRow)| {
        let cost = row.page_ns?;
        let by_4k = |ns: f64| rounded(ns * BASE_PAGE as f64 / row.page_bytes.0 as f64);
        Some((at as f64, by_4k(cost.value()), by_4k(cost.ends()[0]), by_4k(cost.ends()[1]), row.quality.samples))
    };
    let bars = |(colour, &kind): (usize, &MemoryKind)| {
        let points = rows(kind).filter_map(point).collect();
        Series { shape: Shape::Bar, colour, ..line(kind.to_string(), points) }
    };
    let series: Vec<Series> = kinds.iter().enumerate().map(bars).collect();
    let names = works.iter().map(|(work, _)| work.to_string()).collect();
    let x = Axis { names, ..Axis::new("work", "", Scale::Names) };
    let y = Axis::new("ns for each 4 KiB (log)", "ns", Scale::Log);
    let title = format!("What 4 KiB of pages cost, {}", threads(fewest));
    let about = "Huge pages are shown by their share of 4 KiB; what each page costs stands in the table.".into();
    Chart::new(title, about, x, y, series)
}

/// What pages cost, from measured rows alone.
fn sentence(rows: &[PageRow]) -> Option<String> {
    let of_one = |work, kind| of_kind(rows, work, kind, |threads| threads == 1);
    let one = of_one(PageWork::Touch, MemoryKind::Base)?;
    let mut text = format!("First touch of a {} page costs {}", one.page_bytes, cost(one)?);
    text += &of_one(PageWork::Touch, MemoryKind::Thp).and_then(|huge| huge_pages(one, huge)).unwrap_or_default();
    for (work, words) in [(PageWork::Populate, "populating in advance"), (PageWork::CopyOnWrite, "copy-on-write")] {
        if let Some(cost) = of_one(work, MemoryKind::Base).and_then(|row| row.page_ns) {
            text += &format!("; {words} costs {} per page", Nanoseconds(cost.value()));
        }
    }
    Some(text + &together(rows).unwrap_or_default() + ".")
}

/// What the most threads together do, against one, by work: where each replaces pages that others may know, they slow each other.
fn together(rows: &[PageRow]) -> Option<String> {
    let all = |work| of_kind(rows, work, MemoryKind::Base, |threads| threads > 1);
    let most = PageWork::ALL.iter().filter_map(|work| Some(all(*work)?.case.threads())).max()?;
    let of_work = |(work, words): (PageWork, &str)| {
        let one = of_kind(rows, work, MemoryKind::Base, |threads| threads == 1)?;
        let all = all(work).filter(|all| all.case.threads() == most)?;
        Some(format!("{words} {}", speed_up(all, one)?))
    };
    let works = [
        (PageWork::Touch, "first touch"),
        (PageWork::Populate, "populating in advance"),
        (PageWork::CopyOnWrite, "copy-on-write"),
    ];
    let parts: Vec<String> = works.into_iter().filter_map(of_work).collect();
    (!parts.is_empty()).then(|| format!("; {} against one: {}", threads(most), parts.join(", ")))
}

/// How many times as fast as one thread so many are together. Nothing where a side was disturbed, as the one thread was that is
/// slower than each of several.
fn speed_up(all: &PageRow, one: &PageRow) -> Option<String> {
    let is_disturbed = [all, one].iter().any(|row| row.quality.has(Flag::Disturbed));
    let (fast, slow) = (all.bps?, one.bps?);
    let [ratio, low, _] = fast.over(slow);
    let least = if are_sure(fast, slow) { low } else { ratio };
    (!is_disturbed && least <= all.case.threads() as f64).then(|| faster(fast, slow))
}

/// Huge pages against base pages, where they were obtained.
fn huge_pages(base: &PageRow, huge: &PageRow) -> Option<String> {
    let by_byte = |row: &PageRow| row.faults_per_page.map(|faults| faults / row.page_bytes.0 as f64);
    let fewer = by_byte(base)? / by_byte(huge).filter(|faults| *faults > 0.0)?;
    let (size, cost, speed) = (huge.page_bytes, cost(huge)?, faster(huge.bps?, base.bps?));
    let text =
        format!(", of a {size} page {cost}: {} times fewer faults, {speed} as fast by the byte", significant(fewer));
    (size > base.page_bytes).then_some(text)
}

/// The measured row of a work and kind with the most threads that `is_wanted` takes.
fn of_kind(rows: &[PageRow], work: PageWork, kind: MemoryKind, is_wanted: impl Fn(usize) -> bool) -> Option<&PageRow> {
    let is_ours = |row: &&PageRow| (row.work(), row.case.memory.kind) == (work, kind) && row.quality.is_measured();
    let ours = rows.iter().filter(is_ours).filter(|row| is_wanted(row.case.threads()));
    ours.max_by_key(|row| row.case.threads())
}

/// `250 ns (16.4 GB/s)`
fn cost(row: &PageRow) -> Option<String> {
    Some(format!("{} ({})", Nanoseconds(row.page_ns?.value()), BytesPerSecond(row.bps?.value())))
}

fn are_sure(fast: Rate, slow: Rate) -> bool {
    fast.has_interval() && slow.has_interval()
}

/// How many times as fast, with its interval: `1.25 x [1.20, 1.30]`; where one is not known, `about 1.25 x`.
fn faster(fast: Rate, slow: Rate) -> String {
    let ratio = fast.over(slow);
    if are_sure(fast, slow) { times(ratio) } else { format!("about {} x", significant(ratio[0])) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::pages::rows::PageFigures;
    use crate::quality::{Quality, Status};
    use crate::row::Row;
    use membound_core::case::{Case, Protocol, Work};
    use membound_core::memory::MemorySpec;
    use membound_core::units::Bytes;

    /// A row of so many bytes per second, ±1 %.
    fn row(work: PageWork, threads: u32, bps: f64) -> PageRow {
        let rate = Rate::plain(bps, bps, [0.99 * bps, 1.01 * bps]);
        let page = 4096.0 * f64::from(threads);
        Row {
            case: Case {
                work: Work::Page(work),
                memory: MemorySpec::of(MemoryKind::Base),
                streams: Vec::new(),
                cpus: (0..threads).collect(),
                working_set: Bytes::mib(64),
                misaligned_bytes: 0,
                protocol: Protocol::FirstUse,
            },
            quality: Quality { samples: 9, rounds: 5, outcome: Status::Measured, reason: None, flags: Vec::new() },
            figures: PageFigures {
                page_bytes: Bytes(BASE_PAGE),
                page_ns: Some(rate.each(|bps| page / bps * 1e9)),
                bps: Some(rate),
                faults_per_page: Some(1.0),
                obtained: None,
            },
        }
    }

    /// 1.6 of 1 GB/s, ±1 % each: sqrt(2) % of the ratio. 2.58 times as fast no two threads are.
    #[test]
    fn each_work_has_its_own_factor() {
        use PageWork::{CopyOnWrite, Populate, Touch};
        let mut rows = vec![
            row(Touch, 1, 1e9),
            row(Touch, 2, 1.6e9),
            row(Populate, 1, 1e9),
            row(Populate, 2, 2.58e9),
            row(CopyOnWrite, 1, 1e9),
            row(CopyOnWrite, 2, 0.4e9),
        ];
        let says = "; 2 threads against one: first touch 1.60 x [1.58, 1.62], copy-on-write 0.400 x [0.394, 0.406]";
        assert_eq!(together(&rows).as_deref(), Some(says));
        rows[0].quality.flags = vec![Flag::Disturbed];
        let says = "; 2 threads against one: copy-on-write 0.400 x [0.394, 0.406]";
        assert_eq!(together(&rows).as_deref(), Some(says));
    }
}
