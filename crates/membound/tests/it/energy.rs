//! Energy: meters of made-up machines, figures by hand from made-up records, whole runs on a simulated machine.

use membound_core::record::Unit;
use std::path::Path;

use crate::common::program::run;
use crate::common::{imitation, simulated};
use membound_analyze::answer::Answer;
use membound_analyze::experiments::energy::rows::EnergyRow;
use membound_analyze::of_record as model;
#[cfg(feature = "report")]
use membound_analyze::output::html;
use membound_analyze::output::{csv, json, terminal};
use membound_analyze::quality::Status;
use membound_analyze::report::Report;
use membound_analyze::row::AnyRow;
use membound_core::case::{Case, Protocol};
use membound_core::experiments as plan;
use membound_core::experiments::choice::Choice;
use membound_core::machine::Machine;
use membound_core::machine::energy::{EnergyMeter, EnergyPart, MeterKind, refusal, usable};
use membound_core::machine::fact::Fact;
use membound_core::machine::source::Source;
use membound_core::record::{EnergySamples, Measured, Measurement, Outcome, Record, Sample, Samples, Volume};
use membound_core::units::{Bytes, Hertz};
use membound_measure::executor::fake::FakePower;
use membound_measure::meters;

fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("proc")).unwrap();
    imitation::write(root.path(), files);
    root
}

fn meters_of(root: &Path) -> Fact<Vec<EnergyMeter>> {
    Machine::read(root).unwrap().energy
}

const RAPL: [(&str, &str); 13] = [
    ("sys/class/powercap/intel-rapl/enabled", "1"),
    ("sys/class/powercap/intel-rapl:0/name", "package-0\n"),
    ("sys/class/powercap/intel-rapl:0/energy_uj", "260000000000\n"),
    ("sys/class/powercap/intel-rapl:0/max_energy_range_uj", "262143328850\n"),
    ("sys/class/powercap/intel-rapl:0:0/name", "dram\n"),
    ("sys/class/powercap/intel-rapl:0:0/energy_uj", "5000000\n"),
    ("sys/class/powercap/intel-rapl:0:0/max_energy_range_uj", "65712999613\n"),
    ("sys/class/powercap/intel-rapl:1/name", "package-1\n"),
    ("sys/class/powercap/intel-rapl:1/energy_uj", "7000000\n"),
    ("sys/class/powercap/intel-rapl:1/max_energy_range_uj", "262143328850\n"),
    ("sys/class/powercap/intel-rapl-mmio:0/name", "package-0\n"),
    ("sys/class/powercap/intel-rapl-mmio:0/energy_uj", "1\n"),
    ("sys/class/powercap/intel-rapl-mmio:0/max_energy_range_uj", "262143328850\n"),
];

#[test]
fn zones_are_meters_and_one_counter_is_one_meter() {
    let pmu = [
        ("sys/bus/event_source/devices/power/type", "12"),
        ("sys/bus/event_source/devices/power/cpumask", "0,8"),
        ("sys/bus/event_source/devices/power/events/energy-pkg", "event=0x02"),
        ("sys/bus/event_source/devices/power/events/energy-pkg.scale", "2.3283064365386962890625e-10"),
        ("sys/bus/event_source/devices/power/events/energy-pkg.unit", "Joules"),
        ("sys/bus/event_source/devices/power/events/energy-psys", "event=0x05"),
        ("sys/bus/event_source/devices/power/events/energy-psys.scale", "2.3283064365386962890625e-10"),
        ("proc/sys/kernel/perf_event_paranoid", "0"),
    ];
    let root = tree(&[&RAPL[..], &pmu].concat());
    let meters = meters_of(root.path());
    let all = meters.known().unwrap();
    let parts: Vec<(&str, EnergyPart)> = all.iter().map(|meter| (meter.name.as_str(), meter.part)).collect();
    let expect = [
        ("intel-rapl:0 package-0", EnergyPart::Package),
        ("intel-rapl:0:0 dram", EnergyPart::Dram),
        ("intel-rapl:1 package-1", EnergyPart::Package),
        ("power PMU energy-pkg, CPU 0", EnergyPart::Package),
        ("power PMU energy-pkg, CPU 8", EnergyPart::Package),
        ("power PMU energy-psys, CPU 0", EnergyPart::Platform),
        ("power PMU energy-psys, CPU 8", EnergyPart::Platform),
    ];
    assert_eq!(parts, expect);
    assert!(matches!(all[1].kind, MeterKind::Counter { range_uj: Some(65_712_999_613), .. }));
    assert!(matches!(all[3].kind, MeterKind::Event { pmu: 12, config: 2, cpu: 0, .. }));
    assert_eq!(all[0].update_us, 1000);
    let names: Vec<&str> = usable(all).iter().map(|meter| meter.name.as_str()).collect();
    assert_eq!(names.len(), 5, "packages are counted once, by powercap: {names:?}");
    assert!(!names.iter().any(|name| name.contains("energy-pkg")));
}

