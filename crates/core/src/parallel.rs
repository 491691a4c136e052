//! The same work on many items, by all cores where there are enough.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::thread::{Builder, ScopedJoinHandle, available_parallelism, scope};

/// Fewer items than this for a thread are not worth starting it.
const WORTH_A_THREAD: usize = 500;

/// `work` on each item, in their order.
pub fn map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    by_parts(items, &|part: &[T]| part.iter().map(&work).collect())
}

/// The same; what comes to nothing is left out.
pub fn filter_map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> Option<R> + Sync) -> Vec<R> {
    by_parts(items, &|part: &[T]| part.iter().filter_map(&work).collect())
}

fn by_parts<T: Sync, R: Send>(items: &[T], work: &(dyn Fn(&[T]) -> Vec<R> + Sync)) -> Vec<R> {
    let cores = available_parallelism().map_or(1, NonZero::get);
    let parts = cores.min(items.len() / WORTH_A_THREAD);
    if parts < 2 {
        return work(items);
    }
    scope(|scope| {
        let of_part = |part| (Builder::new().spawn_scoped(scope, move || work(part)), part);
        let started: Vec<_> = items.chunks(items.len().div_ceil(parts)).map(of_part).collect();
        let join = |thread: ScopedJoinHandle<'_, Vec<R>>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        // What a refused thread would have done is done here.
        started.into_iter().flat_map(|(thread, part)| thread.map_or_else(|_| work(part), join)).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
