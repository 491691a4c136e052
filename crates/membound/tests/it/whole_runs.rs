//! Whole default runs of a busy host. Rules that pass every simulated machine have been wrong in ten of ten real runs: so what a
//! reader of such a run is told first stands here as text, and whoever changes a rule sees what becomes of it.

use anstream::adapter::strip_str;
use membound_analyze::experiments::latency::rows::LatencyRow;
use membound_analyze::output::terminal;

use crate::common::report_of;

/// Two CPUs of AMD Zen 3, which the host moves between two last-level caches. In the second run one of fourteen visits to the plain case
/// was undisturbed.
#[test]
fn what_is_told_first() {
    for name in ["zen3-guest-whole-1", "zen3-guest-whole-2"] {
        let report = report_of(name);
        // What a load from memory takes is one figure wherever it stands: that of the chase that was visited most.
        let memory = report.levels.iter().find(|level| level.name == "memory").unwrap().latency.unwrap();
        let is_one = |row: &&LatencyRow| row.latency_ns.is_some_and(|ns| ns.interval() == memory.ns);
        let [row] = report.latency.rows.iter().filter(is_one).collect::<Vec<_>>()[..] else { panic!("{memory:?}") };
        assert!(row.quality.rounds > 10, "{row:?}");
        let told = [terminal::overview(&report), terminal::chosen(&report, &["verdict".into()])].join("\n");
        insta::assert_snapshot!(name, strip_str(&told).to_string());
    }
}

/// Sixteen CPUs of Emerald Rapids, which claim 300 MiB of L3 and are moved: of so many pairs some are always close and some far apart.
/// Figures of all of them were missing in memory, and its limit was that of one thread.
#[test]
fn what_is_told_of_sixteen_cpus() {
    let name = "emr-guest-16-whole";
    let report = report_of(name);
    let gap = report.verdict.gap.as_ref().unwrap();
    assert_eq!(gap.threads, 16);
    assert!(gap.limit.contains(", 16 threads") && gap.limit_bps > 1.3 * gap.reached_bps, "{gap:?}");
    let told = [terminal::overview(&report), terminal::chosen(&report, &["verdict".into()])].join("\n");
    insta::assert_snapshot!(name, strip_str(&told).to_string());
}
