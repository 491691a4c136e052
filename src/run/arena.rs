//! A thread's memory: where the streams of a kernel lie in it, what they hold, and whether the kernel left behind what
//! its naive twin says.
//!
//! ```text
//! stored | a ............ |        untouched        |      streams that kernels write
//! loaded | b ............ | c ............ |  ...   |      streams that they only read
//! index  | k ............ |        untouched        |      streams of places in others
//! ```
//! Every element that no kernel wrote holds its [`Filling`]'s number of its place, so that any window can be checked
//! without a copy. Kernels never write to `loaded`, so it is filled once for all cases of the same element and filling.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use super::sys;
use crate::kernel::code::{Call, TakenAway};
use crate::kernel::formula::{Access, Formula, IndexOrder, Role, Stream, Target};
use crate::kernel::naive::{self, Total, Twin, is_same};
use crate::kernel::{Element, Isa, Kernel, Variant};
use crate::memory::{MemorySpec, NoMemory, Obtained, Places, Policy, Region};
use crate::plan::Case;
use crate::record::Outcome;
use crate::units::Bytes;

/// Elements of the pattern; a prime, so that no shift by a vector, line or page goes unnoticed.
const PERIOD: usize = 61;

/// What memory holds that nothing has written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Filling {
    /// -1, 0 and 1: results of sums and products are exact, whatever the order of operations. Ones prevail, so that sums
    /// grow with the number of elements and none goes missing unnoticed.
    Whole,
    /// Numbers from 1 to 2 with all the bits of a float: for loops that divide or take roots, which some processors do
    /// faster for short numbers, for zeros and for what is no number.
    Positive,
}

impl Filling {
    /// The filling with which a loop's operands are ordinary.
    pub fn of(formula: &Formula) -> Self {
        if formula.needs_positive() { Filling::Positive } else { Filling::Whole }
    }

    /// The number at a place, counted in elements.
    pub fn number(self, place: usize) -> f64 {
        let k = place % PERIOD;
        match (self, k * k * k % PERIOD % 6) {
            (Filling::Positive, _) => {
                const BITS: u64 = 1 << 23;
                1.0 + ((k as u64 + 1) * 0x9e37_79b1 % BITS) as f64 / BITS as f64
            }
            (Filling::Whole, 0) => -1.0,
            (Filling::Whole, 1) => 0.0,
            (Filling::Whole, _) => 1.0,
        }
    }
}

/// Regions of an arena.
const ZONES: usize = 3;

/// Which of an arena's regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Zone {
    Stored,
    Loaded,
    Index,
}

impl Zone {
    fn of(stream: &Stream) -> Self {
        match stream.role {
            Role::Index => Zone::Index,
            _ if stream.stored => Zone::Stored,
            _ => Zone::Loaded,
        }
    }
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
    /// Elements needed of each memory's zones.
    needed: Vec<[usize; ZONES]>,
    filling: Filling,
    /// What index streams hold.
    order: IndexOrder,
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
        let formula = kernel.formula();
        let (streams, filling) = (&formula.streams, Filling::of(&formula));
        let share = case.working_set.0 / case.threads().max(1) as u64;
        let elements = (share / element.bytes() / streams.len() as u64).max(1);
        let (rows, columns) = kernel.shape(elements, element);
        let length = (rows * columns) as usize;
        let beyond_first_level = length >= 16 * page;
        let unit = if beyond_first_level || length.is_multiple_of(page) { page } else { line };
        let off = (u64::from(case.misaligned_bytes) / element.bytes()) as usize;
        let (mut memories, mut needed): (Vec<ArenaKey>, Vec<[usize; ZONES]>) = (Vec::new(), Vec::new());
        let place = |(index, stream): (usize, &Stream)| {
            let (spec, fresh) = (case.memory_of(&stream.name), case.is_fresh(&stream.name));
            let key = ArenaKey { spec, element, filling, fresh };
            let memory = memories.iter().position(|known| *known == key).unwrap_or_else(|| {
                memories.push(key);
                needed.push([0; ZONES]);
                memories.len() - 1
            });
            let zone = Zone::of(stream);
            let shift = if beyond_first_level { index * line } else { 0 };
            let used = &mut needed[memory][zone as usize];
            let start = used.next_multiple_of(unit) + shift + off;
            *used = start + length;
            Place { memory, zone, start }
        };
        let places = streams.iter().enumerate().map(place).collect();
        let (rows, columns) = (rows as usize, columns as usize);
        Layout { memories, places, rows, columns, needed, filling, order: formula.order }
    }

    /// The arenas that a thread needs, and the bytes of each zone.
    pub fn arenas(&self) -> impl Iterator<Item = (ArenaKey, [Bytes; ZONES])> {
        let bytes = |(key, needed): (&ArenaKey, &[usize; ZONES])| (*key, needed.map(|elements| key.bytes(elements)));
        self.memories.iter().zip(&self.needed).map(bytes)
    }

    /// Streams of the kernel.
    pub fn streams(&self) -> usize {
        self.places.len()
    }

    fn length(&self) -> usize {
        self.rows * self.columns
    }

    /// What a stream holds at a place, if nothing was written to it.
    fn number(&self, stream: usize, at: usize) -> f64 {
        let place = &self.places[stream];
        match place.zone {
            Zone::Index => naive::index(self.order, at, self.length()) as f64,
            Zone::Stored | Zone::Loaded => self.filling.number(place.start + at),
        }
    }
}

