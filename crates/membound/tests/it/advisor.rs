//! The placement advisor: hand-computed answers, an independent search through all placements, records to tiers, the command.

use std::process::Command;

use crate::common::by_hand;
use crate::common::imitation::{machine, record, visit};
use crate::common::program::tried;
use crate::common::skip::skip;
use membound_analyze::across::advisor::{Advice, NoAdvice, Question, Speed, Stream, Tier, advise, streams};
use membound_analyze::across::recipes::recipes;
use membound_analyze::across::sections;
use membound_analyze::across::tiers::{NoTiers, tiers};
use membound_analyze::of_record as model;
use membound_analyze::output::terminal;
use membound_analyze::report::Report;
use membound_core::case::steady;
use membound_core::kernel::catalog::{Kernel, Rows};
use membound_core::kernel::formula::Formula;
use membound_core::kernel::{StoreKind, Width};
use membound_core::memory::{MemoryKind, MemorySpec};
use membound_core::record::Measurement;
use membound_core::units::Bytes;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

fn exactly(load: f64, store: f64) -> Speed {
    Speed { load_bps: [load; 3], store_bps: [store; 3] }
}

/// Knights Landing in flat mode: 96 GiB of DDR at 90 GB/s, 16 GiB of MCDRAM at 400 GB/s. A regular store moves its line
/// twice, so stores alone run at half the rate.
fn knights_landing(store: StoreKind) -> Vec<Tier> {
    let tier = |node, bus: f64, gib| {
        let store = if store == StoreKind::Regular { bus / 2.0 } else { bus };
        Tier { node, free: Bytes::gib(gib), all: exactly(bus, store), one: None }
    };
    vec![tier(0, 90e9, 96), tier(1, 400e9, 16)]
}

fn triad(each: Bytes, store: StoreKind) -> Vec<Stream> {
    let sizes: Vec<(String, Bytes)> = ["a", "b", "c"].map(|name| (name.into(), each)).into();
    streams(&Kernel::named("triad").unwrap().formula(), Rows::None, store, &sizes).unwrap()
}

fn nodes(advice: &Advice) -> Vec<u32> {
    advice.streams.iter().map(|placed| placed.node).collect()
}

fn close(got: f64, expect: f64) {
    assert!((got / expect - 1.0).abs() < 1e-9, "{got} is not {expect}");
}

/// What one pass moves, counted by hand from the loops: units of a stream's size.
#[test]
fn streams_carry_their_traffic() {
    let check = |text: &str, rows, store, expect: &[(&str, u64, u64)]| {
        let formula = Formula::parse(text).unwrap();
        let sizes: Vec<_> = expect.iter().map(|(name, ..)| (name.to_string(), Bytes(1000))).collect();
        let found = streams(&formula, rows, store, &sizes).unwrap();
        let found: Vec<_> = found.iter().map(|s| (s.name.as_str(), s.loaded.0 / 1000, s.stored.0 / 1000)).collect();
        assert_eq!(found, expect, "{text} {store}");
    };
    let (regular, nt) = (StoreKind::Regular, StoreKind::Nt);
    check("a[i] = b[i] + s*c[i]", Rows::None, regular, &[("a", 0, 1), ("b", 1, 0), ("c", 1, 0)]);
    check("a[i] = b[i] + s*c[i]", Rows::None, nt, &[("a", 0, 1), ("b", 1, 0), ("c", 1, 0)]);
    // In place: the read that a regular store begins with is the load; a non-temporal store has none.
    check("a[i] = a[i] + s*b[i]", Rows::None, regular, &[("a", 0, 1), ("b", 1, 0)]);
    check("a[i] = a[i] + s*b[i]", Rows::None, nt, &[("a", 1, 1), ("b", 1, 0)]);
    check("sum += b[i]*b[i]", Rows::None, regular, &[("b", 1, 0)]);
    let jacobi = Kernel::named("jacobi-long").unwrap();
    check(jacobi.text, jacobi.rows, regular, &[("a", 0, 1), ("b", 3, 0)]);
    check(jacobi.text, Rows::Short, regular, &[("a", 0, 1), ("b", 1, 0)]);

    let formula = Formula::parse("a[i] = b[i]").unwrap();
    for sizes in [vec![("a", 1)], vec![("a", 1), ("z", 1)], vec![("a", 1), ("a", 1)], vec![]] {
        let sizes: Vec<_> = sizes.iter().map(|(name, n)| (name.to_string(), Bytes(*n))).collect();
        let error = streams(&formula, Rows::None, regular, &sizes).unwrap_err();
        assert!(error.to_string().contains("streams a, b; give each"), "{error}");
    }
}