#[test]
fn a_refused_counter_says_which_file_and_what_helps() {
    let root = tree(&[
        ("sys/class/powercap/intel-rapl:0/name", "package-0"),
        ("sys/bus/event_source/devices/power/type", "12"),
        ("sys/bus/event_source/devices/power/events/energy-pkg", "event=0x02"),
        ("sys/bus/event_source/devices/power/events/energy-pkg.scale", "2.3e-10"),
        ("proc/sys/kernel/perf_event_paranoid", "2"),
    ]);
    let meters = meters_of(root.path());
    assert!(usable(meters.known().unwrap()).is_empty());
    let why = refusal(&meters);
    assert!(why.contains("/sys/class/powercap/intel-rapl:0/energy_uj is not there"), "{why}");
    assert!(why.contains("sysctl kernel.perf_event_paranoid=0"), "{why}");
    let fault = meters::open(&meters, &Source::recorded(root.path()).unwrap(), Hertz(1e9)).unwrap_err();
    assert_eq!(fault, why);
}

#[test]
fn a_virtual_machine_has_no_meter() {
    let root = tree(&[("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu hypervisor\n\n")]);
    let meters = meters_of(root.path());
    assert!(refusal(&meters).contains("a virtual machine has none"), "{}", refusal(&meters));
    let bare = tree(&[("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu\n\n")]);
    assert!(refusal(&meters_of(bare.path())).contains("modprobe intel_rapl_msr"));
}

#[test]
fn sensors_and_batteries() {
    let root = tree(&[
        ("sys/class/hwmon/hwmon0/name", "amd_energy"),
        ("sys/class/hwmon/hwmon0/energy1_input", "100"),
        ("sys/class/hwmon/hwmon0/energy1_label", "Ecore000"),
        ("sys/class/hwmon/hwmon0/energy2_input", "900"),
        ("sys/class/hwmon/hwmon0/energy2_label", "Esocket0"),
        ("sys/class/hwmon/hwmon1/name", "power_meter"),
        ("sys/class/hwmon/hwmon1/power1_average", "212000000"),
        ("sys/class/hwmon/hwmon1/power1_input", "1"),
        ("sys/class/hwmon/hwmon1/power1_average_interval", "2000"),
        ("sys/class/power_supply/AC/type", "Mains"),
        ("sys/class/power_supply/BAT0/type", "Battery"),
        ("sys/class/power_supply/BAT0/status", "Discharging"),
        ("sys/class/power_supply/BAT0/current_now", "-1500000"),
        ("sys/class/power_supply/BAT0/voltage_now", "12000000"),
        ("sys/class/power_supply/BAT1/type", "Battery"),
        ("sys/class/power_supply/BAT1/status", "Charging"),
        ("sys/class/power_supply/BAT1/power_now", "9000000"),
    ]);
    let meters = meters_of(root.path());
    let all = meters.known().unwrap();
    let told: Vec<(&str, EnergyPart, u64, Option<u64>)> =
        all.iter().map(|m| (m.name.as_str(), m.part, m.update_us, m.reading.get())).collect();
    let expect = [
        ("amd_energy Ecore000", EnergyPart::Cores, 1_000_000, Some(100)),
        ("amd_energy Esocket0", EnergyPart::Package, 1_000_000, Some(900)),
        ("power_meter power1", EnergyPart::Sensor, 2_000_000, Some(212_000_000)),
        // 1.5 A at 12 V.
        ("BAT0", EnergyPart::Battery, 5_000_000, Some(18_000_000)),
        ("BAT1", EnergyPart::Battery, 5_000_000, None),
    ];
    assert_eq!(told, expect);
    let why = all[4].reading.reason().unwrap();
    assert!(why.contains("BAT1 is Charging") && why.contains("unplug"), "{why}");
}

