//! What one repetition of each action is, and whether it did its work.

use std::time::Duration;

use crate::bench::OverSlices;
use crate::code::Executable;
use crate::driver::host_memory::HostMemory;
use crate::driver::{Access, Copying, Driver, Kernels, Loop, Memory, SCALAR};
use crate::experiments::device::buffers::{Maker, stays_mapped};
use crate::no_visit::NoVisit;
use membound_core::case::{Case, Protocol};
use membound_core::kernel::Variant;
use membound_core::kernel::catalog::Kernel;
use membound_core::kernel::chase::{Chase, Cycle, Order};
use membound_core::units::Bytes;
use membound_core::work::device::{Action, Buffer};

/// A sample of one side beside the other, which must have done several pieces of its own work meanwhile; alone it is the same.
pub(super) const CONTENDED_SAMPLE: Duration = Duration::from_millis(100);
/// Of the order of a chase: the same in every visit.
const SEED: u64 = 1;
/// No first cache of a device is larger. Each launch finds it empty, and a pass that fills it takes as long as eight others.
const FIRST_CACHE: u64 = 256 << 10;

/// Links of a repetition of a chase: so many in what a first cache may hold that filling it does not show.
pub(super) fn links(working_set: u64) -> u64 {
    if working_set <= FIRST_CACHE { 1 << 20 } else { LAUNCH }
}

/// Links of a launch: some milliseconds even where each takes 1 us, which no watchdog ends.
const LAUNCH: u64 = 1 << 14;
/// The largest cache of a device that does not tell of any.
const UNTOLD_CACHE: u64 = 32 << 20;
/// No more is followed before the samples: 2 million links, 0.6 s at 0.3 us each.
const WARMED_MOST: u64 = 128 << 20;

/// Links to follow before a chase is timed, in whole launches: once around, so that each place was loaded before; of what is far larger
/// than the device's cache as many as leave nothing in it of what the upload put there.
fn links_before(working_set: u64, cache: Option<Bytes>) -> u64 {
    let enough = cache.map_or(UNTOLD_CACHE, |cache| cache.0).saturating_mul(2).min(WARMED_MOST);
    working_set.min(enough).div_ceil(LINE as u64).next_multiple_of(LAUNCH)
}

/// The processor's code, and what it was made of.
pub(super) type Code<'a> = (&'a Variant, &'a Executable);

/// What runs the processor's code. Made before anything is timed: its loop is read as text.
pub(super) fn on_the_host<'a>(code: Option<Code<'a>>) -> Result<Option<OverSlices<'a>>, NoVisit> {
    let made = |(variant, code): Code<'a>| {
        let kernel = Kernel::find(&variant.kernel)?;
        Ok(OverSlices::new(code, kernel.formula(), variant))
    };
    code.map(made).transpose()
}

/// What is written to, what is read, and by whom.
pub(super) struct Operation<'a, D: Driver> {
    action: Action,
    bytes: usize,
    is_first_use: bool,
    maker: Maker<'a, D>,
    kernels: &'a mut D::Kernels,
    host_kernel: Option<OverSlices<'a>>,
    /// The buffer, while there is one.
    memory: Option<D::Memory>,
    /// Another of its kind, where two copies run at once.
    second: Option<D::Memory>,
    /// Memory of the program's for the next buffer.
    host: Option<HostMemory>,
    /// Regular memory: source, destination, or what is touched itself.
    regular: Option<HostMemory>,
    /// Where the buffer is copied to for the device to read it, if it must be.
    staging: Option<D::Memory>,
    /// Where the device reads from, and where it writes to.
    source: Option<D::Memory>,
    sink: Option<D::Memory>,
    /// STREAM's arrays, or a cycle.
    arrays: Vec<D::Memory>,
    chase: Option<Chasing<<D::Kernels as Kernels>::Cycle>>,
}

impl<'a, D: Driver> Operation<'a, D> {
    pub fn new(
        case: &Case,
        action: Action,
        maker: Maker<'a, D>,
        kernels: &'a mut D::Kernels,
        host_kernel: Option<OverSlices<'a>>,
    ) -> Self {
        Operation {
            action,
            bytes: case.working_set.0 as usize,
            is_first_use: case.protocol == Protocol::FirstUse,
            maker,
            kernels,
            host_kernel,
            memory: None,
            second: None,
            host: None,
            regular: None,
            staging: None,
            source: None,
            sink: None,
            arrays: Vec::new(),
            chase: None,
        }
    }

