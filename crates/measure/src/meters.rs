//! Meters of energy, read around samples.
//!
//! ```text
//! begin: each meter, and the clock at that moment | the sample | end: each meter, and the clock again
//! ```
//! A counter's value is as old as its last update, at the beginning and at the end: a sample's energy is wrong by one
//! update's worth at most, so samples last many updates. A sensor of power is read at the end, when its value is one of
//! the sample's own time.

use std::fmt::Debug;
use std::fs::File;
use std::io::Read;
use std::time::Duration;

use crate::os::counters;
use membound_core::machine::energy;
use membound_core::machine::energy::{EnergyMeter, EnergyPart, MeterKind};
use membound_core::machine::fact::Fact;
use membound_core::machine::source::Source;
use membound_core::record::{EnergySamples, Samples};
use membound_core::units::Hertz;

/// Samples last so many updates of a counter: its error is then half a per cent at most.
const UPDATES: u64 = 200;
/// And so many of a sensor of power: the last one is of the sample's own time for certain, with what it averages over.
const SENSOR_UPDATES: u64 = 3;

/// Something that tells energy or power.
pub trait Meter: Debug + Send {
    /// Its value now: microjoules so far, or microwatts. Nothing where it can't be read now.
    fn read(&mut self) -> Option<u64>;
}

/// What is known of a meter beside its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dial {
    /// Its name.
    pub name: String,
    /// What it tells the energy of.
    pub part: EnergyPart,
    /// Microseconds from one change of its value to the next.
    pub update_us: u64,
    /// What its values are.
    pub scale: Scale,
}

/// What a meter's values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Microjoules so far; beyond `range` they start again from 0.
    Energy {
        /// Greatest value; absent where the meter does not tell.
        range: Option<u64>,
    },
    /// Microwatts now.
    Power,
}

/// What a meter told of a sample: microjoules, where it could be read, and the ticks between its two readings.
type Told = (Option<u64>, u64);

/// A meter, and what is known of it.
type Known = (Dial, Box<dyn Meter>);

/// Meters that are read together.
#[derive(Debug)]
pub struct Meters {
    meters: Vec<(Dial, Box<dyn Meter>)>,
    hz: Hertz,
    /// Values and ticks at the beginning of the sample.
    begun: Vec<(Option<u64>, u64)>,
}

impl Meters {
    /// Meters, and the rate of the clock that `begin` and `end` are told.
    pub fn new(meters: Vec<(Dial, Box<dyn Meter>)>, hz: Hertz) -> Self {
        Meters { meters, hz, begun: Vec::new() }
    }

    /// Those that move. A hypervisor may show its guests a power PMU that counts nothing, and boards one of the whole platform: what such a
    /// counter tells is no energy. Graphics may be off, so what stands still there is left. `pause` waits for so long.
    ///
    /// # Errors
    ///
    /// Each counter's name, where none is left.
    pub fn moving(mut self, pause: &dyn Fn(Duration)) -> Result<Self, String> {
        let is_counter = |dial: &Dial| matches!(dial.scale, Scale::Energy { .. }) && dial.part != EnergyPart::Uncore;
        let slowest = self.meters.iter().filter(|(dial, _)| is_counter(dial)).map(|(dial, _)| dial.update_us).max();
        let Some(wait) = slowest.map(|update| Duration::from_micros(UPDATES * update)) else { return Ok(self) };
        self.begin(&|| 0);
        pause(wait);
        let told = self.end(&|| 0);
        let (mut left, mut still) = (Vec::new(), Vec::new());
        for ((dial, meter), (spent, _)) in self.meters.into_iter().zip(told) {
            match spent == Some(0) && is_counter(&dial) {
                true => still.push(dial.name),
                false => left.push((dial, meter)),
            }
        }
        if left.is_empty() {
            let (names, ms) = (still.join(", "), wait.as_millis());
            return Err(format!("{names} stood still for {ms} ms, as a virtual machine's may; measure on its host"));
        }
        Ok(Meters::new(left, self.hz))
    }

    /// How long a sample lasts at least, so that all meters change often enough in it.
    pub fn sample(&self) -> Duration {
        let wanted = |(dial, _): &(Dial, Box<dyn Meter>)| match dial.scale {
            Scale::Energy { .. } => UPDATES * dial.update_us,
            Scale::Power => SENSOR_UPDATES * dial.update_us,
        };
        Duration::from_micros(self.meters.iter().map(wanted).max().unwrap_or(0))
    }

