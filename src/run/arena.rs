//! A thread's memory: where the streams of a kernel lie in it, what they hold, and whether the kernel left behind what
//! its naive twin says.
//!
//! ```text
//! stored | a ............ |        untouched        |      streams that kernels write
//! loaded | b ............ | c ............ |  ...   |      streams that they only read
//! ```
//! Every element that no kernel wrote holds [`pattern`] of its place, small whole numbers, so that all results are exact
//! and any window can be checked without a copy. Kernels never write to `loaded`, so it is filled once for all cases.

use std::collections::HashMap;
use std::ops::Range;

use super::sys;
use crate::kernel::code::{Call, TakenAway};
use crate::kernel::formula::{Formula, Stream, Target};
use crate::kernel::{ELEMENT_BYTES, Kernel, Variant, naive};
use crate::memory::{MemorySpec, NoMemory, Obtained, Places, Region};
use crate::plan::Case;
use crate::record::Outcome;
use crate::units::Bytes;

/// Elements of the pattern; a prime, so that no shift by a vector, line or page goes unnoticed.
const PERIOD: usize = 61;

/// The number at place `word` of a region that nothing has written to.
pub fn pattern(word: usize) -> f64 {
    ((word % PERIOD) * 7 % 13) as f64 - 3.0
}

/// Which of an arena's two regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Zone {
    Stored,
    Loaded,
}

/// Where a stream lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    /// Index into [`Layout::memories`].
    memory: usize,
    zone: Zone,
    /// Its first element.
    start: usize,
}

/// Where a kernel's streams lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The memories that hold streams; one arena each.
    memories: Vec<ArenaKey>,
    places: Vec<Place>,
    /// Rows of each stream; 1 for plain arrays.
    pub rows: usize,
    /// Elements of a row.
    pub columns: usize,
    /// Elements needed of each memory: stored, loaded.
    words: Vec<[usize; 2]>,
}

impl Layout {
    /// Divides a thread's share of the case's working set among the streams of `kernel`.
    ///
    /// Equal elements of two streams should have equal places in a 4 KiB page: other places cost up to a quarter of the
    /// triad's speed in L1 on Zen 4, and on processors with 4 KiB aliasing a load may then wait for a store that is
    /// still under way. So streams start on pages where that wastes little, else on lines. Beyond the first level each stream starts one line further, so that equal elements do not all
    /// lie on one memory controller (as on the UltraSPARC T2).
    pub fn new(kernel: &Kernel, case: &Case) -> Layout {
        const LINE: usize = 64 / ELEMENT_BYTES as usize;
        const PAGE: usize = 4096 / ELEMENT_BYTES as usize;
        let streams = kernel.formula().streams;
        let share = case.working_set.0 / case.threads().max(1) as u64;
        let elements = (share / ELEMENT_BYTES / streams.len() as u64).max(1);
        let (rows, columns) = kernel.shape(elements);
        let length = (rows * columns) as usize;
        let beyond_first_level = length >= 16 * PAGE;
        let unit = if beyond_first_level || length.is_multiple_of(PAGE) { PAGE } else { LINE };
        let off = (u64::from(case.misaligned_bytes) / ELEMENT_BYTES) as usize;
        let (mut memories, mut words): (Vec<ArenaKey>, Vec<[usize; 2]>) = (Vec::new(), Vec::new());
        let place = |(index, stream): (usize, &Stream)| {
            let key = ArenaKey { spec: case.memory_of(&stream.name), fresh: case.is_fresh(&stream.name) };
            let memory = memories.iter().position(|known| *known == key).unwrap_or_else(|| {
                memories.push(key);
                words.push([0; 2]);
                memories.len() - 1
            });
            let zone = if stream.stored { Zone::Stored } else { Zone::Loaded };
            let shift = if beyond_first_level { index * LINE } else { 0 };
            let used = &mut words[memory][zone as usize];
            let start = used.next_multiple_of(unit) + shift + off;
            *used = start + length;
            Place { memory, zone, start }
        };
        let places = streams.iter().enumerate().map(place).collect();
        Layout { memories, places, rows: rows as usize, columns: columns as usize, words }
    }