/// What tells a thread's arenas apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ArenaKey {
    /// The memory asked for.
    pub spec: MemorySpec,
    /// What it holds numbers of.
    pub element: Element,
    /// Which numbers.
    pub filling: Filling,
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
    /// The index streams that it holds now: their order, first element and length.
    indices: Vec<(IndexOrder, usize, usize)>,
}

impl Touched {
    fn reach(&mut self, key: ArenaKey, elements: usize) -> Result<bool, TakenAway> {
        let grows = elements > self.elements;
        if grows && self.region.is_writable() {
            let new = self.elements..elements;
            sys::touch(&mut self.region, |contents| fill(contents, key, new))?;
            self.indices.clear();
        }
        self.elements = self.elements.max(elements);
        Ok(grows)
    }
}

/// A thread's regions of one kind and what was obtained for them. A zone that no case needs is not mapped.
#[derive(Debug)]
struct Arena {
    key: ArenaKey,
    zones: [Option<Touched>; ZONES],
    obtained: Option<Obtained>,
    /// What loops with index streams must add up to, by loop, first elements and length: working that out takes a pass of
    /// plain Rust over all elements.
    totals: HashMap<(&'static str, Vec<usize>, usize), Vec<Total>>,
}

impl Arena {
    /// Maps memory; touches nothing.
    pub fn new(key: ArenaKey, bytes: [Bytes; ZONES], places: &Places) -> Result<Self, NoMemory> {
        let zone = |bytes: Bytes| match bytes {
            Bytes(0) => Ok(None),
            _ => Ok(Some(Touched { region: Region::new(key.spec, bytes, places)?, elements: 0, indices: Vec::new() })),
        };
        let [stored, loaded, index] = bytes.map(zone);
        Ok(Arena { key, zones: [stored?, loaded?, index?], obtained: None, totals: HashMap::new() })
    }

    /// Gives the pages back; the next use maps and touches new ones. Files stay.
    pub fn give_back(&mut self) {
        for zone in self.zones.iter_mut().flatten() {
            zone.region.unmap();
            zone.elements = 0;
            zone.indices.clear();
        }
        self.obtained = None;
    }

    /// Maps again what was given back.
    pub fn take_back(&mut self) -> Result<(), NoMemory> {
        self.zones.iter_mut().flatten().filter(|zone| !zone.region.is_mapped()).try_for_each(|zone| zone.region.map())
    }

