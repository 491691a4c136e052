//! What costs most on a machine: the same work done in a slow way and in a fast way, by how much they differ, and the cure.

use schemars::JsonSchema;
use serde::Serialize;

use crate::across::verdict::diagnosis::{Cause, CauseKind, GainBasis};
use crate::across::verdict::rules::cure;
use crate::experiments::bandwidth::rows::BandwidthRow;
use crate::experiments::latency::parallelism::Parallelism;
use crate::experiments::latency::rows::LatencyRow;
use crate::experiments::pages::rows::PageRow;
use crate::hierarchy::names::Level;
use crate::rate::Rate;
use crate::report::Report;
use crate::wording::{gbps, threads};
use membound_core::in_order::InOrder;
use membound_core::kernel::StoreKind;
use membound_core::kernel::chase::Order;
use membound_core::memory::MemoryKind;
use membound_core::units::{Bytes, BytesPerSecond, percent, significant};
use membound_core::work::pages::PageWork;

/// A slow way of doing something.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Loss {
    /// What is slow.
    pub what: String,
    /// By how much against the fast way: [ratio, low, high].
    pub factor: [f64; 3],
    /// What the factor counts: `slower`, `smaller`.
    pub than: &'static str,
    /// What helps.
    pub cure: String,
}

/// A loss whose interval begins below this is none: it may be chance.
const LEAST: f64 = 1.1;
/// The same of a capacity, which curves tell less surely.
const LEAST_SMALLER: f64 = 1.25;

/// All that is lost for sure, most first.
pub fn losses(report: &Report) -> Vec<Loss> {
    let one = [
        random_order(report),
        first_touch(report),
        write_allocate(report),
        small_pages(report),
        one_core(report),
        close_together(report),
        shared_cores(report),
    ];
    let mut all: Vec<Loss> =
        one.into_iter().flatten().chain(small_caches(&report.levels)).chain(causes(report)).collect();
    all.retain(|loss| loss.factor[1] >= LEAST && loss.factor.iter().all(|end| end.is_finite()));
    all.order_by(|a, b| b.factor[0].total_cmp(&a.factor[0]));
    all
}

/// The best figure of a kernel in memory.
fn in_memory(report: &Report, kernel: &str, threads: usize) -> Option<Rate> {
    let memory = report.levels.iter().find(|level| level.name == "memory")?;
    let best = memory.best.iter().find(|best| best.kernel == kernel && best.threads == threads)?;
    report.rows.get(best.row)?.payload_bps
}

/// The most threads that a kernel ran with in memory.
fn most_threads(report: &Report, kernel: &str) -> usize {
    let memory = report.levels.iter().find(|level| level.name == "memory");
    let own = memory.into_iter().flat_map(|level| &level.best).filter(|best| best.kernel == kernel);
    own.map(|best| best.threads).max().unwrap_or(1)
}

/// One chain through memory in each of these orders and pages, over the largest working set that both have.
fn chases(rows: &[LatencyRow], [slow, fast]: [(Order, MemoryKind); 2]) -> Option<[&LatencyRow; 2]> {
    let of = |(order, memory): (Order, MemoryKind)| {
        rows.iter().filter(move |row| {
            row.chase().order == order
                && row.case.memory.kind == memory
                && row.is_over_lines()
                && !row.is_hit()
                && row.level.as_deref() == Some("memory")
                && row.quality.is_measured()
        })
    };
    let twin = |row: &LatencyRow| of(fast).rfind(|other| other.case.working_set == row.case.working_set);
    of(slow).filter_map(|row| Some([row, twin(row)?])).max_by_key(|[row, _]| row.case.working_set)
}

fn random_order(report: &Report) -> Option<Loss> {
    let orders = [Order::Random, Order::Forward].map(|order| (order, MemoryKind::Thp));
    let [random, forward] = chases(&report.latency.rows, orders)?;
    let factor = random.latency_ns?.over(forward.latency_ns?);
    let seen = |parallel: &Parallelism| format!("{}{:.0}", parallel.least(), parallel.lines_in_flight);
    let lines = report.latency.parallelism.as_ref().map_or("many".into(), seen);
    Some(Loss {
        what: "dependent loads in random order from memory, against the same lines in order".into(),
        factor,
        than: "slower",
        cure: format!("sort or block the accesses; else keep {lines} independent loads in flight (batch, prefetch)"),
    })
}

fn first_touch(report: &Report) -> Option<Loss> {
    let touch = |kind: MemoryKind| {
        let is_one = |row: &&PageRow| {
            let is_asked = (row.work(), row.case.memory.kind, row.case.threads()) == (PageWork::Touch, kind, 1);
            is_asked && row.quality.is_measured()
        };
        report.pages.iter().find(is_one)?.bps
    };
    let (base, store) = (touch(MemoryKind::Base), in_memory(report, "store", 1)?);
    if let Some(loss) = taken_back(report, base.map(|base| base.value()), store) {
        return Some(loss);
    }
    let base = base?;
    let huge = touch(MemoryKind::Thp).map_or(String::new(), |huge| {
        format!(
            "; {} pages fault {} x as fast",
            report.machine.pages.huge_bytes(),
            significant(huge.value() / base.value())
        )
    });
    Some(Loss {
        what: format!(
            "first touch of memory in {} pages, against storing to it again",
            report.machine.pages.base_bytes()
        ),
        factor: store.over(base),
        than: "slower",
        cure: format!("keep and reuse buffers{huge}"),
    })
}