    /// The arenas that a thread needs, and the bytes of each: stored, loaded.
    pub fn arenas(&self) -> impl Iterator<Item = (ArenaKey, [Bytes; 2])> {
        let bytes = |words: &[usize; 2]| words.map(|words| Bytes(words as u64 * ELEMENT_BYTES));
        self.memories.iter().copied().zip(self.words.iter().map(bytes))
    }

    /// Streams of the kernel.
    pub fn streams(&self) -> usize {
        self.places.len()
    }

    fn length(&self) -> usize {
        self.rows * self.columns
    }
}

/// What tells a thread's arenas apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ArenaKey {
    /// The memory asked for.
    pub spec: MemorySpec,
    /// Whether it is mapped anew before each sample; such an arena has no room to spare, which would be mapped too.
    pub fresh: bool,
}

/// A region and how far it was touched.
#[derive(Debug)]
struct Touched {
    region: Region,
    words: usize,
}

impl Touched {
    fn reach(&mut self, words: usize) -> Result<bool, TakenAway> {
        let grows = words > self.words;
        if grows && self.region.is_writable() {
            let new = self.words..words;
            sys::touch(&mut self.region, |words| fill(words, new))?;
        }
        self.words = self.words.max(words);
        Ok(grows)
    }
}

/// A thread's two regions of one kind and what was obtained for them. A zone that no case needs is not mapped.
#[derive(Debug)]
struct Arena {
    fresh: bool,
    zones: [Option<Touched>; 2],
    obtained: Option<Obtained>,
}

impl Arena {
    /// Maps memory; touches nothing.
    pub fn new(key: ArenaKey, bytes: [Bytes; 2], places: &Places) -> Result<Self, NoMemory> {
        let zone = |bytes: Bytes| match bytes {
            Bytes(0) => Ok(None),
            _ => Ok(Some(Touched { region: Region::new(key.spec, bytes, places)?, words: 0 })),
        };
        Ok(Arena { fresh: key.fresh, zones: [zone(bytes[0])?, zone(bytes[1])?], obtained: None })
    }

    /// Gives the pages back; the next use maps and touches new ones. Files stay.
    pub fn give_back(&mut self) {
        for zone in self.zones.iter_mut().flatten() {
            zone.region.unmap();
            zone.words = 0;
        }
        self.obtained = None;
    }

    /// Maps again what was given back.
    pub fn take_back(&mut self) -> Result<(), NoMemory> {
        self.zones.iter_mut().flatten().filter(|zone| !zone.region.is_mapped()).try_for_each(|zone| zone.region.map())
    }

    /// Bytes mapped: stored, loaded.
    pub fn bytes(&self) -> [Bytes; 2] {
        self.zones.each_ref().map(|zone| zone.as_ref().map_or(Bytes(0), |zone| zone.region.bytes()))
    }

    /// Pages obtained so far; looked up again only when new ones were touched.
    pub fn obtained(&mut self) -> Obtained {
        let zones = &self.zones;
        let inspect = |zone: &Touched| zone.region.inspect(Bytes(zone.words as u64 * ELEMENT_BYTES));
        let look_up = || {
            zones.iter().flatten().filter(|zone| zone.words > 0).map(inspect).reduce(Obtained::and).unwrap_or_default()
        };
        if self.fresh {
            return look_up();
        }
        self.obtained.get_or_insert_with(look_up).clone()
    }

    /// Works on the numbers of a zone; on none, where it is not mapped.
    fn touch<R>(&mut self, zone: Zone, work: impl FnOnce(&mut [f64]) -> R) -> Result<R, TakenAway> {
        match &mut self.zones[zone as usize] {
            Some(zone) => sys::touch(&mut zone.region, work),
            None => Ok(work(&mut [])),
        }
    }
}

/// A mapping of an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// Its arena.
    pub key: ArenaKey,
    /// Address of its first byte; of no meaning while it is unmapped.
    pub address: u64,
    /// Its bytes: whole pages.
    pub bytes: Bytes,
    /// Whether it may be written to.
    pub writable: bool,
}

