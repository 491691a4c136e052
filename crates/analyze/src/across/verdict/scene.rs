//! What the rules look at, and what each of them finds.

use crate::across::limits::{Limit, LimitBasis};
use crate::across::verdict::diagnosis::{Cause, CauseKind, GainBasis, Gap, what_ran};
use crate::experiments::bandwidth::rows::{BandwidthRow, main_width};
use crate::quality::Status;
use crate::report::Report;
use membound_core::kernel::StoreKind;
use membound_core::kernel::catalog::Kernel;
use membound_core::machine::nature::NodeKind;
use membound_core::memory::MemoryKind;
use std::collections::BTreeSet;

/// The most that the memory of a row can move, in bytes a second, and who says so. A sheet tells what a socket can, of which a guest
/// has a part that nobody names.
pub(crate) fn peak(report: &Report, row: &BandwidthRow) -> Option<(f64, String)> {
    let is_of_all = |limit: &Limit| limit.basis == LimitBasis::Configured || !report.machine.is_virtual();
    let limit = report.limits.of_nodes(&row.nodes()).filter(is_of_all)?;
    Some((limit.value, limit.says))
}

/// Whether two rows had the same memory, nodes of one kind.
fn is_same_memory(report: &Report, a: &BandwidthRow, b: &BandwidthRow) -> bool {
    let kinds = |row: &BandwidthRow| -> BTreeSet<NodeKind> {
        report.limits.memory_of(&row.nodes()).map(|memory| memory.kind).collect()
    };
    kinds(a) == kinds(b)
}

/// Whether two loops read and write in the same proportion. Write-allocates are none of it: with nt stores there are none.
fn is_same_mix(a: &BandwidthRow, b: &BandwidthRow) -> bool {
    let mix = |row: &BandwidthRow| {
        let traffic = Kernel::named(row.kernel())?.traffic(row.store(), row.element());
        Some((traffic.loaded, traffic.stored))
    };
    mix(a)
        .zip(mix(b))
        .is_some_and(|((loaded, stored), (other_loaded, other_stored))| loaded * other_stored == other_loaded * stored)
}

/// What rules look at.
pub(crate) struct Scene<'a> {
    pub(crate) report: &'a Report,
    pub(crate) plain: &'a BandwidthRow,
    pub(crate) gap: Gap,
    /// Whether the limit is known without measuring.
    is_known: bool,
}

/// What a rule found.
pub(crate) struct Found {
    pub(crate) evidence: String,
    pub(crate) gives_back: GivesBack,
    pub(crate) cure: String,
    pub(crate) test: String,
}

/// Payload bytes a second.
pub(crate) enum GivesBack {
    Measured(f64),
    Estimated(f64),
    Unknown,
}

impl Found {
    /// The cause, with its share of the gap.
    pub(crate) fn cause(self, cause: CauseKind, scene: &Scene<'_>) -> Option<Cause> {
        let (gives_back_bps, basis) = match self.gives_back {
            GivesBack::Measured(bps) => (Some(bps), GainBasis::Measured),
            GivesBack::Estimated(bps) => (Some(bps), GainBasis::Estimated),
            GivesBack::Unknown => (None, GainBasis::Unknown),
        };
        // Nothing goes beyond a limit that is known. The best measured met most causes itself; nt stores it had, too.
        let most = if scene.is_known || cause == CauseKind::WriteAllocate { scene.gap.bps() } else { f64::INFINITY };
        let gives_back_bps = gives_back_bps.map(|bps| bps.min(most));
        // Where nothing was faster than the plain case there is no gap to have a share of.
        let share = |bps: f64| Some((bps / scene.gap.bps()).clamp(0.0, 1.0)).filter(|_| scene.gap.bps() > 0.0);
        let Found { evidence, cure, test, .. } = self;
        Some(Cause { cause, evidence, gives_back_bps, share: gives_back_bps.and_then(share), basis, cure, test })
    }
}

