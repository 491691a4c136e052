//! Buffers of each kind, and how the device shares them with the processor.

use std::sync::Arc;

use crate::no_visit::NoVisit;
use crate::opencl::calls::{Memory, Session, flags, mapping};
use crate::opencl::failure::Failure;
use crate::opencl::host_memory::HostMemory;
use crate::opencl::kernels::Kernels;
use crate::os::numa;
use membound_core::machine::devices::Device;
use membound_core::memory::Obtained;
use membound_core::memory::located::NodePages;
use membound_core::memory::proof::Proof;
use membound_core::memory::sharing::{Shared, observe};
use membound_core::units::Bytes;
use membound_core::work::device::{Action, Buffer};

/// Pages of a buffer that are looked up.
const PAGES_LOOKED_UP: usize = 1024;

/// Makes buffers of a kind.
#[derive(Clone, Copy)]
pub(super) struct Maker<'a> {
    pub session: &'a Arc<Session>,
    pub device: &'a Device,
    pub buffer: Buffer,
}

impl Maker<'_> {
    /// Memory that the program brings along for a buffer of so many bytes: fresh.
    pub fn host(&self, bytes: usize) -> Option<HostMemory> {
        self.buffer.host_offset().map(|offset| HostMemory::new(bytes, offset))
    }

    /// The same with its pages made.
    pub fn touched_host(&self, bytes: usize) -> Option<HostMemory> {
        self.buffer.host_offset().map(|offset| HostMemory::touched(bytes, offset))
    }

    /// A buffer; `host` is what [`Maker::host`] gave.
    pub fn make(&self, bytes: usize, host: Option<HostMemory>) -> Result<Memory, NoVisit> {
        let has = |capability: &str| self.device.svm.iter().any(|svm| svm == capability);
        let asked = match self.buffer {
            Buffer::Regular => return Err(NoVisit::impossible("regular memory is no buffer of a device")),
            Buffer::SvmCoarse if !has("coarse-grained buffers") => {
                return Err(NoVisit::impossible("the device has no shared virtual memory (OpenCL 2.0)"));
            }
            Buffer::SvmFine if !has("fine-grained buffers") => {
                return Err(NoVisit::impossible("the device has no fine-grained shared virtual memory"));
            }
            Buffer::SvmCoarse => return Ok(Memory::svm(self.session, flags::READ_WRITE, bytes)?),
            Buffer::SvmFine => {
                return Ok(Memory::svm(self.session, flags::READ_WRITE | flags::SVM_FINE_GRAIN, bytes)?);
            }
            Buffer::Plain => 0,
            Buffer::AllocHost => flags::ALLOC_HOST_PTR,
            Buffer::UseHostPage | Buffer::UseHostLine | Buffer::UseHostUnaligned => flags::USE_HOST_PTR,
            Buffer::CopyHost => flags::COPY_HOST_PTR,
        };
        Ok(Memory::buffer(self.session, flags::READ_WRITE | asked, bytes, host)?)
    }

    /// A buffer with fresh memory of the program's, where it works on that.
    pub fn fresh(&self, bytes: usize) -> Result<Memory, NoVisit> {
        self.make(bytes, self.host(bytes))
    }

    /// A buffer without flags, of whatever kind the others are that it takes part with.
    pub fn plain(&self, bytes: usize) -> Result<Memory, NoVisit> {
        let buffer = if self.buffer.is_svm() { Buffer::SvmCoarse } else { Buffer::Plain };
        Maker { buffer, ..*self }.make(bytes, None)
    }
}

/// A buffer, and the device's ways to touch it.
struct Probed<'a> {
    memory: Memory,
    word: Memory,
    kernels: &'a mut Kernels,
}

impl Shared for Probed<'_> {
    type Fault = Failure;

    fn map(&mut self) -> Result<(), Failure> {
        self.memory.map(mapping::READ | mapping::WRITE)
    }

    fn unmap(&mut self) -> Result<(), Failure> {
        self.memory.unmap()
    }

    fn host_store(&mut self, word: u64) -> Result<(), Failure> {
        self.memory.host_store(word);
        Ok(())
    }

    fn host_load(&mut self) -> Result<u64, Failure> {
        Ok(self.memory.host_load())
    }

    fn device_store(&mut self, word: u64) -> Result<(), Failure> {
        self.kernels.put(&self.memory, word)
    }

    fn device_load(&mut self) -> Result<u64, Failure> {
        self.kernels.words(&self.word, &self.memory)?;
        let mut word = [0u64];
        self.word.read(&mut word)?;
        Ok(word[0])
    }
}

/// Looks how the device shares a buffer of that size, and where its pages lie.
pub(super) fn look(maker: &Maker<'_>, kernels: &mut Kernels, size: Bytes) -> Result<Obtained, NoVisit> {
    let (mut obtained, bytes) = (Obtained { bytes: size, ..Obtained::default() }, size.0 as usize);
    if maker.buffer == Buffer::Regular {
        return Ok(obtained);
    }
    let (memory, word) = (maker.fresh(bytes)?, Maker { buffer: Buffer::Plain, ..*maker }.make(8, None)?);
    let mut probed = Probed { memory, word, kernels };
    // A driver may refuse what the standard leaves undefined: then nothing is known.
    let Ok(seen) = observe(&mut probed) else { return Ok(obtained) };
    let Some(sharing) = seen.sharing else {
        return Err(NoVisit::Wrong("data check failed: mapping a buffer loses what the device stored to it".into()));
    };
    obtained.proofs.push(Proof::new(sharing.word(), "behaviour", seen.describe(), true));
    let mut memory = probed.memory;
    memory.map(mapping::WRITE)?;
    memory.contents().fill(1.0);
    obtained.pages_on_node = memory.address().map_or_else(Vec::new, |start| nodes(start, bytes));
    memory.unmap()?;
    Ok(obtained)
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