/// The arenas of an executor by CPU and kind: kept from case to case, since first touch costs more than a sample.
#[derive(Debug)]
pub struct Arenas {
    kept: HashMap<(u32, ArenaKey), Arena>,
    /// Bytes to map when an arena is first needed: the most that any expected case will want.
    most: HashMap<(u32, ArenaKey), [Bytes; 2]>,
    /// What stands behind memory of a kind: itself, unless somebody else makes the kind out of another.
    behind: fn(MemorySpec) -> MemorySpec,
    places: Places,
}

impl Arenas {
    /// No arenas yet. `behind` says which memory of this process a kind is made of.
    pub fn new(places: Places, behind: fn(MemorySpec) -> MemorySpec) -> Self {
        Arenas { kept: HashMap::new(), most: HashMap::new(), behind, places }
    }

    /// Where memory with a place comes from.
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// Makes room in mind for cases to come.
    pub fn expect(&mut self, cases: &[Case]) {
        for case in cases {
            let Some(kernel) = case.variant().and_then(Variant::row) else { continue };
            for (key, bytes) in Layout::new(kernel, case).arenas() {
                for &cpu in &case.cpus {
                    let most = self.most.entry((cpu, key)).or_default();
                    *most = larger(*most, bytes);
                }
            }
        }
    }

    /// The memory of the thread on `cpu`.
    pub fn ground<'a>(&mut self, cpu: u32, kernel: &'a Kernel, layout: &'a Layout) -> Result<Ground<'a>, NoMemory> {
        let arenas: Result<Vec<Arena>, NoMemory> =
            layout.arenas().map(|(key, bytes)| self.take((cpu, key), bytes)).collect();
        Ok(Ground { kernel, layout, arenas: arenas? })
    }

    fn take(&mut self, key: (u32, ArenaKey), bytes: [Bytes; 2]) -> Result<Arena, NoMemory> {
        let expected = if key.1.fresh { None } else { self.most.get(&key) };
        match self.kept.remove(&key) {
            Some(mut arena) if larger(arena.bytes(), bytes) == arena.bytes() => arena.take_back().map(|()| arena),
            _ => {
                let behind = ArenaKey { spec: (self.behind)(key.1.spec), ..key.1 };
                Arena::new(behind, larger(bytes, expected.copied().unwrap_or_default()), &self.places)
            }
        }
    }

    /// Keeps a thread's memory for the next case, all but what was fresh.
    pub fn keep(&mut self, cpu: u32, mut ground: Ground<'_>) {
        ground.unmap();
        let keys = ground.layout.memories.iter().map(|key| (cpu, *key));
        self.kept.extend(keys.zip(ground.arenas));
    }

    /// Gives all pages back: the next cases get others.
    pub fn give_back(&mut self) {
        self.kept.values_mut().for_each(Arena::give_back);
    }
}

fn larger(left: [Bytes; 2], right: [Bytes; 2]) -> [Bytes; 2] {
    [left[0].max(right[0]), left[1].max(right[1])]
}

/// The memory that a thread works on: an arena for each of the layout's memories.
#[derive(Debug)]
pub struct Ground<'a> {
    kernel: &'a Kernel,
    layout: &'a Layout,
    /// In the order of the layout's memories.
    arenas: Vec<Arena>,
}

impl<'a> Ground<'a> {
    /// What was obtained for all streams.
    pub fn obtained(&mut self) -> Obtained {
        self.arenas.iter_mut().map(Arena::obtained).reduce(Obtained::and).unwrap_or_default()
    }

    /// Touches the layout's pages from the calling thread and makes every stream that is read hold the pattern; fresh
    /// memory stays untouched. Returns the streams' addresses.
    pub fn prepare(&mut self) -> Result<Vec<u64>, TakenAway> {
        for (arena, words) in self.arenas.iter_mut().zip(&self.layout.words) {
            for (zone, &words) in arena.zones.iter_mut().zip(words) {
                let Some(zone) = zone else { continue };
                if arena.fresh {
                    zone.words = words;
                } else if zone.reach(words)? {
                    arena.obtained = None;
                }
            }
        }
        let length = self.layout.length();
        for (stream, place) in self.kernel.formula().streams.iter().zip(&self.layout.places) {
            // A stream changed in place was left by another case as that one pleased.
            let arena = &mut self.arenas[place.memory];
            if stream.loaded && place.zone == Zone::Stored && !arena.fresh {
                arena.touch(place.zone, |words| fill(words, place.start..place.start + length))?;
            }
        }
        Ok(self.addresses())
    }

