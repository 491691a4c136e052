//! Questions to the system, each made safe.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::{io, ptr};

use windows_sys::Win32::Foundation::{
    CloseHandle, ERROR_INSUFFICIENT_BUFFER, ERROR_NOT_ALL_ASSIGNED, ERROR_SUCCESS, GetLastError, HANDLE, LUID,
};
use windows_sys::Win32::Security::{
    AdjustTokenPrivileges, LUID_AND_ATTRIBUTES, LookupPrivilegeValueW, SE_PRIVILEGE_ENABLED, TOKEN_ADJUST_PRIVILEGES,
    TOKEN_PRIVILEGES,
};
use windows_sys::Win32::System::ProcessStatus::{ENUM_PAGE_FILE_INFORMATION, K32EnumPageFilesW};
use windows_sys::Win32::System::Registry::{HKEY_LOCAL_MACHINE, RRF_RT_REG_DWORD, RRF_RT_REG_SZ, RegGetValueW};
use windows_sys::Win32::System::SystemInformation::{
    ComputerNameDnsHostname, GetComputerNameExW, GetLogicalProcessorInformationEx, GetSystemInfo, GlobalMemoryStatusEx,
    MEMORYSTATUSEX, RelationAll, SYSTEM_INFO,
};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, GetNumaAvailableMemoryNodeEx, OpenProcessToken};
use windows_sys::core::{BOOL, PCWSTR};

use super::checked;

/// Text as the system takes it.
fn wide(text: &str) -> Vec<u16> {
    text.encode_utf16().chain([0]).collect()
}

/// What is told of cores, caches, packages and nodes; empty where nothing is.
pub(super) fn processors() -> Vec<u8> {
    let mut length = 0;
    loop {
        // In words of 8 bytes, as the structs are aligned.
        let mut words = vec![0u64; (length as usize).div_ceil(8)];
        let room = length;
        // SAFETY: there is room for `length` bytes; without enough the call tells the length that it needs.
        let is_told =
            unsafe { GetLogicalProcessorInformationEx(RelationAll, words.as_mut_ptr().cast(), &mut length) != 0 };
        if is_told {
            let mut bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
            bytes.truncate(length as usize);
            return bytes;
        }
        // A CPU may come between two calls: then more is needed than was.
        // SAFETY: asks for a number.
        if unsafe { GetLastError() } != ERROR_INSUFFICIENT_BUFFER || length <= room {
            return Vec::new();
        }
    }
}

/// The machine's memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    /// Bytes of memory.
    pub total: u64,
    /// Bytes that programs can have of it.
    pub available: u64,
}

/// How much there is.
pub(super) fn memory() -> Option<Memory> {
    // SAFETY: all-zero is a valid value of the struct, which says how long it is and is filled by the call.
    let (is_told, told) = unsafe {
        let mut told: MEMORYSTATUSEX = std::mem::zeroed();
        told.dwLength = size_of::<MEMORYSTATUSEX>() as u32;
        (GlobalMemoryStatusEx(&mut told) != 0, told)
    };
    is_told.then_some(Memory { total: told.ullTotalPhys, available: told.ullAvailPhys })
}

/// Bytes of all page files, and those of them that hold something; absent where the system does not tell. What is left of the commit
/// limit says nothing of that: memory that was promised and never touched is in no file.
pub(super) fn page_files() -> Option<(u64, u64)> {
    unsafe extern "system" fn add(sum: *mut c_void, file: *mut ENUM_PAGE_FILE_INFORMATION, _name: PCWSTR) -> BOOL {
        // SAFETY: the system passes on what it was given below, and a whole struct; nobody else has either meanwhile.
        let ((all, used), file) = unsafe { (&mut *sum.cast::<(u64, u64)>(), &*file) };
        *all += file.TotalSize as u64;
        *used += file.TotalInUse as u64;
        1
    }
    let mut pages = (0u64, 0u64);
    // SAFETY: `add` has the signature asked for and is called before this returns, with the numbers that it adds to.
    let is_told = unsafe { K32EnumPageFilesW(Some(add), (&raw mut pages).cast()) } != 0;
    let page = base_page() as u64;
    is_told.then_some((pages.0 * page, pages.1 * page))
}

