//! Memory that a device shares with the processor: what each action on each kind of buffer takes.
//!
//! Each visit makes buffers of its own, looks how the device shares them, and takes samples by one thread: it does the
//! processor's part, and waits while the device does its own.

mod beside;
mod buffers;
mod operations;
mod sampler;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use crate::bench::{Codes, Tools, compile, measured, volume as volume_of};
use crate::driver::Driver;
use crate::driver::tools::HostTools;
use crate::experiments::device::buffers::Maker;
use crate::experiments::device::operations::{CONTENDED_SAMPLE, Operation, on_the_host};
use crate::experiments::device::sampler::Sampler;
use crate::no_visit::NoVisit;
use crate::schedule::Quota;
use crate::solo::Solo;
use crate::threads::pinned;
use membound_core::case::{Case, Protocol, usual};
use membound_core::kernel::catalog::Kernel;
use membound_core::kernel::isa::Isa;
use membound_core::kernel::{Variant, Width};
use membound_core::memory::Obtained;
use membound_core::memory::proof::Proof;
use membound_core::record::{Measured, Unit, Volume};
use membound_core::units::Bytes;
use membound_core::work::device::{Action, Buffer, DeviceWork};

/// A command is given and waited for in some 10 us, of which no sample should be made.
const SAMPLE: Duration = Duration::from_millis(1);

/// What visits to a device's cases share.
pub(crate) struct DeviceBench<D: Driver> {
    kernels: D::Kernels,
    codes: Codes<Variant>,
    /// How buffers of each kind and size are shared, once it was looked at.
    seen: HashMap<(Buffer, Bytes), Obtained>,
    /// What shows that buffers of a kind are of the type of memory that they ask for, or that they are not.
    types: HashMap<Buffer, Result<Option<Proof>, String>>,
}

impl<D: Driver> DeviceBench<D> {
    /// Has the driver compile the kernels.
    pub fn new(driver: &D) -> Result<Self, NoVisit> {
        Ok(DeviceBench {
            kernels: driver.kernels()?,
            codes: Codes::default(),
            seen: HashMap::new(),
            types: HashMap::new(),
        })
    }

    /// Visits a case.
    pub fn visit(
        &mut self,
        driver: &D,
        host: &HostTools,
        case: &Case,
        work: DeviceWork,
        quota: &Quota<'_>,
    ) -> Result<Measured, NoVisit> {
        let is_beside = work.action.is_contended() || work.action == Action::HostTriad;
        let tools = host.with_samples_of(if is_beside { CONTENDED_SAMPLE } else { SAMPLE });
        let maker = Maker { driver, buffer: work.buffer };
        let cpu = case.cpus.first().copied().unwrap_or(0);
        let seen = self.obtained(&maker, &tools, largest_buffer(case, work.action), cpu)?;
        let obtained = Obtained { bytes: case.working_set, ..seen };
        let code = match kernel_of_the_host(work.action) {
            Some(kernel) => {
                let variant = variant(kernel, work.action, host.isa);
                Some((variant.clone(), self.codes.get(variant.clone(), || compile(&variant, host.isa))?))
            }
            None => None,
        };
        let code = code.as_ref().map(|(variant, code)| (variant, *code));
        let solo = Solo::new(cpu, quota, &tools);
        let is_first_use = case.protocol == Protocol::FirstUse;
        let taken = if is_beside {
            beside::measure(&solo, case, work, &maker, code)?
        } else {
            let mut operation = Operation::new(case, work.action, maker, &mut self.kernels, on_the_host(code)?);
            solo.measure(&mut Sampler::new(&mut operation, is_first_use || work.action == Action::Allocate))?
        };
        let volume = volume(case, work);
        Ok(measured(volume, taken, obtained))
    }

    /// What buffers of this kind and size are; looked at once, on the CPU that works on them, whose node they lie on then.
    fn obtained(
        &mut self,
        maker: &Maker<'_, D>,
        tools: &Tools<'_>,
        size: Bytes,
        cpu: u32,
    ) -> Result<Obtained, NoVisit> {
        let key = (maker.buffer, size);
        if let Some(seen) = self.seen.get(&key) {
            return Ok(seen.clone());
        }
        let proof = self.type_proof(maker, tools, cpu)?;
        let kernels = &mut self.kernels;
        let mut obtained = pinned(cpu, || buffers::look(maker, kernels, size))?;
        obtained.proofs.extend(proof);
        Ok(self.seen.entry(key).or_insert(obtained).clone())
    }

    /// Proves a buffer's type, or remembers the verdict.
    fn type_proof(&mut self, maker: &Maker<'_, D>, tools: &Tools<'_>, cpu: u32) -> Result<Option<Proof>, NoVisit> {
        let verdict = match self.types.entry(maker.buffer) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(pinned(cpu, || buffers::prove_type(maker, tools))?),
        };
        verdict.clone().map_err(NoVisit::Wrong)
    }
}