/// Three arrays of 6 GiB, two of which fit. With regular stores `a` moves 12 GiB a pass, `b` and `c` 6 each. All on DDR:
/// 24 GiB / 90 GB/s. Best: a and b (of b and c the first) in MCDRAM, 18 GiB / 400, while c's 6 GiB / 90 take longer.
/// So 24 / 6 = 4 times as fast. One after the other: 24/90 / (18/400 + 6/90) = 0.26667 / 0.11167 = 2.388.
#[test]
fn knights_landing_with_regular_stores() {
    let question = Question {
        streams: triad(Bytes::gib(6), StoreKind::Regular),
        tiers: knights_landing(StoreKind::Regular),
        cores: 68,
        default: 0,
    };
    let advice = advise(&question).unwrap();
    assert_eq!(nodes(&advice), [1, 0, 1]);
    close(advice.pass_s[0], 6.0 * 1073741824.0 / 90e9);
    let gain = advice.gain.unwrap();
    close(gain[0], 4.0);
    assert_eq!((gain[1], gain[2]), (gain[0], gain[0]), "exact rates have no interval");
    close(advice.gain_in_turn.unwrap()[0], (24.0 / 90.0) / (18.0 / 400.0 + 6.0 / 90.0));
    assert_eq!((advice.limited_by, advice.nodes[1].holds), (Some(0), Bytes::gib(12)));
    assert_eq!(advice.nodes[1].gain, None, "18 GiB do not fit 16");
    assert_eq!(
        advice.says,
        "Put a and c (12 GiB) on node 1 and b (6 GiB) on node 0: expect 4.00 x the speed of all on node 0; 2.39 x should \
         the nodes share one path."
    );
}

/// With non-temporal stores all three move 6 GiB: 18 / 90 against 6 / 90.
#[test]
fn knights_landing_with_non_temporal_stores() {
    let question = Question {
        streams: triad(Bytes::gib(6), StoreKind::Nt),
        tiers: knights_landing(StoreKind::Nt),
        cores: 68,
        default: 0,
    };
    close(advise(&question).unwrap().gain.unwrap()[0], 3.0);
}

/// Where all fit, MCDRAM alone (16 / 400 = 0.0400 for 4 GiB each) is faster than leaving c on DDR (4 / 90 = 0.0444).
#[test]
fn everything_moves_where_it_fits() {
    let question = Question {
        streams: triad(Bytes::gib(4), StoreKind::Regular),
        tiers: knights_landing(StoreKind::Regular),
        cores: 68,
        default: 0,
    };
    let advice = advise(&question).unwrap();
    assert_eq!(nodes(&advice), [1, 1, 1]);
    close(advice.gain.unwrap()[0], 400.0 / 90.0);
    close(advice.nodes[1].gain.unwrap()[0], 1.0);
    assert!(
        advice.says.ends_with("expect 4.44 x the speed of all on node 0."),
        "one node has no path to share: {}",
        advice.says
    );
}

