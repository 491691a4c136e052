//! Instructions that write whole lines, on this machine.

use crate::asm::LineStore;
use crate::bench::LineCode;
use crate::experiments::plain::Way;
use crate::no_visit::NoVisit;
use membound_core::plain::lines::Lines;

pub(super) fn way(work: Lines) -> Result<Way, NoVisit> {
    let code = LineCode::new(match work {
        Lines::Movdir64b | Lines::Movdir64bFill => LineStore::Movdir64b,
        Lines::Clzero => LineStore::Clzero,
        Lines::DcZva => LineStore::DcZva,
    })?;
    Ok(Box::new(move |to, source, repetitions| code.over(to, source, repetitions)))
}
