//! What a device's copies and the processor's triad cost each other. Two sides that share a path, or have one each, are simulated in
//! steps of time; a report of their records must tell which it was.

use crate::common::{imitation, simulated};
use membound_analyze::experiments::device::rows::{Kept, OnDevice};
use membound_analyze::of_record as model;
use membound_core::case::{Case, Work};
use membound_core::experiments::device::{Parts, device};
use membound_core::experiments::frame::Frame;
use membound_core::kernel::isa::Isa;
use membound_core::machine::devices::Device;
use membound_core::record::{Measurement, Outcome, Samples, Unit, Volume};
use membound_core::work::device::{Action, DeviceWork};

/// Seconds of a step, bytes a second of either side alone, and seconds of a sample.
const STEP: f64 = 5e-6;
const ALONE: f64 = 20e9;
const SAMPLE: f64 = 0.1;

/// What works beside the timed side.
struct Other {
    /// Bytes of a pass, and of them those that are left.
    pass: f64,
    left: f64,
    passes: u64,
    duty: f64,
    /// Since when it works on its pass, and until when it pauses.
    since: f64,
    until: f64,
}

impl Other {
    fn of(work: DeviceWork, case: &Case) -> Option<Other> {
        let cpus = case.cpus.len();
        let bytes = match work.action {
            Action::HostTriadBesideCopy => 2 * work.action.copied_beside(cpus, case.working_set).0,
            Action::CopyBesideHostTriad => 3 * work.action.triad_array(cpus, case.working_set).0,
            _ => return None,
        };
        let pass = bytes as f64 / work.slices() as f64;
        let duty = f64::from(work.duty_percent.unwrap_or(100)) / 100.0;
        Some(Other { pass, left: pass, passes: 0, duty, since: 0.0, until: 0.0 })
    }

    fn works(&self, now: f64) -> bool {
        now >= self.until
    }

    fn moves(&mut self, bytes: f64, now: f64) {
        self.left -= bytes;
        if self.left <= 0.0 {
            self.passes += 1;
            self.left += self.pass;
            self.until = now + (now - self.since) * (1.0 / self.duty - 1.0);
            self.since = self.until;
        }
    }
}

/// A visit to a case on a path of so many bytes a second.
fn visit(case: &Case, path: f64) -> Measurement {
    let Work::Device(work) = case.work else { panic!("{case}") };
    let bytes = case.working_set.0;
    let (loaded, stored) =
        if work.action.kernel() == Some("triad") { (bytes / 3 * 2, bytes / 3) } else { (bytes, bytes) };
    let repetitions = (SAMPLE * ALONE / (loaded + stored) as f64).ceil() as u64;
    let mut other = Other::of(work, case);
    let (mut now, mut samples) = (0.0, Samples::default());
    for _ in 0..7 {
        let (start, before) = (now, other.as_ref().map_or(0, |other| other.passes));
        let mut left = (repetitions * (loaded + stored)) as f64;
        while left > 0.0 {
            now += STEP;
            let both = other.as_mut().filter(|other| other.works(now));
            // Who shares a path has half of it, or what the other leaves.
            let rate = if both.is_some() { ALONE.min(path / 2.0) } else { ALONE };
            left -= rate * STEP;
            if let Some(other) = both {
                other.moves(rate * STEP, now);
            }
        }
        samples.ticks.push(((now - start) * imitation::HZ) as u64);
        samples.load_repetitions.extend(other.as_ref().map(|other| other.passes - before));
    }
    let mut visit = imitation::visit(case, ALONE, &[]);
    let Outcome::Measured(measured) = &mut visit.outcome else { panic!("{visit:?}") };
    measured.samples = samples;
    measured.repetitions = repetitions;
    measured.volume = Volume { units: 1, unit: Unit::Operation, loaded, stored, ..Volume::default() };
    visit
}

/// What a report makes of all cases, on a device that has the host's memory.
fn reported(path: f64) -> OnDevice {
    let machine = simulated::machine(2, false);
    let frame = Frame::new(&machine, Isa::NONE, None).unwrap();
    let pocl = Device { is_unified: true, ..Device::unknown("opencl:0".parse().unwrap()) };
    let cases = device(&frame, &pocl, None, Parts { contention: true, ..Parts::default() }).unwrap();
    let mut record = imitation::record(machine, cases.iter().map(|case| visit(case, path)).collect());
    record.header.device = Some(pocl);
    model::report(&record).device
}

fn others(kept: &[Kept], action: Action) -> Vec<f64> {
    kept.iter().filter(|kept| kept.action == action).map(|kept| kept.other.unwrap()).collect()
}

#[test]
fn on_one_path_each_keeps_what_the_other_leaves() {
    let on = reported(ALONE);
    assert_eq!(on.kept.len(), 10, "each side beside the other at work all the time, and at four duties");
    for kept in &on.kept {
        let other = kept.other.unwrap();
        assert!((kept.share.ends[0] + other - 1.0).abs() < 0.02, "{kept:?}");
    }
    for action in [Action::HostTriad, Action::Copy] {
        let others = others(&on.kept, action);
        assert!(others.is_sorted() && others[0] < 0.2 && (others[4] - 0.5).abs() < 0.02, "{others:?}");
    }
    let said = membound_analyze::answer::Answer::sentences(&on).join(" ");
    assert!(
        said.contains("keeps 0.500 ") && said.contains("the device's copy 0.500 ") && said.contains("in sum 1.00"),
        "{said}"
    );
}

#[test]
fn who_has_a_path_of_its_own_keeps_all() {
    let on = reported(2.0 * ALONE);
    assert!(on.kept.iter().all(|kept| (kept.share.ends[0] - 1.0).abs() < 0.01), "{:?}", on.kept);
    let others = others(&on.kept, Action::HostTriad);
    assert!(
        others.iter().zip([0.2, 0.4, 0.6, 0.8, 1.0]).all(|(found, duty)| (found - duty).abs() < 0.03),
        "{others:?}"
    );
    let said = membound_analyze::answer::Answer::sentences(&on).join(" ");
    assert!(said.contains("in sum 2.0"), "{said}");
}
