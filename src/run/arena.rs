//! A thread's memory: where the streams of a kernel lie in it, what they hold, and whether the kernel left behind what
//! its naive twin says.
//!
//! ```text
//! stored | a ............ |        untouched        |      streams that kernels write
//! loaded | b ............ | c ............ |  ...   |      streams that they only read
//! ```
//! Every element that no kernel wrote holds [`pattern`] of its place, small whole numbers, so that all results are exact
//! and any window can be checked without a copy. Kernels never write to `loaded`, so it is filled once for all cases of
//! the same element.

use std::collections::HashMap;
use std::ops::Range;

use super::sys;
use crate::kernel::code::{Call, TakenAway};
use crate::kernel::formula::{Formula, Stream, Target};
use crate::kernel::{Element, Kernel, Variant, naive};
use crate::memory::{MemorySpec, NoMemory, Obtained, Places, Policy, Region};
use crate::plan::Case;
use crate::record::Outcome;
use crate::units::Bytes;

/// Elements of the pattern; a prime, so that no shift by a vector, line or page goes unnoticed.
const PERIOD: usize = 61;

/// The number at a place (counted in elements) of a region that nothing has written to: -1, 0 or 1. Ones prevail, so
/// that sums grow with the number of elements and none goes missing unnoticed.
pub fn pattern(place: usize) -> f64 {
    let k = place % PERIOD;
    match k * k * k % PERIOD % 6 {
        0 => -1.0,
        1 => 0.0,
        _ => 1.0,
    }
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
    needed: Vec<[usize; 2]>,
}

impl Layout {
    /// Divides a thread's share of the case's working set among the streams of `kernel`, as arrays of `element`.
    ///
    /// Equal elements of two streams should have equal places in a 4 KiB page: other places cost up to a quarter of the
    /// triad's speed in L1 on Zen 4, and on processors with 4 KiB aliasing a load may then wait for a store that is
    /// still under way. So streams start on pages where that wastes little, else on lines. Beyond the first level each stream starts one line further, so that equal elements do not all
    /// lie on one memory controller (as on the UltraSPARC T2).
    pub fn new(kernel: &Kernel, element: Element, case: &Case) -> Layout {
        let line = element.in_line() as usize;
        let page = 64 * line;
        let streams = kernel.formula().streams;
        let share = case.working_set.0 / case.threads().max(1) as u64;
        let elements = (share / element.bytes() / streams.len() as u64).max(1);
        let (rows, columns) = kernel.shape(elements, element);
        let length = (rows * columns) as usize;
        let beyond_first_level = length >= 16 * page;
        let unit = if beyond_first_level || length.is_multiple_of(page) { page } else { line };
        let off = (u64::from(case.misaligned_bytes) / element.bytes()) as usize;
        let (mut memories, mut needed): (Vec<ArenaKey>, Vec<[usize; 2]>) = (Vec::new(), Vec::new());
        let place = |(index, stream): (usize, &Stream)| {
            let key = ArenaKey { spec: case.memory_of(&stream.name), element, fresh: case.is_fresh(&stream.name) };
            let memory = memories.iter().position(|known| *known == key).unwrap_or_else(|| {
                memories.push(key);
                needed.push([0; 2]);
                memories.len() - 1
            });
            let zone = if stream.stored { Zone::Stored } else { Zone::Loaded };
            let shift = if beyond_first_level { index * line } else { 0 };
            let used = &mut needed[memory][zone as usize];
            let start = used.next_multiple_of(unit) + shift + off;
            *used = start + length;
            Place { memory, zone, start }
        };
        let places = streams.iter().enumerate().map(place).collect();
        Layout { memories, places, rows: rows as usize, columns: columns as usize, needed }
    }

    /// The arenas that a thread needs, and the bytes of each: stored, loaded.
    pub fn arenas(&self) -> impl Iterator<Item = (ArenaKey, [Bytes; 2])> {
        let bytes = |(key, needed): (&ArenaKey, &[usize; 2])| (*key, needed.map(|elements| key.bytes(elements)));
        self.memories.iter().zip(&self.needed).map(bytes)
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
    /// What it is filled with.
    pub element: Element,
    /// Whether it is mapped anew before each sample; such an arena has no room to spare, which would be mapped too.
    pub fresh: bool,
}

impl ArenaKey {
    fn bytes(self, elements: usize) -> Bytes {
        Bytes(elements as u64 * self.element.bytes())
    }
}

/// A region and how many elements of it were touched.
#[derive(Debug)]
struct Touched {
    region: Region,
    elements: usize,
}

impl Touched {
    fn reach(&mut self, element: Element, elements: usize) -> Result<bool, TakenAway> {
        let grows = elements > self.elements;
        if grows && self.region.is_writable() {
            let new = self.elements..elements;
            sys::touch(&mut self.region, |contents| fill(contents, element, new))?;
        }
        self.elements = self.elements.max(elements);
        Ok(grows)
    }
}

/// A thread's two regions of one kind and what was obtained for them. A zone that no case needs is not mapped.
#[derive(Debug)]
struct Arena {
    key: ArenaKey,
    zones: [Option<Touched>; 2],
    obtained: Option<Obtained>,
}

impl Arena {
    /// Maps memory; touches nothing.
    pub fn new(key: ArenaKey, bytes: [Bytes; 2], places: &Places) -> Result<Self, NoMemory> {
        let zone = |bytes: Bytes| match bytes {
            Bytes(0) => Ok(None),
            _ => Ok(Some(Touched { region: Region::new(key.spec, bytes, places)?, elements: 0 })),
        };
        Ok(Arena { key, zones: [zone(bytes[0])?, zone(bytes[1])?], obtained: None })
    }