    /// Bytes mapped of each zone.
    pub fn bytes(&self) -> [Bytes; ZONES] {
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

    /// Makes a part of the zone of index streams hold places below its length, unless it does already.
    fn index(&mut self, order: IndexOrder, range: Range<usize>) -> Result<(), TakenAway> {
        let (element, stream) = (self.key.element, (order, range.start, range.len()));
        let Some(zone) = self.zones[Zone::Index as usize].as_mut().filter(|zone| !zone.indices.contains(&stream))
        else {
            return Ok(());
        };
        zone.indices.retain(|(_, start, length)| start + length <= range.start || range.end <= *start);
        zone.indices.push(stream);
        sys::touch(&mut zone.region, |contents| fill_index(contents, element, order, range))
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
    most: HashMap<(u32, ArenaKey), [Bytes; ZONES]>,
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
    pub fn ground<'a>(
        &mut self,
        cpu: u32,
        kernel: &'static Kernel,
        layout: &'a Layout,
    ) -> Result<Ground<'a>, NoMemory> {
        let arenas: Result<Vec<Arena>, NoMemory> =
            layout.arenas().map(|(key, bytes)| self.take((cpu, key), bytes)).collect();
        Ok(Ground { kernel, layout, arenas: arenas? })
    }

    fn take(&mut self, key: (u32, ArenaKey), bytes: [Bytes; ZONES]) -> Result<Arena, NoMemory> {
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

fn larger(left: [Bytes; ZONES], right: [Bytes; ZONES]) -> [Bytes; ZONES] {
    std::array::from_fn(|zone| left[zone].max(right[zone]))
}

/// The memory that a thread works on: an arena for each of the layout's memories.
#[derive(Debug)]
pub struct Ground<'a> {
    kernel: &'static Kernel,
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
                } else if zone.reach(arena.key, needed)? {
                    arena.obtained = None;
                }
            }
        }
        let (length, order) = (self.layout.length(), self.layout.order);
        for (stream, place) in self.kernel.formula().streams.iter().zip(&self.layout.places) {
            let arena = &mut self.arenas[place.memory];
            let (key, range) = (arena.key, place.start..place.start + length);
            if place.zone == Zone::Index {
                arena.index(order, range)?;
            } else if stream.loaded && place.zone == Zone::Stored && !key.fresh {
                // A stream changed in place was left by another case as that one pleased.
                arena.touch(place.zone, |contents| fill(contents, key, range))?;
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

    /// Why the kernel must not run on this memory, if so.
    pub fn refusal(&self) -> Option<&'static str> {
        let zones = |place: &Place| self.arenas[place.memory].zones[place.zone as usize].as_ref();
        let is_closed = |place: &Place| zones(place).is_none_or(|zone| !zone.region.is_writable());
        let places = || self.layout.places.iter();
        let index = |place: &&Place| place.zone == Zone::Index;
        let least_index =
            if self.arenas.iter().any(|arena| arena.key.element == Element::Float) { 1 << 31 } else { usize::MAX };
        if places().any(|place| place.zone != Zone::Loaded && is_closed(place)) {
            Some("the device may only be read; --allow-device-writes DEVICE lets it be written")
        } else if places().filter(index).any(|place| self.arenas[place.memory].key.fresh) {
            Some("an index stream holds places in others before the first pass, so it can't lie in fresh memory")
        } else if places().any(|place| place.zone == Zone::Index) && self.layout.length() > least_index {
            Some("indices beside floats have 32 bits; give a smaller --size or --element double")
        } else {
            None
        }
    }

    /// Compares what `passes` passes left behind with the naive twin: first and last window and some between, or every
    /// element. `Err` says which element differs, or that there was no memory left to compare. `Ok(false)`: after so many
    /// passes nobody can tell what a stream changed in place must hold; one pass over memory prepared anew can be checked.
    ///
    /// What fresh or unwritable memory held before is not known, so what was computed from it is not checked.
    pub fn check(&mut self, variant: &Variant, call: &Call, passes: u64, every: bool) -> Result<bool, Outcome> {
        let formula = self.kernel.formula();
        let is_known = |(stream, place): (&Stream, &Place)| {
            let arena = &self.arenas[place.memory];
            let zone = arena.zones[place.zone as usize].as_ref();
            !stream.loaded || (!arena.key.fresh && zone.is_some_and(|zone| zone.region.is_writable()))
        };
        if !formula.streams.iter().zip(&self.layout.places).all(is_known) {
            return Ok(true);
        }
        if formula.is_in_place() && !formula.sums.is_empty() && passes > 1 {
            return Ok(false);
        }
        let expected = Expected::new(twin(&formula, variant, call), self.layout, passes);
        let mut is_told = true;
        for (statement, access) in stores(&formula) {
            let Place { memory, zone, .. } = self.layout.places[access.stream];
            let checked = self.arenas[memory]
                .touch(zone, |contents| expected.check(contents, statement, access, every))
                .map_err(|fault| Outcome::Crashed { reason: fault.to_string() })?;
            is_told &= checked.map_err(|reason| Outcome::Invalid { reason })?;
        }
        let results = call.results(&formula, variant);
        if !formula.sums.is_empty() {
            let totals = self.totals(variant, call);
            let additions = call.most_additions(&formula, variant);
            for (found, total) in results.iter().zip(&totals) {
                total.check(*found, variant.element, additions).map_err(|reason| Outcome::Invalid { reason })?;
            }
        } else if let [found] = results[..] {
            expected.check_last(found).map_err(|reason| Outcome::Invalid { reason })?;
        }
        Ok(is_told)
    }

    /// Refuses a reduction whose result could not be checked.
    pub fn check_exact(&mut self, variant: &Variant, call: &Call) -> Result<(), Outcome> {
        let additions = call.most_additions(&self.kernel.formula(), variant);
        let totals = self.totals(variant, call);
        match totals.iter().all(|total| total.tolerance(variant.element, additions).is_some()) {
            true => Ok(()),
            false => Err(Outcome::Unavailable {
                reason: format!(
                    "partial sums of so many elements of type {} are not exact, so they can't be checked; give a wider \
                     --width, a smaller --size or --element double",
                    variant.element
                ),
            }),
        }
    }

    /// What one pass must add up to.
    fn totals(&mut self, variant: &Variant, call: &Call) -> Vec<Total> {
        let (formula, layout, name) = (self.kernel.formula(), self.layout, self.kernel.name);
        let work_out = || Expected::new(twin(&formula, variant, call), layout, 1).totals();
        match self.arenas.first_mut() {
            Some(arena) if formula.gathers() && !formula.sums.is_empty() => {
                let starts = layout.places.iter().map(|place| place.start).collect();
                arena.totals.entry((name, starts, layout.length())).or_insert_with(work_out).clone()
            }
            _ => work_out(),
        }
    }
}

