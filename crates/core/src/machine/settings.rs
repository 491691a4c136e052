//! Settings of the kernel that change what a memory benchmark sees.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::cpus::Cpu;
use crate::machine::cpuset::CpuSet;
use crate::machine::fact::Fact;
use crate::machine::source::Source;

/// Settings of the kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Settings {
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub thp: Fact<String>,
    /// What a page fault does when no huge page is free: `always`, `defer`, `defer+madvise`, `madvise`, `never`.
    pub thp_defrag: Fact<String>,
    /// Automatic NUMA balancing: 0 off, 1 on, 2 for memory tiers.
    pub numa_balancing: Fact<u32>,
    /// Bits: 1 reclaim the near node before using another, 2 write pages out for it, 4 swap for it.
    pub zone_reclaim_mode: Fact<u32>,
    /// Whether cold pages move to a slower tier when memory is short.
    pub demotion: Fact<bool>,
    /// 0 heuristic, 1 always, 2 never overcommit.
    pub overcommit_memory: Fact<u32>,
    /// The governors in use, each once.
    pub governors: Fact<Vec<String>>,
    /// Whether cores may run above their base frequency.
    pub boost: Fact<bool>,
    /// Simultaneous multithreading: `on`, `off`, `forceoff`, `notsupported`, `notimplemented`.
    pub smt: Fact<String>,
    /// CPUs that the scheduler leaves alone.
    pub isolated: Fact<CpuSet>,
}

pub(crate) fn read(source: &Source, cpus: &[Cpu]) -> Settings {
    const THP: &str = "sys/kernel/mm/transparent_hugepage";
    const CPU: &str = "sys/devices/system/cpu";
    let no_turbo = || source.number::<u32>(&format!("{CPU}/intel_pstate/no_turbo")).map(|off| off == 0);
    Settings {
        thp: source.choice(&format!("{THP}/enabled")),
        thp_defrag: source.choice(&format!("{THP}/defrag")),
        numa_balancing: source.number("proc/sys/kernel/numa_balancing"),
        zone_reclaim_mode: source.number("proc/sys/vm/zone_reclaim_mode"),
        demotion: demotion(source),
        overcommit_memory: source.number("proc/sys/vm/overcommit_memory"),
        governors: governors(cpus),
        boost: source.number::<u32>(&format!("{CPU}/cpufreq/boost")).map(|on| on != 0).or_else(no_turbo),
        smt: source.word(&format!("{CPU}/smt/control")),
        isolated: source.list(&format!("{CPU}/isolated")),
    }
}

fn demotion(source: &Source) -> Fact<bool> {
    const FILE: &str = "sys/kernel/mm/numa/demotion_enabled";
    source.text(FILE).and_then(|text| match text.as_str() {
        "true" | "1" => Fact::Known(true),
        "false" | "0" => Fact::Known(false),
        _ => Fact::absent(format!("/{FILE} is neither true nor false")),
    })
}

fn governors(cpus: &[Cpu]) -> Fact<Vec<String>> {
    let clocks = cpus.iter().filter_map(|cpu| cpu.frequency.known());
    let mut names: Vec<String> = clocks.filter_map(|clock| clock.governor.known().cloned()).collect();
    names.sort();
    names.dedup();
    match names.is_empty() {
        true => Fact::absent("no CPU has a /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"),
        false => Fact::Known(names),
    }
}
