//! Threads: where they run, and what disturbs them. CPUs have numbers as in Linux: 64 to a processor group.

#![allow(unsafe_code)]

use std::io;

pub use crate::os::alike::ThreadUsage;
use membound_core::machine::cpuset::CpuSet;
use membound_core::record::Sample;
use windows_sys::Win32::Foundation::{CloseHandle, FILETIME, HANDLE};
use windows_sys::Win32::System::Kernel::PROCESSOR_NUMBER;
use windows_sys::Win32::System::SystemInformation::GROUP_AFFINITY;
use windows_sys::Win32::System::Threading::{
    GetActiveProcessorCount, GetActiveProcessorGroupCount, GetCurrentProcess, GetCurrentProcessorNumberEx,
    GetCurrentThread, GetCurrentThreadId, GetProcessAffinityMask, GetThreadGroupAffinity, GetThreadTimes, OpenThread,
    SetThreadGroupAffinity, THREAD_QUERY_INFORMATION, THREAD_SET_INFORMATION,
};

use super::{checked, time};

/// CPUs of a processor group, at most.
pub(super) const GROUP: u32 = 64;

/// Pins the calling thread to one CPU.
pub fn pin(cpu: u32) -> io::Result<()> {
    let group = u16::try_from(cpu / GROUP).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let at = GROUP_AFFINITY { Mask: 1 << (cpu % GROUP), Group: group, Reserved: [0; 3] };
    // SAFETY: reads the affinity, and acts on the calling thread.
    checked(unsafe { SetThreadGroupAffinity(GetCurrentThread(), &at, std::ptr::null_mut()) })
}

/// The CPUs that this process may run on: of the first group what its mask says, of others all, as a process may use every group.
pub fn affinity() -> Option<CpuSet> {
    let (mut process, mut system) = (0usize, 0usize);
    // SAFETY: writes two masks.
    let is_told = unsafe { GetProcessAffinityMask(GetCurrentProcess(), &mut process, &mut system) } != 0;
    // SAFETY: asks for a number.
    let groups = unsafe { GetActiveProcessorGroupCount() };
    // A process in several groups is told zeros.
    let is_whole = is_told && groups == 1 && process != 0;
    is_whole.then(|| (0..GROUP).filter(|cpu| process >> cpu & 1 == 1).collect())
}

/// The CPU that the calling thread is on.
pub fn current_cpu() -> Option<u32> {
    let mut at = PROCESSOR_NUMBER { Group: 0, Number: 0, Reserved: 0 };
    // SAFETY: writes the number it is given.
    unsafe { GetCurrentProcessorNumberEx(&mut at) };
    Some(u32::from(at.Group) * GROUP + u32::from(at.Number))
}

/// The system's number of the calling thread.
pub fn thread_id() -> u32 {
    // SAFETY: no arguments; it always succeeds.
    unsafe { GetCurrentThreadId() }
}

/// Lets a thread of this process run wherever the process may in its group. No thread has number 0.
pub fn unpin(thread: u32) {
    if thread == 0 {
        return;
    }
    let told = affinity().map(|cpus| cpus.iter().fold(0, |mask, cpu| mask | 1usize << cpu));
    let mut every = GROUP_AFFINITY { Mask: told.unwrap_or(0), Group: 0, Reserved: [0; 3] };
    // SAFETY: a handle of our own, closed below; should the thread have ended, there is none. What is told is of a machine's only
    // group; else the thread gets all of the group that it is in.
    unsafe {
        let handle: HANDLE = OpenThread(THREAD_SET_INFORMATION | THREAD_QUERY_INFORMATION, 0, thread);
        if !handle.is_null() {
            if told.is_none() && GetThreadGroupAffinity(handle, &mut every) != 0 {
                let unused = GROUP.saturating_sub(GetActiveProcessorCount(every.Group));
                every.Mask = usize::MAX.checked_shr(unused).unwrap_or(0);
            }
            SetThreadGroupAffinity(handle, &every, std::ptr::null_mut());
            CloseHandle(handle);
        }
    }
}

/// Nothing: no launcher binds processes here.
pub fn unbind() {}

/// Another thread of this process, watched from outside: Windows tells nobody who interrupted it.
#[derive(Debug)]
pub struct Peer;

impl Peer {
    /// The thread with this number, which is pinned to `cpu`.
    pub fn new(_thread: u32, _cpu: u32) -> Self {
        Peer
    }

    /// Nothing is told.
    pub fn since_last(&mut self) -> (u32, bool) {
        (0, false)
    }

    /// Nothing is told.
    pub fn disturb(&mut self, _sample: &mut Sample) {}
}

/// A thread's CPU time moves in steps of the system's tick, at most: so much seems lost of any span.
const TICK_NS: u64 = 15_625_000;

impl ThreadUsage {
    /// Reads the counters.
    pub fn now() -> Self {
        let mut times = [FILETIME { dwLowDateTime: 0, dwHighDateTime: 0 }; 4];
        let [created, ended, kernel, user] = &mut times;
        // SAFETY: writes the four times it is given.
        unsafe { GetThreadTimes(GetCurrentThread(), created, ended, kernel, user) };
        let [_, _, kernel, user] = times.map(number);
        ThreadUsage { cpu_ns: 100 * (kernel + user), wall_ns: time::raw_ns(), switches: 0, faults: 0 }
    }

    /// What the calling thread has lost since then, as a sample's columns.
    pub fn until_now(self) -> Sample {
        let now = ThreadUsage::now();
        let wall_ns = now.wall_ns.saturating_sub(self.wall_ns);
        let lost_ns = wall_ns.saturating_sub(now.cpu_ns.saturating_sub(self.cpu_ns));
        let told = lost_ns.saturating_sub(TICK_NS);
        // What is lost of a short span is a tick or nothing.
        let told = if wall_ns >= 10 * TICK_NS { told } else { 0 };
        Sample { lost_us: u32::try_from(told / 1000).unwrap_or(u32::MAX), ..Sample::default() }
    }
}

/// A time as a number of 100 ns.
pub(super) fn number(time: FILETIME) -> u64 {
    u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime)
}
