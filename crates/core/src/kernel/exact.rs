//! Exact sums of doubles and of their products: the answer key for sums that are rounded on the way.
//!
//! Every double is a whole multiple of 2^-1074 and every product of two one of 2^-2148, so a number of fixed point that
//! is wide enough holds all of them and their sums without rounding (Kulisch's long accumulator). It is kept in limbs of
//! 32 bits, each in 64, so that carries can wait.

/// The weight of the lowest bit is 2 to this.
const LOWEST: i32 = -2148;
/// Bits up to 2^2332: the greatest product is below 2^2048, so 2^284 of them fit.
const LIMBS: usize = 140;
/// Additions after which carries are worked off: each adds less than 2^33 to a limb, twice.
const PENDING_MOST: u32 = 1 << 28;

/// A sum without rounding.
#[derive(Debug, Clone)]
pub struct Exact {
    limbs: [i64; LIMBS],
    pending: u32,
}

impl Default for Exact {
    fn default() -> Self {
        Exact { limbs: [0; LIMBS], pending: 0 }
    }
}

impl Exact {
    /// Adds a finite number; others are no numbers and add nothing.
    pub fn add(&mut self, x: f64) {
        let (is_negative, mantissa, exponent) = parts(x);
        self.add_bits(is_negative, mantissa.into(), exponent);
    }

    /// Adds the product of two finite numbers.
    pub fn add_product(&mut self, x: f64, y: f64) {
        let ((x_negative, x, x_exponent), (y_negative, y, y_exponent)) = (parts(x), parts(y));
        self.add_bits(x_negative != y_negative, u128::from(x) * u128::from(y), x_exponent + y_exponent);
    }

    fn add_bits(&mut self, is_negative: bool, mut mantissa: u128, exponent: i32) {
        let at = (exponent - LOWEST) as usize;
        let (mut limb, shift) = (at / 32, at % 32);
        while mantissa > 0 {
            let piece = u64::from(mantissa as u32) << shift;
            let [low, high] = [piece & 0xffff_ffff, piece >> 32].map(|part| part as i64);
            self.limbs[limb] += if is_negative { -low } else { low };
            self.limbs[limb + 1] += if is_negative { -high } else { high };
            mantissa >>= 32;
            limb += 1;
        }
        self.pending += 1;
        if self.pending == PENDING_MOST {
            self.carry();
        }
    }

    /// Brings every limb but the last into 0..2^32.
    fn carry(&mut self) {
        for limb in 0..LIMBS - 1 {
            let over = self.limbs[limb] >> 32;
            self.limbs[limb] -= over << 32;
            self.limbs[limb + 1] += over;
        }
        self.pending = 0;
    }

    /// The nearest double; of two, the even one.
    pub fn value(&self) -> f64 {
        // Below the least normal number a double's lowest bit stays where it is.
        const LEAST: usize = (-1074 - LOWEST) as usize;
        let Some(Rounded { is_negative, mantissa, last }) = self.nearest(53, LEAST) else { return 0.0 };
        // A normal number's highest mantissa bit is not stored: it counts into the exponent.
        let exponent = (last - LEAST) as u64;
        let bits = (exponent << 52).saturating_add(mantissa as u64).min(f64::INFINITY.to_bits());
        if is_negative { -f64::from_bits(bits) } else { f64::from_bits(bits) }
    }

    /// The nearest number of so many bits, of two the even one, whose lowest bit is not below the bit `least`, which is not
    /// the lowest there is. None is zero.
    fn nearest(&self, bits: usize, least: usize) -> Option<Rounded> {
        let mut all = self.clone();
        all.carry();
        let is_negative = all.limbs[LIMBS - 1] < 0;
        if is_negative {
            all.limbs.iter_mut().for_each(|limb| *limb = -*limb);
            all.carry();
        }
        let bit = |at: usize| all.limbs[at / 32] >> (at % 32) & 1;
        let top = (0..32 * LIMBS).rev().find(|&at| bit(at) == 1)?;
        let last = (top + 1).saturating_sub(bits).max(least);
        let mantissa = (last..=top).rev().fold(0u128, |mantissa, at| mantissa << 1 | bit(at) as u128);
        let half = bit(last - 1) == 1;
        let more = (0..last - 1).any(|at| bit(at) == 1);
        let mantissa = mantissa + u128::from(half && (more || mantissa & 1 == 1));
        Some(Rounded { is_negative, mantissa, last })
    }

