//! Several connections over one path: what one pair alone says of it, what several say, and what is predicted from that.
//!
//! What a message costs alone is parted in two: what holds the path (nobody else can send in this direction meanwhile) and what
//! is the pair's own. A stream of messages one way tells the two apart: it overlaps what is the pair's own, so that the path
//! shows. (Not all: each send of the stream blocks, so beyond the eager limit its handshake is taken to hold the path as well.)
//! Without it the bytes are taken to be the path's and the latency the pair's own. Messages both ways at once tell
//! whether the directions are in each other's way. Where chunks cost a pair alone nothing, only pairs together tell their limit;
//! and that the pairs share one path at all, only they can tell.

use std::collections::BTreeMap;

use crate::curves::pingpong::engine::Message;
use crate::curves::pingpong::fit::{Fit, Point, fit, further_chunks, round_place};
use crate::curves::pingpong::{engine, fit};
use crate::stats::line::Sums;
use crate::stats::quantiles::median;
use crate::units::words;

/// Everything measured over one path. `one_way_s` is, of a stream of messages, the time of each; of an exchange, the time in
/// which one message goes each way; of pairs together, that which IMB would add up: bytes of all pairs over bytes a second
/// of all pairs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Curves {
    /// Ping-pong by so many pairs at once.
    pub pingpong: BTreeMap<usize, Vec<Point>>,
    /// One pair, one way.
    pub one_way: Vec<Point>,
    /// One pair, both ways at once.
    pub exchange: Vec<Point>,
}

words! {
    /// Which data told a parameter.
    Source, "source" {
        /// Ping-pong of one pair.
        OnePair = "1-1",
        /// One pair's stream one way.
        OneWay = "one-way",
        /// One pair, both ways at once.
        Exchange = "exchange",
        /// Ping-pong of two pairs.
        TwoPairs = "2-2",
        /// Ping-pong of three pairs or more.
        MorePairs = "more pairs",
        /// Nothing: it is what most paths are like.
        Assumed = "assumed",
    }
}

/// A parameter and what told it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sourced<T> {
    /// The parameter.
    pub value: T,
    /// What told it.
    pub by: Source,
}

/// A path and what is known about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    /// One pair alone.
    pub alone: Fit,
    /// Seconds that each message holds the path beside its bytes.
    pub gap_s: Sourced<f64>,
    /// Share of a byte's time alone during which it holds the path.
    pub held: Sourced<f64>,
    /// By how much directions are slower when both are busy: 1 for full duplex, 2 for half.
    pub slowdown: Sourced<f64>,
    /// Whether pairs are in each other's way at all.
    pub is_shared: Sourced<bool>,
    /// Bytes of a chunk: [value, low, high]; `None` where messages are not cut, as far as can be seen.
    pub limit: Option<Sourced<[f64; 3]>>,
    /// Why a limit that would fit is not claimed.
    pub unclaimed: Option<Unclaimed>,
}

/// Why nothing is said of chunks although a limit would explain the curves best.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Unclaimed {
    /// A typical size is off by this share all the same, or may be by its own error.
    Residual(f64),
    /// The limit would lie below the smallest messages that were measured, of so many bytes.
    Smallest(f64),
}

/// Pairs together, measured and by the model.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// How many.
    pub pairs: usize,
    /// Whether these data told nothing of what they are held against but, of two pairs, that they share the path: else they are
    /// described, not predicted.
    pub is_prediction: bool,
    /// Bytes, seconds measured, seconds by the model.
    pub points: Vec<[f64; 3]>,
    /// Typical relative deviation: median of absolute ones, of all sizes or of those where bytes take longer than the latency,
    /// whichever is greater.
    pub off: f64,
    /// Greatest relative deviation, and the size that it is at.
    pub worst: [f64; 2],
    /// The greatest typical deviation that is a fit.
    pub allowed: f64,
}

impl Prediction {
    /// Whether the model holds for them.
    pub fn holds(&self) -> bool {
        self.off <= self.allowed
    }
}

