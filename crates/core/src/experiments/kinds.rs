//! Memory kinds side by side: first use, then each way of touching each kind.

use crate::case::{Case, Protocol, StreamMemory, Work, steady};
use crate::experiments::choice::{Breadth, Choice, check_size};
use crate::experiments::frame::{Frame, PlanError};
use crate::in_order::each_once;
use crate::kernel::catalog::Kernel;
use crate::kernel::{LoadKind, StoreKind, Variant, Width};
use crate::memory::{MemoryKind, MemorySpec};
use crate::units::Bytes;

/// What other kinds are held against, and what their contents are copied from: what malloc gives.
pub const REGULAR: MemorySpec = MemorySpec::of(MemoryKind::Heap);
/// Bytes of the buffer: those of the published experiment (32 MB of doubles).
pub const BUFFER: Bytes = Bytes::mib(32);

/// For each kind: first use, then copying to it from regular memory, storing to it and loading from it. Kinds are
/// those of `choice`, or all; its first size is the buffer's.
pub fn kinds(frame: &Frame, choice: &Choice, breadth: Breadth) -> Result<Vec<Case>, PlanError> {
    let chosen: Vec<MemorySpec> = if choice.memory.is_empty() {
        // A default run must not write hundreds of megabytes to a disk that nobody named.
        let all = MemoryKind::ALL.iter().filter(|kind| breadth == Breadth::Whole || !kind.is_on_disk());
        all.map(|&kind| MemorySpec::of(kind)).collect()
    } else {
        // Every kind is held against regular memory, and memory types against write-back.
        let mut chosen = choice.memory.clone();
        chosen.push(REGULAR);
        if chosen.iter().any(|spec| spec.kind.is_memory_type()) {
            chosen.push(MemorySpec::of(MemoryKind::Wb));
        }
        chosen
    };
    // Each kind keeps memory for loads and for stores beside each other.
    let most = Bytes(frame.memory_limit.0 / (3 * chosen.len() as u64));
    let buffer = choice.sizes.first().copied().unwrap_or(Bytes(BUFFER.0.min(most.0)));
    let threads = choice.threads.first().copied().unwrap_or(1);
    let cpus = frame.placement.first(threads)?;
    let width = choice.widths.first().copied().unwrap_or(frame.widest());
    for kernel in ["copy", "store"] {
        let kernel = Kernel::named(kernel).unwrap_or(&crate::kernel::catalog::CATALOG[0]);
        check_size(frame, buffer, kernel, choice.element, threads)?;
    }
    if buffer > most {
        return Err(PlanError::TooLarge { size: buffer, limit: most });
    }
    let plan = Plan { cpus, width, buffer };
    let cases = chosen.into_iter().flat_map(|memory| plan.cases(memory, breadth));
    Ok(each_once(cases.map(|case| case.over(choice.element))))
}

struct Plan {
    cpus: Vec<u32>,
    width: Width,
    buffer: Bytes,
}

impl Plan {
    fn cases(&self, memory: MemorySpec, breadth: Breadth) -> Vec<Case> {
        let copy = self.copy(memory);
        let mut cases = vec![Case { protocol: Protocol::FirstUse, ..copy.clone() }];
        if memory.kind.is_cold() {
            let load = self.alone("load", StoreKind::Regular, LoadKind::Regular, memory);
            cases.push(Case { protocol: Protocol::FirstUse, ..load });
            return cases;
        }
        cases.push(copy);
        if breadth == Breadth::Whole {
            cases.push(self.alone("store", StoreKind::Regular, LoadKind::Regular, memory));
            cases.push(self.alone("load", StoreKind::Regular, LoadKind::Regular, memory));
            cases.push(self.alone("store", StoreKind::Nt, LoadKind::Regular, memory));
            cases.push(self.alone("store", StoreKind::NtMasked, LoadKind::Regular, memory));
            cases.push(self.alone("load", StoreKind::Regular, LoadKind::Nt, memory));
            if memory.kind.is_on_disk() {
                let load = self.alone("load", StoreKind::Regular, LoadKind::Regular, memory);
                cases.push(Case { protocol: Protocol::FirstUse, ..load });
            }
        }
        cases
    }

    /// From regular memory to this kind.
    fn copy(&self, memory: MemorySpec) -> Case {
        let both = Bytes(2 * self.buffer.0);
        let case = steady("copy", self.width, StoreKind::Regular, REGULAR, self.cpus.clone(), both);
        Case { streams: vec![StreamMemory { stream: "a".into(), memory }], ..case }
    }

    fn alone(&self, kernel: &str, store: StoreKind, load: LoadKind, memory: MemorySpec) -> Case {
        // maskmovdqu has one width.
        let width = if store == StoreKind::NtMasked { Width::W128 } else { self.width };
        let case = steady(kernel, width, store, memory, self.cpus.clone(), self.buffer);
        let Some(variant) = case.variant().cloned() else { return case };
        Case { work: Work::Kernel(Variant { load, ..variant }), ..case }
    }
}
