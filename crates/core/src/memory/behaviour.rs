//! What type a memory is, by how it behaves.
//!
//! Page tables ask for a memory type; whether it is obtained, a hypervisor decides, and it does not tell. So the cost of
//! touching lines again tells: it must be that of the type, held against write-back memory touched in the same way a
//! moment before. All thresholds are ratios to that; none is a time.
//!
//! ```text
//!       loads cached   stores cached   stores combined   a line just stored is cached
//! WB    yes            yes                               yes
//! WT    yes            no                                yes
//! WP    yes            no                                no
//! WC    no             no              yes
//! UC    no             no              no
//! ```
//! Source: Intel SDM 3A, "Methods of Caching Available"; AMD APM 2, "Memory Types". UC- differs from UC only where the
//! MTRRs say write-combining, so both behave alike here.

use crate::memory::MemoryKind;
use crate::memory::proof::Proof;
use crate::units::Bytes;

/// What is touched of a memory: it fits into the first-level cache.
pub const PROBE: Bytes = Bytes::kib(16);

/// What is done to one line after another, first to last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    /// Loads a word of each line.
    Load,
    /// Stores a word of each line.
    StoreWord,
    /// Stores all 8 words of each line, one by one.
    StoreLine,
    /// Drops each line from all caches, writing it back.
    Flush,
}

impl Touch {
    /// All, in the order of their numbers.
    pub const ALL: [Touch; 4] = [Touch::Load, Touch::StoreWord, Touch::StoreLine, Touch::Flush];
}

/// Lines of one memory type, few enough for the first-level cache.
pub trait Lines {
    /// Why they can't be touched.
    type Fault;

    /// Touches all lines once for each of `touches`, one pass right after another. Returns what each pass took, in
    /// nanoseconds a line; a pass ends when its stores have left the processor core.
    fn touch(&mut self, touches: &[Touch]) -> Result<Vec<f64>, Self::Fault>;
}

/// What touching lines costs, in nanoseconds a line: the least of several medians, since others make it slower alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Behaviour {
    /// Loading a word of each line again.
    pub load_again: f64,
    /// Storing all 8 words of each line again, one by one.
    pub store_line: f64,
    /// Storing a word of each line again.
    pub store_word: f64,
    /// Loading a word of each line just stored to.
    pub load_stored: f64,
}

impl Behaviour {
    fn least(self, other: Behaviour) -> Behaviour {
        Behaviour {
            load_again: self.load_again.min(other.load_again),
            store_line: self.store_line.min(other.store_line),
            store_word: self.store_word.min(other.store_word),
            load_stored: self.load_stored.min(other.load_stored),
        }
    }
}

/// Write-back memory, which all types are held against.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reference {
    /// Its behaviour.
    pub cached: Behaviour,
    /// Loading a word of each line right after it was dropped from all caches, in nanoseconds a line.
    pub memory: f64,
}

/// Repeats behind each median: an outlier in three of them does no harm.
const REPEATS: usize = 15;
/// Medians of each cost, apart in time: a neighbour may take the cache during all repeats of one, and write-back memory would pass for
/// another type, or for none.
const ROUNDS: usize = 5;
/// A line from memory costs at least so many times a cached one, or the two can't be told apart.
const MEMORY_TO_CACHE_MIN: f64 = 3.0;

/// Observes lines of some type.
pub fn observe<L: Lines>(lines: &mut L) -> Result<Behaviour, L::Fault> {
    let mut seen = observe_once(lines)?;
    for _ in 1..ROUNDS {
        seen = seen.least(observe_once(lines)?);
    }
    Ok(seen)
}

fn observe_once<L: Lines>(lines: &mut L) -> Result<Behaviour, L::Fault> {
    use Touch::{Flush, Load, StoreLine, StoreWord};
    lines.touch(&[Flush])?;
    Ok(Behaviour {
        load_again: last_of(lines, &[Load, Load, Load])?,
        store_line: last_of(lines, &[Load, StoreLine, StoreLine])?,
        store_word: last_of(lines, &[Load, StoreWord, StoreWord])?,
        load_stored: last_of(lines, &[Load, StoreWord, Load])?,
    })
}

/// Observes write-back lines.
pub fn observe_reference<L: Lines>(lines: &mut L) -> Result<Reference, L::Fault> {
    let cached = observe(lines)?;
    let mut memory = f64::INFINITY;
    for _ in 0..ROUNDS {
        memory = memory.min(last_of(lines, &[Touch::Flush, Touch::Load])?);
    }
    Ok(Reference { cached, memory })
}

/// The median of the last pass.
fn last_of<L: Lines>(lines: &mut L, touches: &[Touch]) -> Result<f64, L::Fault> {
    let mut costs = Vec::new();
    for _ in 0..REPEATS {
        costs.extend(lines.touch(touches)?.last());
    }
    costs.sort_by(f64::total_cmp);
    Ok(costs.get(costs.len() / 2).copied().unwrap_or(f64::NAN))
}

/// What a behaviour shows, held against write-back memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Traits {
    loads_cached: bool,
    stores_cached: bool,
    /// Only of meaning where stores are not cached.
    stores_combined: bool,
    stored_line_cached: bool,
}

