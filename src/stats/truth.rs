//! Do the statistics find the truth? Simulated memories with a known median, noise, outliers, modes and drift.

use super::*;

/// Runs of each simulated memory. The standard error of a coverage of 95 % is then 0.5 %.
const RUNS: usize = 2000;

struct Source(fastrand::Rng);

impl Source {
    /// Box and Muller, 1958.
    fn normal(&mut self) -> f64 {
        let (u, v) = (1.0 - self.0.f64(), self.0.f64());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    fn exponential(&mut self) -> f64 {
        -(1.0 - self.0.f64()).ln()
    }

    fn chance(&mut self, p: f64) -> bool {
        self.0.f64() < p
    }
}

/// A simulated memory: a name, and a sample relative to its typical one.
type Memory = (&'static str, fn(&mut Source) -> f64);

const MEMORIES: [Memory; 7] = [
    ("normal 2 %", |s| 1.0 + 0.02 * s.normal()),
    ("lognormal 5 %", |s| (0.05 * s.normal()).exp()),
    ("skewed 10 %", |s| 1.0 + 0.1 * s.exponential()),
    ("normal 2 %, 2 % outliers", |s| outlier(s, 0.02)),
    ("normal 2 %, 5 % outliers", |s| outlier(s, 0.05)),
    ("modes 70/30", |s| 1.0 + 0.01 * s.normal() + if s.chance(0.3) { 0.2 } else { 0.0 }),
    ("lognormal 50 %", |s| (0.5 * s.normal()).exp()),
];

fn outlier(s: &mut Source, share: f64) -> f64 {
    let disturbed = s.chance(share);
    1.0 + 0.02 * s.normal() + if disturbed { 0.2 + s.exponential() } else { 0.0 }
}

/// The median, from so many samples that its error is a hundredth of any interval's width here.
fn true_median(memory: Memory) -> f64 {
    let mut source = Source(fastrand::Rng::with_seed(1));
    let mut samples: Vec<f64> = (0..400_000).map(|_| memory.1(&mut source)).collect();
    let middle = samples.len() / 2;
    *samples.select_nth_unstable_by(middle, f64::total_cmp).1
}

fn covers(ci: [f64; 2], truth: f64) -> bool {
    ci[0] <= truth && truth <= ci[1]
}

fn coverage(memory: Memory, n: usize, batches: usize) -> f64 {
    let truth = true_median(memory);
    let mut source = Source(fastrand::Rng::with_seed(n as u64));
    let hits = (0..RUNS).filter(|_| {
        let samples: Vec<f64> = (0..n).map(|_| memory.1(&mut source)).collect();
        let batches: Vec<&[f64]> = samples.chunks(n.div_ceil(batches)).collect();
        covers(interval::of_median(&pooled(&batches), &batches), truth)
    });
    hits.count() as f64 / RUNS as f64
}

#[test]
fn fixed() {
    for memory in MEMORIES {
        print!("{:26}", memory.0);
        for k in [1, 2, 3, 5] {
            for n in [11, 21, 31, 51] {
                print!("{:6.1}", 100.0 * coverage(memory, n, k));
            }
            print!("  |");
        }
        println!();
    }
}

#[test]
fn adaptive() {
    for visit in [1000, 7] {
        for memory in MEMORIES {
            let truth = true_median(memory);
            print!("{:26}", memory.0);
            // find target: relative half-width typical at n
            for want in [11usize, 15, 21, 31, 51] {
                let mut source = Source(fastrand::Rng::with_seed(9));
                let mut h = 0.0;
                for _ in 0..200 {
                    let s: Vec<f64> = (0..want).map(|_| memory.1(&mut source)).collect();
                    let [l, u] = interval::of_median(&pooled(&[&s]), &[&s]);
                    h += (u - l) / 2.0 / 200.0;
                }
                let (mut hits, mut ns) = (0, 0);
                for _ in 0..RUNS {
                    let mut s: Vec<f64> = Vec::new();
                    while s.len() < 101 && !is_settled(&s.chunks(visit).collect::<Vec<_>>(), h / truth) {
                        s.push(memory.1(&mut source));
                    }
                    ns += s.len();
                    hits += usize::from(covers(
                        interval::of_median(&pooled(&[&s]), &s.chunks(visit).collect::<Vec<_>>()),
                        truth,
                    ));
                }
                print!("  {:5.1} (n {:3})", 100.0 * hits as f64 / RUNS as f64, ns / RUNS);
            }
            println!();
        }
    }
}

#[test]
fn drift() {
    for sigma in [0.0, 0.3, 1.0, 3.0] {
        print!("drift {sigma} sigma  ");
        for k in [2, 3, 4, 6] {
            for m in [5, 10] {
                let mut source = Source(fastrand::Rng::with_seed(k));
                let (mut hits, mut naive, mut width) = (0, 0, 0.0);
                for _ in 0..RUNS {
                    let b: Vec<Vec<f64>> = (0..k)
                        .map(|_| {
                            let d = sigma * source.normal();
                            (0..m).map(|_| 100.0 + d + source.normal()).collect()
                        })
                        .collect();
                    let r: Vec<&[f64]> = b.iter().map(Vec::as_slice).collect();
                    let all = pooled(&r);
                    let ci = interval::of_median(&all, &r);
                    hits += usize::from(covers(ci, 100.0));
                    width += (ci[1] - ci[0]) / RUNS as f64;
                    naive += usize::from(covers(interval::of_median(&all, &[&all]), 100.0));
                }
                print!(" {k}x{m}: {:.1} ({:.1}) w{width:.1}", hits as f64 / 20.0, naive as f64 / 20.0);
            }
        }
        println!();
    }
}
#[test]
fn modality() {
    let uni: [(&str, fn(&mut Source) -> f64); 6] = [
        ("normal", |s| 1.0 + 0.05 * s.normal()),
        ("lognormal.5", |s| (0.5 * s.normal()).exp()),
        ("lognormal1", |s| (1.0 * s.normal()).exp()),
        ("exp", |s| 1.0 + s.exponential()),
        ("out5", |s| outlier(s, 0.05)),
        ("out5 clustered", |s| 1.0 + 0.02 * s.normal() + if s.chance(0.05) { 0.5 } else { 0.0 }),
    ];
    for n in [16, 21, 31, 51, 101] {
        print!("n {n:4}");
        let mut source = Source(fastrand::Rng::with_seed(n));
        let mut rate = |f: &dyn Fn(&mut Source) -> f64| {
            (0..RUNS)
                .filter(|_| {
                    let s: Vec<f64> = (0..n).map(|_| f(&mut source)).collect();
                    modes::find(&pooled(&[&s])).is_some()
                })
                .count() as f64
                / RUNS as f64
                * 100.0
        };
        for (name, f) in uni {
            print!("  {name} {:.2}", rate(&f));
        }
        for (share, sep) in [(0.3, 5.0), (0.3, 6.0), (0.7, 6.0), (0.3, 8.0), (0.5, 6.0)] {
            print!(
                "  {share}/{sep} {:.1}",
                rate(&|s: &mut Source| { 10.0 + 0.1 * s.normal() + if s.chance(share) { 0.1 * sep } else { 0.0 } })
            );
        }
        println!();
    }
}
