//! Whether a kernel left behind what it must: what memory holds before, and what its naive twin says of it afterwards.
//! Knows elements and bytes, no memory of its own: where streams lie is the matter of `arena`.

use std::borrow::Cow;
use std::ops::Range;

use crate::code::Call;
use membound_core::kernel::catalog::Kernel;
use membound_core::kernel::formula::{Access, Formula, IndexOrder, Target};
use membound_core::kernel::naive::{Total, Twin, is_same};
use membound_core::kernel::{Element, Variant, naive};

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

/// What a kernel's streams hold, if nothing was written to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// Rows of each stream; 1 for plain arrays.
    pub rows: usize,
    /// Elements of a row.
    pub columns: usize,
    /// What streams hold that are no indices.
    pub filling: Filling,
    /// What index streams hold.
    pub order: IndexOrder,
    /// Each stream's part of memory.
    pub streams: Vec<Held>,
}

/// What a stream holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Its first element's place in memory, counted in elements.
    pub start: usize,
    /// Whether it holds places in others.
    pub is_index: bool,
}

impl Contents {
    /// Elements of a stream.
    pub fn length(&self) -> usize {
        self.rows * self.columns
    }

    /// What a stream holds at a place.
    fn number(&self, stream: usize, at: usize) -> f64 {
        match self.streams[stream] {
            Held { is_index: true, .. } => naive::index(self.order, at, self.length()) as f64,
            Held { start, .. } => self.filling.number(start + at),
        }
    }
}

/// The loop in plain Rust, as this machine computes it.
pub(crate) fn twin<'a>(formula: &'a Formula, variant: &Variant, call: &Call) -> Twin<'a> {
    Twin::new(formula, variant.element, call.scalar, crate::asm::detect())
}

/// The statements that store, by number, and where to.
pub(crate) fn stores(formula: &Formula) -> impl Iterator<Item = (usize, Access)> {
    formula.statements.iter().enumerate().filter_map(|(number, statement)| match statement.target {
        Target::Element(access) => Some((number, access)),
        Target::Sum(_) | Target::Nothing => None,
    })
}

