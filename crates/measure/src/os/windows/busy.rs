//! Whether others use this machine now. Who measures beside them disturbs them, and learns nothing of the machine.

#![allow(unsafe_code)]

use std::fmt;
use std::time::Duration;

use crate::os::alike;
use windows_sys::Win32::Foundation::FILETIME;
use windows_sys::Win32::System::Threading::GetSystemTimes;

/// What others do here: so many CPUs of all are in use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Busy {
    /// CPUs' worth of time used, all processes together.
    used: f64,
    /// CPUs.
    of: usize,
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "others use {:.1} of {} CPUs", self.used, self.of)
    }
}

/// What others do during `span`, while this process sleeps. `None`: little or nothing, or it can't be told.
pub fn others(span: Duration) -> Option<Busy> {
    let of = std::thread::available_parallelism().map_or(1, Into::into);
    let before = times()?;
    std::thread::sleep(span);
    let after = times()?;
    let [idle, all] = [after.0.saturating_sub(before.0), after.1.saturating_sub(before.1)];
    let used = (1.0 - idle as f64 / all.max(1) as f64).max(0.0) * of as f64;
    (used > alike::quiet(of)).then_some(Busy { used, of })
}

/// Idle time and all time of all CPUs, in units of 100 ns. What Windows calls the kernel's holds the idle time.
fn times() -> Option<(u64, u64)> {
    let mut parts = [FILETIME { dwLowDateTime: 0, dwHighDateTime: 0 }; 3];
    let [idle, kernel, user] = &mut parts;
    // SAFETY: the call writes the three times it is given.
    let is_told = unsafe { GetSystemTimes(idle, kernel, user) } != 0;
    let [idle, kernel, user] = parts.map(super::thread::number);
    is_told.then_some((idle, kernel + user))
}