    /// The nearest number with 64 bits of significand, as a register of the x87 holds it: as a double and what is left, which
    /// together are that number. The exponents are a double's, where the x87 has more.
    pub fn extended(&self) -> [f64; 2] {
        let Some(Rounded { is_negative, mantissa, last }) = self.nearest(64, 1) else { return [0.0; 2] };
        let high = mantissa as f64;
        // No more than half of the double's last place, so that it is a double.
        let low = (mantissa as i128 - high as i128) as f64;
        let sign = if is_negative { -1.0 } else { 1.0 };
        [high, low].map(|part| sign * scaled(part, last as i32 + LOWEST))
    }
}

/// A number that was rounded: `mantissa` times the weight of the bit `last`.
struct Rounded {
    is_negative: bool,
    mantissa: u128,
    last: usize,
}

/// x times 2^exponent. In two steps, since the power alone may be no double.
fn scaled(x: f64, exponent: i32) -> f64 {
    x * 2f64.powi(exponent / 2) * 2f64.powi(exponent - exponent / 2)
}

/// Sign, mantissa and exponent: x = mantissa * 2^exponent.
fn parts(x: f64) -> (bool, u64, i32) {
    let bits = x.to_bits();
    let (field, fraction) = ((bits >> 52 & 0x7ff) as i32, bits & ((1 << 52) - 1));
    match field {
        0x7ff => (false, 0, 0),
        0 => (x.is_sign_negative(), fraction, -1074),
        _ => (x.is_sign_negative(), fraction | 1 << 52, field - 1075),
    }
}

