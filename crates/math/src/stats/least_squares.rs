//! Linear least squares: the normal equations of weighted points, solved by Cholesky's method.
//!
//! A model is columns: what each parameter counts at each point.

/// The value at each point, of parameters that count as `columns` say.
pub fn values(columns: &[Vec<f64>], parameters: &[f64]) -> Vec<f64> {
    let mut values = vec![0.0; columns.first().map_or(0, Vec::len)];
    for (column, by) in columns.iter().zip(parameters) {
        values.iter_mut().zip(column).for_each(|(value, counts)| *value += counts * by);
    }
    values
}

/// What points say about parameters: of a matrix that is its own mirror the half from the diagonal on, and the right side.
#[derive(Debug, Clone)]
pub struct NormalEquations {
    parameters: usize,
    /// Row by row, with the right side as the last column.
    cells: Vec<f64>,
}

impl NormalEquations {
    /// Of columns that are to add up to `target`, where each point counts so many times.
    pub fn of(columns: &[Vec<f64>], target: &[f64], weights: &[f64]) -> Self {
        let parameters = columns.len();
        let mut cells = vec![0.0; parameters * (parameters + 1)];
        // A level counts for nothing at all the points that lie within the one before.
        let begins: Vec<usize> =
            columns.iter().map(|column| column.iter().position(|x| *x != 0.0).unwrap_or(column.len())).collect();
        let rows = cells.chunks_exact_mut(parameters + 1);
        for (k, (row, column)) in rows.zip(columns).enumerate() {
            let weighted: Vec<f64> = column.iter().zip(weights).map(|(x, weight)| x * weight).collect();
            for j in k..parameters {
                row[j] = product(&weighted[begins[j]..], &columns[j][begins[j]..]);
            }
            row[parameters] = product(&weighted, target);
        }
        NormalEquations { parameters, cells }
    }

    /// In which direction a parameter reduces the squares.
    pub fn direction(&self, parameter: usize) -> f64 {
        self.cells[self.at(parameter, self.parameters)]
    }

    /// Raises the diagonal by a share of it and by so much: a parameter of which points say little stays near where it is
    /// (Levenberg and Marquardt).
    pub fn raise(&mut self, share: f64, by: f64) {
        for parameter in 0..self.parameters {
            let at = self.at(parameter, parameter);
            self.cells[at] += share * self.cells[at] + by;
        }
    }

    /// Adds to what is known of a parameter, of its step being 0: one over the variance.
    pub fn inform(&mut self, parameter: usize, information: f64) {
        let at = self.at(parameter, parameter);
        self.cells[at] += information;
    }

    /// Leaves a parameter as it is.
    pub fn hold(&mut self, parameter: usize) {
        for other in 0..=self.parameters {
            let at = self.at(parameter.min(other), parameter.max(other));
            self.cells[at] = 0.0;
        }
        let at = self.at(parameter, parameter);
        self.cells[at] = 1.0;
    }

    /// By how much to change each parameter. `None` where points do not determine them.
    pub fn solved(mut self) -> Option<Vec<f64>> {
        self.factor()?;
        let n = self.parameters;
        let mut found = vec![0.0; n];
        for k in (0..n).rev() {
            let row = &self.cells[self.at(k, 0)..=self.at(k, n)];
            let others: f64 = row[k + 1..n].iter().zip(&found[k + 1..]).map(|(cell, found)| cell * found).sum();
            found[k] = (row[n] - others) / row[k];
        }
        found.iter().all(|by| by.is_finite()).then_some(found)
    }

    /// Variance of each parameter, of points whose weight is one over theirs. `None` where points do not determine them.
    pub fn variances(mut self) -> Option<Vec<f64>> {
        self.factor()?;
        // Of U'U the inverse has the squares of the columns of U'^-1 on its diagonal.
        let variance = |parameter: usize| {
            let mut column = vec![0.0; self.parameters];
            for k in parameter..self.parameters {
                let before: f64 = (parameter..k).map(|m| self.cells[self.at(m, k)] * column[m]).sum();
                column[k] = (f64::from(u8::from(k == parameter)) - before) / self.cells[self.at(k, k)];
            }
            column.iter().map(|cell| cell * cell).sum()
        };
        Some((0..self.parameters).map(variance).collect())
    }

    /// The matrix becomes U of U'U, and the right side what U times the solution is.
    fn factor(&mut self) -> Option<()> {
        let width = self.parameters + 1;
        for k in 0..self.parameters {
            let (row, below) = self.cells[k * width..].split_at_mut(width);
            let root = row[k].sqrt();
            if !root.is_normal() {
                return None;
            }
            row[k..].iter_mut().for_each(|cell| *cell /= root);
            for (other, cells) in (k + 1..).zip(below.chunks_exact_mut(width)) {
                let factor = row[other];
                cells[other..].iter_mut().zip(&row[other..]).for_each(|(cell, of)| *cell -= factor * of);
            }
        }
        Some(())
    }

