//! Which thread runs on which CPU.

use crate::in_order::distinct;
use crate::machine::Machine;
use crate::machine::cpuset::CpuSet;

/// Why a placement is impossible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// A CPU that this process may not use.
    #[error("CPU {cpu} can't be used here; the usable CPUs are {usable} (see `membound machine` for what limits them)")]
    NotUsable {
        /// The CPU asked for.
        cpu: u32,
        /// Those there are.
        usable: CpuSet,
    },
    /// More threads than CPUs.
    #[error("{threads} threads need {threads} CPUs, and {usable} can be used; give --threads {usable} or fewer")]
    TooManyThreads {
        /// Threads asked for.
        threads: usize,
        /// CPUs there are.
        usable: usize,
    },
    /// A list without a CPU in it.
    #[error("the list of CPUs is empty; name some of those that are usable, {usable}, or leave --cpus out")]
    NoneNamed {
        /// Those there are.
        usable: CpuSet,
    },
    /// No CPU at all.
    #[error(
        "no CPU is known that this process may run on: /sys/devices/system/cpu and /proc/self/status do not tell, or name different ones; show the machine's own"
    )]
    NoCpu,
    /// No thread at all.
    #[error("a measurement needs at least one thread and one CPU; give --threads 1 or more")]
    NoThread,
}

/// CPUs in the order in which threads fill them: one hardware thread of each core first, neighbours within a cache
/// before the next cache, one package after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    order: Vec<u32>,
}

impl Placement {
    /// All usable CPUs of `machine`, or only `cpus` of them.
    pub fn new(machine: &Machine, cpus: Option<&CpuSet>) -> Result<Self, PlacementError> {
        let usable = machine.usable_cpus();
        if let Some(cpu) = cpus.and_then(|cpus| cpus.iter().find(|cpu| !usable.contains(*cpu))) {
            return Err(PlacementError::NotUsable { cpu, usable });
        }
        if cpus.is_some_and(CpuSet::is_empty) && !usable.is_empty() {
            return Err(PlacementError::NoneNamed { usable });
        }
        let order = machine.topology_order(cpus.unwrap_or(&usable));
        if order.is_empty() { Err(PlacementError::NoCpu) } else { Ok(Placement { order }) }
    }

    /// The CPUs of the first `threads` threads.
    pub fn first(&self, threads: usize) -> Result<Vec<u32>, PlacementError> {
        match threads {
            0 => Err(PlacementError::NoThread),
            _ if threads > self.order.len() => {
                Err(PlacementError::TooManyThreads { threads, usable: self.order.len() })
            }
            _ => Ok(self.order[..threads].to_vec()),
        }
    }

    /// CPUs there are.
    pub fn most(&self) -> usize {
        self.order.len()
    }
}

/// Counts of a scaling curve: every one up to 4, then two for each doubling, and all.
pub fn scaling(most: usize) -> Vec<usize> {
    let steps = (2..).flat_map(|k| [1usize << k, 3 << (k - 1)]).take_while(|n| *n < most);
    distinct((1..=most.min(4)).chain(steps).chain((most > 0).then_some(most)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(n: u32) -> Placement {
        Placement { order: (0..n).collect() }
    }

    #[test]
    fn a_scaling_curve_has_two_steps_a_doubling() {
        assert!(scaling(0).is_empty());
        assert_eq!(scaling(1), [1]);
        assert_eq!(scaling(2), [1, 2]);
        assert_eq!(scaling(6), [1, 2, 3, 4, 6]);
        assert_eq!(scaling(24), [1, 2, 3, 4, 6, 8, 12, 16, 24]);
    }

    #[test]
    fn too_many_threads_are_refused_with_the_cure() {
        let error = of(2).first(3).unwrap_err();
        assert!(error.to_string().contains("give --threads 2 or fewer"), "{error}");
        assert_eq!(of(2).first(2), Ok(vec![0, 1]));
    }
}
