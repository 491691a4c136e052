//! Faults of machine code (illegal instructions, addresses that are not mapped): a handler that the system asks first lets the
//! code go on at an exit of its own.

#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::Once;

use crate::os::active::Active;
pub(crate) use crate::os::active::continued;
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
    // SAFETY: the system passes a valid record and a valid context, ours to change until we return.
    let (exception, machine) = unsafe { ((*(*about).ExceptionRecord).ExceptionCode, &mut *(*about).ContextRecord) };
    let Some(active) = Active::faulted(interrupted_at(machine), u64::from(exception as u32)) else {
        return EXCEPTION_CONTINUE_SEARCH;
    };
    continue_at(machine, active.exit, active.argument);
    EXCEPTION_CONTINUE_EXECUTION
}
