//! The answer key: what a loop's tree says, worked out one element after the other. It shares the tree with the
//! assembler, and nothing else. Numbers are rounded to elements after every operation, as the machine code's are.
//!
//! Doubles stand in for floats: an operation on two floats, done in doubles and rounded to a float, gives the float that
//! the operation itself would (S. A. Figueroa, "When is double rounding innocuous?", 1995: p' >= 2p + 2 bits suffice for
//! + - * / and the root; doubles have 53, floats 24). Only fused operations are done in floats.

use crate::kernel::Element;
use crate::kernel::formula::{Expr, Formula, Function, IndexOrder, Operation, Target};
use crate::kernel::isa::Isa;

/// A loop and the numbers that it works with.
#[derive(Debug, Clone, Copy)]
pub struct Twin<'a> {
    /// The loop.
    pub formula: &'a Formula,
    /// What its streams are arrays of.
    pub element: Element,
    /// The value of its scalars.
    pub scalar: f64,
    /// Whether the machine code rounds `fma(x, y, z)` once.
    pub fuses: bool,
    /// Whether it does so with `x*y + z`, too.
    pub contracts: bool,
}

impl<'a> Twin<'a> {
    /// Of machine code for these instructions.
    pub fn new(formula: &'a Formula, element: Element, scalar: f64, isa: Isa) -> Self {
        Twin { formula, element, scalar, fuses: isa.fma, contracts: isa.contracts(formula.store().is_some()) }
    }
}

/// Where elements lie: the first of a row, and elements from one row to the next. A plain array is one row.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// Row.
    pub row: usize,
    /// Element of the row.
    pub column: usize,
    /// Elements of a row.
    pub columns: usize,
}

impl Twin<'_> {
    /// The values of all statements at `place`. `read` gives an element of a stream by its number. What is added to a sum
    /// is rounded to an element here; fused machine code does not round it.
    pub fn values(&self, place: Place, read: &dyn Fn(usize, usize) -> f64) -> Vec<f64> {
        self.formula.statements.iter().map(|statement| self.value(&statement.value, place, read)).collect()
    }

    fn value(&self, expr: &Expr, place: Place, read: &dyn Fn(usize, usize) -> f64) -> f64 {
        let value = |expr: &Expr| self.value(expr, place, read);
        let number = match expr {
            Expr::Element(access) => return read(access.stream, place.number(access.row, access.column)),
            Expr::Gathered { stream, index } => {
                let index = read(index.stream, place.number(index.row, index.column));
                return read(*stream, index as usize);
            }
            Expr::Scalar(_) => self.scalar,
            Expr::Number(number) => *number,
            Expr::Unary(Function::Negate, operand) => -value(operand),
            Expr::Unary(Function::Absolute, operand) => value(operand).abs(),
            Expr::Unary(Function::Root, operand) => value(operand).sqrt(),
            Expr::MultiplyAdd(operands) => {
                let [x, y, z] = operands.each_ref().map(value);
                self.multiply_add(self.fuses, x, y, z)
            }
            Expr::Binary(operation, left, right) => match (operation, Expr::fused(left, right)) {
                (Operation::Add, Some(([x, y], addend))) => {
                    self.multiply_add(self.contracts, value(x), value(y), value(addend))
                }
                _ => compute(*operation, value(left), value(right)),
            },
        };
        self.rounded(number)
    }

    fn multiply_add(&self, is_fused: bool, x: f64, y: f64, z: f64) -> f64 {
        match (is_fused, self.element) {
            (true, Element::Double) => fused(x, y, z),
            (true, Element::Float) => libm::fmaf(x as f32, y as f32, z as f32).into(),
            (false, _) => self.rounded(x * y) + z,
        }
    }

    fn rounded(&self, number: f64) -> f64 {
        match self.element {
            Element::Double => number,
            Element::Float => (number as f32).into(),
        }
    }

    /// One pass over whole streams, in place; `columns` elements in each of `rows` rows.
    pub fn pass(&self, streams: &mut [Vec<f64>], rows: usize, columns: usize) -> Answer {
        let margins = self.formula.margins();
        let inner = |length: usize, before: u64, after: u64| before as usize..length.saturating_sub(after as usize);
        let mut answer = Answer { sums: vec![Total::default(); self.formula.sums.len()], last: None };
        for row in inner(rows, margins.above, margins.below) {
            for column in inner(columns, margins.left, margins.right) {
                let place = Place { row, column, columns };
                let values = self.values(place, &|stream, number| streams[stream][number]);
                for (statement, value) in self.formula.statements.iter().zip(values) {
                    match statement.target {
                        Target::Element(access) => {
                            streams[access.stream][place.number(access.row, access.column)] = value;
                        }
                        Target::Sum(sum) => answer.sums[sum].add(value, 1),
                        Target::Nothing => answer.last = Some(value),
                    }
                }
            }
        }
        answer
    }
}

