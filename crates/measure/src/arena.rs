//! A thread's memory: where the streams of a kernel lie in it.
//!
//! ```text
//! stored | a ............ |        untouched        |      streams that kernels write
//! loaded | b ............ | c ............ |  ...   |      streams that they only read
//! index  | k ............ |        untouched        |      streams of places in others
//! ```
//! Every element that no kernel wrote holds its [`Filling`]'s number of its place, so that any window can be checked
//! without a copy. Kernels never write to `loaded`, so it is filled once for all cases of the same element and filling.
//! Whether a kernel left behind what it must is the matter of [`answers`](crate::answers).

use std::collections::HashMap;
use std::ops::Range;

use crate::answers::{Contents, Expected, Filling, Held, fill, fill_index, stores, twin};
use crate::code::Call;
use crate::memory::no_memory::NoMemory;
use crate::memory::places::Places;
use crate::memory::region::Region;
use crate::memory::touch::{self, FirstTouch};
use crate::no_visit::NoVisit;
use crate::os::faults::TakenAway;
use membound_core::case::{Case, Work};
use membound_core::kernel::catalog::Kernel;
use membound_core::kernel::formula::{IndexOrder, Role, Stream};
use membound_core::kernel::naive::Total;
use membound_core::kernel::{Element, Variant};
use membound_core::memory::policy::Policy;
use membound_core::memory::{MemorySpec, Obtained};
use membound_core::units::Bytes;

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
    /// What they hold.
    pub contents: Contents,
    /// Elements needed of each memory's zones.
    needed: Vec<[usize; ZONES]>,
}

