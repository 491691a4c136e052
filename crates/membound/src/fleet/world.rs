//! The other ranks, as far as a fleet needs them.

/// Why a rank can't be reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreachable(pub String);

/// Ranks that send each other messages. Nothing here waits for another rank: that is what keeps a rank that hangs from
/// making others hang. Messages from one rank to another arrive in the order in which they were sent.
pub trait World {
    /// The own number, from 0.
    fn rank(&self) -> usize;

    /// Ranks in all.
    fn size(&self) -> usize;

    /// Starts to send a message.
    fn send(&mut self, to: usize, message: Vec<u8>) -> Result<(), Unreachable>;

    /// A message that has arrived, and who sent it.
    fn receive(&mut self) -> Result<Option<(usize, Vec<u8>)>, Unreachable>;

    /// Whether all that was sent to a rank has left.
    fn has_left(&mut self, to: usize) -> bool;
}
