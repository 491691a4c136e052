//! What pages cost: from visits to rows.

use membound_core::in_order::InOrder;
use schemars::JsonSchema;
use serde::Serialize;

use crate::flag::Flag;
use crate::quality::{Sampled, is_huge};
use crate::rate::{Cost, Rate};
use crate::row::{Metric, Row};
use crate::visits::{Gauge, Visits, measured};
use membound_core::case::{Case, Work};
use membound_core::memory::{MemoryKind, Obtained};
use membound_core::record::{Measured, Measurement};
use membound_core::stats::quantiles::median;
use membound_core::units::{BASE_PAGE, Bytes, HUGE_PAGE_USUAL};
use membound_core::work::pages::PageWork;

/// A work on pages of one kind.
pub type PageRow = Row<PageFigures>;

/// What a page costs.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct PageFigures {
    /// Bytes of the page that the cost is for: the kind's own, or for `thp` that which was obtained; of copy-on-write that which a fault
    /// copied.
    pub page_bytes: Bytes,
    /// Nanoseconds for each page, by thread. Absent where nothing was measured.
    pub page_ns: Option<Cost>,
    /// The same as bytes per second over all threads: where pages are made, the rate of zeroing.
    #[serde(rename = "Bps")]
    pub bps: Option<Rate>,
    /// Page faults for each page.
    pub faults_per_page: Option<f64>,
    /// Memory obtained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obtained: Option<Obtained>,
}

/// What tells rows of pages from each other.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PageKeys {
    /// What was done to the pages.
    work: PageWork,
    /// Memory kind asked for.
    memory: MemoryKind,
    /// NUMA node asked for.
    node: Option<u32>,
    /// Number of threads, each on a mapping of its own.
    threads: usize,
    /// Their CPUs.
    cpus: Vec<u32>,
    /// Bytes of all mappings together.
    working_set_bytes: Bytes,
}

impl Metric for PageFigures {
    const NAME: &'static str = "page";
    const UNIT: &'static str = "ns";
    type Keys = PageKeys;

    fn keys(row: &PageRow) -> PageKeys {
        PageKeys {
            work: row.work(),
            memory: row.case.memory.kind,
            node: row.case.memory.node(),
            threads: row.case.threads(),
            cpus: row.case.cpus.clone(),
            working_set_bytes: row.case.working_set,
        }
    }

    fn what(row: &PageRow) -> String {
        format!("{} of {}", row.work(), row.case.memory.kind)
    }

    fn kind(row: &PageRow) -> Option<String> {
        Some(row.case.memory.kind.to_string())
    }
}

impl PageRow {
    /// What was done to the pages.
    pub fn work(&self) -> PageWork {
        let work = if let Work::Page(work) = self.case.work { Some(work) } else { None };
        work.expect("rows of pages are made of works on pages alone")
    }
}

/// One row a case that works on pages, by work, memory and threads.
pub(crate) fn rows(visits: &Visits<'_>) -> Vec<PageRow> {
    let base = visits.header().machine.pages.base_bytes();
    let mut rows: Vec<PageRow> = visits.rows(|case| row(case, &visits.gauge, base));
    rows.order_by_key(|row| {
        let memory = row.case.memory;
        (row.work(), memory.kind, memory.node(), row.case.threads(), row.case.working_set)
    });
    rows
}

fn row(visits: &[&Measurement], gauge: &Gauge, base: Bytes) -> Option<PageRow> {
    let hz = gauge.hz;
    let case = &visits[0].case;
    let Work::Page(work) = case.work else { return None };
    let measured = measured(visits);
    let asked =
        asked(case.memory.kind, measured.last().map_or(HUGE_PAGE_USUAL, |last| last.obtained.huge_page()), base);
    let page_bytes = measured.last().map_or(asked, |last| obtained(work, case, last, base));
    let mut sampled = Sampled::of(visits, gauge, |visit| page_ns(visit, case, page_bytes, hz));
    let differs = work == PageWork::Read && page_bytes != asked;
    sampled.quality.flag([(Flag::PagesDiffer, differs && sampled.summary.is_some())]);
    let page_ns = sampled.cost();
    let bps = |ns: f64| case.threads() as f64 * page_bytes.0 as f64 / ns * 1e9;
    let figures = PageFigures {
        page_bytes,
        page_ns,
        bps: page_ns.map(|cost| cost.each(bps)),
        faults_per_page: faults_per_page(&measured, page_bytes),
        obtained: sampled.obtained(),
    };
    Some(Row { case: case.clone(), quality: sampled.quality, figures })
}

/// The page size that a kind asks for, where transparent huge pages and base pages have these.
fn asked(kind: MemoryKind, huge: Bytes, base: Bytes) -> Bytes {
    match kind {
        MemoryKind::Thp => huge,
        kind => kind.pool_page().unwrap_or(base),
    }
}

