//! The same plan on every node of a fleet. A launcher that the cluster has (mpirun, srun) starts one rank or more on each
//! node; membound launches nothing itself. Ranks say who they are; rank 0 sorts them into nodes, and on each node the lowest
//! rank measures while the others hold still.
//!
//! ```text
//!            Hello                 Measure / Still          Ask, Piece, Ask, Piece ...        Last, Bye, Leave
//! rank k ------------> rank 0 --------------------> rank k <--------------------------> rank 0 ---------------> rank k
//! ```
//!
//! *A rank never measures itself.* It starts this program once more as a child with the plan's arguments, in a process group
//! of its own, and watches it. So no fault of what is measured ends the job, and the child, which knows nothing of MPI, runs
//! as it would alone.
//!
//! *Nobody waits for anybody.* Messages are started and looked for, never waited for; between looks a rank sleeps. Who says
//! nothing for too long is given up. Rank 0 asks for a record piece by piece, from a few nodes at a time, and writes what
//! arrives at once: so its memory is bounded, and what was measured is kept whatever happens afterwards.

pub mod arriving;
pub mod child;
pub mod follow;
pub mod joined;
pub mod lead;
pub mod nodes;
pub mod summary;
pub mod word;
pub mod world;

use crate::fleet::word::State;

use std::io;
use std::time::{Duration, Instant};

/// How long everything may take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Patience {
    /// What a node may take to measure; its child is ended then.
    pub node: Duration,
    /// Without a word for so long, a rank is lost.
    pub silence: Duration,
    /// A rank whose node is being measured looks for messages so often: each look costs that node some microseconds.
    pub look: Duration,
    /// While a node measures, what it has finished is asked for so often.
    pub pace: Duration,
}

impl Patience {
    /// The usual: four looks a second, and what is finished every two seconds.
    pub fn new(node: Duration, silence: Duration) -> Self {
        Patience { node, silence, look: Duration::from_millis(250), pace: Duration::from_secs(2) }
    }
}

/// What is being measured on a node, as its rank sees it.
pub trait Measuring {
    /// How it stands. Ends what takes too long.
    fn state(&mut self) -> State;

    /// Bytes of the record from `at` on, at most `most`, of complete lines.
    fn read(&mut self, at: u64, most: usize) -> io::Result<Vec<u8>>;

    /// Bytes of complete lines so far. No more will come once it has ended.
    fn bytes(&mut self) -> u64;

    /// Ends it: what is finished is kept.
    fn stop(&mut self);
}

/// A measurement that has begun, or why it can't on this node.
pub type Begun<'m> = Result<Box<dyn Measuring + 'm>, String>;

/// Time as a rank lives through it. A job that was suspended, or a machine that slept, has not been waiting meanwhile: a look
/// that comes late counts for no more than a second.
#[derive(Debug)]
struct Awake {
    last: Instant,
    total: Duration,
}

impl Awake {
    const MOST: Duration = Duration::from_secs(1);

    fn new() -> Self {
        Awake { last: Instant::now(), total: Duration::ZERO }
    }

    /// The time by now.
    fn now(&mut self) -> Duration {
        self.until(Instant::now())
    }

    fn until(&mut self, now: Instant) -> Duration {
        let gap = now.saturating_duration_since(std::mem::replace(&mut self.last, now));
        self.total += gap.min(Self::MOST);
        self.total
    }
}

/// Naps between looks: none while there is much to do, longer and longer while there is nothing.
#[derive(Debug)]
struct Naps {
    next: Duration,
    longest: Duration,
}

impl Naps {
    const SHORTEST: Duration = Duration::from_micros(200);

    fn up_to(longest: Duration) -> Self {
        Naps { next: Self::SHORTEST, longest }
    }

    /// Sleeps, unless something has just happened.
    fn nap(&mut self, is_busy: bool) {
        if is_busy {
            self.next = Self::SHORTEST;
            return;
        }
        std::thread::sleep(self.next);
        self.next = (2 * self.next).min(self.longest);
    }
}

/// Sleeps, but not through an interruption: whoever interrupts kills soon after.
fn doze(long: Duration, interrupted: &dyn Fn() -> bool) {
    const SLICE: Duration = Duration::from_millis(50);
    let start = Instant::now();
    let left = || long.saturating_sub(start.elapsed());
    while !left().is_zero() && !interrupted() {
        std::thread::sleep(left().min(SLICE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_that_slept_was_not_kept_waiting() {
        let start = Instant::now();
        let mut awake = Awake { last: start, total: Duration::ZERO };
        assert_eq!(awake.until(start + Duration::from_millis(250)), Duration::from_millis(250));
        // Suspended for an hour: one second of it counts.
        assert_eq!(awake.until(start + Duration::from_secs(3600)), Duration::from_millis(1250));
        assert_eq!(awake.until(start + Duration::from_millis(3_600_500)), Duration::from_millis(1750));
    }
}
