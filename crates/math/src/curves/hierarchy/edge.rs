//! Edges: which share of the loads misses where a working set outgrows a level.

/// Width of an edge that has none: whatever lies a hundredth of an octave off it is on a plateau.
const CLIFF: f64 = 0.001;
/// Ways of the sets of which an edge of [`Shape::Sets`] is: most first-level caches have 8 or 12, second-level ones 8 to 20.
const WAYS: f64 = 8.0;
/// Width of an early edge, in octaves.
const EARLY_WIDTH: f64 = 0.08;

/// Share of loads that miss over the working set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Shape {
    /// The least recently used line makes room, whatever its set.
    Cliff,
    /// The same in sets, over which lines lie evenly. They overflow one by one, and an overfull one misses always: a cache of
    /// 8 ways misses three loads of four at 1.09 times its size, and all at 1.125 times.
    Sets,
    /// A line makes room that is chosen at random.
    Random,
    /// Worn on both sides: width in octaves.
    Worn(f64),
    /// So many octaves before the cache is full: what streams feel of an edge that is worn on both sides. A stream is as fast as the
    /// slower of two paths, and lines from beyond an edge are its slower path long before they are half of all.
    Early(f64),
}

/// The end of a level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Edge {
    pub(crate) shape: Shape,
    /// log2 of the capacity.
    pub(crate) octave: f64,
}

/// Share of loads that miss.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Misses {
    pub(crate) share: f64,
    /// What it changes by as the capacity grows by an octave,
    pub(crate) by_place: f64,
    /// and as the logarithm of the width grows by 1.
    pub(crate) by_width: f64,
}

impl Edge {
    /// Of loads over a working set of so many bytes (log2).
    pub(crate) fn misses(self, octave: f64) -> Misses {
        let beyond = octave - self.octave;
        let logistic = |width: f64| {
            let share = 1.0 / (1.0 + (-beyond / width).exp());
            let slope = -share * (1.0 - share) / width;
            Misses { share, by_place: slope, by_width: slope * beyond }
        };
        match self.shape {
            Shape::Cliff => logistic(CLIFF),
            Shape::Sets => {
                let share = ((WAYS + 1.0) * (1.0 - (-beyond).exp2())).clamp(0.0, 1.0);
                Misses { share, by_place: 0.0, by_width: 0.0 }
            }
            Shape::Worn(width) => logistic(width),
            Shape::Early(lead) => Edge { shape: Shape::Worn(EARLY_WIDTH), octave: self.octave - lead }.misses(octave),
            Shape::Random => {
                let ratio = beyond.exp2();
                let share = random_misses(ratio);
                let survive = (-share * ratio).exp();
                let by_ratio = if share > 0.0 { share * survive / (1.0 - ratio * survive).max(1e-9) } else { 0.0 };
                Misses { share, by_place: -by_ratio * ratio * std::f64::consts::LN_2, by_width: 0.0 }
            }
        }
    }
}

/// The positive solution of miss = 1 - exp(-miss * ratio), by Newton's method from above, where the function is convex.
fn random_misses(ratio: f64) -> f64 {
    if ratio <= 1.0 {
        return 0.0;
    }
    let mut miss: f64 = 1.0;
    for _ in 0..30 {
        let survive = (-miss * ratio).exp();
        let step = (miss - 1.0 + survive) / (1.0 - ratio * survive).max(1e-9);
        miss = (miss - step).clamp(0.0, 1.0);
        if step.abs() < 1e-6 {
            break;
        }
    }
    miss
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_eviction_misses_as_simulated() {
        // A cache of 64 lines that evicts at random, under laps over 1.5 and 3 times as many.
        for ratio in [1.5, 3.0] {
            let (mut rng, lines) = (fastrand::Rng::with_seed(1), 64);
            let (mut cache, mut misses, laps) = (vec![usize::MAX; lines], 0, 4000);
            let set = (lines as f64 * ratio) as usize;
            for line in (0..laps).flat_map(|_| 0..set) {
                if !cache.contains(&line) {
                    (cache[rng.usize(..lines)], misses) = (line, misses + 1);
                }
            }
            let simulated = misses as f64 / (laps * set) as f64;
            assert!((random_misses(ratio) - simulated).abs() < 0.01, "{ratio}: {simulated}");
        }
        assert_eq!((random_misses(0.5), random_misses(1.0)), (0.0, 0.0));
    }

    #[test]
    fn sets_miss_as_simulated() {
        // 64 sets of 8 ways that evict the line used longest ago, under laps over so many lines side by side.
        for lines in [512, 540, 558, 576, 700] {
            let (mut sets, mut misses) = (vec![Vec::new(); 64], 0);
            const LAPS: usize = 100;
            for line in (0..LAPS).flat_map(|_| 0..lines) {
                let set: &mut Vec<usize> = &mut sets[line % 64];
                match set.iter().position(|held| *held == line) {
                    Some(at) => drop(set.remove(at)),
                    None => misses += 1,
                }
                set.push(line);
                if set.len() > 8 {
                    set.remove(0);
                }
            }
            let simulated = f64::from(misses) / (LAPS * lines) as f64;
            let edge = Edge { shape: Shape::Sets, octave: 512f64.log2() };
            let miss = edge.misses((lines as f64).log2()).share;
            assert!((miss - simulated).abs() < 0.015, "{lines} lines: {miss}, simulated {simulated}");
        }
    }
}