/// One core has so many lines in flight, whatever nodes it reads: two equal nodes do not make it faster. With as many cores as
/// it takes to saturate a node they do.
#[test]
fn one_core_gains_nothing_from_a_second_node() {
    let (one, all) = (exactly(10e9, 5e9), exactly(40e9, 20e9));
    let tier = |node, all| Tier { node, free: Bytes::gib(64), all, one: Some(one) };
    let streams = triad(Bytes::gib(1), StoreKind::Regular);
    let ask =
        |all, cores| Question { streams: streams.clone(), tiers: vec![tier(0, all), tier(1, all)], cores, default: 0 };
    let alone = advise(&ask(one, 1)).unwrap();
    assert_eq!((nodes(&alone), alone.pays), (vec![0, 0, 0], false));
    assert!(alone.says.starts_with("Nothing to gain: leave all streams on node 0"), "{}", alone.says);
    // Eight cores: a (2 units) on one node, b and c on the other, 2 / 40 against 4 / 40; the cores need 4 / 80.
    let many = advise(&ask(all, 8)).unwrap();
    close(many.gain.unwrap()[0], 2.0);
    // Five cores need 4 / 50: the limit is theirs.
    let some = advise(&ask(all, 5)).unwrap();
    close(some.gain.unwrap()[0], (4.0 / 40.0) / (4.0 / 50.0));
    assert_eq!(some.limited_by, None);
}

/// A gain of 400/380 from rates known to 10 % is none.
#[test]
fn an_interval_that_includes_one_is_no_gain() {
    let speed = |rate: f64, error: f64| {
        let around = |rate: f64| [rate, rate * (1.0 - error), rate * (1.0 + error)];
        Speed { load_bps: around(rate), store_bps: around(rate) }
    };
    let ask = |error| {
        let tier = |node, rate| Tier { node, free: Bytes::gib(8), all: speed(rate, error), one: None };
        let b = Stream { name: "b".into(), bytes: Bytes::gib(1), loaded: Bytes::gib(1), stored: Bytes(0) };
        advise(&Question { streams: vec![b], tiers: vec![tier(0, 380e9), tier(1, 400e9)], cores: 1, default: 0 })
            .unwrap()
    };
    let sure = ask(0.01);
    assert!(sure.pays, "{}", sure.says);
    let gain = sure.gain.unwrap();
    close(gain[0], 400.0 / 380.0);
    // Two independent errors of 1 %, in logarithms: 400/380 exp(-/+ sqrt(ln(1.01)^2 + ln(0.99)^2)).
    close(gain[1], gain[0] * (-(0.99f64.ln().hypot(1.01f64.ln()))).exp());
    close(gain[2], gain[0] * (0.99f64.ln().hypot(1.01f64.ln())).exp());
    let unsure = ask(0.1);
    assert_eq!((unsure.pays, unsure.gain, nodes(&unsure)), (false, Some([1.0; 3]), vec![0]));
    assert!(
        unsure.says.contains("leave all streams on node 0 (b (1 GiB) on node 1 would be 1.05 [0.913, 1.21] x"),
        "{}",
        unsure.says
    );
    // Errors of the one node that both times depend on alike cancel.
    let own = Question {
        default: 1,
        ..Question {
            streams: triad(Bytes::mib(1), StoreKind::Nt),
            tiers: vec![Tier { node: 1, free: Bytes::gib(1), all: speed(1e9, 0.2), one: None }],
            cores: 1,
            default: 1,
        }
    };
    assert_eq!(advise(&own).unwrap().gain, Some([1.0; 3]));
}

#[test]
fn of_equal_placements_the_one_that_spares_the_scarce_node_is_chosen() {
    // b alone sets the time: where a lies makes no difference, so it stays off the small node.
    let stream = |name: &str, gib| Stream {
        name: name.into(),
        bytes: Bytes::gib(gib),
        loaded: Bytes::gib(gib),
        stored: Bytes(0),
    };
    let tier = |node, gib| Tier { node, free: Bytes::gib(gib), all: exactly(1e9, 1e9), one: None };
    let tiers = vec![tier(4, 3), tier(2, 64), tier(0, 128)];
    let question = Question { streams: vec![stream("a", 1), stream("b", 8)], tiers, cores: 1, default: 2 };
    let advice = advise(&question).unwrap();
    assert_eq!(nodes(&advice), [2, 0], "none on node 4, the fewest on node 2");
}

