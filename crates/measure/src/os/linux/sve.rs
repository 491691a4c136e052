//! How long this thread's SVE registers are.

#![allow(unsafe_code)]

/// Bytes; 0 without SVE. The kernel may let programs use less than the processor has (/proc/sys/abi/sve_default_vector_length).
pub(crate) fn register_bytes() -> u32 {
    // Linux, include/uapi/linux/prctl.h: the answer's low 16 bits are the length, the others flags.
    const PR_SVE_GET_VL: libc::c_int = 51;
    const LENGTH: libc::c_int = 0xffff;
    // SAFETY: asks for a number.
    let answer = unsafe { libc::prctl(PR_SVE_GET_VL) };
    if answer < 0 { 0 } else { (answer & LENGTH) as u32 }
}
