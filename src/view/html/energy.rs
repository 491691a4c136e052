//! What work costs in energy.

use maud::{Markup, html};

use super::{Section, boxed, chart, charts, gbps, not_measured};
use crate::model::energy::EnergyRow;
use crate::model::{Cost, Report};
use crate::units::significant;
use crate::view::{energy_meters, reasons};

const ABOUT: &str = "Meters read around each sample. Intervals hold the meter's own step. Beyond idle: less what the machine draws at \
    rest, which is drawn anyway.";

pub(super) fn section(report: &Report) -> Section {
    let reasons = reasons(&report.energy);
    let body = || {
        html! {
            @for (meter, rows) in energy_meters(report) { (table(&meter, &rows)) }
            (not_measured(&reasons))
        }
    };
    let body = (!report.energy.is_empty()).then(body);
    Section { body, ..charts("energy", "Energy", ABOUT, chart::energy(report)) }
}

fn table(meter: &str, rows: &[&EnergyRow]) -> Markup {
    let cell = |cost: Option<Cost>| match cost {
        Some(cost) => {
            format!("{} [{}, {}]", significant(cost.median), significant(cost.ci95[0]), significant(cost.ci95[1]))
        }
        None => "–".into(),
    };
    boxed(
        &format!("{meter}: medians and their 95 % intervals; joules for 1e9 bytes or operations"),
        html! {
            thead { tr {
                th { "kernel" } th { "store" } th.num { "working set" } th.num { "threads" } th.num { "GB/s" } th.num { "W" }
                th.num { "J/GB payload" } th.num { "J/GB bus" } th.num { "J/GB beyond idle" } th.num { "J/Gflop" } th.num { "samples" }
                th { "remarks" }
            } }
            tbody { @for row in rows { tr {
                th { (row.kernel) }
                td { @if let Some(store) = row.store { (store) } }
                td.num { @if !row.is_idle() { (row.working_set_bytes) } }
                td.num { (row.threads) }
                td.num { @if let Some(rate) = row.payload_bps { (gbps(rate.median)) } @else { "–" } }
                td.num { (cell(row.power_w)) }
                td.num { (cell(row.payload_j_per_gb)) }
                td.num { (cell(row.bus_j_per_gb)) }
                td.num { (cell(row.beyond_idle_j_per_gb)) }
                td.num { (cell(row.j_per_gflop)) }
                td.num { (row.quality.samples) }
                td { (row.quality.flags.join(" ")) }
            } } }
        },
    )
}
