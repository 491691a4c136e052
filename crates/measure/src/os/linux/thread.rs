//! Threads: where they run, and what disturbs them.

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;

use super::time::clock_ns;
use membound_core::machine::cpuset::CpuSet;
use membound_core::record::Sample;

/// Pins the calling thread to one CPU.
pub fn pin(cpu: u32) -> io::Result<()> {
    // The kernel takes masks longer than its own; 64 Ki CPUs are more than any Linux has.
    let mut mask = vec![0u64; cpu as usize / 64 + 1];
    mask[cpu as usize / 64] |= 1 << (cpu % 64);
    // SAFETY: the kernel reads `size` bytes of `mask`; pid 0 is the calling thread.
    let result = unsafe { libc::sched_setaffinity(0, mask.len() * 8, mask.as_ptr().cast()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The CPUs that this process may run on; absent where the kernel does not say.
pub fn affinity() -> Option<CpuSet> {
    let mut mask = [0u64; 1024];
    let pid = std::process::id() as libc::pid_t;
    // SAFETY: the kernel writes at most `size` bytes of `mask`.
    let result = unsafe { libc::sched_getaffinity(pid, size_of_val(&mask), mask.as_mut_ptr().cast()) };
    let bits = (0u32..)
        .zip(mask)
        .flat_map(|(word, bits)| (0..64).filter(move |at| bits >> at & 1 == 1).map(move |at| 64 * word + at));
    (result >= 0).then(|| bits.collect())
}

/// The CPU that the calling thread is on.
pub fn current_cpu() -> Option<u32> {
    // SAFETY: no arguments; a negative answer means that it is unknown.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// The kernel's number of the calling thread.
pub fn thread_id() -> u32 {
    // SAFETY: no arguments; it always succeeds.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Lets a thread of this process run wherever the process may. No thread has number 0.
pub fn unpin(thread: u32) {
    let every = [u64::MAX; 1024];
    if thread > 0 {
        // SAFETY: the kernel reads `size` bytes of `every`. Should the thread have ended, it refuses.
        unsafe { libc::sched_setaffinity(thread as libc::pid_t, size_of_val(&every), every.as_ptr().cast()) };
    }
}

/// Another thread of this process, watched from outside: it is busy being measured.
#[derive(Debug)]
pub struct Peer {
    status: String,
    cpu: u32,
    switches: u32,
}

impl Peer {
    /// The thread with this number, which is pinned to `cpu`.
    pub fn new(thread: u32, cpu: u32) -> Self {
        let mut peer = Peer { status: format!("/proc/self/task/{thread}/status"), cpu, switches: 0 };
        peer.since_last();
        peer
    }

    /// Involuntary context switches since this was last asked, and whether the kernel lets it run elsewhere by now (its
    /// CPU went offline or left the cpuset). Nothing, where that can't be read.
    pub fn since_last(&mut self) -> (u32, bool) {
        let status = std::fs::read_to_string(&self.status).unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let switches = field("nonvoluntary_ctxt_switches:").and_then(|n| n.parse().ok()).unwrap_or(self.switches);
        let is_moved = field("Cpus_allowed_list:").is_some_and(|list| list != self.cpu.to_string());
        (switches.saturating_sub(std::mem::replace(&mut self.switches, switches)), is_moved)
    }

    /// Adds to a sample what disturbed this thread since this was last asked.
    pub fn disturb(&mut self, sample: &mut Sample) {
        let (switches, is_moved) = self.since_last();
        sample.switches += switches;
        sample.migrations += u32::from(is_moved);
    }
}

/// Counters of the calling thread since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadUsage {
    /// CPU time in nanoseconds.
    pub cpu_ns: u64,
    /// Wall time in nanoseconds.
    pub wall_ns: u64,
    /// Involuntary context switches.
    pub switches: u64,
    /// Page faults.
    pub faults: u64,
}

impl ThreadUsage {
    /// Reads the counters: two clock readings and a system call, below a microsecond.
    pub fn now() -> Self {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: getrusage fills the struct it is given; all-zero is valid should it fail.
        let usage = unsafe {
            libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
            usage.assume_init()
        };
        ThreadUsage {
            cpu_ns: clock_ns(libc::CLOCK_THREAD_CPUTIME_ID),
            wall_ns: clock_ns(libc::CLOCK_MONOTONIC),
            switches: usage.ru_nivcsw as u64,
            faults: (usage.ru_minflt + usage.ru_majflt) as u64,
        }
    }

    /// What the calling thread has lost since then, as a sample's columns.
    pub fn until_now(self) -> Sample {
        let now = ThreadUsage::now();
        let lost_ns = (now.wall_ns - self.wall_ns).saturating_sub(now.cpu_ns - self.cpu_ns);
        let short = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        Sample {
            lost_us: short(lost_ns / 1000),
            switches: short(now.switches - self.switches),
            faults: short(now.faults - self.faults),
            ..Sample::default()
        }
    }
}