    /// Gives the pages back; the next use maps and touches new ones. Files stay.
    pub fn give_back(&mut self) {
        for zone in self.zones.iter_mut().flatten() {
            zone.region.unmap();
            zone.elements = 0;
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
        let (zones, key) = (&self.zones, self.key);
        let inspect = |zone: &Touched| zone.region.inspect(key.bytes(zone.elements));
        let look_up = || {
            zones
                .iter()
                .flatten()
                .filter(|zone| zone.elements > 0)
                .map(inspect)
                .reduce(Obtained::and)
                .unwrap_or_default()
        };
        if self.key.fresh {
            return look_up();
        }
        self.obtained.get_or_insert_with(look_up).clone()
    }

    /// Works on what a zone holds; on nothing, where it is not mapped.
    fn touch<R>(&mut self, zone: Zone, work: impl FnOnce(&mut [u8]) -> R) -> Result<R, TakenAway> {
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
            let Some((variant, kernel)) = case.variant().and_then(|variant| Some((variant, variant.row()?))) else {
                continue;
            };
            for (key, bytes) in Layout::new(kernel, variant.element, case).arenas() {
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
        for (arena, needed) in self.arenas.iter_mut().zip(&self.layout.needed) {
            for (zone, &needed) in arena.zones.iter_mut().zip(needed) {
                let Some(zone) = zone else { continue };
                if arena.key.fresh {
                    zone.elements = needed;
                } else if zone.reach(arena.key.element, needed)? {
                    arena.obtained = None;
                }
            }
        }
        let length = self.layout.length();
        for (stream, place) in self.kernel.formula().streams.iter().zip(&self.layout.places) {
            // A stream changed in place was left by another case as that one pleased.
            let arena = &mut self.arenas[place.memory];
            let element = arena.key.element;
            if stream.loaded && place.zone == Zone::Stored && !arena.key.fresh {
                arena.touch(place.zone, |contents| fill(contents, element, place.start..place.start + length))?;
            }
        }
        Ok(self.addresses())
    }

    /// Addresses of the streams.
    fn addresses(&self) -> Vec<u64> {
        let address = |place: &Place| {
            let arena = &self.arenas[place.memory];
            let zone = arena.zones[place.zone as usize].as_ref();
            zone.map_or(0, |zone| zone.region.address()) + arena.key.bytes(place.start).0
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

    /// Says where pages that are not there yet are to come from.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn place(&self, policy: Policy) -> Result<(), NoMemory> {
        let mut zones = self.arenas.iter().flat_map(|arena| arena.zones.iter().flatten());
        zones.try_for_each(|zone| zone.region.place(policy))
    }

    /// Whether some streams lie in fresh memory.
    pub fn is_fresh(&self) -> bool {
        self.arenas.iter().any(|arena| arena.key.fresh)
    }

    fn fresh_zones(&mut self) -> impl Iterator<Item = &mut Touched> {
        self.arenas.iter_mut().filter(|arena| arena.key.fresh).flat_map(|arena| arena.zones.iter_mut().flatten())
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
            !stream.loaded || (!arena.key.fresh && zone.is_some_and(|zone| zone.region.is_writable()))
        };
        if !formula.streams.iter().zip(&self.layout.places).all(is_known) {
            return Ok(());
        }
        let checked = match formula.target {
            Target::Element(access) => {
                let Place { memory, zone, .. } = self.layout.places[access.stream];
                let answer = Answer {
                    kernel: self.kernel,
                    element: variant.element,
                    layout: self.layout,
                    stored: access.stream,
                    s: scalar_after(self.kernel, call.scalar, passes),
                };
                self.arenas[memory]
                    .touch(zone, |contents| answer.check(contents, every))
                    .map_err(|fault| Outcome::Crashed { reason: fault.to_string() })?
            }
            Target::Sum | Target::Nothing => check_result(self.kernel, &formula, variant, self.layout, call),
        };
        checked.map_err(|reason| Outcome::Invalid { reason })
    }
}

/// What a kernel must leave behind in the stream that it stores to.
struct Answer<'a> {
    kernel: &'a Kernel,
    element: Element,
    layout: &'a Layout,
    /// The stream.
    stored: usize,
    /// The scalar after all passes.
    s: f64,
}

impl Answer<'_> {
    /// Compares `contents`, where the stream lies, with the naive twin.
    fn check(&self, contents: &[u8], every: bool) -> Result<(), String> {
        let (layout, bytes) = (self.layout, self.element.bytes() as usize);
        let window = layout.columns.min(66);
        for (row, column) in windows(layout, window, every) {
            let height = if layout.rows > 1 { 3 } else { 1 };
            let start = (row + height / 2) * layout.columns + column;
            let expect = self.twin(row, column, height, window)?;
            let first = layout.places[self.stored].start + start;
            let found = self.element.decode(&contents[first * bytes..(first + window) * bytes]);
            let inner = if layout.rows > 1 { 1..window - 1 } else { 0..window };
            if let Some(c) = inner.into_iter().find(|&c| found[c] != expect[c]) {
                let (found, expect) = (found[c], expect[c]);
                return Err(format!("data check failed: element {} is {found}, must be {expect}", start + c));
            }
        }
        Ok(())
    }

