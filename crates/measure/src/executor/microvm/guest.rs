//! A guest: a virtual machine with one processor in 64-bit mode that calls machine code on memory of this process.
//!
//! ```text
//! DOORBELL   no memory: a store to it ends a run
//! SYSTEM     steps | calls | stack | code           write-back
//! windows    the host's mappings, each of its type  write-back, uncacheable, ...
//! tables     page tables
//! ```
//! The guest runs at privilege level 3 and has no kernel: nothing in it handles a fault, so a fault ends it. Under a
//! hypervisor that is itself a guest, level 0 may be emulated, instruction by instruction; level 3 runs natively.

#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use kvm_bindings::{
    CpuId, KVM_API_VERSION, KVM_CAP_DISABLE_QUIRKS2, KVM_MAX_CPUID_ENTRIES, KVM_MEM_READONLY, Msrs, kvm_enable_cap,
    kvm_msr_entry, kvm_regs, kvm_segment, kvm_sregs, kvm_userspace_memory_region, kvm_xcrs,
};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};

use crate::asm::{Step, timed_calls};
use crate::code::{Call, MachineCode};
use crate::executor::microvm::tables::{END, LARGE_PAGE, PAGE, Tables, pat};
use crate::executor::microvm::watchdog::Watchdog;
use crate::memory::places::Places;
use crate::memory::region::Region;
use crate::no_visit::NoVisit;
use membound_core::memory::{MemoryKind, MemorySpec};
use membound_core::units::Bytes;

/// Guest address that has no memory.
const DOORBELL: u64 = 1 << 28;
/// Guest address of pages that KVM keeps for itself.
const PRIVATE_PAGES: usize = 0xfffb_d000;
/// Guest address of the first memory: beyond all that a PC has below 4 GiB.
const SYSTEM: u64 = 4 << 30;
/// Offsets into the system memory.
const STEPS: u64 = 0;
const CALLS: u64 = 0x1000;
const STACK_END: u64 = 0x10000;
const CODE: u64 = STACK_END;
const SYSTEM_BYTES: u64 = LARGE_PAGE;
/// Calls in one run at most.
const CALLS_MOST: usize = 16;

/// A mapping of this process that a guest is to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backed {
    /// Where it is mapped.
    pub address: u64,
    /// Its bytes: whole pages.
    pub bytes: u64,
    /// Its memory type; kinds that are no type are mapped write-back.
    pub kind: MemoryKind,
    /// Whether the guest may write to it.
    pub writable: bool,
}

/// Where a guest sees a mapping.
#[derive(Debug, Clone, Copy)]
struct Window {
    start: u64,
    backed: Backed,
}

/// A virtual machine with one processor.
#[derive(Debug)]
pub struct Guest {
    // Dropped in this order: the watchdog writes to the processor's run area; the machine refers to the memory.
    watchdog: Watchdog,
    processor: VcpuFd,
    machine: VmFd,
    system: Region,
    tables: Region,
    windows: Vec<Window>,
    /// Offset of the first free byte for code.
    code_end: u64,
}

impl Guest {
    /// A guest that sees `memory`, one window each.
    ///
    /// # Safety
    /// Each mapping is memory of this process, and stays mapped until the guest is dropped or [`Guest::unmap`] took it
    /// away. While [`Guest::run`] runs, nothing else may refer to it.
    pub unsafe fn new(devices: &Path, memory: &[Backed]) -> Result<Self, NoVisit> {
        let kvm = open(devices)?;
        let (windows, end) = place(memory);
        let reach = physical_reach(&kvm).min(END);
        let tables = tables(&windows, end);
        if end + tables.len() as u64 * 8 > reach {
            return Err(NoVisit::impossible("a guest can't address that much memory; give a smaller --size"));
        }
        let machine =
            kvm.create_vm().map_err(|e| NoVisit::impossible(format!("a virtual machine was refused: {e}")))?;
        honour_types(&machine);
        // Intel's processors need three pages of their own, and below 4 GiB there is nothing else.
        machine.set_tss_address(PRIVATE_PAGES).map_err(|e| refused("its private pages", e))?;
        let system = region(SYSTEM_BYTES, MemoryKind::Thp)?;
        let table_memory = region(tables.len() as u64 * 8, MemoryKind::Base)?;
        write_words(&table_memory, 0, &tables)?;
        let mut processor = machine.create_vcpu(0).map_err(|e| refused("a processor", e))?;
        set_up(&kvm, &processor, end).map_err(|e| refused("its state", e))?;
        // SAFETY: the run area stays mapped as long as `processor` lives; the watchdog is dropped before that.
        let watchdog = unsafe { Watchdog::new(&raw mut processor.get_kvm_run().immediate_exit) };
        let watchdog = watchdog.map_err(|e| NoVisit::impossible(format!("a thread was refused: {e}")))?;
        let mut guest = Guest { watchdog, processor, machine, system, tables: table_memory, windows, code_end: CODE };
        guest.connect(end)?;
        let entry = guest.load(&timed_calls(SYSTEM + STEPS, DOORBELL)?)?;
        guest.processor.set_regs(&registers(entry)).map_err(|e| refused("its registers", e))?;
        Ok(guest)
    }