impl Layout {
    /// Divides a thread's share of the case's working set among the streams of `kernel`, as arrays of `element`.
    ///
    /// Equal elements of two streams should have equal places in a 4 KiB page: other places cost up to a quarter of the
    /// triad's speed in L1 on Zen 4, and on processors with 4 KiB aliasing a load may then wait for a store that is
    /// still under way. So streams start on pages where that wastes little, else on lines. Beyond the first level each stream starts one line further, so that equal elements do not all
    /// lie on one memory controller (as on the UltraSPARC T2).
    ///
    /// Arrays in one block lie in one zone as the block says, whether they are written or not.
    pub fn new(kernel: &Kernel, element: Element, case: &Case) -> Layout {
        let line = element.in_line() as usize;
        let page = 64 * line;
        let formula = kernel.formula();
        let (streams, filling) = (&formula.streams, Filling::of(&formula));
        let share = case.share().0;
        let elements = (share / element.bytes() / streams.len() as u64).max(1);
        let (rows, columns) = kernel.shape(elements, element);
        let length = (rows * columns) as usize;
        let beyond_first_level = length >= 16 * page;
        let unit = if beyond_first_level || length.is_multiple_of(page) { page } else { line };
        let off = (u64::from(case.misaligned_bytes) / element.bytes()) as usize;
        let (mut memories, mut needed): (Vec<ArenaKey>, Vec<[usize; ZONES]>) = (Vec::new(), Vec::new());
        let block = if let Work::Common(block) = &case.work { Some(block) } else { None };
        let pitch = block.map(|block| (block.pitch(Bytes(length as u64 * element.bytes())) / element.bytes()) as usize);
        let place = |(index, stream): (usize, &Stream)| {
            let (spec, fresh) = (case.memory_of(&stream.name), case.is_fresh(&stream.name));
            let key = ArenaKey { spec, element, filling, fresh };
            let memory = memories.iter().position(|known| *known == key).unwrap_or_else(|| {
                memories.push(key);
                needed.push([0; ZONES]);
                memories.len() - 1
            });
            if let Some(pitch) = pitch {
                let start = index * pitch;
                needed[memory][Zone::Stored as usize] = start + length;
                return Place { memory, zone: Zone::Stored, start };
            }
            let zone = Zone::of(stream);
            let shift = if beyond_first_level { index * line } else { 0 };
            let used = &mut needed[memory][zone as usize];
            let start = used.next_multiple_of(unit) + shift + off;
            *used = start + length;
            Place { memory, zone, start }
        };
        let places: Vec<Place> = streams.iter().enumerate().map(place).collect();
        let held = |place: &Place| Held { start: place.start, is_index: place.zone == Zone::Index };
        let (rows, columns, held) = (rows as usize, columns as usize, places.iter().map(held).collect());
        let contents = Contents { rows, columns, filling, order: formula.order, streams: held };
        Layout { memories, places, contents, needed }
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
    /// Has so many elements touched, and those hold their numbers that were not; what may not be written to stays as it is.
    fn reach(&mut self, key: ArenaKey, elements: usize) -> Result<FirstTouch, TakenAway> {
        let new = self.elements..elements.max(self.elements);
        let mut first = FirstTouch::default();
        if !new.is_empty() && self.region.is_writable() {
            let range = key.bytes(new.start).0 as usize..key.bytes(new.end).0 as usize;
            first = touch::first(&mut self.region, range)?;
            touch::touch(&mut self.region, |contents| fill(contents, key.element, key.filling, new))?;
            self.indices.clear();
        }
        self.elements = self.elements.max(elements);
        Ok(first)
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
        touch::touch(&mut zone.region, |contents| fill_index(contents, element, order, range))
    }

    /// Works on what a zone holds; on nothing, where it is not mapped.
    fn touch<R>(&mut self, zone: Zone, work: impl FnOnce(&mut [u8]) -> R) -> Result<R, TakenAway> {
        match &mut self.zones[zone as usize] {
            Some(zone) => touch::touch(&mut zone.region, work),
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
    /// Whether all of that can be mapped at once. A few threads have more each than many have of the same working set: where it can't,
    /// what was mapped for them would be missing elsewhere.
    has_room_for_most: bool,
    /// What stands behind memory of a kind: itself, unless somebody else makes the kind out of another.
    behind: fn(MemorySpec) -> MemorySpec,
    places: Places,
}

impl Arenas {
    /// No arenas yet. `behind` says which memory of this process a kind is made of.
    pub fn new(places: Places, behind: fn(MemorySpec) -> MemorySpec) -> Self {
        Arenas { kept: HashMap::new(), most: HashMap::new(), has_room_for_most: true, behind, places }
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
        let kept = self.most.iter().filter(|((_, key), _)| !key.fresh);
        let all = kept.flat_map(|(_, zones)| zones).map(|bytes| bytes.0).fold(0, u64::saturating_add);
        self.has_room_for_most = self.places.allowance.has_room_for(Bytes(all));
    }

    /// The memory of the thread on `cpu`.
    pub fn arrays<'a>(
        &mut self,
        cpu: u32,
        kernel: &'static Kernel,
        layout: &'a Layout,
    ) -> Result<Arrays<'a>, NoMemory> {
        let arenas: Result<Vec<Arena>, NoMemory> =
            layout.arenas().map(|(key, bytes)| self.take((cpu, key), bytes)).collect();
        Ok(Arrays { kernel, layout, arenas: arenas?, touched: FirstTouch::default() })
    }

    fn take(&mut self, key: (u32, ArenaKey), bytes: [Bytes; ZONES]) -> Result<Arena, NoMemory> {
        let expected = if key.1.fresh || !self.has_room_for_most { None } else { self.most.get(&key) };
        let kept = self.kept.remove(&key).filter(|arena| larger(arena.bytes(), bytes) == arena.bytes());
        if let Some(arena) = kept.and_then(|mut arena| arena.take_back().is_ok().then_some(arena)) {
            return Ok(arena);
        }
        let behind = ArenaKey { spec: (self.behind)(key.1.spec), ..key.1 };
        let arena = |bytes| Arena::new(behind, bytes, &self.places);
        // Where there is too little memory for the largest case, the others go on.
        arena(larger(bytes, expected.copied().unwrap_or_default())).or_else(|_| arena(bytes))
    }

    /// Keeps a thread's memory for the next case, all but what was fresh.
    pub fn keep(&mut self, cpu: u32, mut arrays: Arrays<'_>) {
        arrays.unmap();
        let keys = arrays.layout.memories.iter().map(|key| (cpu, *key));
        self.kept.extend(keys.zip(arrays.arenas));
    }

    /// Gives all pages back: the next cases get others.
    pub fn give_back(&mut self) {
        self.kept.values_mut().for_each(Arena::give_back);
    }
}

fn larger(left: [Bytes; ZONES], right: [Bytes; ZONES]) -> [Bytes; ZONES] {
    std::array::from_fn(|zone| left[zone].max(right[zone]))
}

/// The arrays that a thread works on, in place: an arena for each of the layout's memories.
#[derive(Debug)]
pub struct Arrays<'a> {
    kernel: &'static Kernel,
    layout: &'a Layout,
    /// In the order of the layout's memories.
    arenas: Vec<Arena>,
    touched: FirstTouch,
}

