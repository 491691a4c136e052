//! The machine that this runs on.

use crate::os::{machine, thread};
use membound_core::machine::Machine;
use membound_core::machine::source::{ArmRegisters, Hypervisor, Processor, Source};

/// All facts about this machine. Takes a few milliseconds; more with hundreds of CPUs.
pub fn live() -> Machine {
    Machine::from_source(&source())
}

/// The files of this machine, and what its processor says.
pub fn source() -> Source {
    machine::source(Processor {
        hypervisor: hypervisor(),
        has_invariant_tsc: has_invariant_tsc(),
        may_run_on: thread::affinity(),
        arm: arm(),
    })
}

/// CPUID leaf 1 says whether there is a hypervisor, leaf 0x40000000 whose.
#[cfg(target_arch = "x86_64")]
fn hypervisor() -> Option<Hypervisor> {
    let cpuid = raw_cpuid::CpuId::new();
    if !cpuid.get_feature_info()?.has_hypervisor() {
        return Some(Hypervisor::None);
    }
    use raw_cpuid::Hypervisor as Told;
    let told = cpuid.get_hypervisor_info().map(|info| info.identify());
    Some(match told {
        Some(Told::Unknown(..)) | None => Hypervisor::Unnamed,
        Some(Told::HyperV) => Hypervisor::Vendor("Hyper-V".into()),
        Some(name) => Hypervisor::Vendor(format!("{name:?}")),
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn hypervisor() -> Option<Hypervisor> {
    None
}

/// CPUID leaf 0x80000007.
#[cfg(target_arch = "x86_64")]
fn has_invariant_tsc() -> Option<bool> {
    Some(raw_cpuid::CpuId::new().get_advanced_power_mgmt_info()?.has_invariant_tsc())
}

#[cfg(not(target_arch = "x86_64"))]
fn has_invariant_tsc() -> Option<bool> {
    None
}

#[cfg(all(target_os = "linux", target_arch = "aarch64"))]
fn arm() -> Option<ArmRegisters> {
    Some(crate::os::registers::read())
}

#[cfg(not(all(target_os = "linux", target_arch = "aarch64")))]
fn arm() -> Option<ArmRegisters> {
    None
}
