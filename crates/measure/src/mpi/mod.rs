//! Processes that send each other messages, by whatever MPI started them.
//!
//! The library is not linked: it is loaded when a command needs it, so the same binary runs without any MPI, under Open
//! MPI, and under MPICH and those that share its ABI. Calls are made by the one thread that joined ([`Mpi`] can't leave
//! it), never from a signal handler, and every error is a value: none ends the process.

pub mod calls;
pub mod launcher;
pub mod library;

use crate::linkage::{IS_STATIC, STATIC};
use crate::mpi::launcher::launched;
use crate::mpi::library::OVERRIDE;
use membound_core::record::world::{Launcher, Library, ThreadLevel};

use std::ffi::c_int;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::mpi::calls::{Calls, Refusal, Request};

/// Why something with MPI can't be done; the text names the cure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MpiError {
    /// This process was started alone.
    #[error(
        "no MPI launcher started this process; start it as one of several, such as `mpirun -np 2 membound ...` or \
         `srun -n 2 membound ...`"
    )]
    NotLaunched,
    /// This program can load no library at all.
    #[error("no MPI: {STATIC}")]
    Static,
    /// No library to load.
    #[error(
        "no {library} can be loaded (tried {tried}); install it, add its folder to LD_LIBRARY_PATH (on a cluster: load the \
         MPI's module), or name the file: {OVERRIDE}=/path/to/libmpi.so"
    )]
    Missing {
        /// What was looked for.
        library: String,
        /// Names tried, and what the loader said of the last.
        tried: String,
    },
    /// A library that is none, or one whose handles look unlike any known here.
    #[error(
        "{library} is no MPI that this membound can talk to: {said}; it can talk to Open MPI, and to MPICH and those of \
         its ABI (Intel MPI, MVAPICH, Cray MPICH): name one with {OVERRIDE}=/path/to/libmpi.so"
    )]
    UnknownAbi {
        /// The file.
        library: String,
        /// What it says of itself, or lacks.
        said: String,
    },
    /// The library does not know of the processes that the launcher started.
    #[error(
        "the launcher ({launcher}) started {started} processes, but {library} sees {seen}: they are of different kinds; use \
         the library's own mpirun, or under Slurm `srun --mpi=pmi2` (MPICH) or `--mpi=pmix` (Open MPI), or name the \
         library with {OVERRIDE}"
    )]
    OtherWorld {
        /// Who started this process.
        launcher: Launcher,
        /// Processes that it says it started.
        started: usize,
        /// Version of the library.
        library: String,
        /// Processes that the library sees.
        seen: usize,
    },
    /// A thread level that the library does not have.
    #[error("{library} has no thread level {asked}; ask for a lower one, or name another library with {OVERRIDE}")]
    NoSuchLevel {
        /// Version of the library.
        library: String,
        /// The level.
        asked: ThreadLevel,
    },
    /// MPI can be joined once in the life of a process.
    #[error("this process has joined MPI before; that can be done once")]
    Again,
    /// A message longer than a count of MPI.
    #[error("a message of {bytes} bytes is more than MPI can count ({}); send parts of it", c_int::MAX)]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// A rank that there is not.
    #[error("there is no rank {rank} among {size}")]
    NoSuchRank {
        /// The rank.
        rank: usize,
        /// Ranks there are.
        size: usize,
    },
    /// A call failed.
    #[error("{call} failed: {text} (code {code}); a peer may have died: see what the launcher says")]
    Failed {
        /// MPI's name of it.
        call: &'static str,
        /// MPI's code.
        code: i32,
        /// What the library says that it means.
        text: String,
    },
}

/// The world, joined. It is left when this is dropped, and can't be joined again.
pub struct Mpi {
    calls: Calls,
    library: Library,
    threads: ThreadLevel,
    rank: usize,
    size: usize,
    /// Calls are made by the thread that joined.
    in_this_thread: PhantomData<*const ()>,
}

/// A message that waits to be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// Who sent it.
    pub from: usize,
    /// Its length.
    pub bytes: usize,
}

/// A message on its way, to a peer or from one. Its bytes are freed once it is done; dropped before that, they are leaked, as
/// MPI may still read or write them.
pub struct Pending<'a> {
    mpi: &'a Mpi,
    request: Request,
}

static HAS_JOINED: AtomicBool = AtomicBool::new(false);