/// What a pass leaves behind beside its streams.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// The sums, in the formula's order.
    pub sums: Vec<Total>,
    /// The last value, where the loop only loads.
    pub last: Option<f64>,
}

impl Answer {
    /// Compares it with what machine code left, whose partial sums took so many additions each. `Err` says what differs.
    pub fn check(&self, found: &[f64], element: Element, additions: u64) -> Result<(), String> {
        let last = found.iter().zip(self.last).find(|(found, last)| !is_same(**found, *last));
        if let Some((found, last)) = last {
            return Err(format!("the result is {found}, must be {last}"));
        }
        self.sums.iter().zip(found).try_for_each(|(total, found)| total.check(*found, element, additions))
    }
}

/// What a reduction adds up.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Total {
    /// The sum.
    pub sum: f64,
    /// What adding to `sum` lost so far.
    lost: f64,
    /// Sum of the addends' magnitudes.
    pub magnitude: f64,
    /// The largest of them.
    pub largest: f64,
    /// Whether some addends are no whole numbers.
    pub has_fractions: bool,
}

/// Additions by which partial sums become one (8 registers of 16 elements), roundings of an addend, and what is to spare.
const JOINING: u64 = 256;

impl Total {
    /// Adds `count` times `value`.
    pub fn add(&mut self, value: f64, count: u64) {
        let all = value * count as f64;
        // Compensated (Kahan), so that its own error is that of a few additions.
        let corrected = all - self.lost;
        let sum = self.sum + corrected;
        self.lost = (sum - self.sum) - corrected;
        self.sum = sum;
        self.magnitude += all.abs();
        self.largest = self.largest.max(value.abs());
        self.has_fractions |= value.fract() != 0.0;
    }

    /// How far a right result may be from the sum: not at all where no partial sum of so many additions can be rounded.
    /// Else the bound n u on the error of summation, relative to the sum of magnitudes (u = 2^-53 or 2^-24: Higham,
    /// Accuracy and Stability of Numerical Algorithms, section 4.2), for the additions to a partial sum and some more.
    /// `None`, where that bound would let results pass that are wrong by a quarter.
    pub fn tolerance(&self, element: Element, additions: u64) -> Option<f64> {
        let exact = element.exact_up_to();
        if !self.has_fractions && self.largest * additions as f64 <= exact {
            return Some(0.0);
        }
        let bound = (additions + JOINING) as f64 / exact;
        (bound <= 0.25).then_some(bound * self.magnitude)
    }

    /// Compares the sum with machine code's. `Err` says what differs.
    pub fn check(&self, found: f64, element: Element, additions: u64) -> Result<(), String> {
        let tolerance = self.tolerance(element, additions).unwrap_or(0.0);
        if (found - self.sum).abs() <= tolerance || is_same(found, self.sum) {
            return Ok(());
        }
        let within = if tolerance > 0.0 { format!(" within {tolerance:e}") } else { String::new() };
        Err(format!("data check failed: the result is {found}, must be {}{within}", self.sum))
    }
}

