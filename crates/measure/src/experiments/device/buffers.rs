//! Buffers of each kind, and how the device shares them with the processor.

use crate::behaviour;
use crate::bench::Tools;
use crate::driver::host_memory::HostMemory;
use crate::driver::{Access, Driver, Kernels, Memory};
use crate::no_visit::NoVisit;
use crate::os::numa;
use crate::os::pages;
use crate::os::thread::ThreadUsage;
use membound_core::memory::behaviour::PROBE;
use membound_core::memory::located::NodePages;
use membound_core::memory::proof::Proof;
use membound_core::memory::sharing::{Shared, observe};
use membound_core::memory::{MemoryKind, Obtained};
use membound_core::units::Bytes;
use membound_core::work::device::{Action, Buffer};

/// Pages of a buffer that are looked up.
const PAGES_LOOKED_UP: usize = 1024;

/// Makes buffers of a kind.
pub(super) struct Maker<'a, D> {
    pub driver: &'a D,
    pub buffer: Buffer,
}

impl<D> Clone for Maker<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for Maker<'_, D> {}

impl<D: Driver> Maker<'_, D> {
    /// Memory that the program brings along for a buffer of so many bytes: fresh.
    pub fn host(&self, bytes: usize) -> Result<Option<HostMemory>, NoVisit> {
        match (self.buffer.backing(), self.buffer.host_offset()) {
            (Some(kind), _) => HostMemory::in_pages(kind, bytes).map(Some),
            (None, offset) => Ok(offset.map(|offset| HostMemory::new(bytes, offset))),
        }
    }

    /// The same with its pages made.
    pub fn touched_host(&self, bytes: usize) -> Result<Option<HostMemory>, NoVisit> {
        Ok(self.host(bytes)?.map(|memory| memory.full_of(1.0)))
    }

    /// A buffer; `host` is what [`Maker::host`] gave.
    pub fn make(&self, bytes: usize, host: Option<HostMemory>) -> Result<D::Memory, NoVisit> {
        match self.buffer {
            Buffer::Regular => Err(NoVisit::impossible("regular memory is no buffer of a device")),
            buffer => self.driver.make(buffer, bytes, host),
        }
    }

    /// A buffer with fresh memory of the program's, where it works on that.
    pub fn fresh(&self, bytes: usize) -> Result<D::Memory, NoVisit> {
        self.make(bytes, self.host(bytes)?)
    }

    /// A buffer without flags, of whatever kind the others are that it takes part with.
    pub fn plain(&self, bytes: usize) -> Result<D::Memory, NoVisit> {
        let buffer = if self.buffer.is_svm() { Buffer::SvmCoarse } else { Buffer::Plain };
        Maker { buffer, ..*self }.make(bytes, None)
    }
}

/// A buffer, and the device's ways to touch it.
struct Probed<'a, K: Kernels> {
    memory: K::Memory,
    word: K::Memory,
    kernels: &'a mut K,
}

impl<M: Memory, K: Kernels<Memory = M>> Shared for Probed<'_, K> {
    type Fault = NoVisit;

    fn map(&mut self) -> Result<(), NoVisit> {
        self.memory.map(Access::ReadWrite)
    }

    fn unmap(&mut self) -> Result<(), NoVisit> {
        self.memory.unmap()
    }

    fn host_store(&mut self, word: u64) -> Result<(), NoVisit> {
        self.memory.host_store(word)
    }

    fn host_load(&mut self) -> Result<u64, NoVisit> {
        self.memory.host_load()
    }

    fn device_store(&mut self, word: u64) -> Result<(), NoVisit> {
        self.kernels.put(&self.memory, word)
    }

    fn device_load(&mut self) -> Result<u64, NoVisit> {
        self.kernels.words(&self.word, &self.memory)?;
        let mut word = [0u64];
        self.word.read(&mut word)?;
        Ok(word[0])
    }

    fn faults(&self) -> u64 {
        ThreadUsage::now().faults
    }
}

