//! The model of ping-pongs: against simulated paths, by an engine of its own that shares no code with the model's; the shape of
//! the published experiment; curves without that form.
//!
//! `cargo test --test it pingpong -- --nocapture` prints what the book quotes. Seeds are fixed: results do not vary.

use crate::common::by_hand;
use crate::common::messages::{HZ, Truth, normal, powers, published, published_record, visit};
use crate::common::schema::Validator;

use anstream::adapter::strip_str;
use fastrand::Rng;
use membound_analyze::answer::Answer;
use membound_analyze::experiments::pingpong::rows::{PingPongRow, Together};
use membound_analyze::of_record as model;
#[cfg(feature = "report")]
use membound_analyze::output::html;
use membound_analyze::output::{csv, json, terminal};
use membound_analyze::report::Report;
use membound_analyze::row::AnyRow;
use membound_core::case::Work;
use membound_core::curves::pingpong::fit::Point;
use membound_core::curves::pingpong::path::{Curves, Path, Source};
use membound_core::json::parsed;
use membound_core::parallel;
use membound_core::record::Measurement;
use membound_core::stats;
use membound_core::units::Nanoseconds;
use membound_core::work::pingpong::MessageMode;

/// 0 B, powers of two, and from 64 B on four sizes an octave up to 64 MiB.
fn sizes() -> Vec<f64> {
    let small = [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0];
    let large = (0..=80).map(|step| (64.0 * (f64::from(step) / 4.0).exp2()).round());
    small.into_iter().chain(large).collect()
}

/// 0 B and powers of two up to 64 MiB: IMB's sizes.
/// A size, from 21 samples in three visits: each is off by `noise`, one in fifty is disturbed.
fn sampled(bytes: f64, seconds: f64, noise: f64, rng: &mut Rng) -> Point {
    let mut sample = || {
        let late = if rng.f64() < 0.02 { 0.2 + rng.f64() } else { 0.0 };
        seconds * (1.0 + noise * normal(rng) + late)
    };
    let visits: Vec<Vec<f64>> = (0..3).map(|_| (0..7).map(|_| sample()).collect()).collect();
    let views: Vec<&[f64]> = visits.iter().map(Vec::as_slice).collect();
    let summary = stats::summarize(&views).unwrap();
    Point { bytes, one_way_s: [summary.median, summary.ci95[0], summary.ci95[1]] }
}

fn curve(sizes: &[f64], noise: f64, rng: &mut Rng, seconds: impl Fn(f64) -> f64) -> Vec<Point> {
    sizes.iter().map(|&bytes| sampled(bytes, seconds(bytes), noise, rng)).collect()
}

fn curves(truth: &Truth, sizes: &[f64], noise: f64, rng: &mut Rng) -> Curves {
    let alone = |bytes: f64| truth.one_way_s(bytes, 1);
    let stream = |bytes: f64| alone(bytes) - (1.0 - truth.gap) * truth.regime(bytes).1;
    Curves {
        pingpong: (1..=3)
            .map(|pairs| (pairs, curve(sizes, noise, rng, |bytes| truth.one_way_s(bytes, pairs))))
            .collect(),
        one_way: curve(sizes, noise, rng, stream),
        exchange: curve(sizes, noise, rng, alone),
    }
}

fn between(rng: &mut Rng, low: f64, high: f64) -> f64 {
    low * (high / low).powf(rng.f64())
}