    /// Addresses of the streams.
    fn addresses(&self) -> Vec<u64> {
        let address = |place: &Place| {
            let zone = self.arenas[place.memory].zones[place.zone as usize].as_ref();
            zone.map_or(0, |zone| zone.region.address()) + place.start as u64 * ELEMENT_BYTES
        };
        self.layout.places.iter().map(address).collect()
    }

    /// The mappings that streams lie in; always in the same order.
    pub fn mappings(&self) -> Vec<Mapping> {
        let zones = |(arena, key): (&Arena, &ArenaKey)| {
            let mapping = |zone: &Touched| Mapping {
                key: *key,
                address: zone.region.address(),
                bytes: zone.region.bytes(),
                writable: zone.region.is_writable(),
            };
            arena.zones.iter().flatten().map(mapping).collect::<Vec<_>>()
        };
        self.arenas.iter().zip(&self.layout.memories).flat_map(zones).collect()
    }

    /// Whether some streams lie in fresh memory.
    pub fn is_fresh(&self) -> bool {
        self.arenas.iter().any(|arena| arena.fresh)
    }

    fn fresh_zones(&mut self) -> impl Iterator<Item = &mut Touched> {
        self.arenas.iter_mut().filter(|arena| arena.fresh).flat_map(|arena| arena.zones.iter_mut().flatten())
    }

    /// Gives fresh memory back.
    pub fn unmap(&mut self) {
        self.fresh_zones().for_each(|zone| zone.region.unmap());
    }

    /// Maps fresh memory again. Returns the streams' new addresses.
    pub fn map(&mut self) -> Result<Vec<u64>, NoMemory> {
        for zone in self.fresh_zones() {
            zone.region.map()?;
        }
        Ok(self.addresses())
    }

    /// Whether streams that the kernel stores to may be written.
    pub fn is_writable(&self) -> bool {
        let writable = |place: &Place| {
            let zone = self.arenas[place.memory].zones[Zone::Stored as usize].as_ref();
            place.zone == Zone::Loaded || zone.is_some_and(|zone| zone.region.is_writable())
        };
        self.layout.places.iter().all(writable)
    }

    /// Compares what `passes` passes left behind with the naive twin: first and last window and some between, or every
    /// element. `Err` says which element differs, or that there was no memory left to compare.
    ///
    /// What fresh or unwritable memory held before is not known, so what was computed from it is not checked.
    pub fn check(&mut self, variant: &Variant, call: &Call, passes: u64, every: bool) -> Result<(), Outcome> {
        let formula = self.kernel.formula();
        let is_known = |(stream, place): (&Stream, &Place)| {
            let arena = &self.arenas[place.memory];
            let zone = arena.zones[place.zone as usize].as_ref();
            !stream.loaded || (!arena.fresh && zone.is_some_and(|zone| zone.region.is_writable()))
        };
        if !formula.streams.iter().zip(&self.layout.places).all(is_known) {
            return Ok(());
        }
        let checked = match formula.target {
            Target::Element(access) => {
                let (kernel, layout, stored) = (self.kernel, self.layout, access.stream);
                let (s, Place { memory, zone, .. }) =
                    (scalar_after(kernel, call.scalar, passes), layout.places[stored]);
                self.arenas[memory]
                    .touch(zone, |words| check_stored(kernel, layout, stored, words, s, every))
                    .map_err(|fault| Outcome::Crashed { reason: fault.to_string() })?
            }
            Target::Sum | Target::Nothing => check_result(self.kernel, &formula, variant, self.layout, call),
        };
        checked.map_err(|reason| Outcome::Invalid { reason })
    }
}

