//! Working on memory that may be taken away meanwhile.

#![allow(unsafe_code)]

use std::ops::Range;
use std::time::{Duration, Instant};

use membound_core::units::{BASE_PAGE, Bytes};

use crate::memory::region::Region;
use crate::os::faults::{TakenAway, guard};

/// Memory that a thread was the first to touch since it was mapped, and how long that took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FirstTouch {
    /// Of it.
    pub bytes: Bytes,
    /// Without what was written afterwards.
    pub took: Duration,
}

impl FirstTouch {
    /// Takes more in.
    pub fn add(&mut self, more: FirstTouch) {
        self.bytes.0 += more.bytes.0;
        self.took += more.took;
    }
}

/// Writes once to each page that begins in a range of a region's bytes, in the order of addresses, as a program does that fills its
/// memory. The page that the range begins within was touched before.
pub fn first(region: &mut Region, range: Range<usize>) -> Result<FirstTouch, TakenAway> {
    let (bytes, started) = (Bytes(range.len() as u64), Instant::now());
    let pages = range.start.next_multiple_of(BASE_PAGE as usize)..range.end;
    touch(region, |all| pages.step_by(BASE_PAGE as usize).for_each(|at| all[at] = 0))?;
    Ok(FirstTouch { bytes, took: started.elapsed() })
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