/// A path drawn at random.
fn truth(rng: &mut Rng) -> Truth {
    let (latency, rate) = (between(rng, 0.3e-6, 3e-6), between(rng, 1e9, 8e9));
    let mut regimes = vec![(f64::INFINITY, latency, rate)];
    if rng.f64() < 0.7 {
        let eager = f64::from(rng.i32(10..=16)).exp2();
        let (slower, faster) = (between(rng, 1.3, 4.0), between(rng, 1.2, 3.0));
        regimes = vec![(eager, latency, rate), (f64::INFINITY, latency * slower, rate * faster)];
    }
    let cache = (rng.f64() < 0.5).then(|| (between(rng, 128e3, 4e6), between(rng, 1.3, 2.5)));
    let limit = if rng.bool() { f64::from(rng.i32(17..=22)).exp2() } else { between(rng, 128e3, 4e6).round() };
    let pause = if rng.bool() { between(rng, 0.15, 0.6) } else { 0.0 };
    let mut truth = Truth { regimes, cache, chunks: None, gap: 0.2 * rng.f64() };
    if rng.f64() < 0.85 {
        truth.chunks = Some((limit, pause * truth.bytes_s(limit)));
    }
    truth
}

impl Truth {
    /// Whether one pair alone must tell the limit of a chunk: turning round costs 15 % of a chunk or more, and the cache
    /// ends an octave off or farther.
    fn tells_chunks(&self) -> bool {
        let is_apart = |limit: f64| self.cache.is_none_or(|(capacity, _)| (capacity / limit).log2().abs() >= 1.0);
        self.chunks.is_some_and(|(limit, pause)| pause >= 0.149 * self.bytes_s(limit) && is_apart(limit))
    }

    /// Where a regime ends, if that must be found: the time jumps there by 15 % or more.
    fn told_switch(&self) -> Option<f64> {
        let [first, second] = &self.regimes[..] else { return None };
        let at = first.0;
        let [before, after] = [first, second].map(|regime| regime.1 + at / regime.2);
        ((after / before - 1.0).abs() >= 0.15).then_some(at)
    }
}

/// Least squares of relative deviations: what is left, squared and added up.
fn left_over(rows: &[Vec<f64>], times: &[f64]) -> f64 {
    let columns = rows[0].len();
    let size = |column: usize| rows.iter().zip(times).map(|(row, t)| row[column] / t).fold(1e-300, f64::max);
    let sizes: Vec<f64> = (0..columns).map(size).collect();
    let scaled = |row: &[f64], t: f64| -> Vec<f64> { row.iter().zip(&sizes).map(|(x, size)| x / t / size).collect() };
    let rows: Vec<Vec<f64>> = rows.iter().zip(times).map(|(row, t)| scaled(row, *t)).collect();
    let mut m: Vec<Vec<f64>> = (0..columns)
        .map(|i| {
            let dot = |j: usize| rows.iter().map(|row| row[i] * row[j]).sum::<f64>();
            (0..columns).map(dot).chain([rows.iter().map(|row| row[i]).sum()]).collect()
        })
        .collect();
    for i in 0..columns {
        let pivot = m[i].clone();
        for (j, row) in m.iter_mut().enumerate().filter(|(j, _)| *j != i) {
            let by = row[i] / pivot[i];
            debug_assert!(by.is_finite(), "column {i} of row {j} depends on others");
            row.iter_mut().zip(&pivot).for_each(|(x, p)| *x -= by * p);
        }
    }
    let by: Vec<f64> = (0..columns).map(|i| m[i][columns] / m[i][i]).collect();
    rows.iter().map(|row| (row.iter().zip(&by).map(|(x, by)| x * by).sum::<f64>() - 1.0).powi(2)).sum()
}

/// The limit that fits best for whoever knows all else of the path but its rates: what the noise leaves to be known.
fn limit_of_who_knows(truth: &Truth, points: &[Point]) -> f64 {
    let chunk = truth.chunks.unwrap().0;
    let times: Vec<f64> = points.iter().map(|point| point.one_way_s[0]).collect();
    let row = |bytes: f64, limit: f64| {
        let own = |&(end, ..): &(f64, f64, f64)| truth.regime(bytes).0 == end;
        let regimes = truth.regimes.iter().flat_map(|regime| if own(regime) { [1.0, bytes] } else { [0.0, 0.0] });
        let beyond = truth.cache.iter().map(|(capacity, _)| (bytes - capacity).max(0.0));
        regimes.chain(beyond).chain([((bytes / limit).ceil() - 1.0).max(0.0)]).collect::<Vec<f64>>()
    };
    let misfit = |limit: f64| left_over(&points.iter().map(|p| row(p.bytes, limit)).collect::<Vec<_>>(), &times);
    let limits = (-80..=80).map(|step| chunk * 1.005f64.powi(step));
    limits.map(|limit| (misfit(limit), limit)).min_by(|a, b| a.0.total_cmp(&b.0)).unwrap().1
}