    fn at(&self, row: usize, column: usize) -> usize {
        row * (self.parameters + 1) + column
    }
}

/// Sum of the products of two columns, in four parts that need not wait for each other.
fn product(a: &[f64], b: &[f64]) -> f64 {
    let mut parts = [0.0; 4];
    let (fours, rest) = a.as_chunks::<4>();
    let (others, other_rest) = b.as_chunks::<4>();
    for (a, b) in fours.iter().zip(others) {
        for k in 0..4 {
            parts[k] += a[k] * b[k];
        }
    }
    let rest: f64 = rest.iter().zip(other_rest).map(|(a, b)| a * b).sum();
    parts.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of points: what each parameter counts, the target, the weight.
    fn of(points: &[(&[f64], f64, f64)]) -> NormalEquations {
        let column = |k: usize| points.iter().map(|point| point.0[k]).collect();
        let columns: Vec<Vec<f64>> = (0..points[0].0.len()).map(column).collect();
        let [target, weights] = [|point: &(&[f64], f64, f64)| point.1, |point: &(&[f64], f64, f64)| point.2]
            .map(|of| points.iter().map(of).collect::<Vec<f64>>());
        NormalEquations::of(&columns, &target, &weights)
    }

    #[track_caller]
    fn check(found: Option<Vec<f64>>, expect: &[f64]) {
        let found = found.unwrap();
        let is_near = found.len() == expect.len() && found.iter().zip(expect).all(|(a, b)| (a - b).abs() < 1e-12);
        assert!(is_near, "{found:?} is not {expect:?}");
    }

    /// A line through (0, 1), (1, 3) and (2, 2): mean 2, slope 1/2. Sums 3, 3, 5: the inverse is (5, -3; -3, 3) / 6.
    #[test]
    fn a_line_by_hand() {
        let line = of(&[(&[1.0, 0.0], 1.0, 1.0), (&[1.0, 1.0], 3.0, 1.0), (&[1.0, 2.0], 2.0, 1.0)]);
        check(line.clone().solved(), &[1.5, 0.5]);
        check(line.variances(), &[5.0 / 6.0, 0.5]);
    }

    #[test]
    fn three_parameters_of_three_points() {
        let exact = of(&[(&[2.0, 1.0, 0.0], 4.0, 0.5), (&[0.0, 3.0, 1.0], 9.0, 2.0), (&[1.0, 0.0, 4.0], 13.0, 7.0)]);
        check(exact.solved(), &[1.0, 2.0, 3.0]);
    }

    /// 1 at one point and 2 at five more, in which the second counts once more each: its sums are of columns that begin late.
    #[test]
    fn columns_that_begin_late() {
        let columns = [vec![1.0; 6], vec![0.0, 1.0, 1.0, 1.0, 1.0, 1.0]];
        let found = NormalEquations::of(&columns, &[1.0, 2.0, 2.0, 2.0, 2.0, 2.0], &[3.0; 6]).solved();
        check(found.clone(), &[1.0, 1.0]);
        check(Some(values(&columns, &found.unwrap())), &[1.0, 2.0, 2.0, 2.0, 2.0, 2.0]);
    }

    /// 3 x at 1 and 5 y at 1, weights 4 and 1: each for itself.
    #[test]
    fn one_that_is_held_stays() {
        let mut both = of(&[(&[1.0, 1.0], 3.0, 4.0), (&[0.0, 1.0], 5.0, 1.0)]);
        assert_eq!((both.direction(0), both.direction(1)), (12.0, 17.0));
        both.hold(1);
        check(both.clone().solved(), &[3.0, 0.0]);
        check(both.variances(), &[0.25, 1.0]);
    }

    /// Two parameters that only their sum is known of, as 3 with variance 1; then the second one as 0 with variance 1/2.
    #[test]
    fn what_is_known_beforehand_counts() {
        let mut sum = of(&[(&[1.0, 1.0], 3.0, 1.0)]);
        sum.inform(1, 2.0);
        check(sum.clone().solved(), &[3.0, 0.0]);
        check(sum.variances(), &[1.5, 0.5]);
    }

    /// 4 x = 4; with 4 + 8 + 4 in place of 4 a quarter of it.
    #[test]
    fn a_raised_diagonal_shortens_the_step() {
        let mut one = of(&[(&[2.0], 2.0, 1.0)]);
        one.raise(2.0, 4.0);
        check(one.solved(), &[0.25]);
    }

    #[test]
    fn what_points_do_not_determine_has_no_solution() {
        assert!(of(&[(&[1.0, 2.0], 3.0, 1.0)]).solved().is_none());
        assert!(of(&[(&[1.0, 0.0], 3.0, 1.0), (&[2.0, 0.0], 3.0, 1.0)]).variances().is_none());
        assert!(of(&[(&[f64::NAN], 3.0, 1.0)]).solved().is_none());
    }
}