    /// Makes and fills what all samples work on.
    pub fn begin(&mut self) -> Result<(), NoVisit> {
        let is_regular = self.maker.buffer == Buffer::Regular;
        match self.action {
            Action::Allocate => {}
            Action::KernelCopy | Action::KernelScale | Action::KernelAdd | Action::KernelTriad => self.fill_arrays()?,
            Action::Chase => {
                let cycle = Chase::of(Order::Random).cycle(Bytes(self.bytes.max(2 * LINE) as u64), SEED);
                let mut on_device =
                    self.kernels.cycle(&cycle, HostMemory::in_large_pages(8 * cycle.words()).words())?;
                let followed = links_before(self.bytes as u64, self.maker.driver.device().cache);
                for _ in 0..followed / LAUNCH {
                    self.kernels.follow(&mut on_device, LAUNCH)?;
                }
                self.chase = Some(Chasing { cycle, on_device, followed });
            }
            _ if is_regular => self.regular = Some(HostMemory::new(self.bytes, 0).full_of(before(self.action))),
            _ if self.is_first_use => self.attend()?,
            _ => {
                let mut memory = self.maker.fresh(self.bytes)?;
                memory.write(contents(self.bytes, before(self.action)).words())?;
                if stays_mapped(self.action) {
                    memory.map(Access::ReadWrite)?;
                }
                self.memory = Some(memory);
                self.attend()?;
            }
        }
        Ok(())
    }

    /// Makes what the buffer is copied to or from.
    fn attend(&mut self) -> Result<(), NoVisit> {
        use Action::{Copy, CopyBack, CopyBoth, KernelRead, Read, Use, UseWritten, Write};
        if matches!(self.action, Use | UseWritten | KernelRead | Copy | CopyBoth) {
            self.sink = Some(self.plain(OTHER)?);
        }
        if matches!(self.action, CopyBack | CopyBoth) {
            self.source = Some(self.plain(SCALAR)?);
        }
        if self.action == CopyBoth {
            let mut second = self.maker.fresh(self.bytes)?;
            second.write(contents(self.bytes, OTHER).words())?;
            self.second = Some(second);
        }
        if self.action == Use && self.maker.buffer.is_staged() && !self.is_first_use {
            self.staging = Some(self.plain(OTHER)?);
        }
        if matches!(self.action, UseWritten | Write | Read) {
            let value = if self.action == Write { SCALAR } else { OTHER };
            self.regular = Some(HostMemory::of_a_program(self.bytes).full_of(value));
        }
        Ok(())
    }

    /// A plain buffer full of a number.
    fn plain(&self, value: f64) -> Result<D::Memory, NoVisit> {
        let mut memory = self.maker.plain(self.bytes)?;
        memory.write(contents(self.bytes, value).words())?;
        Ok(memory)
    }

    /// STREAM's arrays: a = 1, b = 2, c = 3.
    fn fill_arrays(&mut self) -> Result<(), NoVisit> {
        const VALUES: [f64; 3] = [1.0, 2.0, 3.0];
        let bytes = array_bytes(self.bytes as u64) as usize;
        self.arrays = (0..VALUES.len()).map(|_| self.maker.fresh(bytes)).collect::<Result<_, NoVisit>>()?;
        if let [a, b, c] = &self.arrays[..]
            && self.kernels.fill([a, b, c], VALUES)?
        {
            return Ok(());
        }
        let mut contents = HostMemory::in_large_pages(bytes);
        for (index, value) in VALUES.into_iter().enumerate() {
            contents.words().fill(self.word_of(value));
            self.arrays[index].write(contents.words())?;
        }
        Ok(())
    }

    /// A word of an array that is full of a number.
    fn word_of(&self, value: f64) -> f64 {
        match self.kernels.element_bytes() {
            8 => value,
            _ => {
                let half = u64::from((value as f32).to_bits());
                f64::from_bits(half << 32 | half)
            }
        }
    }

    /// How long the operation is repeated at least before it is timed: copies alone as long as a sample of those beside a triad, which
    /// are held against them. A device that had little to do is slower at first.
    pub fn settling(&self) -> Duration {
        if matches!(self.action, Action::Copy | Action::Write) { CONTENDED_SAMPLE } else { Duration::ZERO }
    }

    /// Before each sample.
    pub fn prepare(&mut self) -> Result<(), NoVisit> {
        if self.action == Action::Allocate {
            self.host = self.maker.touched_host(self.bytes)?;
        } else if self.is_first_use && stays_mapped(self.action) {
            match self.maker.buffer {
                Buffer::Regular => self.regular = Some(HostMemory::new(self.bytes, 0)),
                _ => {
                    let mut memory = self.maker.fresh(self.bytes)?;
                    memory.map(Access::Renew)?;
                    self.memory = Some(memory);
                }
            }
        }
        Ok(())
    }

    /// After each sample.
    pub fn tidy(&mut self) {
        if self.is_first_use || self.action == Action::Allocate {
            self.memory = None;
            self.staging = None;
        }
    }

