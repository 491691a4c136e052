//! Signals to processes that a test started.

/// Sends one; whether the process was there to get it.
#[allow(unsafe_code)]
pub fn send(signal: i32, process: u32) -> bool {
    // SAFETY: a system call with two numbers.
    unsafe { libc::kill(process as i32, signal) == 0 }
}