impl Arrays<'_> {
    /// What was obtained for all streams.
    pub fn obtained(&mut self) -> Obtained {
        self.arenas.iter_mut().map(Arena::obtained).reduce(Obtained::and).unwrap_or_default()
    }

    /// Touches the layout's pages from the calling thread and makes every stream that is read hold the pattern; fresh
    /// memory stays untouched. Returns the streams' addresses.
    pub fn prepare(&mut self) -> Result<Vec<u64>, TakenAway> {
        self.touched = FirstTouch::default();
        for (arena, needed) in self.arenas.iter_mut().zip(&self.layout.needed) {
            for (zone, &needed) in arena.zones.iter_mut().zip(needed) {
                let Some(zone) = zone else { continue };
                if arena.key.fresh {
                    zone.elements = needed;
                    continue;
                }
                if needed > zone.elements {
                    arena.obtained = None;
                }
                self.touched.add(zone.reach(arena.key, needed)?);
            }
        }
        let (length, order) = (self.layout.contents.length(), self.layout.contents.order);
        for (stream, place) in self.kernel.formula().streams.iter().zip(&self.layout.places) {
            let arena = &mut self.arenas[place.memory];
            let (key, range) = (arena.key, place.start..place.start + length);
            if place.zone == Zone::Index {
                arena.index(order, range)?;
            } else if stream.loaded && place.zone == Zone::Stored && !key.fresh {
                // A stream changed in place was left by another case as that one pleased.
                arena.touch(place.zone, |contents| fill(contents, key.element, key.filling, range))?;
            }
        }
        Ok(self.addresses())
    }

    /// What was touched for the first time when the arrays were prepared last.
    pub fn touched(&self) -> FirstTouch {
        self.touched
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
        } else if places().any(|place| place.zone == Zone::Index) && self.layout.contents.length() > least_index {
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
    pub fn check(&mut self, variant: &Variant, call: &Call, passes: u64, every: bool) -> Result<bool, NoVisit> {
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
        let expected = Expected::new(twin(&formula, variant, call), &self.layout.contents, passes);
        let mut is_told = true;
        for (statement, access) in stores(&formula) {
            let Place { memory, zone, .. } = self.layout.places[access.stream];
            let checked =
                self.arenas[memory].touch(zone, |contents| expected.check(contents, statement, access, every))?;
            is_told &= checked.map_err(NoVisit::Wrong)?;
        }
        let results = call.results(&formula, variant);
        if !formula.sums.is_empty() {
            let totals = self.totals(variant, call);
            let additions = call.most_additions(&formula, variant);
            for (found, total) in results.iter().zip(&totals) {
                total.check(*found, variant.element, additions).map_err(NoVisit::Wrong)?;
            }
        } else if let [found] = results[..] {
            expected.check_last(found).map_err(NoVisit::Wrong)?;
        }
        Ok(is_told)
    }

    /// Refuses a reduction whose result could not be checked.
    pub fn check_exact(&mut self, variant: &Variant, call: &Call) -> Result<(), NoVisit> {
        let additions = call.most_additions(&self.kernel.formula(), variant);
        let totals = self.totals(variant, call);
        match totals.iter().all(|total| total.tolerance(variant.element, additions).is_some()) {
            true => Ok(()),
            false => Err(NoVisit::impossible(format!(
                "partial sums of so many elements of type {} are not exact, so they can't be checked; give a wider \
                 --width, a smaller --size or --element double",
                variant.element
            ))),
        }
    }

    /// What one pass must add up to.
    fn totals(&mut self, variant: &Variant, call: &Call) -> Vec<Total> {
        let (formula, layout, name) = (self.kernel.formula(), self.layout, self.kernel.name);
        let work_out = || Expected::new(twin(&formula, variant, call), &layout.contents, 1).totals();
        match self.arenas.first_mut() {
            Some(arena) if formula.gathers() && !formula.sums.is_empty() => {
                let starts = layout.places.iter().map(|place| place.start).collect();
                arena.totals.entry((name, starts, layout.contents.length())).or_insert_with(work_out).clone()
            }
            _ => work_out(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::allowance::Allowance;
    use membound_core::case::{USUAL_MEMORY, steady};
    use membound_core::kernel::{StoreKind, Width};

    /// One thread alone has more than each of two: memory for the largest case of each CPU is more than there may be at once.
    #[test]
    fn what_one_thread_alone_wants_is_not_missing_for_two() {
        let load = |cpus: &[u32], mib| {
            steady("load", Width::Scalar, StoreKind::Regular, USUAL_MEMORY, cpus.to_vec(), Bytes::mib(mib))
        };
        let (alone, both) = (load(&[0], 50), load(&[0, 1], 40));
        let kernel = Kernel::named("load").unwrap();
        let outcomes = |most: Bytes| {
            let places = Places { allowance: Allowance::of(most), ..Places::default() };
            let mut arenas = Arenas::new(places, |spec| spec);
            arenas.expect(&[alone.clone(), both.clone()]);
            let mut outcome = |case: &Case| {
                let layout = Layout::new(kernel, Element::Double, case);
                let arrays: Result<Vec<Arrays<'_>>, NoMemory> =
                    case.cpus.iter().map(|&cpu| arenas.arrays(cpu, kernel, &layout)).collect();
                let bytes = arrays
                    .as_ref()
                    .map_or(0, |all| all.iter().flat_map(Arrays::mappings).map(|mapping| mapping.bytes.0 >> 20).sum());
                case.cpus.iter().zip(arrays.into_iter().flatten()).for_each(|(&cpu, arrays)| arenas.keep(cpu, arrays));
                bytes
            };
            [outcome(&both), outcome(&alone)]
        };
        // With room for all, the first visit maps what the second will want; without, each what it needs.
        assert_eq!(outcomes(Bytes::mib(80)), [70, 50]);
        assert_eq!(outcomes(Bytes::mib(72)), [70, 50]);
        assert_eq!(outcomes(Bytes::mib(69))[0], 40);
        assert_eq!(outcomes(Bytes::mib(30))[0], 0, "more than there may be");
    }
}