/// Chunks of a message beyond this number are joined, two by two: the path settles into the same, to less than 1 %.
const CHUNKS_MAX: f64 = 64.0;
/// Directions that slow each other less than this are apart: so much may be noise.
const DUPLEX: f64 = 1.15;
/// Predictions are to be within this share.
const GOOD: f64 = 0.1;
const NOISES: f64 = 3.0;
/// Limits looked for between a power of two and the next, and then how much finer.
const PLACES: i32 = 6;
const FINER: i32 = 6;
/// Chunks are claimed of curves that a limit explains to this share, and whose points are known as well as that.
const CLAIM: f64 = 0.1;
/// Smallest limit that is looked for, bytes.
const LIMIT_MIN: f64 = 1024.0;
/// What a limit costs that was searched for, and one of two kinds of path, as numbers of parameters.
const LIMIT_COST: f64 = 4.0;
const KIND_COST: f64 = 3.0;

impl Path {
    /// What curves say about their path. `None` without a ping-pong of one pair over six sizes.
    pub fn of(curves: &Curves) -> Option<Path> {
        let points = curves.pingpong.get(&1)?;
        let path = Path::of_one_pair(curves)?;
        let path = match curves.pingpong.get(&2) {
            Some(two) => path.with_two(two, points),
            None => path,
        };
        let more = curves.pingpong.iter().find(|(pairs, _)| **pairs > 2);
        let path = more.map_or(path.clone(), |(pairs, points)| path.with_more(*pairs, points));
        Some(path.claimed(curves))
    }

    /// The same from one pair alone: what it tells in all its modes. That pairs share the path is assumed.
    pub fn of_one_pair(curves: &Curves) -> Option<Path> {
        let alone = fit(curves.pingpong.get(&1)?, None)?;
        let path = Path {
            gap_s: Sourced { value: 0.0, by: Source::Assumed },
            held: Sourced { value: 1.0, by: Source::Assumed },
            slowdown: Sourced { value: 1.0, by: Source::Assumed },
            limit: alone.chunks.as_ref().map(|chunks| Sourced { value: chunks.limit, by: Source::OnePair }),
            is_shared: Sourced { value: true, by: Source::Assumed },
            unclaimed: None,
            alone,
        };
        Some(path.with_stream(&curves.one_way).with_exchange(&curves.exchange).claimed(curves))
    }

    /// Without a limit of chunks that the data do not bear out.
    fn claimed(self, curves: &Curves) -> Path {
        let Some(Sourced { value, by }) = self.limit else { return self };
        let two = curves.pingpong.get(&2).filter(|_| by == Source::TwoPairs);
        // Of few and noisy sizes something always fits: what the points' own errors allow counts as well.
        let off = match two {
            Some(two) => self.predict(2, two).off.max(noise(two)),
            None => self.alone.residual.max(self.alone.noise),
        };
        let points = two.or(curves.pingpong.get(&1));
        let smallest = points.into_iter().flatten().map(|point| point.bytes).filter(|bytes| *bytes > 0.0);
        let smallest = smallest.fold(f64::INFINITY, f64::min);
        let why = if off > CLAIM {
            Unclaimed::Residual(off)
        } else if value[1] < smallest {
            Unclaimed::Smallest(smallest)
        } else {
            return Path { unclaimed: None, ..self };
        };
        Path { limit: None, unclaimed: Some(why), ..self }
    }

    /// The same with a limit of chunks that other data told.
    pub fn with_limit(self, limit: Option<Sourced<[f64; 3]>>) -> Path {
        Path { limit, ..self }
    }

    /// Seconds of one way while so many pairs ping-pong.
    pub fn one_way_s(&self, bytes: f64, pairs: usize) -> f64 {
        if self.is_shared.value {
            engine::one_way_s(&self.message(bytes), pairs, self.slowdown.value)
        } else {
            self.alone.one_way_s(bytes)
        }
    }

    /// Pairs together against what was measured. Sizes that were not measured alone are predicted as well.
    pub fn predict(&self, pairs: usize, measured: &[Point]) -> Prediction {
        let point = |point: &Point| [point.bytes, point.one_way_s[0], self.one_way_s(point.bytes, pairs)];
        let points: Vec<[f64; 3]> = measured.iter().map(point).collect();
        let off: Vec<[f64; 2]> = points.iter().map(|[bytes, time, model]| [model / time - 1.0, *bytes]).collect();
        let is_long = |[_, bytes]: &[f64; 2]| self.alone.one_way_s(*bytes) > 2.0 * self.alone.latency_s(*bytes);
        let long: Vec<[f64; 2]> = off.iter().copied().filter(is_long).collect();
        let typical = |off: &[[f64; 2]]| median(off.iter().map(|off| off[0].abs())).unwrap_or(0.0);
        let worst = off.iter().copied().max_by(|a, b| a[0].abs().total_cmp(&b[0].abs()));
        let two = [self.slowdown.by, self.limit.map_or(Source::Assumed, |limit| limit.by)].contains(&Source::TwoPairs);
        let more = self.is_shared.by == Source::MorePairs;
        Prediction {
            pairs,
            is_prediction: if pairs == 2 { !two } else { !more },
            off: typical(&off).max(typical(&long)),
            worst: worst.unwrap_or([0.0; 2]),
            allowed: GOOD.max(NOISES * noise(measured)).min(fit::MOST_ALLOWED),
            points,
        }
    }

