//! Who started this process, as far as its environment tells. Nothing is started or opened to find out.

use membound_core::record::world::Launcher;
use std::ffi::OsString;

/// What the environment says of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launched {
    /// Who started it.
    pub launcher: Launcher,
    /// Its number among its peers, from 0.
    pub rank: usize,
    /// How many there are; absent where this launcher does not say.
    pub size: Option<usize>,
}

/// Where each launcher writes rank and size; the first that is there counts. A launcher that is started by another one
/// (mpirun by srun, within an allocation) leaves the other's variables in place, so the inner ones come first.
const VARIABLES: [(Launcher, &str, &[&str]); 5] = [
    (Launcher::OpenMpi, "OMPI_COMM_WORLD_RANK", &["OMPI_COMM_WORLD_SIZE"]),
    (Launcher::Pmi, "PMI_RANK", &["PMI_SIZE"]),
    (Launcher::Pmix, "PMIX_RANK", &["SLURM_STEP_NUM_TASKS"]),
    (Launcher::Pals, "PALS_RANKID", &["PALS_SIZE"]),
    // A batch script has a rank too, but no step: it is not one of several processes.
    (Launcher::Slurm, "SLURM_PROCID", &["SLURM_STEP_NUM_TASKS"]),
];

/// Who started this process as one of several, from the environment alone; nothing where nobody did.
pub fn launched() -> Option<Launched> {
    from(&|name| std::env::var_os(name))
}

fn from(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<Launched> {
    let number = |name: &&str| variable(name)?.to_str()?.parse::<usize>().ok();
    VARIABLES.iter().find_map(|(launcher, rank, sizes)| {
        let (rank, size) = (number(rank)?, sizes.iter().find_map(number));
        let is_alone = *launcher == Launcher::Slurm && size.is_none();
        (!is_alone).then_some(Launched { launcher: *launcher, rank, size })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(variables: &[(&str, &str)], expect: Option<(Launcher, usize, Option<usize>)>) {
        let value = |name: &str| Some(OsString::from(variables.iter().find(|(known, _)| *known == name)?.1));
        let expect = expect.map(|(launcher, rank, size)| Launched { launcher, rank, size });
        assert_eq!(from(&value), expect, "{variables:?}");
    }

    #[test]
    fn the_inner_launcher_counts() {
        check(&[], None);
        let slurm = [("SLURM_PROCID", "3"), ("SLURM_STEP_NUM_TASKS", "4")];
        check(&slurm, Some((Launcher::Slurm, 3, Some(4))));
        let hydra = [("PMI_RANK", "1"), ("PMI_SIZE", "2"), slurm[0], slurm[1]];
        check(&hydra, Some((Launcher::Pmi, 1, Some(2))));
        let open = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "8"), ("PMIX_RANK", "0"), slurm[0]];
        check(&open, Some((Launcher::OpenMpi, 0, Some(8))));
        check(&[("PMIX_RANK", "5")], Some((Launcher::Pmix, 5, None)));
    }

    #[test]
    fn a_batch_script_is_not_launched() {
        check(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")], None);
        check(&[("OMPI_COMM_WORLD_RANK", "first"), ("OMPI_COMM_WORLD_SIZE", "2")], None);
    }
}