    /// Gives the machine all its memory.
    fn connect(&self, tables: u64) -> Result<(), NoVisit> {
        self.set_slot(0, SYSTEM, self.system.address(), SYSTEM_BYTES, true)?;
        self.set_slot(1, tables, self.tables.address(), self.tables.bytes().0, true)?;
        (0..self.windows.len()).try_for_each(|index| self.connect_window(index))
    }

    fn connect_window(&self, index: usize) -> Result<(), NoVisit> {
        let Window { start, backed } = self.windows[index];
        self.set_slot(2 + index as u32, start, backed.address, backed.bytes, backed.writable)
    }

    fn set_slot(&self, slot: u32, guest: u64, host: u64, bytes: u64, writable: bool) -> Result<(), NoVisit> {
        let region = kvm_userspace_memory_region {
            slot,
            flags: if writable { 0 } else { KVM_MEM_READONLY },
            guest_phys_addr: guest,
            memory_size: bytes,
            userspace_addr: host,
        };
        // SAFETY: system and tables are owned by this guest and outlive its machine; for the windows the caller of
        // `new` or `map` promised the same.
        let set = unsafe { self.machine.set_user_memory_region(region) };
        set.map_err(|e| refused("memory", e))
    }

    /// Where the guest sees mapping `index`.
    pub fn window(&self, index: usize) -> u64 {
        self.windows[index].start
    }

    /// The guest's address of a host address in one of its windows.
    pub fn address(&self, host: u64) -> Option<u64> {
        let within = |window: &&Window| host.wrapping_sub(window.backed.address) < window.backed.bytes;
        self.windows.iter().find(within).map(|window| window.start + (host - window.backed.address))
    }

    /// Takes the memory of a window away, so that it may be unmapped.
    pub fn unmap(&mut self, index: usize) -> Result<(), NoVisit> {
        self.set_slot(2 + index as u32, self.windows[index].start, 0, 0, true)
    }

    /// Puts memory mapped at `address` behind a window whose memory was taken away; of the same size as before.
    ///
    /// # Safety
    /// As for [`Guest::new`].
    pub unsafe fn map(&mut self, index: usize, address: u64) -> Result<(), NoVisit> {
        self.windows[index].backed.address = address;
        self.connect_window(index)
    }