    /// Which data, of the most pairs, told the model that pairs together are held against.
    pub fn together_by(&self) -> Source {
        let limit = self.limit.map_or(Source::Assumed, |limit| limit.by);
        match [limit, self.slowdown.by, self.is_shared.by] {
            told if told.contains(&Source::MorePairs) => Source::MorePairs,
            told if told.contains(&Source::TwoPairs) => Source::TwoPairs,
            _ => Source::OnePair,
        }
    }

    /// A message as the path sees it.
    fn message(&self, bytes: f64) -> Message {
        let alone_s = self.alone.one_way_s(bytes);
        let latency_s = self.alone.latency_s(bytes);
        let turnaround_s = self.alone.chunks.as_ref().map_or(0.0, |chunks| chunks.turnaround_s[0]);
        let limit = self.limit.map_or(f64::INFINITY, |limit| limit.value[0]);
        let turnarounds = if turnaround_s > 0.0 { further_chunks(bytes, limit) } else { 0.0 };
        let bytes_s = (alone_s - latency_s - turnarounds * turnaround_s).max(0.0);
        let held_s = (self.gap_s.value + self.held.value * bytes_s).min(alone_s);
        let own_s = (alone_s - held_s - turnarounds * turnaround_s).max(0.0);
        let (mut limit, mut turnaround_s) = (limit, turnaround_s);
        while further_chunks(bytes, limit) >= CHUNKS_MAX {
            // Half as many turn-arounds, each as long as two.
            (limit, turnaround_s) = (2.0 * limit, 2.0 * turnaround_s);
        }
        let further = further_chunks(bytes, limit);
        let chunk = |index: usize| {
            let from = index as f64 * limit;
            let share = if bytes > 0.0 && further > 0.0 { (bytes - from).min(limit) / bytes } else { 1.0 };
            held_s * share
        };
        Message { own_s, chunks_s: (0..=further as usize).map(chunk).collect(), turnaround_s }
    }

    /// A stream of messages: what holds the path. `time = gap + held x (time of its bytes alone) + turn-arounds`.
    fn with_stream(mut self, stream: &[Point]) -> Path {
        let parts: Vec<[f64; 3]> = stream
            .iter()
            .filter(|point| point.one_way_s[0] > 0.0)
            .map(|point| {
                let turns = self.turnarounds_s(point.bytes);
                let bytes_s = self.alone.one_way_s(point.bytes) - self.alone.latency_s(point.bytes) - turns;
                [bytes_s.max(0.0), point.one_way_s[0] - turns, point.one_way_s[0]]
            })
            .collect();
        // Few messages or small ones only: the slope is not told.
        if parts.len() < 3 {
            return self;
        }
        if let Some((gap, held)) = relative_line(&parts) {
            let latency_s = self.alone.latency_s(0.0);
            self.gap_s = Sourced { value: gap.clamp(0.0, latency_s), by: Source::OneWay };
            self.held = Sourced { value: held.clamp(0.0, 1.0), by: Source::OneWay };
        }
        self
    }

    /// Seconds of a message alone in which its chunks turn round.
    fn turnarounds_s(&self, bytes: f64) -> f64 {
        self.alone.chunks.as_ref().map_or(0.0, |chunks| chunks.turnaround_s[0] * further_chunks(bytes, chunks.limit[0]))
    }

