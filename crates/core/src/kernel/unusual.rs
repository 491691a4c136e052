//! Naive twins of sums in arithmetic that is not the usual one: the x87's registers of 80 bits, and doubles without subnormal
//! numbers. What is added up is `sum`, `dot` or `triad`, told by the number of their streams.
//!
//! On the x87, products and sums have 64 bits of significand. Kept in a register they are rounded to a double once, at the
//! end. Stored after each operation, as compilers do that run out of registers, they are rounded twice, which may differ from
//! rounding once (D. Monniaux, "The pitfalls of verifying floating-point computations", TOPLAS 30(3), 2008).

use crate::kernel::exact::Exact;

/// A number with 64 bits of significand: the sum of both.
#[derive(Debug, Clone, Copy)]
struct Extended([f64; 2]);

impl Extended {
    fn plus(self, other: Extended) -> Extended {
        let mut exact = Exact::default();
        self.0.into_iter().chain(other.0).for_each(|part| exact.add(part));
        Extended(exact.extended())
    }

    fn product(x: f64, y: f64) -> Extended {
        let mut exact = Exact::default();
        exact.add_product(x, y);
        Extended(exact.extended())
    }

    /// As a store to a double leaves it.
    fn stored(self) -> f64 {
        let mut exact = Exact::default();
        self.0.into_iter().for_each(|part| exact.add(part));
        exact.value()
    }
}

/// What the x87 comes to, from the first element to the last; a triad writes its first stream. `is_stored`: each result is
/// stored as a double.
pub fn x87(streams: &mut [Vec<f64>], scalar: f64, is_stored: bool) -> f64 {
    let kept = |number: Extended| if is_stored { Extended([number.stored(), 0.0]) } else { number };
    let sum = |summands: &mut dyn Iterator<Item = Extended>| {
        summands.fold(Extended([0.0; 2]), |sum, summand| kept(sum.plus(summand))).stored()
    };
    match streams {
        [x] => sum(&mut x.iter().map(|x| Extended([*x, 0.0]))),
        [x, y] => sum(&mut x.iter().zip(y.iter()).map(|(x, y)| kept(Extended::product(*x, *y)))),
        [a, b, c] => {
            for ((a, b), c) in a.iter_mut().zip(b.iter()).zip(c.iter()) {
                *a = kept(Extended::product(scalar, *c)).plus(Extended([*b, 0.0])).stored();
            }
            0.0
        }
        _ => 0.0,
    }
}

/// The same by doubles of which no subnormal one is let in or out.
pub fn flushed(streams: &mut [Vec<f64>], scalar: f64) -> f64 {
    let flush = |x: f64| if x.is_subnormal() { 0.0 } else { x };
    let plus = |x: f64, y: f64| flush(flush(x) + flush(y));
    let product = |x: f64, y: f64| flush(flush(x) * flush(y));
    match streams {
        [x] => x.iter().fold(0.0, |sum, x| plus(sum, *x)),
        [x, y] => x.iter().zip(y.iter()).fold(0.0, |sum, (x, y)| plus(sum, product(*x, *y))),
        [a, b, c] => {
            for ((a, b), c) in a.iter_mut().zip(b.iter()).zip(c.iter()) {
                *a = plus(*b, product(scalar, *c));
            }
            0.0
        }
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2^53 + 1 + 1: a double loses both ones, half a step each, to the even neighbour; 64 bits keep them.
    #[test]
    fn the_x87_by_hand() {
        let big = 2f64.powi(53);
        let of = |numbers: &[f64], is_stored| x87(&mut [numbers.to_vec()], 0.0, is_stored);
        assert_eq!(of(&[big, 1.0, 1.0], false), big + 2.0);
        assert_eq!(of(&[big, 1.0, 1.0], true), big);
        // 1 + 2^-53 + 2^-78: just over half a step of a double, so it rounds up; 64 bits drop the last part, what is left is
        // half a step, and rounds down to the even neighbour. Rounded twice.
        let small = 2f64.powi(-53) + 2f64.powi(-78);
        assert_eq!(1.0 + small, 1.0 + f64::EPSILON);
        assert_eq!(of(&[1.0, small], true), 1.0);
        // 0.1 x 10 exceeds 1 by 2^-54: 64 bits have that, and what cancels leaves it.
        let dot = |is_stored| x87(&mut [vec![0.1, -1.0], vec![10.0, 1.0]], 0.0, is_stored);
        assert_eq!((dot(false), dot(true)), (2f64.powi(-54), 0.0));
        let mut triad = [vec![0.0], vec![-1.0], vec![0.1]];
        x87(&mut triad, 10.0, false);
        assert_eq!(triad[0][0], 2f64.powi(-54));
    }

    /// Half of the least normal number is subnormal: it counts for nothing, and so does what two normal ones leave of it.
    #[test]
    fn flushing_by_hand() {
        let least = f64::MIN_POSITIVE;
        let of = |numbers: &[f64]| flushed(&mut [numbers.to_vec()], 0.0);
        assert_eq!(of(&[least / 2.0; 4]), 0.0);
        assert_eq!(of(&[least, least / 2.0, least]), 2.0 * least);
        assert_eq!(of(&[1.5 * least, -least]), 0.0);
        assert_eq!(flushed(&mut [vec![least, 1.0], vec![0.5, least]], 0.0), least, "the first product is subnormal");
        let mut triad = [vec![7.0; 2], vec![0.0, least], vec![least / 2.0, least]];
        flushed(&mut triad, 2.0);
        assert_eq!(triad[0], [0.0, 3.0 * least]);
    }
}
