//! What a Vulkan device does here on its own: it copies and stores. Kernels are not asked of it.

use std::convert::Infallible;

use crate::driver::{Kernels, Loop};
use crate::no_visit::NoVisit;
use crate::vulkan::calls::Memory;
use membound_core::kernel::chase;

/// Copies and stores of a device.
pub(crate) struct Transfers;

fn no_kernels() -> NoVisit {
    NoVisit::impossible(
        "Vulkan runs SPIR-V, which membound does not write; measure the same device by its other driver, cuda or opencl \
         (`membound devices` lists both)",
    )
}

impl Kernels for Transfers {
    type Memory = Memory;
    type Cycle = Infallible;

    fn element_bytes(&self) -> usize {
        size_of::<f64>()
    }

    fn stream(&mut self, _which: Loop, _arrays: [&Memory; 3], _times: u64) -> Result<(), NoVisit> {
        Err(no_kernels())
    }

    fn words(&mut self, to: &Memory, from: &Memory) -> Result<(), NoVisit> {
        from.copy_to(to)
    }

    fn put(&mut self, to: &Memory, word: u64) -> Result<(), NoVisit> {
        to.put(word)
    }

    fn cycle(&self, _places: &chase::Cycle, _words: &mut [f64]) -> Result<Infallible, NoVisit> {
        Err(no_kernels())
    }

    fn follow(&mut self, cycle: &mut Infallible, _links: u64) -> Result<(), NoVisit> {
        match *cycle {}
    }

    fn stands_at(&self, cycle: &mut Infallible) -> Result<u64, NoVisit> {
        match *cycle {}
    }
}
