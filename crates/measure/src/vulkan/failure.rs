//! What a Vulkan call answered instead of success, and which outcome that makes.

use crate::driver::failure::{Codes, Failure};
use crate::no_visit::NoVisit;

pub(crate) const OUT_OF_HOST_MEMORY: i32 = -1;
pub(crate) const OUT_OF_DEVICE_MEMORY: i32 = -2;
pub(crate) const INITIALIZATION_FAILED: i32 = -3;
pub(crate) const DEVICE_LOST: i32 = -4;
pub(crate) const MEMORY_MAP_FAILED: i32 = -5;
pub(crate) const INCOMPATIBLE_DRIVER: i32 = -9;
pub(crate) const TOO_MANY_OBJECTS: i32 = -10;

/// The codes of vulkan_core.h.
pub(crate) static CODES: Codes = Codes { names: &NAMES, outcome };

/// Names of vulkan_core.h for codes that users meet.
const NAMES: [(i32, &str); 14] = [
    (1, "VK_NOT_READY"),
    (2, "VK_TIMEOUT"),
    (OUT_OF_HOST_MEMORY, "VK_ERROR_OUT_OF_HOST_MEMORY"),
    (OUT_OF_DEVICE_MEMORY, "VK_ERROR_OUT_OF_DEVICE_MEMORY"),
    (INITIALIZATION_FAILED, "VK_ERROR_INITIALIZATION_FAILED"),
    (DEVICE_LOST, "VK_ERROR_DEVICE_LOST"),
    (MEMORY_MAP_FAILED, "VK_ERROR_MEMORY_MAP_FAILED"),
    (-6, "VK_ERROR_LAYER_NOT_PRESENT"),
    (-7, "VK_ERROR_EXTENSION_NOT_PRESENT"),
    (-8, "VK_ERROR_FEATURE_NOT_PRESENT"),
    (INCOMPATIBLE_DRIVER, "VK_ERROR_INCOMPATIBLE_DRIVER"),
    (TOO_MANY_OBJECTS, "VK_ERROR_TOO_MANY_OBJECTS"),
    (-13, "VK_ERROR_UNKNOWN"),
    (-1_000_174_001, "VK_ERROR_NOT_PERMITTED"),
];

fn outcome(failure: &Failure) -> NoVisit {
    match failure.code {
        DEVICE_LOST => NoVisit::Broken(format!("the device was lost: {failure}")),
        // Whatever the reason: the command may still run, so that nothing that it works on can be given back.
        _ if matches!(failure.call, "vkWaitForFences" | "vkResetFences") => {
            NoVisit::Broken(format!("a command could not be waited for: {failure}"))
        }
        OUT_OF_DEVICE_MEMORY => {
            NoVisit::impossible(format!("the device has too little memory: {failure}; give a smaller --size"))
        }
        OUT_OF_HOST_MEMORY => NoVisit::impossible(format!(
            "the driver has too little of the host's memory: {failure}; give a smaller --size"
        )),
        MEMORY_MAP_FAILED => {
            NoVisit::impossible(format!("the memory could not be mapped: {failure}; give a smaller --size"))
        }
        TOO_MANY_OBJECTS => NoVisit::impossible(format!("the driver allows no more pieces of memory: {failure}")),
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
            "vkAllocateMemory",
            -2,
            "the device has too little memory: VK_ERROR_OUT_OF_DEVICE_MEMORY (-2) from vkAllocateMemory",
        );
        unavailable("vkAllocateMemory", -1, "too little of the host's memory");
        unavailable("vkMapMemory", -5, "could not be mapped: VK_ERROR_MEMORY_MAP_FAILED (-5)");
        crashed("vkWaitForFences", -4, "the device was lost: VK_ERROR_DEVICE_LOST (-4) from vkWaitForFences");
        crashed("vkWaitForFences", -1, "a command could not be waited for: VK_ERROR_OUT_OF_HOST_MEMORY (-1)");
        crashed("vkResetFences", -2, "a command could not be waited for");
        crashed("vkCreateBuffer", -77, "the driver answers an unknown error (-77) from vkCreateBuffer");
    }
}
