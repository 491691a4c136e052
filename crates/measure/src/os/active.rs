//! The machine code that a thread runs, for the handler of its faults: where it lies, and where it goes on after one.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::ops::Range;
use std::ptr;

/// A call of machine code.
#[derive(Clone, Copy)]
pub(super) struct Active {
    code: usize,
    length: usize,
    /// The instruction at which it goes on after a fault.
    pub exit: usize,
    /// Its argument.
    pub argument: usize,
    fault: *mut u64,
}

const NONE: Active = Active { code: 0, length: 0, exit: 0, argument: 0, fault: ptr::null_mut() };

thread_local! {
    /// The call this thread is in. Const-initialised and without a destructor, so a handler may read it.
    static ACTIVE: Cell<Active> = const { Cell::new(NONE) };
}

impl Active {
    /// The call of this thread, if `address` is one of its instructions; notes the fault that came there.
    pub fn faulted(address: usize, fault: u64) -> Option<Active> {
        let active = ACTIVE.get();
        let is_within = (active.code..active.code + active.length).contains(&address);
        is_within.then(|| {
            // SAFETY: `continued` was promised that it is valid while the code runs, which this thread was interrupted in.
            unsafe { ptr::write_volatile(active.fault, fault) };
            active
        })
    }
}

/// Runs `call`, which runs the machine code at these addresses on this thread. A fault of one of its instructions is
/// written to `fault` as the system's number of it, and goes on at `exit` with `argument` where the code keeps it.
///
/// # Safety
/// `exit` is an instruction of that code which needs nothing but the argument; `fault` is valid until `call` returns. Faults are handled.
pub(crate) unsafe fn continued(code: Range<usize>, exit: usize, argument: usize, fault: *mut u64, call: impl FnOnce()) {
    ACTIVE.set(Active { code: code.start, length: code.len(), exit, argument, fault });
    call();
    ACTIVE.set(NONE);
}