    /// A sample is about to begin.
    pub fn begin(&mut self, now: &dyn Fn() -> u64) {
        self.begun = self.meters.iter_mut().map(|(_, meter)| (meter.read(), now())).collect();
    }

    /// It has ended: what each meter told of it.
    pub fn end(&mut self, now: &dyn Fn() -> u64) -> Vec<(Option<u64>, u64)> {
        let hz = self.hz.0;
        let of = |((dial, meter), &(before, began)): (&mut Known, &Told)| {
            let (after, ticks) = (meter.read(), now().saturating_sub(began).max(1));
            let spent = match (dial.scale, before, after) {
                (Scale::Energy { range }, Some(before), Some(after)) => spent(before, after, range),
                (Scale::Power, _, Some(microwatts)) => Some((microwatts as f64 * ticks as f64 / hz) as u64),
                _ => None,
            };
            (spent, ticks)
        };
        self.meters.iter_mut().zip(&self.begun).map(of).collect()
    }

    /// Adds what was told of a sample to `samples`.
    pub fn push(&self, told: Vec<(Option<u64>, u64)>, samples: &mut Samples) {
        if samples.energy.is_empty() {
            let column = |(dial, _): &(Dial, Box<dyn Meter>)| EnergySamples {
                meter: dial.name.clone(),
                part: dial.part,
                update_us: if dial.scale == Scale::Power { 0 } else { dial.update_us },
                microjoules: Vec::new(),
                ticks: Vec::new(),
            };
            samples.energy = self.meters.iter().map(column).collect();
        }
        for (column, (microjoules, ticks)) in samples.energy.iter_mut().zip(told) {
            column.microjoules.push(microjoules);
            column.ticks.push(ticks);
        }
    }
}

/// Microjoules between two values of a counter that may have started again from 0 once. Where it does not tell its range,
/// a fall tells nothing.
pub fn spent(before: u64, after: u64, range: Option<u64>) -> Option<u64> {
    match range {
        _ if after >= before => Some(after - before),
        Some(range) if range >= before => Some(range - before + after),
        _ => None,
    }
}

/// This machine's meters, ready to be read; or why there are none.
pub fn open(known: &Fact<Vec<EnergyMeter>>, source: &Source, hz: Hertz) -> Result<Meters, String> {
    let all = known.known().map_or(&[][..], Vec::as_slice);
    let mut meters: Vec<(Dial, Box<dyn Meter>)> = Vec::new();
    let mut refused = Vec::new();
    for meter in energy::usable(all) {
        let power = matches!(meter.kind, MeterKind::Power { .. } | MeterKind::Current { .. });
        let range = if let MeterKind::Counter { range_uj, .. } = meter.kind { range_uj } else { None };
        let scale = if power { Scale::Power } else { Scale::Energy { range } };
        let dial = Dial { name: meter.name.clone(), part: meter.part, update_us: meter.update_us, scale };
        match &meter.kind {
            &MeterKind::Event { pmu, config, scale_j, cpu } => {
                match counters::counter_event(pmu, [config, 0, 0], cpu) {
                    Ok(file) => meters.push((dial, Box::new(Event { file, unit: 1e6 * scale_j }))),
                    Err(fault) => refused.push(format!("{} can't be read ({fault})", meter.name)),
                }
            }
            MeterKind::Counter { file, .. } | MeterKind::Power { file } => {
                meters.push((dial, Box::new(Files { source: source.clone(), files: vec![file.clone()] })));
            }
            MeterKind::Current { current, voltage } => {
                let files = vec![current.clone(), voltage.clone()];
                meters.push((dial, Box::new(Files { source: source.clone(), files })));
            }
        }
    }
    match (meters.is_empty(), refused.is_empty()) {
        (false, _) => Ok(Meters::new(meters, hz)),
        (true, false) => Err(refused.join("; ")),
        (true, true) => Err(energy::refusal(known)),
    }
}

/// A file with a number; or two, of microamperes and microvolts.
#[derive(Debug)]
struct Files {
    source: Source,
    files: Vec<String>,
}