/// How many steps from one double to the next lie between two: 0 if they are equal, 1 if neighbours.
pub fn ulps_apart(a: f64, b: f64) -> u64 {
    // Doubles of one sign are ordered as their bits; the other sign goes the other way from zero.
    let place = |x: f64| {
        let magnitude = (x.to_bits() & !(1 << 63)) as i64;
        i128::from(if x.is_sign_negative() { -magnitude } else { magnitude })
    };
    place(a).abs_diff(place(b)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sum(numbers: &[f64]) -> f64 {
        let mut exact = Exact::default();
        numbers.iter().for_each(|x| exact.add(*x));
        exact.value()
    }

    #[test]
    fn sums_by_hand() {
        assert_eq!(sum(&[1e100, 1.0, -1e100]), 1.0);
        assert_eq!(sum(&[1.0, 2f64.powi(-53)]), 1.0, "half a step goes to the even neighbour");
        assert_eq!(sum(&[1.0, 2f64.powi(-53), 5e-324]), 1.0 + f64::EPSILON, "and more than half up");
        assert_eq!(sum(&[1.0 + f64::EPSILON, 2f64.powi(-53)]), 1.0 + 2.0 * f64::EPSILON);
        assert_eq!(sum(&[f64::MAX, f64::MAX]), f64::INFINITY);
        assert_eq!(sum(&[-f64::MAX, -f64::MAX, f64::MAX]), -f64::MAX);
        assert_eq!(sum(&[5e-324, -1.0, 1.0]), 5e-324);
        assert_eq!(sum(&[]), 0.0);
        let mut exact = Exact::default();
        exact.add_product(0.1, 10.0);
        exact.add(-1.0);
        // What a fused multiply-add leaves: it rounds once too.
        assert_eq!(exact.value(), libm::fma(0.1, 10.0, -1.0));
        let mut least = Exact::default();
        least.add_product(5e-324, 5e-324);
        assert_eq!(least.value(), 0.0);
        (0..3).for_each(|_| least.add_product(1e300, 1e300));
        assert_eq!(least.value(), f64::INFINITY);
    }

    #[test]
    fn steps_between_doubles() {
        assert_eq!(ulps_apart(1.0, 1.0 + 3.0 * f64::EPSILON), 3);
        assert_eq!(ulps_apart(1.0, 1.0 - f64::EPSILON / 2.0), 1);
        assert_eq!(ulps_apart(-5e-324, 5e-324), 2);
        assert_eq!(ulps_apart(0.0, -0.0), 0);
        assert_eq!(ulps_apart(-f64::MAX, f64::MAX), 2 * f64::MAX.to_bits());
    }

    /// 1 + 2^-60 needs 61 bits: a register of the x87 has it, a double has not. Beyond 64 bits, half a step goes to the even
    /// neighbour.
    #[test]
    fn extended_numbers_by_hand() {
        let of = |numbers: &[f64]| {
            let mut exact = Exact::default();
            numbers.iter().for_each(|x| exact.add(*x));
            exact.extended()
        };
        let power = |exponent| 2f64.powi(exponent);
        assert_eq!(of(&[1.0, power(-60)]), [1.0, power(-60)]);
        assert_eq!(of(&[-1.0, -power(-60)]), [-1.0, -power(-60)]);
        assert_eq!(of(&[1.0, power(-64)]), [1.0, 0.0], "half of its last place, 2^-63");
        assert_eq!(of(&[1.0, power(-63), power(-64)]), [1.0, power(-62)]);
        assert_eq!(of(&[1.0, power(-64), power(-200)]), [1.0, power(-63)]);
        assert_eq!(of(&[1.0 + f64::EPSILON, -power(-63)]), [1.0 + f64::EPSILON, -power(-63)]);
        assert_eq!(of(&[power(900), power(870)]), [power(900) + power(870), 0.0]);
        assert_eq!(of(&[1e-300, -1e-300]), [0.0, 0.0]);
    }

    /// Whole numbers times a power of two: what `i128` adds without rounding, and rounds once to a double.
    fn whole_and_double(number: (i64, u32)) -> (f64, i128) {
        let whole = number.0 >> 11;
        (whole as f64 * 2f64.powi(number.1 as i32 - 30), i128::from(whole) << number.1)
    }

    proptest! {
        #[test]
        fn sums_agree_with_whole_numbers(numbers in prop::collection::vec((any::<i64>(), 0u32..60), 0..40)) {
            let doubles: Vec<f64> = numbers.iter().map(|n| whole_and_double(*n).0).collect();
            let whole: i128 = numbers.iter().map(|n| whole_and_double(*n).1).sum();
            prop_assert_eq!(sum(&doubles), whole as f64 * 2f64.powi(-30));
        }

        #[test]
        fn products_agree_with_whole_numbers(numbers in prop::collection::vec((any::<i64>(), any::<i64>()), 0..40)) {
            let (mut exact, mut whole) = (Exact::default(), 0i128);
            for (a, b) in numbers {
                let (a, b) = (a >> 11, b >> 11);
                exact.add_product(a as f64 * 2f64.powi(-300), b as f64 * 2f64.powi(200));
                whole += i128::from(a) * i128::from(b);
            }
            prop_assert_eq!(exact.value(), whole as f64 * 2f64.powi(-100));
        }

        #[test]
        fn what_cancels_leaves_the_rest(far in prop::collection::vec(any::<f64>(), 0..20), rest in any::<f64>()) {
            prop_assume!(rest.is_finite());
            let mut all = far.clone();
            all.push(rest);
            all.extend(far.iter().map(|x| -x));
            prop_assert_eq!(sum(&all), rest);
        }
    }
}
