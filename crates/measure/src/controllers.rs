//! Counters in the memory controllers, read around samples: what really crossed the bus, whoever caused it.

use std::sync::Mutex;

use crate::meters::{Event, Meter};
use crate::os::counters;
use membound_core::machine::source::Source;
use membound_core::machine::uncore::{Direction, controller_counters};
use membound_core::record::{ControllerSamples, Samples};
use membound_core::units::Bytes;

/// Working sets below this may never reach the controllers; nor do samples of them last long against what reading all
/// counters takes.
pub const LEAST: Bytes = Bytes(64 << 20);

/// The controllers' counters, ready to be read. Each tells the bytes so far, one way.
#[derive(Debug)]
pub struct Controllers {
    counters: Vec<(Direction, Box<dyn Meter>)>,
    /// Bytes read and written when the sample began.
    begun: Option<[u64; 2]>,
}

impl Controllers {
    /// Counters, each with its direction.
    pub fn new(counters: Vec<(Direction, Box<dyn Meter>)>) -> Self {
        Controllers { counters, begun: None }
    }

    /// A sample is about to begin.
    pub fn begin(&mut self) {
        self.begun = self.read();
    }

    /// It has ended: bytes read and written since. Nothing where one of the counters could not be read, or ran
    /// backwards: a sum without it would be too small.
    pub fn end(&mut self) -> Option<[u64; 2]> {
        let (before, after) = (self.begun.take()?, self.read()?);
        let [read, written] = [0, 1].map(|way| after[way].checked_sub(before[way]));
        Some([read?, written?])
    }

    fn read(&mut self) -> Option<[u64; 2]> {
        let mut sums = [0u64; 2];
        for (direction, counter) in &mut self.counters {
            let way = usize::from(*direction == Direction::Write);
            sums[way] = sums[way].checked_add(counter.read()?)?;
        }
        Some(sums)
    }
}

/// Adds what was counted around a sample to `samples`.
pub fn push(counted: Option<[u64; 2]>, samples: &mut Samples) {
    let columns = samples.controllers.get_or_insert_with(ControllerSamples::default);
    columns.read_bytes.push(counted.map(|bytes| bytes[0]));
    columns.written_bytes.push(counted.map(|bytes| bytes[1]));
}

/// This machine's counters; nothing where it has none, or one of them is refused: a part of them says nothing.
pub fn open(source: &Source) -> Option<Mutex<Controllers>> {
    // Whether the machine is virtual decides only how a refusal is worded.
    let found = controller_counters(source, false);
    let mut counters: Vec<(Direction, Box<dyn Meter>)> = Vec::new();
    for counter in found.known()? {
        for cpu in counter.cpus.iter() {
            let file = counters::counter_event(counter.kind, counter.config, cpu).ok()?;
            counters.push((counter.direction, Box::new(Event { file, unit: counter.bytes })));
        }
    }
    Some(Mutex::new(Controllers::new(counters)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Readings(Vec<Option<u64>>);

    impl Meter for Readings {
        fn read(&mut self) -> Option<u64> {
            self.0.remove(0)
        }
    }

    fn of(counters: [(Direction, [Option<u64>; 2]); 3]) -> Option<[u64; 2]> {
        let boxed = |(way, readings): (Direction, [Option<u64>; 2])| -> (Direction, Box<dyn Meter>) {
            (way, Box::new(Readings(readings.to_vec())))
        };
        let mut controllers = Controllers::new(counters.into_iter().map(boxed).collect());
        controllers.begin();
        controllers.end()
    }

    #[test]
    fn channels_add_up_and_a_missing_one_voids_the_sum() {
        use Direction::{Read, Write};
        let counts = |last| of([(Read, [Some(100), Some(164)]), (Read, [Some(0), Some(64)]), (Write, [Some(7), last])]);
        assert_eq!(counts(Some(71)), Some([128, 64]));
        assert_eq!(counts(None), None);
        assert_eq!(counts(Some(3)), None, "a counter that started anew");
        let mut untold = Controllers::new(Vec::new());
        assert_eq!(untold.end(), None, "no sample was begun");
    }

    #[test]
    fn samples_without_a_count_keep_their_place() {
        let mut samples = Samples::default();
        push(Some([3, 4]), &mut samples);
        push(None, &mut samples);
        let found = samples.controllers.unwrap();
        assert_eq!((found.read_bytes, found.written_bytes), (vec![Some(3), None], vec![Some(4), None]));
    }
}
