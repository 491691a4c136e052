//! Memory that a device shares with the processor: from visits to rows, and after how many uses a kind of buffer pays.
//!
//! A use: the processor fills the buffer, the device reads it. The first one is counted from asking for the buffer. What others
//! are held against is a plain buffer that regular memory is copied to (clEnqueueWriteBuffer, cuMemcpyAsync), which needs no promise
//! of any driver.

use schemars::JsonSchema;
use serde::Serialize;

use crate::break_even::{BreakEven, break_even};
use crate::hierarchy::names::SIZES_FOR_LEVELS;
use crate::quality::Sampled;
use crate::rate::{Cost, Rate};
use crate::row::{Metric, Row};
use crate::visits::{Gauge, Visits, measured, payload_bps};
use membound_core::case::{Case, Protocol, Work};
use membound_core::curves::hierarchy::levels::{Plateau, find};
use membound_core::in_order::InOrder;
use membound_core::machine::devices::{Api, Device, DeviceName};
use membound_core::memory::Obtained;
use membound_core::memory::sharing::Sharing;
use membound_core::record::{Measured, Measurement, Unit};
use membound_core::stats::compare;
use membound_core::stats::quantiles::median;
use membound_core::units::Bytes;
use membound_core::work::device::{Action, Buffer, DeviceWork};

/// An action on a buffer of a device.
pub type DeviceRow = Row<DeviceFigures>;

/// What it takes.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct DeviceFigures {
    /// Nanoseconds of one action; of a chase, of one load. Absent where nothing was measured.
    pub ns: Option<Cost>,
    /// Bytes that it reads and writes per second, by STREAM's convention; absent where it moves none.
    #[serde(rename = "payload_Bps")]
    pub payload_bps: Option<Rate>,
    /// Bytes that the other side (of several CPUs one) read and wrote per second meanwhile, by the median visit; absent where none
    /// ran, or too few passes to tell.
    #[serde(rename = "beside_Bps", skip_serializing_if = "Option::is_none")]
    pub beside_bps: Option<f64>,
    /// How the device shares the buffer, by behaviour; absent where that could not be told.
    pub sharing: Option<Sharing>,
    /// Memory obtained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obtained: Option<Obtained>,
}

/// What tells rows of devices from each other.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DeviceKeys {
    /// The device.
    #[schemars(with = "String")]
    device: DeviceName,
    /// The kind of buffer.
    buffer: Buffer,
    /// What was done to it.
    action: Action,
    /// Percent of the time in which what ran beside it worked, by sixteenths of its memory; absent where nothing did, or where it worked
    /// all the time and by whole passes.
    #[serde(skip_serializing_if = "Option::is_none")]
    duty_percent: Option<u8>,
    /// Whether the buffer was made for each sample, and that counts.
    first_use: bool,
    /// The CPU that works or waits, and that of what runs beside it.
    cpus: Vec<u32>,
    /// Bytes of the buffer, or of all arrays of a kernel.
    working_set_bytes: Bytes,
}

impl Metric for DeviceFigures {
    const NAME: &'static str = "device";
    const UNIT: &'static str = "ns";
    type Keys = DeviceKeys;

    fn keys(row: &DeviceRow) -> DeviceKeys {
        let DeviceWork { device, buffer, action, duty_percent } = row.work();
        DeviceKeys {
            device,
            buffer,
            action,
            duty_percent,
            first_use: row.is_first_use(),
            cpus: row.case.cpus.clone(),
            working_set_bytes: row.case.working_set,
        }
    }

    fn what(row: &DeviceRow) -> String {
        let DeviceWork { buffer, action, .. } = row.work();
        let duty = row.work().pauses().map_or_else(String::new, |percent| format!(" at work {percent} % of the time"));
        format!("{action}{duty} of {buffer}{}", if row.is_first_use() { ", first use" } else { "" })
    }

    fn kind(row: &DeviceRow) -> Option<String> {
        let DeviceWork { buffer, action, .. } = row.work();
        // A driver may run no kernels, and its plain buffers be there all the same.
        Some(if action.is_on_own_memory() { "kernels of the device".into() } else { buffer.to_string() })
    }
}

impl DeviceRow {
    /// What was done to which buffer of which device.
    pub fn work(&self) -> DeviceWork {
        let work = if let Work::Device(work) = self.case.work { Some(work) } else { None };
        work.expect("rows of devices are made of works on devices alone")
    }

