//! Whether others use this machine now. Who measures beside them disturbs them, and learns nothing of the machine.

#![allow(unsafe_code)]

use std::fmt;
use std::time::Duration;

use crate::os::alike;
use windows_sys::Win32::Foundation::FILETIME;
use windows_sys::Win32::System::Threading::{GetActiveProcessorGroupCount, GetSystemTimes};

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
    let used = share_used(before, after)? * of as f64;
    (used > alike::quiet(of)).then_some(Busy { used, of })
}

/// The share of all time that was not idle in between; absent where no time went by.
fn share_used(before: (u64, u64), after: (u64, u64)) -> Option<f64> {
    let idle = after.0.checked_sub(before.0)?;
    let all = after.1.checked_sub(before.1).filter(|all| *all > 0 && idle <= *all)?;
    Some(1.0 - idle as f64 / all as f64)
}

/// Idle time and all time of all CPUs, in units of 100 ns. What Windows calls the kernel's holds the idle time. With several processor
/// groups only those of one are told: then nothing.
fn times() -> Option<(u64, u64)> {
    let mut parts = [FILETIME { dwLowDateTime: 0, dwHighDateTime: 0 }; 3];
    let [idle, kernel, user] = &mut parts;
    // SAFETY: asks for a number; the other call writes the three times it is given.
    let is_told = unsafe { GetActiveProcessorGroupCount() == 1 && GetSystemTimes(idle, kernel, user) != 0 };
    let [idle, kernel, user] = parts.map(super::thread::number);
    is_told.then_some((idle, kernel + user))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_by_hand() {
        // 30 of 40 idle.
        assert_eq!(share_used((100, 200), (130, 240)), Some(0.25));
        assert_eq!(share_used((100, 200), (100, 240)), Some(1.0));
        // Clocks that stood still, ran backwards, or count what is idle otherwise.
        for after in [(100, 200), (90, 240), (130, 190), (150, 240)] {
            assert_eq!(share_used((100, 200), after), None, "{after:?}");
        }
    }
}