/// Files that change while meters look at them: the counter starts again from 0, the sensor tells another power.
#[test]
fn files_are_read_around_a_sample() {
    let root = tree(&[
        ("sys/class/powercap/intel-rapl:0/name", "package-0"),
        ("sys/class/powercap/intel-rapl:0/energy_uj", "262143000000"),
        ("sys/class/powercap/intel-rapl:0/max_energy_range_uj", "262143328850"),
        ("sys/class/hwmon/hwmon0/name", "board"),
        ("sys/class/hwmon/hwmon0/power1_input", "30000000"),
    ]);
    let mut open = meters::open(&meters_of(root.path()), &Source::recorded(root.path()).unwrap(), Hertz(1e6)).unwrap();
    open.begin(&|| 0);
    std::fs::write(root.path().join("sys/class/powercap/intel-rapl:0/energy_uj"), "671150").unwrap();
    std::fs::write(root.path().join("sys/class/hwmon/hwmon0/power1_input"), "50000000").unwrap();
    // 328,850 to the end of the range and 671,150 beyond: 1 J. 50 W for half a second: 25 J.
    assert_eq!(open.end(&|| 500_000), [(Some(1_000_000), 500_000), (Some(25_000_000), 500_000)]);
}

const HZ: f64 = 1e9;

fn visit(case: &Case, round: u32, volume: Volume, columns: &[(&str, EnergyPart, u64, u64)]) -> Measurement {
    let sample = Sample { ticks: 200_000_000, core_clock_ticks: 1, ..Sample::default() };
    let mut samples = Samples::from_iter([sample; 3]);
    samples.energy = columns
        .iter()
        .map(|&(meter, part, update_us, microjoules)| EnergySamples {
            meter: meter.into(),
            part,
            update_us,
            microjoules: vec![Some(microjoules); 3],
            ticks: vec![250_000_000; 3],
        })
        .collect();
    let measured = Measured { volume, repetitions: 10, core_clock_links: 1, samples, ..Measured::default() };
    Measurement::new(case.clone(), round, measured)
}

fn cases() -> Vec<Case> {
    let machine = simulated::machine(2, false);
    let choice = Choice { sizes: vec![Bytes::gib(1)], ..Choice::default() };
    plan::energy::energy(&simulated::frame(&machine), &choice).unwrap()
}

fn row<'a>(report: &'a Report, meter: &str, kernel: &str) -> &'a EnergyRow {
    report.energy.iter().find(|row| row.meter.as_deref() == Some(meter) && row.kernel() == kernel).unwrap()
}

/// Of the triad 15 J in 0.25 s, at rest 10 J.
pub fn triad_and_rest() -> Record {
    let cases = cases();
    assert!(cases[0].to_string().starts_with("idle") && cases.iter().all(|case| case.protocol == Protocol::Energy));
    let triad = cases.iter().find(|case| case.to_string().starts_with("triad")).unwrap();
    // Of a repetition, 20 ms: 200 MB loaded, 100 MB stored, 100 MB write-allocated, 25 million flops.
    let volume = Volume {
        units: 1,
        unit: Unit::Element,
        loaded: 200_000_000,
        stored: 100_000_000,
        write_allocated: 100_000_000,
        flops: 25_000_000,
    };
    let package = |joules: u64| {
        [("a", EnergyPart::Package, 1000, joules * 600_000), ("b", EnergyPart::Package, 1000, joules * 400_000)]
    };
    let mut visits: Vec<Measurement> =
        (0..2).map(|round| visit(&cases[0], round, Volume::default(), &package(10))).collect();
    let dram = ("d", EnergyPart::Dram, 1000, 5_000_000);
    visits.extend((0..2).map(|round| visit(triad, round, volume, &[&package(15)[..], &[dram]].concat())));
    crate::common::reports::record(HZ, visits)
}

