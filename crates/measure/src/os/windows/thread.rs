//! Threads: where they run, and what disturbs them. CPUs have numbers as in Linux: 64 to a processor group.

#![allow(unsafe_code)]

use std::io;
use std::sync::OnceLock;

pub use crate::os::alike::ThreadUsage;
use membound_core::machine::cpuset::CpuSet;
use membound_core::record::Sample;
use windows_sys::Win32::Foundation::{CloseHandle, FILETIME, HANDLE};
use windows_sys::Win32::System::Kernel::PROCESSOR_NUMBER;
use windows_sys::Win32::System::SystemInformation::GROUP_AFFINITY;
use windows_sys::Win32::System::Threading::{
    GetActiveProcessorCount, GetActiveProcessorGroupCount, GetCurrentProcess, GetCurrentProcessorNumberEx,
    GetCurrentThread, GetCurrentThreadId, GetProcessAffinityMask, GetProcessGroupAffinity, GetThreadGroupAffinity,
    GetThreadTimes, OpenThread, SetThreadGroupAffinity, THREAD_QUERY_INFORMATION, THREAD_SET_INFORMATION,
};

use super::{checked, time};

/// CPUs of a processor group, at most.
pub(super) const GROUP: u32 = 64;

/// Pins the calling thread to one CPU.
pub fn pin(cpu: u32) -> io::Result<()> {
    // While it can be told.
    affinity();
    let group = u16::try_from(cpu / GROUP).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let at = GROUP_AFFINITY { Mask: 1 << (cpu % GROUP), Group: group, Reserved: [0; 3] };
    // SAFETY: reads the affinity, and acts on the calling thread.
    checked(unsafe { SetThreadGroupAffinity(GetCurrentThread(), &at, std::ptr::null_mut()) })
}

/// The CPUs that this process may run on. Where there are several groups, it may use all, unless whoever started it named some CPUs of
/// one. Absent where it may use all of several groups.
pub fn affinity() -> Option<CpuSet> {
    // SAFETY: asks for a number.
    if unsafe { GetActiveProcessorGroupCount() } == 1 {
        return allowed(0);
    }
    // Once threads are pinned to other groups, no mask is told any more.
    static AT_START: OnceLock<Option<CpuSet>> = OnceLock::new();
    AT_START.get_or_init(|| only_group().and_then(allowed)).clone()
}

/// The group that this process is in, if it is in one.
fn only_group() -> Option<u16> {
    let (mut count, mut group) = (1, 0);
    // SAFETY: there is room for one number, as is told; with more the call fails.
    let is_told = unsafe { GetProcessGroupAffinity(GetCurrentProcess(), &mut count, &mut group) } != 0;
    (is_told && count == 1).then_some(group)
}

/// What the mask says of this process, whose only group this is. Of several groups a whole one is no choice of anybody's: it is where
/// Windows put the process.
fn allowed(group: u16) -> Option<CpuSet> {
    let (mut process, mut system) = (0usize, 0usize);
    // SAFETY: writes two masks.
    let is_told = unsafe { GetProcessAffinityMask(GetCurrentProcess(), &mut process, &mut system) } != 0;
    // SAFETY: asks for a number.
    let groups = unsafe { GetActiveProcessorGroupCount() };
    // A process in several groups is told zeros.
    let is_chosen = is_told && process != 0 && (groups == 1 || process != system);
    is_chosen.then(|| cpus_of(group, process))
}

/// The CPUs of a group's mask.
fn cpus_of(group: u16, mask: usize) -> CpuSet {
    (0..GROUP).filter(|cpu| mask >> cpu & 1 == 1).map(|cpu| u32::from(group) * GROUP + cpu).collect()
}

/// The first CPU's group, and the mask of those in it.
fn group_of(cpus: &CpuSet) -> Option<(u16, usize)> {
    let group = cpus.iter().next()? / GROUP;
    let mask = cpus.iter().filter(|cpu| cpu / GROUP == group).fold(0, |mask, cpu| mask | 1usize << (cpu % GROUP));
    Some((u16::try_from(group).ok()?, mask))
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

/// Lets a thread of this process run wherever the process may, in one group. No thread has number 0.
pub fn unpin(thread: u32) {
    if thread == 0 {
        return;
    }
    let told = affinity().and_then(|cpus| group_of(&cpus));
    let (group, mask) = told.unwrap_or_default();
    let mut every = GROUP_AFFINITY { Mask: mask, Group: group, Reserved: [0; 3] };
    // SAFETY: a handle of our own, closed below; should the thread have ended, there is none. Where no CPUs are told, the thread gets
    // all of the group that it is in.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_by_hand() {
        let cpus = cpus_of(1, 0b1010);
        assert_eq!(cpus.to_string(), "65,67");
        assert_eq!(group_of(&cpus), Some((1, 0b1010)));
        assert_eq!(group_of(&[63, 64].into_iter().collect()), Some((0, 1 << 63)));
        assert_eq!(group_of(&CpuSet::from_iter([])), None);
    }

    #[test]
    fn a_thread_that_is_let_go_may_run_where_the_process_may() {
        let Some(all) = affinity() else { return };
        std::thread::spawn(move || {
            pin(all.iter().next().unwrap()).unwrap();
            unpin(thread_id());
            let mut now = GROUP_AFFINITY { Mask: 0, Group: 0, Reserved: [0; 3] };
            // SAFETY: writes the affinity of this thread.
            assert!(unsafe { GetThreadGroupAffinity(GetCurrentThread(), &mut now) } != 0);
            assert_eq!(cpus_of(now.Group, now.Mask), all);
            assert_eq!(affinity(), Some(all));
        })
        .join()
        .unwrap();
    }
}
