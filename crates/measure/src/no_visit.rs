//! Why a visit gave nothing: each reason with its values, and which outcome of a case it makes.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use crate::code::Fault;
use crate::memory::no_memory::NoMemory;
use crate::os::faults::TakenAway;
use membound_core::kernel::Unsupported;
use membound_core::memory::MemorySpec;
use membound_core::record::Outcome;

/// Why a visit gave nothing. Its text is what the record keeps; where there is a cure, it names it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NoVisit {
    /// This thread may not run on a CPU.
    #[error(
        "CPU {cpu} can't be used ({fault}): it is offline, or this process may not use it any more; allow that CPU \
         (cpuset, taskset) or exclude it with --cpus"
    )]
    Cpu {
        /// The CPU.
        cpu: u32,
        /// The kernel's answer.
        fault: Arc<std::io::Error>,
    },
    /// A thread was refused.
    #[error(
        "a measuring thread could not be started ({0}); raise the limit on processes (ulimit -u, pids.max of the control \
         group)"
    )]
    Thread(Arc<std::io::Error>),
    /// Memory was refused, or an operation on it.
    #[error(transparent)]
    Memory(Arc<NoMemory>),
    /// The memory may not be written to, and must be.
    #[error("{0} memory may only be read; choose another kind")]
    ReadOnly(Box<MemorySpec>),
    /// The same, where it matters why.
    #[error("{0}; choose a kind that may be written")]
    Unwritable(&'static str),
    /// There is no such code for this processor.
    #[error(transparent)]
    Unsupported(Box<Unsupported>),
    /// Executable memory was refused.
    #[error("executable memory was refused ({0}); a security policy that forbids generated code must allow it")]
    Code(Arc<std::io::Error>),
    /// It is made for one thread.
    #[error("{0} one thread; name one CPU")]
    OneThread(&'static str),
    /// It is made for two cores at least.
    #[error("it needs two cores{0}")]
    TwoCores(&'static str),
    /// Another thread was waited for in vain.
    #[error("CPU {cpu} did not answer for {} s: another task holds it; free it, or leave it out with --cpus", .patience.as_secs())]
    NoAnswer {
        /// Where that thread is.
        cpu: u32,
        /// How long it was waited for.
        patience: Duration,
    },
    /// Some of the other threads were waited for in vain.
    #[error(
        "a loading thread was not ready in {} s: another task holds its CPU; leave it out with --cpus",
        .patience.as_secs()
    )]
    NotReady {
        /// How long they were waited for.
        patience: Duration,
    },
    /// The user or another thread ended it.
    #[error("it was stopped before a sample was done")]
    Stopped,
    /// The same, where samples are kept by whole sweeps.
    #[error("it was interrupted before the first sweep was done")]
    NoSweep,
    /// Two readings of the clock contradict each other.
    #[error("the clock was set back during a sample, as by a suspend; measure again")]
    SetBack,
    /// There was too little time.
    #[error("the time ended before a sample was done")]
    OutOfTime,
    /// Whatever else this machine, this process or this build can't do; said in a sentence.
    #[error("{0}")]
    Impossible(Cow<'static, str>),
    /// The kernel was ended by a signal.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// Memory was lost while it was filled or checked.
    #[error(transparent)]
    TakenAway(#[from] TakenAway),
    /// Whatever else went wrong while it ran; said in a sentence.
    #[error("{0}")]
    Broken(String),
    /// The machine code and its twin in plain Rust come to different results.
    #[error("the generated code disagrees with plain Rust{0}")]
    Disagrees(String),
    /// It ran, but what it left behind, or what it ran on, is not what it must be; said in a sentence.
    #[error("{0}")]
    Wrong(String),
}

impl NoVisit {
    /// What this machine, this process or this build can't do.
    pub fn impossible(reason: impl Into<Cow<'static, str>>) -> Self {
        NoVisit::Impossible(reason.into())
    }

    /// A device that is not there.
    pub fn no_device(name: membound_core::machine::devices::DeviceName) -> Self {
        NoVisit::impossible(format!("there is no {name}; `membound devices` lists what there is"))
    }

    /// Whether it went wrong while it ran: memory may be missing since.
    pub fn is_crash(&self) -> bool {
        use NoVisit::{Broken, Fault, TakenAway};
        matches!(self, Fault(_) | TakenAway(_) | Broken(_))
    }

    /// Whether the run has taken all that it may: what it does not need now can be given back.
    pub fn is_beyond_allowance(&self) -> bool {
        matches!(self, NoVisit::Memory(fault) if matches!(**fault, NoMemory::Allowance { .. }))
    }

    /// Whether it ran, with a result that can't be.
    fn is_wrong(&self) -> bool {
        matches!(self, NoVisit::Disagrees(_) | NoVisit::Wrong(_) | NoVisit::SetBack)
    }
}

impl From<Unsupported> for NoVisit {
    fn from(fault: Unsupported) -> Self {
        NoVisit::Unsupported(Box::new(fault))
    }
}

impl From<NoMemory> for NoVisit {
    fn from(fault: NoMemory) -> Self {
        NoVisit::Memory(Arc::new(fault))
    }
}

impl From<NoVisit> for Outcome {
    fn from(why: NoVisit) -> Self {
        let reason = why.to_string();
        match why {
            why if why.is_crash() => Outcome::Crashed { reason },
            why if why.is_wrong() => Outcome::Invalid { reason },
            _ => Outcome::Unavailable { reason },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_into_a_fault_is_a_crash_and_what_comes_out_wrong_is_invalid() {
        let refused = std::io::Error::from_raw_os_error(libc::EAGAIN);
        let outcome = Outcome::from(NoVisit::Thread(Arc::new(refused)));
        let Outcome::Unavailable { reason } = outcome else { panic!("{outcome:?}") };
        assert!(reason.contains("could not be started (Resource") && reason.contains("ulimit -u"), "{reason}");
        let reason = "the generated code disagrees with plain Rust at offset 3".to_string();
        assert_eq!(Outcome::from(NoVisit::Disagrees(" at offset 3".into())), Outcome::Invalid { reason });
        let reason = "the thread ended".to_string();
        assert_eq!(Outcome::from(NoVisit::Broken(reason.clone())), Outcome::Crashed { reason });
    }
}