    /// The middle row of a window.
    fn twin(&self, row: usize, column: usize, height: usize, window: usize) -> Result<Vec<f64>, String> {
        let first = row * self.layout.columns + column;
        let numbers = |place: &Place| {
            let at = |k: usize| place.start + first + k / window * self.layout.columns + k % window;
            (0..height * window).map(|k| pattern(at(k))).collect()
        };
        let mut twin: Vec<Vec<f64>> = self.layout.places.iter().map(numbers).collect();
        naive::run(self.kernel, &mut twin, self.s, height, window).ok_or("no naive twin")?;
        let most = self.element.exact_up_to();
        Ok(twin[self.stored][height / 2 * window..][..window].iter().map(|number| number.clamp(-most, most)).collect())
    }
}

/// The windows to look at, as (row, column) of their first element: first and last and some between, or all.
fn windows(layout: &Layout, window: usize, every: bool) -> Vec<(usize, usize)> {
    let grid = layout.rows > 1;
    // A grid's window is the middle one of three rows; it moves by its inside, so that all inner elements are seen.
    let step = if grid { (window - 2).max(1) } else { window };
    let last = layout.columns - window;
    let rows: Vec<usize> = if grid { (0..=layout.rows - 3).collect() } else { vec![0] };
    let places: Vec<(usize, usize)> =
        rows.iter().flat_map(|&row| (0..=last).step_by(step).chain([last]).map(move |column| (row, column))).collect();
    if every {
        return places;
    }
    let keep = places.len().div_ceil(16).max(1);
    let end = places.len() - 1;
    places.iter().enumerate().filter(|(i, _)| i % keep == 0 || *i == end).map(|(_, place)| *place).collect()
}

fn fill(contents: &mut [u8], element: Element, range: Range<usize>) {
    let bytes = element.bytes() as usize;
    let period = element.encode(&(0..PERIOD).map(|k| pattern(range.start + k)).collect::<Vec<_>>());
    for chunk in contents[range.start * bytes..range.end * bytes].chunks_mut(period.len()) {
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

/// The scalar of timed passes. Kernels that change a stream in place get one: `update` then leaves it as it is, and
/// `daxpy` counts up or down in steps of one, exactly, and after many passes comes to rest at
/// [`Element::exact_up_to`].
pub fn timed_scalar(kernel: &Kernel) -> f64 {
    if matches!(kernel.name, "update" | "daxpy") { 1.0 } else { 3.0 }
}

/// Refuses a reduction whose partial sums may be rounded: its result could not be checked. No addend is greater than one,
/// so no partial sum is greater than its number of additions n. A tolerance would not help: the error bound of summation,
/// n u relative to the sum of magnitudes (u = 2^-24 for floats: Higham, Accuracy and Stability of Numerical Algorithms,
/// section 4.2), reaches 1 where exactness ends.
pub fn check_exact(variant: &Variant, formula: &Formula, call: &Call) -> Result<(), Outcome> {
    if formula.target != Target::Sum || call.most_additions(variant) as f64 <= variant.element.exact_up_to() {
        return Ok(());
    }
    let reason = format!(
        "partial sums of so many elements of type {} are not exact, so they can't be checked; give a wider --width, a \
         smaller --size or --element double",
        variant.element
    );
    Err(Outcome::Unavailable { reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{LoadKind, StoreKind, Width};
    use crate::plan::{USUAL_MEMORY, steady};

    #[test]
    fn the_pattern_tells_every_shift() {
        for shift in 1..PERIOD {
            let differ = (0..PERIOD).filter(|&k| pattern(k) != pattern(k + shift)).count();
            assert!(differ >= PERIOD / 6, "{shift}: {differ}");
        }
    }

    /// Else a reduction could leave out whole periods, and nobody would notice.
    #[test]
    fn no_sum_over_a_period_vanishes() {
        assert!((0..PERIOD).map(pattern).sum::<f64>() > 0.0);
        for shift in 0..PERIOD {
            assert!((0..PERIOD).map(|k| pattern(k) * pattern(k + shift)).sum::<f64>() > 0.0, "{shift}");
        }
    }

    #[test]
    fn a_wrong_element_is_found() {
        let names = ["triad", "update", "jacobi", "jacobi-long"];
        for (name, &element) in
            names.into_iter().flat_map(|name| Element::ALL.iter().map(move |element| (name, element)))
        {
            let (kernel, bytes) = (Kernel::named(name).unwrap(), element.bytes() as usize);
            let case = steady(name, Width::W128, StoreKind::Regular, USUAL_MEMORY, vec![0], Bytes::kib(30));
            let layout = Layout::new(kernel, element, &case);
            let numbers = |place: &Place| (0..layout.length()).map(|k| pattern(place.start + k)).collect();
            let mut twin: Vec<Vec<f64>> = layout.places.iter().map(numbers).collect();
            naive::run(kernel, &mut twin, 3.0, layout.rows, layout.columns).unwrap();
            let start = layout.places[0].start * bytes;
            let mut contents = vec![0; start + layout.length() * bytes];
            contents[start..].copy_from_slice(&element.encode(&twin[0]));
            let answer = Answer { kernel, element, layout: &layout, stored: 0, s: 3.0 };
            assert_eq!(answer.check(&contents, true), Ok(()));
            let border = if layout.rows > 1 { layout.columns + 1 } else { 0 };
            for wrong in [border, layout.length() - 1 - border] {
                let sign = start + wrong * bytes + bytes - 1;
                contents[sign] ^= 0xc0;
                let fault = answer.check(&contents, true).unwrap_err();
                assert!(fault.contains(&format!("element {wrong} is")), "{name} {element}: {fault}");
                contents[sign] ^= 0xc0;
            }
        }
    }

    #[test]
    fn a_sum_of_nothing_is_found() {
        let case = steady("dot", Width::W128, StoreKind::Regular, USUAL_MEMORY, vec![0], Bytes::kib(30));
        let (kernel, variant) = (Kernel::named("dot").unwrap(), case.variant().unwrap());
        for &element in Element::ALL {
            let variant = Variant { element, ..variant.clone() };
            let layout = Layout::new(kernel, element, &case);
            let fault = check_result(kernel, &kernel.formula(), &variant, &layout, &Call::empty(1)).unwrap_err();
            assert!(fault.contains("the result is 0, must be"), "{fault}");
        }
    }

    #[test]
    fn a_reduction_that_may_be_rounded_is_refused() {
        let kernel = Kernel::named("dot").unwrap();
        let (formula, widths) = (kernel.formula(), [Width::Scalar, Width::W512]);
        let most = 1 << f32::MANTISSA_DIGITS;
        for (width, unroll) in widths.iter().flat_map(|&width| [1, 8, 16].map(|unroll| (width, unroll))) {
            let (store, load) = (StoreKind::Regular, LoadKind::Regular);
            let float = Variant { kernel: "dot".into(), element: Element::Float, width, store, load, unroll };
            let double = Variant { element: Element::Double, ..float.clone() };
            let sums = width.elements(Element::Float) * u64::from(unroll.min(8));
            let call = |elements| Call::new(&formula, &float, &[0, 0], 1, elements);
            assert_eq!(call(most * sums).elements(&float), most * sums);
            assert_eq!(check_exact(&float, &formula, &call(most * sums)), Ok(()), "{float} x{unroll}");
            let more = call((most + 8) * sums);
            let refused = check_exact(&float, &formula, &more);
            assert!(matches!(refused, Err(Outcome::Unavailable { reason }) if reason.contains("--element double")));
            assert_eq!(check_exact(&double, &formula, &more), Ok(()));
            let triad = Kernel::named("triad").unwrap().formula();
            assert_eq!(check_exact(&float, &triad, &more), Ok(()));
        }
    }

    #[test]
    fn adding_one_comes_to_rest_where_floats_end() {
        let most = Element::Float.exact_up_to() as f32;
        assert_eq!((most - 1.0 + 1.0, most + 1.0, -most - 1.0), (most, most, -most));
    }
}
