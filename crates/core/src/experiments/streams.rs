//! Streams x offsets between them: does it matter how arrays lie to each other?
//!
//! Streams that are only loaded, stored or copied are walked in any number. Any other kernel runs over arrays in one block,
//! as Fortran lays them in a COMMON.

use std::str::FromStr;

use crate::case::{Case, USUAL_MEMORY, Work, product, usual};
use crate::experiments::choice::{Choice, check_size};
use crate::experiments::frame::{Frame, PlanError};
use crate::in_order::{distinct, each_once};
use crate::kernel::catalog::Kernel;
use crate::kernel::streams::{Streams, Touch};
use crate::kernel::{Element, StoreKind, Variant, Width};
use crate::memory::MemorySpec;
use crate::units::{Bytes, LINE};
use crate::work::common::Common;

/// Numbers of streams; one has no other to lie to, and is what the others are held against.
const STREAMS: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// Bytes between streams, from one line to what is beyond every interleave of controllers that is known of.
pub const OFFSETS: [u32; 12] = [0, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536];

/// Offsets between arrays, rising; 0, which the others are held against, is among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offsets(Vec<u32>);

/// Arrays begin in slots of this many bytes: a greater offset is a smaller one in the next.
const MOST_BYTES: u64 = 1 << 20;
/// Each offset is a case of its own.
const MOST_OFFSETS: u64 = 4096;

impl Offsets {
    /// From one line to 64 KiB, each twice the one before.
    pub fn usual() -> Offsets {
        Offsets(OFFSETS.into())
    }

    /// Bytes, rising.
    pub fn bytes(&self) -> &[u32] {
        &self.0
    }
}

impl FromStr for Offsets {
    type Err = String;

    /// `scan`, or a list of offsets and ranges such as `0..8KiB:64B`.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "scan" {
            return Ok(Offsets::usual());
        }
        let mut all = vec![0];
        for item in text.split(',') {
            all.extend(range(item)?);
        }
        Ok(Offsets(distinct(all)))
    }
}

/// One offset, or those of a range: by its step, else each twice the one before.
fn range(item: &str) -> Result<Vec<u32>, String> {
    let bytes = |text: &str| text.trim().parse::<Bytes>().map(|bytes| bytes.0).map_err(|fault| fault.to_string());
    let small = |bytes: u64| match bytes <= MOST_BYTES {
        true => Ok(bytes),
        false => Err(format!("an offset of {} is more than {}", Bytes(bytes), Bytes(MOST_BYTES))),
    };
    let Some((from, rest)) = item.split_once("..") else { return Ok(vec![small(bytes(item)?)? as u32]) };
    let (to, step) = match rest.split_once(':') {
        Some((to, step)) => (to, Some(bytes(step)?)),
        None => (rest, None),
    };
    let (from, to) = (bytes(from)?, small(bytes(to)?)?);
    if from > to || step == Some(0) {
        return Err(format!("'{item}' is no range such as 0..8KiB:64B"));
    }
    if step.is_some_and(|step| (to - from) / step >= MOST_OFFSETS) {
        return Err(format!("'{item}' has more than {MOST_OFFSETS} offsets; give a larger step"));
    }
    let next = |at: &u64| Some(step.map_or((2 * at).max(LINE), |step| at + step));
    Ok(std::iter::successors(Some(from), next).take_while(|at| *at <= to).map(|at| at as u32).collect())
}

/// Each number of streams at each offset, in memory: read and copied, unless the choice names load, store or copy; and each
/// other kernel that it names over arrays in one block, at each offset.
pub fn streams(frame: &Frame, choice: &Choice, offsets: &Offsets) -> Result<Vec<Case>, PlanError> {
    let counts = if choice.threads.is_empty() { vec![frame.placement.most()] } else { choice.threads.clone() };
    let touches: Vec<Touch> = match choice.kernels.is_empty() {
        true => vec![Touch::Read, Touch::Copy],
        false => choice.kernels.iter().filter_map(|kernel| touch_of(kernel.name)).collect(),
    };
    let memories = if choice.memory.is_empty() { vec![USUAL_MEMORY] } else { choice.memory.clone() };
    let mut cases = Vec::new();
    for threads in counts {
        let cpus = frame.placement.first(threads)?;
        let sizes = if choice.sizes.is_empty() { vec![frame.memory_size(threads)] } else { choice.sizes.clone() };
        for (&size, &memory) in product(&sizes, &memories) {
            if !touches.is_empty() {
                cases.extend(walks(frame, &touches, offsets, (&cpus, size, memory))?);
            }
            for kernel in choice.kernels.iter().filter(|kernel| touch_of(kernel.name).is_none()) {
                cases.extend(blocks(frame, choice, kernel, offsets, (&cpus, size, memory))?);
            }
        }
    }
    Ok(each_once(cases))
}