#[derive(Debug, Default)]
struct Count {
    found: usize,
    of: usize,
}

impl Count {
    fn add(&mut self, is_found: bool) -> bool {
        self.of += 1;
        self.found += usize::from(is_found);
        is_found
    }

    fn share(&self) -> f64 {
        self.found as f64 / self.of.max(1) as f64
    }
}

/// Share of sizes at which a model is within 10 %, and its median error.
fn errors(truth: &Truth, path: &Path, sizes: &[f64], pairs: usize) -> (f64, f64) {
    let off = |bytes: &f64| (path.one_way_s(*bytes, pairs) / truth.one_way_s(*bytes, pairs) - 1.0).abs();
    let mut all: Vec<f64> = sizes.iter().map(off).collect();
    all.sort_by(f64::total_cmp);
    (all.iter().filter(|off| **off <= 0.1).count() as f64 / all.len() as f64, all[all.len() / 2])
}

/// The limit of a path's chunks; infinite where there is none.
fn limit(path: &Path) -> f64 {
    path.limit.map_or(f64::INFINITY, |limit| limit.value[0])
}

/// What is found of a path drawn at random.
struct Fits {
    path: Path,
    /// Where one pair must tell the limit: with what two say as well, and for whoever knows all else.
    told: Option<[f64; 2]>,
}

impl Fits {
    /// Three pairs tell nothing here: they are predicted. What one pair tells is held against two and three; what only two pairs
    /// tell, against three.
    fn of(truth: &Truth, all: &Curves) -> Fits {
        let mut by_two = all.clone();
        by_two.pingpong.remove(&3);
        if !truth.tells_chunks() {
            return Fits { path: Path::of(&by_two).unwrap(), told: None };
        }
        let mut by_one = by_two.clone();
        by_one.pingpong.remove(&2);
        let told = Some([limit(&Path::of(&by_two).unwrap()), limit_of_who_knows(truth, &by_one.pingpong[&1])]);
        Fits { path: Path::of(&by_one).unwrap(), told }
    }
}

