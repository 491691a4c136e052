//! The same work on many items, by all cores where there are enough, and two works at once.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::thread::{Builder, ScopedJoinHandle, available_parallelism, scope};

/// Fewer items than this for a thread are not worth starting it.
const WORTH_A_THREAD: usize = 500;

/// `work` on each item, in their order.
pub fn map<'a, T: Sync, R: Send>(items: &'a [T], work: impl Fn(&'a T) -> R + Sync) -> Vec<R> {
    by_parts(items, &|part: &'a [T]| part.iter().map(&work).collect())
}

/// The same; what comes to nothing is left out.
pub fn filter_map<'a, T: Sync, R: Send>(items: &'a [T], work: impl Fn(&'a T) -> Option<R> + Sync) -> Vec<R> {
    by_parts(items, &|part: &'a [T]| part.iter().filter_map(&work).collect())
}

/// Two works at once.
pub fn both<A: Send, B>(one: impl Fn() -> A + Sync, other: impl FnOnce() -> B) -> (A, B) {
    scope(|scope| {
        let started = Builder::new().spawn_scoped(scope, &one);
        let other = other();
        // What a refused thread would have done is done here.
        (started.map_or_else(|_| one(), join), other)
    })
}

/// Of a known length, so that memory is asked for once.
fn in_one<R>(parts: Vec<Vec<R>>) -> Vec<R> {
    let mut all = Vec::with_capacity(parts.iter().map(Vec::len).sum());
    parts.into_iter().for_each(|part| all.extend(part));
    all
}

fn join<R>(thread: ScopedJoinHandle<'_, R>) -> R {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

fn by_parts<'a, T: Sync, R: Send>(items: &'a [T], work: &(dyn Fn(&'a [T]) -> Vec<R> + Sync)) -> Vec<R> {
    let cores = available_parallelism().map_or(1, NonZero::get);
    let parts = cores.min(items.len() / WORTH_A_THREAD);
    if parts < 2 {
        return work(items);
    }
    scope(|scope| {
        let of_part = |part| (Builder::new().spawn_scoped(scope, move || work(part)), part);
        let started: Vec<_> = items.chunks(items.len().div_ceil(parts)).map(of_part).collect();
        // What a refused thread would have done is done here.
        let done = started.into_iter().map(|(thread, part)| thread.map_or_else(|_| work(part), join));
        in_one(done.collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_done() {
        assert_eq!(both(|| 1, || "other"), (1, "other"));
    }

    #[test]
    fn many_items_keep_their_order_and_each_is_done_once() {
        for count in [0, 1, 999, 1000, 1001, 50_021] {
            let items: Vec<usize> = (0..count).collect();
            assert_eq!(map(&items, |item| item + 1), (1..=count).collect::<Vec<_>>());
            let odd = filter_map(&items, |item| (item % 2 == 1).then_some(*item));
            assert_eq!(odd, (0..count).filter(|item| item % 2 == 1).collect::<Vec<_>>());
        }
    }
}
