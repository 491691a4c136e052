//! Many streams on this machine. Each visit maps memory of its own, so that where pages come to lie is drawn anew.

#![allow(unsafe_code)]

use crate::bench::{executable, measured};
use crate::code::{Call, Executable};
use crate::memory::places::Places;
use crate::memory::region::Region;
use crate::memory::touch;
use crate::no_visit::NoVisit;
use crate::team::{Task, Team};
use membound_core::case::Case;
use membound_core::kernel::streams::{Streams, Touch};
use membound_core::memory::Obtained;
use membound_core::record::{Measured, Volume};
use membound_core::units::Bytes;

/// What the streams hold; a thread's sum is then the number of words that it reads.
const HELD: f64 = 1.0;
/// What is written.
const WRITTEN: f64 = 3.0;
/// A huge page: streams start on one.
const ALIGNMENT: Bytes = Bytes::mib(2);

/// Visits `case`, which is these streams on each of its CPUs.
pub(crate) fn measure(case: &Case, streams: Streams, team: Team<'_>, places: &Places) -> Result<Measured, NoVisit> {
    let share = case.share();
    let code = executable(crate::asm::streams(streams, streams.pitch(share)))?;
    let walker = |_: &u32| {
        let region = Region::aligned(case.memory, streams.span(share), ALIGNMENT, places)?;
        match region.is_writable() {
            true => Ok(Walker { streams, share, code: &code, region, call: Call::empty(1), has_walked: false }),
            false => Err(NoVisit::Unwritable("streams are filled before they are read")),
        }
    };
    let mut walkers: Vec<Walker<'_>> = case.cpus.iter().map(walker).collect::<Result<_, _>>()?;
    let taken = team.measure(&mut walkers)?;
    let obtained = walkers.iter().map(|walker| walker.region.inspect(streams.span(share))).reduce(Obtained::and);
    let [loaded, stored, write_allocated] = streams.bytes(share).map(|bytes| bytes * case.threads() as u64);
    let volume = Volume { units: (loaded + stored) / 8, loaded, stored, write_allocated, ..Volume::default() };
    Ok(measured(volume, taken, obtained.unwrap_or_default()))
}

/// One thread and its streams. On cache lines of its own: its call's results are written in each sample.
#[repr(align(128))]
struct Walker<'a> {
    streams: Streams,
    share: Bytes,
    code: &'a Executable,
    region: Region,
    call: Call,
    has_walked: bool,
}

impl Walker<'_> {
    fn walk(&mut self, repetitions: u64) -> Result<(), NoVisit> {
        self.call.repetitions = repetitions;
        // SAFETY: the call's pointer is the region's start and its lines those of the share, so that the last stream ends
        // where `span` says, and the region is at least that long, mapped, writable and this thread's own.
        let run = unsafe { self.code.run(&mut self.call) };
        self.has_walked = true;
        Ok(run?)
    }

    /// Words that must hold what was written, else what was held; checked in windows, every so many lines.
    fn check(&mut self) -> Result<(), String> {
        let (streams, lines) = (self.streams, self.streams.lines(self.share));
        if streams.touch == Touch::Read {
            let words = (lines * 8 * u64::from(streams.streams)) as f64 * HELD;
            let found: f64 = self.call.positions(8).into_iter().map(f64::from_bits).sum();
            return if found == words {
                Ok(())
            } else {
                Err(format!("data check failed: read {found}, must be {words}"))
            };
        }
        // A copy leaves ones behind, as it found them: so sources were made to differ.
        let expect = if streams.touch == Touch::Write { WRITTEN } else { HELD };
        let pitch = (streams.pitch(self.share) / 8) as usize;
        let step = (lines / 64).max(1) as usize;
        let words = self.region.words();
        for stream in (0..streams.streams).filter(|stream| streams.is_written(*stream)) {
            for line in (0..lines as usize).step_by(step).chain([lines as usize - 1]) {
                let first = stream as usize * pitch + line * 8;
                if let Some(word) = words[first..first + 8].iter().find(|word| **word != expect) {
                    return Err(format!(
                        "data check failed: line {line} of stream {stream} holds {word}, must be {expect}"
                    ));
                }
            }
        }
        Ok(())
    }
}

impl Task for Walker<'_> {
    /// Sources hold ones, what a copy writes to holds zeros.
    fn begin(&mut self) -> Result<(), NoVisit> {
        let (streams, pitch) = (self.streams, (self.streams.pitch(self.share) / 8) as usize);
        let lines = self.streams.lines(self.share);
        touch::touch_words(&mut self.region, |words| {
            for stream in 0..streams.streams {
                let first = stream as usize * pitch;
                words[first..first + 8 * lines as usize].fill(if streams.is_written(stream) { 0.0 } else { HELD });
            }
        })?;
        self.call.pointers[0] = self.region.address();
        (self.call.blocks, self.call.scalar) = (lines, WRITTEN);
        Ok(())
    }

    fn run(&mut self, repetitions: u64) -> Result<(), NoVisit> {
        self.walk(repetitions)
    }

    fn end(&mut self) -> Result<(), NoVisit> {
        match self.has_walked {
            true => self.check().map_err(NoVisit::Wrong),
            false => Ok(()),
        }
    }
}