    /// The operation, so many times.
    pub fn repeat(&mut self, times: u64) -> Result<(), NoVisit> {
        match (self.action, &self.arrays[..]) {
            (action, [a, b, c]) if Action::KERNELS.contains(&action) => {
                self.kernels.stream(which(action), [a, b, c], times)
            }
            _ => (0..times).try_for_each(|_| self.once()),
        }
    }

    fn once(&mut self) -> Result<(), NoVisit> {
        match self.action {
            Action::Use | Action::UseWritten => self.hand_over(),
            Action::Allocate => {
                self.memory = Some(self.maker.make(self.bytes, self.host.take())?);
                Ok(())
            }
            Action::MapRead => self.map(Access::Read),
            Action::MapWrite => self.map(Access::Write),
            Action::MapInvalidate => self.map(Access::Renew),
            Action::Store | Action::StoreNt | Action::Load | Action::LoadNt => self.touch(),
            Action::Chase => match &mut self.chase {
                Some(Chasing { on_device, followed, .. }) => {
                    let links = links(self.bytes as u64);
                    *followed += links;
                    self.kernels.follow(on_device, links)
                }
                None => Ok(()),
            },
            _ => self.transfer(),
        }
    }

    fn map(&mut self, access: Access) -> Result<(), NoVisit> {
        let Some(memory) = &mut self.memory else { return Ok(()) };
        memory.map(access)?;
        memory.unmap()
    }

    fn touch(&mut self) -> Result<(), NoVisit> {
        let contents = match (&mut self.memory, &mut self.regular) {
            (Some(memory), _) => memory.contents(),
            (None, Some(regular)) => regular.words(),
            (None, None) => return Ok(()),
        };
        run(&mut self.host_kernel, contents)
    }

    /// The processor fills the buffer and the device reads it; a first use makes the buffer, too, and what it is copied to.
    fn hand_over(&mut self) -> Result<(), NoVisit> {
        if self.memory.is_none() {
            self.memory = Some(self.maker.fresh(self.bytes)?);
        }
        if self.staging.is_none() && self.action == Action::Use && self.maker.buffer.is_staged() {
            self.staging = Some(self.maker.plain(self.bytes)?);
        }
        let (Some(memory), Some(sink)) = (&mut self.memory, &self.sink) else { return Ok(()) };
        match &mut self.regular {
            Some(regular) => {
                run(&mut self.host_kernel, regular.words())?;
                memory.write(regular.words())?;
            }
            None => {
                memory.map(Access::Renew)?;
                run(&mut self.host_kernel, memory.contents())?;
                memory.unmap()?;
            }
        }
        match &mut self.staging {
            Some(staging) => {
                memory.copy(staging)?;
                self.kernels.words(sink, staging)
            }
            None => self.kernels.words(sink, memory),
        }
    }

    fn transfer(&mut self) -> Result<(), NoVisit> {
        let Some(memory) = &mut self.memory else { return Ok(()) };
        let (regular, source, sink) = (&mut self.regular, &mut self.source, &mut self.sink);
        match (self.action, regular, source, sink, &mut self.second) {
            (Action::Write, Some(from), ..) => memory.write(from.words()),
            (Action::Read, Some(to), ..) => memory.read(to.words()),
            (Action::Copy, _, _, Some(sink), _) => memory.copy(sink),
            (Action::CopyBack, _, Some(source), ..) => source.copy(memory),
            (Action::CopyBoth, _, Some(source), Some(sink), Some(second)) => self
                .maker
                .driver
                .both([Copying::Within { from: memory, to: sink }, Copying::Within { from: source, to: second }]),
            (Action::KernelRead, _, _, Some(sink), _) => self.kernels.words(sink, memory),
            _ => Ok(()),
        }
    }

    /// What all samples left behind, against what it must be.
    pub fn check(&mut self) -> Result<(), NoVisit> {
        match self.action {
            Action::Allocate | Action::MapWrite | Action::MapInvalidate => Ok(()),
            // What it loaded was just made.
            Action::Load | Action::LoadNt if self.is_first_use => Ok(()),
            Action::Load | Action::LoadNt => {
                check(&[self.host_kernel.as_ref().map_or(SCALAR, OverSlices::result)], SCALAR)
            }
            Action::Chase => self.check_chase(),
            Action::Read => self.regular.as_mut().map_or(Ok(()), |regular| check(regular.words(), SCALAR)),
            action if Action::KERNELS.contains(&action) => self.check_arrays(),
            _ => {
                if let Some(second) = &mut self.second {
                    check_contents(second, SCALAR)?;
                }
                match (self.sink.as_mut().or(self.memory.as_mut()), &mut self.regular) {
                    (Some(memory), _) => {
                        memory.unmap()?;
                        check_contents(memory, SCALAR)
                    }
                    (None, Some(regular)) => check(regular.words(), SCALAR),
                    // A buffer that the processor stored to once is gone; of those that a device read there is what it read.
                    (None, None) => Ok(()),
                }
            }
        }
    }

