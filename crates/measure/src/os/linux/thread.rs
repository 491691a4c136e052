//! Threads: where they run, and what disturbs them.

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use super::time::clock_ns;
pub use crate::os::alike::ThreadUsage;
use membound_core::machine::cpuset::CpuSet;
use membound_core::record::Sample;

/// CPUs, a bit each: 64 Ki are more than any Linux has, and the kernel takes masks longer than its own.
type Mask = [u64; 1024];
/// Every CPU that the control group allows: the kernel leaves out the others.
const EVERY: Mask = [u64::MAX; 1024];

/// What the process was started with (by `taskset`, say), before any thread of it was pinned.
static AT_START: OnceLock<Mask> = OnceLock::new();

/// Pins the calling thread to one CPU.
pub fn pin(cpu: u32) -> io::Result<()> {
    // The first thread that is pinned still has what the process began with.
    AT_START.get_or_init(|| allowed(0).unwrap_or(EVERY));
    let mut mask = vec![0u64; cpu as usize / 64 + 1];
    mask[cpu as usize / 64] |= 1 << (cpu % 64);
    allow(0, &mask)
}

/// The CPUs that this process may run on; absent where the kernel does not say.
pub fn affinity() -> Option<CpuSet> {
    let mask = allowed(std::process::id())?;
    let bits = (0u32..)
        .zip(mask)
        .flat_map(|(word, bits)| (0..64).filter(move |at| bits >> at & 1 == 1).map(move |at| 64 * word + at));
    Some(bits.collect())
}

/// What a thread may run on; 0 is the calling one.
fn allowed(thread: u32) -> Option<Mask> {
    let mut mask: Mask = [0; 1024];
    // SAFETY: the kernel writes at most `size` bytes of `mask`.
    let result =
        unsafe { libc::sched_getaffinity(thread as libc::pid_t, size_of_val(&mask), mask.as_mut_ptr().cast()) };
    (result >= 0).then_some(mask)
}

/// Says what a thread may run on; 0 is the calling one.
fn allow(thread: u32, mask: &[u64]) -> io::Result<()> {
    // SAFETY: the kernel reads `size` bytes of `mask`. Should the thread have ended, it refuses.
    let result = unsafe { libc::sched_setaffinity(thread as libc::pid_t, size_of_val(mask), mask.as_ptr().cast()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
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

/// Lets a thread of this process run wherever the process might when it was started; if all of those CPUs are gone, anywhere. No
/// thread has number 0.
pub fn unpin(thread: u32) {
    let Some(at_start) = AT_START.get().filter(|_| thread > 0) else { return };
    if allow(thread, at_start).is_err() {
        let _ = allow(thread, &EVERY);
    }
}

/// Lets this process run on every CPU that its control group allows, whatever it was bound to. To be called before it has threads.
pub fn unbind() {
    let _ = allow(0, &EVERY);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::skip;

    const CHILD: &str = "MEMBOUND_TEST_BOUND";

    /// In a process of its own, since others pin threads of this one: this test's binary once more, with one CPU.
    #[test]
    fn a_thread_that_is_let_go_stays_where_its_process_was_started() {
        let all: Vec<u32> = affinity().unwrap_or_default().iter().collect();
        let &[first, second, ..] = &all[..] else {
            skip("this machine has one CPU");
            return;
        };
        if std::env::var_os(CHILD).is_some() {
            let mut bound: Mask = [0; 1024];
            bound[first as usize / 64] = 1 << (first % 64);
            allow(0, &bound).unwrap();
            pin(second).unwrap();
            unpin(thread_id());
            assert_eq!(allowed(0), Some(bound), "as it was");
            unbind();
            assert!(allowed(0).unwrap().iter().map(|word| word.count_ones()).sum::<u32>() >= all.len() as u32);
            return;
        }
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let name = "os::linux::thread::tests::a_thread_that_is_let_go_stays_where_its_process_was_started";
        let output = child.args(["--exact", name, "--nocapture"]).env(CHILD, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }
}
