//! What a GPU's record tells: an NVIDIA H100 of a guest with 16 CPUs, measured by CUDA, OpenCL and Vulkan, and an H200 by CUDA. Figures
//! are held against what is published of them, and against each other.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use membound_analyze::across::adapters;
use membound_analyze::answer::Answer;
use membound_analyze::of_record;
use membound_core::case::{Case, Work};
use membound_core::experiments::device::{Parts, device};
use membound_core::experiments::frame::Frame;
use membound_core::kernel::isa::Isa;
use membound_core::machine::devices::Device;
use membound_core::record::{Measurement, Outcome, Samples, Unit, Volume};
use membound_core::units::Bytes;
use membound_core::work::device::Action;

use crate::common::launched::text;
use crate::common::program::membound;
use crate::common::{imitation, record_of, simulated, unpacked};

/// `membound report` of a record; `name` is that of its file.
fn report(name: &str, more: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("record.jsonl");
    std::fs::write(&record, unpacked(name)).unwrap();
    let output = membound().arg("report").arg(&record).args(more).env("COLUMNS", "80").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    output
}

fn rows(name: &str) -> Vec<Value> {
    serde_json::from_slice(&report(name, &["--format", "json"]).stdout).unwrap()
}

/// A figure of an action on a kind of buffer, by the largest working set, or by one of so many MiB.
fn figure(rows: &[Value], buffer: &str, action: &str, mib: Option<u64>, key: &str) -> f64 {
    let bytes = |row: &Value| row["working_set_bytes"].as_u64().unwrap();
    let is_it = |row: &&Value| {
        (&row["buffer"], &row["action"], &row["first_use"]) == (&buffer.into(), &action.into(), &false.into())
            && mib.is_none_or(|mib| bytes(row) == mib << 20)
    };
    let row = rows.iter().filter(is_it).max_by_key(|row| bytes(row));
    row.and_then(|row| row[key]["capability"]["value"].as_f64())
        .unwrap_or_else(|| panic!("{action} of {buffer}: {row:?}"))
}

#[test]
fn a_gpus_report_answers() {
    for name in ["h100-kinds-cuda", "h100-kinds-opencl", "h100-kinds-vulkan", "h100-copies-cuda", "h200-kernels-cuda"] {
        insta::assert_snapshot!(name, text(&report(name, &[]).stdout));
    }
}

/// Memory of 3,352 GB/s by its sheet, an L2 of 50 MiB, and a link of 63 GB/s one way.
#[test]
fn figures_of_a_gpu_lie_below_its_limits_and_near_what_is_published() {
    let rows = rows("h100-kinds-cuda");
    let own = |action, mib| figure(&rows, "plain", action, mib, "payload_Bps");
    for action in ["kernel-copy", "kernel-scale", "kernel-add", "kernel-triad"] {
        let (cache, memory) = (own(action, Some(24)), own(action, None));
        assert!((0.85 * 3.352e12..3.352e12).contains(&memory), "{action}: {memory}");
        assert!(cache > 1.2 * memory, "{action}: {cache}, {memory}");
    }
    let load = |mib| figure(&rows, "plain", "chase", mib, "ns");
    let (cache, memory, far) = (load(Some(6)), load(Some(96)), load(None));
    // In cycles of 1.98 GHz: some 260 in L2 and 480 in memory were published (arXiv 2402.13499), at other clocks.
    assert!((110.0..180.0).contains(&cache) && (240.0..340.0).contains(&memory) && far > memory, "{cache} {memory}");
    // A byte that is copied is read and written.
    for buffer in ["pinned", "mapped", "registered-4k", "registered-thp"] {
        for action in ["copy", "copy-back"] {
            let copied = figure(&rows, buffer, action, None, "payload_Bps") / 2.0;
            assert!((50e9..63e9).contains(&copied), "{action} of {buffer}: {copied}");
        }
    }
}

/// Its cores are the H100's, its memory is of 4,813 GB/s.
#[test]
fn a_first_cache_is_as_fast_as_its_cycles_say() {
    let rows = rows("h200-kernels-cuda");
    let load = |kib: u64| {
        let is_it = |row: &&Value| row["action"] == "chase" && row["working_set_bytes"] == kib << 10;
        rows.iter().find(is_it).unwrap()["ns"]["capability"]["value"].as_f64().unwrap()
    };
    // A kernel that read the card's own counters beside this took 32.8 cycles of 1.98 GHz in 4 KiB: 16.6 ns.
    assert!((16.0..17.2).contains(&load(96)), "{}", load(96));
    assert!((110.0..180.0).contains(&load(768)) && (110.0..180.0).contains(&load(6 << 10)));
    let triad = figure(&rows, "plain", "kernel-triad", None, "payload_Bps");
    assert!((0.85 * 4.813e12..4.813e12).contains(&triad), "{triad}");
    // 256 KiB are first cache and shared memory together; the driver says 60 MiB of L2.
    let said = text(&report("h200-kernels-cuda", &[]).stdout);
    assert!(said.contains("16.4 ns up to 218 KiB"), "{said}");
}

