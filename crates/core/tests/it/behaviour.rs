//! Memory types told by behaviour, on simulated memories whose type is known: noise and outliers must not mislead.

use membound_core::memory::MemoryKind;
use membound_core::memory::behaviour::{Behaviour, Lines, Reference, Touch, observe, observe_reference, prove};
use proptest::prelude::*;

/// Lines of a simulated memory.
const LINES: usize = 256;
/// Write-combining buffers of a simulated core.
const BUFFERS: usize = 4;

/// What one access costs, in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Costs {
    cached_load: f64,
    cached_store: f64,
    /// A line from memory.
    memory: f64,
    uncached_load: f64,
    /// A word written to memory.
    word_write: f64,
    /// A combined line written to memory.
    line_write: f64,
}

/// About those of a server.
const USUAL: Costs =
    Costs { cached_load: 0.4, cached_store: 0.5, memory: 5.1, uncached_load: 90.0, word_write: 40.0, line_write: 45.0 };

#[derive(Debug, Clone, Copy)]
struct Noise {
    /// Largest relative error of a pass.
    share: f64,
    /// Share of passes that take many times as long.
    outliers: f64,
}

const QUIET: Noise = Noise { share: 0.0, outliers: 0.0 };

/// A memory of one type: which lines are cached, and which words wait in write-combining buffers.
struct Simulated {
    kind: MemoryKind,
    costs: Costs,
    noise: Noise,
    cached: [bool; LINES],
    /// (line, words), oldest first.
    buffers: Vec<(usize, u32)>,
    random: fastrand::Rng,
}

impl Simulated {
    fn new(kind: MemoryKind, costs: Costs, noise: Noise, seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Simulated { kind, costs, noise, cached: [false; LINES], buffers: Vec::new(), random }
    }

    fn is_cacheable(&self) -> bool {
        matches!(self.kind, MemoryKind::Wb | MemoryKind::Wt | MemoryKind::Wp)
    }

    fn load(&mut self, line: usize) -> f64 {
        if !self.is_cacheable() {
            return self.drain() + self.costs.uncached_load;
        }
        let was_cached = std::mem::replace(&mut self.cached[line], true);
        if was_cached { self.costs.cached_load } else { self.costs.memory }
    }

    fn store(&mut self, line: usize) -> f64 {
        match self.kind {
            MemoryKind::Wb => {
                let was_cached = std::mem::replace(&mut self.cached[line], true);
                self.costs.cached_store + if was_cached { 0.0 } else { self.costs.memory }
            }
            MemoryKind::Wc => self.combine(line),
            MemoryKind::Wp => {
                self.cached[line] = false;
                self.costs.word_write
            }
            _ => self.costs.word_write,
        }
    }

    fn combine(&mut self, line: usize) -> f64 {
        let mut cost = self.costs.cached_store;
        match self.buffers.iter_mut().find(|(buffered, _)| *buffered == line) {
            Some((_, words)) => *words += 1,
            None => {
                if self.buffers.len() == BUFFERS {
                    let (_, words) = self.buffers.remove(0);
                    cost += self.write(words);
                }
                self.buffers.push((line, 1));
            }
        }
        cost
    }

    fn write(&self, words: u32) -> f64 {
        if words == 8 { self.costs.line_write } else { self.costs.word_write * f64::from(words) }
    }

    fn drain(&mut self) -> f64 {
        let buffers = std::mem::take(&mut self.buffers);
        buffers.iter().map(|(_, words)| self.write(*words)).sum()
    }

    fn pass(&mut self, touch: Touch) -> f64 {
        let mut cost = 0.0;
        for line in 0..LINES {
            match touch {
                Touch::Load => cost += self.load(line),
                Touch::StoreWord => cost += self.store(line),
                Touch::StoreLine => cost += (0..8).map(|_| self.store(line)).sum::<f64>(),
                Touch::Flush => self.cached[line] = false,
            }
        }
        let scatter = 1.0 + self.noise.share * (2.0 * self.random.f64() - 1.0);
        let is_outlier = self.random.f64() < self.noise.outliers;
        (cost + self.drain()) / LINES as f64 * scatter * if is_outlier { 30.0 } else { 1.0 }
    }
}

impl Lines for Simulated {
    type Fault = std::convert::Infallible;

    fn touch(&mut self, touches: &[Touch]) -> Result<Vec<f64>, Self::Fault> {
        Ok(touches.iter().map(|touch| self.pass(*touch)).collect())
    }
}

/// Write-back lines whose cache others take for so many passes.
struct Beside {
    lines: Simulated,
    passes: usize,
}

impl Lines for Beside {
    type Fault = std::convert::Infallible;

    fn touch(&mut self, touches: &[Touch]) -> Result<Vec<f64>, Self::Fault> {
        let mut costs = Vec::new();
        for touch in touches {
            if self.passes > 0 {
                self.lines.cached.fill(false);
            }
            self.passes = self.passes.saturating_sub(1);
            costs.push(self.lines.pass(*touch));
        }
        Ok(costs)
    }
}

