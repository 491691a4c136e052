//! This process, its children and its parent.

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

pub use crate::os::alike::LEASH;

/// Should memory run out after all, the kernel ends this process before any other. Anyone may ask for that; where the file
/// is not there, nothing changes.
pub fn be_first_to_go() {
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
}

/// The parent's number.
pub(crate) fn parent_id() -> u32 {
    std::os::unix::process::parent_id()
}

/// Ends the process at once: no exit handlers, in which an MPI would wait for its peers.
pub(crate) fn end_process(code: i32) -> ! {
    // SAFETY: it takes a number and does not return.
    unsafe { libc::_exit(code) }
}

/// This program once more, under a name, in a process group of its own. Nothing here makes the standard library fork:
/// memory that a network adapter knows must not be copied on write.
pub fn this_program(name: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(name).process_group(0);
    command
}

/// Says to a child that its parent tells it what to do, over its standard input.
const WORKER: &str = "MEMBOUND_WORKER";

/// What a parent and its worker talk over; each end hears the end of the other.
pub type Talk = UnixStream;

/// Both ends of such a talk.
pub(crate) fn talk() -> io::Result<(Talk, Talk)> {
    UnixStream::pair()
}

/// This program once more, as a worker that lives with this process, and what to talk to it over.
pub fn start_worker() -> io::Result<(std::process::Child, Talk)> {
    let (ours, theirs) = talk()?;
    let mut command = this_program("membound");
    command.env(LEASH, std::process::id().to_string()).env(WORKER, "1");
    let process = command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    Ok((process, ours))
}

/// Whether this process is a worker.
pub fn is_worker() -> bool {
    std::env::var_os(WORKER).is_some()
}

/// Where this process is a worker, what it talks to its parent over.
pub fn talk_to_parent() -> Option<io::Result<Talk>> {
    is_worker().then(|| io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from))
}

/// The number of the signal that ended a process, if one did.
pub fn signal_of(status: ExitStatus) -> Option<i32> {
    status.signal()
}

/// Largest resident set of the process so far, in bytes.
pub fn peak_memory() -> u64 {
    usage().ru_maxrss as u64 * 1024
}

/// CPU time of the process so far, over all its threads, in it and in the kernel for it.
pub fn cpu_time() -> Duration {
    let usage = usage();
    let of = |time: libc::timeval| Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64);
    of(usage.ru_utime) + of(usage.ru_stime)
}

fn usage() -> libc::rusage {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: getrusage fills the struct it is given; all-zero is valid should it fail.
    unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    }
}

/// A forked child that shares this process's memory and stands still: it is stopped, so it never runs while something
/// is timed, and takes no signal but the one that ends it. It ends with this value, or with the thread that forked it.
#[derive(Debug)]
pub struct Child {
    pid: libc::pid_t,
}

impl Child {
    /// Forks, and waits until the child stands still.
    pub fn fork() -> io::Result<Self> {
        let parent = std::process::id() as libc::pid_t;
        // SAFETY: the child does nothing but async-signal-safe calls, which a child of several threads may do.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            // SAFETY: this is the child.
            0 => unsafe { stand_still(parent) },
            pid => {
                let child = Child { pid };
                if libc::WIFSTOPPED(child.wait(libc::WUNTRACED)?) {
                    return Ok(child);
                }
                // It is reaped: its number may be another process's by now.
                std::mem::forget(child);
                Err(io::Error::other("the forked child ended at once"))
            }
        }
    }

    fn wait(&self, options: libc::c_int) -> io::Result<libc::c_int> {
        let mut status = 0;
        loop {
            // SAFETY: waitpid writes one int; `pid` is our own child.
            if unsafe { libc::waitpid(self.pid, &mut status, options) } == self.pid {
                return Ok(status);
            }
            let fault = io::Error::last_os_error();
            if fault.kind() != io::ErrorKind::Interrupted {
                return Err(fault);
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: `pid` is our own child, not yet reaped, so the number is still its own.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        let _ = self.wait(0);
    }
}

/// The life of a [`Child`].
///
/// # Safety
/// Only for a process just forked from `parent`.
unsafe fn stand_still(parent: libc::pid_t) -> ! {
    // SAFETY: system calls without memory of ours. Should the parent have died before it could be watched, so do we.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        while libc::getppid() == parent {
            libc::kill(libc::getpid(), libc::SIGSTOP);
        }
        libc::_exit(0)
    }
}

/// From now on this process ends when the thread that started it does; at once, if `parent` is its parent no more.
pub fn live_with(parent: u32) {
    // SAFETY: system calls without memory of ours.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if u32::try_from(libc::getppid()) != Ok(parent) {
            libc::raise(libc::SIGKILL);
        }
    }
}

/// Closes every file but standard input, output and error. Only for a process that has opened nothing itself yet; a kernel
/// before 5.9 leaves them open.
pub fn close_inherited() {
    let (first, last, flags) = (3 as libc::c_uint, libc::c_uint::MAX, 0 as libc::c_uint);
    // SAFETY: no memory of ours; by the promise above nothing here knows any of these files.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
}

/// Asks a process group that a child of this process leads to end. The child must not have been reaped, so that the
/// number is still its own.
pub fn ask_group_to_end(leader: u32) {
    signal_group(leader, libc::SIGTERM);
}

/// Ends such a group; the same holds.
pub fn kill_group(leader: u32) {
    signal_group(leader, libc::SIGKILL);
}

fn signal_group(leader: u32, signal: i32) {
    if let Ok(group) = libc::pid_t::try_from(leader)
        && group > 1
    {
        // SAFETY: a system call without memory of ours.
        unsafe { libc::kill(-group, signal) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(pid: libc::pid_t) -> Option<String> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit(')').next()?.split_whitespace().next().map(Into::into)
    }

    #[test]
    fn a_child_stands_still_and_leaves_nothing() {
        let child = Child::fork().unwrap();
        let pid = child.pid;
        assert_eq!(state(pid).as_deref(), Some("T"), "stopped");
        // Whoever wakes it finds it stopped again.
        // SAFETY: a signal to our own child.
        unsafe { libc::kill(pid, libc::SIGCONT) };
        assert!(libc::WIFSTOPPED(child.wait(libc::WUNTRACED).unwrap()));
        drop(child);
        assert_eq!(state(pid), None, "reaped");
    }
}