/// Memory that a host must find again for its guest: touched first far more slowly than pages which the guest has at hand, as those
/// of the experiment with pages are (`at_hand`, bytes per second).
fn taken_back(report: &Report, at_hand: Option<f64>, store: Rate) -> Option<Loss> {
    /// No system clears pages as slowly as this.
    const SLOW: f64 = 1e9;
    let touched = report.first_touch.as_ref()?;
    let slow = at_hand.map_or(SLOW, |at_hand| at_hand / 2.0).min(SLOW);
    // A run that was mostly fast lost little.
    let found = touched.slower_than(slow).filter(|_| touched.thread_bps[0] < slow && report.machine.is_virtual())?;
    let [mean, low, high] = found.thread_bps;
    Some(Loss {
        what: format!(
            "first touch of {} as if the host had taken it back, at {}, against storing to it again",
            found.bytes,
            found.rate()
        ),
        // The bytes of these visits by their time, and the range of visits.
        factor: [mean, high, low].map(|bps| store.value() / bps),
        than: "slower",
        cure: "keep and reuse buffers, and let all threads touch their part; the host needs preallocated memory, without free page \
               reporting or a balloon"
            .into(),
    })
}

fn write_allocate(report: &Report) -> Option<Loss> {
    let nt = report.crossovers.iter().filter(|found| found.store == StoreKind::Nt);
    let sure = |gain: Option<[f64; 3]>| gain.map_or(0.0, |gain| gain[1]);
    let best = nt.max_by(|a, b| sure(a.gain).total_cmp(&sure(b.gain)))?;
    let from = best.at.map_or(String::new(), |at| format!(" for working sets above {}", from_size(at)));
    let part = if sure(best.gain) > best.bound {
        format!(" ({} x by these bytes alone)", significant(best.bound))
    } else {
        String::new()
    };
    Some(Loss {
        what: format!(
            "regular stores to memory ({}, {}), which read each line before they write it{part}",
            best.kernel,
            threads(best.threads)
        ),
        factor: best.gain?,
        than: "slower",
        cure: format!("non-temporal stores{from}"),
    })
}

/// A size beyond which something holds: the ends of its interval, where that is too wide for its middle to say anything.
fn from_size([at, low, high]: [f64; 3]) -> String {
    /// Half a step between two sizes of a curve.
    const NARROW: f64 = 1.2;
    let size = |bytes: f64| Bytes(bytes as u64);
    match high > NARROW * low {
        true => format!("{} (perhaps from {})", size(high), size(low)),
        false => size(at).to_string(),
    }
}

fn small_pages(report: &Report) -> Option<Loss> {
    let pages = [MemoryKind::Base, MemoryKind::Thp].map(|kind| (Order::Random, kind));
    let [base, huge] = chases(&report.latency.rows, pages)?;
    let [base_page, huge_page] = [report.machine.pages.base_bytes(), report.machine.pages.huge_bytes()];
    Some(Loss {
        what: format!("random loads from memory in {base_page} pages, against {huge_page} pages"),
        factor: base.latency_ns?.over(huge.latency_ns?),
        than: "slower",
        cure: "madvise(MADV_HUGEPAGE), or a huge-page pool, for large tables".into(),
    })
}

fn one_core(report: &Report) -> Option<Loss> {
    let most = most_threads(report, "load");
    let (one, all) = (in_memory(report, "load", 1)?, in_memory(report, "load", most).filter(|_| most > 1)?);
    Some(Loss {
        what: format!("reading memory with one core: {} of {}", gbps(one.value()), BytesPerSecond(all.value())),
        factor: all.over(one),
        than: "slower",
        cure: format!("share the loop among {}", threads(most)),
    })
}

/// CPUs that a host runs close together.
fn close_together(report: &Report) -> Option<Loss> {
    let states = report.host_states.as_ref()?;
    let level = |row: &BandwidthRow| row.level.as_deref() == Some("memory");
    let effect = states.effects.iter().find(|effect| level(&report.rows[effect.row]))?;
    let row = &report.rows[effect.row];
    Some(Loss {
        what: format!(
            "{} in memory by {} that the host runs close together, as in {} of the visits, against far apart",
            row.kernel_and_store(),
            threads(row.threads()),
            percent(states.close_share())
        ),
        factor: effect.factor,
        than: "slower",
        cure: "dedicated cores behind several last-level caches; see section `host`".into(),
    })
}

