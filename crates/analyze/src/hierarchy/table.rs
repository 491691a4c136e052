//! Columns of levels: each table that has them takes them from here.

use crate::hierarchy::names::{Level, LevelLatency};
use crate::section::Table;
use crate::wording::{spread_as, with_spread, with_spread_to};
use membound_core::units::{Bytes, significant};

/// What is claimed and what was measured.
pub(crate) fn sizes<'a>(table: Table, levels: impl IntoIterator<Item = &'a Level>) -> Table {
    let levels: Vec<&Level> = levels.into_iter().collect();
    let capacity = |level: &Level| {
        let spread = level.capacity_ci95.map_or(String::new(), |[low, high]| {
            let bytes = [level.capacity.unwrap_or_default(), low, high].map(|bytes| bytes.0 as f64);
            format!(" {}", spread_as('±', bytes, |bytes| Bytes(bytes as u64).to_string()))
        });
        level.capacity.map(|capacity| format!("{capacity}{spread}"))
    };
    table
        .right("measured", levels.iter().map(|level| capacity(level)))
        .right("claimed", levels.iter().map(|level| level.claimed.map(|size| size.to_string())))
}

/// How long a dependent load takes.
pub(crate) fn latencies<'a>(table: Table, levels: impl IntoIterator<Item = &'a Level>) -> Table {
    let all: Vec<Option<LevelLatency>> = levels.into_iter().map(|level| level.latency).collect();
    table
        .right("ns", all.iter().map(|latency| Some(with_spread_to((*latency)?.ends, (*latency)?.ns))))
        .right("cycles", all.iter().map(|latency| (*latency)?.cycles.map(significant)))
        .right("disturbed", all.iter().map(|latency| (*latency)?.disturbed_ns.map(with_spread)))
}

/// What `disturbed` is in a table of latencies, where some level has it: `. In the last cache ns is ...`.
pub(crate) fn hits(levels: &[Level]) -> &'static str {
    let is_hit = levels.iter().any(|level| level.latency.is_some_and(|latency| latency.disturbed_ns.is_some()));
    if is_hit {
        ". In the last cache ns is a hit, right after the working set was read; disturbed is without that, with what others \
         evict meanwhile. A wide level's ns is that of its first two octaves: it rises with the number of pages"
    } else {
        ""
    }
}
