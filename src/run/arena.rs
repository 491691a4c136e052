//! A thread's memory: where the streams of a kernel lie in it, what they hold, and whether the kernel left behind what
//! its naive twin says.
//!
//! ```text
//! stored | a ............ |        untouched        |      streams that kernels write
//! loaded | b ............ | c ............ |  ...   |      streams that they only read
//! ```
//! Every element that no kernel wrote holds [`pattern`] of its place, small whole numbers, so that all results are exact
//! and any window can be checked without a copy. Kernels never write to `loaded`, so it is filled once for all cases.

use std::ops::Range;

use crate::kernel::code::Call;
use crate::kernel::formula::{Formula, Target};
use crate::kernel::{ELEMENT_BYTES, Kernel, Variant, naive};
use crate::memory::MemorySpec;
use crate::memory::{NoMemory, Obtained, Region};
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

/// Where a kernel's streams lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Region and first element of each stream.
    places: Vec<(Zone, usize)>,
    /// Rows of each stream; 1 for plain arrays.
    pub rows: usize,
    /// Elements of a row.
    pub columns: usize,
    /// Elements needed of each region: stored, loaded.
    words: [usize; 2],
}

impl Layout {
    /// Divides `working_set` bytes among the streams of `kernel`.
    ///
    /// Equal elements of two streams should have equal places in a 4 KiB page: then a load never has the low 12
    /// address bits of a store that is still under way (4 KiB aliasing cost up to a quarter of the triad's speed in L1
    /// on Zen 4), and neighbouring loads use one L1 bank alike. So streams start on pages where that wastes little,
    /// else on lines. Beyond the first level each stream starts one line further, so that equal elements do not all
    /// lie on one memory controller (as on the UltraSPARC T2).
    pub fn new(kernel: &Kernel, working_set: Bytes, misaligned_bytes: u32) -> Layout {
        const LINE: usize = 64 / ELEMENT_BYTES as usize;
        const PAGE: usize = 4096 / ELEMENT_BYTES as usize;
        let streams = kernel.formula().streams;
        let elements = (working_set.0 / ELEMENT_BYTES / streams.len() as u64).max(1);
        let (rows, columns) = kernel.shape(elements);
        let length = (rows * columns) as usize;
        let beyond_first_level = length >= 16 * PAGE;
        let unit = if beyond_first_level || length.is_multiple_of(PAGE) { PAGE } else { LINE };
        let off = (u64::from(misaligned_bytes) / ELEMENT_BYTES) as usize;
        let (mut places, mut words) = (Vec::new(), [0usize; 2]);
        for (index, stream) in streams.iter().enumerate() {
            let zone = if stream.stored { Zone::Stored } else { Zone::Loaded };
            let shift = if beyond_first_level { index * LINE } else { 0 };
            let start = words[zone as usize].next_multiple_of(unit) + shift + off;
            places.push((zone, start));
            words[zone as usize] = start + length;
        }
        Layout { places, rows: rows as usize, columns: columns as usize, words }
    }

    /// Bytes needed of each region: stored, loaded.
    pub fn bytes(&self) -> [Bytes; 2] {
        self.words.map(|words| Bytes(words as u64 * ELEMENT_BYTES))
    }

    fn length(&self) -> usize {
        self.rows * self.columns
    }
}

/// A region and how far it was touched.
#[derive(Debug)]
struct Touched {
    region: Region,
    words: usize,
}

impl Touched {
    fn reach(&mut self, words: usize) -> bool {
        let grows = words > self.words;
        if grows {
            fill(self.region.words(), self.words..words);
            self.words = words;
        }
        grows
    }
}

/// A thread's two regions and what was obtained for them.
#[derive(Debug)]
pub struct Arena {
    zones: [Touched; 2],
    obtained: Option<Obtained>,
}

