//! The system's clocks, in nanoseconds.

#![allow(unsafe_code)]

use std::sync::OnceLock;

use windows_sys::Win32::System::Performance::{QueryPerformanceCounter, QueryPerformanceFrequency};

/// The clock that no daemon adjusts.
pub(crate) const RAW: &str = "QueryPerformanceCounter";

/// Nobody tells.
pub(crate) fn distrusts_counter() -> bool {
    false
}

/// What it shows.
pub(crate) fn raw_ns() -> u64 {
    static PER_SECOND: OnceLock<u64> = OnceLock::new();
    let per_second = *PER_SECOND.get_or_init(|| {
        let mut rate = 0;
        // SAFETY: writes the number it is given; it can't fail since Windows XP.
        unsafe { QueryPerformanceFrequency(&mut rate) };
        u64::try_from(rate).unwrap_or(0).max(1)
    });
    let mut count = 0;
    // SAFETY: as above.
    unsafe { QueryPerformanceCounter(&mut count) };
    (u128::try_from(count).unwrap_or(0) * 1_000_000_000 / u128::from(per_second)) as u64
}
