//! The C library's functions on this machine.

use std::hint::black_box;

use crate::bench::Source;
use crate::experiments::plain::Way;
use crate::no_visit::NoVisit;
use crate::os::library;
use membound_core::plain::library::Library;

pub(super) fn way(function: Library) -> Result<Way, NoVisit> {
    Ok(Box::new(move |to, source, repetitions| {
        let (from, byte) = match source {
            Source::Bytes(from) => (from, 0),
            Source::Byte(byte) => (&[][..], byte),
        };
        for _ in 0..repetitions {
            // Whoever can't see through these has to make each call.
            library::call(function, black_box(&mut *to), black_box(from), byte);
        }
        Ok(())
    }))
}
