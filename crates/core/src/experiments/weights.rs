//! Two tiers of memory at work side by side: which share of the pages should lie on which?

use crate::case::{Case, USUAL_MEMORY, steady};
use crate::experiments::frame::{Frame, PlanError};
use crate::kernel::StoreKind;
use crate::kernel::catalog::Kernel;
use crate::memory::MemorySpec;
use crate::memory::policy::{Policy, Weights};
use crate::units::Bytes;

/// Weights of the first tier and the second. If tiers of bandwidth B1 and B2 work side by side, all pages are there the
/// soonest with a share of B1 / (B1 + B2) on the first. Whatever that share is, one of these ratios comes within 10 % of
/// the bandwidth of both.
pub const RATIOS: [[u8; 2]; 13] =
    [[1, 0], [8, 1], [5, 1], [3, 1], [2, 1], [3, 2], [1, 1], [2, 3], [1, 2], [1, 3], [1, 5], [1, 8], [0, 1]];

/// A stream's part of a thread: at least this much, so that blocks of 2 MiB come near any of the ratios.
const PART: Bytes = Bytes::mib(48);

/// A kernel on all CPUs with its pages on two nodes, at one ratio after another, from all on the first to all on the second.
///
/// # Errors
/// There is no CPU, or no memory for that.
pub fn weights(frame: &Frame, kernel: &Kernel, tiers: [u32; 2]) -> Result<Vec<Case>, PlanError> {
    let threads = frame.placement.most();
    let cpus = frame.placement.first(threads)?;
    let streams = kernel.formula().streams.len() as u64;
    let least = PART.0 * threads as u64 * streams;
    // Each ratio keeps memory of its own.
    let most = frame.memory_limit.0 / RATIOS.len() as u64;
    let size = Bytes(frame.memory_size(threads).0.max(least).min(most));
    crate::experiments::choice::check_size(frame, size, kernel, Default::default(), threads)?;
    let case = |memory| steady(kernel.name, frame.widest(), StoreKind::Regular, memory, cpus.clone(), size);
    Ok(RATIOS.iter().filter_map(|ratio| split(tiers, *ratio)).map(case).collect())
}

/// Memory whose pages lie on two nodes in a ratio.
fn split(tiers: [u32; 2], ratio: [u8; 2]) -> Option<MemorySpec> {
    let kind = USUAL_MEMORY.kind;
    match ratio {
        [_, 0] => Some(MemorySpec::on(kind, tiers[0])),
        [0, _] => Some(MemorySpec::on(kind, tiers[1])),
        [first, second] => {
            let weights = Weights::new(&[(tiers[0], first), (tiers[1], second)])?;
            Some(MemorySpec { kind, policy: Policy::Weighted(weights) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ratios_go_from_all_on_the_first_to_all_on_the_second() {
        let texts: Vec<String> = RATIOS.iter().map(|ratio| split([4, 2], *ratio).unwrap().to_string()).collect();
        assert_eq!(texts[0], "thp@node4");
        assert_eq!(texts[3], "thp@weighted:2=1,4=3");
        assert_eq!(texts[12], "thp@node2");
        let shares: Vec<f64> = RATIOS.iter().map(|&[a, b]| f64::from(a) / f64::from(a + b)).collect();
        assert!(shares.windows(2).all(|pair| pair[0] > pair[1]), "{shares:?}");
    }

    proptest! {
        #[test]
        fn some_ratio_is_near_the_best(first in 1.0f64..100.0, second in 1.0f64..100.0) {
            let rate = |&[a, b]: &[u8; 2]| {
                let share = f64::from(a) / f64::from(a + b);
                (first / share).min(second / (1.0 - share))
            };
            let best = RATIOS.iter().map(rate).fold(0.0, f64::max);
            prop_assert!(best > 0.899 * (first + second), "{best} of {}", first + second);
        }
    }
}