    /// Both ways at once, where bytes and not the latency decide: by how much slower they are.
    fn with_exchange(mut self, exchange: &[Point]) -> Path {
        let slower = |point: &Point| {
            let turns = self.turnarounds_s(point.bytes);
            let latency_s = self.alone.latency_s(point.bytes);
            let bytes_s = self.alone.one_way_s(point.bytes) - latency_s - turns;
            let held_s = self.held.value * bytes_s;
            (held_s > latency_s).then(|| (point.one_way_s[0] - latency_s - turns - (bytes_s - held_s)) / held_s)
        };
        let slower: Vec<f64> = exchange.iter().filter_map(slower).collect();
        if slower.len() >= 3 {
            let value = median(slower).unwrap_or(0.0).clamp(1.0, 2.0);
            self.slowdown = Sourced { value: if value < DUPLEX { 1.0 } else { value }, by: Source::Exchange };
        }
        self
    }

    /// Two pairs: whether they share the path, whether its directions are apart where no exchange told, and where messages are
    /// cut where one pair did not tell. What explains them best counts, each choice at its price (as in `fit`).
    fn with_two(self, two: &[Point], alone: &[Point]) -> Path {
        let digit = (two.len().max(2) as f64).ln();
        let misfit = |path: &Path| path.misfit(two, 2);
        // Two whole messages in anti-phase are as fast as two on paths of their own: without a difference nothing is told.
        let private = Path { is_shared: Sourced { value: false, by: Source::TwoPairs }, ..self.clone() };
        let shared = Path { is_shared: Sourced { value: true, by: Source::TwoPairs }, ..self.clone() };
        let costs = [misfit(&private) + KIND_COST * digit, misfit(&shared)];
        let mut kinds = vec![(costs[0], private), (costs[1], shared.clone())];
        if self.slowdown.by == Source::Assumed {
            let half = Path { slowdown: Sourced { value: 2.0, by: Source::TwoPairs }, ..shared };
            kinds.push((misfit(&half) + KIND_COST * digit, half));
        }
        if self.limit.is_none() {
            let cut: Vec<(f64, Path)> = kinds
                .iter()
                .filter(|(_, path)| path.is_shared.value)
                .filter_map(|(cost, path)| {
                    let extra = if path.slowdown.by == Source::TwoPairs { KIND_COST * digit } else { 0.0 };
                    let (least, cut) = path.cut_by(two, &misfit)?;
                    let cost_cut = least + extra + LIMIT_COST * digit;
                    (cost_cut < *cost).then_some((cost_cut, cut))
                })
                .collect();
            kinds.extend(cut);
        }
        let best = kinds.into_iter().reduce(|best, next| if next.0 < best.0 { next } else { best });
        let mut path = best.map_or(self, |(_, path)| path);
        let difference = (costs[0] - KIND_COST * digit - costs[1]).abs();
        // That directions slow each other was told by two pairs: on paths of their own they would not.
        let is_half = path.slowdown.by == Source::TwoPairs;
        if path.is_shared.value && path.limit.is_none() && !is_half && difference <= KIND_COST * digit {
            path.is_shared.by = Source::Assumed;
        }
        // With the limit known, what chunks cost one pair may show, or what looked like a cache.
        match path.limit {
            Some(Sourced { value, by: Source::TwoPairs }) => match fit(alone, Some(value[0])) {
                Some(again) => Path { alone: again, ..path },
                None => path,
            },
            _ => path,
        }
    }

    /// Three pairs or more, where two did not tell whether they share the path: they can't all be in anti-phase.
    fn with_more(self, pairs: usize, points: &[Point]) -> Path {
        if self.is_shared.by != Source::Assumed {
            return self;
        }
        let with = |value: bool| Path { is_shared: Sourced { value, by: Source::MorePairs }, ..self.clone() };
        let [shared, private] = [with(true), with(false)].map(|path| (path.misfit(points, pairs), path));
        if private.0 + KIND_COST * (points.len().max(2) as f64).ln() < shared.0 { private.1 } else { shared.1 }
    }

    /// How far so many pairs are from this path: twice the negative logarithm of the likelihood, but for a constant.
    fn misfit(&self, points: &[Point], pairs: usize) -> f64 {
        let off = |point: &Point| (point.one_way_s[0] / self.one_way_s(point.bytes, pairs)).ln();
        fit::misfit(&points.iter().map(off).collect::<Vec<_>>())
    }