#[test]
fn random_paths_are_recovered() {
    let sizes = sizes();
    let mut rng = Rng::with_seed(8);
    let mut asymptotes = Count::default();
    let (mut switches, mut alone, mut by_two, mut none) = <(Count, Count, Count, Count)>::default();
    let mut predicted = <[Count; 2]>::default();
    let mut nearly_everywhere = <[Count; 2]>::default();
    let mut fits = Count::default();
    let (mut by_both, mut known) = <(Count, Count)>::default();
    let cases: Vec<(Truth, Curves)> = (0..200)
        .map(|_| {
            let truth = truth(&mut rng);
            let measured = curves(&truth, &sizes, 0.05, &mut rng);
            (truth, measured)
        })
        .collect();
    let (some, others) = cases.split_at(cases.len() / 2);
    let fitted =
        |cases: &[(Truth, Curves)]| -> Vec<Fits> { cases.iter().map(|(truth, all)| Fits::of(truth, all)).collect() };
    let (mut fitted_first, fitted_last) = parallel::both(|| fitted(some), || fitted(others));
    fitted_first.extend(fitted_last);
    for (case, ((truth, _), Fits { path, told })) in cases.iter().zip(fitted_first).enumerate() {
        let is_near = |found: f64, truth: f64| (found / truth - 1.0).abs() <= 0.05;
        asymptotes.add(path.alone.asymptote.is_some_and(|rate| is_near(rate[0], truth.asymptote())));
        fits.add(path.alone.holds());
        if let Some(at) = truth.told_switch() {
            switches.add(path.alone.regimes.iter().any(|regime| regime.to.is_some_and(|to| to[0] == at)));
        }
        let limit = limit(&path);
        let found = match truth.chunks {
            Some((chunk, _)) => match told {
                Some([by_pairs, by_knowledge]) => {
                    by_both.add(is_near(by_pairs, chunk));
                    known.add(is_near(by_knowledge, chunk));
                    alone.add(is_near(limit, chunk))
                }
                None => by_two.add(is_near(limit, chunk)),
            },
            None => none.add(path.limit.is_none()),
        };
        for pairs in [2, 3] {
            let (within, typical) = errors(truth, &path, &sizes, pairs);
            nearly_everywhere[pairs - 2].add(within >= 0.9);
            if !predicted[pairs - 2].add(within >= 0.75 && typical <= 0.1) || !found {
                println!("{case}: {pairs} pairs: {within:.2} within 10 %, {typical:.3}; {found}\n  {truth:?}");
                println!("  {:?} {:?} {:?} {:?}", path.limit, path.alone.regimes, path.alone.caches, path.alone.chunks);
            }
        }
    }
    println!("asymptotes within 5 %: {asymptotes:?}; fits: {fits:?}; switches: {switches:?}");
    println!(
        "limits within 5 %: by one pair {alone:?}, else by two {by_two:?}; no limit claimed where none is: {none:?}"
    );
    println!("where one pair must tell: with two as well {by_both:?}; by one, all else known {known:?}");
    println!(
        "2-2 and 3-3 typically within 10 %, and at three sizes of four: {predicted:?}; at nine of ten: {nearly_everywhere:?}"
    );
    for (what, count, least) in [
        ("asymptotes", &asymptotes, 0.95),
        ("fits", &fits, 0.95),
        ("switches", &switches, 0.95),
        // 65 of 70: two are unseen beside a cache, three are 5 to 8 % off. Who knows all else finds 66.
        ("limits by one pair", &alone, 0.9),
        ("limits by one pair, all else known", &known, 0.9),
        ("limits by both", &by_both, 0.9),
        ("limits by two", &by_two, 0.95),
        ("no limits", &none, 0.95),
        ("2-2", &predicted[0], 0.95),
        ("3-3", &predicted[1], 0.95),
    ] {
        assert!(count.of >= 10 && count.share() >= least, "{what}: {count:?}");
    }
    assert!(alone.found + 2 >= known.found, "what one pair tells is hardly less than what noise leaves to be told");
}

#[test]
fn the_published_shape_has_chunks_of_1_mib() {
    let (truth, mut rng) = (published(), Rng::with_seed(2));
    let mut measured = curves(&truth, &powers(), 0.05, &mut rng);
    let path = Path::of(&measured).unwrap();
    let limit = path.limit.unwrap();
    assert_eq!((limit.value[0], limit.by), (1048576.0, Source::TwoPairs), "{path:?}");
    // The overshoot: more than one direction carries, right up to the limit. Then it drops.
    let total = |bytes: f64, pairs: usize| pairs as f64 * bytes / path.one_way_s(bytes, pairs);
    let one = path.alone.asymptote.unwrap()[0];
    assert!(total(1048576.0, 2) > 1.9 * one && total(2097152.0, 2) < 1.4 * one && total(67108864.0, 2) < 1.05 * one);
    // Three pairs were not looked at for any parameter.
    let three = path.predict(3, &measured.pingpong[&3]);
    assert!(three.is_prediction && three.holds(), "{three:?}");
    assert!(!path.predict(2, &measured.pingpong[&2]).is_prediction);
    // Without pairs together nothing tells of chunks.
    measured.pingpong.retain(|pairs, _| *pairs == 1);
    assert_eq!(Path::of(&measured).unwrap().limit, None);
}

