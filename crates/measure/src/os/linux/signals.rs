//! Signals that ask this process to end, and one that interrupts a thread.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static HAS_OVERRUN: AtomicBool = AtomicBool::new(false);
/// Whether somebody has asked this process to end before.
static WAS_ASKED: AtomicBool = AtomicBool::new(false);

/// From now on Ctrl-C (SIGINT), SIGTERM and a terminal that goes (SIGHUP, where nohup has not made it ignored) only raise
/// [`interrupted`]; a second Ctrl-C or SIGTERM ends the process at once. A file that outgrows the user's limit (SIGXFSZ) becomes
/// an error of the write instead of the end of the process.
pub fn catch_interrupts() {
    extern "C" fn raise(signal: i32) {
        INTERRUPTED.store(true, Ordering::Relaxed);
        // A terminal that goes sends SIGHUP twice, by its shell and by the kernel: nobody lost patience. Whoever asks after the watchdog
        // did has.
        let was_asked = HAS_OVERRUN.load(Ordering::Relaxed);
        if signal != libc::SIGHUP && (WAS_ASKED.swap(true, Ordering::Relaxed) || was_asked) {
            // SAFETY: resetting a signal to its default and raising it are async-signal-safe.
            unsafe {
                libc::signal(signal, libc::SIG_DFL);
                libc::raise(signal);
            }
        }
    }
    let hangup = [libc::SIGHUP].into_iter().filter(|_| !is_ignored(libc::SIGHUP));
    for signal in [libc::SIGINT, libc::SIGTERM].into_iter().chain(hangup) {
        // SAFETY: `raise` touches nothing but atomics and async-signal-safe functions.
        unsafe { libc::signal(signal, raise as *const () as libc::sighandler_t) };
    }
    // SAFETY: ignoring a signal installs no code of ours.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Whether a signal does nothing, as whoever started this process may have wanted.
fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: an all-zero sigaction is a valid value of the C struct.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: without a new action only the present one is written, to a struct of ours.
    unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_IGN }
}

/// Seconds after which the watchdog ends the process, once it has asked it to stop; 0 where nobody is watched.
static LAST_WAIT_S: AtomicU32 = AtomicU32::new(0);

/// From now on [`interrupted`] is raised after `ask`, as by Ctrl-C, and the process ends after `end`, whatever it waits
/// for: threads that spin, a system call that never returns. A kernel's alarm does both, so it needs no thread. To be
/// called off by [`dismiss_watchdog`].
pub fn watch(ask: Duration, end: Duration) {
    extern "C" fn bark(_signal: i32) {
        let wait = LAST_WAIT_S.swap(0, Ordering::Relaxed);
        HAS_OVERRUN.store(true, Ordering::Relaxed);
        INTERRUPTED.store(true, Ordering::Relaxed);
        if wait == 0 {
            let note = b"membound: ended by its watchdog: a visit did not come back; every finished case is kept\n";
            // SAFETY: write and _exit are async-signal-safe; the note is a constant.
            unsafe {
                libc::write(libc::STDERR_FILENO, note.as_ptr().cast(), note.len());
                libc::_exit(1);
            }
        }
        // SAFETY: alarm is async-signal-safe.
        unsafe { libc::alarm(wait) };
    }
    let seconds = |time: Duration| u32::try_from(time.as_secs() + 1).unwrap_or(u32::MAX);
    LAST_WAIT_S.store(seconds(end.saturating_sub(ask)), Ordering::Relaxed);
    // SAFETY: `bark` touches nothing but atomics and async-signal-safe functions.
    unsafe {
        libc::signal(libc::SIGALRM, bark as *const () as libc::sighandler_t);
        libc::alarm(seconds(ask));
    }
}

/// Nothing is watched any more.
pub fn dismiss_watchdog() {
    // SAFETY: no pointers; it only takes back what [`watch`] set.
    unsafe { libc::alarm(0) };
}

/// Whether the user wants to stop.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Whether it was the watchdog that raised [`interrupted`].
pub fn has_overrun() -> bool {
    HAS_OVERRUN.load(Ordering::Relaxed)
}

/// Interrupts what a thread of this process waits for: the system call returns EINTR. Should the thread have ended,
/// nothing happens. [`allow_interrupts`] comes first.
#[cfg(all(feature = "kvm", target_arch = "x86_64"))]
pub(crate) fn interrupt(thread: u32) {
    // SAFETY: a signal to a thread of this process, whose handler is installed and does nothing.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread as libc::pid_t, interruption()) };
}

/// The last real-time signal: nothing else uses it.
#[cfg(all(feature = "kvm", target_arch = "x86_64"))]
fn interruption() -> libc::c_int {
    libc::SIGRTMAX()
}

/// Gives the signal of [`interrupt`] a handler that does nothing, and no restart of system calls.
#[cfg(all(feature = "kvm", target_arch = "x86_64"))]
pub(crate) fn allow_interrupts() {
    extern "C" fn nothing(_signal: libc::c_int) {}
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: an all-zero sigaction is a valid value of the C struct; its handler is set below.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = nothing as *const () as usize;
        // SAFETY: `nothing` has the signature of a plain handler and touches nothing.
        unsafe { libc::sigaction(interruption(), &action, std::ptr::null_mut()) };
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHILD: &str = "MEMBOUND_TEST_SPINS";

    /// In a process of its own: this test's binary once more, which spins for ever.
    #[test]
    fn what_never_ends_is_ended() {
        if std::env::var_os(CHILD).is_some() {
            watch(Duration::ZERO, Duration::ZERO);
            while !interrupted() {
                std::hint::spin_loop();
            }
            assert!(has_overrun());
            eprintln!("asked to stop");
            loop {
                std::hint::spin_loop();
            }
        }
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "os::linux::signals::tests::what_never_ends_is_ended", "--nocapture"]).env(CHILD, "1");
        let output = child.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("asked to stop") && said.contains("ended by its watchdog"), "{said}");
    }
}
