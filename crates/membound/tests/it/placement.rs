//! Where memory lies. Policies are obtained for real and looked up page by page, on as many nodes as this machine has: what
//! needs two nodes with memory skips elsewhere. Refusals are outcomes with a cure. Which ratio between two
//! tiers is best is held against arithmetic, on simulated tiers.

use crate::common::by_hand;
use crate::common::program::membound;
use membound_core::record::Unit;
use std::process::Output;
use std::time::Duration;

use crate::common::seccomp::{Where, refuse};
use crate::common::skip::skip;
use membound_analyze::across::weights::Weighting;
use membound_analyze::of_record as model;
use membound_analyze::output::terminal;
use membound_analyze::report::Report;
use membound_core::case::{Case, StreamMemory};
use membound_core::experiments::frame::{Frame, PlanError};
use membound_core::experiments::weights::RATIOS;
use membound_core::kernel::catalog::Kernel;
use membound_core::kernel::{StoreKind, Width};
use membound_core::memory::located::NodePages;
use membound_core::memory::{MemoryKind, MemorySpec, Obtained};
use membound_core::record::{Measured, Measurement, Outcome, Sample, Samples, Volume};
use membound_core::units::Bytes;
use membound_core::{case, experiments as plan};
use membound_measure::executor::here::Here;
use membound_measure::memory::places::Places;
use membound_measure::memory::region::Region;
use membound_measure::schedule::{Executor, Quota};
use proptest::prelude::*;

const SIZE: Bytes = Bytes::mib(16);

/// The nodes with memory that this process may use.
fn nodes() -> Vec<u32> {
    let with_memory = membound_measure::machine::source().list("sys/devices/system/node/has_memory");
    let allowed = membound_measure::machine::live().limits.allowed_nodes;
    let is_allowed = |node: &u32| allowed.known().is_none_or(|set| set.contains(*node));
    with_memory.known().map(|set| set.iter().filter(is_allowed).collect()).unwrap_or_default()
}

/// Two nodes with memory, or a note that there are none.
fn two_nodes() -> Option<[u32; 2]> {
    match nodes()[..] {
        [first, second, ..] => Some([first, second]),
        _ => {
            skip("this machine has not two nodes with memory");
            None
        }
    }
}

/// All of it touched, and what came of that; `None` with a note where it can't be had.
fn obtained(spec: &str) -> Option<Obtained> {
    let mut region = match Region::new(spec.parse().unwrap(), SIZE, &Places::default()) {
        Ok(region) => region,
        Err(reason) => {
            skip(format!("{spec}: {reason}"));
            return None;
        }
    };
    region.words().fill(1.0);
    Some(region.inspect(region.bytes()))
}

/// Every page was looked up, and the proof of where pages lie holds. Returns the pages on each node.
fn must_hold(spec: &str) -> Option<Vec<NodePages>> {
    let obtained = obtained(spec)?;
    let [located] = &obtained.located[..] else { panic!("{spec}: {obtained:?}") };
    println!("{spec}: {:?}", obtained.proofs);
    if let Some(refusal) = &located.refusal {
        skip(refusal);
        return None;
    }
    assert_eq!(located.found() * located.page.0, SIZE.0, "{spec}: {located:?}");
    assert_eq!(obtained.misplaced(), None, "{spec}");
    assert!(obtained.proofs.iter().any(|proof| proof.by == "move_pages"), "{spec}");
    assert!(obtained.proofs.iter().all(|proof| proof.holds), "{spec}: {:?}", obtained.proofs);
    Some(located.on.clone())
}

