//! Counters of devices.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::FromRawFd;

/// struct perf_event_attr in its second version (include/uapi/linux/perf_event.h).
#[repr(C)]
#[derive(Debug)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    /// Period, format of samples, format of what is read.
    sampling: [u64; 3],
    /// A bit field, the first one the lowest bit.
    flags: u64,
    wake_up: u64,
    /// config1 and config2.
    more: [u64; 2],
}

// PERF_ATTR_SIZE_VER1; the flags stand behind five words.
const _: () = assert!(size_of::<Attributes>() == 72 && std::mem::offset_of!(Attributes, flags) == 40);

/// Always on its device, or in error: the third flag, after `disabled` and `inherit`.
const PINNED: u64 = 1 << 2;

/// A counter of a device (power, memory controllers) on one CPU, which stands for its package: reading it gives 8 bytes of
/// count. `config` holds the request's fields `config`, `config1` and `config2`. It is pinned: where others have taken all counters of
/// the device, reading it gives nothing, and never the count of a part of the time.
pub fn counter_event(device: u32, config: [u64; 3], cpu: u32) -> io::Result<std::fs::File> {
    let [config, more @ ..] = config;
    let size = size_of::<Attributes>() as u32;
    let attributes = Attributes { kind: device, size, config, sampling: [0; 3], flags: PINNED, wake_up: 0, more };
    let (every_process, no_group, flags) = (-1, -1, libc::c_ulong::from(8u8));
    // SAFETY: the kernel reads `size` bytes of `attributes`. Flag 8 (PERF_FLAG_FD_CLOEXEC) makes no other promise.
    let file = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            every_process,
            cpu as libc::c_int,
            no_group,
            flags,
        )
    };
    match i32::try_from(file) {
        // SAFETY: a descriptor that the kernel has just made for us, and that nobody else knows.
        Ok(file) if file >= 0 => Ok(unsafe { std::fs::File::from_raw_fd(file) }),
        _ => Err(io::Error::last_os_error()),
    }
}