/// What a kernel must leave behind after so many passes.
pub(crate) struct Expected<'a> {
    twin: Twin<'a>,
    contents: &'a Contents,
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
    pub fn new(twin: Twin<'a>, contents: &'a Contents, passes: u64) -> Self {
        let mut changed_by = vec![None; twin.formula.streams.len()];
        for (statement, access) in stores(twin.formula) {
            changed_by[access.stream] = twin.formula.streams[access.stream].loaded.then_some(statement);
        }
        let passes = if changed_by.iter().any(Option::is_some) { passes } else { 1 };
        let mut expected = Expected { twin, contents, passes, changed_by, period: Vec::new() };
        if !twin.formula.gathers() {
            // The first place that is computed, and those after it as if all were one row.
            let first = expected.rows().start * contents.columns + expected.columns().start;
            let mut period = vec![None; PERIOD];
            (first..first + PERIOD).for_each(|at| period[at % PERIOD] = expected.after_passes(at));
            expected.period = period;
        }
        expected
    }

    /// The rows that are computed.
    fn rows(&self) -> Range<usize> {
        let margins = self.twin.formula.margins();
        margins.above as usize..self.contents.rows.saturating_sub(margins.below as usize)
    }

    /// The elements of a row that are computed.
    fn columns(&self) -> Range<usize> {
        let margins = self.twin.formula.margins();
        margins.left as usize..self.contents.columns.saturating_sub(margins.right as usize)
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
        let place = naive::Place { row: 0, column: at, columns: self.contents.columns };
        self.twin.values(place, &|stream, at| match (self.changed_by[stream], before) {
            (Some(statement), Some(before)) => before[statement],
            _ => self.contents.number(stream, at),
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
            let first = naive::Place { row: 0, column: at, columns: self.contents.columns };
            let step = values[statement] - self.contents.number(access.stream, first.number(access.row, access.column));
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
    pub fn check(&self, contents: &[u8], statement: usize, access: Access, every: bool) -> Result<bool, String> {
        let (held, element) = (self.contents, self.twin.element);
        let bytes = element.bytes() as usize;
        let (mut is_told, is_changed) = (true, self.changed_by[access.stream].is_some());
        let window = self.columns().len().min(WINDOW);
        for (row, column) in windows(&self.rows(), &self.columns(), window, every) {
            let first = naive::Place { row, column, columns: held.columns };
            let start = first.number(access.row, access.column);
            let from = held.streams[access.stream].start + start;
            let found = element.decode(&contents[from * bytes..(from + window) * bytes]);
            for (k, &found) in found.iter().enumerate() {
                let values = self.values(row * held.columns + column + k);
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
    pub fn check_last(&self, found: f64) -> Result<(), String> {
        let last = self.rows().end.saturating_sub(1) * self.contents.columns + self.columns().end.saturating_sub(1);
        let expect = self.values(last).map_or(f64::NAN, |values| values[0]);
        if is_same(found, expect) {
            return Ok(());
        }
        Err(format!("data check failed: the result is {found}, must be {expect}"))
    }

    /// What each sum must come to in one pass.
    pub fn totals(&self) -> Vec<Total> {
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

/// Fills a part of memory with a filling's numbers.
pub(crate) fn fill(contents: &mut [u8], element: Element, filling: Filling, range: Range<usize>) {
    let bytes = element.bytes() as usize;
    let period: Vec<f64> = (0..PERIOD).map(|k| filling.number(range.start + k)).collect();
    let period = element.encode(&period);
    for chunk in contents[range.start * bytes..range.end * bytes].chunks_mut(period.len()) {
        chunk.copy_from_slice(&period[..chunk.len()]);
    }
}

/// Fills a part of memory with places below its length.
pub(crate) fn fill_index(contents: &mut [u8], element: Element, order: IndexOrder, range: Range<usize>) {
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
    use membound_core::case::usual;
    use membound_core::kernel::formula::{Role, Stream};
    use membound_core::kernel::{StoreKind, Variant, Width};

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
        Variant { element, unroll: 4, ..usual(name, Width::W128, StoreKind::Regular) }
    }

    /// Streams of some KiB, each on a line of its own.
    fn contents(name: &str, element: Element) -> (&'static Kernel, Contents) {
        let kernel = Kernel::find(name).unwrap();
        let formula = kernel.formula();
        let (rows, columns) = kernel.shape(30 * 1024 / element.bytes() / formula.streams.len() as u64, element);
        let (rows, columns, line) = (rows as usize, columns as usize, element.in_line() as usize);
        let held = |(index, stream): (usize, &Stream)| Held {
            start: index * ((rows * columns).next_multiple_of(line) + line),
            is_index: stream.role == Role::Index,
        };
        let streams = formula.streams.iter().enumerate().map(held).collect();
        (kernel, Contents { rows, columns, filling: Filling::of(&formula), order: formula.order, streams })
    }

    fn expected<'a>(
        formula: &'a Formula,
        contents: &'a Contents,
        element: Element,
        scalar: f64,
        passes: u64,
    ) -> Expected<'a> {
        Expected::new(Twin { formula, element, scalar, fuses: true, contracts: true }, contents, passes)
    }

    #[test]
    fn a_wrong_element_is_found() {
        let own = ["a[i] = b[i+3]*c[i-2] - s", "a[i] = sqrt(b[i])/c[i]", "a[i] = b[k[i]]"];
        for (name, &element) in ["triad", "update", "jacobi", "jacobi-long"]
            .into_iter()
            .chain(own)
            .flat_map(|name| Element::ALL.iter().map(move |element| (name, element)))
        {
            let (kernel, held) = contents(name, element);
            let (formula, bytes) = (kernel.formula(), element.bytes() as usize);
            let answer = expected(&formula, &held, element, 3.0, 1);
            let numbers = |stream: usize| (0..held.length()).map(|at| held.number(stream, at)).collect();
            let mut twin: Vec<Vec<f64>> = (0..held.streams.len()).map(numbers).collect();
            answer.twin.pass(&mut twin, held.rows, held.columns);
            let start = held.streams[0].start * bytes;
            let mut contents = vec![0; start + held.length() * bytes];
            contents[start..].copy_from_slice(&element.encode(&twin[0]));
            let access = formula.store().unwrap();
            let check = |contents: &[u8]| answer.check(contents, 0, access, true);
            assert_eq!(check(&contents), Ok(true), "{name} {element}");
            let (rows, columns) = (answer.rows(), answer.columns());
            let first = rows.start * held.columns + columns.start;
            for wrong in [first, (rows.end - 1) * held.columns + columns.end - 1] {
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
            let (kernel, held) = contents(text, element);
            let formula = kernel.formula();
            let answer = expected(&formula, &held, element, 1.0, passes);
            let access = formula.store().unwrap();
            for at in [0, 1, 2, 17, PERIOD + 17] {
                let numbers = |stream: usize| vec![held.number(stream, at)];
                let mut twin: Vec<Vec<f64>> = (0..held.streams.len()).map(numbers).collect();
                // Whoever counts in ones does so exactly until near the end.
                let counted = passes.saturating_sub(1000);
                twin[access.stream][0] += counted as f64;
                (counted..passes).for_each(|_| drop(answer.twin.pass(&mut twin, 1, 1)));
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
                let (kernel, held) = contents(name, element);
                let formula = kernel.formula();
                let totals = expected(&formula, &held, element, 3.0, 1).totals();
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
            let (kernel, held) = contents(name, Element::Double);
            let formula = kernel.formula();
            let answer = expected(&formula, &held, Element::Double, 3.0, 1);
            let numbers = |stream: usize| (0..held.length()).map(|at| held.number(stream, at)).collect();
            let mut streams: Vec<Vec<f64>> = (0..held.streams.len()).map(numbers).collect();
            let all = answer.twin.pass(&mut streams, 1, held.columns).sums;
            for (total, expect) in answer.totals().into_iter().zip(all) {
                assert!((total.sum - expect.sum).abs() <= 1e-12 * expect.magnitude, "{name}: {total:?} {expect:?}");
                assert!((total.magnitude - expect.magnitude).abs() <= 1e-12 * expect.magnitude, "{name}");
            }
        }
    }

    #[test]
    fn a_reduction_that_may_be_rounded_is_refused() {
        let (kernel, held) = contents("dot", Element::Float);
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
            let total = expected(&formula, &held, Element::Float, 3.0, 1).totals().remove(0);
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