#[test]
fn what_cannot_be_asked_says_why() {
    let good = Question {
        streams: triad(Bytes::gib(6), StoreKind::Nt),
        tiers: knights_landing(StoreKind::Nt),
        cores: 68,
        default: 0,
    };
    let check = |question: Question, part: &str| {
        let error = advise(&question).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    };
    check(Question { streams: vec![], ..good.clone() }, "give the streams that are loaded or stored a size");
    check(Question { streams: triad(Bytes(0), StoreKind::Nt), ..good.clone() }, "give the streams that are");
    check(Question { tiers: vec![], ..good.clone() }, "one node");
    check(
        Question {
            streams: triad(Bytes::gib(20), StoreKind::Nt),
            tiers: good.tiers[1..].into(),
            default: 1,
            ..good.clone()
        },
        "60 GiB in all, the largest 20 GiB; free are 16 GiB on node 1",
    );
    check(
        Question { default: 7, ..good.clone() },
        "no figures of node 7, where streams lie by default; nodes with figures: 0, 1",
    );
    check(
        Question { tiers: [good.tiers.clone(), good.tiers.clone()].concat(), ..good.clone() },
        "node 0 is given twice",
    );
    check(Question { tiers: vec![good.tiers[0]; 5], ..good.clone() }, "at most 8 streams and 4 nodes");
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let bad = Tier { all: exactly(rate, 1e9), ..good.tiers[0] };
        check(Question { tiers: vec![bad], ..good.clone() }, "node 0 has a rate that is not above 0");
    }
}

/// The same question in columns, searched by counting: placement number n has the digits of n in base (number of tiers).
struct Columns {
    /// Seconds of stream s on tier t at s * tiers + t, by all cores; and by the cores' lines in flight.
    seconds: Vec<f64>,
    core_seconds: Vec<f64>,
    sizes: Vec<u64>,
    room: Vec<u64>,
}

impl Columns {
    fn of(question: &Question) -> Columns {
        let (mut seconds, mut core_seconds) = (Vec::new(), Vec::new());
        for stream in &question.streams {
            for tier in &question.tiers {
                let time = |speed: Speed| {
                    stream.loaded.0 as f64 / speed.load_bps[0] + stream.stored.0 as f64 / speed.store_bps[0]
                };
                seconds.push(time(tier.all));
                core_seconds.push(tier.one.map_or(0.0, time) / question.cores as f64);
            }
        }
        let sizes = question.streams.iter().map(|stream| stream.bytes.0).collect();
        Columns { seconds, core_seconds, sizes, room: question.tiers.iter().map(|tier| tier.free.0).collect() }
    }

    /// Seconds and bytes on each tier of placement `n`; nothing where it does not fit.
    fn place(&self, n: usize) -> Option<(f64, Vec<u64>)> {
        let tiers = self.room.len();
        let (mut rest, mut busy, mut cores, mut held) = (n, vec![0.0; tiers], 0.0, vec![0u64; tiers]);
        for (stream, size) in self.sizes.iter().enumerate() {
            let tier = rest % tiers;
            rest /= tiers;
            busy[tier] += self.seconds[stream * tiers + tier];
            cores += self.core_seconds[stream * tiers + tier];
            held[tier] += size;
        }
        let fits = held.iter().zip(&self.room).all(|(held, room)| held <= room);
        fits.then(|| (busy.into_iter().fold(cores, f64::max), held))
    }

    fn count(&self) -> usize {
        self.room.len().pow(self.sizes.len() as u32)
    }
}

fn speed() -> impl Strategy<Value = Speed> {
    // Few different rates, so that ties are common.
    (1u32..6, 1u32..6).prop_map(|(load, store)| exactly(f64::from(load) * 25e9, f64::from(store) * 12.5e9))
}