    /// Whether the buffer was made for each sample.
    pub fn is_first_use(&self) -> bool {
        self.case.protocol == Protocol::FirstUse
    }
}

/// All that is known of a device; no rows where none was measured.
#[derive(Debug, Clone, Default)]
pub struct OnDevice {
    /// The device, as its driver describes it; absent in a record that does not tell.
    pub device: Option<Device>,
    /// One row a case, by buffer, action and working set.
    pub rows: Vec<DeviceRow>,
    /// Kinds of buffers side by side, by what a use takes.
    pub uses: Vec<Use>,
    /// What both sides keep of their speed while the other works, in the order of their names.
    pub kept: Vec<Kept>,
}

/// A rate over another one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// [ratio, low, high].
    pub ends: [f64; 3],
    /// Whether the ends are those of an interval, over visits; else of a range: the samples of a single visit meet the same state of
    /// the machine.
    pub has_interval: bool,
}

impl Ratio {
    /// The ratio with the ends between which it can be taken to lie: a range reaches as far again to either side, and by 1 % at least.
    pub fn wide(self) -> [f64; 3] {
        let [value, low, high] = self.ends;
        let more = if self.has_interval { 0.0 } else { (high - low).max(0.01 * value) };
        // No ratio is negative, and its inverse is taken.
        [value, (low - more).max(0.01 * value), high + more]
    }
}

/// A way to hand a buffer's contents to the device.
#[derive(Debug, Clone, PartialEq)]
pub struct Use {
    /// The kind of buffer.
    pub buffer: Buffer,
    /// By mapping it, or by writing to it.
    pub action: Action,
    /// Nanoseconds of the first use, with making the buffer.
    pub first_ns: Option<Cost>,
    /// Nanoseconds of each later one.
    pub later_ns: Option<Cost>,
    /// Speed of later uses against the written plain buffer.
    pub gain: Option<Ratio>,
    /// From which use on it is the better choice.
    pub break_even: Option<BreakEven>,
}

/// One side beside the other.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    /// Its action alone.
    pub alone: Rate,
    /// The same beside the other.
    pub beside: Rate,
    /// The share that it keeps.
    pub share: Ratio,
    /// Samples beside the other.
    pub samples: usize,
    /// What is timed.
    pub action: Action,
    /// CPUs that do the triad; rates are those of one of them.
    pub triads: usize,
    /// What the device copies from.
    pub buffer: Buffer,
    /// What the other moved meanwhile, of what it gets alone, disturbances included in both; without ends. Absent where that is not known.
    pub other: Option<f64>,
    /// Percent of the time in which the other worked, where it paused.
    pub pauses: Option<u8>,
}

/// What a record tells of a device.
pub(crate) fn on_device(visits: &Visits<'_>) -> OnDevice {
    let mut rows: Vec<DeviceRow> = visits.rows(|case| row(case, &visits.gauge));
    rows.order_by_key(|row| (row.work(), row.case.working_set, row.case.protocol));
    let (uses, kept) = (uses(&rows, visits), kept(&rows, visits));
    OnDevice { device: visits.header().device.clone(), rows, uses, kept }
}

fn row(visits: &[&Measurement], gauge: &Gauge) -> Option<DeviceRow> {
    let case = &visits[0].case;
    let Work::Device(work) = case.work else { return None };
    let mut sampled = Sampled::of(visits, gauge, |visit| ns(visit, gauge.hz));
    let ns = sampled.cost();
    let visited = measured(visits);
    let moves = visited.last().filter(|last| last.volume.payload() > 0);
    let payload_bps = moves.and_then(|last| {
        let per_unit = last.volume.payload() as f64 * 1e9 / units(last);
        Some(ns?.each(|ns| per_unit / ns))
    });
    let obtained = sampled.obtained();
    let figures = DeviceFigures {
        ns,
        payload_bps,
        beside_bps: beside_bps(&visited, case, work, gauge.hz),
        sharing: obtained.as_ref().and_then(Obtained::sharing),
        obtained,
    };
    Some(Row { case: case.clone(), quality: sampled.quality, figures })
}

/// What the nanoseconds of a repetition are shared by.
fn units(visit: &Measured) -> f64 {
    if visit.volume.unit == Unit::Access { visit.volume.units.max(1) as f64 } else { 1.0 }
}