fn walks(
    frame: &Frame,
    touches: &[Touch],
    offsets: &Offsets,
    (cpus, size, memory): (&[u32], Bytes, MemorySpec),
) -> Result<Vec<Case>, PlanError> {
    if size > frame.memory_limit {
        return Err(PlanError::TooLarge { size, limit: frame.memory_limit });
    }
    let least = Bytes(LINE * u64::from(Streams::MOST) * cpus.len() as u64);
    if size < least {
        return Err(PlanError::TooSmall { size, threads: cpus.len(), least });
    }
    if let Some(&odd) = offsets.bytes().iter().find(|bytes| !u64::from(**bytes).is_multiple_of(LINE)) {
        return Err(PlanError::OddOffset { offset: Bytes(odd.into()), unit: Bytes(LINE) });
    }
    let case = |streams: Streams| Case::new(Work::Streams(streams), memory, cpus.to_vec(), size);
    let mut cases = Vec::new();
    for (&touch, &streams) in product(touches, &STREAMS) {
        let offsets = if streams == 1 { &offsets.bytes()[..1] } else { offsets.bytes() };
        let all = offsets.iter().map(|&offset_bytes| Streams { touch, streams, offset_bytes });
        cases.extend(all.filter(|streams| streams.exists()).map(case));
    }
    Ok(cases)
}

fn blocks(
    frame: &Frame,
    choice: &Choice,
    kernel: &Kernel,
    offsets: &Offsets,
    (cpus, size, memory): (&[u32], Bytes, MemorySpec),
) -> Result<Vec<Case>, PlanError> {
    check_size(frame, size, kernel, choice.element, cpus.len())?;
    let element: Element = choice.element;
    if let Some(&odd) = offsets.bytes().iter().find(|bytes| !u64::from(**bytes).is_multiple_of(element.bytes())) {
        return Err(PlanError::OddOffset { offset: Bytes(odd.into()), unit: Bytes(element.bytes()) });
    }
    if kernel.formula().gathers() {
        return Err(PlanError::GatheringBlock { text: kernel.text });
    }
    let widest: Vec<Width> = frame.widths.last().copied().into_iter().collect();
    let widths = if choice.widths.is_empty() { &widest } else { &choice.widths };
    let regular = vec![StoreKind::Regular];
    let stores = if choice.stores.is_empty() || kernel.formula().store().is_none() { &regular } else { &choice.stores };
    let mut cases = Vec::new();
    for (&width, &store) in product(widths, stores) {
        let case = |&offset_bytes: &u32| {
            let variant = Variant { element, ..usual(kernel.name, width, store) };
            Case::new(Work::Common(Common { variant, offset_bytes }), memory, cpus.to_vec(), size)
        };
        // One array has no other to lie to.
        let many = if kernel.formula().streams.len() > 1 { offsets.bytes() } else { &offsets.bytes()[..1] };
        cases.extend(many.iter().map(case));
    }
    Ok(cases)
}

/// What a kernel does to lines, where streams can do it.
pub fn touch_of(kernel: &str) -> Option<Touch> {
    match kernel {
        "load" => Some(Touch::Read),
        "store" => Some(Touch::Write),
        "copy" => Some(Touch::Copy),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_read() {
        let of = |text: &str| text.parse::<Offsets>().map(|offsets| offsets.0);
        assert_eq!(of("scan"), Ok(OFFSETS.into()));
        assert_eq!(of("0..256B:64B"), Ok(vec![0, 64, 128, 192, 256]));
        // 0 is what all are held against.
        assert_eq!(of("72B,1KiB..4KiB,72B"), Ok(vec![0, 72, 1024, 2048, 4096]));
        assert_eq!(of("0..200B"), Ok(vec![0, 64, 128]));
        assert_eq!(of("0..8KiB:64B").unwrap().len(), 129);
        for wrong in ["", "much", "8KiB..0:64B", "0..8KiB:0B", "2MiB", "0..1MiB:8B", "0..", "..8KiB"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
