//! Ctrl-C, and what ends a process that does not come back.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use windows_sys::Win32::Storage::FileSystem::WriteFile;
use windows_sys::Win32::System::Console::{
    CTRL_BREAK_EVENT, CTRL_C_EVENT, CTRL_LOGOFF_EVENT, GetStdHandle, STD_ERROR_HANDLE, SetConsoleCtrlHandler,
};
use windows_sys::core::BOOL;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static HAS_OVERRUN: AtomicBool = AtomicBool::new(false);
/// The watch that is on; its watchdog looks whether it still is.
static WATCH: AtomicU64 = AtomicU64::new(0);

/// From now on Ctrl-C, Ctrl-Break and the closing of the console only raise [`interrupted`]; a second Ctrl-C or Ctrl-Break ends
/// the process at once, and the system ends it some seconds after a console was closed.
pub fn catch_interrupts() {
    unsafe extern "system" fn raise(event: u32) -> BOOL {
        // Services alone are told, of any user who logs off.
        if event == CTRL_LOGOFF_EVENT {
            return 1;
        }
        let was_asked = INTERRUPTED.swap(true, Ordering::Relaxed);
        if ![CTRL_C_EVENT, CTRL_BREAK_EVENT].contains(&event) {
            // When this returns, the system ends the process, however it is answered: the run needs the time to end itself.
            std::thread::sleep(Duration::from_secs(60));
        }
        // Not handled: the default handler ends the process.
        BOOL::from(!was_asked)
    }
    // SAFETY: `raise` touches nothing but an atomic, on a thread that the system makes for it.
    unsafe { SetConsoleCtrlHandler(Some(raise), 1) };
}

/// From now on [`interrupted`] is raised after `ask`, as by Ctrl-C, and the process ends after `end`, whatever it waits for. A
/// thread of its own sleeps until then. To be called off by [`dismiss_watchdog`].
pub fn watch(ask: Duration, end: Duration) {
    let watch = WATCH.fetch_add(1, Ordering::Relaxed) + 1;
    let is_on = move || WATCH.load(Ordering::Relaxed) == watch;
    let bark = move || {
        std::thread::sleep(ask);
        if is_on() {
            HAS_OVERRUN.store(true, Ordering::Relaxed);
            INTERRUPTED.store(true, Ordering::Relaxed);
        }
        std::thread::sleep(end.saturating_sub(ask));
        if is_on() {
            let note = b"membound: ended by its watchdog: a visit did not come back; every finished case is kept\n";
            let mut written = 0;
            // SAFETY: so many bytes of a constant are read; how many left is written to a number of ours.
            unsafe {
                let errors = GetStdHandle(STD_ERROR_HANDLE);
                WriteFile(errors, note.as_ptr(), note.len() as u32, &mut written, std::ptr::null_mut());
            }
            super::processes::end_process(1);
        }
    };
    // Without a watchdog the run goes on unwatched: a machine that refuses it threads soon refuses the run its own.
    let _ = std::thread::Builder::new().name("watchdog".into()).spawn(bark);
}

/// Nothing is watched any more.
pub fn dismiss_watchdog() {
    WATCH.fetch_add(1, Ordering::Relaxed);
}

/// Whether the user wants to stop.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Whether it was the watchdog that raised [`interrupted`].
pub fn has_overrun() -> bool {
    HAS_OVERRUN.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHILD: &str = "MEMBOUND_TEST_SPINS";

    /// In a process of its own: this test's binary once more, which spins for ever.
    #[test]
    fn what_never_ends_is_ended() {
        if std::env::var_os(CHILD).is_some() {
            watch(Duration::ZERO, Duration::from_secs(1));
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
        child.args(["--exact", "os::windows::signals::tests::what_never_ends_is_ended", "--nocapture"]).env(CHILD, "1");
        let output = child.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("asked to stop") && said.contains("ended by its watchdog"), "{said}");
    }
}