/// Pairs that have a path each are told from pairs that share one; but not by two, which would be in anti-phase.
#[test]
fn private_paths_are_not_shared() {
    let (truth, mut rng) = (published(), Rng::with_seed(3));
    let mut measured = curves(&truth, &powers(), 0.05, &mut rng);
    for pairs in [2, 3] {
        measured.pingpong.insert(pairs, curve(&powers(), 0.05, &mut rng, |bytes| truth.one_way_s(bytes, 1)));
    }
    let path = Path::of(&measured).unwrap();
    assert_eq!((path.is_shared.value, path.is_shared.by), (false, Source::MorePairs), "{path:?}");
    assert!(path.limit.is_none() && [2, 3].iter().all(|pairs| path.predict(*pairs, &measured.pingpong[pairs]).holds()));
    assert!(!path.predict(3, &measured.pingpong[&3]).is_prediction, "what told that is not predicted");
    measured.pingpong.remove(&3);
    let path = Path::of(&measured).unwrap();
    assert_eq!((path.is_shared.value, path.is_shared.by), (true, Source::Assumed), "{path:?}");
}

#[test]
fn both_ways_at_once_tell_half_duplex() {
    let (truth, mut rng) = (published(), Rng::with_seed(4));
    let mut measured = curves(&truth, &powers(), 0.05, &mut rng);
    measured.exchange = curve(&powers(), 0.05, &mut rng, |bytes| truth.one_way_s(bytes, 1) + truth.bytes_s(bytes));
    measured.pingpong.retain(|pairs, _| *pairs == 1);
    let path = Path::of(&measured).unwrap();
    assert!((path.slowdown.value - 2.0).abs() < 0.1 && path.slowdown.by == Source::Exchange, "{path:?}");
    let gain = path.one_way_s(67108864.0, 2) / path.one_way_s(67108864.0, 1);
    assert!((gain - 2.0).abs() < 0.1, "two pairs are no faster together than one: {gain}");
}

#[test]
fn curves_without_that_form() {
    let mut rng = Rng::with_seed(5);
    let flat = |pairs: f64| move |bytes: f64| pairs * (1e-7 + bytes / 9e9);
    let pingpong = (1..=3).map(|pairs| (pairs, curve(&sizes(), 0.05, &mut rng, flat(1.0)))).collect();
    let path = Path::of(&Curves { pingpong, ..Curves::default() }).unwrap();
    assert!(path.alone.holds() && path.limit.is_none() && path.alone.regimes.len() == 1, "{path:?}");
    assert!((path.alone.asymptote.unwrap()[0] / 9e9 - 1.0).abs() < 0.05);

    let wild: Vec<Point> =
        sizes().iter().map(|&bytes| sampled(bytes, between(&mut rng, 1e-6, 1e-3), 0.01, &mut rng.clone())).collect();
    let path = Path::of(&Curves { pingpong: [(1, wild)].into(), ..Curves::default() }).unwrap();
    assert!(!path.alone.holds(), "{path:?}");
    assert!(path.limit.is_none(), "{path:?}");

    assert!(Path::of(&Curves::default()).is_none());
    let few = curve(&[0.0, 1.0, 2.0], 0.01, &mut rng, flat(1.0));
    assert!(Path::of(&Curves { pingpong: [(1, few)].into(), ..Curves::default() }).is_none());
}

