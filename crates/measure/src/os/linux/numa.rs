//! System calls about where memory lies, each made safe. They take addresses, but none changes what memory holds or
//! whether it is mapped.

#![allow(unsafe_code)]

use std::{io, ptr};

pub(crate) use crate::os::alike::Mode;
use membound_core::memory::policy::{NODES, NodeSet};

fn checked(result: libc::c_long) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets the policy of whole pages of a mapping; pages that are there already move if `moves`.
pub(crate) fn mbind(start: usize, bytes: usize, mode: Mode, nodes: &NodeSet, moves: bool) -> io::Result<()> {
    const MOVE: usize = 2;
    let flags = if moves { MOVE } else { 0 };
    // The default policy has no nodes.
    let mask = if mode == Mode::Default { ptr::null() } else { nodes.mask().as_ptr() };
    // The kernel reads one bit less than it is told.
    let bits = if mode == Mode::Default { 0 } else { NODES + 1 };
    let mode = mode as libc::c_int;
    // SAFETY: mbind reads NODES bits of the mask, and changes neither mappings nor what they hold.
    checked(unsafe { libc::syscall(libc::SYS_mbind, start, bytes, mode, mask, bits, flags) })
}

/// The node that memory is to be mapped on for a policy: none, for policies are set of what is mapped.
pub(crate) fn mapped_on(_mode: Mode, _nodes: &NodeSet) -> Option<u32> {
    None
}

/// What helps where a policy was refused.
pub(crate) fn cure(fault: io::ErrorKind) -> &'static str {
    match fault {
        io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported => {
            "; a sandbox forbids it: allow mbind and set_mempolicy (containers: --cap-add SYS_NICE), or name no place"
        }
        io::ErrorKind::InvalidInput => {
            "; a node has gone, or this process may no longer use it: see `membound machine`"
        }
        io::ErrorKind::OutOfMemory => "; give a smaller --size, or raise the number of mappings (vm.max_map_count)",
        _ => "; name another place, or none",
    }
}

/// The node of the page at each address; `None` where there is no page.
pub(crate) fn locate(addresses: &[usize]) -> io::Result<Vec<Option<u32>>> {
    let mut status = vec![-1i32; addresses.len()];
    let (nowhere, found) = (ptr::null::<i32>(), status.as_mut_ptr());
    // SAFETY: with no target nodes move_pages only reports; both arrays have the length given.
    let result =
        unsafe { libc::syscall(libc::SYS_move_pages, 0, addresses.len(), addresses.as_ptr(), nowhere, found, 0) };
    checked(result)?;
    Ok(status.into_iter().map(|node| u32::try_from(node).ok()).collect())
}

/// Has the pages that the calling thread makes while `work` runs follow a policy: those of a file are made when it is
/// filled, and the policy of its mappings comes too late for them.
pub(crate) fn with_policy<R>(mode: Mode, nodes: &NodeSet, work: impl FnOnce() -> R) -> io::Result<R> {
    let before = ThreadPolicy::now()?;
    ThreadPolicy { mode: mode as libc::c_int, mask: *nodes.mask() }.set()?;
    let result = work();
    before.set()?;
    Ok(result)
}

/// The calling thread's memory policy.
struct ThreadPolicy {
    mode: libc::c_int,
    mask: [u64; NODES / 64],
}

impl ThreadPolicy {
    fn now() -> io::Result<ThreadPolicy> {
        let mut policy = ThreadPolicy { mode: 0, mask: [0; NODES / 64] };
        let (mode, mask) = (&raw mut policy.mode, policy.mask.as_mut_ptr());
        // SAFETY: get_mempolicy writes one number and a mask of NODES bits.
        checked(unsafe { libc::syscall(libc::SYS_get_mempolicy, mode, mask, NODES, 0usize, 0usize) })?;
        Ok(policy)
    }

    fn set(&self) -> io::Result<()> {
        // The default policy has no nodes.
        let mask = if self.mode == Mode::Default as libc::c_int { ptr::null() } else { self.mask.as_ptr() };
        // SAFETY: set_mempolicy reads a mask of NODES bits: one less than it is told.
        checked(unsafe { libc::syscall(libc::SYS_set_mempolicy, self.mode, mask, NODES + 1) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::skip;

    #[test]
    fn a_threads_policy_is_as_it_was() {
        let before = ThreadPolicy::now().map(|policy| policy.mode);
        match with_policy(Mode::Bind, &NodeSet::one(0), ThreadPolicy::now) {
            Ok(during) => assert_eq!(during.unwrap().mask[0], 1),
            Err(fault) => skip(format!("memory policy is refused: {fault}")),
        }
        assert!(with_policy(Mode::Bind, &NodeSet::EMPTY, || ()).is_err());
        assert_eq!(ThreadPolicy::now().map(|policy| policy.mode).ok(), before.ok());
    }

    #[test]
    fn pages_are_found_where_there_are_any() {
        let page = vec![1u8; 8192];
        let inside = page.as_ptr() as usize;
        match locate(&[inside, 0]) {
            Ok(found) => assert!(found[0].is_some() && found[1].is_none(), "{found:?}"),
            Err(fault) => skip(format!("move_pages is refused: {fault}")),
        }
    }
}