impl Traits {
    fn of(seen: &Behaviour, against: &Reference) -> Traits {
        let cached = |cost: f64, cached: f64| cost < (cached * against.memory).sqrt();
        // Uncombined, a line of 8 words costs 8 times a word; combined, about as much as one.
        let between_one_and_eight = 8f64.sqrt();
        Traits {
            loads_cached: cached(seen.load_again, against.cached.load_again),
            stores_cached: cached(seen.store_word, against.cached.store_word),
            stores_combined: seen.store_line < between_one_and_eight * seen.store_word,
            stored_line_cached: cached(seen.load_stored, against.cached.load_stored),
        }
    }

    fn are_write_back(self) -> bool {
        self.loads_cached && self.stores_cached && self.stored_line_cached
    }
}

/// One thing that a type promises: the promise, and the evidence where it is kept or broken.
struct Promise {
    claim: &'static str,
    kept: bool,
    evidence: String,
}

/// How the reason begins where every type behaves as write-back: a limit of the machine, not a fault.
pub const IGNORED: &str = "the hypervisor ignores memory types";

/// Whether what was seen is the behaviour of the type `kind`.
///
/// # Errors
/// The behaviour that contradicts, with its figures; `the hypervisor ignores memory types` where it is that of
/// write-back memory.
pub fn prove(kind: MemoryKind, seen: &Behaviour, against: &Reference) -> Result<Proof, String> {
    let name = kind.to_string().to_uppercase();
    let cached = &against.cached;
    let all = [against.memory, seen.load_again, seen.store_line, seen.store_word, seen.load_stored];
    let known = [cached.load_again, cached.store_line, cached.store_word, cached.load_stored];
    if !all.iter().chain(&known).all(|cost| cost.is_finite() && *cost > 0.0) {
        return Err("the costs of touching lines could not be measured".into());
    }
    let least = MEMORY_TO_CACHE_MIN * cached.load_again.max(cached.load_stored).max(cached.store_word);
    if against.memory < least {
        return Err(format!(
            "cache and memory can't be told apart: write-back loads {:.1} ns per line again, {:.1} from memory",
            cached.load_again, against.memory
        ));
    }
    let traits = Traits::of(seen, against);
    if kind != MemoryKind::Wb && traits.are_write_back() {
        return Err(format!(
            "{IGNORED}: {name} loads {:.1} ns per line the second time, WB {:.1}, memory {:.1}",
            seen.load_again, cached.load_again, against.memory
        ));
    }
    let promises = promises(kind, &traits, seen, against);
    if promises.is_empty() {
        return Err(format!("{kind} is no memory type"));
    }
    if let Some(broken) = promises.iter().find(|promise| !promise.kept) {
        return Err(format!("{name} memory does not behave as such: not so: {}: {}", broken.claim, broken.evidence));
    }
    let claims: Vec<&str> = promises.iter().map(|promise| promise.claim).collect();
    let evidence: Vec<&str> = promises.iter().map(|promise| promise.evidence.as_str()).collect();
    Ok(Proof::new(&format!("{name}: {}", claims.join(", ")), "behaviour", evidence.join("; "), true))
}

fn promises(kind: MemoryKind, traits: &Traits, seen: &Behaviour, against: &Reference) -> Vec<Promise> {
    let against_write_back = |what: &str, cost: f64, cached: f64| {
        format!("{what} {cost:.1} ns per line, WB {cached:.1}, memory {:.1}", against.memory)
    };
    let loads = against_write_back("loads the second time", seen.load_again, against.cached.load_again);
    let stores = against_write_back("stores of a word", seen.store_word, against.cached.store_word);
    let stored = against_write_back("loads after stores", seen.load_stored, against.cached.load_stored);
    let combined = format!("a whole line stored {:.1} ns, a word of it {:.1}", seen.store_line, seen.store_word);
    let promise = |claim, kept, evidence: &str| Promise { claim, kept, evidence: evidence.into() };
    let loads_cached = promise("loads are cached", traits.loads_cached, &loads);
    let loads_uncached = promise("loads are not cached", !traits.loads_cached, &loads);
    let through = promise("stores reach memory", !traits.stores_cached, &stores);
    match kind {
        MemoryKind::Wb => vec![
            loads_cached,
            promise("stores are cached", traits.stores_cached, &stores),
            promise("a line just stored is cached", traits.stored_line_cached, &stored),
        ],
        MemoryKind::Wt => {
            vec![loads_cached, through, promise("a line just stored is cached", traits.stored_line_cached, &stored)]
        }
        MemoryKind::Wp => vec![
            loads_cached,
            through,
            promise("a line just stored is not cached", !traits.stored_line_cached, &stored),
        ],
        MemoryKind::Wc => {
            vec![loads_uncached, through, promise("stores are combined", traits.stores_combined, &combined)]
        }
        MemoryKind::Uc | MemoryKind::UcMinus => {
            vec![loads_uncached, through, promise("stores are not combined", !traits.stores_combined, &combined)]
        }
        _ => Vec::new(),
    }
}
