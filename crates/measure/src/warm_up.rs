//! When a core and its caches are ready, and how many repetitions make a sample.

use std::time::Duration;

use membound_core::case::LONG_SAMPLE;
use membound_core::units::Hertz;

/// No more time is spent than a long sample takes, beyond the second pass.
const PATIENCE: Duration = LONG_SAMPLE;

/// Finds how many repetitions make a sample, and goes on until the caches hold what they will hold and the core has the
/// clock it will have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WarmUp {
    /// Ticks that a sample lasts at least, where its repetitions may be chosen.
    sample_ticks: u64,
    /// Ticks that all passes together last at least.
    least_ticks: u64,
    patience_ticks: u64,
    repetitions: u64,
    /// Passes at these repetitions, and the fastest of them.
    passes: u32,
    fastest: u64,
    /// Ticks spent.
    spent: u64,
}

impl WarmUp {
    /// A pass is no longer getting faster if it gained less than this on the fastest before.
    const GAIN: f64 = 0.98;
    /// A victim cache fills over several passes; more than this many are not waited for.
    const PASSES_MOST: u32 = 8;

    pub fn new(sample: Duration, hz: Hertz) -> WarmUp {
        let [sample_ticks, patience_ticks] = [sample, PATIENCE].map(|span| (span.as_secs_f64() * hz.0) as u64);
        WarmUp { sample_ticks, patience_ticks, least_ticks: 0, repetitions: 0, passes: 0, fastest: u64::MAX, spent: 0 }
    }

    /// The same, but not warm before so much time was spent.
    pub fn lasting(self, least: Duration) -> WarmUp {
        // Ticks a second are in the patience already.
        let ticks = self.patience_ticks as f64 * least.as_secs_f64() / PATIENCE.as_secs_f64();
        WarmUp { least_ticks: ticks as u64, ..self }
    }

    /// What brings a core back to its clock that has slept since its last sample, and code and data back to where a pass finds
    /// them: one pass at least. Its repetitions stay.
    pub fn again(self, repetitions: u64) -> WarmUp {
        WarmUp { repetitions, passes: Self::PASSES_MOST, fastest: u64::MAX, spent: 0, sample_ticks: 0, ..self }
    }

    /// Whether passes are [long](LONG_SAMPLE) by themselves: also those that nothing interrupted.
    pub fn is_of_long_passes(&self) -> bool {
        self.fastest > self.patience_ticks
    }

    /// Whether the pass that ended it is as good as any sample: a long one, after another that has warmed what can be.
    pub fn ended_with_a_sample(&self) -> bool {
        self.passes == 2 && self.is_of_long_passes()
    }