impl Mpi {
    /// Loads the library that fits the launcher and joins the world; calls are made by this thread alone, whatever the
    /// level would allow. All processes of the launcher must do so.
    ///
    /// # Errors
    /// Where nobody launched this process, no library can be loaded or none is of a known ABI, it has no such level, it
    /// joins another world than the launcher's, or this process has joined before.
    pub fn join(level: ThreadLevel) -> Result<Mpi, MpiError> {
        let launched = launched().ok_or(MpiError::NotLaunched)?;
        if IS_STATIC {
            return Err(MpiError::Static);
        }
        let (calls, library) = load(launched.launcher)?;
        if HAS_JOINED.swap(true, Ordering::SeqCst) {
            return Err(MpiError::Again);
        }
        let failed = |call, code| MpiError::Failed { call, code, text: calls.meaning(code) };
        let provided = calls.init(level.number()).map_err(|code| failed("MPI_Init_thread", code))?;
        let [rank, size] = calls.place().map_err(|code| failed("MPI_Comm_size", code))?;
        // From here on dropping it leaves the world.
        let mpi = Mpi { calls, library, threads: level, rank, size, in_this_thread: PhantomData };
        if provided < level.number() {
            return Err(MpiError::NoSuchLevel { library: mpi.library.version.clone(), asked: level });
        }
        match launched.size {
            Some(started) if started != size => Err(MpiError::OtherWorld {
                launcher: launched.launcher,
                started,
                library: mpi.library.version.clone(),
                seen: size,
            }),
            _ => Ok(mpi),
        }
    }

    /// The level that was asked for.
    pub fn threads(&self) -> ThreadLevel {
        self.threads
    }

    /// This process's number, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Processes there are.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The library.
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// Sends a message; returns when the bytes may be used again, which may be before or after it arrives.
    pub fn send(&self, bytes: &[u8], to: usize, tag: u16) -> Result<(), MpiError> {
        let (count, to) = (count(bytes.len())?, self.peer(to)?);
        self.checked("MPI_Send", self.calls.send(bytes, count, to, tag.into()))
    }

    /// Receives the next message of this sender and tag; returns its length. A longer one than there is room for is an
    /// error.
    pub fn receive(&self, bytes: &mut [u8], from: usize, tag: u16) -> Result<usize, MpiError> {
        let (count, from) = (count(bytes.len())?, self.peer(from)?);
        self.checked("MPI_Recv", self.calls.receive(bytes, count, from, tag.into()))
    }

    /// The same for a message whose length is known: nothing but the receiving itself takes time.
    pub fn accept(&self, bytes: &mut [u8], from: usize, tag: u16) -> Result<(), MpiError> {
        let (count, from) = (count(bytes.len())?, self.peer(from)?);
        self.checked("MPI_Recv", self.calls.accept(bytes, count, from, tag.into()).map(|_status| ()))
    }

    /// Sends and receives at once, to and from the same peer; returns the length of what came.
    pub fn exchange(&self, sent: &[u8], received: &mut [u8], peer: usize, tag: u16) -> Result<usize, MpiError> {
        let (sent_count, received_count, peer) = (count(sent.len())?, count(received.len())?, self.peer(peer)?);
        let came = self.calls.exchange((sent, sent_count), (received, received_count), peer, tag.into());
        self.checked("MPI_Sendrecv", came)
    }

    /// Whether a message with this tag waits, from anyone. It does not block.
    pub fn probe(&self, tag: u16) -> Result<Option<Waiting>, MpiError> {
        let found = self.checked("MPI_Iprobe", self.calls.probe(tag.into()))?;
        Ok(found.map(|[from, bytes]| Waiting { from, bytes }))
    }

