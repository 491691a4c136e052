//! What an Arm processor says of itself in registers that programs may read, and the kernel of it.

#![allow(unsafe_code)]

use core::arch::asm;

use membound_core::machine::source::ArmRegisters;

/// What they say.
pub(crate) fn read() -> ArmRegisters {
    let [instruction_line, data_line] = lines();
    ArmRegisters {
        data_line,
        instruction_line,
        zero_block: zero_block_bytes(),
        sve_register: super::sve::register_bytes(),
    }
}

/// Bytes of the shortest line of all instruction caches, and of all data caches.
pub(crate) fn lines() -> [u32; 2] {
    let kinds: u64;
    // SAFETY: reads a register (CTR_EL0) that Linux lets programs read, or reads for them.
    unsafe { asm!("mrs {}, ctr_el0", out(reg) kinds, options(nomem, nostack, preserves_flags)) };
    // IminLine and DminLine are logarithms of words of 4 bytes.
    [kinds & 0xf, kinds >> 16 & 0xf].map(|log| 4 << log)
}

/// Bytes that `dc zva` fills with zeros; 0 where the system prohibits it.
pub(crate) fn zero_block_bytes() -> u32 {
    let block: u64;
    // SAFETY: reads a register (DCZID_EL0) that every program may read.
    unsafe { asm!("mrs {}, dczid_el0", out(reg) block, options(nomem, nostack, preserves_flags)) };
    // BS is the logarithm of words of 4 bytes; DZP prohibits the instruction.
    let is_prohibited = block & 1 << 4 != 0;
    if is_prohibited { 0 } else { 4 << (block & 0xf) }
}

/// Whether there are instructions that copy and set memory.
pub(crate) fn has_mops() -> bool {
    // Linux, arch/arm64/include/uapi/asm/hwcap.h
    const HWCAP2_MOPS: libc::c_ulong = 1 << 43;
    // SAFETY: asks for a number.
    unsafe { libc::getauxval(libc::AT_HWCAP2) & HWCAP2_MOPS != 0 }
}
