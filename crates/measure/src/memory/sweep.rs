//! Pushes page cache out of nodes: memory is bound to a node and touched piece by piece, so that the kernel gives up clean
//! pages of files for it, and is then given back.
//!
//! What there is to spare is read anew before each piece, of the node, of the machine and of the control groups. So the
//! sweep ends before the kernel would have to end a process; should it misjudge, this process is the first to go.

use membound_core::work::sweep::{NodeSweep, SweepEnd};

use crate::memory::places::Places;
use crate::memory::region::Region;
use crate::memory::touch;
use crate::os::processes;
use membound_core::machine::room::{NodeRoom, Room};
use membound_core::machine::source::Source;
use membound_core::memory::{MemoryKind, MemorySpec};
use membound_core::units::Bytes;

/// Bytes taken at once. Touching them takes some 20 ms: so long may Ctrl-C have to wait.
const PIECE: Bytes = Bytes::mib(32);
/// Swap used by others since the sweep began at which it ends: it is after page cache, not after programs.
const SWAPPED: Bytes = Bytes::mib(64);
/// Share of the time in which nothing runs for want of memory at which it ends.
const STALLED: f64 = 0.5;

/// Sweeps `nodes` one after the other, each up to `share` of its memory. What was taken of a node is given back before the
/// next one. Nodes that are not there are left out.
pub fn sweep(source: &Source, nodes: &[u32], share: f64, interrupted: &dyn Fn() -> bool) -> Vec<NodeSweep> {
    processes::be_first_to_go();
    let mut swept = Vec::new();
    for &node in nodes {
        let start = Room::read(source);
        let Some(before) = start.node(node).cloned() else { continue };
        let bound = (start.nodes.len() > 1).then_some(node);
        let most = Bytes((before.total.0 as f64 * share) as u64);
        let (touched_bytes, end, reason) = touch(source, &start, &before, bound, most, interrupted);
        let after = Room::read(source).node(node).cloned();
        swept.push(NodeSweep { metric: "sweep".into(), node, before, after, touched_bytes, end, reason });
        if end == SweepEnd::Interrupted {
            break;
        }
    }
    swept
}

/// Touches memory until something says no; it is given back on return.
fn touch(
    source: &Source,
    start: &Room,
    before: &NodeRoom,
    bound: Option<u32>,
    most: Bytes,
    interrupted: &dyn Fn() -> bool,
) -> (Bytes, SweepEnd, Option<String>) {
    let base = MemoryKind::Base;
    let spec = bound.map_or(MemorySpec::of(base), |node| MemorySpec::on(base, node));
    let (mut held, mut touched) = (Vec::new(), Bytes(0));
    loop {
        if interrupted() {
            return (touched, SweepEnd::Interrupted, Some("stopped by the user".into()));
        }
        let bytes = match next(&Room::read(source), start, before.node, touched, most) {
            Ok(bytes) => bytes,
            Err((end, reason)) => return (touched, end, reason),
        };
        let piece = Region::new(spec, bytes, &Places::default()).map_err(|fault| fault.to_string());
        let piece = piece.and_then(|mut region| {
            // A word a page is enough to have it.
            let dirty = |contents: &mut [u8]| contents.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
            touch::touch(&mut region, dirty).map_err(|fault| fault.to_string())?;
            Ok(region)
        });
        match piece {
            Ok(region) => held.push(region),
            Err(fault) => return (touched, SweepEnd::Refused, Some(fault)),
        }
        touched.0 += bytes.0;
    }
}

