//! This process, its children and its parent.

#![allow(unsafe_code)]

use std::io;
use std::io::{Read, Write};
use std::process::{Command, ExitStatus};
use std::time::Duration;

pub use crate::os::alike::LEASH;
use windows_sys::Win32::Foundation::FILETIME;
use windows_sys::Win32::System::ProcessStatus::{K32GetProcessMemoryInfo, PROCESS_MEMORY_COUNTERS};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, GetProcessTimes, TerminateProcess};

use super::lacks;

/// Windows ends no process for want of memory: it refuses memory instead.
pub fn be_first_to_go() {}

/// The parent's number: not told; 0.
pub(crate) fn parent_id() -> u32 {
    0
}

/// Ends the process at once: libraries are not told, which would wait for locks of threads that are gone.
pub(crate) fn end_process(code: i32) -> ! {
    // SAFETY: it ends this process, and takes a number.
    unsafe { TerminateProcess(GetCurrentProcess(), code as u32) };
    // Not reached, unless the system refuses.
    std::process::abort()
}

/// This program once more.
pub fn this_program(_name: &str) -> Command {
    Command::new(std::env::current_exe().unwrap_or_else(|_| "membound.exe".into()))
}

/// What a parent and its worker talk over, on systems that have sockets between two processes.
#[derive(Debug)]
pub enum Talk {}

impl Talk {
    /// There is none.
    pub fn try_clone(&self) -> io::Result<Talk> {
        match *self {}
    }

    /// There is none.
    pub fn set_read_timeout(&self, _span: Option<Duration>) -> io::Result<()> {
        match *self {}
    }
}

impl Read for Talk {
    fn read(&mut self, _to: &mut [u8]) -> io::Result<usize> {
        match *self {}
    }
}

impl Write for Talk {
    fn write(&mut self, _from: &[u8]) -> io::Result<usize> {
        match *self {}
    }

    fn flush(&mut self) -> io::Result<()> {
        match *self {}
    }
}

/// Refused.
pub fn start_worker() -> io::Result<(std::process::Child, Talk)> {
    lacks("workers of this program yet")
}

/// None is.
pub fn is_worker() -> bool {
    false
}

/// No process here is a worker.
pub fn talk_to_parent() -> Option<io::Result<Talk>> {
    None
}

/// No signals end processes here.
pub fn signal_of(_status: ExitStatus) -> Option<i32> {
    None
}

/// Largest working set of the process so far, in bytes.
pub fn peak_memory() -> u64 {
    // SAFETY: all-zero is a valid value of the struct, which the call fills; its length is told.
    let counters = unsafe {
        let mut counters: PROCESS_MEMORY_COUNTERS = std::mem::zeroed();
        K32GetProcessMemoryInfo(GetCurrentProcess(), &mut counters, size_of::<PROCESS_MEMORY_COUNTERS>() as u32);
        counters
    };
    counters.PeakWorkingSetSize as u64
}

/// CPU time of the process so far, over all its threads, in it and in the kernel for it.
pub fn cpu_time() -> Duration {
    let mut times = [FILETIME { dwLowDateTime: 0, dwHighDateTime: 0 }; 4];
    let [created, ended, kernel, user] = &mut times;
    // SAFETY: writes the four times it is given.
    unsafe { GetProcessTimes(GetCurrentProcess(), created, ended, kernel, user) };
    let [_, _, kernel, user] = times.map(super::thread::number);
    Duration::from_nanos(100 * (kernel + user))
}

/// A forked child: Windows has none.
#[derive(Debug)]
pub struct Child;

impl Child {
    /// Refused.
    pub fn fork() -> io::Result<Self> {
        lacks("forked processes")
    }
}

/// Processes of a fleet are Linux's.
pub fn live_with(_parent: u32) {}

/// Windows' children inherit nothing unasked.
pub fn close_inherited() {}

/// Processes of a fleet are Linux's.
pub fn ask_group_to_end(_leader: u32) {}

/// Processes of a fleet are Linux's.
pub fn kill_group(_leader: u32) {}
