//! Caches and who shares them.

use crate::in_order::InOrder;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::cpuset::CpuSet;
use crate::machine::fact::{Fact, Unread};
use crate::machine::source::Source;
use crate::units::{Bytes, LINE};

/// What a cache holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CacheKind {
    /// Data only.
    Data,
    /// Instructions only.
    Instruction,
    /// Both.
    Unified,
}

/// One cache: two cores with private caches have two of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cache {
    /// 1 is the nearest to the core.
    pub level: u32,
    /// What it holds.
    pub kind: CacheKind,
    /// Capacity in bytes.
    pub size: Bytes,
    /// Bytes in a line.
    pub line: Bytes,
    /// Lines a set holds. Absent where not reported, as for a fully associative cache.
    pub ways: Fact<u32>,
    /// The CPUs that share it.
    pub cpus: CpuSet,
}

impl fmt::Display for CacheKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            CacheKind::Data => "data",
            CacheKind::Instruction => "instruction",
            CacheKind::Unified => "unified",
        })
    }
}

impl Cache {
    /// Whether loads and stores of a program go through it.
    pub fn holds_data(&self) -> bool {
        self.kind != CacheKind::Instruction
    }
}

/// Whether a cache of this size holds nothing of what those right before it hold, which are together so large. Of one that held it, too,
/// more than half would be copies: no such cache is known, while Skylake's, Ice Lake's and Sapphire Rapids' (1.4, 1.2 and 0.9 times)
/// are filled by what the second levels drop.
pub fn is_beside(own: f64, before: f64) -> bool {
    own < 2.0 * before
}

/// All caches of `cpus`, each once, by level, then first CPU. What exists but has no size goes to `unread`.
pub(crate) fn read(source: &Source, cpus: &CpuSet, unread: &mut Vec<Unread>) -> Vec<Cache> {
    let mut caches: Vec<Cache> = Vec::new();
    for cpu in cpus.iter() {
        let folder = format!("sys/devices/system/cpu/cpu{cpu}/cache");
        for index in source.numbered(&folder, "index") {
            let folder = format!("{folder}/index{index}");
            match shared(source, &folder, cpu) {
                // A sharer has reported this one already: spare its files.
                Fact::Known((level, kind, cpus))
                    if caches.iter().any(|c| c.level == level && c.kind == kind && c.cpus == cpus) => {}
                Fact::Known(shared) => match one(source, &folder, shared) {
                    Fact::Known(cache) => caches.push(cache),
                    Fact::Absent { reason } => Unread::note(unread, format!("cache {index} of CPU {cpu}"), reason),
                },
                Fact::Absent { reason } => Unread::note(unread, format!("cache {index} of CPU {cpu}"), reason),
            }
        }
    }
    if caches.is_empty() {
        Unread::note(unread, "caches".into(), "/sys/devices/system/cpu/cpu*/cache tells of none".into());
    }
    caches.order_by_key(|cache| (cache.level, cache.kind, cache.cpus.first()));
    caches
}

fn shared(source: &Source, folder: &str, cpu: u32) -> Fact<(u32, CacheKind, CpuSet)> {
    // The mask is the older file, and where a recording has been completed by hand it is the one that was.
    let map = source.mask(&format!("{folder}/shared_cpu_map"));
    let told = map.or_else(|| source.list(&format!("{folder}/shared_cpu_list")));
    let cpus = told.and_then(|cpus| match cpus.contains(cpu) {
        true => Fact::Known(cpus),
        false => Fact::absent(format!("/{folder} leaves CPU {cpu} itself out of those that share it")),
    });
    let level = source.number(&format!("{folder}/level"));
    cpus.and_then(|cpus| level.and_then(|level| kind(source, folder).map(|kind| (level, kind, cpus))))
}

fn kind(source: &Source, folder: &str) -> Fact<CacheKind> {
    source.text(&format!("{folder}/type")).and_then(|text| match text.as_str() {
        "Data" => Fact::Known(CacheKind::Data),
        "Instruction" => Fact::Known(CacheKind::Instruction),
        "Unified" => Fact::Known(CacheKind::Unified),
        _ => Fact::absent(format!("/{folder}/type is none of Data, Instruction, Unified")),
    })
}

fn one(source: &Source, folder: &str, (level, kind, cpus): (u32, CacheKind, CpuSet)) -> Fact<Cache> {
    let size = source.size(&format!("{folder}/size"));
    // A device tree need not tell it, which Linux shows by leaving the file out.
    let line = source.size(&format!("{folder}/coherency_line_size")).get().unwrap_or(Bytes(LINE));
    let ways = source.number(&format!("{folder}/ways_of_associativity")).and_then(|ways| match ways {
        0 => Fact::absent(format!("/{folder}/ways_of_associativity says 0, which means not reported")),
        _ => Fact::Known(ways),
    });
    size.map(|size| Cache { level, kind, size, line, ways, cpus })
}
