//! Published figures through the real command: a record, a sheet, a table or a folder of facts goes in, and what people read
//! comes out. `docs/published/README.md` has the table; how each answer is worked out is held by the tests beside these.

use std::path::Path;

use tempfile::TempDir;

use crate::common::program::membound;
use crate::common::{by_hand, copies, messages};
use crate::published::{
    CORE_TO_CORE, TWO_PACKAGES, UNDER_LOAD, link, near_and_far, stores_that_cross, under_load, write_combined_reads,
};
use crate::{compare, energy, handover, latency, limits, numa, page_cache, roofline, rounding, streams, uncore};
use membound_core::case::Protocol;
use membound_core::kernel::StoreKind;
use membound_core::record::Record;
use membound_core::units::Bytes;
use membound_core::work::c2c::Home;

/// What the command prints, in words: lines and columns as single blanks.
fn said(arguments: &[&str], folder: &Path) -> String {
    let mut command = membound();
    let output = command.args(arguments).args(["--color", "never"]).current_dir(folder).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {out}{err}");
    assert!(out.lines().all(|line| line.chars().count() <= 80), "wider than a terminal: {out}");
    crate::common::on_one_line(&out)
}

#[track_caller]
fn tells(text: &str, words: &[&str]) {
    for words in words {
        assert!(text.contains(words), "{words:?} is not in: {text}");
    }
}

/// What `membound report` says of a record: all of it.
fn of_record(record: &Record) -> String {
    let folder = TempDir::new().unwrap();
    by_hand::write(record, &folder.path().join("run.jsonl"));
    said(&["report", "--all", "run.jsonl"], folder.path())
}

fn of_sheet(name: &str) -> String {
    said(&["machine", "--spec", name], Path::new("/"))
}

#[test]
fn copies_to_three_kinds_of_memory() {
    let record = by_hand::record(by_hand::clock(1e9), by_hand::unknown_machine(), copies::published());
    tells(
        &of_record(&record),
        &[
            "regular memory (heap) takes 22.0 ms the first time, then 8.42 ms (3.80 GB/s copied)",
            "1.50 times as fast, and pays after about 22 copies",
            "uncacheable memory (uc) never pays",
        ],
    );
}

#[test]
fn two_chips_at_one_clock() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("k10.csv"), compare::K10).unwrap();
    std::fs::write(folder.path().join("jaguar.csv"), compare::JAGUAR).unwrap();
    let text = said(&["compare", "k10.csv", "jaguar.csv"], folder.path());
    tells(&text, &["68.9", "78.9", "90.3", "71.3", "87.7"]);
}

#[test]
fn sheets() {
    tells(
        &of_sheet("66ak2h12"),
        &["44.8", "22.4", "11.2", "154", "57.6", "25.6 GB/s", "14 W", "2 channels x 1600 MT/s x 64 bits"],
    );
    tells(&of_sheet("knc"), &["62 - float 512 bits 32.0", "62 - double 512 bits 16.0", "L2 512 KiB"]);
    tells(&of_sheet("ultrasparc-t2"), &["11.2 GF/s", "60.0 GB/s: 40 GB/s read and 20 GB/s written"]);
}

#[test]
fn the_switch_to_non_temporal_stores() {
    // 1e6 elements of four arrays of doubles: 32 MB are 30.5 MiB.
    tells(&of_record(&stores_that_cross()), &["30.5 MiB"]);
}

/// By the loops' own text: streams loaded, stored, and lines read because of a regular store.
#[test]
fn traffic_of_loops() {
    let text = said(&["kernel", "--list"], Path::new("/"));
    tells(
        &text,
        &[
            "store S1 WA 0",
            "copy L1 S1 WA 0",
            "scale L1 S1 WA 1",
            "triad L2 S1 WA 2",
            "schoenauer L3 S1 WA 2",
            "update L1 S1 1",
        ],
    );
}

#[test]
fn the_write_allocate_is_witnessed() {
    tells(&of_record(&uncore::record_of_copies(Some(1.0))), &["the memory controllers moved"]);
}

#[test]
fn ceilings_and_loops_below_them() {
    tells(
        &of_record(&roofline::simulated_record()),
        &[
            "From memory, 2 threads can only be fully used by loops with more than",
            "Without prefetch one thread gets 0.8",
        ],
    );
}

#[test]
fn sums_in_many_ways() {
    tells(
        &of_record(&rounding::blocks_alone()),
        &[
            "2 different results, 0 to 3 ULP from the exact one; changed by another number of threads; not changed by another run",
        ],
    );
}

#[test]
fn watts_and_joules() {
    tells(&of_record(&energy::triad_and_rest()), &["package: triad over 1 GiB on 2 CPUs costs 4.00 J"]);
}

#[test]
fn page_cache_of_two_domains_and_of_one() {
    let two = page_cache::record(2, page_cache::curve(page_cache::MINIMUM, 0.01, 1));
    tells(&of_record(&two), &["Beside 16 GiB of page cache the triad has its minimum", "MFlop/s"]);
    let one = page_cache::record(1, page_cache::curve(page_cache::FLAT, 0.01, 1));
    tells(&of_record(&one), &["Flat: page cache up to 24 GiB", "this machine has one node"]);
}

/// Eight controllers by the address bits above 512 B, as on the UltraSPARC T2.
#[test]
fn streams_that_meet_in_one_controller() {
    tells(&of_record(&streams::record(Some(|a| a / 512 % 8), 5)), &["pad by 512 B", "again after 4 KiB"]);
}

