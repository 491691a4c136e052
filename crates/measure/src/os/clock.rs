//! The clock that samples are timed with.

#![allow(unsafe_code)]

use std::time::{Duration, Instant};

use membound_core::record::Clock;
use membound_core::units::Hertz;

use super::time;

/// The clock that all threads share: the processor's counter where it runs at one rate on all cores, else the kernel's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ticker {
    /// rdtscp, ordered after everything before it.
    Tsc,
    /// cntvct_el0, the generic timer of Arm, which ticks at one rate on all cores of every machine (Arm Architecture
    /// Reference Manual, D12): at 1 GHz from Armv8.6 on, before that mostly at 25 to 100 MHz.
    Generic,
    /// The system's own clock, in nanoseconds.
    Raw,
}

impl Ticker {
    /// The best clock here.
    pub fn detect() -> Self {
        match () {
            () if cfg!(target_arch = "aarch64") => Ticker::Generic,
            () if has_steady_tsc() && !time::distrusts_counter() => Ticker::Tsc,
            () => Ticker::Raw,
        }
    }

    /// The time, after all earlier instructions are done and before any later one starts.
    #[inline(always)]
    pub fn now(self) -> u64 {
        match self {
            #[cfg(target_arch = "x86_64")]
            Ticker::Tsc => {
                let mut cpu = 0;
                // SAFETY: `detect` chose this variant because CPUID says that there is rdtscp; every x86-64 processor has mfence
                // and lfence.
                unsafe {
                    core::arch::x86_64::_mm_mfence();
                    let ticks = core::arch::x86_64::__rdtscp(&mut cpu);
                    core::arch::x86_64::_mm_lfence();
                    ticks
                }
            }
            #[cfg(target_arch = "aarch64")]
            Ticker::Generic => {
                let ticks;
                // SAFETY: Linux lets programs read this counter; barriers and a reading change no memory and no flags.
                unsafe {
                    core::arch::asm!("dsb ish", "isb", "mrs {}, cntvct_el0", "isb", out(reg) ticks, options(nostack, preserves_flags));
                }
                ticks
            }
            _ => time::raw_ns(),
        }
    }

    /// Measures the clock's rate against the system's own clock over `span`, and its own cost.
    pub fn calibrate(self, span: Duration) -> Clock {
        let overhead_ticks = (0..1000).map(|_| self.pair()).min().unwrap_or(0);
        let (name, hz) = match self {
            Ticker::Tsc => ("tsc", self.rate(span)),
            // Measured, too: what firmware says of the rate (cntfrq_el0) is sometimes wrong.
            Ticker::Generic => ("cntvct_el0", self.rate(span)),
            Ticker::Raw => (time::RAW, 1e9),
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
            let ns = time::raw_ns();
            let after = self.now();
            (after - before, before + (after - before) / 2, ns)
        };
        let (_, ticks, ns) = (0..50).map(|_| reading()).min().unwrap_or((0, 0, 1));
        (ticks, ns)
    }
}

/// Whether the time stamp counter is invariant, and there is the instruction that reads it in order. A hypervisor may hide one of
/// them: in CPUID they are bits of their own (8000_0007 and 8000_0001, EDX).
#[cfg(target_arch = "x86_64")]
fn has_steady_tsc() -> bool {
    let id = raw_cpuid::CpuId::new();
    id.get_advanced_power_mgmt_info().is_some_and(|info| info.has_invariant_tsc())
        && id.get_extended_processor_and_feature_identifiers().is_some_and(|info| info.has_rdtscp())
}

#[cfg(not(target_arch = "x86_64"))]
fn has_steady_tsc() -> bool {
    false
}