fn twin<'a>(formula: &'a Formula, variant: &Variant, call: &Call) -> Twin<'a> {
    Twin { formula, element: variant.element, scalar: call.scalar, is_fused: Isa::detect().fma }
}

/// The statements that store, by number, and where to.
fn stores(formula: &Formula) -> impl Iterator<Item = (usize, Access)> {
    formula.statements.iter().enumerate().filter_map(|(number, statement)| match statement.target {
        Target::Element(access) => Some((number, access)),
        Target::Sum(_) | Target::Nothing => None,
    })
}

/// What a kernel must leave behind after so many passes.
struct Expected<'a> {
    twin: Twin<'a>,
    layout: &'a Layout,
    passes: u64,
    /// For each stream, the statement that changes it in place.
    changed_by: Vec<Option<usize>>,
    /// The values of all statements at the places of one period, where they repeat: without index streams all streams
    /// hold the same again a period further.
    period: Vec<Option<Vec<f64>>>,
}

/// Passes over an element changed in place that are worked out one by one.
const PASSES_MOST: u32 = 64;

impl<'a> Expected<'a> {
    fn new(twin: Twin<'a>, layout: &'a Layout, passes: u64) -> Self {
        let mut changed_by = vec![None; twin.formula.streams.len()];
        for (statement, access) in stores(twin.formula) {
            changed_by[access.stream] = twin.formula.streams[access.stream].loaded.then_some(statement);
        }
        let passes = if changed_by.iter().any(Option::is_some) { passes } else { 1 };
        let mut expected = Expected { twin, layout, passes, changed_by, period: Vec::new() };
        if !twin.formula.gathers() {
            // The first place that is computed, and those after it as if all were one row.
            let first = expected.rows().start * layout.columns + expected.columns().start;
            let mut period = vec![None; PERIOD];
            (first..first + PERIOD).for_each(|at| period[at % PERIOD] = expected.after_passes(at));
            expected.period = period;
        }
        expected
    }

    /// The rows that are computed.
    fn rows(&self) -> Range<usize> {
        let margins = self.twin.formula.margins();
        margins.above as usize..self.layout.rows.saturating_sub(margins.below as usize)
    }

