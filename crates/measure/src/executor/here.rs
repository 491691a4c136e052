//! This machine as a whole: memory types in the micro-VM, devices by their drivers, all else natively.

use std::time::Duration;

use crate::executor::device::{self, OnDevices};
use crate::executor::native::Native;
use crate::executor::{memory_types, with_room};
use crate::memory::allowance::Allowance;
use crate::memory::places::Places;
use crate::no_visit::NoVisit;
use crate::schedule::{Executor, Quota};
use membound_core::case::Case;
use membound_core::record::{Clock, Measured, Outcome};

#[cfg(all(feature = "kvm", target_os = "linux", target_arch = "x86_64"))]
use crate::executor::microvm::MicroVm;
#[cfg(not(all(feature = "kvm", target_os = "linux", target_arch = "x86_64")))]
use crate::executor::typed::Typed as MicroVm;

/// The executor for all cases that this machine can run.
#[derive(Debug)]
pub struct Here {
    native: Native,
    microvm: MicroVm,
    devices: OnDevices,
}

impl Here {
    /// Calibrates the clock and prepares to run `cases`. No device is opened before a case needs it.
    pub fn new(cases: &[Case], places: Places, verify: bool) -> Result<Self, NoVisit> {
        let places = Places { allowance: Allowance::here(), ..places };
        let (typed, others) = natures(cases);
        let native = Native::new(&others, places.clone(), verify)?;
        let devices = OnDevices::new(places.no_device.clone());
        let microvm = MicroVm::new(&typed, native.ticker(), native.clock(), places, verify);
        Ok(Here { native, microvm, devices })
    }

    /// From now on a lone thread sleeps so long between two samples of a kernel or a chase on this machine.
    pub fn pause(&mut self, apart: Duration) {
        self.native.pause(apart);
    }
}

impl Executor for Here {
    fn clock(&self) -> Clock {
        self.native.clock()
    }

    fn expect(&mut self, cases: &[Case]) {
        let (typed, others) = natures(cases);
        self.native.expect(&others);
        self.microvm.expect(&typed);
    }

    fn begin_round(&mut self) {
        self.native.begin_round();
        self.microvm.begin_round();
    }

    fn visit(&mut self, case: &Case, quota: &Quota<'_>) -> Outcome {
        if let Some(name) = device::device_of(case) {
            return self.devices.visit(case, name, quota);
        }
        // Both keep memory for cases to come.
        in_place(with_room(self, |here| here.try_visit(case, quota)))
    }
}

impl Here {
    fn try_visit(&mut self, case: &Case, quota: &Quota<'_>) -> Result<Measured, NoVisit> {
        match has_memory_type(case) {
            true => self.microvm.try_visit(case, quota),
            false => self.native.try_visit(case, quota),
        }
    }
}

/// Figures from memory that does not lie where it was to lie are not those asked for.
fn in_place(outcome: Outcome) -> Outcome {
    match &outcome {
        Outcome::Measured(measured) => match measured.obtained.misplaced() {
            Some(reason) => NoVisit::Wrong(reason).into(),
            None => outcome,
        },
        _ => outcome,
    }
}

/// Cases of the micro-VM, and those of this machine; devices have neither's memory.
fn natures(cases: &[Case]) -> (Vec<Case>, Vec<Case>) {
    cases.iter().filter(|case| device::device_of(case).is_none()).cloned().partition(has_memory_type)
}

/// Whether a kernel's stream lies in memory of a type that only page tables of our own can ask for.
fn has_memory_type(case: &Case) -> bool {
    !memory_types(case).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use membound_core::case as plan;
    use membound_core::case::StreamMemory;
    use membound_core::kernel::{StoreKind, Width};
    use membound_core::memory::located::{Located, NodePages};
    use membound_core::memory::{MemoryKind, MemorySpec, Obtained};
    use membound_core::units::Bytes;

    fn case(kernel: &str, kind: MemoryKind) -> Case {
        plan::steady(kernel, Width::Scalar, StoreKind::Regular, MemorySpec::of(kind), vec![0], Bytes::kib(8))
    }

    #[test]
    fn one_typed_stream_is_enough_for_the_micro_vm() {
        assert!(has_memory_type(&case("load", MemoryKind::UcMinus)));
        assert!(!has_memory_type(&case("load", MemoryKind::Thp)));
        let typed = StreamMemory { stream: "b".into(), memory: MemorySpec::of(MemoryKind::Wc) };
        let mixed = Case { streams: vec![typed.clone()], ..case("copy", MemoryKind::Thp) };
        assert!(has_memory_type(&mixed));
        // No stream has that name.
        let stray = StreamMemory { stream: "z".into(), ..typed };
        assert!(!has_memory_type(&Case { streams: vec![stray], ..case("copy", MemoryKind::Thp) }));
        assert!(!has_memory_type(&case("no such kernel", MemoryKind::Uc)));
    }

    #[test]
    fn figures_from_the_wrong_node_are_invalid() {
        let outcome = |policy: &str, node: u32| {
            let on = vec![NodePages { node, pages: 8 }];
            let (policy, page) = (policy.parse().unwrap(), Bytes::kib(4));
            let located = Located { policy, page, touched: 8, on, slack: 0, refusal: None };
            let obtained = Obtained { located: vec![located], ..Obtained::default() };
            in_place(Measured { obtained, ..Measured::default() }.into())
        };
        let Outcome::Invalid { reason } = outcome("node1", 0) else { panic!() };
        assert!(reason.contains("not bound to node 1 (0 of 8 pages; node 0: 8)"), "{reason}");
        for (policy, node) in [("node1", 1), ("preferred:1", 0), ("first-touch", 0)] {
            assert!(matches!(outcome(policy, node), Outcome::Measured(_)), "{policy}");
        }
    }

    #[cfg(not(any(windows, all(feature = "kvm", target_os = "linux", target_arch = "x86_64"))))]
    #[test]
    fn a_build_without_the_micro_vm_says_so() {
        let mut here = Here::new(&[], Places::default(), false).unwrap();
        let quota =
            Quota { least_samples: 1, most_samples: 1, time: std::time::Duration::ZERO, interrupted: &|| false };
        let Outcome::Unavailable { reason } = here.visit(&case("load", MemoryKind::Uc), &quota) else { panic!() };
        let why = if cfg!(target_arch = "x86_64") { "feature kvm" } else { "x86-64 alone" };
        assert!(reason.contains(why), "{reason}");
    }
}
