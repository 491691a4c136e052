//! What is done to pages: each thread has a mapping of its own, made anew before each sample and brought to the state
//! that the work starts from. Only the work is timed.
//!
//! Two words of each base page tell afterwards whether it was done: the first is the work's, the second is written when
//! the page is prepared.

use membound_core::record::Unit;
use std::fs::File;
use std::hint::black_box;

use crate::bench::{Tools, measured};
use crate::memory::huge;
use crate::memory::places::Places;
use crate::memory::region::Region;
use crate::memory::touch;
use crate::no_visit::NoVisit;
use crate::os::advice::Advice;
use crate::os::clock::Ticker;
use crate::os::files;
use crate::os::processes::Child;
use crate::team::{Task, Team};
use membound_core::case::Case;
use membound_core::memory::{MemoryKind, MemorySpec, Obtained};
use membound_core::record::{Measured, Volume};
use membound_core::units::{BASE_PAGE, Bytes};
use membound_core::work::pages::PageWork;

const PAGE: usize = BASE_PAGE as usize;
/// The word of each page that the work writes or reads, and the one that is written before.
const WORKED: usize = 0;
const PREPARED: usize = 1;
/// What is written there.
const MARK: f64 = 1.0;
/// Moved by one direct read or write: enough for any disk to run at its full rate.
const DIRECT: Bytes = Bytes::mib(1);
/// Share of a mapping that must be huge for a collapse to be believed.
const COLLAPSED_SHARE: f64 = 0.9;

/// Visits a case that works on pages.
pub(crate) fn measure(case: &Case, work: PageWork, team: Team<'_>, tools: &Tools<'_>) -> Result<Measured, NoVisit> {
    let task = |_: &u32| Pages::new(case, work, tools.ticker, tools.places);
    let mut tasks: Vec<Pages> = case.cpus.iter().map(task).collect::<Result<_, NoVisit>>()?;
    let taken = team.measure(&mut tasks)?;
    let bytes = tasks.iter().map(|task| worked(work, task.region.bytes())).sum();
    let obtained = tasks.into_iter().filter_map(|task| task.obtained).reduce(Obtained::and).unwrap_or_default();
    Ok(measured(volume(work, bytes), taken, obtained))
}

/// Bytes of a mapping that are worked on: a direct transfer moves whole pieces.
fn worked(work: PageWork, Bytes(mapped): Bytes) -> u64 {
    let is_direct = matches!(work, PageWork::ReadDirect | PageWork::WriteDirect);
    if is_direct { mapped / DIRECT.0 * DIRECT.0 } else { mapped }
}

/// Bytes that the kernel zeroes or copies (or a device transfers) when every page of `bytes` is worked on once.
fn volume(work: PageWork, bytes: u64) -> Volume {
    use PageWork::{Collapse, CopyOnWrite, Populate, ReadDirect, Touch, TouchAfterDontneed, WriteDirect};
    let copies = matches!(work, CopyOnWrite | Collapse | ReadDirect | WriteDirect);
    let makes = copies || matches!(work, Touch | Populate | TouchAfterDontneed);
    Volume {
        units: bytes / BASE_PAGE,
        unit: Unit::Page,
        loaded: if copies { bytes } else { 0 },
        stored: if makes { bytes } else { 0 },
        ..Volume::default()
    }
}

/// One thread's mapping and what is done to it.
struct Pages {
    work: PageWork,
    region: Region,
    ticker: Ticker,
    /// Shares the pages of all threads, for copy-on-write; the first thread's.
    child: Option<Child>,
    /// The file around the page cache, and the memory that it is read into and written from.
    direct: Option<(File, Region)>,
    /// Looked up once a visit, around the first sample.
    obtained: Option<Obtained>,
    /// Whether a sample ran since memory was prepared.
    worked: bool,
}

impl Pages {
    fn new(case: &Case, work: PageWork, ticker: Ticker, places: &Places) -> Result<Self, NoVisit> {
        let share = case.share();
        // MADV_COLLAPSE makes huge pages.
        let alignment = if work == PageWork::Collapse { huge::transparent() } else { Bytes(0) };
        let region = Region::aligned(case.memory, share, alignment, places)?;
        if !region.is_writable() {
            return Err(NoVisit::ReadOnly(Box::new(case.memory)));
        }
        if work == PageWork::CopyOnWrite && !region.is_copied_on_write() {
            let reason = format!("{} memory is not copied on write; choose 4k or thp", case.memory);
            return Err(NoVisit::impossible(reason));
        }
        if work == PageWork::Collapse && case.memory.kind != MemoryKind::Base {
            let reason = format!("{} memory may be huge before it is collapsed; choose 4k", case.memory);
            return Err(NoVisit::impossible(reason));
        }
        let is_direct = matches!(work, PageWork::ReadDirect | PageWork::WriteDirect);
        let direct = if is_direct { Some(direct(&region, places)?) } else { None };
        Ok(Pages { work, region, ticker, child: None, direct, obtained: None, worked: false })
    }