/// Whatever stands in a record, a fit ends and gives no figure that is none.
#[test]
fn nonsense_is_survived() {
    let mut rng = Rng::with_seed(6);
    for _ in 0..20 {
        let mut strange = |bytes: f64| {
            let odd = [0.0, f64::NAN, f64::INFINITY, -1.0, 1e-300, 1e300, 1e-6][rng.usize(0..7)];
            Point { bytes, one_way_s: [odd, odd, odd] }
        };
        let points: Vec<Point> = powers().into_iter().map(&mut strange).collect();
        let curves = Curves {
            pingpong: [(1, points.clone()), (2, points.clone())].into(),
            one_way: points.clone(),
            exchange: points,
        };
        if let Some(path) = Path::of(&curves) {
            assert!(path.one_way_s(4096.0, 2) >= 0.0, "{path:?}");
        }
    }
}

fn report(measurements: Vec<Measurement>) -> Report {
    model::report(&by_hand::record(by_hand::clock(HZ), by_hand::unknown_machine(), measurements))
}

#[test]
fn rows_by_hand() {
    let samples = vec![vec![1e6, 0.5e6]; 12];
    let both =
        visit(MessageMode::Exchange, 1 << 20, 0, &samples.iter().map(|pairs| pairs[..1].to_vec()).collect::<Vec<_>>());
    let empty = visit(MessageMode::PingPong, 0, 0, &vec![vec![400.0]; 12]);
    let report = report(vec![visit(MessageMode::PingPong, 1 << 20, 0, &samples), both, empty]);
    let [empty, two, both] = &report.messages.rows[..] else { panic!("{:?}", report.messages.rows) };
    // 1 MiB in 1 ms and in 0.5 ms: 1048.576 + 2097.152 MB/s; of one time for both, 2/(1 + 2) ms.
    assert!((two.payload_bps.unwrap().median - 3145.728e6).abs() < 1.0, "{two:?}");
    assert!((two.one_way_ns.unwrap().median - 2e6 / 3.0).abs() < 1e-3);
    assert_eq!((two.way().1, two.slowest_pair_ns, two.fastest_pair_ns), (2, Some(1e6), Some(0.5e6)));
    // Both directions count: 2 x 1 MiB in 1 ms.
    assert!((both.payload_bps.unwrap().median - 2097.152e6).abs() < 1.0, "{both:?}");
    assert_eq!((empty.one_way_ns.unwrap().median, empty.payload_bps, empty.slowest_pair_ns), (400.0, None, None));
    assert!(report.messages.models.is_empty(), "a size is no curve");
}

#[test]
fn the_published_shape_is_told_in_every_view() {
    let record = published_record();
    let report = model::report(&by_hand::written_and_read(&record));
    let [model] = &report.messages.models[..] else { panic!("{:?}", report.messages.models) };
    assert_eq!(model.model.limit.unwrap().value[0], 1048576.0, "{model:?}");
    assert_eq!(model.predictions.iter().map(|together| together.by_one.pairs).collect::<Vec<_>>(), [2, 3]);
    let holds = |together: &Together| together.by_all.holds() && together.by_one.holds();
    assert!(model.predictions.iter().all(holds), "{:?}", model.predictions);
    assert!(model.forecasts.is_empty(), "what was measured is not forecast");
    let sentence = report.findings.join(" ");
    let alone = |row: &&PingPongRow| row.way() == (MessageMode::PingPong, 1);
    let shortest = report.messages.rows.iter().filter(alone).min_by_key(|row| row.case.working_set).unwrap();
    let (size, takes) = (shortest.case.working_set, Nanoseconds(shortest.one_way_ns.unwrap().value()));
    let as_its_row =
        format!("Messages, same package, same buffers, {} 1-1: {size} take {takes} one way", MessageMode::PingPong);
    assert!(sentence.starts_with(&as_its_row), "{sentence}");
    for word in [
        "messages over 1 MiB",
        "(2-2 tells)",
        "2-2 overshoots to",
        "3-3",
        "predicted from 1-1 and that limit within",
        "beyond 16 KiB",
    ] {
        assert!(sentence.contains(word), "no {word:?} in {sentence}");
    }
    let text = terminal::answer(&report, &report.messages);
    let plain = strip_str(&text).to_string();
    assert!(plain.lines().all(|line| line.chars().count() <= 80), "{plain}");
    for word in ["1-1", "2-2", "3-3", "model", "told by", "chunk", "1 MiB", "64 MiB", "one-way"] {
        assert!(plain.contains(word), "no {word:?} in {plain}");
    }
    let rows: Vec<&dyn AnyRow> = report.any_rows().collect();
    let table = csv::rows(&rows);
    assert!(table.contains("one_way_ns_median") && table.contains("pingpong-model,"), "{table}");
    let again: Vec<serde_json::Value> = serde_json::from_str(&json::rows(&rows)).unwrap();
    assert_eq!(
        again,
        rows.iter().map(|row| parsed(&row.json())).collect::<Vec<_>>(),
        "rows are read back as what they are"
    );
    #[cfg(feature = "report")]
    {
        let page = html::page(&report);
        assert!(page.contains("Messages between processes") && page.contains("chunks of 1 MiB"));
        assert!(["2-2", "3-3"].iter().all(|pairs| page.contains(&format!("{pairs} predicted from 1-1"))));
    }
}

