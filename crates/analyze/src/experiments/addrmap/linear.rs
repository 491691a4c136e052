//! Linear algebra over bits: vectors are the bits of a word, addition is XOR.

/// Linearly independent vectors in reduced form: each has a pivot, its lowest bit, which no other has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Basis(Vec<u64>);

impl Basis {
    /// A basis of what these vectors span.
    pub fn of(vectors: impl IntoIterator<Item = u64>) -> Self {
        let mut basis = Basis::default();
        for vector in vectors {
            basis.insert(vector);
        }
        basis
    }

    /// Adds a vector; whether the basis grew.
    pub fn insert(&mut self, vector: u64) -> bool {
        let vector = self.reduce(vector);
        if vector == 0 {
            return false;
        }
        let pivot = lowest(vector);
        for other in self.0.iter_mut().filter(|other| **other & pivot != 0) {
            *other ^= vector;
        }
        let place = self.0.partition_point(|other| lowest(*other) < pivot);
        self.0.insert(place, vector);
        true
    }

    /// What is left of a vector when its pivots are taken away: 0 where the basis spans it.
    pub fn reduce(&self, vector: u64) -> u64 {
        self.0.iter().fold(vector, |rest, base| if rest & lowest(*base) != 0 { rest ^ base } else { rest })
    }

    /// Its vectors, pivots rising.
    pub fn vectors(&self) -> &[u64] {
        &self.0
    }

    /// Number of vectors.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Everything within `bits` that has an even number of bits in common with each vector, which are within `bits`.
    pub fn null_space(&self, bits: u64) -> Basis {
        let pivots = self.0.iter().fold(0, |pivots, base| pivots | lowest(*base));
        let free = (0..64).map(|bit| 1u64 << bit).filter(|bit| bits & !pivots & bit != 0);
        let with_pivots =
            |bit: u64| self.0.iter().filter(|base| **base & bit != 0).fold(bit, |vector, base| vector | lowest(*base));
        Basis::of(free.map(with_pivots))
    }
}

fn lowest(vector: u64) -> u64 {
    vector & vector.wrapping_neg()
}

/// Whether a mask picks an odd number of bits.
pub fn parity(vector: u64, mask: u64) -> bool {
    (vector & mask).count_ones() % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reduced_by_hand() {
        // 011 and 110 span 011, 101, 110; reduced, each lowest bit stands alone.
        let basis = Basis::of([0b011, 0b110, 0b101, 0]);
        assert_eq!(basis.vectors(), [0b101, 0b110]);
        assert_eq!(basis.reduce(0b011), 0);
        assert_eq!(basis.reduce(0b111), 0b100);
        assert_eq!(Basis::default().reduce(5), 5);
    }

    #[test]
    fn null_space_by_hand() {
        // Orthogonal to 101 and 110 within three bits: only 111.
        assert_eq!(Basis::of([0b101, 0b110]).null_space(0b111).vectors(), [0b111]);
        assert_eq!(Basis::default().null_space(0b1010).vectors(), [0b0010, 0b1000]);
        assert_eq!(Basis::of([1, 2]).null_space(0b11).rank(), 0);
    }

    #[test]
    fn ranks_and_products_agree_on_random_vectors() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let bits = random.u64(..) & random.u64(..);
            let vectors: Vec<u64> = (0..random.usize(0..40)).map(|_| random.u64(..) & bits).collect();
            let basis = Basis::of(vectors.iter().copied());
            let null = basis.null_space(bits);
            assert_eq!(basis.rank() + null.rank(), bits.count_ones() as usize);
            assert!(vectors.iter().all(|v| basis.reduce(*v) == 0));
            assert!(vectors.iter().all(|v| null.vectors().iter().all(|mask| !parity(*v, *mask) && mask & !bits == 0)));
            // The order of vectors does not matter to the reduced form.
            assert_eq!(Basis::of(vectors.iter().rev().copied()), basis);
        }
    }
}