/// Seen once on a guest of 16 processors: "WT memory does not behave as such", and the exit code of a failure.
#[test]
fn a_neighbour_who_takes_the_cache_for_a_while_makes_no_type() {
    let Ok(against) = observe_reference(&mut Simulated::new(MemoryKind::Wb, USUAL, QUIET, 1));
    for passes in [100, 300, 600] {
        let lines = Simulated::new(MemoryKind::Wb, USUAL, QUIET, 2);
        let Ok(seen) = observe(&mut Beside { lines, passes });
        for kind in types().filter(|kind| *kind != MemoryKind::Wb) {
            let reason = prove(kind, &seen, &against).unwrap_err();
            assert!(reason.starts_with("the hypervisor ignores memory types"), "{passes} passes, {kind}: {reason}");
        }
    }
}

fn types() -> impl Iterator<Item = MemoryKind> {
    MemoryKind::ALL.iter().copied().filter(|kind| kind.is_memory_type())
}

/// UC- differs from UC only where the MTRRs say write-combining.
fn behave_alike(a: MemoryKind, b: MemoryKind) -> bool {
    let plain = |kind| if kind == MemoryKind::UcMinus { MemoryKind::Uc } else { kind };
    plain(a) == plain(b)
}

/// Exactly the memory's own type is proved.
fn check(costs: Costs, noise: Noise, seed: u64) {
    for true_kind in types() {
        let Ok(against) = observe_reference(&mut Simulated::new(MemoryKind::Wb, costs, noise, seed));
        let Ok(seen) = observe(&mut Simulated::new(true_kind, costs, noise, seed ^ 1));
        for claimed in types() {
            let verdict = prove(claimed, &seen, &against);
            let case = format!("{true_kind} as {claimed}: {verdict:?} {costs:?}");
            assert_eq!(verdict.is_ok(), behave_alike(true_kind, claimed), "{case}");
            match verdict {
                Ok(proof) => assert!(proof.holds && proof.by == "behaviour", "{case}"),
                Err(reason) => {
                    let ignored = reason.starts_with("the hypervisor ignores memory types: ");
                    assert_eq!(ignored, true_kind == MemoryKind::Wb, "{case}");
                }
            }
        }
    }
}

#[test]
fn each_type_is_told_from_all_others() {
    check(USUAL, QUIET, 1);
    check(USUAL, Noise { share: 0.1, outliers: 0.05 }, 2);
}

fn costs() -> impl Strategy<Value = Costs> {
    // Memory costs at least 12 times a cached access, prefetched as it is; uncached accesses are not prefetched.
    (0.1..0.5, 0.1..0.5, 12.0..200.0, 1.0..30.0, 0.7..20.0, 0.7..1.5).prop_map(
        |(cached_load, cached_store, depth, load, write, combined): (f64, f64, f64, f64, f64, f64)| {
            let memory = cached_load.max(cached_store) * depth;
            let word_write = memory * write;
            let line_write = word_write * combined;
            Costs { cached_load, cached_store, memory, uncached_load: memory * load, word_write, line_write }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn costs_and_noise_do_not_mislead(costs in costs(), share in 0.0..0.1, outliers in 0.0..0.1, seed: u64) {
        check(costs, Noise { share, outliers }, seed);
    }

    #[test]
    fn no_figures_panic(costs in prop::array::uniform9(any::<f64>())) {
        let [a, b, c, d, e, f, g, h, memory] = costs;
        let behaviour = |[load_again, store_line, store_word, load_stored]: [f64; 4]| {
            Behaviour { load_again, store_line, store_word, load_stored }
        };
        for kind in types() {
            let _ = prove(kind, &behaviour([a, b, c, d]), &Reference { cached: behaviour([e, f, g, h]), memory });
        }
    }
}

const CACHED: Behaviour = Behaviour { load_again: 0.4, store_line: 3.2, store_word: 0.4, load_stored: 0.4 };

#[test]
fn a_hypervisor_that_ignores_types_is_named_with_the_evidence() {
    let against = Reference { cached: CACHED, memory: 5.1 };
    assert_eq!(
        prove(MemoryKind::Uc, &CACHED, &against).unwrap_err(),
        "the hypervisor ignores memory types: UC loads 0.4 ns per line the second time, WB 0.4, memory 5.1"
    );
}

#[test]
fn the_behaviour_that_contradicts_is_named() {
    let against = Reference { cached: CACHED, memory: 5.1 };
    let uncached = Behaviour { load_again: 90.0, store_line: 320.0, store_word: 40.0, load_stored: 90.0 };
    assert_eq!(
        prove(MemoryKind::Wc, &uncached, &against).unwrap_err(),
        "WC memory does not behave as such: not so: stores are combined: a whole line stored 320.0 ns, a word of it 40.0"
    );
    let proof = prove(MemoryKind::Uc, &uncached, &against).unwrap();
    assert_eq!(proof.claim, "UC: loads are not cached, stores reach memory, stores are not combined");
}

#[test]
fn caches_that_can_not_be_told_from_memory_prove_nothing() {
    let against = Reference { cached: CACHED, memory: 1.0 };
    for kind in types() {
        assert!(prove(kind, &CACHED, &against).unwrap_err().contains("can't be told apart"), "{kind}");
    }
    let nothing = Reference { cached: CACHED, memory: f64::NAN };
    assert!(prove(MemoryKind::Wb, &CACHED, &nothing).unwrap_err().contains("could not be measured"));
}

#[test]
fn kinds_that_are_no_type_are_not_proved() {
    let against = Reference { cached: CACHED, memory: 5.1 };
    let seen = Behaviour { load_again: 90.0, ..CACHED };
    assert!(prove(MemoryKind::Thp, &seen, &against).is_err());
}
