//! Plain experiments on this machine: a team whose threads each copy or fill memory of their own. A file says how.

use crate::bench::{Source, measured};
use crate::memory::places::Places;
use crate::memory::region::Region;
use crate::memory::touch::touch;
use crate::no_visit::NoVisit;
use crate::team::{Task, Team};
use membound_core::case::Case;
use membound_core::memory::Obtained;
use membound_core::plain::Plain;
use membound_core::plain::work::PlainWork;
use membound_core::plain_experiments;
use membound_core::record::{Measured, Unit, Volume};
use membound_core::units::{Bytes, LINE};

/// What a source holds, byte by byte: a prime's worth of bytes, so that no shift by a line or page goes unnoticed.
const PERIOD: usize = 251;

/// One thread's way to do the work so many times: a source of bytes is as long as its destination, or longer. Generated code
/// repeats itself: a call of it takes as long as some KiB.
type Way = Box<dyn FnMut(&mut [u8], Source<'_>, u64) -> Result<(), NoVisit> + Send>;

/// Declares runners. Each file has a function `way`, which makes a thread's way to do its work.
macro_rules! runners {
    ($($file:ident: $Work:ident),+ $(,)?) => {
        $(mod $file;)+

        /// Visits `case`, which is this work on each of its CPUs.
        pub(crate) fn measure(case: &Case, work: Plain, team: Team<'_>, places: &Places) -> Result<Measured, NoVisit> {
            match work {
                $(Plain::$Work(work) => measure_by(case, work, || $file::way(work), team, places)),+
            }
        }
    };
}

plain_experiments!(runners);

fn measure_by(
    case: &Case,
    work: impl PlainWork,
    way: impl Fn() -> Result<Way, NoVisit>,
    team: Team<'_>,
    places: &Places,
) -> Result<Measured, NoVisit> {
    // Whole lines of each array.
    let bytes = case.share().0 / work.arrays() / LINE * LINE;
    let touched = Bytes(bytes * work.arrays());
    let filled = work.fills().then_some(work.byte());
    let mover = |_: &u32| {
        let region = Region::new(case.memory, touched, places)?;
        match region.is_writable() {
            true => Ok(Mover { filled, bytes: bytes as usize, region, way: way()?, has_run: false }),
            false => Err(NoVisit::Unwritable("memory is filled before it is copied")),
        }
    };
    let mut movers: Vec<Mover> = case.cpus.iter().map(mover).collect::<Result<_, _>>()?;
    let taken = team.measure(&mut movers)?;
    let obtained = movers.iter().map(|mover| mover.region.inspect(touched)).reduce(Obtained::and).unwrap_or_default();
    let volume = volume(work, bytes * case.threads() as u64);
    Ok(measured(volume, taken, obtained))
}

/// What a repetition moves that stores so many bytes.
fn volume(work: impl PlainWork, stored: u64) -> Volume {
    let loaded = stored * (work.arrays() - 1);
    let write_allocated = if work.write_allocates() { stored } else { 0 };
    Volume { units: stored, unit: Unit::Element, loaded, stored, write_allocated, flops: 0 }
}

/// One thread and its memory: the destination, and behind it the source.
struct Mover {
    /// What memory is filled with, if it is not copied.
    filled: Option<u8>,
    bytes: usize,
    region: Region,
    way: Way,
    has_run: bool,
}

/// What byte `at` of the destination must be in the end.
fn expected(filled: Option<u8>, at: usize) -> u8 {
    filled.unwrap_or((at % PERIOD) as u8)
}

impl Task for Mover {
    /// The destination begins with what is neither filled in nor in the source, so that no byte is right unless it was written.
    fn begin(&mut self) -> Result<(), NoVisit> {
        let (bytes, wrong) = (self.bytes, !expected(self.filled, 0));
        touch(&mut self.region, |all| {
            let (to, from) = all.split_at_mut(bytes);
            to.fill(wrong);
            from.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at % PERIOD) as u8);
        })?;
        Ok(())
    }

    fn run(&mut self, repetitions: u64) -> Result<(), NoVisit> {
        let (to, from) = self.region.contents().split_at_mut(self.bytes);
        self.has_run = true;
        let source = self.filled.map_or(Source::Bytes(from), Source::Byte);
        (self.way)(to, source, repetitions)
    }

    /// All that was written, against what it must be.
    fn end(&mut self) -> Result<(), NoVisit> {
        if !self.has_run {
            return Ok(());
        }
        let filled = self.filled;
        let written = &self.region.contents()[..self.bytes];
        match written.iter().enumerate().find(|(at, byte)| **byte != expected(filled, *at)) {
            None => Ok(()),
            Some((at, byte)) => {
                Err(NoVisit::Wrong(format!("data check failed: byte {at} is {byte}, must be {}", expected(filled, at))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use membound_core::case::USUAL_MEMORY;

    /// A kernel that zeroes whole lines is counted without write-allocates, and so is the instruction alone.
    #[test]
    fn whole_lines_are_not_read_before_they_are_written() {
        use membound_core::kernel::StoreKind;
        use membound_core::plain::lines::Lines;
        use membound_core::plain::strings::Strings;

        let moved = |volume: Volume| [volume.loaded, volume.stored, volume.write_allocated];
        assert_eq!(moved(volume(Lines::Movdir64b, 640)), [640, 640, 0]);
        assert_eq!(moved(volume(Lines::Clzero, 640)), [0, 640, 0]);
        assert!(!StoreKind::Zero.write_allocates() && StoreKind::Rep.write_allocates());
        let [first, ..] = Strings::ALL else { panic!("no strings") };
        assert_eq!(volume(*first, 640).write_allocated, 640);
    }

    /// What came of one repetition of a way over 4096 bytes.
    fn done(filled: Option<u8>, way: fn(&mut [u8], Source<'_>)) -> Result<(), NoVisit> {
        let region = Region::new(USUAL_MEMORY, Bytes(8192), &Places::default())?;
        let way: Way = Box::new(move |to, source, _| {
            way(to, source);
            Ok(())
        });
        let mut mover = Mover { filled, bytes: 4096, region, way, has_run: false };
        mover.begin()?;
        mover.run(1)?;
        mover.end()
    }

    /// All repetitions are a way's own: what stands between two of them would be timed.
    #[test]
    fn repetitions_are_handed_over_at_once() {
        let region = Region::new(USUAL_MEMORY, Bytes(8192), &Places::default()).unwrap();
        let (told, heard) = std::sync::mpsc::channel();
        let way: Way = Box::new(move |_, _, repetitions| {
            told.send(repetitions).unwrap();
            Ok(())
        });
        let mut mover = Mover { filled: None, bytes: 4096, region, way, has_run: false };
        mover.run(7).unwrap();
        drop(mover);
        assert_eq!(heard.iter().collect::<Vec<u64>>(), [7]);
    }

    /// Whatever is filled in, a single byte that was not written is seen.
    #[test]
    fn what_was_not_written_is_seen() {
        for filled in [None, Some(0), Some(0x5a), Some(0xff)] {
            assert!(done(filled, |to, source| source.put(to)).is_ok(), "{filled:?}");
            let without_first = |to: &mut [u8], source: Source<'_>| {
                let first = to[0];
                source.put(to);
                to[0] = first;
            };
            for wrong in [|_: &mut [u8], _: Source<'_>| {}, without_first] {
                let why = done(filled, wrong).unwrap_err().to_string();
                assert!(why.contains("data check failed: byte 0"), "{filled:?}: {why}");
            }
        }
    }
}