    /// Takes note of a pass of `repetitions` that took `ticks`; returns the repetitions of the next one, or nothing
    /// when it is warm. One pass alone is never believed, however long: it may have been cold, or interrupted. A case
    /// whose passes are long by themselves has two of them, and no more.
    pub fn next(&mut self, ticks: u64, repetitions: u64) -> Option<u64> {
        if repetitions != self.repetitions {
            *self = WarmUp { repetitions, passes: 0, fastest: u64::MAX, ..*self };
        }
        let gaining = (ticks as f64) < self.fastest as f64 * Self::GAIN;
        // What interrupted the first pass, or was done in it once, has warmed nothing: it counts as long as the second.
        let astray = if self.passes == 1 { self.fastest.saturating_sub(ticks) } else { 0 };
        self.fastest = self.fastest.min(ticks);
        self.passes += 1;
        self.spent = (self.spent + ticks).saturating_sub(astray);
        let slow = self.spent > self.patience_ticks;
        if self.passes == 1 || (gaining && self.passes < Self::PASSES_MOST && !slow) {
            return Some(repetitions);
        }
        if self.fastest >= self.sample_ticks {
            return (self.spent < self.least_ticks).then_some(repetitions);
        }
        let wanted = (repetitions as f64 * self.sample_ticks as f64 / self.fastest as f64 * 1.2).ceil() as u64;
        // Early passes run cold and slow: grow step by step, so that they can't mislead.
        Some(wanted.clamp(repetitions + 1, repetitions * 16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a warm-up against a simulated machine: the time of the n-th pass of r repetitions.
    fn warm(time: impl Fn(u64, u64) -> u64) -> (u64, u64) {
        warmed(Duration::ZERO, time)
    }

    /// The same with a least time.
    fn warmed(least: Duration, time: impl Fn(u64, u64) -> u64) -> (u64, u64) {
        let warm_up = WarmUp::new(Duration::from_micros(200), Hertz(5e6)).lasting(least);
        let (mut warm_up, mut repetitions, mut pass) = (warm_up, 1, 0);
        while let Some(next) = warm_up.next(time(pass, repetitions), repetitions) {
            (repetitions, pass) = (next, pass + 1);
        }
        (repetitions, pass)
    }

    #[test]
    fn after_a_pause_a_pass_is_enough_or_what_the_clock_takes() {
        let passes = |least: u64, ticks: u64| {
            let mut warm_up =
                WarmUp::new(Duration::from_micros(200), Hertz(5e6)).lasting(Duration::from_micros(least)).again(7);
            (1..).find(|_| warm_up.next(ticks, 7).is_none())
        };
        assert_eq!((passes(0, 10), passes(0, 1_000_000)), (Some(1), Some(1)));
        // 4 ms are 20,000 ticks.
        assert_eq!((passes(4000, 10_000), passes(4000, 30_000)), (Some(2), Some(1)));
    }

    #[test]
    fn repetitions_make_a_sample_long_enough() {
        let (repetitions, _) = warm(|_, repetitions| 7 * repetitions);
        assert!((1000..3000).contains(&(7 * repetitions)), "{repetitions}");
    }

    #[test]
    fn an_interrupted_pass_does_not_end_the_warm_up() {
        let (repetitions, _) = warm(|pass, repetitions| if pass == 0 { 1_000_000 / 60 } else { 7 * repetitions });
        assert!(7 * repetitions >= 1000, "{repetitions}");
    }

    #[test]
    fn a_cache_that_fills_slowly_is_waited_for() {
        let (_, passes) = warm(|pass, _| 5000 - 700 * pass.min(4));
        assert!(passes >= 5, "{passes}");
    }

    /// 13 and 50 ms of another task, or of a kernel that a device makes first, are 65,000 and 250,000 ticks.
    #[test]
    fn an_interruption_longer_than_all_patience_does_not_end_it() {
        for interrupted in [65_000, 250_000] {
            for least in [Duration::ZERO, Duration::from_millis(4)] {
                let time = |pass, repetitions| if pass == 0 { interrupted } else { repetitions };
                let (repetitions, passes) = warmed(least, time);
                assert!((1000..3000).contains(&repetitions), "{interrupted}: {repetitions}");
                // The core has its time nonetheless.
                assert!(least.is_zero() || passes >= 10, "{interrupted}: {passes}");
            }
        }
    }

    /// A cache that fills is waited for behind an interruption, too.
    #[test]
    fn an_interruption_does_not_use_up_patience() {
        let (_, passes) = warm(|pass, _| if pass == 0 { 65_000 } else { 5000 - 700 * (pass - 1).min(4) });
        assert!(passes >= 6, "{passes}");
    }

    /// Meters of energy want 200 ms, a million ticks; a pass takes 13.
    #[test]
    fn samples_longer_than_all_patience_are_reached() {
        let (mut warm_up, mut repetitions) = (WarmUp::new(Duration::from_millis(200), Hertz(5e6)), 1);
        while let Some(next) = warm_up.next(65_000 * repetitions, repetitions) {
            repetitions = next;
        }
        assert!((16..=19).contains(&repetitions), "{repetitions}");
    }

    /// Passes of half a second, each a little faster than the one before.
    #[test]
    fn what_is_long_by_itself_has_two_passes() {
        assert_eq!(warm(|pass, _| 2_500_000 - 100_000 * pass), (1, 1));
    }

    /// Of two passes, by ticks: 12 ms are 60,000.
    #[test]
    fn a_second_pass_that_is_long_by_itself_is_a_sample() {
        let ended = |passes: &[u64]| {
            let mut warm_up = WarmUp::new(Duration::from_micros(200), Hertz(5e6));
            let nexts: Vec<Option<u64>> = passes.iter().map(|ticks| warm_up.next(*ticks, 1)).collect();
            (nexts[passes.len() - 1], warm_up.ended_with_a_sample())
        };
        assert_eq!(ended(&[70_000, 65_000]), (None, true));
        assert_eq!(ended(&[400_000, 65_000]), (None, true), "the first was cold, or interrupted");
        assert_eq!(ended(&[400_000, 55_000]), (None, false), "an interruption has warmed nothing: short by itself");
        assert_eq!(ended(&[5_000, 65_000]), (None, false), "it was interrupted");
        assert_eq!(ended(&[70_000]), (Some(1), false), "one pass alone is cold");
    }

    /// 4 ms are 20,000 ticks, a sample 1000: 20 passes, however steady they are. Of long passes two are enough.
    #[test]
    fn a_core_has_time_to_find_its_clock() {
        let (repetitions, passes) = warmed(Duration::from_millis(4), |_, repetitions| 10 * repetitions);
        assert!((100..=200).contains(&repetitions) && (15..=25).contains(&passes), "{repetitions}, {passes}");
        assert_eq!(warmed(Duration::from_millis(4), |_, _| 70_000), (1, 1));
        let (_, without) = warm(|_, repetitions| 10 * repetitions);
        assert!(without < 10, "{without}");
    }
}
