//! Which MPI library to load, and what it turned out to be.

use membound_core::record::world::Abi;
use std::ffi::OsString;
use std::path::PathBuf;

use membound_core::record::world::Launcher;

/// The variable that names the library to load, whatever the launcher.
pub const OVERRIDE: &str = "MEMBOUND_MPI";

/// Names of libraries of each ABI: with the version of the ABI first; without one only where development files are
/// installed. libmpi.so.40 is Open MPI since 3.0, libmpi.so.20 and .12 were earlier ones; libmpi.so.12 is by the MPICH ABI
/// agreement too, so what it is shows only once it is loaded. Debian calls MPICH's libmpich.so.12.
const OPEN_MPI: [&str; 2] = ["libmpi.so.40", "libmpi.so.20"];
const MPICH: [&str; 3] = ["libmpi.so.12", "libmpich.so.12", "libmpi_cray.so.12"];
const EITHER: [&str; 1] = ["libmpi.so"];

/// What to try to load, in this order.
pub(crate) fn candidates(launcher: Launcher, named: Option<OsString>) -> Vec<PathBuf> {
    if let Some(path) = named.filter(|path| !path.is_empty()) {
        return vec![path.into()];
    }
    let all: [&[&str]; 3] = match launcher {
        Launcher::OpenMpi | Launcher::Pmix => [&OPEN_MPI, &EITHER, &MPICH],
        Launcher::Pmi | Launcher::Pals | Launcher::Slurm => [&MPICH, &EITHER, &OPEN_MPI],
    };
    all.concat().iter().map(PathBuf::from).collect()
}

/// What a library is, by what it says of itself and by whether it has Open MPI's symbols. Both must agree.
pub(crate) fn abi(version: &str, has_open_mpi_symbols: bool) -> Option<Abi> {
    /// What libraries of the MPICH ABI say.
    const MPICH_LIKE: [&str; 4] = ["MPICH", "Intel(R) MPI", "MVAPICH", "ParaStation"];
    let says_mpich = MPICH_LIKE.iter().any(|word| version.contains(word));
    match (version.contains("Open MPI"), says_mpich) {
        (true, false) if has_open_mpi_symbols => Some(Abi::OpenMpi),
        (false, true) if !has_open_mpi_symbols => Some(Abi::Mpich),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_symbols_must_agree() {
        let open = "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4, May 26, 2022";
        let mpich = "MPICH Version:\t4.0.2\nMPICH Release date:\tThu Apr  7 12:34:45 CDT 2022\n";
        assert_eq!(abi(open, true), Some(Abi::OpenMpi));
        assert_eq!(abi(open, false), None);
        assert_eq!(abi(mpich, false), Some(Abi::Mpich));
        assert_eq!(abi(mpich, true), None);
        assert_eq!(abi("Intel(R) MPI Library 2021.9 for Linux* OS\n", false), Some(Abi::Mpich));
        assert_eq!(abi("MPI of tomorrow", false), None);
    }

    #[test]
    fn the_launcher_decides_what_is_tried_first_and_the_user_what_is_tried_at_all() {
        let first = |launcher| candidates(launcher, None)[0].clone();
        assert_eq!(first(Launcher::OpenMpi), PathBuf::from("libmpi.so.40"));
        assert_eq!(first(Launcher::Pmi), PathBuf::from("libmpi.so.12"));
        assert_eq!(candidates(Launcher::Pmi, Some("".into())).len(), 6);
        assert_eq!(candidates(Launcher::Pmi, Some("/opt/lib/mine.so".into())), [PathBuf::from("/opt/lib/mine.so")]);
    }
}
