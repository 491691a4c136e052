//! What crossing lines and pages, aliasing and forwarding cost.

use crate::case::{Case, Work, product};
use crate::experiments::choice::Breadth;
use crate::experiments::frame::Frame;
use crate::kernel::Element;
use crate::kernel::scan::Scan;
use crate::memory::{MemoryKind, MemorySpec};
use crate::units::Bytes;

/// What crossing a line, crossing a page, 4 KiB aliasing and store-to-load forwarding cost, offset by offset.
///
/// In base pages, where every page crossing needs two translations: what a program can count on. (Crossing 4 KiB inside
/// a huge page costs the same on Zen 4.)
pub fn alignment(frame: &Frame, breadth: Breadth) -> Vec<Case> {
    let exists = |bytes: &u32| bytes * 8 <= frame.widest().bits(Element::Double).max(128);
    let mut sizes: Vec<u32> = [4, 8, 16, 32, 64].into_iter().filter(exists).collect();
    let widest = sizes[sizes.len() - 1];
    if breadth == Breadth::Brief {
        sizes = vec![8, widest];
    }
    let alone = sizes.iter().copied().filter(|bytes| *bytes >= 8);
    let mut scans: Vec<Scan> = alone.flat_map(|bytes| [Scan::Load { bytes }, Scan::Store { bytes }]).collect();
    scans.extend([8, widest].map(|bytes| Scan::Aliasing { bytes }));
    scans.extend(product(&sizes, &sizes).map(|(&stored, &loaded)| Scan::Forwarding { stored, loaded }));
    let cpus = frame.placement.first(1).unwrap_or_default();
    let (memory, size) = (MemorySpec::of(MemoryKind::Base), Bytes(Scan::SCRATCH));
    let case = |scan| Case::new(Work::Scan(scan), memory, cpus.clone(), size);
    scans.into_iter().map(case).collect()
}