/// Bytes of the largest buffer that a visit makes: a device may have no room for the whole working set in one.
fn largest_buffer(case: &Case, action: Action) -> Bytes {
    match action {
        Action::HostTriadBesideCopy => action.copied_beside(case.cpus.len(), case.working_set),
        action if Action::KERNELS.contains(&action) => Bytes(operations::array_bytes(case.working_set.0)),
        _ => case.working_set,
    }
}

/// What the processor itself runs.
fn kernel_of_the_host(action: Action) -> Option<&'static str> {
    match action {
        Action::Use | Action::UseWritten => Some("store"),
        Action::CopyBesideHostTriad => Some("triad"),
        action if Action::KERNELS.contains(&action) => None,
        action => action.kernel(),
    }
}

/// The processor's kernel, as wide as it can be.
fn variant(kernel: &str, action: Action, isa: Isa) -> Variant {
    let width = isa.widths().last().copied().unwrap_or(Width::Scalar);
    let (store, load) = action.access();
    Variant { load, ..usual(kernel, width, store) }
}

/// What one repetition moves: by the side that is timed.
fn volume(case: &Case, work: DeviceWork) -> Volume {
    let bytes = case.working_set.0;
    let moved = |loaded, stored| Volume { units: 1, unit: Unit::Operation, loaded, stored, ..Volume::default() };
    match work.action {
        Action::Allocate | Action::MapRead | Action::MapWrite | Action::MapInvalidate => moved(0, 0),
        // Filled, and handed over.
        Action::Use | Action::UseWritten => moved(0, bytes),
        Action::Write | Action::Read | Action::Copy | Action::CopyBack => moved(bytes, bytes),
        Action::KernelRead | Action::CopyBesideHostTriad => moved(bytes, bytes),
        Action::CopyBoth => moved(2 * bytes, 2 * bytes),
        Action::Chase => Volume { units: operations::links(bytes), unit: Unit::Access, ..Volume::default() },
        action => {
            let kernel = action.kernel().and_then(|name| Kernel::find(name).ok());
            let Some(kernel) = kernel else { return moved(0, 0) };
            // The device's loops run over parts of the same three arrays, so copy and scale touch two thirds of the working set.
            let elements = match Action::KERNELS.contains(&action) {
                true => operations::array_bytes(bytes) / 8,
                false => bytes / 8 / kernel.formula().streams.len().max(1) as u64,
            };
            let scalar = variant(kernel.name, action, Isa::NONE);
            let counted = volume_of(kernel, &scalar, elements);
            // Whether the buffer is cached, and what a device's stores cause, nobody knows beforehand.
            let is_known = work.buffer == Buffer::Regular || work.action == Action::HostTriadBesideCopy;
            Volume { write_allocated: if is_known { counted.write_allocated } else { 0 }, ..counted }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use membound_core::case::{USUAL_MEMORY, Work};

    /// Of 96 KiB a kernel has three buffers; beside the triads of two CPUs as much is copied as two of their arrays have.
    #[test]
    fn no_buffer_is_larger_than_what_is_worked_on() {
        let check = |action: Action, cpus: u32, bytes: Bytes| {
            let work = DeviceWork::new("opencl:0".parse().unwrap(), Buffer::Plain, action);
            let case = Case::new(Work::Device(work), USUAL_MEMORY, (0..cpus).collect(), Bytes::kib(96));
            assert_eq!(largest_buffer(&case, action), bytes, "{action}");
        };
        check(Action::KernelTriad, 1, Bytes::kib(32));
        check(Action::HostTriadBesideCopy, 3, Bytes::kib(64));
        check(Action::CopyBesideHostTriad, 3, Bytes::kib(96));
        check(Action::Chase, 1, Bytes::kib(96));
    }

    /// Of three arrays of 32 KiB copy and scale touch two, add and triad all.
    #[test]
    fn loops_of_the_device_move_what_they_touch() {
        let check = |action: Action, working_set: Bytes, moved: Bytes| {
            let work = DeviceWork::new("opencl:0".parse().unwrap(), Buffer::Plain, action);
            let case = Case::new(Work::Device(work), USUAL_MEMORY, vec![0], working_set);
            assert_eq!(Bytes(volume(&case, work).payload()), moved, "{action}");
        };
        check(Action::KernelCopy, Bytes::kib(96), Bytes::kib(64));
        check(Action::KernelScale, Bytes::kib(96), Bytes::kib(64));
        check(Action::KernelAdd, Bytes::kib(96), Bytes::kib(96));
        check(Action::KernelTriad, Bytes::kib(96), Bytes::kib(96));
        // Arrays are whole pages.
        check(Action::KernelTriad, Bytes::kib(100), Bytes::kib(96));
    }
}