    /// Copies code to the guest. Returns its address there.
    pub fn load(&mut self, code: &MachineCode) -> Result<u64, NoVisit> {
        let mut words: Vec<u64> = Vec::new();
        for chunk in code.bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            words.push(u64::from_le_bytes(word));
        }
        let at = self.code_end.next_multiple_of(64);
        write_words(&self.system, at, &words)?;
        self.code_end = at + words.len() as u64 * 8;
        Ok(SYSTEM + at)
    }

    /// Runs each of `steps` (code, its argument) once, one after another, without leaving the guest in between. Returns
    /// the ticks that each took, by the guest's clock, and the last reading of that clock.
    ///
    /// A guest that has not ended after `patience` is stopped; it cannot be run again, nor can one that faulted.
    pub fn run(&mut self, steps: &mut [(u64, &mut Call)], patience: Duration) -> Result<Run, NoVisit> {
        if steps.len() > CALLS_MOST {
            return Err(NoVisit::impossible("too many calls for one run of a guest"));
        }
        let call_at = |k: usize| CALLS + (k * size_of::<Call>().next_multiple_of(64)) as u64;
        let mut list: Vec<Step> = Vec::new();
        for (k, (code, call)) in steps.iter().enumerate() {
            write_value(&self.system, call_at(k), *call)?;
            list.push(Step { code: *code, call: SYSTEM + call_at(k), ..Step::default() });
        }
        list.push(Step::default());
        for (k, step) in list.iter().enumerate() {
            write_value(&self.system, STEPS + (k * size_of::<Step>()) as u64, step)?;
        }
        self.enter(patience)?;
        let mut run = Run::default();
        for (k, (_, call)) in steps.iter_mut().enumerate() {
            read_value(&self.system, call_at(k), *call)?;
            read_value(&self.system, STEPS + (k * size_of::<Step>()) as u64, &mut list[k])?;
            run.ticks.push(list[k].end.saturating_sub(list[k].start).max(1));
            run.end = list[k].end;
        }
        Ok(run)
    }

    /// Runs until the doorbell rings.
    fn enter(&mut self, patience: Duration) -> Result<(), NoVisit> {
        self.watchdog.arm(patience);
        let exit = loop {
            match self.processor.run() {
                Err(fault) if fault.errno() == libc::EINTR && !self.watchdog.has_fired() => {}
                Err(fault) => break Err(format!("KVM_RUN failed: {fault}")),
                Ok(exit) => break judge(&exit),
            }
        };
        let stopped = self.watchdog.disarm();
        match exit {
            Ok(()) if !stopped => Ok(()),
            Err(reason) if !stopped => Err(self.crashed(&reason)),
            _ => Err(self.crashed(&format!("it did not end within {:.1} s and was stopped", patience.as_secs_f64()))),
        }
    }

    fn crashed(&self, reason: &str) -> NoVisit {
        let at = self.processor.get_regs().map_or(String::new(), |registers| self.name(registers.rip));
        let page = self.processor.get_sregs().map_or(0, |system| system.cr2);
        let page = if page > 0 { format!(", page fault at {page:#x}") } else { String::new() };
        NoVisit::Broken(format!("the guest crashed: {reason}{at}{page}"))
    }

    /// What an instruction pointer points at. Some processors lose it when a guest is shut down: KVM then resets it.
    fn name(&self, rip: u64) -> String {
        const RESET: u64 = 0xfff0;
        if rip == RESET {
            String::new()
        } else if (SYSTEM + CODE..SYSTEM + self.code_end).contains(&rip) {
            format!(", at RIP {rip:#x} ({:#x} into its code)", rip - SYSTEM - CODE)
        } else {
            format!(", at RIP {rip:#x}, outside its code")
        }
    }
}

/// What a run of a guest showed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Run {
    /// Ticks that each call took, by the guest's time stamp counter; at least 1.
    pub ticks: Vec<u64>,
    /// That counter after the last call.
    pub end: u64,
}

/// Whether the guest rang, or what else happened.
fn judge(exit: &VcpuExit<'_>) -> Result<(), String> {
    match exit {
        VcpuExit::MmioWrite(DOORBELL, _) => Ok(()),
        VcpuExit::MmioWrite(address, _) => Err(format!("a store to {address:#x}, where it has no memory")),
        VcpuExit::MmioRead(address, _) => Err(format!("a load from {address:#x}, where it has no memory")),
        VcpuExit::Shutdown => Err("a fault that nothing handles (SHUTDOWN)".into()),
        VcpuExit::InternalError => Err("KVM could not go on (INTERNAL_ERROR)".into()),
        VcpuExit::FailEntry(reason, _) => Err(format!("the processor refused to enter it (FAIL_ENTRY {reason:#x})")),
        other => Err(format!("an unexpected exit ({other:?})")),
    }
}

fn refused(what: &str, fault: kvm_ioctls::Error) -> NoVisit {
    NoVisit::impossible(format!("the virtual machine was refused {what}: {fault}"))
}

/// Opens the device; the error names the cure.
fn open(devices: &Path) -> Result<Kvm, NoVisit> {
    let path = devices.join("kvm");
    let shown = path.display();
    let name =
        CString::new(path.as_os_str().as_bytes()).map_err(|_| NoVisit::impossible(format!("{shown} is no path")))?;
    let kvm = Kvm::new_with_path(name).map_err(|fault| match fault.errno() {
        libc::ENOENT => NoVisit::impossible(format!(
            "no {shown}: memory types need a virtual machine; load kvm_intel or kvm_amd, switch virtualisation on in \
             the firmware, or in a virtual machine have nested virtualisation allowed"
        )),
        libc::EACCES | libc::EPERM => NoVisit::impossible(format!(
            "no permission to use {shown}; add yourself to group kvm (usermod -aG kvm $USER)"
        )),
        _ => NoVisit::impossible(format!("{shown} can't be opened: {fault}")),
    })?;
    match kvm.get_api_version() {
        version if version == KVM_API_VERSION as i32 => Ok(kvm),
        ..0 => Err(NoVisit::impossible(format!("{shown} is no KVM device: {}", io::Error::last_os_error()))),
        version => Err(NoVisit::impossible(format!("{shown} speaks version {version} of KVM's interface, not 12"))),
    }
}

