//! STREAM's tables.

use std::collections::BTreeSet;

use membound_analyze::of_record as model;
use membound_core::experiments::bandwidth::stream_choice;
use membound_core::experiments::choice::Choice;
use membound_core::experiments::frame::Frame;
use membound_core::kernel::Width;
use membound_core::kernel::isa::Isa;

use crate::common::imitation;

#[test]
fn each_width_has_its_table() {
    let machine = imitation::caches([1, 2, 1], false);
    let frame = Frame::new(&machine, Isa::NONE, None).unwrap();
    let choice = Choice { widths: vec![Width::Scalar, Width::W128], ..Choice::default() };
    let cases = stream_choice(&frame, &choice).unwrap();
    let visits = cases.iter().map(|case| imitation::visit(case, 1e10, &[])).collect();
    let report = model::report(&imitation::record(machine, visits));
    let lines: Vec<usize> = report.stream.iter().map(|table| table.lines.len()).collect();
    assert_eq!(lines, [8, 8], "four kernels, two kinds of stores");
    let ways: BTreeSet<&str> =
        report.stream.iter().flat_map(|table| &table.lines).map(|line| line.variant.as_str()).collect();
    assert_eq!(ways.len(), 4, "{ways:?}");
}
