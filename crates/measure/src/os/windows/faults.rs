//! Faults of machine code (illegal instructions, addresses that are not mapped): a handler that the system asks first lets the
//! code go on at an exit of its own.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::ops::Range;
use std::ptr;
use std::sync::Once;

use windows_sys::Win32::Foundation::{
    STATUS_ACCESS_VIOLATION, STATUS_ILLEGAL_INSTRUCTION, STATUS_IN_PAGE_ERROR, STATUS_PRIVILEGED_INSTRUCTION,
};
use windows_sys::Win32::System::Diagnostics::Debug::{
    AddVectoredExceptionHandler, CONTEXT, EXCEPTION_CONTINUE_EXECUTION, EXCEPTION_CONTINUE_SEARCH, EXCEPTION_POINTERS,
};

/// What an exception says.
pub(crate) fn name(exception: i32) -> &'static str {
    match exception {
        STATUS_ILLEGAL_INSTRUCTION => "STATUS_ILLEGAL_INSTRUCTION (an instruction this processor does not have)",
        STATUS_PRIVILEGED_INSTRUCTION => "STATUS_PRIVILEGED_INSTRUCTION (an instruction of kernels)",
        STATUS_ACCESS_VIOLATION => "STATUS_ACCESS_VIOLATION (an address that is not mapped)",
        STATUS_IN_PAGE_ERROR => "STATUS_IN_PAGE_ERROR (memory that was taken away)",
        _ => "an unexpected exception",
    }
}

#[derive(Clone, Copy)]
struct Active {
    code: usize,
    length: usize,
    exit: usize,
    argument: usize,
    fault: *mut u64,
}

impl Active {
    const NONE: Active = Active { code: 0, length: 0, exit: 0, argument: 0, fault: ptr::null_mut() };
}

thread_local! {
    /// The call this thread is in. Const-initialised and without a destructor, so the handler may read it.
    static ACTIVE: Cell<Active> = const { Cell::new(Active::NONE) };
}

/// From now on faults are handled here.
pub(crate) fn handle() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: `on_fault` has the signature asked for, and stays where it is.
        unsafe { AddVectoredExceptionHandler(1, Some(on_fault)) };
    });
}

/// Memory was lost while plain Rust filled or checked it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("memory was taken away while it was filled or checked")]
pub struct TakenAway;

/// Runs `touch`. Nobody takes away the memory that this program has here: it is no file's and no device's.
///
/// # Safety
/// `range` must be a mapping of the caller's.
pub unsafe fn guard<R>(_range: Range<usize>, _page: usize, touch: impl FnOnce() -> R) -> Result<R, TakenAway> {
    Ok(touch())
}

/// Runs `call`, which runs the machine code at these addresses on this thread. A fault of one of its instructions is
/// written to `fault` as an exception's number, and goes on at `exit` with `argument` where the code keeps it.
///
/// # Safety
/// `exit` is an instruction of that code which needs nothing but the argument; `fault` is valid until `call` returns. [`handle`] was called before.
pub(crate) unsafe fn continued(code: Range<usize>, exit: usize, argument: usize, fault: *mut u64, call: impl FnOnce()) {
    ACTIVE.set(Active { code: code.start, length: code.len(), exit, argument, fault });
    call();
    ACTIVE.set(Active::NONE);
}

/// Lets the interrupted code go on elsewhere, with its argument where it is kept (`InstructionSet::CALL`).
#[cfg(target_arch = "x86_64")]
fn continue_at(machine: &mut CONTEXT, exit: usize, argument: usize) {
    machine.R15 = argument as u64;
    machine.Rip = exit as u64;
}

#[cfg(target_arch = "x86_64")]
fn interrupted_at(machine: &CONTEXT) -> usize {
    machine.Rip as usize
}

/// As above.
#[cfg(target_arch = "aarch64")]
fn continue_at(machine: &mut CONTEXT, exit: usize, argument: usize) {
    // SAFETY: registers by number or by name are the same words.
    unsafe { machine.Anonymous.X[0] = argument as u64 };
    machine.Pc = exit as u64;
}

#[cfg(target_arch = "aarch64")]
fn interrupted_at(machine: &CONTEXT) -> usize {
    machine.Pc as usize
}

/// Continues a faulting kernel at its exit; any other exception is not ours.
unsafe extern "system" fn on_fault(about: *mut EXCEPTION_POINTERS) -> i32 {
    let active = ACTIVE.get();
    // SAFETY: the system passes a valid record and a valid context, ours to change until we return.
    let (exception, machine) = unsafe { ((*(*about).ExceptionRecord).ExceptionCode, &mut *(*about).ContextRecord) };
    if !(active.code..active.code + active.length).contains(&interrupted_at(machine)) {
        return EXCEPTION_CONTINUE_SEARCH;
    }
    // SAFETY: `continued` was promised that it is valid while the code runs, which this thread was interrupted in.
    unsafe { ptr::write_volatile(active.fault, u64::from(exception as u32)) };
    continue_at(machine, active.exit, active.argument);
    EXCEPTION_CONTINUE_EXECUTION
}