    /// The limit of chunks that explains two pairs best.
    fn cut_by(&self, two: &[Point], misfit: &impl Fn(&Path) -> f64) -> Option<(f64, Path)> {
        let largest = two.iter().map(|point| point.bytes).fold(0.0, f64::max);
        let smallest = two.iter().map(|point| point.bytes).filter(|bytes| *bytes > 0.0).fold(largest, f64::min);
        let with =
            |limit: [f64; 3]| Path { limit: Some(Sourced { value: limit, by: Source::TwoPairs }), ..self.clone() };
        let at = |limit: f64| misfit(&with([limit; 3]));
        let step = |n: i32, by_octave: i32| (f64::from(n) / f64::from(by_octave)).exp2();
        let coarse = (0..).map(|n| LIMIT_MIN * step(n, PLACES)).take_while(|limit| *limit < largest);
        let coarse = coarse.filter(|limit| *limit >= smallest);
        let best = coarse.map(|limit| (at(limit), limit)).reduce(lesser)?;
        let fine = (-FINER..=FINER).map(|n| best.1 * step(n, PLACES * FINER));
        let best = fine.map(|limit| (at(limit), limit)).fold(best, lesser);
        let limit = round_place(best.1, best.0, at);
        Some((at(limit[0]), with(limit)))
    }
}

/// The relative standard error of the typical point.
fn noise(points: &[Point]) -> f64 {
    let error = |point: &Point| (point.one_way_s[2] - point.one_way_s[1]) / (2.0 * 1.96 * point.one_way_s[0]);
    median(points.iter().map(error)).unwrap_or(0.0)
}

fn lesser(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    if b.0 < a.0 { b } else { a }
}

/// `y = a + b x` by least relative squares, for rows of [x, y, what the deviation is relative to]; neither is negative.
fn relative_line(rows: &[[f64; 3]]) -> Option<(f64, f64)> {
    let mut sums = Sums::default();
    rows.iter().for_each(|[x, y, unit]| sums.add(*x, *y, 1.0 / (unit * unit)));
    let [a, b] = sums.line()?;
    if a < 0.0 { Some((0.0, sums.slope_through_origin())) } else { (b >= 0.0).then_some((a, b)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_by_hand() {
        // y = 2 + 3 x exactly; and through zero where the intercept would be negative: sum(xy)/sum(xx) with weights 1.
        let (a, b) = relative_line(&[[0.0, 2.0, 2.0], [1.0, 5.0, 5.0], [2.0, 8.0, 8.0]]).unwrap();
        assert!((a - 2.0).abs() < 1e-9 && (b - 3.0).abs() < 1e-9);
        assert_eq!(relative_line(&[[1.0, 1.0, 1.0], [2.0, 4.0, 1.0]]), Some((0.0, 9.0 / 5.0)));
        assert_eq!(relative_line(&[[1.0, 1.0, 1.0], [1.0, 4.0, 1.0]]), None);
    }

    /// 1 us and 10 GB/s, by so many pairs over one path whose directions are slower by `slowdown` when both are busy.
    fn curve(pairs: usize, slowdown: f64) -> Vec<Point> {
        let point = |octave: i32| {
            let bytes = 2f64.powi(octave);
            let message = Message { own_s: 1e-6, chunks_s: vec![bytes * 1e-10], turnaround_s: 0.0 };
            let seconds = engine::one_way_s(&message, pairs, slowdown);
            Point { bytes, one_way_s: [seconds, 0.99 * seconds, 1.01 * seconds] }
        };
        (0..=24).map(point).collect()
    }

    #[test]
    fn two_pairs_that_tell_half_duplex_tell_that_the_path_is_shared() {
        let path = |slowdown: f64| {
            let pingpong = [1, 2].map(|pairs| (pairs, curve(pairs, slowdown))).into();
            Path::of(&Curves { pingpong, ..Curves::default() }).unwrap()
        };
        let half = path(2.0);
        assert_eq!(half.slowdown, Sourced { value: 2.0, by: Source::TwoPairs });
        assert_eq!(half.is_shared, Sourced { value: true, by: Source::TwoPairs });
        assert_eq!(half.together_by(), Source::TwoPairs);
        // In anti-phase two are as fast as on paths of their own.
        let full = path(1.0);
        assert_eq!(full.is_shared, Sourced { value: true, by: Source::Assumed });
        assert_eq!(full.together_by(), Source::OnePair);
    }

    #[test]
    fn what_three_pairs_told_is_theirs() {
        let pingpong = [1, 2, 3].map(|pairs| (pairs, curve(pairs, 1.0))).into();
        let path = Path::of(&Curves { pingpong, ..Curves::default() }).unwrap();
        assert_eq!((path.is_shared.by, path.together_by()), (Source::MorePairs, Source::MorePairs));
    }
}