/// A window for each mapping, a large page apart, and where the next one would start.
fn place(memory: &[Backed]) -> (Vec<Window>, u64) {
    let mut end = SYSTEM + SYSTEM_BYTES;
    let window = |&backed: &Backed| {
        let start = (end + LARGE_PAGE).next_multiple_of(LARGE_PAGE);
        end = start.saturating_add(backed.bytes).min(END);
        Window { start, backed }
    };
    let windows = memory.iter().map(window).collect();
    (windows, (end + LARGE_PAGE).next_multiple_of(LARGE_PAGE))
}

fn tables(windows: &[Window], base: u64) -> Vec<u64> {
    let mut tables = Tables::new(base);
    tables.map(DOORBELL, PAGE, MemoryKind::Wb, true);
    tables.map(SYSTEM, SYSTEM_BYTES, MemoryKind::Wb, true);
    for Window { start, backed } in windows {
        tables.map(*start, backed.bytes, backed.kind, backed.writable);
    }
    tables.words().to_vec()
}

/// The end of what a guest's physical addresses reach.
fn physical_reach(kvm: &Kvm) -> u64 {
    let bits = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES).ok().and_then(|cpuid| {
        cpuid.as_slice().iter().find(|entry| entry.function == 0x8000_0008).map(|entry| entry.eax & 0xff)
    });
    reach(bits)
}

/// By the bits of an address: 52 are the most that page tables hold, 36 the least of any 64-bit processor.
fn reach(bits: Option<u32>) -> u64 {
    1 << bits.filter(|bits| (32..=52).contains(bits)).unwrap_or(36)
}

/// Has KVM take memory types from the guest's page tables where it ignores them unless told: on Intel processors, from
/// Linux 6.16 on (`KVM_X86_QUIRK_IGNORE_GUEST_PAT`, Documentation/virt/kvm/api.rst). On AMD it always does. Whether it
/// really does is for the proof to say.
fn honour_types(machine: &VmFd) {
    const IGNORE_GUEST_PAT: u64 = 1 << 9;
    let quirks = machine.check_extension_raw(KVM_CAP_DISABLE_QUIRKS2.into());
    if quirks > 0 && quirks as u64 & IGNORE_GUEST_PAT != 0 {
        let mut capability = kvm_enable_cap { cap: KVM_CAP_DISABLE_QUIRKS2, ..kvm_enable_cap::default() };
        capability.args[0] = IGNORE_GUEST_PAT;
        let _ = machine.enable_cap(&capability);
    }
}

fn set_up(kvm: &Kvm, processor: &VcpuFd, tables: u64) -> Result<(), kvm_ioctls::Error> {
    let cpuid = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)?;
    processor.set_cpuid2(&cpuid)?;
    let mut system = processor.get_sregs()?;
    enter_long_mode(&mut system, tables);
    processor.set_sregs(&system)?;
    processor.set_xcrs(&vector_state(&cpuid))?;
    // The type of a page is that of the PAT: the MTRRs say write-back everywhere.
    const IA32_PAT: u32 = 0x277;
    const IA32_MTRR_DEF_TYPE: u32 = 0x2ff;
    const MTRR_ENABLED_WRITE_BACK: u64 = 1 << 11 | 6;
    let msr = |index, data| kvm_msr_entry { index, data, ..kvm_msr_entry::default() };
    for entry in [msr(IA32_PAT, pat()), msr(IA32_MTRR_DEF_TYPE, MTRR_ENABLED_WRITE_BACK)] {
        let msrs = Msrs::from_entries(&[entry]).map_err(|_| kvm_ioctls::Error::new(libc::E2BIG))?;
        if processor.set_msrs(&msrs)? != 1 {
            return Err(kvm_ioctls::Error::new(libc::EINVAL));
        }
    }
    Ok(())
}