    /// Starts to send, and returns at once.
    pub fn start_send(&self, bytes: Vec<u8>, to: usize, tag: u16) -> Result<Pending<'_>, MpiError> {
        let (count, to) = (count(bytes.len())?, self.peer(to)?);
        let request = self.checked("MPI_Isend", self.calls.start_send(bytes, count, to, tag.into()))?;
        Ok(Pending { mpi: self, request })
    }

    /// Starts to receive a message that [`Mpi::probe`] has just found, and returns at once: of a long one only the
    /// announcement may be here yet.
    pub fn start_receive(&self, waiting: Waiting, tag: u16) -> Result<Pending<'_>, MpiError> {
        let (count, from) = (count(waiting.bytes)?, self.peer(waiting.from)?);
        let request = self.checked("MPI_Irecv", self.calls.start_receive(count, from, tag.into()))?;
        Ok(Pending { mpi: self, request })
    }

    /// Waits until all have come here.
    pub fn barrier(&self) -> Result<(), MpiError> {
        self.checked("MPI_Barrier", self.calls.barrier())
    }

    /// Ends this process without leaving the world, which would wait for peers that are gone. The launcher may end the
    /// other processes. What is to be kept must have been written before.
    pub fn abandon(self, code: i32) -> ! {
        crate::os::processes::end_process(code)
    }

    fn peer(&self, rank: usize) -> Result<c_int, MpiError> {
        match c_int::try_from(rank) {
            Ok(peer) if rank < self.size => Ok(peer),
            _ => Err(MpiError::NoSuchRank { rank, size: self.size }),
        }
    }

    fn checked<T>(&self, call: &'static str, result: Result<T, c_int>) -> Result<T, MpiError> {
        result.map_err(|code| MpiError::Failed { call, code, text: self.calls.meaning(code) })
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        // Nobody is left to hear of a failure.
        let _ = self.calls.finalize();
    }
}

impl std::fmt::Debug for Mpi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mpi {{ rank: {}, size: {}, library: {:?} }}", self.rank, self.size, self.library)
    }
}

impl Pending<'_> {
    /// Whether the bytes are on their way for good. It does not block.
    pub fn is_done(&mut self) -> Result<bool, MpiError> {
        self.mpi.checked("MPI_Test", self.mpi.calls.is_done(&mut self.request))
    }

    /// The message, once it is done.
    pub fn into_bytes(self) -> Option<Vec<u8>> {
        self.request.into_bytes()
    }
}

impl std::fmt::Debug for Pending<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pending {{ bytes: {}, is_done: {} }}", self.request.len(), self.request.is_done())
    }
}

fn count(bytes: usize) -> Result<c_int, MpiError> {
    c_int::try_from(bytes).map_err(|_| MpiError::TooLong { bytes })
}

/// The first library that can be loaded. One that can be loaded and is of no known ABI is passed over for another, unless
/// none follows: then it is what there is to say.
fn load(launcher: Launcher) -> Result<(Calls, Library), MpiError> {
    let candidates = library::candidates(launcher, std::env::var_os(OVERRIDE));
    let (mut last, mut unknown) = (String::new(), None);
    for path in &candidates {
        match Calls::load(path) {
            Ok((calls, version)) => {
                let version = version.lines().next().unwrap_or_default().trim().into();
                return Ok((calls, Library { abi: calls.abi(), version, path: path.clone() }));
            }
            Err(Refusal::NotLoaded(said)) => last = said,
            Err(Refusal::Unknown(said)) => {
                unknown.get_or_insert(MpiError::UnknownAbi { library: path.display().to_string(), said });
            }
        }
    }
    let names: Vec<String> = candidates.iter().map(|path: &PathBuf| path.display().to_string()).collect();
    let tried = format!("{}; the loader says: {last}", names.join(", "));
    Err(unknown.unwrap_or_else(|| MpiError::Missing { library: "MPI library".into(), tried }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_cure() {
        let check = |error: MpiError, cure: &str| assert!(error.to_string().contains(cure), "{error}");
        check(MpiError::NotLaunched, "mpirun -np 2 membound");
        check(MpiError::Static, "built for glibc");
        check(MpiError::Missing { library: "MPI".into(), tried: "libmpi.so.40".into() }, "MEMBOUND_MPI=");
        check(MpiError::UnknownAbi { library: "libm.so".into(), said: "it has no MPI_Init".into() }, "MEMBOUND_MPI=");
        check(count(usize::MAX).unwrap_err(), "send parts of it");
    }

    #[test]
    fn a_library_that_is_no_mpi_is_told_by_what_it_lacks() {
        let Err(Refusal::Unknown(said)) = Calls::load(std::path::Path::new("libm.so.6")) else { panic!() };
        assert_eq!(said, "it has no MPI_Get_library_version");
        let Err(Refusal::NotLoaded(said)) = Calls::load(std::path::Path::new("libnone.so.7")) else { panic!() };
        assert!(said.contains("libnone.so.7"), "{said}");
    }
}