/// Threads that have less than their cores: caches feel it most.
fn shared_cores(report: &Report) -> Option<Loss> {
    let shared = &report.shared_cores;
    let [ratio, low, high] = shared.in_caches.filter(|_| shared.are_seen())?;
    let share = percent(shared.share());
    Some(Loss {
        what: format!(
            "kernels of several threads in L1 and L2 while one has less than its core, as beside {share} of the samples"
        ),
        factor: [ratio, high, low].map(|ratio| 1.0 / ratio),
        than: "slower",
        cure: cure::shared_core(report.machine.is_virtual(), shared.are_of_others(report.host_states.as_ref())).into(),
    })
}

/// Caches that give less than they claim.
fn small_caches(levels: &[Level]) -> Vec<Loss> {
    let small = |level: &Level| {
        let (claimed, capacity) = (level.claimed?, level.capacity?);
        let factor = |capacity: Bytes| claimed.0 as f64 / capacity.0.max(1) as f64;
        let [low, high] = level.capacity_ci95.unwrap_or([capacity; 2]);
        Some(Loss {
            what: format!("{} ends at {capacity}, not at the {claimed} that it claims", level.name),
            factor: [factor(capacity), factor(high), factor(low)],
            than: "smaller",
            // Where it ends the curve has fallen already.
            cure: format!("block for {}: others share the cache, or the hypervisor misstates it", level.to.min(low)),
        })
    };
    levels.iter().filter_map(small).filter(|loss| loss.factor[1] > LEAST_SMALLER).collect()
}

/// What the verdict knows beside these.
fn causes(report: &Report) -> Vec<Loss> {
    use CauseKind::{CoreNeighbour, FewCores, PageSize, SharedCore, WriteAllocate};
    const TOLD: [CauseKind; 5] = [WriteAllocate, PageSize, FewCores, SharedCore, CoreNeighbour];
    let Some(gap) = &report.verdict.gap else { return Vec::new() };
    let loss = |cause: &Cause| {
        let factor = 1.0 + cause.gives_back_bps? / gap.reached_bps;
        let basis = if cause.basis == GainBasis::Estimated { " (estimated)" } else { "" };
        Some(Loss {
            what: format!("{}: {}{basis}", cause.cause, cause.evidence),
            factor: [factor; 3],
            than: "slower",
            cure: cause.cure.clone(),
        })
    };
    let others = report.verdict.causes.iter().filter(|cause| !TOLD.contains(&cause.cause));
    others.filter_map(loss).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::latency::rows::LatencyFigures;
    use crate::quality::{Quality, Status};
    use crate::row::Row;
    use membound_core::case::{Case, USUAL_MEMORY, Work, steady};
    use membound_core::kernel::Width;
    use membound_core::kernel::chase::Chase;

    /// As of a run that was cut off, or had a time for each order: beyond the last cache a larger set takes longer by itself.
    #[test]
    fn orders_are_compared_over_one_size() {
        let row = |order, mib| {
            let case = steady("load", Width::Scalar, StoreKind::Regular, USUAL_MEMORY, vec![0], Bytes::mib(mib));
            let figures = LatencyFigures {
                node: None,
                level: Some("memory".into()),
                last_level: None,
                latency_ns: None,
                latency_cycles: None,
                core_clock_hz: None,
                obtained: None,
            };
            let quality = Quality { samples: 9, rounds: 3, outcome: Status::Measured, reason: None, flags: Vec::new() };
            Row { case: Case { work: Work::Chase(Chase::of(order)), ..case }, quality, figures }
        };
        let sizes = |rows: &[LatencyRow]| {
            let orders = [Order::Random, Order::Forward].map(|order| (order, MemoryKind::Thp));
            chases(rows, orders).map(|pair| pair.map(|row| row.case.working_set))
        };
        let rows =
            [row(Order::Forward, 64), row(Order::Forward, 128), row(Order::Random, 128), row(Order::Random, 512)];
        assert_eq!(sizes(&rows), Some([Bytes::mib(128); 2]));
        assert_eq!(sizes(&rows[..1]), None);
    }

    /// 260 MiB are claimed, and of a curve that ends at 47 (40 to 52) the level's own speed holds to 32 MiB.
    #[test]
    fn blocks_are_for_what_is_still_in_the_cache() {
        let level = |to| Level {
            name: "L3".into(),
            to: Bytes::mib(to),
            capacity: Some(Bytes::mib(47)),
            capacity_ci95: Some([Bytes::mib(40), Bytes::mib(52)]),
            claimed: Some(Bytes::mib(260)),
            ..Level::default()
        };
        for (to, cure) in [(32, "block for 32 MiB:"), (46, "block for 40 MiB:")] {
            let [loss] = &small_caches(&[level(to)])[..] else { panic!("260 MiB are five times 52") };
            assert!(loss.cure.starts_with(cure), "{}", loss.cure);
        }
    }

    #[test]
    fn a_size_that_is_not_known_well_has_both_ends() {
        let mib = |mib: f64| mib * 1024.0 * 1024.0;
        assert_eq!(from_size([mib(22.0), mib(21.0), mib(23.0)]), "22 MiB");
        assert_eq!(from_size([mib(22.0), mib(4.0), mib(64.0)]), "64 MiB (perhaps from 4 MiB)");
    }
}
