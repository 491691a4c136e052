//! Faults of machine code, and of plain Rust on memory that is taken away (SIGILL, SIGSEGV, SIGBUS).
//!
//! Machine code goes on at an exit of its own. Plain Rust has no such exit: [`guard`] gives it other memory instead, and
//! says so.

#![allow(unsafe_code)]

use std::ops::Range;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};

use crate::os::active::Active;
pub(crate) use crate::os::active::continued;
use crate::os::memory::base_page;

/// What a signal says.
pub(crate) fn name(signal: i32) -> &'static str {
    match signal {
        libc::SIGILL => "SIGILL (an instruction this processor does not have)",
        libc::SIGSEGV => "SIGSEGV (an address that is not mapped)",
        libc::SIGBUS => "SIGBUS (memory that was taken away)",
        _ => "an unexpected signal",
    }
}

/// From now on faults are handled here.
pub(crate) fn handle() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for signal in [libc::SIGILL, libc::SIGSEGV, libc::SIGBUS] {
            // SAFETY: an all-zero sigaction is a valid value of the C struct; its fields are set below.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = on_fault as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            // SAFETY: `on_fault` has the three-argument signature that SA_SIGINFO asks for.
            unsafe { libc::sigaction(signal, &action, ptr::null_mut()) };
        }
    });
}

/// Memory was lost while plain Rust filled or checked it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("memory was taken away while it was filled or checked (SIGBUS)")]
pub struct TakenAway;

/// The memory that plain Rust works on. Atomic for the signal handler's sake; no other thread sees it.
struct Guarded {
    start: AtomicUsize,
    end: AtomicUsize,
    page: AtomicUsize,
    is_lost: AtomicBool,
}

thread_local! {
    /// What [`guard`] guards on this thread. Const-initialised and without a destructor, so a signal handler may read it.
    static GUARDED: Guarded = const {
        Guarded {
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            page: AtomicUsize::new(1),
            is_lost: AtomicBool::new(false),
        }
    };
}

impl Guarded {
    fn set(range: &Range<usize>, page: usize) {
        GUARDED.with(|guarded| {
            guarded.is_lost.store(false, Ordering::Relaxed);
            guarded.page.store(page, Ordering::Relaxed);
            guarded.start.store(range.start, Ordering::Relaxed);
            guarded.end.store(range.end, Ordering::Relaxed);
        });
        compiler_fence(Ordering::SeqCst);
    }

    fn is_lost() -> bool {
        compiler_fence(Ordering::SeqCst);
        GUARDED.with(|guarded| guarded.is_lost.load(Ordering::Relaxed))
    }

    /// Puts empty memory in place of all from the page of `address` on: what was lost there is mostly lost to the end,
    /// and mapping page after page would run into the limit of mappings. Whether the fault was in guarded memory.
    fn replace(address: usize) -> bool {
        GUARDED.with(|guarded| {
            let end = guarded.end.load(Ordering::Relaxed);
            if !(guarded.start.load(Ordering::Relaxed)..end).contains(&address) {
                return false;
            }
            let from = address - address % guarded.page.load(Ordering::Relaxed);
            let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: `guard`'s caller gave this range away: nothing but the interrupted closure refers to it.
            let new = unsafe { libc::mmap(from as *mut libc::c_void, end - from, protection, flags, -1, 0) };
            guarded.is_lost.store(true, Ordering::Relaxed);
            new != libc::MAP_FAILED
        })
    }
}

/// Ends the guard, also when the closure panics: later the range may be somebody else's.
struct Unguard;

impl Drop for Unguard {
    fn drop(&mut self) {
        Guarded::set(&(0..0), 1);
    }
}

/// Runs `touch`, which works on the memory in `range`, and survives that the memory is taken away meanwhile: a file that
/// somebody truncates, a device that is switched off, a page of a pool that a control group refuses. From there on
/// `touch` finds zeros, and what it writes is lost; the answer says so. Looking beforehand whether all pages are there
/// (MADV_POPULATE_WRITE) would not do: they may go a moment later, and the mappings of devices can't be asked.
/// Guards do not nest.
///
/// # Safety
/// `range` must be a mapping of the caller's, in whole pages of `page` bytes (a power of two), to which nothing but
/// `touch` refers, as any bits whatever.
pub unsafe fn guard<R>(range: Range<usize>, page: usize, touch: impl FnOnce() -> R) -> Result<R, TakenAway> {
    handle();
    // What is taken away goes in whole pages of the processor's.
    Guarded::set(&range, page.max(base_page()));
    let _unguard = Unguard;
    let result = touch();
    if Guarded::is_lost() { Err(TakenAway) } else { Ok(result) }
}

/// Address of the instruction that a signal came at.
#[cfg(target_arch = "x86_64")]
fn interrupted_at(machine: &libc::mcontext_t) -> usize {
    machine.gregs[libc::REG_RIP as usize] as usize
}

/// As above.
#[cfg(target_arch = "aarch64")]
fn interrupted_at(machine: &libc::mcontext_t) -> usize {
    machine.pc as usize
}

/// Lets the interrupted code go on elsewhere, with its argument where it is kept (`InstructionSet::CALL`).
#[cfg(target_arch = "x86_64")]
fn continue_at(machine: &mut libc::mcontext_t, exit: usize, argument: usize) {
    machine.gregs[libc::REG_R15 as usize] = argument as i64;
    machine.gregs[libc::REG_RIP as usize] = exit as i64;
}

/// As above.
#[cfg(target_arch = "aarch64")]
fn continue_at(machine: &mut libc::mcontext_t, exit: usize, argument: usize) {
    machine.regs[0] = argument as u64;
    machine.pc = exit as u64;
}

/// Continues a faulting kernel at its exit, and guarded Rust on other memory. Any other fault is not ours: the default
/// action is restored, and the instruction faults again and ends the process as it would have.
extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid ucontext_t, ours to change until we return.
    let machine = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext };
    if let Some(active) = Active::faulted(interrupted_at(machine), signal as u64) {
        continue_at(machine, active.exit, active.argument);
        return;
    }
    // SAFETY: with SA_SIGINFO the kernel passes a valid siginfo_t, which for SIGBUS has an address.
    if signal == libc::SIGBUS && Guarded::replace(unsafe { (*info).si_addr() } as usize) {
        return;
    }
    // SAFETY: resetting a signal to its default action is async-signal-safe.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}