/// Nanoseconds of each action, sample by sample.
pub(crate) fn ns(visit: &Measured, hz: f64) -> Vec<f64> {
    let all = visit.repetitions as f64 * units(visit);
    visit.samples.ns_each(all, hz)
}

/// Fewer passes within samples don't tell how fast what did them was: of each sample one may be half done at either end.
const PASSES_LEAST: f64 = 10.0;

/// Payload of what ran beside, in whole passes.
fn beside_bps(visits: &[&Measured], case: &Case, work: DeviceWork, hz: f64) -> Option<f64> {
    let (action, cpus) = (work.action, case.cpus.len());
    let bytes = match action {
        // Read and written.
        Action::HostTriadBesideCopy => 2.0 * action.copied_beside(cpus, case.working_set).0 as f64,
        Action::CopyBesideHostTriad => 3.0 * action.triad_array(cpus, case.working_set).0 as f64,
        _ => return None,
    };
    let slices = work.slices() as f64;
    let sum = |counts: &[u64]| counts.iter().map(|count| *count as f64).sum::<f64>();
    let passes_of = |visit: &&Measured| sum(&visit.samples.load_repetitions);
    // Over all samples of a visit, since one holds few passes.
    let of_visit = |visit: &&Measured| passes_of(visit) * bytes / slices / (sum(&visit.samples.ticks) / hz);
    let passes: f64 = visits.iter().map(passes_of).sum();
    let rates = visits.iter().map(of_visit).filter(|rate| rate.is_finite());
    median(rates).filter(|_| passes >= PASSES_LEAST)
}

/// Payload rates of each visit to a row's case.
fn batches(row: &DeviceRow, visits: &Visits<'_>) -> Vec<Vec<f64>> {
    let of_case = visits.cases.iter().find(|case| case[0].case == row.case);
    of_case.map_or_else(Vec::new, |case| measured(case).iter().map(|visit| payload_bps(visit, visits.hz())).collect())
}

