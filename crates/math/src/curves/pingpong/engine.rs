//! Connections that share a path, event by event and without chance.
//!
//! ```text
//! pair 1  o--own--[chunk]..turn-around..[chunk]--> the other side, and back the same way
//! pair 2  o--own--[chunk]..turn-around..[chunk]-->
//!                  \___ one server a direction: whoever asked first is served next, a chunk at a time
//! ```
//!
//! A message that is one chunk is so served whole, first come first served: two pairs fall into anti-phase, one going there
//! while the other comes back, and together they move what both directions carry. Chunks of longer messages alternate:
//! both messages of a direction end together, so both pairs turn round together, and the other direction lies idle.
//!
//! All pairs start at once, as after a barrier. The first ten round trips are left out, the next ten count.

use crate::in_order::InOrder;
use std::collections::VecDeque;

/// A message, one way.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Seconds before it reaches the path and after it: the pair's own, nobody waits for them.
    pub own_s: f64,
    /// Seconds that each chunk holds one direction of the path.
    pub chunks_s: Vec<f64>,
    /// Seconds from the end of a chunk until the next is ready; others may use the path meanwhile.
    pub turnaround_s: f64,
}

impl Message {
    /// Seconds that it takes when nobody else is there.
    pub fn alone_s(&self) -> f64 {
        let further = self.chunks_s.len().saturating_sub(1) as f64;
        self.own_s + self.chunks_s.iter().sum::<f64>() + further * self.turnaround_s
    }
}

/// Round trips of a pair; the first half is start-up. Three pairs with many chunks take longer to settle (about as many round trips
/// as chunks), but no benchmark sends the longest messages so often: what counts is what it sees.
const ROUNDS: usize = 20;
/// So many round trips of two pairs alike, and they have settled: nothing moves them any more.
const ALIKE: usize = 3;
/// Differences below this share are rounding. Events that are no further apart happen at once: whoever arrives then is
/// before a connection whose chunk ends then, since that one has still to turn round.
const ROUNDING: f64 = 1e-9;

/// Seconds for one way when so many pairs ping-pong over one path, as IMB adds pairs up: the harmonic mean of theirs. Where
/// both directions are busy each is slower by `slowdown`: 1 for a full duplex path, 2 where both share one rate.
pub fn one_way_s(message: &Message, pairs: usize, slowdown: f64) -> f64 {
    let is_empty = message.chunks_s.iter().sum::<f64>() <= 0.0;
    if pairs <= 1 || is_empty {
        return message.alone_s();
    }
    let mut engine = Engine::new(message, pairs, slowdown.max(1.0));
    while !engine.has_settled() {
        engine.step();
    }
    engine.one_way_s()
}

/// A pair of processes, one message at a time between them.
#[derive(Debug, Clone)]
struct Pair {
    /// The direction in which its message goes: 0 or 1.
    direction: usize,
    /// The chunk that is next.
    chunk: usize,
    /// When that is ready; absent while it waits or is served.
    ready_s: Option<f64>,
    /// When messages ended.
    ends_s: Vec<f64>,
}

impl Pair {
    /// Seconds of each round trip.
    fn rounds_s(&self) -> Vec<f64> {
        let ends: Vec<f64> = self.ends_s.iter().copied().skip(1).step_by(2).collect();
        ends.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }
}

/// One direction: who waits, and who is served with so many seconds left.
#[derive(Debug, Clone, Default)]
struct Server {
    waiting: VecDeque<usize>,
    served: Option<(usize, f64)>,
}

struct Engine<'a> {
    message: &'a Message,
    slowdown: f64,
    now_s: f64,
    /// What counts as at once.
    instant_s: f64,
    pairs: Vec<Pair>,
    servers: [Server; 2],
}

impl<'a> Engine<'a> {
    fn new(message: &'a Message, pairs: usize, slowdown: f64) -> Self {
        let pair = Pair { direction: 0, chunk: 0, ready_s: Some(0.0), ends_s: Vec::new() };
        Engine {
            message,
            slowdown,
            now_s: 0.0,
            instant_s: ROUNDING * message.alone_s(),
            pairs: vec![pair; pairs],
            servers: Default::default(),
        }
    }

    /// To the next event, and what it brings.
    fn step(&mut self) {
        self.serve();
        let is_full = self.servers.iter().all(|server| server.served.is_some());
        let speed = if is_full { 1.0 / self.slowdown } else { 1.0 };
        let ends = self.servers.iter().filter_map(|server| server.served).map(|(_, left)| self.now_s + left / speed);
        let arrivals = self.pairs.iter().filter_map(|pair| pair.ready_s);
        let next = ends.chain(arrivals).fold(f64::INFINITY, f64::min).max(self.now_s);
        let passed = (next - self.now_s) * speed;
        self.now_s = next;
        self.arrive();
        for direction in 0..2 {
            let Some((pair, left)) = &mut self.servers[direction].served else { continue };
            *left -= passed;
            if *left <= self.instant_s {
                let pair = *pair;
                self.servers[direction].served = None;
                self.end_chunk(pair);
            }
        }
    }

    fn serve(&mut self) {
        for server in &mut self.servers {
            if server.served.is_none() {
                let next = server.waiting.pop_front();
                server.served = next.map(|pair| (pair, self.message.chunks_s[self.pairs[pair].chunk]));
            }
        }
    }

    fn arrive(&mut self) {
        let is_due = |pair: &Pair, until: f64| pair.ready_s.is_some_and(|ready| ready <= until);
        let mut due: Vec<usize> =
            (0..self.pairs.len()).filter(|&pair| is_due(&self.pairs[pair], self.now_s + self.instant_s)).collect();
        // All at once, but for rounding: new messages before connections that turned round.
        due.order_by_key(|&pair| self.pairs[pair].chunk > 0);
        for pair in due {
            self.pairs[pair].ready_s = None;
            self.servers[self.pairs[pair].direction].waiting.push_back(pair);
        }
    }