    /// The elements of a row that are computed.
    fn columns(&self) -> Range<usize> {
        let margins = self.twin.formula.margins();
        margins.left as usize..self.layout.columns.saturating_sub(margins.right as usize)
    }

    /// The values of all statements at a place, after all passes, if they can be told.
    fn values(&self, at: usize) -> Option<Cow<'_, [f64]>> {
        match self.period.get(at % PERIOD) {
            Some(values) => values.as_deref().map(Cow::Borrowed),
            None => self.after_passes(at).map(Cow::Owned),
        }
    }

    fn after_passes(&self, at: usize) -> Option<Vec<f64>> {
        let mut values = self.pass(at, None);
        let mut left = self.passes.saturating_sub(1);
        left -= self.skip(at, &mut values, left.saturating_sub(1));
        let mut before = Vec::new();
        for _ in 0..PASSES_MOST {
            if left == 0 {
                return Some(values);
            }
            let next = self.pass(at, Some(&values));
            left -= 1;
            // At rest, or to and fro between two.
            if are_same(&next, &values) {
                return Some(next);
            }
            if are_same(&next, &before) {
                return Some(if left.is_multiple_of(2) { next } else { values });
            }
            before = std::mem::replace(&mut values, next);
        }
        (left == 0).then_some(values)
    }

    /// The values of all statements in one pass, where `before` are those of the pass before.
    fn pass(&self, at: usize, before: Option<&[f64]>) -> Vec<f64> {
        let place = naive::Place { row: 0, column: at, columns: self.layout.columns };
        self.twin.values(place, &|stream, at| match (self.changed_by[stream], before) {
            (Some(statement), Some(before)) => before[statement],
            _ => self.layout.number(stream, at),
        })
    }

    /// Skips passes that add the same whole number each, and so do exactly, as long as numbers are exact. `values` are
    /// those of the first pass. Returns how many, `most` at most.
    fn skip(&self, at: usize, values: &mut [f64], most: u64) -> u64 {
        if !self.twin.formula.adds_up() {
            return 0;
        }
        let (exact, mut passes) = (self.twin.element.exact_up_to(), most);
        let mut steps = Vec::new();
        for (statement, access) in stores(self.twin.formula).filter(|store| self.changed_by[store.1.stream].is_some()) {
            let first = naive::Place { row: 0, column: at, columns: self.layout.columns };
            let step = values[statement] - self.layout.number(access.stream, first.number(access.row, access.column));
            if values[statement].fract() != 0.0 || step.fract() != 0.0 {
                return 0;
            }
            // Without a step there are no numbers to run out of: the quotient is greater than any count.
            passes = passes.min(((exact - values[statement].abs()) / step.abs()).max(0.0) as u64);
            steps.push((statement, step));
        }
        steps.into_iter().for_each(|(statement, step)| values[statement] += step * passes as f64);
        passes
    }

    /// Compares `contents`, where the statement's stream lies. Whether all could be told.
    fn check(&self, contents: &[u8], statement: usize, access: Access, every: bool) -> Result<bool, String> {
        let (layout, element) = (self.layout, self.twin.element);
        let bytes = element.bytes() as usize;
        let (mut is_told, is_changed) = (true, self.changed_by[access.stream].is_some());
        let window = self.columns().len().min(WINDOW);
        for (row, column) in windows(&self.rows(), &self.columns(), window, every) {
            let first = naive::Place { row, column, columns: layout.columns };
            let start = first.number(access.row, access.column);
            let from = layout.places[access.stream].start + start;
            let found = element.decode(&contents[from * bytes..(from + window) * bytes]);
            for (k, &found) in found.iter().enumerate() {
                let values = self.values(row * layout.columns + column + k);
                let may_be_so = values.as_ref().is_none_or(|values| is_subnormal(element, values[statement]));
                if is_changed && may_be_so && is_subnormal(element, found) {
                    return Err(format!(
                        "pass by pass the loop makes its numbers smaller, to {found:e} by now; many processors compute \
                         with such numbers far slower: give its scalars other values with --set"
                    ));
                }
                match values {
                    Some(values) if is_same(found, values[statement]) => {}
                    Some(values) => {
                        let (place, expect) = (start + k, values[statement]);
                        return Err(format!("data check failed: element {place} is {found}, must be {expect}"));
                    }
                    None => is_told = false,
                }
            }
        }
        Ok(is_told)
    }

    /// Compares the last value of a loop that only loads.
    fn check_last(&self, found: f64) -> Result<(), String> {
        let last = self.rows().end.saturating_sub(1) * self.layout.columns + self.columns().end.saturating_sub(1);
        let expect = self.values(last).map_or(f64::NAN, |values| values[0]);
        if is_same(found, expect) {
            return Ok(());
        }
        Err(format!("data check failed: the result is {found}, must be {expect}"))
    }

    /// What each sum must come to in one pass.
    fn totals(&self) -> Vec<Total> {
        let (formula, columns) = (self.twin.formula, self.columns());
        let mut totals = vec![Total::default(); formula.sums.len()];
        let length = columns.len();
        // Where values repeat, one period tells them all.
        let different = if formula.gathers() { length } else { length.min(PERIOD) };
        for k in 0..if totals.is_empty() { 0 } else { different } {
            let count = (length / different + usize::from(k < length % different)) as u64;
            let values = self.values(columns.start + k).unwrap_or_default();
            for (statement, value) in formula.statements.iter().zip(values.iter()) {
                if let Target::Sum(sum) = statement.target {
                    totals[sum].add(*value, count);
                }
            }
        }
        totals
    }
}