impl Place {
    /// The number of the element that an access from here reaches.
    pub fn number(self, rows_away: i32, columns_away: i32) -> usize {
        let away = rows_away as isize * self.columns as isize + columns_away as isize;
        (self.row * self.columns + self.column).wrapping_add_signed(away)
    }
}

/// What a processor computes. Its minimum and maximum take the second operand where a comparison does not hold, as with
/// numbers that are none (Intel 64 Software Developer's Manual, volume 2, MINPD and MAXPD).
fn compute(operation: Operation, left: f64, right: f64) -> f64 {
    match operation {
        Operation::Add => left + right,
        Operation::Subtract => left - right,
        Operation::Multiply => left * right,
        Operation::Divide => left / right,
        Operation::Minimum if left < right => left,
        Operation::Maximum if left > right => left,
        Operation::Minimum | Operation::Maximum => right,
    }
}

/// x * y + z, rounded once. Not the standard library's, which is the system's: the one of mingw-w64 rounds several times.
pub fn fused(x: f64, y: f64, z: f64) -> f64 {
    libm::fma(x, y, z)
}

/// Whether two results are the same, bit for bit. Numbers that are none are all alike: which of them comes out when two
/// meet depends on the order of operands.
pub fn is_same(left: f64, right: f64) -> bool {
    left.to_bits() == right.to_bits() || (left.is_nan() && right.is_nan())
}

