//! The world of MPI as a fleet's: everything is started and looked for, nothing waited for.

use std::collections::VecDeque;

use crate::fleet::word::MESSAGE_MOST;
use crate::fleet::world::{Unreachable, World};
use membound_measure::mpi::{Mpi, MpiError, Pending, Waiting};

/// The tag of all that a fleet says.
const TAG: u16 = 8;

/// Ranks that MPI has joined.
///
/// Sends are kept until MPI is done with them. So are receives: a long message is announced before it comes, and its sender may
/// hang in between. One sender's messages are handed over in their order, and nobody waits for another's.
#[derive(Debug)]
pub struct Joined<'m> {
    mpi: &'m Mpi,
    /// To whom, and what is on its way.
    sends: Vec<(usize, Pending<'m>)>,
    /// From whom, and what is on its way.
    receives: VecDeque<(usize, Pending<'m>)>,
}

impl<'m> Joined<'m> {
    /// All ranks of `mpi`.
    pub fn new(mpi: &'m Mpi) -> Self {
        Joined { mpi, sends: Vec::new(), receives: VecDeque::new() }
    }

    /// Lets go of sends that are done, and of those that failed: their receivers' silence tells.
    fn tidy(&mut self) {
        self.sends.retain_mut(|(_, send)| !send.is_done().unwrap_or(true));
    }

    /// The first message that is here whole, unless its sender has an earlier one on its way.
    fn arrived(&mut self) -> Result<Option<(usize, Vec<u8>)>, MpiError> {
        let mut held: Vec<usize> = Vec::new();
        for at in 0..self.receives.len() {
            let Some((from, pending)) = self.receives.get_mut(at) else { break };
            if held.contains(from) {
                continue;
            }
            match pending.is_done() {
                Ok(false) => held.push(*from),
                Ok(true) => {
                    let message = self.receives.remove(at);
                    return Ok(message.and_then(|(from, pending)| Some((from, pending.into_bytes()?))));
                }
                Err(fault) => {
                    self.receives.remove(at);
                    return Err(fault);
                }
            }
        }
        Ok(None)
    }
}

impl World for Joined<'_> {
    fn rank(&self) -> usize {
        self.mpi.rank()
    }

    fn size(&self) -> usize {
        self.mpi.size()
    }

    fn send(&mut self, to: usize, message: Vec<u8>) -> Result<(), Unreachable> {
        self.tidy();
        let send = self.mpi.start_send(message, to, TAG).map_err(unreachable)?;
        self.sends.push((to, send));
        Ok(())
    }

    fn receive(&mut self) -> Result<Option<(usize, Vec<u8>)>, Unreachable> {
        if !self.sends.is_empty() {
            self.tidy();
        }
        while let Some(waiting) = self.mpi.probe(TAG).map_err(unreachable)? {
            // What is longer is cut off, which MPI reports as a fault when it is here: the message is gone, and so is its rank.
            let waiting = Waiting { bytes: waiting.bytes.min(MESSAGE_MOST), ..waiting };
            let receive = self.mpi.start_receive(waiting, TAG).map_err(unreachable)?;
            self.receives.push_back((waiting.from, receive));
        }
        self.arrived().map_err(unreachable)
    }

    fn has_left(&mut self, to: usize) -> bool {
        self.tidy();
        !self.sends.iter().any(|(rank, _)| *rank == to)
    }
}

fn unreachable(fault: MpiError) -> Unreachable {
    Unreachable(fault.to_string())
}