/// What shows that a buffer behaves as the type of memory that it asks for, if it asks for one; or that it does not.
pub(super) fn prove_type<D: Driver>(
    maker: &Maker<'_, D>,
    tools: &Tools<'_>,
) -> Result<Result<Option<Proof>, String>, NoVisit> {
    let Some(kind) = maker.buffer.memory_type() else { return Ok(Ok(None)) };
    let mut memory = maker.fresh(PROBE.0 as usize)?;
    let Some(view) = memory.view() else { return Ok(Ok(None)) };
    Ok(behaviour::prove(kind, view.words(), tools.ticker, tools.hz)?.map(Some))
}

/// Looks how the device shares a buffer of that size, and where its pages lie.
pub(super) fn look<D: Driver>(
    maker: &Maker<'_, D>,
    kernels: &mut D::Kernels,
    size: Bytes,
) -> Result<Obtained, NoVisit> {
    let (mut obtained, bytes) = (Obtained { bytes: size, ..Obtained::default() }, size.0 as usize);
    if maker.buffer == Buffer::Regular {
        return Ok(obtained);
    }
    let (host, word) = (maker.touched_host(bytes)?, Maker { buffer: Buffer::Plain, ..*maker }.make(8, None)?);
    let pages = host.as_ref().and_then(|host| page_proof(maker.buffer.backing()?, &host.inspect()?));
    let memory = maker.make(bytes, host)?;
    if !maker.buffer.is_reached_by_host(maker.driver.device().name.api) {
        return Ok(obtained);
    }
    let mut probed = Probed { memory, word, kernels };
    let seen = match observe(&mut probed) {
        Ok(seen) => seen,
        // A driver may refuse what the standard leaves undefined: then nothing is known. A device that was lost by it reads nothing.
        Err(_) => return probed.word.read(&mut [0u64]).map(|()| obtained),
    };
    let Some(sharing) = seen.sharing else {
        return Err(NoVisit::Wrong("data check failed: mapping a buffer loses what the device stored to it".into()));
    };
    obtained.proofs.push(Proof::new(sharing.word(), "behaviour", seen.describe(), true));
    obtained.proofs.extend(pages);
    let mut memory = probed.memory;
    memory.map(Access::Write)?;
    memory.contents().fill(1.0);
    obtained.pages_on_node = memory.view().map_or_else(Vec::new, |view| nodes(view.address(), bytes));
    memory.unmap()?;
    Ok(obtained)
}

/// Whether the program's memory lies in the pages that it was to lie in; nothing where the kernel does not tell.
fn page_proof(kind: MemoryKind, found: &Obtained) -> Option<Proof> {
    // The mapping may be longer than the buffer.
    let (huge, all) = (found.huge_bytes?.min(found.bytes), found.bytes);
    let (claim, holds) = match kind {
        MemoryKind::Base => ("registered in base pages", huge == Bytes(0)),
        _ => ("registered in huge pages", huge.0 >= all.0 / 2),
    };
    Some(Proof::new(claim, pages::SOURCE, format!("{huge} of {all} in huge pages"), holds))
}

/// The nodes of some of a mapping's pages; empty where the kernel does not tell.
fn nodes(start: usize, bytes: usize) -> Vec<NodePages> {
    let step = (bytes / PAGES_LOOKED_UP).max(4096);
    let addresses: Vec<usize> = (start..start + bytes).step_by(step).collect();
    let mut on: Vec<NodePages> = Vec::new();
    for node in numa::locate(&addresses).unwrap_or_default().into_iter().flatten() {
        match on.iter_mut().find(|known| known.node == node) {
            Some(known) => known.pages += 1,
            None => on.push(NodePages { node, pages: 1 }),
        }
    }
    on.sort_by_key(|known| known.node);
    on
}

/// Whether an action works on a mapping that stays.
pub(super) fn stays_mapped(action: Action) -> bool {
    matches!(action, Action::Store | Action::StoreNt | Action::Load | Action::LoadNt)
}