    /// Where the chase stands after all links that it followed.
    fn check_chase(&mut self) -> Result<(), NoVisit> {
        let Some(Chasing { cycle, on_device, followed }) = &mut self.chase else { return Ok(()) };
        let (at, expect) = (self.kernels.stands_at(on_device)?, place_after(cycle, *followed));
        if at == expect {
            return Ok(());
        }
        Err(NoVisit::Wrong(format!("data check failed: the chase stands at word {at}, must stand at {expect}")))
    }

    fn check_arrays(&mut self) -> Result<(), NoVisit> {
        // With b = 2, c = 3 and the scalar 3.
        let expect = match self.action {
            Action::KernelCopy => 2.0,
            Action::KernelScale => 6.0,
            Action::KernelAdd => 5.0,
            _ => 11.0,
        };
        let expect = self.word_of(expect);
        self.arrays.first_mut().map_or(Ok(()), |a| check_contents(a, expect))
    }
}

/// Bytes of each of STREAM's three arrays: whole pages, of which there is at least one.
pub(super) fn array_bytes(working_set: u64) -> u64 {
    (working_set / 3 / 4096 * 4096).max(4096)
}

/// What no check expects.
const OTHER: f64 = 1.0;

/// What a buffer, or regular memory in its place, holds before the samples: what the check expects where they only read it.
fn before(action: Action) -> f64 {
    use Action::{CopyBack, Store, StoreNt, Use, UseWritten, Write};
    if matches!(action, CopyBack | Store | StoreNt | Use | UseWritten | Write) { OTHER } else { SCALAR }
}

/// Bytes of a cache line: places of a chase lie so far apart.
const LINE: usize = membound_core::units::LINE as usize;

/// What a buffer is filled from.
fn contents(bytes: usize, value: f64) -> HostMemory {
    HostMemory::in_large_pages(bytes).full_of(value)
}

/// A cycle that a device follows, and how far it came.
struct Chasing<C> {
    cycle: Cycle,
    on_device: C,
    followed: u64,
}

/// The index of the word of the place after so many links from the first.
fn place_after(cycle: &Cycle, links: u64) -> u64 {
    cycle.after(0, 1, links).first().map_or(0, |address| address / 8)
}

fn which(action: Action) -> Loop {
    match action {
        Action::KernelCopy => Loop::Copy,
        Action::KernelScale => Loop::Scale,
        Action::KernelAdd => Loop::Add,
        _ => Loop::Triad,
    }
}

/// One pass of the processor's kernel.
fn run(kernel: &mut Option<OverSlices<'_>>, contents: &mut [f64]) -> Result<(), NoVisit> {
    let Some(kernel) = kernel else { return Ok(()) };
    Ok(kernel.pass(&mut [contents], SCALAR)?)
}

/// Words of each of the triad's arrays.
pub(super) fn third(words: &[f64]) -> usize {
    words.len() / 3 / 8 * 8
}

/// One pass of the processor's triad over thirds of its memory.
pub(super) fn triad(kernel: &mut Option<OverSlices<'_>>, memory: &mut HostMemory) -> Result<(), NoVisit> {
    let Some(kernel) = kernel else { return Ok(()) };
    let words = memory.words();
    let third = third(words);
    let (a, rest) = words.split_at_mut(third);
    let (b, c) = rest.split_at_mut(third);
    Ok(kernel.pass(&mut [a, b, &mut c[..third]], SCALAR)?)
}

pub(super) fn check_contents(memory: &mut impl Memory, expect: f64) -> Result<(), NoVisit> {
    let mut found = HostMemory::in_large_pages(memory.bytes());
    memory.read(found.words())?;
    check(found.words(), expect)
}

pub(super) fn check(found: &[f64], expect: f64) -> Result<(), NoVisit> {
    match found.iter().enumerate().find(|(_, value)| **value != expect) {
        None => Ok(()),
        Some((at, value)) => {
            Err(NoVisit::Wrong(format!("data check failed: element {at} is {value}, must be {expect}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 6 MiB are 98,304 lines, six launches; twice the 60 MiB of an H200's cache 1,966,080, and twice 32 MiB 1,048,576.
    #[test]
    fn a_chase_goes_once_around_or_leaves_nothing_of_the_upload_in_the_cache() {
        let check = |mib: u64, cache: Option<u64>, links: u64| {
            assert_eq!(links_before(mib << 20, cache.map(Bytes::mib)), links, "{mib} MiB, cache of {cache:?} MiB");
        };
        check(6, Some(60), 98_304);
        check(64, Some(60), 1_048_576);
        check(768, Some(60), 1_966_080);
        check(768, None, 1_048_576);
        // Never for more than 2 million links.
        check(768, Some(1024), 2_097_152);
        assert_eq!(links_before(4096, None), 16_384, "a launch at least");
    }
}