impl<'a> Scene<'a> {
    pub(crate) fn of(report: &'a Report) -> Option<Self> {
        let (row, plain) = plain(report)?;
        let reached_bps = rate(plain);
        // Between two last-level caches memory is faster: what is of both says nothing of what is of one.
        let is_alike = |row: &&BandwidthRow| {
            is_same_memory(report, row, plain) && row.place.meets(plain.place) && !row.writes_zeros()
        };
        let alike: Vec<&BandwidthRow> = memory_rows(report).filter(is_alike).collect();
        // The greatest of many figures of a visit or two is a lucky one, but no limit is below what was reached.
        let is_sure = |row: &&&BandwidthRow| row.payload_bps.is_some_and(|rate| rate.has_interval());
        let best_of = |rows: &mut dyn Iterator<Item = &&'a BandwidthRow>| {
            rows.max_by(|a, b| rate(a).total_cmp(&rate(b))).copied()
        };
        let best_in = |rows: &[&'a BandwidthRow]| {
            let sure = best_of(&mut rows.iter().filter(is_sure)).filter(|best| rate(best) >= reached_bps);
            sure.or_else(|| best_of(&mut rows.iter()))
        };
        // Memory that turns between reads and writes moves less than one way alone. Where no other loop of that mix was faster, its
        // limit is what any loop shows. Nor is fewer threads' figure, however sure, one of all.
        let is_own = |row: &&BandwidthRow| {
            is_same_mix(row, plain) && row.threads() == plain.threads() && rate(row) > reached_bps
        };
        let own: Vec<&BandwidthRow> = alike.iter().copied().filter(is_own).collect();
        let best = best_in(&own).or_else(|| best_in(&alike)).unwrap_or(plain);
        let measured = || {
            let ran = what_ran(best.kernel(), best.store(), best.threads());
            let size = match best.case.working_set {
                size if size == plain.case.working_set => String::new(),
                size => format!(", {size}"),
            };
            let few = if best.payload_bps.is_some_and(|rate| rate.has_interval()) {
                ""
            } else {
                "; too few visits to be sure"
            };
            (rate(best).max(reached_bps), format!("the best measured: {ran}{size}{few}"))
        };
        // A peak that was exceeded is none: the figures are a cache's, or the modules not all there are.
        let known = peak(report, plain).filter(|peak| peak.0 >= rate(best));
        let is_known = known.is_some();
        let (limit_bps, limit) = known.unwrap_or_else(measured);
        let gap =
            Gap { kernel: plain.kernel().to_string(), threads: plain.threads(), row, reached_bps, limit_bps, limit };
        Some(Scene { report, plain, gap, is_known })
    }
}

/// Payload bytes a second, undisturbed; 0 without a figure.
pub(crate) fn rate(row: &BandwidthRow) -> f64 {
    row.payload_bps.map_or(0.0, |rate| rate.value())
}

/// Rows that a program without special memory could be. Those that are invalid because memory can't be so fast have a cause.
pub(crate) fn steady_rows(report: &Report) -> impl Iterator<Item = &BandwidthRow> {
    let is_too_fast = |row: &BandwidthRow| {
        row.quality.outcome == Status::Invalid && peak(report, row).is_some_and(|peak| rate(row) > peak.0)
    };
    report.rows.iter().filter(move |row| {
        (row.quality.is_measured() || is_too_fast(row)) && row.payload_bps.is_some() && row.is_steady()
    })
}

pub(crate) fn memory_rows(report: &Report) -> impl Iterator<Item = &BandwidthRow> {
    steady_rows(report).filter(|row| row.is_in_memory(&report.machine))
}

/// The plain case: see the head of this file. Where nothing reached memory, the largest working set stands for it.
pub(crate) fn plain(report: &Report) -> Option<(usize, &BandwidthRow)> {
    /// The kernel that is asked for first is the one that stands for memory-bound code.
    const KERNELS: [&str; 6] = ["triad", "copy", "add", "scale", "store", "load"];
    let main = main_width(&report.rows);
    let place = |row: &BandwidthRow| KERNELS.iter().position(|kernel| *kernel == row.kernel());
    let is_in_memory = |row: &BandwidthRow| row.is_in_memory(&report.machine);
    // Where kinds of memory are held against each other, none of the others is the plain one.
    let is_usual = |row: &BandwidthRow| {
        report.kinds.is_none() || matches!(row.case.memory.kind, MemoryKind::Base | MemoryKind::Thp)
    };
    let is_plain = |row: &&BandwidthRow| row.store() == StoreKind::Regular && place(row).is_some() && is_usual(row);
    let key = |row: &BandwidthRow| {
        (
            is_in_memory(row),
            std::cmp::Reverse(place(row)),
            row.threads(),
            [MemoryKind::Base, MemoryKind::Thp].iter().position(|kind| *kind == row.case.memory.kind),
            row.case.memory.policy.is_first_touch(),
            row.case.misaligned_bytes == 0,
            Some(row.width()) == main,
            row.width(),
            row.case.working_set,
        )
    };
    let row = steady_rows(report).filter(is_plain).max_by_key(|row| key(row))?;
    let last_level = report.machine.last_level_bytes(&row.case.cpus.iter().copied().collect());
    // Runs that never left the caches asked another question.
    let is_about_memory = is_in_memory(row) || last_level.is_none_or(|cache| row.case.working_set >= cache);
    let index = report.rows.iter().position(|other| std::ptr::eq(other, row))?;
    is_about_memory.then_some((index, row))
}