    /// Reads or writes the whole file, a piece at a time.
    fn transfer(&mut self) -> Result<(), NoVisit> {
        let Some((file, buffer)) = &mut self.direct else { return Ok(()) };
        let pieces = worked(self.work, self.region.bytes()) / DIRECT.0;
        for piece in 0..pieces {
            let done = match self.work {
                PageWork::WriteDirect => files::write_at(file, buffer.contents(), piece * DIRECT.0),
                _ => files::read_at(file, buffer.contents(), piece * DIRECT.0),
            };
            done.map_err(|fault| NoVisit::Broken(format!("direct transfer to or from the file failed: {fault}")))?;
        }
        Ok(())
    }

    /// Whether the last piece in memory and in the file are the same, seen through the mapping.
    fn check_transferred(&mut self) -> Result<(), NoVisit> {
        let Some((_, buffer)) = &mut self.direct else { return Ok(()) };
        let last = (worked(self.work, self.region.bytes()) - DIRECT.0) as usize;
        let buffer = buffer.contents();
        let is_same = touch::touch(&mut self.region, |contents| contents[last..last + buffer.len()] == *buffer);
        match is_same? {
            true => Ok(()),
            false => Err(NoVisit::Wrong("data check failed: file and memory differ".into())),
        }
    }

    /// Writes a word of each base page.
    fn write(&mut self, word: usize) -> Result<(), NoVisit> {
        let mark = |page: &mut [u8]| page[word * 8..][..8].copy_from_slice(&MARK.to_ne_bytes());
        let write = |contents: &mut [u8]| black_box(contents).chunks_exact_mut(PAGE).for_each(mark);
        Ok(touch::touch(&mut self.region, write)?)
    }

    /// Brings a fresh mapping to where a sample starts.
    fn prepare(&mut self) -> Result<(), NoVisit> {
        use PageWork::{Collapse, CopyOnWrite, Populate, Read, ReadDirect, Touch, TouchAfterDontneed, TouchAfterFree};
        if matches!(self.work, Touch | Read | Populate | ReadDirect | PageWork::WriteDirect) {
            return Ok(());
        }
        self.write(PREPARED)?;
        let advice = match self.work {
            TouchAfterDontneed => Advice::Dontneed,
            TouchAfterFree => Advice::Free,
            CopyOnWrite => Advice::Fork,
            // Base pages are there now, and nothing forbids huge ones any more.
            Collapse => Advice::Huge,
            _ => return Ok(()),
        };
        Ok(self.region.advise(advice)?)
    }

    /// Reads back what pages there are. Works that take pages away or split them are about those before.
    fn look(&mut self, before_sample: bool) {
        use PageWork::{CopyOnWrite, Dontneed, Free, Unmap};
        let is_about_before = matches!(self.work, Dontneed | Free | CopyOnWrite | Unmap);
        if self.obtained.is_none() && before_sample == is_about_before {
            self.obtained = Some(self.region.inspect(self.region.bytes()));
        }
    }

    /// Whether the sample did its work: what the two words of each page must be, where that is known.
    fn check(&mut self) -> Result<(), NoVisit> {
        use PageWork::{
            Collapse, CopyOnWrite, Dontneed, Free, Populate, Read, ReadDirect, Touch, TouchAfterDontneed,
            TouchAfterFree, Unmap, WriteDirect,
        };
        let zero = self.region.is_private_anonymous().then_some(0.0);
        let (worked, prepared) = match self.work {
            Touch | TouchAfterDontneed => (Some(MARK), zero),
            TouchAfterFree => (Some(MARK), None),
            CopyOnWrite => (Some(MARK), Some(MARK)),
            Read | Populate | Dontneed => (zero, zero),
            Free => (zero, None),
            Collapse => (zero, Some(MARK)),
            Unmap => return Ok(()),
            ReadDirect | WriteDirect => return self.check_transferred(),
        };
        let expected = [(WORKED, worked), (PREPARED, prepared)];
        let difference = touch::touch(&mut self.region, |contents| difference(contents, expected))?;
        match difference {
            Some(reason) => Err(NoVisit::Wrong(reason)),
            None => self.check_collapsed(),
        }
    }