#[test]
fn every_policy_holds_on_the_first_node() {
    let Some(node) = nodes().first().copied() else { return skip("this machine names no node") };
    for kind in ["4k", "thp", "heap", "shared", "memfd", "populated"] {
        for place in [format!("node{node}"), format!("preferred:{node}"), format!("interleave:{node}")] {
            let Some(on) = must_hold(&format!("{kind}@{place}")) else { continue };
            assert_eq!(on, [NodePages { node, pages: SIZE.0 / 4096 }], "{kind}@{place}");
        }
    }
    for kind in ["4k", "thp"] {
        let spec = format!("{kind}@weighted:{node}=3");
        let way = obtained(&spec).map(|obtained| obtained.proofs.into_iter().find(|proof| proof.by == "mbind"));
        assert!(way.is_none_or(|way| way.is_some_and(|way| way.seen.starts_with("by "))));
        must_hold(&spec);
    }
}

#[test]
fn first_touch_promises_nothing() {
    let obtained = obtained("thp").unwrap();
    assert!(obtained.located.is_empty() && obtained.misplaced().is_none());
}

#[test]
fn memory_mapped_again_lies_there_again() {
    let Some(node) = nodes().first().copied() else { return skip("this machine names no node") };
    for spec in ["4k", "thp"].map(|kind| format!("{kind}@interleave:{node}")) {
        let mut region = match Region::new(spec.parse().unwrap(), SIZE, &Places::default()) {
            Ok(region) => region,
            Err(reason) => return skip(reason),
        };
        region.unmap();
        region.map().unwrap();
        region.words().fill(1.0);
        let located = region.inspect(region.bytes()).located;
        assert!(located[0].refusal.is_some() || located[0].on_node(node) == SIZE.0 / 4096, "{located:?}");
    }
}

#[test]
fn pages_lie_on_the_node_they_are_bound_to() {
    let Some(nodes) = two_nodes() else { return };
    for (kind, node) in ["4k", "thp", "shared"].into_iter().flat_map(|kind| nodes.map(|node| (kind, node))) {
        if let Some(on) = must_hold(&format!("{kind}@node{node}")) {
            assert_eq!(on, [NodePages { node, pages: SIZE.0 / 4096 }]);
        }
    }
    let [a, b] = nodes;
    must_hold(&format!("thp@bind:{a},{b}"));
}

#[test]
fn pages_go_round_two_nodes_in_the_ratio_asked_for() {
    let Some([a, b]) = two_nodes() else { return };
    // 16 MiB are eight blocks of 2 MiB: shares by hand are within two blocks, those of base pages by the kernel exact.
    for (place, due) in [("interleave:A,B", 0.5), ("weighted:A=3,B=1", 0.75), ("weighted:A=1,B=7", 0.125)] {
        let place = place.replace('A', &a.to_string()).replace('B', &b.to_string());
        for kind in ["4k", "thp"] {
            let Some(on) = must_hold(&format!("{kind}@{place}")) else { continue };
            let first: u64 = on.iter().filter(|found| found.node == a).map(|found| found.pages).sum();
            let share = first as f64 / (SIZE.0 / 4096) as f64;
            assert!((share - due).abs() <= 0.25, "{kind}@{place}: {share}");
        }
    }
}

#[test]
fn streams_of_one_case_lie_on_their_own_nodes() {
    let Some([a, b]) = two_nodes() else { return };
    let stream = |stream: &str, node| StreamMemory { stream: stream.into(), memory: on(node) };
    let case = Case { streams: vec![stream("a", b), stream("b", a)], ..case(on(a)) };
    let Some(obtained) = visit(&case) else { return };
    assert_eq!(obtained.located.len(), 2, "{obtained:?}");
    for (located, node) in obtained.located.iter().map(|located| (located, located.policy.nodes().only().unwrap())) {
        assert!(located.refusal.is_some() || located.on_node(node) == located.found(), "{located:?}");
    }
}

fn on(node: u32) -> MemorySpec {
    MemorySpec::on(MemoryKind::Thp, node)
}

fn case(memory: MemorySpec) -> Case {
    let cpus = Frame::new(&membound_measure::machine::live(), membound_measure::asm::detect(), None)
        .unwrap()
        .placement
        .first(1)
        .unwrap();
    case::steady("copy", Width::Scalar, StoreKind::Regular, memory, cpus, Bytes::mib(8))
}

