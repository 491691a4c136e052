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
