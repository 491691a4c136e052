//! What an OpenCL call answered instead of success, and which outcome that makes.

use crate::driver::failure::{Codes, Failure};
use crate::no_visit::NoVisit;

/// CL_DEVICE_NOT_FOUND: a platform without devices.
pub(crate) const DEVICE_NOT_FOUND: i32 = -1;
/// CL_PLATFORM_NOT_FOUND_KHR: a loader without drivers.
pub(crate) const PLATFORM_NOT_FOUND: i32 = -1001;
/// Answers to a command that has begun, after which nothing else works: the device is not there (-2), its queue is void (-36),
/// a command ended with an error (-14), and what NVIDIA's driver says of both, out of resources (-5).
const LOST: [i32; 4] = [-2, -36, -14, -5];
/// Answers where memory is asked for: allocation failed, out of resources, out of host memory, size not allowed.
const NO_MEMORY: [i32; 4] = [-4, -5, -6, -61];

/// The codes of cl.h.
pub(crate) static CODES: Codes = Codes { names: &NAMES, outcome };

/// Names of cl.h for codes that users meet.
const NAMES: [(i32, &str); 21] = [
    (-1, "CL_DEVICE_NOT_FOUND"),
    (-2, "CL_DEVICE_NOT_AVAILABLE"),
    (-3, "CL_COMPILER_NOT_AVAILABLE"),
    (-4, "CL_MEM_OBJECT_ALLOCATION_FAILURE"),
    (-5, "CL_OUT_OF_RESOURCES"),
    (-6, "CL_OUT_OF_HOST_MEMORY"),
    (-11, "CL_BUILD_PROGRAM_FAILURE"),
    (-12, "CL_MAP_FAILURE"),
    (-14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"),
    (-30, "CL_INVALID_VALUE"),
    (-33, "CL_INVALID_DEVICE"),
    (-34, "CL_INVALID_CONTEXT"),
    (-36, "CL_INVALID_COMMAND_QUEUE"),
    (-37, "CL_INVALID_HOST_PTR"),
    (-38, "CL_INVALID_MEM_OBJECT"),
    (-48, "CL_INVALID_KERNEL"),
    (-52, "CL_INVALID_KERNEL_ARGS"),
    (-54, "CL_INVALID_WORK_GROUP_SIZE"),
    (-59, "CL_INVALID_OPERATION"),
    (-61, "CL_INVALID_BUFFER_SIZE"),
    (-1001, "CL_PLATFORM_NOT_FOUND_KHR"),
];

fn outcome(failure: &Failure) -> NoVisit {
    let makes_memory = matches!(failure.call, "clCreateBuffer" | "clSVMAlloc");
    let is_enqueued = failure.call.starts_with("clEnqueue") || failure.call == "clFinish";
    match failure.code {
        code if makes_memory && NO_MEMORY.contains(&code) || [-4, -6].contains(&code) => {
            NoVisit::impossible(format!("the device has too little memory: {failure}; give a smaller --size"))
        }
        code if is_enqueued && LOST.contains(&code) => NoVisit::Broken(format!("the device was lost: {failure}")),
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
        unavailable(
            "clCreateBuffer",
            -4,
            "too little memory: CL_MEM_OBJECT_ALLOCATION_FAILURE (-4) from clCreateBuffer",
        );
        crashed("clFinish", -36, "the device was lost: CL_INVALID_COMMAND_QUEUE (-36) from clFinish");
        crashed("clCreateKernel", -46, "an unknown error (-46) from clCreateKernel");
        // Out of resources is a lack of memory where memory is asked for, and a loss where a command runs.
        unavailable("clCreateBuffer", -5, "too little memory");
        crashed("clFinish", -5, "lost");
    }
}
