//! The straight line through weighted points, by least squares.

/// Sums over points from which the line follows.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sums {
    ones: f64,
    x: f64,
    xx: f64,
    y: f64,
    xy: f64,
    yy: f64,
}

impl Sums {
    /// Counts the point at `x` and `y` this many times.
    pub fn add(&mut self, x: f64, y: f64, weight: f64) {
        self.ones += weight;
        self.x += weight * x;
        self.xx += weight * x * x;
        self.y += weight * y;
        self.xy += weight * x * y;
        self.yy += weight * y * y;
    }

    /// Intercept and slope of the line. `None` where no two places differ by more than rounding.
    pub fn line(&self) -> Option<[f64; 2]> {
        let determinant = self.ones * self.xx - self.x * self.x;
        (determinant > 1e-9 * self.ones * self.xx).then(|| {
            let intercept = (self.y * self.xx - self.xy * self.x) / determinant;
            [intercept, (self.xy * self.ones - self.y * self.x) / determinant]
        })
    }

    /// Slope of the line through the origin.
    pub fn slope_through_origin(&self) -> f64 {
        self.xy / self.xx
    }

    /// Weighted sum of the squares by which points are off their line.
    pub fn squares(&self, [intercept, slope]: [f64; 2]) -> f64 {
        self.yy - intercept * self.y - slope * self.xy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(points: &[[f64; 3]]) -> Sums {
        let mut sums = Sums::default();
        points.iter().for_each(|[x, y, weight]| sums.add(*x, *y, *weight));
        sums
    }

    #[test]
    fn a_line_by_hand() {
        let exact = sums(&[[0.0, 2.0, 1.0], [1.0, 5.0, 3.0], [2.0, 8.0, 0.5]]);
        let [intercept, slope] = exact.line().unwrap();
        assert!((intercept - 2.0).abs() < 1e-9 && (slope - 3.0).abs() < 1e-9);
        assert!(exact.squares([intercept, slope]).abs() < 1e-9);
        // Mean 1 and 2; slope 1/2 by the ends alone; off by -1/2, 1, -1/2.
        let bent = sums(&[[0.0, 1.0, 1.0], [1.0, 3.0, 1.0], [2.0, 2.0, 1.0]]);
        assert_eq!(bent.line(), Some([1.5, 0.5]));
        assert!((bent.squares([1.5, 0.5]) - 1.5).abs() < 1e-12);
    }

    #[test]
    fn through_the_origin_by_hand() {
        assert_eq!(sums(&[[1.0, 1.0, 1.0], [2.0, 4.0, 1.0]]).slope_through_origin(), 9.0 / 5.0);
    }

    #[test]
    fn one_place_has_no_line() {
        assert_eq!(sums(&[[1.0, 1.0, 1.0], [1.0, 4.0, 1.0]]).line(), None);
        assert_eq!(sums(&[]).line(), None);
    }
}