    fn end_chunk(&mut self, pair: usize) {
        let pair = &mut self.pairs[pair];
        pair.chunk += 1;
        let delay = if pair.chunk < self.message.chunks_s.len() {
            self.message.turnaround_s
        } else {
            pair.ends_s.push(self.now_s + self.message.own_s);
            (pair.chunk, pair.direction) = (0, 1 - pair.direction);
            self.message.own_s
        };
        pair.ready_s = Some(self.now_s + delay);
    }

    /// Whether two pairs take the same for each round trip now, or it went on for long enough.
    fn has_settled(&self) -> bool {
        let fewest = self.pairs.iter().map(|pair| pair.ends_s.len()).min().unwrap_or(0);
        if fewest < 2 * (ALIKE + 1) {
            return false;
        }
        // Asked at every event: round trips are looked at only where they can end it.
        if self.pairs.len() != 2 || fewest >= 2 * ROUNDS {
            return fewest >= 2 * ROUNDS;
        }
        let last = |pair: &Pair| {
            let rounds = pair.rounds_s();
            rounds[rounds.len() - ALIKE..].to_vec()
        };
        let rounds: Vec<f64> = self.pairs.iter().flat_map(last).collect();
        let (least, most) = rounds.iter().fold((f64::INFINITY, 0.0f64), |(l, m), &round| (l.min(round), m.max(round)));
        most - least <= 100.0 * ROUNDING * most
    }

    fn one_way_s(&self) -> f64 {
        let rate = |pair: &Pair| {
            let rounds = pair.rounds_s();
            // The first round trip has no beginning here: `rounds` starts with the second.
            let counted = match rounds.get(ROUNDS / 2 - 1..ROUNDS - 1) {
                Some(counted) => counted,
                None => &rounds[rounds.len().saturating_sub(ALIKE)..],
            };
            2.0 * counted.len() as f64 / counted.iter().sum::<f64>()
        };
        self.pairs.len() as f64 / self.pairs.iter().map(rate).sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing but service: one second for each chunk but the last.
    fn message(full: usize, last: f64) -> Message {
        let chunks_s = std::iter::repeat_n(1.0, full).chain([last]).collect();
        Message { own_s: 0.0, chunks_s, turnaround_s: 0.0 }
    }

    #[track_caller]
    fn check(message: Message, pairs: usize, slowdown: f64, expect: f64) {
        let found = one_way_s(&message, pairs, slowdown);
        assert!((found - expect).abs() < 1e-6, "{found} is not {expect}: {message:?}");
    }

    #[test]
    fn alone_nobody_waits() {
        check(Message { own_s: 0.5, chunks_s: vec![1.0, 1.0, 0.25], turnaround_s: 0.125 }, 1, 1.0, 3.0);
        check(Message { own_s: 0.5, chunks_s: vec![0.0], turnaround_s: 0.0 }, 3, 1.0, 0.5);
    }

    /// One goes there while the other comes back: nobody waits, whatever the pair's own time.
    #[test]
    fn two_with_whole_messages_are_in_anti_phase() {
        check(message(0, 1.0), 2, 1.0, 1.0);
        check(Message { own_s: 0.75, ..message(0, 1.0) }, 2, 1.0, 1.75);
    }

    /// Three and more fill both directions: two messages in the time of one.
    #[test]
    fn more_pairs_fill_both_directions() {
        check(message(0, 1.0), 3, 1.0, 1.5);
        check(message(0, 1.0), 4, 1.0, 2.0);
        // Until then they only share the way: 3 x 1 s of service fit into a round trip of 2 x 2 s.
        check(Message { own_s: 1.0, ..message(0, 1.0) }, 3, 1.0, 2.0);
    }

    /// C C r r: the first ends after 2 C + r, the second r later, and so they turn round.
    #[test]
    fn chunks_put_two_in_step() {
        check(message(1, 0.25), 2, 1.0, 2.25);
        check(message(1, 0.75), 2, 1.0, 2.75);
        check(message(3, 0.5), 2, 1.0, 6.5);
        // Equal chunks: each waits for all of the other's but the last.
        check(message(1, 1.0), 2, 1.0, 3.0);
        check(message(3, 1.0), 2, 1.0, 7.0);
        // The pair's own time comes on top; turning round is hidden behind the other's chunk.
        check(Message { own_s: 0.5, ..message(1, 0.25) }, 2, 1.0, 2.75);
        check(Message { turnaround_s: 0.5, ..message(1, 1.0) }, 2, 1.0, 3.0);
    }

    /// Where both directions share one rate, anti-phase gains nothing.
    #[test]
    fn half_duplex_has_no_overshoot() {
        check(message(0, 1.0), 2, 2.0, 2.0);
        check(message(0, 1.0), 3, 2.0, 3.0);
    }

    #[test]
    fn any_message_ends() {
        for pairs in 1..6 {
            for chunks in 1..20 {
                for (own_s, turnaround_s) in [(0.0, 0.0), (0.3, 0.0), (0.0, 0.2), (7.0, 3.0)] {
                    let message = Message { own_s, turnaround_s, ..message(chunks, 0.4) };
                    let (found, alone) = (one_way_s(&message, pairs, 1.0), message.alone_s());
                    // Nobody is faster than alone, nor slower than if all went one after the other.
                    assert!(found >= alone * 0.999_999 && found <= alone * pairs as f64 * 1.000_001, "{found} {alone}");
                }
            }
        }
    }
}