#[test]
fn figures_by_hand() {
    let report = model::report(&triad_and_rest());
    assert!(report.rows.is_empty(), "samples with meters around them are no rows of bandwidth");
    let close = |found: f64, expect: f64| assert!((found / expect - 1.0).abs() < 1e-9, "{found} is not {expect}");
    // 15 J in 0.25 s are 60 W, at rest 40 W.
    let row = row(&report, "package", "triad");
    close(row.power_w.unwrap().median, 60.0);
    close(row.idle_power_w.unwrap().median, 40.0);
    // 300 MB of payload in 20 ms are 15 GB/s: 60 W / 15 GB/s = 4 J/GB; on the bus 400 MB: 3 J/GB; beyond rest 20 W / 15 GB/s.
    close(row.payload_bps.unwrap().median, 15e9);
    close(row.payload_j_per_gb.unwrap().median, 4.0);
    close(row.bus_j_per_gb.unwrap().median, 3.0);
    close(row.beyond_idle_j_per_gb.unwrap().median, 4.0 / 3.0);
    // 1.25 Gflop/s.
    close(row.j_per_gflop.unwrap().median, 48.0);
    // The counter changes each millisecond of 250: 0.4 %, and samples that are all alike have no other error.
    close(row.step_error.unwrap(), 0.004);
    let [low, high] = row.power_w.unwrap().ci95;
    close(low, 60.0 * 0.996);
    close(high, 60.0 * 1.004);
    // 0.24 W of the triad's step and 0.16 W of that at rest, at 15 GB/s.
    let [low, high] = row.beyond_idle_j_per_gb.unwrap().ci95;
    close(low, (20.0 - 0.4) / 15.0);
    close(high, (20.0 + 0.4) / 15.0);
    close(self::row(&report, "dram", "triad").power_w.unwrap().median, 20.0);
    assert!(self::row(&report, "dram", "triad").idle_power_w.is_none(), "memory was not read at rest");
    assert!(
        report.findings.iter().any(|s| s.starts_with("package: triad over 1 GiB on 2 CPUs costs 4.00 J")),
        "{:?}",
        report.findings
    );
}

#[test]
fn a_sample_without_a_reading_is_left_out() {
    let cases = cases();
    let mut one = visit(
        &cases[1],
        0,
        Volume { loaded: 8, units: 1, ..Volume::default() },
        &[("a", EnergyPart::Package, 1000, 1_000_000)],
    );
    let Outcome::Measured(measured) = &mut one.outcome else { panic!() };
    measured.samples.energy[0].microjoules[1] = None;
    let report = model::report(&crate::common::reports::record(HZ, vec![one.clone()]));
    assert_eq!(report.energy[0].quality.samples, 2);
    let Outcome::Measured(measured) = &mut one.outcome else { panic!() };
    measured.samples.energy[0].microjoules = vec![None; 3];
    let report = model::report(&crate::common::reports::record(HZ, vec![one]));
    assert_eq!((report.energy.len(), report.energy[0].quality.outcome.word()), (1, "unavailable"));
}

fn simulated_run(power: Option<FakePower>) -> (Record, Report) {
    let machine = simulated::machine(2, false);
    let mut fake = simulated::fake();
    fake.power = power;
    let record = simulated::run(&machine, &cases(), &mut fake);
    let record = crate::common::by_hand::written_and_read(&record);
    let report = model::report(&record);
    (record, report)
}

