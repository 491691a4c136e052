//! What the first touch of memory cost in a run: the system finds pages for it and clears them, and a host that took a guest's free
//! pages back must find them again. Each visit notes what it was the first to touch.

use schemars::JsonSchema;
use serde::Serialize;

use crate::wording::gbps;
use membound_core::record::{self, Record};
use membound_core::units::Bytes;

/// How fast a thread filled memory that nothing had touched since it was mapped.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct FirstTouchSpeed {
    /// Touched first in all of the run.
    pub bytes: Bytes,
    /// Bytes per second and thread, over the visits that touched much: [all of their bytes by all of their time, the slowest, the
    /// fastest]. A range, no interval: memory at hand and memory that a host took back differ by a factor of twenty.
    #[serde(rename = "thread_Bps")]
    pub thread_bps: [f64; 3],
    /// Those visits.
    pub visits: usize,
    /// Each of them: bytes of all threads, bytes of one, seconds.
    #[serde(skip)]
    each: Vec<(u64, f64, f64)>,
}

/// Of a thread; less is over before the clock of a core is what it will be.
const MUCH: f64 = (64 << 20) as f64;

impl FirstTouchSpeed {
    /// Of a run; absent where no visit touched much.
    pub(crate) fn of(record: &Record) -> Option<FirstTouchSpeed> {
        let touched = record
            .measured()
            .filter_map(|(case, visit)| Some((case.threads().max(1) as u64, visit.samples.first_touch?)));
        FirstTouchSpeed::over(&touched.collect::<Vec<_>>(), record.header.clock.hz.0)
    }

    /// Of visits by so many threads each.
    fn over(visits: &[(u64, record::FirstTouch)], hz: f64) -> Option<FirstTouchSpeed> {
        let own = |(threads, touched): &(u64, record::FirstTouch)| {
            (touched.bytes, (touched.bytes / threads) as f64, touched.ticks as f64 / hz)
        };
        let much = visits.iter().map(own).filter(|(_, own, s)| *own >= MUCH && *s > 0.0).collect();
        let bytes = Bytes(visits.iter().map(|(_, touched)| touched.bytes).sum());
        FirstTouchSpeed::of_each(bytes, much)
    }

    fn of_each(bytes: Bytes, each: Vec<(u64, f64, f64)>) -> Option<FirstTouchSpeed> {
        let (own, seconds) = each.iter().fold((0.0, 0.0), |all, one| (all.0 + one.1, all.1 + one.2));
        let rates = || each.iter().map(|(_, own, seconds)| own / seconds);
        let thread_bps = [own / seconds, rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max)];
        (!each.is_empty()).then_some(FirstTouchSpeed { bytes, thread_bps, visits: each.len(), each })
    }

    /// Of the visits alone that were slower than this, and of what they touched.
    pub(crate) fn slower_than(&self, bps: f64) -> Option<FirstTouchSpeed> {
        let slow: Vec<_> = self.each.iter().copied().filter(|(_, own, seconds)| own / seconds < bps).collect();
        FirstTouchSpeed::of_each(Bytes(slow.iter().map(|(bytes, ..)| bytes).sum()), slow)
    }

    /// Its speed in words.
    pub(crate) fn rate(&self) -> String {
        let [mean, low, high] = self.thread_bps.map(gbps);
        match self.visits {
            1 => format!("{mean} GB/s per thread"),
            visits => format!("{mean} GB/s per thread ({low} to {high} in {visits} visits)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let touched = |mib: u64, ticks| record::FirstTouch { bytes: mib << 20, ticks };
        assert_eq!(FirstTouchSpeed::over(&[(1, touched(63, 5))], 1000.0), None, "too little to tell");
        assert_eq!(FirstTouchSpeed::over(&[(2, touched(100, 5))], 1000.0), None, "the same for each of two threads");
        // 128 MiB in 1 s, 128 MiB of each thread in half a second, and some that does not tell.
        let visits = [(1, touched(128, 1000)), (2, touched(256, 500)), (2, touched(4, 500))];
        let found = FirstTouchSpeed::over(&visits, 1000.0).unwrap();
        let second = f64::from(128 << 20);
        assert_eq!((found.bytes, found.visits), (Bytes::mib(388), 2));
        assert_eq!(found.thread_bps, [second / 0.75, second, 2.0 * second]);
        // One visit of 128 MiB in a second, and one of twice as much in half of it.
        let slow = found.slower_than(1.5 * second).unwrap();
        assert_eq!((slow.bytes, slow.visits, slow.thread_bps), (Bytes::mib(128), 1, [second; 3]));
        assert_eq!(found.slower_than(second), None);
        assert_eq!(found.rate(), "0.179 GB/s per thread (0.134 to 0.268 in 2 visits)");
    }
}
