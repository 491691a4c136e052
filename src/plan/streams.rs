//! Streams x offsets between them: does it matter how arrays lie to each other?

use super::{Case, Choice, Frame, PlanError, Protocol, USUAL_MEMORY, Work, distinct, steady};
use crate::kernel::streams::{Streams, Touch};
use crate::kernel::{StoreKind, Width};
use crate::units::Bytes;

/// Numbers of streams; one has no other to lie to, and is what the others are held against.
const STREAMS: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// Bytes between streams, from one line to what is beyond every interleave of controllers that is known of.
pub const OFFSETS: [u32; 12] = [0, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536];

/// Each number of streams at each offset, in memory: read and copied, unless the choice names load, store or copy.
pub fn streams(frame: &Frame, choice: &Choice) -> Result<Vec<Case>, PlanError> {
    let named: Vec<Touch> = choice.kernels.iter().filter_map(|kernel| touch_of(kernel.name)).collect();
    let touches = if named.is_empty() { vec![Touch::Read, Touch::Copy] } else { named };
    let counts = if choice.threads.is_empty() { vec![frame.placement.most()] } else { choice.threads.clone() };
    let memory = choice.memory.first().copied().unwrap_or(USUAL_MEMORY);
    let mut cases = Vec::new();
    for threads in counts {
        let cpus = frame.placement.first(threads)?;
        let size = choice.sizes.first().copied().unwrap_or(frame.memory_size(threads));
        if size > frame.memory_limit {
            return Err(PlanError::TooLarge { size, limit: frame.memory_limit });
        }
        let least = Bytes(64 * u64::from(Streams::MOST) * threads as u64);
        if size < least {
            return Err(PlanError::TooSmall { size, threads, least });
        }
        let case = |streams: Streams| Case {
            work: Work::Streams(streams),
            protocol: Protocol::Steady,
            ..steady("load", Width::W128, StoreKind::Regular, memory, cpus.clone(), size)
        };
        for &touch in &touches {
            for streams in STREAMS {
                let offsets = if streams == 1 { &OFFSETS[..1] } else { &OFFSETS[..] };
                let all = offsets.iter().map(|&offset_bytes| Streams { touch, streams, offset_bytes });
                cases.extend(all.filter(|streams| streams.exists()).map(case));
            }
        }
    }
    Ok(distinct(cases))
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