/// Bytes of a page of the processor's page tables.
pub(crate) fn base_page() -> usize {
    // SAFETY: all-zero is a valid value of the struct, which the call fills.
    let about = unsafe {
        let mut about: SYSTEM_INFO = std::mem::zeroed();
        GetSystemInfo(&mut about);
        about
    };
    Some(about.dwPageSize as usize).filter(|page| page.is_power_of_two()).unwrap_or(4096)
}

/// Free memory of a node, in bytes.
pub(super) fn node_free(node: u32) -> Option<u64> {
    let mut bytes = 0;
    let node = u16::try_from(node).ok()?;
    // SAFETY: writes the number it is given.
    (unsafe { GetNumaAvailableMemoryNodeEx(node, &mut bytes) } != 0).then_some(bytes)
}

/// The host's name.
pub(super) fn host_name() -> Option<String> {
    let mut name = [0u16; 256];
    let mut length = name.len() as u32;
    // SAFETY: writes at most `length` characters, and how many they are.
    let is_told = unsafe { GetComputerNameExW(ComputerNameDnsHostname, name.as_mut_ptr(), &mut length) } != 0;
    is_told.then(|| String::from_utf16_lossy(&name[..(length as usize).min(name.len())]))
}

/// A text of the registry, below HKEY_LOCAL_MACHINE.
pub(super) fn registry_text(key: &str, value: &str) -> Option<String> {
    let mut text = [0u16; 512];
    let mut bytes = size_of_val(&text) as u32;
    let (key, value) = (wide(key), wide(value));
    let (room, length) = (text.as_mut_ptr().cast(), &raw mut bytes);
    // SAFETY: names end in 0; at most `bytes` bytes are written, and how many they are.
    let told = unsafe {
        RegGetValueW(HKEY_LOCAL_MACHINE, key.as_ptr(), value.as_ptr(), RRF_RT_REG_SZ, ptr::null_mut(), room, length)
    };
    let text = text.split(|c| *c == 0).next().unwrap_or_default();
    (told == ERROR_SUCCESS).then(|| String::from_utf16_lossy(text)).filter(|text| !text.is_empty())
}

/// A number of the registry.
pub(super) fn registry_number(key: &str, value: &str) -> Option<u32> {
    let (mut number, mut bytes) = (0u32, size_of::<u32>() as u32);
    let (key, value) = (wide(key), wide(value));
    let (room, length) = ((&raw mut number).cast(), &raw mut bytes);
    // SAFETY: as above.
    let told = unsafe {
        RegGetValueW(HKEY_LOCAL_MACHINE, key.as_ptr(), value.as_ptr(), RRF_RT_REG_DWORD, ptr::null_mut(), room, length)
    };
    (told == ERROR_SUCCESS).then_some(number)
}

/// Takes the right to large pages, where this user was given it.
///
/// # Errors
/// The user has no such right: the text says who gives it.
pub(super) fn allow_large_pages() -> io::Result<()> {
    const RIGHT: &str = "SeLockMemoryPrivilege";
    let mut token: HANDLE = ptr::null_mut();
    let mut id = LUID { LowPart: 0, HighPart: 0 };
    let name = wide(RIGHT);
    // SAFETY: a handle of our own, closed below; the structs are whole and outlive the calls.
    let is_given = unsafe {
        checked(OpenProcessToken(GetCurrentProcess(), TOKEN_ADJUST_PRIVILEGES, &mut token))?;
        LookupPrivilegeValueW(ptr::null(), name.as_ptr(), &mut id);
        let wanted = TOKEN_PRIVILEGES {
            PrivilegeCount: 1,
            Privileges: [LUID_AND_ATTRIBUTES { Luid: id, Attributes: SE_PRIVILEGE_ENABLED }],
        };
        let result = AdjustTokenPrivileges(token, 0, &wanted, 0, ptr::null_mut(), ptr::null_mut());
        let is_given = result != 0 && GetLastError() != ERROR_NOT_ALL_ASSIGNED;
        CloseHandle(token);
        is_given
    };
    let why = "this process lacks SeLockMemoryPrivilege: have the user given it (Local Security Policy: Lock pages in memory; then \
               log on again); an administrator who has it needs an elevated prompt";
    if is_given { Ok(()) } else { Err(io::Error::new(io::ErrorKind::PermissionDenied, why)) }
}