fn question() -> impl Strategy<Value = Question> {
    let tier = (1u64..24, speed(), prop::option::of(speed()));
    let stream = (0u64..8, 0u64..4, 0u64..3);
    (prop::collection::vec(tier, 1..5), prop::collection::vec(stream, 3..7), 1usize..9).prop_map(
        |(tiers, streams, cores)| {
            let tier = |(index, (gib, all, one)): (usize, (u64, Speed, Option<Speed>))| Tier {
                node: 3 * index as u32,
                free: Bytes::gib(gib),
                all,
                one,
            };
            let stream = |(index, (gib, loads, stores)): (usize, (u64, u64, u64))| Stream {
                name: format!("s{index}"),
                bytes: Bytes::gib(gib),
                loaded: Bytes::gib(gib * loads),
                stored: Bytes::gib(gib * stores),
            };
            Question {
                streams: streams.into_iter().enumerate().map(stream).collect(),
                tiers: tiers.into_iter().enumerate().map(tier).collect(),
                cores,
                default: 0,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, rng_seed: RngSeed::Fixed(20_261_121), ..ProptestConfig::default() })]

    #[test]
    fn the_best_placement_is_found_as_by_brute_force(question in question()) {
        prop_assume!(question.streams.iter().any(|stream| stream.loaded.0 + stream.stored.0 > 0));
        let columns = Columns::of(&question);
        let all: Vec<(f64, Vec<u64>)> = (0..columns.count()).filter_map(|n| columns.place(n)).collect();
        let Some(least) = all.iter().map(|(time, _)| *time).reduce(f64::min) else {
            let is_no_room = matches!(advise(&question), Err(NoAdvice::NoRoom { .. }));
            prop_assert!(is_no_room);
            return Ok(());
        };
        let advice = advise(&question).unwrap();
        let tier = |node: u32| question.tiers.iter().position(|tier| tier.node == node).unwrap();
        let number = nodes(&advice).iter().rev().fold(0, |n, node| n * question.tiers.len() + tier(*node));
        let (time, held) = columns.place(number).expect("what is advised fits");
        prop_assert!(time <= least * (1.0 + 2e-9), "{time} against {least}");
        prop_assert!((advice.pass_s[0] - time).abs() <= 1e-9 * time);
        if !advice.pays && advice.gain.is_some() {
            prop_assert!(nodes(&advice).iter().all(|node| *node == question.default), "there is nothing to gain");
            return Ok(());
        }
        // Among equals, the fewest bytes on the scarcest node.
        let scarcest = (0..columns.room.len()).min_by_key(|tier| (columns.room[*tier], *tier == 0, *tier)).unwrap();
        let fewest = all.iter().filter(|(other, _)| *other <= least * (1.0 + 1e-10)).map(|(_, held)| held[scarcest]).min();
        prop_assert!(Some(held[scarcest]) <= fewest);
        prop_assert_eq!(&advise(&question).unwrap(), &advice);
    }

    /// Intervals hold their values, and narrower rates give no wider gain.
    #[test]
    fn intervals_hold_their_values(question in question(), error in 0.0f64..0.3) {
        let widened = |speed: Speed| Speed {
            load_bps: [speed.load_bps[0], speed.load_bps[0] * (1.0 - error), speed.load_bps[0] * (1.0 + error)],
            ..speed
        };
        let tiers = question.tiers.iter().map(|t| Tier { all: widened(t.all), ..*t }).collect();
        let wide = Question { tiers, ..question.clone() };
        let (Ok(exact), Ok(wide)) = (advise(&question), advise(&wide)) else { return Ok(()) };
        let [value, low, high] = wide.pass_s;
        prop_assert!(low <= value && value <= high);
        if wide.pays {
            prop_assert_eq!(nodes(&exact), nodes(&wide), "the middle alone decides where it pays");
            let gain = wide.gain.unwrap_or([1.0; 3]);
            prop_assert!(gain[1] <= gain[0] && gain[0] <= gain[2]);
        }
    }
}

const NODES: &[(&str, &str)] = &[
    ("sys/devices/system/cpu/online", "0-1\n"),
    ("sys/devices/system/cpu/cpu0/topology/physical_package_id", "0\n"),
    ("sys/devices/system/cpu/cpu1/topology/physical_package_id", "0\n"),
    ("sys/devices/system/node/node0/cpulist", "0-1\n"),
    ("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 100663296 kB\nNode 0 MemFree: 67108864 kB\n"),
    ("sys/devices/system/node/node1/cpulist", "\n"),
    ("sys/devices/system/node/node1/meminfo", "Node 1 MemTotal: 16777216 kB\nNode 1 MemFree: 16777216 kB\n"),
];