/// Compares `words`, where the stream `stored` lies, with the naive twin.
fn check_stored(
    kernel: &Kernel,
    layout: &Layout,
    stored: usize,
    words: &[f64],
    s: f64,
    every: bool,
) -> Result<(), String> {
    let (grid, columns) = (layout.rows > 1, layout.columns);
    let window = columns.min(66);
    // A grid's window is the middle one of three rows; it moves by its inside, so that all inner elements are seen.
    let step = if grid { (window - 2).max(1) } else { window };
    let last = columns - window;
    let rows: Vec<usize> = if grid { (0..=layout.rows - 3).collect() } else { vec![0] };
    let mut places: Vec<(usize, usize)> =
        rows.iter().flat_map(|&row| (0..=last).step_by(step).chain([last]).map(move |column| (row, column))).collect();
    if !every {
        let keep = places.len().div_ceil(16).max(1);
        let end = places.len() - 1;
        places = places.iter().enumerate().filter(|(i, _)| i % keep == 0 || *i == end).map(|(_, p)| *p).collect();
    }
    for (row, column) in places {
        let (height, first) = (if grid { 3 } else { 1 }, row * columns + column);
        let place = |stream: usize, r: usize, c: usize| layout.places[stream].start + first + r * columns + c;
        let mut twin: Vec<Vec<f64>> = (0..layout.places.len())
            .map(|stream| (0..height * window).map(|k| pattern(place(stream, k / window, k % window))).collect())
            .collect();
        naive::run(kernel, &mut twin, s, height, window).ok_or("no naive twin")?;
        let inner = if grid { 1..window - 1 } else { 0..window };
        for c in inner {
            let (found, expect) = (words[place(stored, height / 2, c)], twin[stored][height / 2 * window + c]);
            if found != expect {
                let at = first + height / 2 * columns + c;
                return Err(format!("data check failed: element {at} is {found}, must be {expect}"));
            }
        }
    }
    Ok(())
}

fn fill(words: &mut [f64], range: Range<usize>) {
    let period: Vec<f64> = (0..PERIOD).map(|k| pattern(range.start + k)).collect();
    for chunk in words[range].chunks_mut(PERIOD) {
        chunk.copy_from_slice(&period[..chunk.len()]);
    }
}

/// In-place kernels act again on what the pass before left: s so often is a power (update) or a multiple (daxpy).
fn scalar_after(kernel: &Kernel, s: f64, passes: u64) -> f64 {
    match kernel.name {
        "update" => s.powf(passes as f64),
        "daxpy" => s * passes as f64,
        _ => s,
    }
}

/// Reductions start afresh each pass, and the pattern repeats, so one period tells the whole sum.
fn check_result(
    kernel: &Kernel,
    formula: &Formula,
    variant: &Variant,
    layout: &Layout,
    call: &Call,
) -> Result<(), String> {
    let length = layout.length();
    let part = |from: usize, n: usize| -> Result<f64, String> {
        let mut twin: Vec<Vec<f64>> =
            layout.places.iter().map(|p| (from..from + n).map(|i| pattern(p.start + i)).collect()).collect();
        match naive::run(kernel, &mut twin, call.scalar, 1, n) {
            Some(naive::Answer::Sum(value) | naive::Answer::Last(value)) => Ok(value),
            _ => Err("no naive twin".into()),
        }
    };
    let rest = length % PERIOD;
    let expect = if formula.target == Target::Nothing {
        part(length - 1, 1)?
    } else {
        let whole = if length >= PERIOD { part(0, PERIOD)? * (length / PERIOD) as f64 } else { 0.0 };
        whole + if rest > 0 { part(length - rest, rest)? } else { 0.0 }
    };
    let found = call.result(formula, variant);
    if found == expect { Ok(()) } else { Err(format!("data check failed: the result is {found}, must be {expect}")) }
}

/// The scalar of timed passes: kept such that repeating a kernel in place neither overflows nor becomes inexact.
pub fn timed_scalar(kernel: &Kernel) -> f64 {
    if kernel.name == "update" { 1.0 } else { 3.0 }
}
