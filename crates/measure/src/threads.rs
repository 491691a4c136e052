//! Threads of a visit: how they start, wait for each other and end.
//!
//! The kernel may refuse a thread: a user or a control group has a limited number of them. Those that were started before
//! must not wait for it, so starting one gives a `Result` like anything else that a machine may lack.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crate::bench::{Tools, pin};
use crate::no_visit::NoVisit;
use crate::os::clock::Ticker;
use crate::os::thread;

/// Starts a thread.
pub(crate) fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, NoVisit> {
    let refused = |fault| NoVisit::Thread(Arc::new(fault));
    #[cfg(test)]
    planted::start().map_err(refused)?;
    Builder::new().spawn_scoped(scope, work).map_err(refused)
}

/// What a thread came to, when it has ended. Its panic is ours.
pub(crate) fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Does something on a thread of its own, pinned to `cpu`: the caller stays where it may run.
pub(crate) fn pinned<T: Send>(cpu: u32, act: impl FnOnce() -> Result<T, NoVisit> + Send) -> Result<T, NoVisit> {
    let on_cpu = || {
        pin(cpu)?;
        act()
    };
    std::thread::scope(|scope| join(start(scope, on_cpu)?))
}

/// Ends a visit for all its threads. Of several reasons the first is kept.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    is_raised: AtomicBool,
    why: Mutex<Option<NoVisit>>,
}

impl Stop {
    pub fn raise(&self) {
        self.is_raised.store(true, Ordering::Release);
    }

    pub fn fail(&self, why: NoVisit) {
        self.why.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get_or_insert(why);
        self.raise();
    }

    pub fn is_raised(&self) -> bool {
        self.is_raised.load(Ordering::Acquire)
    }

    /// Why it was raised, where that was a failure; for once.
    pub fn why(&self) -> Option<NoVisit> {
        self.why.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take()
    }
}

/// Threads that begin together, once each is on its CPU and has touched its memory.
#[derive(Debug, Default)]
pub(crate) struct Meeting {
    arrived: AtomicUsize,
}

/// How waiting for the others ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Met {
    All,
    Stopped,
    TooLate,
}

impl Meeting {
    pub fn arrive(&self) {
        self.arrived.fetch_add(1, Ordering::AcqRel);
    }

    /// Waits until so many have arrived; they may need this CPU meanwhile.
    pub fn wait_for(&self, threads: usize, patience: Duration, is_stopped: impl Fn() -> bool) -> Met {
        let since = Instant::now();
        while self.arrived.load(Ordering::Acquire) < threads {
            if is_stopped() {
                return Met::Stopped;
            }
            if since.elapsed() > patience {
                return Met::TooLate;
            }
            std::thread::yield_now();
        }
        Met::All
    }
}

/// Waits until a tick. Spins: a thread that sleeps needs longer to wake than a sample lasts.
pub(crate) fn spin_until(ticker: Ticker, tick: u64) {
    while ticker.now() < tick {
        std::hint::spin_loop();
    }
}

/// Microseconds since a tick at which this thread was to start, together with others whose sample it lengthens; 0 before it.
pub(crate) fn late_us(tools: &Tools<'_>, tick: u64) -> u32 {
    (tools.ticker.now().saturating_sub(tick) as f64 / tools.hz.0 * 1e6) as u32
}

/// Waits until threads that were told to stop have ended. Where a CPU is taken for good, its thread can hear of that on
/// another one only; it may be about to pin itself. `numbers` are the kernel's, 0 for a thread that does not run yet.
pub(crate) fn wait_out<'a>(have_ended: impl Fn() -> bool, numbers: impl Iterator<Item = &'a AtomicU32> + Clone) {
    while !have_ended() {
        numbers.clone().for_each(|number| thread::unpin(number.load(Ordering::Acquire)));
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// A limit on threads, for tests: the calling thread may start so many more.
#[cfg(test)]
pub(crate) mod planted {
    use std::cell::Cell;
    use std::io;

    thread_local! {
        static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
    }

    /// Sets the limit while `act` runs.
    pub fn limit<R>(threads: usize, act: impl FnOnce() -> R) -> R {
        LEFT.set(Some(threads));
        let result = act();
        LEFT.set(None);
        result
    }

    pub fn start() -> io::Result<()> {
        match LEFT.get() {
            None => Ok(()),
            Some(0) => Err(io::Error::from_raw_os_error(libc::EAGAIN)),
            Some(left) => {
                LEFT.set(Some(left - 1));
                Ok(())
            }
        }
    }
}