/// Both cores load and store 90 and 45 GB/s on node 0, 400 and 200 on node 1; one core 60 and 30, 80 and 40.
fn measured() -> Vec<Measurement> {
    let mut visits = Vec::new();
    for (node, cpus, load, store) in
        [(0, vec![0, 1], 90e9, 45e9), (1, vec![0, 1], 400e9, 200e9), (0, vec![0], 60e9, 30e9), (1, vec![0], 80e9, 40e9)]
    {
        let memory = MemorySpec::on(MemoryKind::Thp, node);
        for (kernel, kind, bps) in
            [("load", StoreKind::Regular, load), ("store", StoreKind::Regular, store), ("store", StoreKind::Nt, load)]
        {
            let case = |mib| steady(kernel, Width::W256, kind, memory, cpus.clone(), Bytes::mib(mib));
            // A cache's figure is no node's.
            visits.push(visit(&case(1), 900e9, &[(node, 256)]));
            visits.push(visit(&case(4096), bps, &[(node, 4096)]));
        }
    }
    visits
}

fn report(visits: Vec<Measurement>) -> Report {
    model::report(&record(machine(NODES), visits))
}

#[test]
fn records_tell_of_tiers() {
    let found = tiers(&[report(measured())], StoreKind::Regular, None).unwrap();
    assert_eq!((found.cpus, found.default), (vec![0, 1], 0));
    let figures: Vec<_> =
        found.tiers.iter().map(|t| (t.node, t.free, t.all.load_bps[0] / 1e9, t.all.store_bps[0] / 1e9)).collect();
    let [first, second] = &figures[..] else { panic!("{figures:?}") };
    assert_eq!((first.0, first.1, second.0, second.1), (0, Bytes::gib(64), 1, Bytes::gib(16)));
    for (got, expect) in [(first.2, 90.0), (first.3, 45.0), (second.2, 400.0), (second.3, 200.0)] {
        assert!((got / expect - 1.0).abs() < 1e-3, "{got} {expect}");
    }
    let one = found.tiers[1].one.unwrap();
    assert!((one.load_bps[0] / 80e9 - 1.0).abs() < 1e-3 && one.load_bps[1] < one.load_bps[0]);
    // Two records, a node each, are as good as one.
    let (a, b): (Vec<_>, Vec<_>) = measured().into_iter().partition(|visit| visit.case.memory.node() == Some(0));
    let parts = tiers(&[report(a), report(b)], StoreKind::Regular, None).unwrap();
    assert_eq!(parts.tiers, found.tiers);
    let alone = tiers(&[report(measured())], StoreKind::Nt, Some(&[0].into_iter().collect())).unwrap();
    assert_eq!((alone.cpus, alone.tiers[0].one), (vec![0], Some(alone.tiers[0].all)));
}

#[test]
fn records_that_tell_too_little_say_what_would() {
    let without =
        |kernel: &str| measured().into_iter().filter(|v| v.case.variant().unwrap().kernel != kernel).collect();
    let fault = |visits, store| tiers(&[report(visits)], store, None).unwrap_err();
    assert!(matches!(fault(without("load"), StoreKind::Regular), NoTiers::NoLoads { .. }));
    let no_stores = fault(without("store"), StoreKind::Nt).to_string();
    assert!(no_stores.contains("--kernel load,store --store nt --node 0 --cpus 0-1"), "{no_stores}");
    let asked = tiers(&[report(measured())], StoreKind::Nt, Some(&[1].into_iter().collect())).unwrap_err();
    assert!(asked.to_string().contains("CPUs 1 load from a node's memory"), "{asked}");
}

const BY_HAND: [&str; 4] = ["advise", "triad", "--tier", "0=90GB/s:96GiB,1=400GB/s:16GiB"];

