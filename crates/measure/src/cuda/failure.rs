//! What a CUDA call answered instead of success, and which outcome that makes.

use crate::driver::failure::{Codes, Failure};
use crate::no_visit::NoVisit;

pub(crate) const OUT_OF_MEMORY: i32 = 2;
pub(crate) const STUB_LIBRARY: i32 = 34;
pub(crate) const NO_DEVICE: i32 = 100;
pub(crate) const PEER_ACCESS_UNSUPPORTED: i32 = 217;
pub(crate) const PEER_ACCESS_ALREADY_ENABLED: i32 = 704;
pub(crate) const TOO_MANY_PEERS: i32 = 711;
pub(crate) const NOT_SUPPORTED: i32 = 801;
pub(crate) const SYSTEM_NOT_READY: i32 = 802;
pub(crate) const SYSTEM_DRIVER_MISMATCH: i32 = 803;
pub(crate) const COMPAT_NOT_SUPPORTED: i32 = 804;

/// Answers after which the context is void, as cuda.h says of each: nothing works but a new process.
const LOST: [i32; 12] = [4, 46, 201, 214, 220, 700, 702, 709, 715, 716, 718, 719];
/// Answers that say what this device, driver or process may not do.
const CANNOT: [i32; 4] = [800, NOT_SUPPORTED, PEER_ACCESS_UNSUPPORTED, TOO_MANY_PEERS];
/// Answers to a module that the driver can't compile.
const NO_KERNELS: [i32; 7] = [200, 209, 218, 221, 222, 223, 300];

/// The codes of cuda.h.
pub(crate) static CODES: Codes = Codes { names: &NAMES, outcome };

/// Names of cuda.h for codes that users meet.
const NAMES: [(i32, &str); 35] = [
    (1, "CUDA_ERROR_INVALID_VALUE"),
    (OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"),
    (3, "CUDA_ERROR_NOT_INITIALIZED"),
    (4, "CUDA_ERROR_DEINITIALIZED"),
    (STUB_LIBRARY, "CUDA_ERROR_STUB_LIBRARY"),
    (46, "CUDA_ERROR_DEVICE_UNAVAILABLE"),
    (NO_DEVICE, "CUDA_ERROR_NO_DEVICE"),
    (101, "CUDA_ERROR_INVALID_DEVICE"),
    (200, "CUDA_ERROR_INVALID_IMAGE"),
    (201, "CUDA_ERROR_INVALID_CONTEXT"),
    (209, "CUDA_ERROR_NO_BINARY_FOR_GPU"),
    (214, "CUDA_ERROR_ECC_UNCORRECTABLE"),
    (PEER_ACCESS_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"),
    (218, "CUDA_ERROR_INVALID_PTX"),
    (220, "CUDA_ERROR_NVLINK_UNCORRECTABLE"),
    (221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND"),
    (222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"),
    (223, "CUDA_ERROR_JIT_COMPILATION_DISABLED"),
    (300, "CUDA_ERROR_INVALID_SOURCE"),
    (400, "CUDA_ERROR_INVALID_HANDLE"),
    (700, "CUDA_ERROR_ILLEGAL_ADDRESS"),
    (702, "CUDA_ERROR_LAUNCH_TIMEOUT"),
    (PEER_ACCESS_ALREADY_ENABLED, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"),
    (709, "CUDA_ERROR_CONTEXT_IS_DESTROYED"),
    (TOO_MANY_PEERS, "CUDA_ERROR_TOO_MANY_PEERS"),
    (712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"),
    (715, "CUDA_ERROR_ILLEGAL_INSTRUCTION"),
    (716, "CUDA_ERROR_MISALIGNED_ADDRESS"),
    (718, "CUDA_ERROR_INVALID_PC"),
    (719, "CUDA_ERROR_LAUNCH_FAILED"),
    (800, "CUDA_ERROR_NOT_PERMITTED"),
    (NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"),
    (SYSTEM_NOT_READY, "CUDA_ERROR_SYSTEM_NOT_READY"),
    (SYSTEM_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
    (COMPAT_NOT_SUPPORTED, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"),
];

fn outcome(failure: &Failure) -> NoVisit {
    let is_of_host = failure.call.starts_with("cuMemHost");
    match failure.code {
        OUT_OF_MEMORY if is_of_host => {
            NoVisit::impossible(format!("the host's memory could not be pinned: {failure}; give a smaller --size"))
        }
        OUT_OF_MEMORY => {
            NoVisit::impossible(format!("the device has too little memory: {failure}; give a smaller --size"))
        }
        code if CANNOT.contains(&code) => NoVisit::impossible(format!("the device can't do this: {failure}")),
        code if LOST.contains(&code) => NoVisit::Broken(format!("the device was lost: {failure}")),
        code if NO_KERNELS.contains(&code) && failure.call == "cuModuleLoadDataEx" => {
            NoVisit::impossible(format!("the device's compiler refuses our kernels: {failure}"))
        }
        _ => NoVisit::Broken(format!("the driver answers {failure}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::failure::told;

    #[test]
    fn failures_are_named_outcomes() {
        let unavailable = |call, code, part| told::is(CODES.failure(call, code), "unavailable", part);
        let crashed = |call, code, part| told::is(CODES.failure(call, code), "crashed", part);
        unavailable("cuMemAlloc", 2, "the device has too little memory: CUDA_ERROR_OUT_OF_MEMORY (2) from cuMemAlloc");
        unavailable("cuMemHostAlloc", 2, "could not be pinned");
        unavailable("cuMemHostRegister", 801, "can't do this: CUDA_ERROR_NOT_SUPPORTED (801)");
        unavailable("cuCtxEnablePeerAccess", 711, "can't do this: CUDA_ERROR_TOO_MANY_PEERS (711)");
        unavailable("cuModuleLoadDataEx", 222, "refuses our kernels: CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222)");
        crashed("cuStreamSynchronize", 719, "the device was lost: CUDA_ERROR_LAUNCH_FAILED (719)");
        crashed("cuLaunchKernel", 1, "the driver answers CUDA_ERROR_INVALID_VALUE (1) from cuLaunchKernel");
        crashed("cuInit", 12_345, "an unknown error (12345) from cuInit");
    }
}