/// One pair alone foretells what two and three do; with the limit that the sizes of messages show, in every step. By hand, at
/// 2 MiB and 1.5 GB/s: 5.2 us and two chunks of 699 us alone (1403.3 us), of which 10 % of the latency hold the path.
#[test]
fn pairs_are_foretold_by_one() {
    let (truth, mut rng) = (published(), Rng::with_seed(11));
    let measured = curves(&truth, &powers(), 0.02, &mut rng);
    let all = Path::of(&measured).unwrap();
    let one = Path::of_one_pair(&measured).unwrap();
    assert_eq!((one.limit, one.is_shared.by), (None, Source::Assumed), "one pair shows no chunks here");
    let one = Path { limit: all.limit, ..one };
    for pairs in [2, 3] {
        let foretold = one.predict(pairs, &measured.pingpong[&pairs]);
        assert!(foretold.is_prediction == (pairs == 3) && foretold.off < 0.05, "{foretold:?}");
    }
    // Each waits for all of the other's chunks but the last: 3/2 of the time alone; 2 x 2 MiB in 2.1 ms are 2.0 GB/s.
    let rate = 2.0 * 2097152.0 / one.one_way_s(2097152.0, 2) / 1e9;
    assert!((rate - 2.0).abs() < 0.05, "{rate}");
    let forecast = |kept: &[usize]| {
        let mut record = published_record();
        record.measurements.retain(|measurement| match &measurement.case.work {
            Work::PingPong(work) => kept.contains(&work.pairs.len()),
            _ => false,
        });
        let report = model::report(&record);
        let pairs = report.messages.models[0].forecasts.iter().map(|forecast| forecast.0).collect::<Vec<_>>();
        (pairs, report.findings.join(" "))
    };
    let (pairs, said) = forecast(&[1]);
    assert_eq!(pairs, [2, 3]);
    assert!(said.contains("if they share the path and messages go whole (predicted from 1-1, not measured)"), "{said}");
    let (pairs, said) = forecast(&[1, 2]);
    assert_eq!(pairs, [3]);
    assert!(said.contains("3-3 would overshoot to") && !said.contains("go whole"), "{said}");
}

