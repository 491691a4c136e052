//! What an OpenCL call answered instead of success, and which outcome that makes.

use crate::no_visit::NoVisit;

/// A call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The function.
    pub call: &'static str,
    /// Its answer, an error code of cl.h.
    pub code: i32,
}

/// CL_DEVICE_NOT_FOUND: a platform without devices.
pub(crate) const DEVICE_NOT_FOUND: i32 = -1;
/// CL_PLATFORM_NOT_FOUND_KHR: a loader without drivers.
pub(crate) const PLATFORM_NOT_FOUND: i32 = -1001;
/// Answers to a command that has begun, after which nothing else works: the device is not there (-2), its queue is void (-36),
/// a command ended with an error (-14), and what NVIDIA's driver says of both, out of resources (-5).
const LOST: [i32; 4] = [-2, -36, -14, -5];
/// Answers where memory is asked for: allocation failed, out of resources, out of host memory, size not allowed.
const NO_MEMORY: [i32; 4] = [-4, -5, -6, -61];

/// Names of cl.h for codes that users meet.
const NAMES: [(i32, &str); 18] = [
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
    (-59, "CL_INVALID_OPERATION"),
    (-61, "CL_INVALID_BUFFER_SIZE"),
    (-1001, "CL_PLATFORM_NOT_FOUND_KHR"),
];

impl Failure {
    /// `CL_OUT_OF_RESOURCES (-5) from clFinish`
    fn text(self) -> String {
        let name = NAMES.iter().find(|(code, _)| *code == self.code).map_or("an unknown error", |(_, name)| name);
        format!("{name} ({}) from {}", self.code, self.call)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text())
    }
}

impl From<Failure> for NoVisit {
    fn from(failure: Failure) -> Self {
        let (text, makes_memory) = (failure.text(), matches!(failure.call, "clCreateBuffer" | "clSVMAlloc"));
        let is_enqueued = failure.call.starts_with("clEnqueue") || failure.call == "clFinish";
        match failure.code {
            code if makes_memory && NO_MEMORY.contains(&code) || [-4, -6].contains(&code) => {
                NoVisit::impossible(format!("the device has too little memory: {text}; give a smaller --size"))
            }
            code if is_enqueued && LOST.contains(&code) => NoVisit::Broken(format!("the device was lost: {text}")),
            _ => NoVisit::Broken(format!("the driver answers {text}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use membound_core::record::Outcome;

    #[test]
    fn failures_are_named_outcomes() {
        let outcome = |call, code| Outcome::from(NoVisit::from(Failure { call, code }));
        let Outcome::Unavailable { reason } = outcome("clCreateBuffer", -4) else { panic!() };
        assert!(
            reason.contains("too little memory: CL_MEM_OBJECT_ALLOCATION_FAILURE (-4) from clCreateBuffer"),
            "{reason}"
        );
        let Outcome::Crashed { reason } = outcome("clFinish", -36) else { panic!() };
        assert!(reason.contains("the device was lost: CL_INVALID_COMMAND_QUEUE (-36) from clFinish"), "{reason}");
        let Outcome::Crashed { reason } = outcome("clCreateKernel", -46) else { panic!() };
        assert!(reason.contains("an unknown error (-46) from clCreateKernel"), "{reason}");
        // Out of resources is a lack of memory where memory is asked for, and a loss where a command runs.
        assert!(matches!(outcome("clCreateBuffer", -5), Outcome::Unavailable { .. }));
        assert!(matches!(outcome("clFinish", -5), Outcome::Crashed { .. }));
    }
}