fn ratio_of(row: &DeviceRow, base: &DeviceRow, visits: &Visits<'_>) -> Option<Ratio> {
    let [ours, theirs] = [row, base].map(|row| batches(row, visits));
    let [ours, theirs] = [&ours, &theirs].map(|all| all.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let (row, base) = (row.payload_bps?, base.payload_bps?);
    // Each visit has buffers of its own.
    let of_visits = compare::ratio_of_draws(&ours, &theirs);
    let has_interval = of_visits.iter().all(|end| end.is_finite());
    let ends = match has_interval {
        true => row.over_as_sure_as(base, of_visits),
        false => compare::of_figures(row.interval(), base.interval()),
    };
    ends.iter().all(|end| end.is_finite()).then_some(Ratio { ends, has_interval })
}

fn uses(rows: &[DeviceRow], visits: &Visits<'_>) -> Vec<Use> {
    let of = |buffer: Buffer, action: Action, is_first: bool| {
        rows.iter().find(|row| {
            let work = row.work();
            (work.buffer, work.action, row.is_first_use()) == (buffer, action, is_first) && row.quality.is_measured()
        })
    };
    let base = (of(Buffer::Plain, Action::UseWritten, true), of(Buffer::Plain, Action::UseWritten, false));
    let ways = [(Buffer::Plain, Action::UseWritten)].into_iter();
    let ways = ways.chain(Buffer::of_devices().map(|buffer| (buffer, Action::Use)));
    let way = |(buffer, action): (Buffer, Action)| {
        let (first, later) = (of(buffer, action, true), of(buffer, action, false));
        let gain = base.1.filter(|_| action == Action::Use).and_then(|base| ratio_of(later?, base, visits));
        let break_even = gain.and_then(|gain| {
            let firsts = (first?.ns?, base.0?.ns?);
            break_even(firsts, (later?.ns?, base.1?.ns?), gain.wide())
        });
        let [first_ns, later_ns] = [first, later].map(|row| row.and_then(|row| row.ns));
        let is_known = first_ns.is_some() || later_ns.is_some();
        is_known.then_some(Use { buffer, action, first_ns, later_ns, gain, break_even })
    };
    ways.filter_map(way).collect()
}

fn kept(rows: &[DeviceRow], visits: &Visits<'_>) -> Vec<Kept> {
    /// What is timed, what runs beside it, and the action that is both.
    const PAIRS: [[Action; 3]; 2] = [
        [Action::HostTriad, Action::Copy, Action::HostTriadBesideCopy],
        [Action::Copy, Action::HostTriad, Action::CopyBesideHostTriad],
    ];
    let pair = |[timed, other]: [Action; 2], beside: &DeviceRow| {
        let alone = |action: Action| rows.iter().filter(move |row| is_alone(row, action, beside));
        let lone = alone(timed).find(|row| row.case.working_set == beside.case.working_set)?;
        let share = ratio_of(beside, lone, visits)?;
        let other = alone(other).max_by_key(|row| row.case.working_set).and_then(|row| row.payload_bps);
        let other = beside.beside_bps.zip(other).map(|(beside, alone)| share_meanwhile(beside, alone));
        Some(Kept {
            alone: lone.payload_bps?,
            beside: beside.payload_bps?,
            share,
            samples: beside.quality.samples,
            action: timed,
            triads: triads(beside),
            buffer: beside.work().buffer,
            other,
            pauses: beside.work().pauses(),
        })
    };
    let of = |[timed, other, both]: [Action; 3]| {
        let rows = rows.iter().filter(move |row| row.work().action == both && row.quality.is_measured());
        rows.filter_map(move |row| pair([timed, other], row))
    };
    let mut kept: Vec<Kept> = PAIRS.into_iter().flat_map(of).collect();
    kept.order_by_key(|kept| (kept.triads, kept.action == Action::Copy, kept.pauses.unwrap_or(100)));
    kept
}

/// What the other moved meanwhile, of what it gets alone: whatever disturbs is in both.
fn share_meanwhile(beside_bps: f64, alone: Rate) -> f64 {
    beside_bps / alone.experienced
}

fn triads(row: &DeviceRow) -> usize {
    row.work().action.triads(row.case.cpus.len())
}

/// Whether a row is of one of the two actions alone that run at once in another.
fn is_alone(row: &DeviceRow, action: Action, beside: &DeviceRow) -> bool {
    let (work, buffer) = (row.work(), beside.work().buffer);
    let is_it = match (action, buffer) {
        (Action::HostTriad, _) => work.action == action && triads(row) == triads(beside),
        // From regular memory the driver writes.
        (_, Buffer::Regular) => (work.buffer, work.action) == (Buffer::Plain, Action::Write),
        _ => (work.buffer, work.action) == (buffer, action),
    };
    is_it && row.quality.is_measured()
}

impl OnDevice {
    /// How far each level of the device's own memory reaches, and what a load that waits for another takes there: speeds are loads per
    /// nanosecond. Nothing where chases are too few to tell.
    pub fn levels(&self) -> Vec<Plateau> {
        let chases = self.rows.iter().filter(|row| row.work().action == Action::Chase && row.quality.is_measured());
        let point = |row: &DeviceRow| {
            let [ns, low, high] = row.ns?.interval();
            Some((row.case.working_set, 1.0 / ns, [1.0 / high, 1.0 / low]))
        };
        let curve: Vec<(Bytes, f64, [f64; 2])> = chases.filter_map(point).collect();
        if curve.len() < SIZES_FOR_LEVELS { Vec::new() } else { find(&curve) }
    }

    /// The row of an action on a kind of buffer, by the largest working set; nothing where its figures don't hold.
    pub fn row(&self, buffer: Buffer, action: Action) -> Option<&DeviceRow> {
        let largest = self.later(buffer, action).max_by_key(|row| row.case.working_set);
        largest.filter(|row| row.quality.is_measured())
    }

    /// The same by the largest that was measured: of a larger one there may have been too little memory.
    pub fn measured_row(&self, buffer: Buffer, action: Action) -> Option<&DeviceRow> {
        let measured = self.later(buffer, action).filter(|row| row.quality.is_measured());
        measured.max_by_key(|row| row.case.working_set)
    }

    /// The same by one working set.
    pub fn row_of(&self, buffer: Buffer, action: Action, size: Bytes) -> Option<&DeviceRow> {
        self.later(buffer, action).find(|row| row.case.working_set == size && row.quality.is_measured())
    }

    fn later(&self, buffer: Buffer, action: Action) -> impl Iterator<Item = &DeviceRow> {
        self.rows.iter().filter(move |row| {
            let work = row.work();
            (work.buffer, work.action) == (buffer, action) && !row.is_first_use()
        })
    }

    /// Bytes of the buffers that are compared. What runs at once and the device's kernels have working sets of their own.
    pub fn buffer_bytes(&self) -> Option<Bytes> {
        let of_buffers = |row: &&DeviceRow| {
            let action = row.work().action;
            let is_of_both =
                matches!(action, Action::Copy | Action::Write | Action::HostTriad) || action.is_contended();
            !is_of_both && !action.is_on_own_memory()
        };
        self.rows.iter().filter(of_buffers).map(|row| row.case.working_set).max()
    }

    /// The interface of the device.
    pub fn api(&self) -> Api {
        self.rows.first().map_or(Api::OpenCl, |row| row.work().device.api)
    }

    /// How the device shares a kind of buffer.
    pub fn sharing(&self, buffer: Buffer) -> Option<Sharing> {
        self.tells_most(buffer, |row| row.sharing.is_some())?.sharing
    }

    /// Of the rows that tell of a kind of buffer that of one use, whose table it is told in, and the largest: what a driver makes of a
    /// flag may depend on the size.
    pub fn tells_most(&self, buffer: Buffer, tells: impl Fn(&DeviceRow) -> bool) -> Option<&DeviceRow> {
        let is_use = |row: &DeviceRow| matches!(row.work().action, Action::Use | Action::UseWritten);
        let of_kind = self.rows.iter().filter(|row| row.work().buffer == buffer && tells(row));
        of_kind.max_by_key(|row| (is_use(row), row.case.working_set))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quality::{Quality, Status};
    use membound_core::record::{Samples, Volume};

    fn visit(volume: Volume, ticks: &[u64], meanwhile: &[u64]) -> Measured {
        let samples = Samples { ticks: ticks.to_vec(), load_repetitions: meanwhile.to_vec(), ..Samples::default() };
        Measured { volume, repetitions: 2, core_clock_links: 1, samples, obtained: Obtained::default() }
    }

    #[test]
    fn a_larger_working_set_that_was_not_measured_hides_none_that_was() {
        let row = |mib, outcome| {
            let work = Work::Device(DeviceWork::new("opencl:0".parse().unwrap(), Buffer::Plain, Action::KernelTriad));
            let case = Case::new(work, membound_core::case::USUAL_MEMORY, vec![0], Bytes::mib(mib));
            let (ns, payload_bps, beside_bps) = (None, None, None);
            DeviceRow::made_up(
                case,
                outcome,
                DeviceFigures { ns, payload_bps, beside_bps, sharing: None, obtained: None },
            )
        };
        let rows = vec![row(96, Status::Measured), row(24, Status::Measured), row(768, Status::Unavailable)];
        let on = OnDevice { rows, ..OnDevice::default() };
        let size = |found: Option<&DeviceRow>| found.map(|row| row.case.working_set);
        assert_eq!(size(on.measured_row(Buffer::Plain, Action::KernelTriad)), Some(Bytes::mib(96)));
        assert_eq!(size(on.row(Buffer::Plain, Action::KernelTriad)), None);
    }

    /// At a tick per nanosecond: two operations in 600 ns are 300 each; two times 4 loads in 800 ns are 100 each.
    #[test]
    fn nanoseconds_by_hand() {
        let operation = Volume { units: 1, unit: Unit::Operation, ..Volume::default() };
        assert_eq!(ns(&visit(operation, &[600, 800], &[]), 1e9), [300.0, 400.0]);
        let loads = Volume { units: 4, unit: Unit::Access, ..Volume::default() };
        assert_eq!(ns(&visit(loads, &[800], &[]), 1e9), [100.0]);
    }

    /// Buffers of 64 KiB are copied, those of 32 MiB of one use are shared.
    #[test]
    fn sharing_is_that_of_the_size_that_is_used() {
        let row = |action, kib, sharing| {
            let work = Work::Device(DeviceWork::new("opencl:0".parse().unwrap(), Buffer::AllocHost, action));
            let case = Case::new(work, membound_core::case::USUAL_MEMORY, vec![0], Bytes::kib(kib));
            let (ns, payload_bps, beside_bps) = (None, None, None);
            let figures = DeviceFigures { ns, payload_bps, beside_bps, sharing, obtained: None };
            DeviceRow::made_up(case, Status::Measured, figures)
        };
        let small = row(Action::Allocate, 64, Some(Sharing::Copied));
        let large = row(Action::MapRead, 65536, Some(Sharing::OneWay));
        let used = row(Action::Use, 32768, Some(Sharing::Same));
        let unknown = row(Action::Use, 32768, None);
        let sharing = |rows| OnDevice { rows, ..OnDevice::default() }.sharing(Buffer::AllocHost);
        assert_eq!(sharing(vec![small.clone(), used, large.clone()]), Some(Sharing::Same));
        assert_eq!(sharing(vec![small.clone(), unknown]), Some(Sharing::Copied));
        assert_eq!(sharing(vec![large, small]), Some(Sharing::OneWay));
    }

    /// A driver without kernels has plain buffers all the same.
    #[test]
    fn kernels_that_are_not_there_are_no_buffers() {
        let row = |action| {
            let work = Work::Device(DeviceWork::new("vulkan:0".parse().unwrap(), Buffer::Plain, action));
            let case = Case::new(work, membound_core::case::USUAL_MEMORY, vec![0], Bytes::mib(1));
            let (ns, payload_bps, beside_bps) = (None, None, None);
            let figures = DeviceFigures { ns, payload_bps, beside_bps, sharing: None, obtained: None };
            let row = DeviceRow::made_up(case, Status::Unavailable, figures);
            DeviceRow { quality: Quality { reason: Some("no".into()), ..row.quality }, ..row }
        };
        let names = |actions: &[Action]| {
            let rows: Vec<DeviceRow> = actions.iter().map(|action| row(*action)).collect();
            crate::missing::reasons(&rows).into_iter().flat_map(|missing| missing.names).collect::<Vec<_>>()
        };
        assert_eq!(names(&[Action::KernelTriad, Action::Chase]), ["kernels of the device"]);
        assert_eq!(names(&[Action::Allocate]), ["plain"]);
    }

    /// Of 1.5 to 1.9 in a few visits 1.1 to 2.3 can be; an interval is what it is.
    #[test]
    fn a_range_of_ratios_decides_less_than_an_interval() {
        let wide = |ends, has_interval| Ratio { ends, has_interval }.wide().map(|end| (end * 1e3_f64).round());
        assert_eq!(wide([1.7, 1.5, 1.9], false), [1700.0, 1100.0, 2300.0]);
        assert_eq!(wide([1.7, 1.5, 1.9], true), [1700.0, 1500.0, 1900.0]);
        assert_eq!(wide([2.0, 2.0, 2.0], false), [2000.0, 1980.0, 2020.0]);
        assert_eq!(wide([2.0, 0.5, 3.0], false), [2000.0, 20.0, 5500.0]);
    }

    /// What moves 20 GB/s undisturbed and got 10 of them alone is at a half with 5 beside.
    #[test]
    fn the_other_is_held_against_what_it_got_alone() {
        let alone = Rate { experienced: 10e9, ..Rate::plain(21e9, 20e9, [19e9, 21e9]) };
        assert_eq!(share_meanwhile(5e9, alone), 0.5);
    }

    /// Fifty copies of 1 MB, read and written, in 10 ms are 10 GB/s; a triad over three arrays of 1 MB, forty times, 12 GB/s.
    #[test]
    fn what_ran_beside_by_hand() {
        let beside = |action, duty_percent, bytes: u64, passes| {
            let whole = DeviceWork::new("opencl:0".parse().unwrap(), Buffer::Plain, action);
            let work = DeviceWork { duty_percent, ..whole };
            let case = Case {
                work: Work::Device(work),
                memory: membound_core::case::USUAL_MEMORY,
                streams: Vec::new(),
                cpus: vec![0, 1],
                working_set: Bytes(bytes),
                misaligned_bytes: 0,
                protocol: Protocol::Steady,
            };
            beside_bps(&[&visit(Volume::default(), &[10_000_000], &[passes])], &case, work, 1e9)
        };
        assert_eq!(beside(Action::HostTriadBesideCopy, None, 3_000_000, 50), Some(10e9));
        assert_eq!(beside(Action::CopyBesideHostTriad, None, 1_000_000, 40), Some(12e9));
        assert_eq!(beside(Action::Copy, None, 1_000_000, 40), None);
        assert_eq!(beside(Action::CopyBesideHostTriad, None, 1_000_000, 9), None, "too few passes");
        // What has a duty counts sixteenths: 400 of them are 25 copies, 5 GB/s.
        assert_eq!(beside(Action::HostTriadBesideCopy, Some(50), 3_000_000, 400), Some(5e9));
    }
}
