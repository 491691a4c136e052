//! The kernel's clocks, in nanoseconds.

#![allow(unsafe_code)]

/// The clock that no daemon adjusts.
pub(crate) const RAW: &str = "CLOCK_MONOTONIC_RAW";

/// Whether the kernel found that the processors' counters run apart: then it keeps time by a clock of the board. (A guest has its
/// hypervisor's, and the counter all the same.)
pub(crate) fn distrusts_counter() -> bool {
    let current = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    current.is_ok_and(|name| ["hpet", "acpi_pm", "jiffies", "refined-jiffies"].contains(&name.trim()))
}

/// What it shows.
pub(crate) fn raw_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC_RAW)
}

pub(super) fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime writes the timespec it is given.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