/// A visit; `None` with a note where this machine can't.
fn visit(case: &Case) -> Option<Obtained> {
    let mut here = Here::new(std::slice::from_ref(case), Places::default(), false).unwrap();
    let quota = Quota { least_samples: 3, most_samples: 3, time: Duration::from_millis(100), interrupted: &|| false };
    match here.visit(case, &quota) {
        Outcome::Measured(measured) => Some(measured.obtained),
        Outcome::Unavailable { reason } => {
            skip(&reason);
            None
        }
        outcome => panic!("{outcome:?}"),
    }
}

#[test]
fn a_case_says_where_its_pages_were_found() {
    let Some(node) = nodes().first().copied() else { return skip("this machine names no node") };
    let Some(obtained) = visit(&case(on(node))) else { return };
    // Both streams' pages, in one proof.
    let by_move_pages: Vec<_> = obtained.proofs.iter().filter(|proof| proof.by == "move_pages").collect();
    assert_eq!(by_move_pages.len(), 1, "{by_move_pages:?}");
    let [located] = &obtained.located[..] else { panic!("{obtained:?}") };
    assert!(located.refusal.is_some() || located.found() >= Bytes::mib(8).0 / 4096, "{located:?}");
}

#[test]
fn nodes_that_are_not_there_are_reasons() {
    for place in ["node1023", "bind:0,1023", "preferred:1023", "interleave:0,1023", "weighted:0=1,1023=1"] {
        let spec = MemorySpec { kind: MemoryKind::Thp, policy: place.parse().unwrap() };
        let reason = Region::new(spec, SIZE, &Places::default()).unwrap_err().to_string();
        assert!(reason.contains("node 1023") && reason.contains("; choose from nodes 0"), "{place}: {reason}");
    }
}

#[test]
fn more_than_a_node_has_is_refused_before_it_is_touched() {
    let Some(node) = nodes().first().copied() else { return skip("this machine names no node") };
    let reason = Region::new(on(node), Bytes(1 << 50), &Places::default()).unwrap_err().to_string();
    assert!(reason.contains(&format!("node {node}: ")) && reason.contains("; give a smaller --size"), "{reason}");
}

#[test]
fn a_node_without_huge_pages_is_a_reason() {
    let Some(node) = nodes().first().copied() else { return skip("this machine names no node") };
    let spec = MemorySpec::on(MemoryKind::Huge2M, node);
    let reason = Region::new(spec, Bytes(1 << 50), &Places::default()).unwrap_err().to_string();
    let pools = membound_measure::machine::source().names(&format!("sys/devices/system/node/node{node}/hugepages"));
    if pools.is_empty() {
        return skip("this kernel has no pools of huge pages");
    }
    assert!(reason.contains(&format!("node{node}/hugepages/hugepages-2048kB/nr_hugepages")), "{reason}");
}

/// Runs the tool where these system calls are refused, as in a container.
fn sandboxed(refused: &[libc::c_long], args: &[&str]) -> Output {
    let mut command = membound();
    command.args(args).args(["--size", "1MiB", "--kernel", "load", "--threads", "1", "--width", "scalar"]);
    command.args(["--budget", "2s", "--format", "json", "--quiet"]);
    refused.iter().for_each(|&call| refuse(&mut command, call, libc::EPERM, Where::All));
    command.output().unwrap()
}