fn are_same(left: &[f64], right: &[f64]) -> bool {
    left.len() == right.len() && left.iter().zip(right).all(|(left, right)| is_same(*left, *right))
}

fn is_subnormal(element: Element, number: f64) -> bool {
    match element {
        Element::Double => number.is_subnormal(),
        Element::Float => (number as f32).is_subnormal(),
    }
}

/// Elements that are looked at side by side: more than a line, a vector or a period.
const WINDOW: usize = 66;

/// The windows to look at, as (row, column) of their first element: first and last and some between, or all.
fn windows(rows: &Range<usize>, columns: &Range<usize>, window: usize, every: bool) -> Vec<(usize, usize)> {
    if rows.is_empty() || columns.is_empty() {
        return Vec::new();
    }
    let last = columns.end - window;
    let of_row = |row| (columns.start..=last).step_by(window).chain([last]).map(move |column| (row, column));
    let places: Vec<(usize, usize)> = rows.clone().flat_map(of_row).collect();
    if every {
        return places;
    }
    let keep = places.len().div_ceil(16).max(1);
    let end = places.len() - 1;
    places.iter().enumerate().filter(|(i, _)| i % keep == 0 || *i == end).map(|(_, place)| *place).collect()
}

fn fill(contents: &mut [u8], key: ArenaKey, range: Range<usize>) {
    let bytes = key.element.bytes() as usize;
    let period: Vec<f64> = (0..PERIOD).map(|k| key.filling.number(range.start + k)).collect();
    let period = key.element.encode(&period);
    for chunk in contents[range.start * bytes..range.end * bytes].chunks_mut(period.len()) {
        chunk.copy_from_slice(&period[..chunk.len()]);
    }
}

fn fill_index(contents: &mut [u8], element: Element, order: IndexOrder, range: Range<usize>) {
    let (bytes, length) = (element.bytes() as usize, range.len());
    let places = contents[range.start * bytes..range.end * bytes].chunks_exact_mut(bytes);
    for (at, place) in places.enumerate() {
        place.copy_from_slice(&(naive::index(order, at, length) as u64).to_le_bytes()[..bytes]);
    }
}