/// A chase through caches of 220 KiB and 40 MiB that evict at random: of `n` lines in a pass a share h is still there when it comes to them
/// again, if h = exp(-n (1 - h) / capacity), since each miss evicts one of so many.
#[test]
fn levels_of_a_device_are_found_where_they_end() {
    const CAPACITIES: [f64; 2] = [220.0 * 1024.0, 40.0 * 1048576.0];
    const NS: [f64; 3] = [16.0, 140.0, 340.0];
    let kept = |bytes: f64, capacity: f64| (0..200).fold(0.0, |h: f64, _| (bytes / capacity * (h - 1.0)).exp());
    let mut random = fastrand::Rng::with_seed(7);
    let mut visit = |case: &Case| {
        let bytes = case.working_set.0 as f64;
        let [first, second] = CAPACITIES.map(|capacity| if bytes <= capacity { 1.0 } else { kept(bytes, capacity) });
        let ns = NS[0] * first + (1.0 - first) * (NS[1] * second + NS[2] * (1.0 - second));
        let mut visit = imitation::visit(case, 1e9, &[]);
        let Outcome::Measured(measured) = &mut visit.outcome else { panic!("{visit:?}") };
        let mut ticks = || (ns * 1e-5 * imitation::HZ * (1.0 + 0.02 * (random.f64() - 0.5))) as u64;
        measured.samples = Samples { ticks: (0..7).map(|_| ticks()).collect(), ..Samples::default() };
        measured.repetitions = 10;
        measured.volume = Volume { units: 1000, unit: Unit::Access, ..Volume::default() };
        visit
    };
    let machine = simulated::machine(2, false);
    let frame = Frame::new(&machine, Isa::NONE, None).unwrap();
    let cache = Some(Bytes::mib(50));
    let gpu = Device { cache, memory: Bytes::gib(80), ..Device::unknown("cuda:0".parse().unwrap()) };
    let cases = device(&frame, &gpu, None, Parts { kernels: true, ..Parts::default() }).unwrap();
    let chases = cases.iter().filter(|case| matches!(case.work, Work::Device(work) if work.action == Action::Chase));
    let visits: Vec<Measurement> = chases.flat_map(|case| (0..5).map(|_| visit(case)).collect::<Vec<_>>()).collect();
    let mut record = imitation::record(machine, visits);
    record.header.device = Some(gpu);
    let on = of_record::report(&record).device;
    let levels = on.levels();
    assert_eq!(levels.len(), 3, "{levels:?}");
    for (level, ns) in levels.iter().zip(NS) {
        assert!((level.speed * ns - 1.0).abs() < 0.06, "{level:?}");
    }
    for (level, capacity) in levels.iter().zip(CAPACITIES) {
        let found = level.capacity.unwrap().0 as f64 / capacity;
        assert!((0.8..1.4).contains(&found), "{level:?}: {found}");
    }
    let said = on.sentences().join(" ");
    assert!(said.contains("On the device, a load that waits for another takes 16."), "{said}");
}

/// The H100's largest copies from pinned memory go at 54.8 GB/s; a second GPU it had not.
#[test]
fn figures_of_nvbandwidth_stand_beside_rows_of_copies() {
    let text =
        r#"{"nvbandwidth":{"testcases":[{"name":"host_to_device_memcpy_ce","bandwidth_matrix":[["55.2","55.1"]]}]}}"#;
    let theirs = adapters::parse(text, Path::new("x")).unwrap();
    let held = adapters::counterpart::held(&theirs, &of_record::report(&record_of("h100-copies-cuda")));
    let [ours] = &held.ours[..] else { panic!("{held:?}") };
    assert_eq!(ours.name, "host_to_device_memcpy_ce, 0 to 0, host (pinned) -> cuda:0, 64 MiB");
    assert!((ours.value - 54.8).abs() < 0.1, "{ours:?}");
    let lacks = "`membound copies --device cuda:1 --size 512MiB` measures it";
    assert!(held.notes.iter().any(|note| note.contains(lacks)), "{held:?}");
}

/// The processor's triad and the copies share a path, on which each keeps three quarters of its speed or more.
#[test]
fn what_both_sides_keep_of_their_speed_is_in_a_gpus_record() {
    let found = text(&report("h200-contention-cuda", &[]).stdout);
    insta::assert_snapshot!("h200-contention-cuda", found);
    assert!(found.contains("in sum 1.58"), "{found}");
}

/// With Vulkan alone the card's clock fell while it had little to do, to 345 of 1980 MHz by `nvidia-smi`: no path is faster when shared.
#[test]
fn a_device_that_keeps_more_than_its_speed_alone_has_no_sum() {
    let found = text(&report("h100-contention-vulkan", &[]).stdout);
    insta::assert_snapshot!("h100-contention-vulkan", found);
    assert!(found.contains("1.31") && found.contains("no sum") && !found.contains("in sum"), "{found}");
}

/// The hypervisor makes write-back memory of what was to be write-combined, and that is not shown as such.
#[test]
fn memory_that_is_not_what_was_asked_for_is_invalid() {
    let rows = rows("h100-kinds-cuda");
    let combined: Vec<&Value> = rows.iter().filter(|row| row["buffer"] == "pinned-wc").collect();
    assert_eq!(combined.len(), 13);
    for row in combined {
        assert_eq!(row["outcome"], "invalid");
        assert!(row["reason"].as_str().unwrap().starts_with("the hypervisor ignores memory types"), "{row}");
    }
}

/// The device's own memory, mapped: the processor's stores are combined, its loads are slow, and non-temporal loads are the cure.
#[test]
fn memory_of_the_device_reads_slowly_and_non_temporal_loads_are_the_cure() {
    let rows = rows("h100-kinds-vulkan");
    let rate = |buffer, action| figure(&rows, buffer, action, None, "payload_Bps");
    let (regular, local) = (rate("regular", "load"), rate("device-local+coherent", "load"));
    assert!(local < regular / 100.0 && rate("device-local+coherent", "load-nt") > 5.0 * local);
    assert!(rate("device-local+coherent", "store") > 0.5 * rate("regular", "store"));
}
