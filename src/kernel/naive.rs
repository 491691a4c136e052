//! The answer key: each kernel once more, in plain Rust, sharing nothing with the assembler but the kernel's name.

use super::catalog::Kernel;

/// What one pass over the streams must leave behind.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The sum.
    Sum(f64),
    /// The last element loaded.
    Last(f64),
    /// Nothing but what was stored.
    Stored,
}

/// Runs `kernel` once, in place. Stream 0 is `a` where the kernel stores, else the first stream it loads.
/// Grids have `rows` rows of `columns` elements, of which the inner ones are computed; plain arrays have one row.
///
/// Cost: one slow pass. `None` if the kernel has no twin, which a test forbids.
pub fn run(kernel: &Kernel, streams: &mut [Vec<f64>], s: f64, rows: usize, columns: usize) -> Option<Answer> {
    if let [a, rest @ ..] = streams {
        let n = a.len();
        match (kernel.name, rest) {
            ("load", []) => return Some(Answer::Last(a[n - 1])),
            ("store", []) => a.fill(s),
            ("init", []) => a.fill(0.0),
            ("copy", [b]) => (0..n).for_each(|i| a[i] = b[i]),
            ("scale", [b]) => (0..n).for_each(|i| a[i] = s * b[i]),
            ("add", [b, c]) => (0..n).for_each(|i| a[i] = b[i] + c[i]),
            ("triad", [b, c]) => (0..n).for_each(|i| a[i] = b[i] + s * c[i]),
            ("schoenauer", [b, c, d]) => (0..n).for_each(|i| a[i] = b[i] + c[i] * d[i]),
            ("update", []) => (0..n).for_each(|i| a[i] *= s),
            ("daxpy", [b]) => (0..n).for_each(|i| a[i] += s * b[i]),
            ("sum", []) => return Some(Answer::Sum(a.iter().sum())),
            ("dot", [c]) => return Some(Answer::Sum((0..n).map(|i| a[i] * c[i]).sum())),
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
    }
    Some(Answer::Stored)
}