#[test]
fn a_loop_is_one_word_of_the_command_that_checks_it() {
    let (code, text, _) =
        tried(&["advise", "a[i] = b[i]", "--tier", "0=90GB/s:96GiB,1=400GB/s:16GiB", "--size", "1GiB"]);
    assert!(code == Some(0) && text.contains("--kernel 'a[i] = b[i]' --size 1GiB"), "{text}");
}

#[test]
fn the_command_advises_by_hand() {
    let (code, text, _) = tried(&[&BY_HAND[..], &["--size", "18GiB"]].concat());
    assert_eq!(code, Some(0));
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!(text);
    let (_, nt, _) = tried(&[&BY_HAND[..], &["--streams", "a=6GiB,b=6GiB,c=6GiB", "--store", "nt"]].concat());
    assert!(nt.contains("expect 3.00 x"), "{nt}");
    let (_, beyond, _) = tried(&[&BY_HAND[..], &["--size", "18GiB", "--default-node", "1"]].concat());
    assert!(beyond.contains("Node 1 alone can't hold") && !beyond.contains("expect"), "{beyond}");
    let (_, whole, _) = tried(&[&BY_HAND[..], &["--size", "12GiB"]].concat());
    assert!(whole.contains("numactl --membind=1 PROGRAM"), "{whole}");
    let (_, text, _) = tried(&[
        "advise",
        "y[i] = y[i] + s*x[i]",
        "--tier",
        "0=90GB/s:96GiB,2=400GB/s:200GB/s:9GiB",
        "--streams",
        "x=10GiB,y=8GiB",
    ]);
    assert!(text.contains("y (8 GiB) on node 2") && !text.contains("membound bandwidth"), "{text}");
    let (_, json, _) = tried(&[&BY_HAND[..], &["--size", "18GiB", "--format", "json"]].concat());
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["streams"][2]["name"], &json["streams"][2]["node"]), (&"c".into(), &1.into()));
}

