//! How points lie around a curve of speeds or latencies.

/// Degrees of freedom of the noise (Lange, Little and Taylor, JASA 84, 1989): a disturbed point costs little more the
/// farther it is off, yet one that is slower by a level costs more than one that is slower by half.
pub(crate) const FREEDOM: f64 = 3.0;
/// The exponent of Student's density.
pub(crate) const EXPONENT: f64 = (FREEDOM + 1.0) / 2.0;

/// Which way disturbed points are off.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Noise {
    /// They are slow; nothing makes a load faster than it is.
    Slow,
    /// Either way: a point is a difference of two that were disturbed.
    Either,
}

impl Noise {
    /// What a point costs that is slower by so many standard deviations: the likelihood of Student's t with [`FREEDOM`], or of the
    /// normal law near its middle.
    pub(crate) fn loss(self, off: f64) -> f64 {
        let square = off * off / FREEDOM;
        EXPONENT * if self.is_sure(off) { square } else { square.ln_1p() }
    }

    /// What is left of such a point's weight.
    pub(crate) fn weight(self, off: f64) -> f64 {
        (FREEDOM + 1.0) / if self.is_sure(off) { FREEDOM } else { FREEDOM + off * off }
    }

    fn is_sure(self, off: f64) -> bool {
        self == Noise::Slow && off < 0.0
    }
}