/// The scalar of timed passes. Loops that change a stream in place get one: `update` then leaves it as it is, and `daxpy`
/// counts up or down in steps of one, exactly, and after many passes comes to rest at [`Element::exact_up_to`].
pub fn timed_scalar(kernel: &Kernel) -> f64 {
    if kernel.formula().is_in_place() { 1.0 } else { 3.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{LoadKind, StoreKind, Width};
    use crate::plan::{USUAL_MEMORY, steady};

    #[test]
    fn the_fillings_tell_every_shift() {
        for shift in 1..PERIOD {
            for filling in [Filling::Whole, Filling::Positive] {
                let differ = (0..PERIOD).filter(|&k| filling.number(k) != filling.number(k + shift)).count();
                assert!(differ >= PERIOD / 6, "{filling:?} {shift}: {differ}");
            }
        }
    }

    #[test]
    fn positive_numbers_lie_between_one_and_two_and_are_floats() {
        for k in 0..PERIOD {
            let number = Filling::Positive.number(k);
            assert!((1.0..2.0).contains(&number) && f64::from(number as f32) == number, "{number}");
        }
    }

    /// Else a reduction could leave out whole periods, and nobody would notice.
    #[test]
    fn no_sum_over_a_period_vanishes() {
        let pattern = |k: usize| Filling::Whole.number(k);
        assert!((0..PERIOD).map(pattern).sum::<f64>() > 0.0);
        for shift in 0..PERIOD {
            assert!((0..PERIOD).map(|k| pattern(k) * pattern(k + shift)).sum::<f64>() > 0.0, "{shift}");
        }
    }

    fn variant(name: &str, element: Element) -> Variant {
        let (width, store, load) = (Width::W128, StoreKind::Regular, LoadKind::Regular);
        Variant { kernel: name.into(), element, width, store, load, unroll: 4 }
    }

    fn layout(name: &str, element: Element) -> (&'static Kernel, Layout) {
        let kernel = Kernel::find(name).unwrap();
        let case = steady(name, Width::W128, StoreKind::Regular, USUAL_MEMORY, vec![0], Bytes::kib(30));
        (kernel, Layout::new(kernel, element, &case))
    }

    fn expected<'a>(
        formula: &'a Formula,
        layout: &'a Layout,
        element: Element,
        scalar: f64,
        passes: u64,
    ) -> Expected<'a> {
        Expected::new(Twin { formula, element, scalar, is_fused: true }, layout, passes)
    }

    #[test]
    fn a_wrong_element_is_found() {
        let own = ["a[i] = b[i+3]*c[i-2] - s", "a[i] = sqrt(b[i])/c[i]", "a[i] = b[k[i]]"];
        for (name, &element) in ["triad", "update", "jacobi", "jacobi-long"]
            .into_iter()
            .chain(own)
            .flat_map(|name| Element::ALL.iter().map(move |element| (name, element)))
        {
            let (kernel, layout) = layout(name, element);
            let (formula, bytes) = (kernel.formula(), element.bytes() as usize);
            let answer = expected(&formula, &layout, element, 3.0, 1);
            let numbers = |stream: usize| (0..layout.length()).map(|at| layout.number(stream, at)).collect();
            let mut twin: Vec<Vec<f64>> = (0..layout.streams()).map(numbers).collect();
            answer.twin.pass(&mut twin, layout.rows, layout.columns);
            let start = layout.places[0].start * bytes;
            let mut contents = vec![0; start + layout.length() * bytes];
            contents[start..].copy_from_slice(&element.encode(&twin[0]));
            let access = formula.store().unwrap();
            let check = |contents: &[u8]| answer.check(contents, 0, access, true);
            assert_eq!(check(&contents), Ok(true), "{name} {element}");
            let (rows, columns) = (answer.rows(), answer.columns());
            let first = rows.start * layout.columns + columns.start;
            for wrong in [first, (rows.end - 1) * layout.columns + columns.end - 1] {
                let sign = start + wrong * bytes + bytes - 1;
                contents[sign] ^= 0xc0;
                let fault = check(&contents).unwrap_err();
                assert!(fault.contains(&format!("element {wrong} is")), "{name} {element}: {fault}");
                contents[sign] ^= 0xc0;
            }
        }
    }

    /// Against doing all passes, one after the other.
    #[test]
    fn many_passes_are_told_as_if_done_one_by_one() {
        let check = |text: &str, element: Element, passes: u64, is_told: bool| {
            let (kernel, layout) = layout(text, element);
            let formula = kernel.formula();
            let answer = expected(&formula, &layout, element, 1.0, passes);
            let access = formula.store().unwrap();
            for at in [0, 1, 2, 17, PERIOD + 17] {
                let numbers = |stream: usize| vec![layout.number(stream, at)];
                let mut twin: Vec<Vec<f64>> = (0..layout.streams()).map(numbers).collect();
                (0..passes).for_each(|_| drop(answer.twin.pass(&mut twin, 1, 1)));
                let told = answer.values(at);
                assert_eq!(told.is_some(), is_told, "{text} {element}");
                if let Some(told) = told {
                    assert!(is_same(told[0], twin[access.stream][0]), "{text} {element}: {told:?}, {twin:?}");
                }
            }
        };
        for passes in [1, 2, 3, 500, 501] {
            check("a[i] += b[i]*c[i] + 5", Element::Double, passes, true);
            check("a[i] = s*a[i]", Element::Float, passes, true);
            check("a[i] = -a[i]", Element::Double, passes, true);
            check("a[i] = max(a[i], b[i] + c[i])", Element::Float, passes, true);
            check("a[i] = 0.5*(a[i] + b[i]) + 0.25", Element::Double, passes, true);
            check("a[i] += 0.1*b[i] + 0.7", Element::Double, passes, passes < 60);
        }
        // Floats end at 2^24: counting in ones comes to rest there, at once.
        check("a[i] += 0*b[i] + 1", Element::Float, (1 << 24) + 100, true);
    }

    #[test]
    fn a_sum_of_nothing_is_found() {
        for name in ["dot", "x += b[i]*c[i] + 0.25", "x += b[k[i]]", "x += b[i]; y += 2*b[i]*c[i+1]"] {
            for &element in Element::ALL {
                let (kernel, layout) = layout(name, element);
                let formula = kernel.formula();
                let totals = expected(&formula, &layout, element, 3.0, 1).totals();
                let call = Call::empty(1);
                assert_eq!(totals.len(), formula.sums.len());
                for (found, total) in call.results(&formula, &variant(name, element)).into_iter().zip(totals) {
                    let fault = total.check(found, element, 100).unwrap_err();
                    assert!(fault.contains("the result is 0, must be"), "{fault}");
                }
            }
        }
    }

    /// A sum over a layout must be that over its elements.
    #[test]
    fn a_total_is_that_of_all_elements() {
        for name in ["dot", "x += b[i-2]*s", "x += b[i]*c[k[i]]", "x += sqrt(b[i]); y += b[i]/c[i+5]"] {
            let (kernel, layout) = layout(name, Element::Double);
            let formula = kernel.formula();
            let answer = expected(&formula, &layout, Element::Double, 3.0, 1);
            let numbers = |stream: usize| (0..layout.length()).map(|at| layout.number(stream, at)).collect();
            let mut streams: Vec<Vec<f64>> = (0..layout.streams()).map(numbers).collect();
            let all = answer.twin.pass(&mut streams, 1, layout.columns).sums;
            for (total, expect) in answer.totals().into_iter().zip(all) {
                assert!((total.sum - expect.sum).abs() <= 1e-12 * expect.magnitude, "{name}: {total:?} {expect:?}");
                assert!((total.magnitude - expect.magnitude).abs() <= 1e-12 * expect.magnitude, "{name}");
            }
        }
    }

    #[test]
    fn a_reduction_that_may_be_rounded_is_refused() {
        let (kernel, layout) = layout("dot", Element::Float);
        let formula = kernel.formula();
        let most = 1 << f32::MANTISSA_DIGITS;
        for (width, unroll) in [Width::Scalar, Width::W512].iter().flat_map(|&w| [1, 8, 16].map(|unroll| (w, unroll))) {
            let float = Variant { width, unroll, ..variant("dot", Element::Float) };
            let sums = width.elements(Element::Float) * u64::from(unroll.min(8));
            let additions = |elements| {
                let call = Call::new(&formula, &float, &[0, 0], 1, elements);
                assert_eq!(call.elements(&float), elements);
                call.most_additions(&formula, &float)
            };
            let total = expected(&formula, &layout, Element::Float, 3.0, 1).totals().remove(0);
            assert_eq!(total.tolerance(Element::Float, additions(most * sums)), Some(0.0), "{float} x{unroll}");
            assert_eq!(total.tolerance(Element::Float, additions((most + 8) * sums)), None);
            assert_eq!(total.tolerance(Element::Double, additions((most + 8) * sums)), Some(0.0));
        }
    }

    #[test]
    fn adding_one_comes_to_rest_where_floats_end() {
        let most = Element::Float.exact_up_to() as f32;
        assert_eq!((most - 1.0 + 1.0, most + 1.0, -most - 1.0), (most, most, -most));
    }
}
