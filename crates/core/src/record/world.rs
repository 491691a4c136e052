//! The processes that took part, and the library that they spoke by.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::words;

words! {
    /// What starts the processes of a job, and tells each of them who it is.
    Launcher, "launcher" {
        /// Open MPI's mpirun.
        OpenMpi = "Open MPI",
        /// A process manager that speaks PMI: Hydra (MPICH, Intel MPI, MVAPICH), or Slurm's pmi2.
        Pmi = "PMI",
        /// One that speaks PMIx: Slurm's pmix, PRRTE.
        Pmix = "PMIx",
        /// Cray's PALS.
        Pals = "PALS",
        /// Slurm's srun without any of these: its processes do not know of each other.
        Slurm = "Slurm",
    }
}

words! {
    /// How a library's handles and constants look in memory. Source code fits every MPI, binaries only one ABI.
    Abi, "MPI ABI" {
        /// Open MPI, versions 1.3 to 5: handles are addresses of symbols.
        OpenMpi = "Open MPI",
        /// MPICH and those that agreed on its ABI (2013): Intel MPI, MVAPICH, Cray MPICH, ParaStation. Handles are
        /// integers.
        Mpich = "MPICH",
    }
}

words! {
    /// Which of a process's threads may make calls. The more may, the more a library locks: with the first, small messages
    /// take tens of nanoseconds less in some.
    ThreadLevel, "MPI thread level" {
        /// There is but one.
        Single = "single",
        /// The one that joined.
        Funneled = "funneled",
        /// Any, one at a time.
        Serialized = "serialized",
        /// All at once.
        Multiple = "multiple",
    }
}

impl ThreadLevel {
    /// MPI's number for it, the same in both ABIs: they rise with the level.
    pub fn number(self) -> i32 {
        self as i32
    }
}

/// A loaded MPI library.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Library {
    /// How its handles look.
    pub abi: Abi,
    /// What it says of itself (`MPI_Get_library_version`), first line.
    pub version: String,
    /// The name or path that it was loaded by.
    pub path: PathBuf,
}