/// Of the lines to write, those in C compile, with what libraries declare where their headers are not here; the one without a
/// library is linked and run, too.
#[test]
fn the_lines_to_write_compile() {
    let question = Question {
        streams: triad(Bytes::gib(6), StoreKind::Regular),
        tiers: knights_landing(StoreKind::Regular),
        cores: 68,
        default: 0,
    };
    let all = recipes(&advise(&question).unwrap());
    let names: Vec<&str> =
        all.iter().map(|recipe| recipe.what.split_once([',', ':', '(']).map_or(recipe.what, |p| p.0)).collect();
    assert_eq!(all.len(), 6, "{names:?}");
    let text = |part: &str| all.iter().find(|recipe| recipe.what.contains(part)).unwrap().lines.join("\n");
    assert!(text("libnuma").starts_with("double *a = numa_alloc_onnode(6442450944UL, 1);"), "{}", text("libnuma"));
    assert!(text("Intel").contains("!DIR$ ATTRIBUTES FASTMEM :: a\nallocate(a(805306368))"), "{}", text("Intel"));
    assert!(all.iter().flat_map(|recipe| &recipe.lines).all(|line| line.chars().count() <= 76));
    if Command::new("cc").arg("--version").output().is_err() {
        skip("no C compiler (cc)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // What the libraries' own headers say: man numa(3), hbwmalloc(3), OpenMP 5.0 section 3.7.
    const DECLARED: [(&str, &str); 3] = [
        ("numa.h", "#include <stddef.h>\nvoid *numa_alloc_onnode(size_t size, int node);\n"),
        ("hbwmalloc.h", "#include <stddef.h>\nvoid *hbw_malloc(size_t size);\n"),
        (
            "omp.h",
            "#include <stddef.h>\ntypedef enum { omp_high_bw_mem_alloc = 4 } omp_allocator_handle_t;\n\
             void *omp_alloc(size_t size, omp_allocator_handle_t allocator);\n",
        ),
    ];
    for (header, declared) in DECLARED {
        std::fs::write(folder.path().join(header), declared).unwrap();
    }
    for recipe in all.iter().filter(|recipe| !recipe.headers.is_empty()) {
        let includes: String = recipe.headers.iter().map(|header| format!("#include <{header}>\n")).collect();
        let body = recipe.lines.join("\n");
        let source = format!("#define _GNU_SOURCE\n{includes}int main(void) {{\n{body}\nreturn !a || !c;\n}}\n");
        let file = folder.path().join("lines.c");
        std::fs::write(&file, source).unwrap();
        let is_alone = recipe.what.contains("without a library");
        let mut cc = Command::new("cc");
        cc.args(["-Wall", "-Wextra", "-Werror", "-I"]).arg(folder.path()).arg(&file);
        match is_alone {
            true => cc.arg("-o").arg(folder.path().join("lines")),
            false => cc.arg("-fsyntax-only"),
        };
        let output = cc.output().unwrap();
        assert!(output.status.success(), "{}: {}", recipe.what, String::from_utf8_lossy(&output.stderr));
        if is_alone {
            // Node 1 need not be there: what counts is that the lines run.
            let status = Command::new(folder.path().join("lines")).status().unwrap();
            assert!(status.code().is_some(), "{status}");
        }
    }
}

#[test]
fn the_command_advises_from_a_record() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("numa.jsonl");
    by_hand::write(&record(machine(NODES), measured()), &path);
    let (code, text, stderr) = tried(&["advise", "triad", path.to_str().unwrap(), "--size", "18GiB"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    // All on node 0: 24 GiB / 90 GB/s. Node 1 with a and c, node 0 with b: the cores need (18/80 + 6/60) / 2 = 0.1625, more
    // than either node. 24 / 90 / 0.1625 = 1.64.
    insta::assert_snapshot!(text);
}

#[test]
fn bad_input_is_refused_with_a_cure() {
    let check = |arguments: &[&str], part: &str| {
        let (code, stdout, stderr) = tried(arguments);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{arguments:?}: {stderr}");
        assert!(stderr.contains(part), "{arguments:?}: {stderr}");
    };
    let with = |more: &[&'static str]| [&BY_HAND[..], more].concat();
    check(&["advise", "traid", "--tier", "0=1GB/s:1GiB", "--size", "1MiB"], "kernel --list");
    check(&["advise", "a[i] = ", "--tier", "0=1GB/s:1GiB", "--size", "1MiB"], "expected");
    check(&["advise", "triad", "--size", "1GiB"], "a record of `membound numa`, or --tier");
    check(&BY_HAND, "--size");
    check(&with(&["--size", "1GiB", "--streams", "a=1GiB"]), "cannot be used with");
    check(&with(&["--streams", "a=1GiB,b=1GiB"]), "the loop has the streams a, b, c");
    check(&with(&["--streams", "a"]), "such as a=2GiB");
    check(&with(&["--size", "400GiB"]), "do not fit whole");
    check(&with(&["--size", "1GiB", "--default-node", "5"]), "nodes with figures: 0, 1");
    check(&["advise", "triad", "--size", "1GiB", "--tier", "0=90:1GiB"], "such as 90GB/s");
    check(&["advise", "triad", "--size", "1GiB", "--tier", "zero"], "NODE=RATE:FREE");
    check(&["advise", "triad", "--size", "1GiB", "--tier", "0=90GB/s"], "NODE=RATE:FREE");
    check(&["advise", "triad", "--size", "1GiB", "/nowhere/at/all.jsonl"], "cannot read");
}

#[test]
fn a_view_names_what_limits() {
    let question = Question {
        streams: triad(Bytes::gib(6), StoreKind::Regular),
        tiers: knights_landing(StoreKind::Regular),
        cores: 68,
        default: 0,
    };
    let text = anstream::adapter::strip_str(&terminal::section::document(&sections::advisor::document(
        &advise(&question).unwrap(),
        Some(("triad", StoreKind::Regular)),
    )))
    .to_string();
    assert!(
        text.contains("limited by node 0")
            && text.contains("--size 18GiB \\\n      --memory a=node1,b=node0,c=node1\n"),
        "{text}"
    );
}