fn is_file(kind: MemoryKind) -> bool {
    use MemoryKind::{FilePrivate, FilePrivateCold, FileShared, FileSharedCold};
    matches!(kind, FilePrivate | FilePrivateCold | FileShared | FileSharedCold)
}

/// The size of the pages that the cost is for: a pool's is certain, any other kind may have got base or huge pages.
fn obtained(work: PageWork, case: &Case, measured: &Measured, base: Bytes) -> Bytes {
    let huge = measured.obtained.huge_page();
    let is_huge = match work {
        // Reading fresh memory maps the zero page, which smaps does not show, be it huge or not. Its faults tell: one
        // for each huge page, or at least one for each sixteen base pages. A file's are mapped around the fault, so there faults tell nothing.
        PageWork::Read if !is_file(case.memory.kind) => {
            faults_per_page(&[measured], huge).is_some_and(|faults| faults < 16.0)
        }
        // The pages before were huge; what a fault copies may be a part of one, into which the kernel splits it.
        PageWork::CopyOnWrite => {
            let is_whole = faults_per_page(&[measured], huge).is_none_or(|faults| faults < 16.0);
            is_huge(&measured.obtained) == Some(true) && is_whole
        }
        _ => is_huge(&measured.obtained) == Some(true),
    };
    let otherwise = if is_huge { huge } else { base };
    case.memory.kind.pool_page().unwrap_or(otherwise)
}

/// Nanoseconds for each page of one thread: threads work side by side, and the last one ends the sample.
pub(crate) fn page_ns(visit: &Measured, case: &Case, page_bytes: Bytes, hz: f64) -> Vec<f64> {
    let pages = pages(visit, page_bytes) / case.threads().max(1) as f64;
    visit.samples.ticks.iter().map(|ticks| *ticks as f64 / hz * 1e9 / visit.repetitions as f64 / pages).collect()
}

/// Pages of that size in all threads' mappings.
fn pages(visit: &Measured, page_bytes: Bytes) -> f64 {
    visit.volume.units as f64 * BASE_PAGE as f64 / page_bytes.0 as f64
}