fn rows(output: &Output) -> Vec<serde_json::Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text)
        .unwrap_or_else(|fault| panic!("{fault}: {text}{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn a_sandbox_that_forbids_policies_is_an_outcome_with_a_cure() {
    let output = sandboxed(&[libc::SYS_mbind, libc::SYS_set_mempolicy], &["bandwidth", "--memory", "4k@node0"]);
    let rows = rows(&output);
    assert_eq!(rows[0]["outcome"], "unavailable", "{rows:?}");
    assert!(rows[0]["reason"].as_str().unwrap().contains("SYS_NICE"), "{rows:?}");
    assert_eq!(output.status.code(), Some(1), "nothing at all was measured");
}

#[test]
fn pages_that_may_not_be_looked_up_are_not_proved() {
    if nodes().is_empty() {
        return skip("this machine names no node");
    }
    let output = sandboxed(&[libc::SYS_move_pages], &["bandwidth", "--memory", "4k@node0"]);
    let rows = rows(&output);
    if rows[0]["outcome"] == "unavailable" {
        return skip(rows[0]["reason"].as_str().unwrap());
    }
    let proof = &rows[0]["obtained"]["proofs"][0];
    assert_eq!((&proof["claim"], &proof["holds"]), (&"bound to node 0".into(), &false.into()), "{rows:?}");
    assert!(proof["seen"].as_str().unwrap().contains("move_pages was refused"), "{proof}");
    assert!(rows[0]["flags"].as_array().unwrap().contains(&"pages-differ".into()), "{rows:?}");
}

#[test]
fn the_ratios_make_cases_that_differ_in_nothing_else() {
    let frame = Frame::new(&membound_measure::machine::live(), membound_measure::asm::detect(), None).unwrap();
    let cases = match plan::weights::weights(&frame, Kernel::named("triad").unwrap(), [0, 1]) {
        Ok(cases) => cases,
        Err(fault @ PlanError::TooLarge { .. }) => return skip(fault),
        Err(fault) => panic!("{fault}"),
    };
    assert_eq!(cases.len(), RATIOS.len());
    assert_eq!(cases[0].memory.to_string(), "thp@node0");
    assert_eq!(cases[3].memory.to_string(), "thp@weighted:0=3,1=1");
    let same = |case: &Case| Case { memory: cases[0].memory, ..case.clone() };
    assert!(cases.iter().all(|case| same(case) == cases[0]));
}

/// A run over all ratios on two tiers of these bandwidths (GB/s) that work side by side. Samples are up to `noise` slower.
fn simulated(tiers: [f64; 2], noise: f64, seed: u64) -> Report {
    const BYTES: u64 = 1 << 30;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut visit = |round: u32, ratio: [u8; 2]| {
        let share = f64::from(ratio[0]) / f64::from(ratio[0] + ratio[1]);
        let ns = (BYTES as f64 * share / tiers[0]).max(BYTES as f64 * (1.0 - share) / tiers[1]);
        let mut samples = Samples::default();
        for _ in 0..7 {
            let ticks = (ns * (1.0 + noise * random.f64())) as u64;
            samples.push(Sample { ticks, core_clock_ticks: 1000, ..Sample::default() });
        }
        let pages = [(0, share), (4, 1.0 - share)].map(|(node, part)| NodePages { node, pages: (part * 1e5) as u64 });
        let pages_on_node = pages.into_iter().filter(|found| found.pages > 0).collect();
        let obtained = Obtained { bytes: Bytes(BYTES), pages_on_node, ..Obtained::default() };
        let volume =
            Volume { unit: Unit::Element, units: BYTES / 8, loaded: BYTES, stored: 0, write_allocated: 0, flops: 0 };
        let measured = Measured { volume, repetitions: 1, core_clock_links: 1000, samples, obtained };
        let policy = match ratio {
            [_, 0] => "node0".to_string(),
            [0, _] => "node4".to_string(),
            [a, b] => format!("weighted:0={a},4={b}"),
        };
        let memory = MemorySpec { kind: MemoryKind::Thp, policy: policy.parse().unwrap() };
        let case = case::steady("load", Width::W256, StoreKind::Regular, memory, vec![0, 1], Bytes(BYTES));
        Measurement::new(case, round, measured)
    };
    let measurements =
        (0..3).flat_map(|round| RATIOS.map(|ratio| (round, ratio))).map(|(round, ratio)| visit(round, ratio));
    model::report(&by_hand::record(by_hand::clock(1e9), membound_measure::machine::live(), measurements.collect()))
}

fn weighting(report: &Report) -> &Weighting {
    let [weighting] = &report.weightings[..] else { panic!("{:?}", report.weightings) };
    weighting
}

#[test]
fn the_best_ratio_is_that_of_the_bandwidths() {
    for (tiers, best) in
        [([75.0, 25.0], [3, 1]), ([20.0, 100.0], [1, 5]), ([60.0, 40.0], [3, 2]), ([200.0, 1.0], [1, 0])]
    {
        let report = simulated(tiers, 0.02, 1);
        let found = weighting(&report);
        assert_eq!((found.kernel.as_str(), found.threads, found.tiers), ("load", 2, [0, 4]));
        assert_eq!(found.tried.len(), RATIOS.len());
        assert_eq!(found.tried[found.best].weights, best, "{tiers:?}");
        assert!(found.ties.is_empty(), "{tiers:?}: {:?}", found.ties);
    }
}

#[test]
fn the_answer_is_a_sentence_with_what_one_node_alone_would_do() {
    let report = simulated([75.0, 25.0], 0.0, 1);
    let sentence = report.findings.iter().find(|text| text.contains("pages on nodes")).unwrap();
    // 100 GB/s of both; 100/75 and 100/25 of one alone.
    assert_eq!(
        sentence,
        "load, 2 threads, pages on nodes 0 and 4: fastest is 3:1, 100 GB/s [100 GB/s, 100 GB/s]; 1.33 x (no interval) \
         the speed of all on node 0; 4.00 x (no interval) the speed of all on node 4."
    );
    let first_share = weighting(&report).tried[3].first_share.unwrap();
    assert!((first_share - 0.75).abs() < 1e-4, "{first_share}");
}

#[test]
fn ratios_that_can_not_be_told_apart_are_ties() {
    // The best share, 0.634, lies where 3:2 and 2:1 have the same rate but for 0.3 %; samples differ by 10 %.
    let report = simulated([63.3, 36.7], 0.1, 3);
    let found = weighting(&report);
    let mut named: Vec<[u8; 2]> = found.ties.iter().map(|&tie| found.tried[tie].weights).collect();
    named.push(found.tried[found.best].weights);
    assert!(named.contains(&[2, 1]) && named.contains(&[3, 2]), "{named:?}");
    assert!(!named.contains(&[1, 0]) && !named.contains(&[1, 1]), "{named:?}");
    assert!(report.findings.iter().any(|text| text.contains("(no slower within the interval: ")));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the tiers, the ratio that arithmetic has first is the best found, or a tie of it.
    #[test]
    fn arithmetic_agrees(first in 5.0f64..500.0, second in 5.0f64..500.0, seed in 0u64..1000) {
        let rate = |&[a, b]: &[u8; 2]| {
            let share = f64::from(a) / f64::from(a + b);
            (first / share).min(second / (1.0 - share))
        };
        let due = RATIOS.iter().copied().max_by(|a, b| rate(a).total_cmp(&rate(b))).unwrap();
        let report = simulated([first, second], 0.03, seed);
        let found = weighting(&report);
        let best = found.tried[found.best].weights;
        let is_tie = found.ties.iter().any(|&tie| found.tried[tie].weights == due);
        // A 95 % interval may miss, by no more than the noise.
        prop_assert!(best == due || is_tie || rate(&best) > 0.985 * rate(&due), "{best:?}, not {due:?}");
    }
}

#[test]
fn the_ratios_are_a_table_that_names_the_fastest() {
    let text = anstream::adapter::strip_str(&terminal::weights(&simulated([75.0, 25.0], 0.0, 1))).to_string();
    let line = |ratio: &str| text.lines().find(|line| line.trim_start().starts_with(ratio)).unwrap_or_default();
    assert!(line("3:1").ends_with("fastest") && line("3:1").contains("75%"), "{text}");
    assert!(line("0:1").contains("25.0 ~") && line("0:1").contains("4.0"), "{text}");
    assert!(text.contains("fastest is 3:1") && text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn one_node_has_no_ratio() {
    for nodes in ["0", "0,0", "0,1,2"] {
        let output = membound().args(["numa", "--weights", nodes]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains("two nodes, such as 0,1"));
    }
}
