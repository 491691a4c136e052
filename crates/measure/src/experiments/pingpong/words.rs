//! What ranks say to each other, and how.

use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::mpi::{Mpi, MpiError};
use crate::no_visit::NoVisit;
use membound_core::case::{Case, Work};
use membound_core::json;
use membound_core::work::pingpong::{PingPong, Seat};

/// What messages are about.
pub(crate) mod tag {
    /// To rank 0: who I am.
    pub const HELLO: u16 = 1;
    /// From rank 0: what to do next.
    pub const ORDER: u16 = 2;
    /// To rank 0: whether that can be done, and what came of it.
    pub const ANSWER: u16 = 3;
    /// From rank 0: so many repetitions.
    pub const GO: u16 = 4;
    /// To rank 0: they are done.
    pub const DONE: u16 = 5;
    /// Within a pair: a message that is timed.
    pub const BALL: u16 = 6;
    /// Within a pair: a handshake.
    pub const SYNC: u16 = 7;
}

/// What rank 0 has another rank do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Take part in a visit.
    Visit(Box<Part>),
    /// Leave.
    End,
}

/// One rank's part of a visit.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Part {
    pub case: Case,
    /// Where it sits.
    pub seat: Seat,
    /// The other rank of its pair.
    pub partner: usize,
    /// Whether it is the one that begins, and that is timed.
    pub is_first: bool,
}

impl Part {
    pub fn work(&self) -> Result<&PingPong, NoVisit> {
        match &self.case.work {
            Work::PingPong(work) => Ok(work),
            other => Err(NoVisit::impossible(format!("{other:?} is nothing that processes do with each other"))),
        }
    }
}

/// Spins for a moment, then sleeps, longer with time.
pub(crate) fn pause(since: Instant) {
    match since.elapsed() {
        short if short < Duration::from_micros(500) => std::thread::yield_now(),
        long => std::thread::sleep((long / 20).clamp(Duration::from_micros(50), Duration::from_millis(2))),
    }
}

pub(crate) fn send<T: Serialize>(mpi: &Mpi, value: &T, to: usize, tag: u16) -> Result<(), MpiError> {
    mpi.send(json::text(value).as_bytes(), to, tag)
}

pub(crate) fn receive<T: DeserializeOwned>(
    mpi: &Mpi,
    bytes: usize,
    from: usize,
    tag: u16,
) -> Result<Option<T>, MpiError> {
    let mut text = vec![0; bytes];
    let length = mpi.receive(&mut text, from, tag)?;
    text.truncate(length);
    Ok(std::str::from_utf8(&text).ok().and_then(|text| serde_json::from_str(text).ok()))
}
