//! Where memory lies. Windows takes a node when memory is reserved, and lays no policy on pages that are mapped already.

use std::io;

pub(crate) use crate::os::alike::Mode;
use membound_core::memory::policy::NodeSet;

use super::pages::attributes;

/// Refused: there is no such call.
pub(crate) fn mbind(_start: usize, _bytes: usize, mode: Mode, _nodes: &NodeSet, _moves: bool) -> io::Result<()> {
    if mode == Mode::Default { Ok(()) } else { super::lacks("policy for pages that are mapped already") }
}

/// The node of the page at each address; `None` where there is no page.
pub(crate) fn locate(addresses: &[usize]) -> io::Result<Vec<Option<u32>>> {
    let pages = attributes(addresses).ok_or_else(io::Error::last_os_error)?;
    Ok(pages.into_iter().map(|page| page.is_valid().then(|| page.node())).collect())
}

/// Has the pages that the calling thread makes while `work` runs follow a policy: the default alone.
pub(crate) fn with_policy<R>(mode: Mode, _nodes: &NodeSet, work: impl FnOnce() -> R) -> io::Result<R> {
    if mode == Mode::Default { Ok(work()) } else { super::lacks("policy for the pages of a thread") }
}