/// How much to take next, or why nothing more.
fn next(now: &Room, start: &Room, node: u32, touched: Bytes, most: Bytes) -> Result<Bytes, (SweepEnd, Option<String>)> {
    let Some(room) = now.node(node) else {
        return Err((SweepEnd::Refused, Some(format!("node {node} is gone; see `membound machine`"))));
    };
    let swapped = start.swap_free.get().zip(now.swap_free.get()).map_or(0, |(then, now)| then.0.saturating_sub(now.0));
    if swapped > SWAPPED.0 {
        let why = format!("{} of other memory moved to swap meanwhile; sweep less with --share", Bytes(swapped));
        return Err((SweepEnd::Swap, Some(why)));
    }
    if let Some(stalled) = now.stalled.get().filter(|stalled| *stalled > STALLED) {
        let why = format!("for {:.0} % of the last 10 s nothing ran for want of memory", stalled * 100.0);
        return Err((SweepEnd::Pressure, Some(why)));
    }
    let (spare, whose) = now.to_spare().unwrap_or((Bytes(0), "nobody".into()));
    if spare < PIECE {
        let why = format!("{whose} has {spare} left beyond the margin that stays free; it ended before the OOM killer");
        return Err((SweepEnd::Limit, Some(why)));
    }
    if touched.0 + PIECE.0 > most.0 {
        return Err((SweepEnd::Share, None));
    }
    if room.to_spare() < PIECE {
        return Err((SweepEnd::Swept, None));
    }
    Ok(PIECE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use membound_core::machine::fact::Fact;
    use membound_core::machine::limits::MemoryLimit;

    /// Two nodes of 4 GiB, the first full of clean page cache.
    fn room() -> Room {
        let node = |node, free, clean| NodeRoom {
            node,
            total: Bytes::gib(4),
            free,
            page_cache: Bytes(clean),
            clean_cache: Bytes(clean),
        };
        Room {
            available: Fact::Known(Bytes::gib(7)),
            total: Fact::Known(Bytes::gib(8)),
            swap_free: Fact::Known(Bytes::gib(1)),
            limits: Vec::new(),
            stalled: Fact::Known(0.0),
            nodes: vec![node(0, Bytes::mib(200), 3 << 30), node(1, Bytes::gib(4), 0)],
        }
    }

    fn check(now: &Room, touched: Bytes, expect: Result<Bytes, SweepEnd>) -> String {
        let found = next(now, &room(), 0, touched, Bytes::gib(3));
        assert_eq!(found.clone().map_err(|(end, _)| end), expect);
        found.err().and_then(|(_, reason)| reason).unwrap_or_default()
    }

    #[test]
    fn it_goes_on_while_there_is_room_and_no_longer() {
        check(&room(), Bytes(0), Ok(PIECE));
        check(&room(), Bytes::gib(3), Err(SweepEnd::Share));
        let mut swept = room();
        swept.nodes[0].clean_cache = Bytes(0);
        // 200 MiB are free; the margin of 4 GiB is 128 MiB: two pieces of 32 MiB are left.
        check(&swept, Bytes::gib(1), Ok(PIECE));
        swept.nodes[0].free = Bytes::mib(128 + 31);
        check(&swept, Bytes::gib(1), Err(SweepEnd::Swept));
    }

    #[test]
    fn whatever_is_short_ends_it_with_words() {
        let mut short = room();
        short.limits.push(MemoryLimit {
            group: "/job".into(),
            limit: Bytes::gib(1),
            used: Fact::Known(Bytes::mib(950)),
            inactive_file: Fact::Known(Bytes(0)),
        });
        // 74 MiB are left, of which 48 MiB are the margin.
        assert!(check(&short, Bytes(0), Err(SweepEnd::Limit)).contains("the control group /job has 26 MiB left"));
        short.limits[0].used = Fact::Known(Bytes::mib(900));
        check(&short, Bytes(0), Ok(PIECE));
        let poor = Room { available: Fact::Known(Bytes::mib(256)), ..room() };
        assert!(check(&poor, Bytes(0), Err(SweepEnd::Limit)).contains("the machine"));
        let swapping = Room { swap_free: Fact::Known(Bytes::mib(900)), ..room() };
        assert!(check(&swapping, Bytes(0), Err(SweepEnd::Swap)).contains("124 MiB"));
        let stalled = Room { stalled: Fact::Known(0.6), ..room() };
        assert!(check(&stalled, Bytes(0), Err(SweepEnd::Pressure)).contains("60 %"));
        let gone = Room { nodes: Vec::new(), ..room() };
        assert!(check(&gone, Bytes(0), Err(SweepEnd::Refused)).contains("node 0 is gone"));
        // A machine that tells nothing is not swept.
        let silent = Room { available: Fact::absent("made up"), ..room() };
        check(&silent, Bytes(0), Err(SweepEnd::Limit));
    }
}