/// 64-bit mode at privilege level 3, with what vector instructions need.
fn enter_long_mode(system: &mut kvm_sregs, tables: u64) {
    const CR0_PE_MP_ET_NE_WP_PG: u64 = 1 | 1 << 1 | 1 << 4 | 1 << 5 | 1 << 16 | 1 << 31;
    const CR4_PAE_OSFXSR_OSXMMEXCPT_OSXSAVE: u64 = 1 << 5 | 1 << 9 | 1 << 10 | 1 << 18;
    const EFER_LME_LMA: u64 = 1 << 8 | 1 << 10;
    let data = kvm_segment {
        base: 0,
        limit: u32::MAX,
        selector: 0x2b,
        type_: 3,
        present: 1,
        dpl: 3,
        db: 1,
        s: 1,
        g: 1,
        ..kvm_segment::default()
    };
    system.cs = kvm_segment { selector: 0x33, type_: 11, l: 1, db: 0, ..data };
    (system.ss, system.ds, system.es) = (data, data, data);
    (system.fs, system.gs) = (data, data);
    system.cr0 = CR0_PE_MP_ET_NE_WP_PG;
    system.cr3 = tables;
    system.cr4 = CR4_PAE_OSFXSR_OSXMMEXCPT_OSXSAVE;
    system.efer = EFER_LME_LMA;
    system.gdt.limit = 0;
    system.idt.limit = 0;
}

/// XCR0: of x87, SSE, AVX and AVX-512 state what the guest may have.
fn vector_state(cpuid: &CpuId) -> kvm_xcrs {
    const VECTORS: u64 = 0b1110_0111;
    let leaf = cpuid.as_slice().iter().find(|entry| entry.function == 0xd && entry.index == 0);
    let supported = leaf.map_or(3, |leaf| u64::from(leaf.eax) | u64::from(leaf.edx) << 32);
    let mut state = kvm_xcrs { nr_xcrs: 1, ..kvm_xcrs::default() };
    state.xcrs[0].xcr = 0;
    state.xcrs[0].value = supported & VECTORS | 1;
    state
}

fn registers(entry: u64) -> kvm_regs {
    kvm_regs { rip: entry, rsp: SYSTEM + STACK_END, rflags: 2, ..kvm_regs::default() }
}

fn region(bytes: u64, kind: MemoryKind) -> Result<Region, NoVisit> {
    Region::new(MemorySpec::of(kind), Bytes(bytes), &Places::default()).map_err(NoVisit::from)
}

/// Plain data that a guest and its host hand each other: any bits that the other side leaves there are a valid value.
trait Plain {}

impl Plain for u64 {}
impl Plain for Step {}
impl Plain for Call {}

/// Checks that a value lies inside memory that its guest sees, and says where.
fn inside<T>(region: &Region, offset: u64, count: usize) -> Result<*mut T, NoVisit> {
    let bytes = (count * size_of::<T>()) as u64;
    let place = region.address() + offset;
    if offset.saturating_add(bytes) > region.bytes().0 || !place.is_multiple_of(align_of::<T>() as u64) {
        return Err(NoVisit::impossible("the code is too long for a guest"));
    }
    Ok(place as *mut T)
}

fn write_value<T: Plain>(region: &Region, offset: u64, value: &T) -> Result<(), NoVisit> {
    let to = inside::<T>(region, offset, 1)?;
    // SAFETY: `inside` checked bounds and alignment in a writable mapping, which is ours and the guest's alone; the guest
    // does not run now. `Plain` types need no drop.
    unsafe { std::ptr::copy_nonoverlapping(value, to, 1) };
    Ok(())
}

fn read_value<T: Plain>(region: &Region, offset: u64, value: &mut T) -> Result<(), NoVisit> {
    let from = inside::<T>(region, offset, 1)?;
    // SAFETY: as in `write_value`; any bits are a valid `Plain`.
    unsafe { std::ptr::copy_nonoverlapping(from, value, 1) };
    Ok(())
}

fn write_words(region: &Region, offset: u64, words: &[u64]) -> Result<(), NoVisit> {
    let to = inside::<u64>(region, offset, words.len())?;
    // SAFETY: as in `write_value`.
    unsafe { std::ptr::copy_nonoverlapping(words.as_ptr(), to, words.len()) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Intel's servers have 46 or 52 bits, AMD's 48 or 52; a hypervisor may say anything.
    #[test]
    fn addresses_reach_as_far_as_the_processor_says() {
        let reaches = [Some(39), Some(46), Some(52), Some(53), Some(0), None].map(reach);
        assert_eq!(reaches, [1 << 39, 1 << 46, 1 << 52, 1 << 36, 1 << 36, 1 << 36]);
    }
}
