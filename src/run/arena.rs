//! A thread's memory: where the streams of a kernel lie in it, what they hold, and whether the kernel left behind what
//! its naive twin says.
//!
//! ```text
//! region   | a ............ | gap | b ............ | gap | c ............ |     untouched     |
//!          0                                                              ^touched            ^mapped
//! ```
//! Every element that no kernel wrote holds [`pattern`] of its place in the region, small whole numbers, so that all
//! results are exact and any window can be checked without a copy. What a kernel wrote is remembered as `dirty` and
//! put back before a kernel reads it.

use std::ops::Range;

use crate::kernel::code::Call;
use crate::kernel::formula::{Formula, Target};
use crate::kernel::{ELEMENT_BYTES, Kernel, StoreKind, Variant, naive};
use crate::memory::{NoMemory, Obtained, Region};
use crate::memory::MemorySpec;
use crate::units::Bytes;

/// Elements of the pattern; a prime, so that no shift by a vector, line or page goes unnoticed.
const PERIOD: usize = 61;

/// The number at place `word` of a region that nothing has written to.
pub fn pattern(word: usize) -> f64 {
    ((word % PERIOD) * 7 % 13) as f64 - 3.0
}

/// Where a kernel's streams lie in a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// First element of each stream.
    pub starts: Vec<usize>,
    /// Rows of each stream; 1 for plain arrays.
    pub rows: usize,
    /// Elements of a row.
    pub columns: usize,
    /// Elements from the region's start to the end of the last stream.
    pub words: usize,
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
        let streams = kernel.formula().streams.len();
        let elements = (working_set.0 / ELEMENT_BYTES / streams as u64).max(1);
        let (rows, columns) = kernel.shape(elements);
        let length = (rows * columns) as usize;
        let beyond_first_level = length >= 16 * PAGE;
        let unit = if beyond_first_level || length % PAGE == 0 { PAGE } else { LINE };
        let off = (u64::from(misaligned_bytes) / ELEMENT_BYTES) as usize;
        let mut starts = Vec::new();
        let mut next = 0usize;
        for stream in 0..streams {
            let shift = if beyond_first_level { stream * LINE } else { 0 };
            starts.push(next.next_multiple_of(unit) + shift + off);
            next = starts[stream] + length;
        }
        Layout { starts, rows: rows as usize, columns: columns as usize, words: next.next_multiple_of(LINE) }
    }

    fn length(&self) -> usize {
        self.rows * self.columns
    }

    fn range(&self, stream: usize) -> Range<usize> {
        self.starts[stream]..self.starts[stream] + self.length()
    }
}

/// A region and what is known of its contents.
#[derive(Debug)]
pub struct Arena {
    region: Region,
    /// Elements from the start that hold the pattern or are dirty.
    touched: usize,
    /// Elements that kernels may have written.
    dirty: Range<usize>,
    obtained: Option<Obtained>,
}

impl Arena {
    /// Maps memory; touches nothing.
    pub fn new(spec: MemorySpec, bytes: Bytes) -> Result<Self, NoMemory> {
        Ok(Arena { region: Region::new(spec, bytes)?, touched: 0, dirty: 0..0, obtained: None })
    }

    /// Bytes mapped.
    pub fn bytes(&self) -> Bytes {
        self.region.bytes()
    }

    /// Makes all streams hold the pattern, touching new pages from the calling thread. Returns their addresses.
    pub fn prepare(&mut self, formula: &Formula, layout: &Layout) -> Vec<u64> {
        let loaded = (0..formula.streams.len()).filter(|&s| formula.streams[s].loaded).map(|s| layout.range(s));
        let stale = loaded.filter(|range| range.start < self.dirty.end && self.dirty.start < range.end).count() > 0;
        let words = self.region.words();
        if stale {
            fill(words, self.dirty.clone());
            self.dirty = 0..0;
        }
        if layout.words > self.touched {
            fill(words, self.touched..layout.words);
            self.touched = layout.words;
            self.obtained = None;
        }
        let address = self.region.address();
        layout.starts.iter().map(|start| address + *start as u64 * ELEMENT_BYTES).collect()
    }

    /// Notes that a kernel is about to write its stored stream.
    pub fn will_write(&mut self, formula: &Formula, layout: &Layout) {
        if let Some(access) = formula.store() {
            let range = layout.range(access.stream);
            self.dirty = if self.dirty.is_empty() {
                range
            } else {
                self.dirty.start.min(range.start)..self.dirty.end.max(range.end)
            };
        }
    }

    /// Pages obtained so far; looked up again only when new ones were touched.
    pub fn obtained(&mut self) -> Obtained {
        let touched = Bytes(self.touched as u64 * ELEMENT_BYTES);
        self.obtained.get_or_insert_with(|| self.region.inspect(touched)).clone()
    }

    /// Compares what `passes` passes left behind with the naive twin: first and last window and some between, or every
    /// element. `Err` says which element differs.
    pub fn check(&mut self, kernel: &Kernel, variant: &Variant, layout: &Layout, call: &Call, passes: u64, every: bool) -> Result<(), String> {
        let formula = kernel.formula();
        match formula.target {
            Target::Element(access) => self.check_stored(kernel, layout, access.stream, call.scalar, passes, every),
            Target::Sum | Target::Nothing => check_result(kernel, &formula, variant, layout, call),
        }
    }

    fn check_stored(&mut self, kernel: &Kernel, layout: &Layout, stored: usize, s: f64, passes: u64, every: bool) -> Result<(), String> {
        let s = scalar_after(kernel, s, passes);
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
        let words = self.region.words();
        for (row, column) in places {
            let (height, first) = (if grid { 3 } else { 1 }, row * columns + column);
            let place = |stream: usize, r: usize, c: usize| layout.starts[stream] + first + r * columns + c;
            let mut twin: Vec<Vec<f64>> = (0..layout.starts.len())
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
fn check_result(kernel: &Kernel, formula: &Formula, variant: &Variant, layout: &Layout, call: &Call) -> Result<(), String> {
    let length = layout.length();
    let part = |from: usize, n: usize| -> Result<f64, String> {
        let mut twin: Vec<Vec<f64>> = layout.starts.iter().map(|s| (from..from + n).map(|i| pattern(s + i)).collect()).collect();
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

/// Whether the kernel's stores bypass the caches.
pub fn stores_around_caches(variant: &Variant) -> bool {
    matches!(variant.store, StoreKind::Nt | StoreKind::NtMasked)
}
