//! System calls that the kernel refuses a child, as containers' seccomp profiles do.

#![allow(unsafe_code)]

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Of which calls.
#[derive(Clone, Copy)]
pub enum Where {
    /// All.
    All,
    /// Those with one of these bits in an argument.
    Bits(u32, u32),
    /// Those with at least so much in an argument.
    Least(u32, u32),
}

/// Has the kernel answer some calls of the child with an error.
pub fn refuse(command: &mut Command, call: libc::c_long, errno: i32, of: Where) {
    const ALLOW: u32 = 0x7fff_0000;
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = |offset| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    let (low, high) = (|n: u32| 16 + 8 * n, |n: u32| 20 + 8 * n);
    let mut filter = vec![load(0)];
    let refusal = step(libc::BPF_RET | libc::BPF_K, 0, 0, 0x0005_0000 | errno as u32);
    let allowed = step(libc::BPF_RET | libc::BPF_K, 0, 0, ALLOW);
    let jump = |test: u32, jt, jf, k| step(libc::BPF_JMP | test | libc::BPF_K, jt, jf, k);
    filter.push(jump(libc::BPF_JEQ, 1, 0, call as u32));
    filter.push(allowed);
    match of {
        Where::All => {}
        Where::Bits(argument, bits) => {
            filter.extend([load(low(argument)), jump(libc::BPF_JSET, 1, 0, bits), allowed]);
        }
        Where::Least(argument, least) => {
            let more = [
                load(high(argument)),
                jump(libc::BPF_JEQ, 0, 2, 0),
                load(low(argument)),
                jump(libc::BPF_JGE, 0, 1, least),
            ];
            filter.extend(more);
            filter.extend([refusal, allowed]);
        }
    }
    filter.push(refusal);
    // SAFETY: both calls are async-signal-safe; the program points to the filter, which the closure holds.
    unsafe {
        command.pre_exec(move || {
            let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
            let refused = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1
                || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == -1;
            if refused { Err(std::io::Error::last_os_error()) } else { Ok(()) }
        });
    }
}
