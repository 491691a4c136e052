//! Where memory lies. Windows takes one node when memory is reserved, which it prefers to others, and has no other policy.

use std::io;

pub(crate) use crate::os::alike::Mode;
use membound_core::memory::policy::NodeSet;

use super::pages::attributes;

/// What there is instead of policies.
const ONE_NODE: &str = "policy but one node for a whole mapping, bound or preferred";

/// The node that memory is to be mapped on for a policy. Bound memory is merely preferred there: where its pages lie is read back.
pub(crate) fn mapped_on(mode: Mode, nodes: &NodeSet) -> Option<u32> {
    nodes.only().filter(|_| matches!(mode, Mode::Bind | Mode::Preferred))
}

/// Refused: there is no such call.
pub(crate) fn mbind(_start: usize, _bytes: usize, mode: Mode, _nodes: &NodeSet, _moves: bool) -> io::Result<()> {
    if mode == Mode::Default { Ok(()) } else { super::lacks(ONE_NODE) }
}

/// What helps where a policy was refused: it was one that Windows has not.
pub(crate) fn cure(_fault: io::ErrorKind) -> &'static str {
    "; name one node (@node0, @preferred:0) and a kind other than heap, or no place"
}

/// The node of the page at each address; `None` where there is no page.
pub(crate) fn locate(addresses: &[usize]) -> io::Result<Vec<Option<u32>>> {
    let pages = attributes(addresses).ok_or_else(io::Error::last_os_error)?;
    Ok(pages.into_iter().map(|page| page.is_valid().then(|| page.node())).collect())
}

/// Has the pages that the calling thread makes while `work` runs follow a policy: the default alone.
pub(crate) fn with_policy<R>(mode: Mode, _nodes: &NodeSet, work: impl FnOnce() -> R) -> io::Result<R> {
    if mode == Mode::Default { Ok(work()) } else { super::lacks(ONE_NODE) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_node_is_taken_when_memory_is_mapped() {
        let both: NodeSet = [0, 1].into_iter().collect();
        assert_eq!(mapped_on(Mode::Bind, &NodeSet::one(1)), Some(1));
        assert_eq!(mapped_on(Mode::Preferred, &NodeSet::one(0)), Some(0));
        assert_eq!((mapped_on(Mode::Bind, &both), mapped_on(Mode::Interleave, &NodeSet::one(0))), (None, None));
        assert!(with_policy(Mode::Interleave, &both, || ()).unwrap_err().to_string().contains("one node"));
    }
}