/// Faults for each page of that size: median of all samples.
fn faults_per_page(measured: &[&Measured], page_bytes: Bytes) -> Option<f64> {
    let of_visit = |visit: &&Measured| {
        let pages = pages(visit, page_bytes);
        visit.samples.faults.iter().map(move |faults| f64::from(*faults) / pages).collect::<Vec<_>>()
    };
    median(measured.iter().flat_map(of_visit))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Bytes = Bytes(BASE_PAGE);
    const HUGE: Bytes = HUGE_PAGE_USUAL;

    use membound_core::case::Protocol;
    use membound_core::memory::{MemorySpec, Obtained};
    use membound_core::record::{Outcome, Sample, Samples, Volume};

    fn case(work: PageWork, kind: MemoryKind, threads: u32) -> Case {
        Case {
            work: Work::Page(work),
            memory: MemorySpec::of(kind),
            streams: Vec::new(),
            cpus: (0..threads).collect(),
            working_set: Bytes(u64::from(threads) * Bytes::mib(64).0),
            misaligned_bytes: 0,
            protocol: Protocol::FirstUse,
        }
    }

    /// A visit whose samples took these ticks of a nanosecond, with so many faults each.
    fn visit(case: &Case, huge: Bytes, ticks: &[u64], faults: u32) -> Measurement {
        let mut samples = Samples::default();
        for &ticks in ticks {
            samples.push(Sample { ticks, core_clock_ticks: 1, faults, ..Sample::default() });
        }
        let obtained = Obtained { bytes: case.working_set, huge_bytes: Some(huge), ..Obtained::default() };
        let volume = Volume { units: case.working_set.0 / 4096, ..Volume::default() };
        let measured = Measured { volume, repetitions: 1, core_clock_links: 1, samples, obtained };
        Measurement::new(case.clone(), 0, Outcome::Measured(Box::new(measured)))
    }

    fn row(visits: &[Measurement]) -> PageRow {
        super::row(&visits.iter().collect::<Vec<_>>(), &Gauge { hz: 1e9, ..Gauge::default() }, BASE).unwrap()
    }

    /// Base pages of 16 KiB: 64 MiB are 4096 of them, and 4.096 ms are 1 us each.
    #[test]
    fn larger_base_pages_by_hand() {
        let case = case(PageWork::Touch, MemoryKind::Base, 1);
        let visits = [visit(&case, Bytes(0), &[4_096_000; 5], 4096)];
        let row = super::row(&[&visits[0]], &Gauge { hz: 1e9, ..Gauge::default() }, Bytes::kib(16)).unwrap();
        assert_eq!((row.page_bytes, row.page_ns.unwrap().value()), (Bytes::kib(16), 1000.0));
        assert_eq!(row.faults_per_page, Some(1.0));
    }

    /// 64 MiB are 16384 base pages: 4.096 ms are 250 ns each, or 16.384 GB/s.
    #[test]
    fn base_pages_by_hand() {
        let case = case(PageWork::Touch, MemoryKind::Base, 1);
        let visits = [
            visit(&case, Bytes(0), &[4_096_000, 4_915_200, 3_276_800, 4_096_000, 4_096_000], 16384),
            visit(&case, Bytes(0), &[4_096_000; 5], 16385),
        ];
        let row = row(&visits);
        let cost = row.page_ns.unwrap();
        assert_eq!((row.page_bytes, cost.best, cost.value()), (BASE, 200.0, 250.0));
        let rate = row.bps.unwrap();
        assert_eq!((rate.best, rate.value()), (4096.0 / 200e-9, 4096.0 / 250e-9));
        assert!(rate.ends()[0] <= rate.value() && rate.value() <= rate.ends()[1]);
        assert_eq!((row.quality.samples, row.quality.rounds, row.quality.outcome.word()), (10, 2, "measured"));
        assert!((row.faults_per_page.unwrap() - 1.0).abs() < 1e-4);
        // Eight of ten are equal, so the other two lie outside any fence.
        assert_eq!(row.quality.flags, [Flag::Outliers]);
    }

    /// Two threads with 64 MiB each: 32 huge pages a thread in 3.2 ms are 100 us each, 2 x 2 MiB / 100 us together.
    #[test]
    fn huge_pages_of_two_threads_by_hand() {
        let case = case(PageWork::Touch, MemoryKind::Thp, 2);
        let row = row(&[visit(&case, case.working_set, &[3_200_000; 9], 64)]);
        assert_eq!((row.page_bytes, row.page_ns.unwrap().value()), (HUGE, 100_000.0));
        assert!((row.bps.unwrap().value() / (2.0 * 2097152.0 / 100e-6) - 1.0).abs() < 1e-12);
        assert_eq!(row.faults_per_page, Some(1.0));
    }

    /// 64 MiB of huge pages that are split into 4 KiB are copied by 16384 faults, of 600 ns each.
    #[test]
    fn a_page_that_is_copied_is_what_a_fault_copies() {
        let case = case(PageWork::CopyOnWrite, MemoryKind::Thp, 1);
        let split = row(&[visit(&case, case.working_set, &[9_830_400; 9], 16384)]);
        assert_eq!((split.page_bytes, split.page_ns.unwrap().value(), split.faults_per_page), (BASE, 600.0, Some(1.0)));
        assert!(split.quality.flags.is_empty(), "{:?}", split.quality.flags);
        let whole = row(&[visit(&case, case.working_set, &[3_200_000; 9], 32)]);
        assert_eq!((whole.page_bytes, whole.page_ns.unwrap().value()), (HUGE, 100_000.0));
    }

    #[test]
    fn pages_that_were_not_obtained_are_flagged_and_not_counted() {
        let touch = case(PageWork::Touch, MemoryKind::Thp, 1);
        let refused = row(&[visit(&touch, Bytes(0), &[4_096_000; 9], 16384)]);
        assert_eq!((refused.page_bytes, refused.page_ns.unwrap().value()), (BASE, 250.0));
        assert_eq!(refused.quality.flags, [Flag::PagesDiffer]);
        // The huge zero page: no huge page in smaps, 32 faults.
        let read = case(PageWork::Read, MemoryKind::Thp, 1);
        let huge = row(&[visit(&read, Bytes(0), &[32_000; 9], 32)]);
        assert_eq!((huge.page_bytes, huge.page_ns.unwrap().value(), huge.faults_per_page), (HUGE, 1000.0, Some(1.0)));
        assert!(huge.quality.flags.is_empty(), "{:?}", huge.quality.flags);
        assert_eq!(row(&[visit(&read, Bytes(0), &[4_096_000; 9], 16384)]).quality.flags, [Flag::PagesDiffer]);
        // What a collapse makes is huge, and asked for.
        let collapse = case(PageWork::Collapse, MemoryKind::Base, 1);
        let made = row(&[visit(&collapse, collapse.working_set, &[3_200_000; 9], 0)]);
        assert_eq!((made.page_bytes, made.page_ns.unwrap().value()), (HUGE, 100_000.0));
        assert!(made.quality.flags.is_empty(), "{:?}", made.quality.flags);
    }

    #[test]
    fn what_could_not_be_has_its_reason() {
        let case = case(PageWork::Touch, MemoryKind::Huge1G, 1);
        let outcome = Outcome::Unavailable { reason: "the pool is empty".into() };
        let row = row(&[Measurement::new(case, 0, outcome)]);
        assert_eq!(
            (row.quality.outcome.word(), row.quality.reason.as_deref()),
            ("unavailable", Some("the pool is empty"))
        );
        assert_eq!((row.page_bytes, row.page_ns, row.quality.samples), (Bytes::gib(1), None, 0));
    }
}