/// A counter that starts again each 40 J, that is several times in a run, and changes each 5 ms.
#[test]
fn the_truth_is_found_behind_steps_and_new_starts() {
    let power = FakePower { idle_w: 12.0, joules_per_byte: 1.1e-9, update_us: 5000, range_uj: 40_000_000 };
    let (_, report) = simulated_run(Some(power));
    let inside = |cost: membound_analyze::rate::Cost, truth: f64| cost.ci95[0] <= truth && truth <= cost.ci95[1];
    assert!(inside(row(&report, "package", "idle").power_w.unwrap(), 12.0));
    for kernel in ["load", "copy", "triad", "store"] {
        let row = row(&report, "package", kernel);
        let bus = row.payload_j_per_gb.unwrap().median / row.bus_j_per_gb.unwrap().median;
        // What rest draws is paid for as long as a gigabyte takes.
        let rest = 12.0 / row.payload_bps.unwrap().median * 1e9;
        assert!(inside(row.payload_j_per_gb.unwrap(), rest + 1.1 * bus), "{row:?}");
        assert!(inside(row.beyond_idle_j_per_gb.unwrap(), 1.1 * bus), "{row:?}");
    }
}

/// It keeps the figures of its other visits.
#[test]
fn what_crashed_in_one_visit_is_no_answer() {
    let power = FakePower { idle_w: 12.0, joules_per_byte: 1.1e-9, update_us: 1000, range_uj: 262_143_328_850 };
    let (_, mut report) = simulated_run(Some(power));
    assert!(report.energy.sentences()[0].starts_with("package: triad over"));
    for row in report.energy.iter_mut().filter(|row| row.kernel() == "triad") {
        row.quality.outcome = Status::Crashed;
    }
    assert!(report.energy.sentences()[0].starts_with("package: copy over"));
}

#[test]
fn views_show_meters_and_their_absence() {
    let power = FakePower { idle_w: 12.0, joules_per_byte: 1.1e-9, update_us: 1000, range_uj: 262_143_328_850 };
    let (_, with) = simulated_run(Some(power));
    let text = anstream::adapter::strip_str(&terminal::answer(&with, &with.energy)).to_string();
    insta::assert_snapshot!("energy", text);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    #[cfg(feature = "report")]
    {
        let page = html::page(&with);
        assert!(page.contains("Energy of moving a gigabyte, package") && page.contains("J/GB beyond idle"));
    }
    let rows: Vec<&dyn AnyRow> = with.any_rows().collect();
    assert!(json::rows(&rows).contains("\"power_W\":{") && csv::rows(&rows).contains("payload_J_per_GB_median"));
    let (record, without) = simulated_run(None);
    assert!(record.measurements.iter().all(|visit| !visit.outcome.is_failure()));
    let text = anstream::adapter::strip_str(&terminal::answer(&without, &without.energy)).to_string();
    assert!(text.starts_with("- Energy was not measured: no meter of energy (simulated)."), "{text}");
    #[cfg(feature = "report")]
    assert!(html::page(&without).contains("no meter of energy (simulated)"));
}

/// The command for real: figures where this machine has a meter, else the reason and exit code 1.
#[test]
fn the_command_measures_or_says_why_not() {
    let brief = ["--kernel", "load", "--size", "64KiB", "--threads", "1", "--budget", "2s", "--quiet"];
    let out = run(&[&["bandwidth", "--energy", "--format", "json"], &brief[..]].concat());
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&out.stdout).unwrap();
    let has_none = rows.iter().all(|row| row["outcome"] == "unavailable");
    assert_eq!(out.status.code(), Some(i32::from(has_none)), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(!rows.is_empty() && rows.iter().all(|row| row["metric"] == "energy"));
    for row in &rows {
        let is_told = row["outcome"] == "measured" || row["reason"].as_str().is_some_and(|reason| reason.len() > 20);
        assert!(is_told, "{row}");
    }
    let wrong = run(&["stream", "--energy"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("`membound bandwidth` takes it"));
}