/// Three pairs, of which the last is on another host; and all of them with too few CPUs.
#[test]
fn pairs_over_several_paths_and_crowded_ones_are_shown_without_a_model() {
    let mut record = published_record();
    for visit in &mut record.measurements {
        if let Work::PingPong(work) = &mut visit.case.work
            && let Some(third) = work.pairs.get_mut(2)
        {
            third.iter_mut().for_each(|seat| seat.host = 1);
        }
    }
    let report = model::report(&by_hand::written_and_read(&record));
    let model = &report.messages.models[0];
    let pairs: Vec<usize> = model.predictions.iter().map(|together| together.by_all.pairs).collect();
    assert_eq!((pairs, &model.spread[..], model.forecasts.len()), (vec![2], &[3][..], 0));
    for row in report.messages.rows.iter().filter(|row| row.way().0 == MessageMode::PingPong) {
        assert_eq!(row.model_ns.is_some(), row.way().1 < 3, "{row:?}");
    }
    let said = report.messages.sentences().join(" ");
    assert!(said.contains("of 3-3 the model says nothing: the pairs are over several paths"), "{said}");
    let told_by = |name: &str| model.rows().into_iter().find(|row| row.parameter == name).map(|row| row.told_by);
    assert_eq!([told_by("2-2"), told_by("3-3")], [Some(Source::TwoPairs), None]);
    for visit in &mut record.measurements {
        if let Work::PingPong(work) = &mut visit.case.work {
            work.oversubscribed = true;
        }
    }
    let crowded = model::report(&record).messages;
    assert!(!crowded.rows.is_empty() && crowded.models.is_empty());
}

/// Seen on a busy host: the smallest message was 64 KiB, a typical one 32 % off, and chunks of 12 KiB were claimed.
#[test]
fn nothing_is_claimed_beyond_the_data() {
    let sizes: Vec<f64> = (16..=24).map(|power| f64::from(power).exp2()).collect();
    let mut unclaimed = 0;
    for seed in 0..30 {
        let mut rng = Rng::with_seed(seed);
        let wild = |pairs: usize, rng: &mut Rng| {
            let seconds = |bytes: f64| pairs as f64 * (20e-6 + bytes / 3e9);
            let point = |&bytes: &f64| {
                let off = (0.45 * normal(rng)).exp();
                let time = seconds(bytes) * off;
                Point { bytes, one_way_s: [time, 0.6 * time, 1.5 * time] }
            };
            sizes.iter().map(point).collect::<Vec<_>>()
        };
        let pingpong = (1..=3).map(|pairs| (pairs, wild(pairs, &mut rng))).collect();
        let path = Path::of(&Curves { pingpong, ..Curves::default() }).unwrap();
        unclaimed += usize::from(path.unclaimed.is_some());
        assert_eq!(path.limit, None, "seed {seed}: {path:?}");
    }
    assert!(unclaimed > 0, "no such curve looked as if it had chunks");
    // However uncertain its points: what is off by half is no prediction.
    let line = |factor: f64| {
        sizes.iter().map(move |bytes| Point { bytes: *bytes, one_way_s: [factor * (20e-6 + bytes / 3e9), 1e-9, 1.0] })
    };
    let alone: Vec<Point> = line(1.0).collect();
    let path = Path::of(&Curves { pingpong: [(1, alone)].into(), ..Curves::default() }).unwrap();
    assert!(path.predict(2, &line(1.0).collect::<Vec<_>>()).holds());
    assert!(!path.predict(2, &line(2.0).collect::<Vec<_>>()).holds());
    // A limit below all sizes leaves no trace that is its own.
    let truth = Truth { chunks: Some((12288.0, 2e-6)), ..published() };
    let path = Path::of(&curves(&truth, &sizes, 0.01, &mut Rng::with_seed(1))).unwrap();
    assert!(path.limit.is_none_or(|limit| limit.value[0] >= 65536.0), "{path:?}");
}

#[test]
fn rows_of_messages_fit_the_schema() {
    let report = model::report(&by_hand::written_and_read(&published_record()));
    let validator = Validator::of(&schemars::schema_for!(dyn AnyRow).to_value()).unwrap();
    let rows: Vec<serde_json::Value> =
        serde_json::from_str(&json::rows(&report.any_rows().collect::<Vec<_>>())).unwrap();
    assert!(rows.iter().any(|row| row["metric"] == "pingpong-model" && row["parameter"] == "chunk"));
    for row in &rows {
        assert!(validator.is_valid(row), "{row}");
    }
}
