//! Messages between pairs of processes.

use crate::units::{Bytes, counted, words};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

words! {
    /// What the two processes of a pair do with a message.
    MessageMode, "mode" {
        /// One sends, the other sends back: IMB's PingPong. Its time is half a round trip.
        PingPong = "pingpong",
        /// One sends and sends on, each time until its buffer is free; the other acknowledges after each 64 messages.
        OneWay = "one-way",
        /// Both send and receive at once: IMB's Sendrecv. It counts the bytes of both.
        Exchange = "exchange",
    }
}

words! {
    /// Whether messages come from and go to the same place.
    Buffers, "buffers" {
        /// One place to send from and one to receive to: small messages stay in caches.
        Same = "same",
        /// Each message is the next part of memory that is larger than the caches.
        Rotating = "rotating",
        /// One place for both: what came is sent back from where it was received, as NetPIPE does.
        InPlace = "in-place",
    }
}

words! {
    /// What lies between the two processes of a pair.
    MessagePath, "path" {
        /// A last-level cache that both share.
        Cache = "same cache",
        /// The way between two last-level caches of a package.
        Package = "same package",
        /// The way between packages.
        Machine = "other package",
        /// A network.
        Network = "network",
    }
}

/// Where a process sits while it is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Seat {
    /// Index into the hosts of the record's world; 0 is that of rank 0.
    pub host: u32,
    /// The CPU that it is pinned to; absent where it is not pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
}

/// Messages between pairs of processes, all at once. The case's working set is the bytes of a message; its CPUs are those
/// of the pairs, one pair after the other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct PingPong {
    /// What is done with a message.
    pub mode: MessageMode,
    /// Where messages come from and go to.
    pub buffers: Buffers,
    /// What lies between the two of each pair.
    pub path: MessagePath,
    /// The pairs; the first of each is timed.
    pub pairs: Vec<[Seat; 2]>,
    /// Whether some of the pairs have other hosts, packages or caches between them than the first: no path is common to all.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spread: bool,
    /// Bytes that each process walks through to send, and as many to receive, where buffers rotate; else 0.
    #[serde(default)]
    pub pool: Bytes,
    /// Whether more processes run than there are CPUs: such times are of the scheduler.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub oversubscribed: bool,
}

impl PingPong {
    /// Whether all pairs are connections over one path: as far as the plan told, and by their hosts in any case.
    pub fn is_of_one_path(&self) -> bool {
        let hosts = |pair: &[Seat; 2]| BTreeSet::from(pair.map(|seat| seat.host));
        !self.spread && self.pairs.windows(2).all(|two| hosts(&two[0]) == hosts(&two[1]))
    }
}

impl fmt::Display for PingPong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = counted(self.pairs.len(), "pair");
        write!(f, "{}, {pairs}, {}, {} buffers", self.mode, self.path, self.buffers)?;
        if self.oversubscribed { f.write_str(", oversubscribed") } else { Ok(()) }
    }
}
