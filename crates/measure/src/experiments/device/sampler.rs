//! Samples of an operation, by one thread that does its part of it and waits for the device's.

use crate::driver::Driver;
use crate::experiments::device::operations::Operation;
use crate::no_visit::NoVisit;
use crate::solo::{Solo, Task};
use membound_core::record::Samples;

/// Repeats an operation.
pub(super) struct Sampler<'a, 'b, D: Driver> {
    operation: &'a mut Operation<'b, D>,
    /// Each sample is one operation, on what was prepared for it.
    is_single: bool,
}

impl<'a, 'b, D: Driver> Sampler<'a, 'b, D> {
    pub fn new(operation: &'a mut Operation<'b, D>, is_single: bool) -> Self {
        Sampler { operation, is_single }
    }
}

impl<D: Driver> Task for Sampler<'_, '_, D> {
    fn begin(&mut self) -> Result<(), NoVisit> {
        self.operation.begin()
    }

    fn warm_up(&mut self, solo: &Solo<'_>) -> Result<u64, NoVisit> {
        if !self.is_single {
            return solo.warm_up_lasting(self, self.operation.settling());
        }
        // The first of all compiles, starts threads and the like.
        self.approach(1)?;
        self.run(1)?;
        self.leave();
        Ok(1)
    }

    fn approach(&mut self, _repetitions: u64) -> Result<(), NoVisit> {
        self.operation.prepare()
    }

    fn run(&mut self, repetitions: u64) -> Result<bool, NoVisit> {
        self.operation.repeat(repetitions)?;
        Ok(true)
    }

    fn leave(&mut self) {
        self.operation.tidy();
    }

    fn end(&mut self, _samples: &mut Samples) -> Result<(), NoVisit> {
        self.operation.check()
    }
}
