//! Views: a finished [`Report`] as bytes. A view decides how an answer looks, never what it is:
//! it measures nothing, prints nothing and works out no figure that the model does not hold.

pub mod csv;
#[cfg(feature = "report")]
pub mod html;
pub mod hwloc;
pub mod json;
pub mod markdown;
pub mod prometheus;
pub mod svg;
pub mod terminal;
pub mod visible;
mod xml;

use membound_core::machine::Machine;

use crate::across::sections;
use crate::report::Report;
use crate::section::Section;

/// The machine in a line.
fn machine_line(machine: &Machine) -> String {
    machine.summary()
}

/// Names of the parts of a report: its experiments, and what follows them.
pub fn parts() -> Vec<&'static str> {
    crate::experiments::names().chain(["warnings", "host", "roofline", "verdict"]).collect()
}

/// What follows the experiments of a report. The verdict tells of some warnings itself.
fn ending(report: &Report) -> [Section; 4] {
    [
        sections::warnings::section(report.verdict.other_warnings(&report.warnings)),
        sections::host_states::section(report.host_states.as_ref(), &report.rows),
        sections::roofline::brief(&report.roofline, &report.rows),
        sections::verdict::section(&report.verdict),
    ]
}
