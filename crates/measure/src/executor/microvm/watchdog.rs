//! Stops a guest that does not end.

#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::os::{signals, thread};

/// How often the watchdog looks.
const PERIOD: Duration = Duration::from_millis(100);

/// A thread that ends a KVM_RUN past its deadline.
///
/// First it sets `immediate_exit`, then it sends a signal whose handler does nothing. Whichever of these KVM_RUN meets
/// (the flag on entry, the signal at any time after that), it returns with EINTR; so there is no moment at which the
/// request could get lost.
#[derive(Debug)]
pub struct Watchdog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    born: Instant,
    /// When the run in progress must have ended, in nanoseconds since `born`; 0: none is in progress.
    deadline_ns: AtomicU64,
    /// The thread in KVM_RUN.
    runner: AtomicU32,
    /// Whether the run was stopped.
    fired: AtomicBool,
    over: AtomicBool,
    /// Address of the vCPU's `immediate_exit`.
    immediate_exit: usize,
}

impl Watchdog {
    /// Starts watching a vCPU.
    ///
    /// # Safety
    /// `immediate_exit` is that of a mapped `kvm_run`, which stays mapped until the watchdog is dropped.
    pub unsafe fn new(immediate_exit: *mut u8) -> std::io::Result<Self> {
        signals::allow_interrupts();
        let shared = Arc::new(Shared {
            born: Instant::now(),
            deadline_ns: AtomicU64::new(0),
            runner: AtomicU32::new(0),
            fired: AtomicBool::new(false),
            over: AtomicBool::new(false),
            immediate_exit: immediate_exit as usize,
        });
        let watched = shared.clone();
        let thread = std::thread::Builder::new().name("watchdog".into()).spawn(move || watched.watch())?;
        Ok(Watchdog { shared, thread: Some(thread) })
    }

    /// The calling thread is about to enter KVM_RUN and must be back in time.
    pub fn arm(&self, patience: Duration) {
        self.shared.runner.store(thread::thread_id(), Ordering::Relaxed);
        let deadline = (self.shared.born.elapsed() + patience).as_nanos() as u64;
        self.shared.deadline_ns.store(deadline.max(1), Ordering::Release);
    }

    /// It is back. Returns whether it had to be stopped.
    pub fn disarm(&self) -> bool {
        self.shared.deadline_ns.store(0, Ordering::Release);
        self.has_fired()
    }

    /// Whether a run was stopped.
    pub fn has_fired(&self) -> bool {
        self.shared.fired.load(Ordering::Acquire)
    }
}

impl Shared {
    fn watch(&self) {
        while !self.over.load(Ordering::Acquire) {
            let deadline = self.deadline_ns.load(Ordering::Acquire);
            if deadline > 0 && self.born.elapsed().as_nanos() as u64 >= deadline {
                self.stop();
            }
            std::thread::park_timeout(PERIOD);
        }
    }

    fn stop(&self) {
        self.fired.store(true, Ordering::Release);
        // SAFETY: whoever made the watchdog keeps the byte mapped for longer than this thread lives; nobody else writes
        // to it, and the kernel only reads it.
        unsafe { AtomicU8::from_ptr(self.immediate_exit as *mut u8) }.store(1, Ordering::SeqCst);
        signals::interrupt(self.runner.load(Ordering::Relaxed));
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
