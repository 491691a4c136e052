//! What pages cost.

use crate::case::{Case, Protocol, Work};
use crate::experiments::choice::Breadth;
use crate::experiments::frame::{Frame, PlanError, all_and_one};
use crate::memory::{MemoryKind, MemorySpec};
use crate::units::Bytes;
use crate::work::pages::PageWork;

/// Works on pages that give pages back, or come after that, or need pages that are there.
const PAGE_STATES: [PageWork; 6] = [
    PageWork::Dontneed,
    PageWork::TouchAfterDontneed,
    PageWork::Free,
    PageWork::TouchAfterFree,
    PageWork::CopyOnWrite,
    PageWork::Unmap,
];

/// What pages cost: works on pages x memory kinds, by one thread and by all. In brief: without what happens to pages
/// that are there already, but copy-on-write.
pub fn first_touch(frame: &Frame, breadth: Breadth) -> Result<Vec<Case>, PlanError> {
    use MemoryKind::{Base, FileShared, FileSharedCold, Heap, Huge1G, Huge2M, Memfd, Shared, Thp, Tmpfs};
    let is_whole = breadth == Breadth::Whole;
    let mut works = Vec::new();
    let mut add = |work: PageWork, kinds: &[MemoryKind]| works.extend(kinds.iter().map(|&kind| (work, kind)));
    add(PageWork::Touch, &[Base, Thp, Huge2M, Huge1G]);
    add(PageWork::Populate, &[Base, Thp]);
    if is_whole {
        add(PageWork::Touch, &[Shared, Memfd, Tmpfs, Heap]);
        add(PageWork::Read, &[Base, Thp]);
        add(PageWork::Collapse, &[Base]);
    }
    for work in PAGE_STATES.into_iter().filter(|work| is_whole || *work == PageWork::CopyOnWrite) {
        add(work, &[Base, Thp]);
    }
    works.sort_unstable();
    let mut cases = Vec::new();
    for ((work, kind), threads) in
        works.into_iter().flat_map(|work| all_and_one(frame).into_iter().map(move |n| (work, n)))
    {
        cases.push(pages(frame, work, kind, threads)?);
    }
    // One disk is no faster for many.
    let on_disk = [
        (PageWork::Read, FileShared),
        (PageWork::Read, FileSharedCold),
        (PageWork::ReadDirect, FileShared),
        (PageWork::WriteDirect, FileShared),
    ];
    for (work, kind) in on_disk.into_iter().filter(|_| is_whole) {
        cases.push(pages(frame, work, kind, 1)?);
    }
    Ok(cases)
}

/// A case that works on pages: 64 MiB a thread, less where memory is small; a 1 GiB page is one in any case.
fn pages(frame: &Frame, work: PageWork, kind: MemoryKind, threads: usize) -> Result<Case, PlanError> {
    let cpus = frame.placement.first(threads)?;
    // Copying doubles it.
    let most = frame.memory_limit.0 / 4 / threads as u64 / Bytes::mib(2).0 * Bytes::mib(2).0;
    let share = match kind {
        MemoryKind::Huge1G => Bytes::gib(1).0,
        _ => most.clamp(Bytes::mib(2).0, Bytes::mib(64).0),
    };
    Ok(Case {
        protocol: Protocol::FirstUse,
        ..Case::new(Work::Page(work), MemorySpec::of(kind), cpus, Bytes(share * threads as u64))
    })
}
