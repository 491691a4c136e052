//! What the operating system says of this thread, the clock, and a child to share memory with.

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::kernel::code::{TakenAway, guard};
use crate::memory::Region;
use crate::record::{Clock, Sample};
use crate::units::Hertz;

/// Pins the calling thread to one CPU.
pub fn pin(cpu: u32) -> io::Result<()> {
    // The kernel takes masks longer than its own; 64 Ki CPUs are more than any Linux has.
    let mut mask = vec![0u64; cpu as usize / 64 + 1];
    mask[cpu as usize / 64] |= 1 << (cpu % 64);
    // SAFETY: the kernel reads `size` bytes of `mask`; pid 0 is the calling thread.
    let result = unsafe { libc::sched_setaffinity(0, mask.len() * 8, mask.as_ptr().cast()) };
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
    unsafe { libc::gettid() as u32 }
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
}

/// A counter of a device (power, memory controllers) on one CPU, which stands for its package: reading it gives 8 bytes of
/// count. `config` holds the request's fields `config`, `config1` and `config2`.
#[cfg(target_os = "linux")]
pub fn counter_event(device: u32, config: [u64; 3], cpu: u32) -> io::Result<std::fs::File> {
    use std::os::fd::FromRawFd;
    /// struct perf_event_attr in its second version (include/uapi/linux/perf_event.h): type, size, config; periods, formats
    /// and flags are 0; config1 and config2.
    #[repr(C)]
    #[derive(Debug)]
    struct Attributes {
        kind: u32,
        size: u32,
        config: u64,
        others: [u64; 5],
        more: [u64; 2],
    }
    let [config, more @ ..] = config;
    let size = size_of::<Attributes>() as u32;
    let attributes = Attributes { kind: device, size, config, others: [0; 5], more };
    let (every_process, no_group, flags) = (-1, -1, libc::c_ulong::from(8u8));
    // SAFETY: the kernel reads `size` bytes of `attributes`. Flag 8 (PERF_FLAG_FD_CLOEXEC) makes no other promise.
    let file = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            every_process,
            cpu as libc::c_int,
            no_group,
            flags,
        )
    };
    match i32::try_from(file) {
        // SAFETY: a descriptor that the kernel has just made for us, and that nobody else knows.
        Ok(file) if file >= 0 => Ok(unsafe { std::fs::File::from_raw_fd(file) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Works on what a region holds; an error where the memory was taken away meanwhile. Such a region is of no use any more.
pub fn touch<R>(region: &mut Region, work: impl FnOnce(&mut [u8]) -> R) -> Result<R, TakenAway> {
    guarded(region, |region| work(region.contents()))
}

/// The same, on numbers.
pub fn touch_words<R>(region: &mut Region, work: impl FnOnce(&mut [f64]) -> R) -> Result<R, TakenAway> {
    guarded(region, |region| work(region.words()))
}

fn guarded<R>(region: &mut Region, work: impl FnOnce(&mut Region) -> R) -> Result<R, TakenAway> {
    if region.contents().is_empty() {
        return Ok(work(region));
    }
    let (start, page) = (region.address() as usize, region.page());
    let range = start..start + region.bytes().0 as usize;
    // SAFETY: the range is the region's own mapping, of whole pages, mapped and borrowed exclusively; the work lends out
    // its bytes or words and can't unmap it. Any bits are a valid u8 and f64.
    unsafe { guard(range, page, || work(region)) }
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

/// Should memory run out after all, the kernel ends this process before any other. Anyone may ask for that; where the file
/// is not there, nothing changes.
pub fn be_first_to_go() {
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
}

/// Largest resident set of the process so far, in bytes.
pub fn peak_memory() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: as in `ThreadUsage::now`.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_maxrss as u64 * 1024
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime writes the timespec it is given.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The clock that all threads share: the time stamp counter where it runs at one rate on all cores, else the kernel's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ticker {
    /// rdtscp, ordered after everything before it.
    Tsc,
    /// CLOCK_MONOTONIC_RAW, in nanoseconds.
    Raw,
}

impl Ticker {
    /// The best clock here.
    pub fn detect() -> Self {
        if has_invariant_tsc() { Ticker::Tsc } else { Ticker::Raw }
    }

    /// The time, after all earlier instructions are done and before any later one starts.
    #[inline(always)]
    pub fn now(self) -> u64 {
        match self {
            #[cfg(target_arch = "x86_64")]
            Ticker::Tsc => {
                let mut cpu = 0;
                // SAFETY: `detect` chose this variant because CPUID promises an invariant TSC; every such processor
                // has rdtscp and lfence.
                unsafe {
                    core::arch::x86_64::_mm_mfence();
                    let ticks = core::arch::x86_64::__rdtscp(&mut cpu);
                    core::arch::x86_64::_mm_lfence();
                    ticks
                }
            }
            _ => clock_ns(libc::CLOCK_MONOTONIC_RAW),
        }
    }

    /// Measures the clock's rate against CLOCK_MONOTONIC_RAW over `span`, and its own cost.
    pub fn calibrate(self, span: Duration) -> Clock {
        let overhead_ticks = (0..1000).map(|_| self.pair()).min().unwrap_or(0);
        let (name, hz) = match self {
            Ticker::Tsc => ("tsc", self.rate(span)),
            Ticker::Raw => ("CLOCK_MONOTONIC_RAW", 1e9),
        };
        Clock { name: name.into(), hz: Hertz(hz), overhead_ticks }
    }

    fn pair(self) -> u64 {
        let start = self.now();
        self.now() - start
    }

    fn rate(self, span: Duration) -> f64 {
        let (ticks, ns) = self.simultaneous();
        let begin = Instant::now();
        while begin.elapsed() < span {
            std::hint::spin_loop();
        }
        let (later_ticks, later_ns) = self.simultaneous();
        (later_ticks - ticks) as f64 / (later_ns - ns) as f64 * 1e9
    }

    /// Both clocks at one moment: of several tries, the one whose readings lie closest together.
    fn simultaneous(self) -> (u64, u64) {
        let reading = || {
            let before = self.now();
            let ns = clock_ns(libc::CLOCK_MONOTONIC_RAW);
            let after = self.now();
            (after - before, before + (after - before) / 2, ns)
        };
        let (_, ticks, ns) = (0..50).map(|_| reading()).min().unwrap_or((0, 0, 1));
        (ticks, ns)
    }
}

#[cfg(target_arch = "x86_64")]
fn has_invariant_tsc() -> bool {
    raw_cpuid::CpuId::new().get_advanced_power_mgmt_info().is_some_and(|info| info.has_invariant_tsc())
}

#[cfg(not(target_arch = "x86_64"))]
fn has_invariant_tsc() -> bool {
    false
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

/// Sends a signal to a process group that a child of this process leads. The child must not have been reaped, so that the
/// number is still its own.
pub fn signal_group(leader: u32, signal: i32) {
    if let Ok(group) = libc::pid_t::try_from(leader)
        && group > 1
    {
        // SAFETY: a system call without memory of ours.
        unsafe { libc::kill(-group, signal) };
    }
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// From now on Ctrl-C (SIGINT) and SIGTERM only raise [`interrupted`]; a second one ends the process at once. A file
/// that outgrows the user's limit (SIGXFSZ) becomes an error of the write instead of the end of the process.
pub fn catch_interrupts() {
    extern "C" fn raise(signal: i32) {
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            // SAFETY: resetting a signal to its default and raising it are async-signal-safe.
            unsafe {
                libc::signal(signal, libc::SIG_DFL);
                libc::raise(signal);
            }
        }
    }
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: `raise` touches nothing but an atomic and async-signal-safe functions.
        unsafe { libc::signal(signal, raise as *const () as libc::sighandler_t) };
    }
    // SAFETY: ignoring a signal installs no code of ours.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Whether the user wants to stop.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
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