#[test]
fn pairs_of_pingpongs() {
    tells(
        &of_record(&messages::published_record()),
        &["messages over 1 MiB", "(2-2 tells)", "2-2 overshoots to", "3-3", "predicted from 1-1 and that limit within"],
    );
}

/// STREAM as published: cache mode valid at 317.3 GB/s, and in flat mode a table for each memory.
#[test]
fn stream_on_knights_landing() {
    let machine = limits::knl(&[("0-67", 96)]);
    let four = [("copy", 259.3203), ("scale", 261.1748), ("add", 286.4432), ("triad", 317.3121)];
    let visits = four.map(|(kernel, gb_s)| {
        let case = limits::case(&machine, kernel, StoreKind::Regular, "node0");
        let streams = if ["copy", "scale"].contains(&kernel) { 2 } else { 3 };
        let case = membound_core::case::Case {
            protocol: Protocol::Stream,
            working_set: Bytes(Bytes::gib(4).0 * streams),
            ..case
        };
        (case, gb_s)
    });
    let cache = of_record(&limits::record(&machine, &visits));
    tells(&cache, &["Solution Validates"]);
    tells(&cache, &["Copy: 2593", "Scale: 2611", "Add: 2864", "Triad: 3173"]);
    let machine = limits::knl(&[("0-67", 96), ("", 16)]);
    let flat = of_record(&limits::record(&machine, &limits::flat_mode(&machine)));
    tells(&flat, &["Triad: 88400.0", "Triad: 421700.0", "thp on node0 (DRAM)", "thp on node1 (MCDRAM)", "4.77 times"]);
}

#[test]
fn modes_of_knights_landing() {
    let of = |nodes: Vec<(&'static str, u64)>, distances: Vec<&'static str>| {
        let tree = numa::Made { nodes, distances, ..numa::Made::knl() }.tree();
        said(&["machine", "--root", tree.path().to_str().unwrap()], Path::new("/"))
    };
    let two = || vec!["10 31", "31 10"];
    tells(&of(vec![("0-271", 98207), ("", 16384)], two()), &["Flat mode"]);
    tells(&of(vec![("0-271", 98207)], vec!["10"]), &["Cache mode"]);
    tells(&of(vec![("0-271", 98207), ("", 8192)], two()), &["Hybrid mode"]);
}

#[test]
fn latency_in_four_modes() {
    let folder = TempDir::new().unwrap();
    let names: Vec<String> = latency::MODES.iter().map(|(name, _)| format!("{name}.jsonl")).collect();
    for ((_, figures), name) in latency::MODES.iter().zip(&names) {
        by_hand::write(&latency::mode(figures), &folder.path().join(name));
    }
    let mut arguments = vec!["compare", "--format", "markdown"];
    arguments.extend(names.iter().map(String::as_str));
    let output = membound().args(&arguments).current_dir(folder.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    for (_, figures) in &latency::MODES {
        for [max, avg, min, sd] in figures {
            let cell = format!("{max:.1} {avg:.1} {min:.1} {sd:.1}");
            assert!(text.contains(&cell), "{cell}: {text}{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

/// Every figure that was published, of 12 machines: none is refused.
#[test]
fn results_of_twelve_machines() {
    for limits::Published { machine, results, source } in limits::published() {
        let cases: Vec<_> = results
            .iter()
            .map(|(kernel, place, gb_s)| (limits::case(&machine, kernel, StoreKind::Nt, place), *gb_s))
            .collect();
        let folder = TempDir::new().unwrap();
        by_hand::write(&limits::record(&machine, &cases), &folder.path().join("run.jsonl"));
        let text = said_rows(folder.path());
        let outcomes: Vec<&str> = text.iter().filter_map(|row| row["outcome"].as_str()).collect();
        assert!(
            !outcomes.is_empty() && outcomes.iter().all(|outcome| *outcome == "measured"),
            "{source}: {outcomes:?}"
        );
    }
}

fn said_rows(folder: &Path) -> Vec<serde_json::Value> {
    let mut command = membound();
    let output = command.args(["report", "--format", "json", "run.jsonl"]).current_dir(folder).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn latency_of_two_packages() {
    for (_, local, remote) in TWO_PACKAGES {
        tells(&of_record(&near_and_far(local, remote)), &[&format!("{local:.1}"), &format!("{remote:.1}")]);
    }
}

#[test]
fn latency_beside_bandwidth() {
    for published in UNDER_LOAD {
        let text = of_record(&under_load(published));
        tells(&text, &["saturates at"]);
    }
}

#[test]
fn lines_from_core_to_core() {
    for (_, ns) in CORE_TO_CORE {
        let visit = handover::visit(handover::case(0, 1, Home::First), &[ns; 9]);
        let digits = if ns < 100.0 { format!("in {ns:.1} ns") } else { format!("in {ns:.0} ns") };
        tells(&of_record(&handover::record(vec![visit])), &[&digits]);
    }
}

#[test]
fn memory_behind_a_link() {
    let record = numa::record_of(numa::Made::two_and_hbm().machine(), link);
    tells(&of_record(&record), &["at 2.5", "It behaves like slow memory."]);
}

#[test]
fn reads_from_write_combined_memory() {
    let folder = TempDir::new().unwrap();
    by_hand::write(&write_combined_reads(), &folder.path().join("run.jsonl"));
    let rows = said_rows(folder.path());
    let rate = |load: &str| {
        let row = rows.iter().find(|row| row["load"] == load && row["memory"] == "wc").unwrap();
        row["payload_Bps"]["median"].as_f64().unwrap() / 1e9
    };
    assert!((rate("regular") / 0.22 - 1.0).abs() < 1e-3 && (rate("nt") / 10.4 - 1.0).abs() < 1e-3, "{rows:?}");
}