impl Arena {
    /// Maps memory; touches nothing.
    pub fn new(spec: MemorySpec, bytes: [Bytes; 2]) -> Result<Self, NoMemory> {
        let zone = |bytes| Ok(Touched { region: Region::new(spec, bytes)?, words: 0 });
        Ok(Arena { zones: [zone(bytes[0])?, zone(bytes[1])?], obtained: None })
    }

    /// Bytes mapped: stored, loaded.
    pub fn bytes(&self) -> [Bytes; 2] {
        [self.zones[0].region.bytes(), self.zones[1].region.bytes()]
    }

    /// Touches the layout's pages from the calling thread and makes every stream that is read hold the pattern.
    /// Returns the streams' addresses.
    pub fn prepare(&mut self, formula: &Formula, layout: &Layout) -> Vec<u64> {
        for (zone, words) in self.zones.iter_mut().zip(layout.words) {
            if zone.reach(words) {
                self.obtained = None;
            }
        }
        for (stream, &(zone, start)) in formula.streams.iter().zip(&layout.places) {
            // A stream changed in place was left by another case as that one pleased.
            if stream.loaded && zone == Zone::Stored {
                fill(self.zones[zone as usize].region.words(), start..start + layout.length());
            }
        }
        let address =
            |&(zone, start): &(Zone, usize)| self.zones[zone as usize].region.address() + start as u64 * ELEMENT_BYTES;
        layout.places.iter().map(address).collect()
    }

    /// Pages obtained so far; looked up again only when new ones were touched.
    pub fn obtained(&mut self) -> Obtained {
        let zones = &self.zones;
        let look_up = || {
            let inspect = |zone: &Touched| zone.region.inspect(Bytes(zone.words as u64 * ELEMENT_BYTES));
            inspect(&zones[0]).and(inspect(&zones[1]))
        };
        self.obtained.get_or_insert_with(look_up).clone()
    }

    /// Compares what `passes` passes left behind with the naive twin: first and last window and some between, or every
    /// element. `Err` says which element differs.
    pub fn check(
        &mut self,
        kernel: &Kernel,
        variant: &Variant,
        layout: &Layout,
        call: &Call,
        passes: u64,
        every: bool,
    ) -> Result<(), String> {
        let formula = kernel.formula();
        match formula.target {
            Target::Element(access) => self.check_stored(kernel, layout, access.stream, call.scalar, passes, every),
            Target::Sum | Target::Nothing => check_result(kernel, &formula, variant, layout, call),
        }
    }

    fn check_stored(
        &mut self,
        kernel: &Kernel,
        layout: &Layout,
        stored: usize,
        s: f64,
        passes: u64,
        every: bool,
    ) -> Result<(), String> {
        let s = scalar_after(kernel, s, passes);
        let (grid, columns) = (layout.rows > 1, layout.columns);
        let window = columns.min(66);
        // A grid's window is the middle one of three rows; it moves by its inside, so that all inner elements are seen.
        let step = if grid { (window - 2).max(1) } else { window };
        let last = columns - window;
        let rows: Vec<usize> = if grid { (0..=layout.rows - 3).collect() } else { vec![0] };
        let mut places: Vec<(usize, usize)> = rows
            .iter()
            .flat_map(|&row| (0..=last).step_by(step).chain([last]).map(move |column| (row, column)))
            .collect();
        if !every {
            let keep = places.len().div_ceil(16).max(1);
            let end = places.len() - 1;
            places = places.iter().enumerate().filter(|(i, _)| i % keep == 0 || *i == end).map(|(_, p)| *p).collect();
        }
        let zone = layout.places[stored].0;
        let words = self.zones[zone as usize].region.words();
        for (row, column) in places {
            let (height, first) = (if grid { 3 } else { 1 }, row * columns + column);
            let place = |stream: usize, r: usize, c: usize| layout.places[stream].1 + first + r * columns + c;
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
            layout.places.iter().map(|(_, s)| (from..from + n).map(|i| pattern(s + i)).collect()).collect();
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
