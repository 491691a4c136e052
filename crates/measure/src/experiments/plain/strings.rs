//! String instructions on this machine.

use crate::asm;
use crate::bench::{executable, over_bytes};
use crate::experiments::plain::Way;
use crate::no_visit::NoVisit;
use membound_core::plain::strings::Strings;
use membound_core::plain::work::PlainWork;

pub(super) fn way(instruction: Strings) -> Result<Way, NoVisit> {
    let code = executable(asm::strings(instruction.fills()))?;
    Ok(Box::new(move |to, source, repetitions| Ok(over_bytes(&code, to, source, repetitions)?)))
}