impl Meter for Files {
    fn read(&mut self) -> Option<u64> {
        match &self.files[..] {
            [value] => self.source.number(value).get(),
            [current, voltage] => {
                let (current, voltage): (i64, u64) =
                    (self.source.number(current).get()?, self.source.number(voltage).get()?);
                Some(energy::watts(current.unsigned_abs(), voltage))
            }
            _ => None,
        }
    }
}

/// A counter of a device: power, or memory controllers.
#[derive(Debug)]
pub(crate) struct Event {
    pub file: File,
    /// What one count is: microjoules, or bytes.
    pub unit: f64,
}

impl Meter for Event {
    /// One that could not be scheduled is at its end.
    fn read(&mut self) -> Option<u64> {
        let mut count = [0; 8];
        self.file.read_exact(&mut count).ok()?;
        Some((u64::from_ne_bytes(count) as f64 * self.unit) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_starts_again_once() {
        let check = |before, after, range, expect| assert_eq!(spent(before, after, range), expect, "{before} {after}");
        check(100, 350, Some(1000), Some(250));
        check(100, 350, None, Some(250));
        // 900 to 1000 and from 0 to 50.
        check(900, 50, Some(1000), Some(150));
        check(900, 50, None, None);
        // A value beyond the range belies it.
        check(1200, 50, Some(1000), None);
    }

    #[derive(Debug)]
    struct Readings(Vec<Option<u64>>);

    impl Meter for Readings {
        fn read(&mut self) -> Option<u64> {
            self.0.remove(0)
        }
    }

    fn dial(scale: Scale, update_us: u64) -> Dial {
        Dial { name: "m".into(), part: EnergyPart::Package, update_us, scale }
    }

    /// Two hundred updates of 1 ms, in which a counter of a package moved and one of the platform did not; graphics may be off.
    #[test]
    fn a_counter_that_stands_still_is_no_meter() {
        let counter = |part, values: [u64; 2]| -> Known {
            let dial = Dial { part, name: format!("{part}"), ..dial(Scale::Energy { range: None }, 1000) };
            (dial, Box::new(Readings(values.map(Some).to_vec())))
        };
        let moving = |meters| {
            let moving = Meters::new(meters, Hertz(1000.0)).moving(&|wait| assert_eq!(wait.as_millis(), 200))?;
            Ok::<_, String>(moving.meters.iter().map(|(dial, _)| dial.part).collect::<Vec<_>>())
        };
        let [package, platform] = [EnergyPart::Package, EnergyPart::Platform];
        let uncore = || counter(EnergyPart::Uncore, [7, 7]);
        let found = moving(vec![counter(package, [5, 6]), counter(platform, [0, 0]), uncore()]);
        assert_eq!(found.unwrap(), [package, EnergyPart::Uncore]);
        let none = moving(vec![counter(platform, [0, 0])]).unwrap_err();
        assert!(none.starts_with("platform stood still for 200 ms"), "{none}");
        assert_eq!(moving(Vec::new()).unwrap(), []);
    }

    #[test]
    fn what_is_told_of_a_sample() {
        let counter =
            (dial(Scale::Energy { range: Some(1000) }, 1000), Box::new(Readings(vec![Some(900), Some(100)])) as _);
        let sensor = (dial(Scale::Power, 1_000_000), Box::new(Readings(vec![None, Some(40_000_000)])) as _);
        let gone = (dial(Scale::Energy { range: None }, 1000), Box::new(Readings(vec![Some(5), None])) as _);
        let mut meters = Meters::new(vec![counter, sensor, gone], Hertz(1000.0));
        assert_eq!(meters.sample(), Duration::from_secs(3), "three updates of the sensor, 200 of the counters");
        meters.begin(&|| 50);
        // 250 ticks of 1 ms: 40 W for 0.25 s are 10 J.
        let told = meters.end(&|| 300);
        assert_eq!(told, [(Some(200), 250), (Some(10_000_000), 250), (None, 250)]);
        let mut samples = Samples::default();
        meters.push(told.clone(), &mut samples);
        meters.push(told, &mut samples);
        assert_eq!(samples.energy[0].microjoules, [Some(200), Some(200)]);
        assert_eq!(samples.energy[1].update_us, 0, "a sensor has no step to be wrong by");
    }
}