/// What an index stream of `length` elements holds at `place`: every number below `length` once. The random order is a
/// permutation of the next power of two that maps bits onto bits (multiplying by an odd number, folding high bits onto
/// low ones), followed until it ends below `length`: no table, and no stride that a prefetcher could learn.
pub fn index(order: IndexOrder, place: usize, length: usize) -> usize {
    if order == IndexOrder::Sequential || length < 2 {
        return place;
    }
    let bits = usize::BITS - (length - 1).leading_zeros();
    let mask = (1u64 << bits) - 1;
    let mut at = place as u64;
    loop {
        for factor in [0x9e37_79b9_7f4a_7c15u64, 0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb] {
            at = at.wrapping_add(factor >> 32).wrapping_mul(factor) & mask;
            at ^= at >> (bits / 2 + 1).min(63);
        }
        if at < length as u64 {
            return at as usize;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::catalog::{CATALOG, Kernel};
    use crate::kernel::exact::Exact;
    use proptest::prelude::*;

    fn numbers(stream: usize, length: usize) -> Vec<f64> {
        (0..length).map(|i| ((i * 7 + stream * 5) % 13) as f64 - 3.0).collect()
    }

    /// The catalog once more, by hand and from the definitions, not from the texts.
    fn by_hand(name: &str, streams: &mut [Vec<f64>], s: f64, rows: usize, columns: usize) -> Option<Vec<f64>> {
        let [a, rest @ ..] = streams else { return None };
        let n = a.len();
        match (name, rest) {
            ("load", []) => return Some(vec![a[n - 1]]),
            ("store", []) => a.fill(s),
            ("init", []) => a.fill(0.0),
            ("copy", [b]) => (0..n).for_each(|i| a[i] = b[i]),
            ("scale", [b]) => (0..n).for_each(|i| a[i] = s * b[i]),
            ("add", [b, c]) => (0..n).for_each(|i| a[i] = b[i] + c[i]),
            ("triad", [b, c]) => (0..n).for_each(|i| a[i] = b[i] + s * c[i]),
            ("schoenauer", [b, c, d]) => (0..n).for_each(|i| a[i] = b[i] + c[i] * d[i]),
            ("update", []) => (0..n).for_each(|i| a[i] *= s),
            ("rewrite", []) => a.iter_mut().for_each(|x| *x = x.max(-*x)),
            ("daxpy", [b]) => (0..n).for_each(|i| a[i] += s * b[i]),
            ("sum", []) => return Some(vec![a.iter().sum()]),
            ("dot", [c]) => return Some(vec![(0..n).map(|i| a[i] * c[i]).sum()]),
            ("jacobi" | "jacobi-long", [b]) => {
                for j in 1..rows - 1 {
                    for i in 1..columns - 1 {
                        let at = j * columns + i;
                        a[at] = s * (b[at - 1] + b[at + 1] + b[at - columns] + b[at + columns]);
                    }
                }
            }
            _ => return None,
        }
        Some(Vec::new())
    }

    #[test]
    fn the_catalogs_texts_are_what_their_names_say() {
        for kernel in CATALOG {
            let formula = kernel.formula();
            let (rows, columns) = if formula.grid { (5, 9) } else { (1, 45) };
            let streams: Vec<Vec<f64>> = (0..formula.streams.len()).map(|stream| numbers(stream, 45)).collect();
            for (&element, fuses) in Element::ALL.iter().zip([true, false]) {
                let twin = Twin { formula: &formula, element, scalar: 3.0, fuses, contracts: fuses };
                let (mut found, mut expect) = (streams.clone(), streams.clone());
                let answer = twin.pass(&mut found, rows, columns);
                let results: Vec<f64> = answer.sums.iter().map(|total| total.sum).chain(answer.last).collect();
                assert_eq!(Some(results), by_hand(kernel.name, &mut expect, 3.0, rows, columns), "{}", kernel.name);
                assert_eq!(found, expect, "{}", kernel.name);
            }
        }
    }

    const FUSED: Isa = Isa { fma: true, ..Isa::NONE };

    fn value(text: &str, element: Element, isa: Isa, b: f64, c: f64) -> f64 {
        let formula = Kernel::find(text).unwrap().formula();
        let mut streams = vec![vec![0.0], vec![b], vec![c]];
        Twin::new(&formula, element, 3.0, isa).pass(&mut streams, 1, 1);
        streams[0][0]
    }

    #[test]
    fn numbers_are_those_of_ieee_arithmetic() {
        let check = |text: &str, b: f64, c: f64, expect: f64| {
            let found = value(text, Element::Double, FUSED, b, c);
            assert!(is_same(found, expect), "{text} of {b}, {c}: {found}, not {expect}");
        };
        check("a[i] = b[i]/c[i] - 1", 7.0, 2.0, 2.5);
        check("a[i] = b[i]/c[i]", -1.0, 0.0, f64::NEG_INFINITY);
        check("a[i] = sqrt(b[i]) + c[i]", -1.0, 0.0, f64::NAN);
        check("a[i] = -abs(b[i])*c[i]", -0.0, 1.0, -0.0);
        // Where neither is less than the other, the second is taken.
        check("a[i] = min(b[i], c[i])", 0.0, -0.0, -0.0);
        check("a[i] = max(b[i], c[i])", f64::NAN, 1.0, 1.0);
        check("a[i] = max(b[i], c[i])", 1.0, f64::NAN, f64::NAN);
        check("a[i] = b[i] - (c[i] - s)", 1.0, 2.0, 2.0);
    }

    /// (1 + e)(1 - e) - 1 = -e^2, which a product rounded by itself loses.
    #[test]
    fn a_fused_product_is_not_rounded() {
        for text in ["a[i] = b[i]*c[i] + -1", "a[i] = -1 + b[i]*c[i]", "a[i] = fma(b[i], c[i], -1)"] {
            for (element, e) in [(Element::Double, 2f64.powi(-30)), (Element::Float, 2f64.powi(-13))] {
                assert_eq!(value(text, element, FUSED, 1.0 + e, 1.0 - e), -e * e, "{text}");
                assert_eq!(value(text, element, Isa::NONE, 1.0 + e, 1.0 - e), 0.0, "{text}");
            }
        }
    }

    /// Where fused instructions hold up stores, `fma` in a loop's text is one all the same.
    #[test]
    fn what_is_not_contracted_is_rounded_twice() {
        let e = 2f64.powi(-30);
        let delayed = Isa { fma_delays_stores: true, ..FUSED };
        for (text, expect) in [("a[i] = b[i]*c[i] + -1", 0.0), ("a[i] = fma(b[i], c[i], -1)", -e * e)] {
            assert_eq!(value(text, Element::Double, delayed, 1.0 + e, 1.0 - e), expect, "{text}");
        }
        assert!(!Isa { fma_delays_stores: true, ..Isa::NONE }.contracts(false));
        assert!(delayed.contracts(false) && delayed.fusing(true).contracts(true), "{delayed:?}");
        assert!(!delayed.fusing(false).contracts(false) && !Isa::NONE.fusing(true).contracts(false), "{delayed:?}");
    }

    proptest! {
        /// A fused operation rounds once, on every system: the one of mingw's library rounds several times.
        #[test]
        fn a_fused_product_is_rounded_once(x in -2.0..2.0, y in -2.0..2.0, z in -8.0..8.0) {
            let mut exact = Exact::default();
            exact.add_product(x, y);
            exact.add(z);
            prop_assert_eq!(fused(x, y, z), exact.value());
        }
    }

    #[test]
    fn floats_are_rounded_after_every_operation() {
        // 2^24 + 1 is no float: it is rounded to 2^24 before 1 is taken away again.
        let found = |element| value("a[i] = b[i] + c[i] - c[i]", element, Isa::NONE, 1.0, 2f64.powi(24));
        assert_eq!((found(Element::Float), found(Element::Double)), (0.0, 1.0));
        assert_eq!(value("a[i] = b[i]/c[i]", Element::Float, Isa::NONE, 1.0, 3.0), f64::from(1f32 / 3f32));
    }

    /// 100 additions to a partial sum of floats: (100 + 256) / 2^24 of the magnitudes.
    #[test]
    fn sums_may_be_as_far_off_as_rounding_takes_them() {
        let mut total = Total::default();
        total.add(0.5, 40);
        total.add(-1.25, 8);
        assert_eq!((total.sum, total.magnitude, total.largest), (10.0, 30.0, 1.25));
        let tolerance = 356.0 / 2f64.powi(24) * 30.0;
        assert_eq!(total.tolerance(Element::Float, 100), Some(tolerance));
        assert_eq!(total.check(10.0 + 0.99 * tolerance, Element::Float, 100), Ok(()));
        assert!(total.check(10.0 - 1.01 * tolerance, Element::Float, 100).is_err());
        assert!(total.check(f64::NAN, Element::Float, 100).is_err());
        assert_eq!(total.tolerance(Element::Float, 1 << 22), None);
        let mut whole = Total::default();
        whole.add(2.0, 1 << 23);
        assert_eq!(whole.tolerance(Element::Float, 1 << 23), Some(0.0));
        assert!(whole.check(2f64.powi(24) - 1.0, Element::Float, 1 << 23).is_err());
        assert_eq!(whole.tolerance(Element::Float, (1 << 23) + 1), None);
    }

    #[test]
    fn an_index_names_every_place_once() {
        for length in [1, 2, 3, 17, 64, 1000, 4097] {
            for order in [IndexOrder::Random, IndexOrder::Sequential] {
                let mut found: Vec<usize> = (0..length).map(|place| index(order, place, length)).collect();
                found.sort_unstable();
                assert_eq!(found, (0..length).collect::<Vec<_>>());
            }
        }
        // No stride prevails.
        let steps = (0..4096)
            .map(|i| index(IndexOrder::Random, i + 1, 5000) as i64 - index(IndexOrder::Random, i, 5000) as i64);
        let mut count = std::collections::HashMap::new();
        steps.for_each(|step| *count.entry(step).or_insert(0) += 1);
        assert!(count.values().max() < Some(&41), "a step of {:?}", count.iter().max_by_key(|entry| entry.1));
    }
}