    fn check_collapsed(&self) -> Result<(), NoVisit> {
        let Some(Obtained { bytes, huge_bytes: Some(huge), .. }) = &self.obtained else { return Ok(()) };
        if self.work == PageWork::Collapse && (huge.0 as f64) < COLLAPSED_SHARE * bytes.0 as f64 {
            let reason = format!("MADV_COLLAPSE said that it was done, smaps shows {huge} of {bytes} in huge pages");
            return Err(NoVisit::Wrong(reason));
        }
        Ok(())
    }
}

impl Task for Pages {
    fn renew(&mut self) -> Result<u64, NoVisit> {
        self.end()?;
        self.region.unmap();
        let start = self.ticker.now();
        self.region.map()?;
        let ticks = self.ticker.now() - start;
        self.prepare()?;
        self.look(true);
        Ok(ticks)
    }

    /// One child for the pages of all threads: a fork copies the page tables of the whole process.
    fn lead(&mut self) -> Result<(), NoVisit> {
        if self.work == PageWork::CopyOnWrite {
            let refused = |fault| {
                NoVisit::impossible(format!("a child was refused ({fault}); allow another process (ulimit -u)"))
            };
            self.child = Some(Child::fork().map_err(refused)?);
        }
        Ok(())
    }

    fn run(&mut self, _repetitions: u64) -> Result<(), NoVisit> {
        use PageWork::{
            Collapse, CopyOnWrite, Dontneed, Free, Populate, Read, ReadDirect, Touch, TouchAfterDontneed,
            TouchAfterFree, Unmap, WriteDirect,
        };
        self.worked = true;
        let advice = match self.work {
            Touch | TouchAfterDontneed | TouchAfterFree | CopyOnWrite => return self.write(WORKED),
            Read => {
                black_box(touch::touch(&mut self.region, |contents| read(contents))?);
                return Ok(());
            }
            ReadDirect | WriteDirect => return self.transfer(),
            Unmap => {
                self.region.unmap();
                return Ok(());
            }
            Populate => Advice::Populate,
            Dontneed => Advice::Dontneed,
            Free => Advice::Free,
            Collapse => Advice::Collapse,
        };
        Ok(self.region.advise(advice)?)
    }

    /// Checks what the last sample left behind, and ends the child that shared it.
    fn end(&mut self) -> Result<(), NoVisit> {
        self.child = None;
        if !std::mem::take(&mut self.worked) {
            return Ok(());
        }
        self.look(false);
        self.check()
    }
}

/// The file of a region around the page cache, and memory to transfer from and to.
fn direct(region: &Region, places: &Places) -> Result<(File, Region), NoVisit> {
    if region.bytes() < DIRECT {
        let reason = format!("a direct transfer moves {DIRECT} at a time; give a larger --size");
        return Err(NoVisit::impossible(reason));
    }
    let mut buffer = Region::new(MemorySpec::of(MemoryKind::Base), DIRECT, places)?;
    buffer.contents().fill(1);
    Ok((region.direct_file()?, buffer))
}

/// The first word of a page that is not what it must be, where that is known.
fn difference(contents: &[u8], expected: [(usize, Option<f64>); 2]) -> Option<String> {
    for (number, page) in contents.chunks_exact(PAGE).enumerate() {
        for (word, expect) in expected {
            let found = f64::from_bits(bits(page, word));
            if let Some(expect) = expect.filter(|expect| *expect != found) {
                let page = number;
                return Some(format!("data check failed: word {word} of page {page} is {found}, must be {expect}"));
            }
        }
    }
    None
}

/// Reads a word of each base page.
fn read(contents: &[u8]) -> u64 {
    contents.chunks_exact(PAGE).fold(0, |all, page| all ^ bits(page, WORKED))
}

fn bits(page: &[u8], word: usize) -> u64 {
    page[word * 8..][..8].try_into().map_or(0, u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: of 2.5 MiB a direct transfer moves 2 MiB, 512 pages; all else works on 640.
    #[test]
    fn what_is_not_moved_does_not_count() {
        let pages = |work| volume(work, worked(work, Bytes::kib(2560))).units;
        assert_eq!([PageWork::ReadDirect, PageWork::WriteDirect, PageWork::Touch].map(pages), [512, 512, 640]);
    }
}
