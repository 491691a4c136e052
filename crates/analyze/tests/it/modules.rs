//! Memory modules, of all that firmware lists as memory devices.

use std::path::Path;

use membound_analyze::across::limits::limits;
use membound_analyze::of_record as model;
use membound_core::machine::Machine;
use membound_core::machine::fact::Fact;
use membound_core::machine::firmware::Dimm;
use membound_core::machine::nature::NodeKind;
use membound_core::machine::spec::Sheet;
use membound_core::units::{Bytes, BytesPerSecond};

use crate::common::{by_hand, imitation};

fn device(technology: &str, size: Bytes) -> Dimm {
    Dimm { technology: Fact::Known(technology.into()), size: Fact::Known(size), ..by_hand::module() }
}

fn machine(others: &[Dimm]) -> Machine {
    let ddr = [const { "DDR4" }; 4].map(|technology| device(technology, Bytes::gib(32)));
    Machine { dimms: Fact::Known([&ddr, others].concat()), ..by_hand::unknown_machine() }
}

fn said(machine: &Machine) -> String {
    let report = model::report(&imitation::record(machine.clone(), Vec::new()));
    report.warnings.iter().map(|warning| format!("{warning:?}\n")).collect()
}

#[test]
fn what_is_no_dram_beside_the_package_is_no_module() {
    let others = [
        device("non-volatile", Bytes::gib(128)),
        device("flash", Bytes::mib(16)),
        device("ROM", Bytes::mib(1)),
        device("EEPROM", Bytes::kib(64)),
        device("FEPROM", Bytes::kib(64)),
        device("EPROM", Bytes::kib(64)),
        device("HBM3", Bytes::gib(16)),
    ];
    let machine = machine(&others);
    assert_eq!(machine.modules().unwrap().len(), 4);
    // 4 x 8 B x 4800e6.
    assert_eq!(machine.dimm_peak(), Some(BytesPerSecond(153.6e9)));
    assert!(!said(&machine).contains("memory modules differ"), "{}", said(&machine));
}

/// 4 x 8 B x 4800e6 = 153.6 GB/s, of which two modules to a channel move half.
#[test]
fn modules_that_may_share_a_channel_are_no_limit() {
    let limit = |labels: [&str; 4], empty: usize| {
        let filled = labels.map(|label| Dimm { slot: Fact::Known(label.into()), ..device("DDR5", Bytes::gib(16)) });
        let empty = vec![Dimm { size: Fact::absent("empty"), ..by_hand::module() }; empty];
        let machine = Machine { dimms: Fact::Known([filled.to_vec(), empty].concat()), ..by_hand::unknown_machine() };
        limits(&machine, None, &[]).memory[0].bps.as_ref().map(|limit| limit.value)
    };
    let two_each = ["DIMM_A1", "DIMM_A2", "DIMM_B1", "DIMM_B2"];
    assert_eq!(limit(two_each, 0), None);
    assert_eq!(limit(two_each, 4), Some(153.6e9), "half of the slots");
    assert_eq!(limit(["DIMM_A1", "DIMM_B1", "DIMM_C1", "DIMM_D1"], 0), Some(153.6e9), "a channel each");
}

/// Firmware lists packages of soldered memory, each with several of the sheet's channels: 8 x 8 B x 4800e6 would be 307.2 GB/s.
#[test]
fn soldered_packages_are_no_modules() {
    let check = |name: &str, expect: f64| {
        let sheet = Sheet::find(Path::new(name)).unwrap();
        let modules = vec![device("LPDDR5", Bytes::gib(32)); 8];
        let machine = Machine { dimms: Fact::Known(modules), ..by_hand::unknown_machine() };
        let found = limits(&machine, Some(&sheet), &[]);
        assert_eq!(found.channels, None, "{name}");
        let limit = found.memory[0].bps.as_ref().unwrap();
        assert!((limit.value / expect - 1.0).abs() < 1e-9, "{name}: {limit:?}");
    };
    check("grace", 546.112e9);
    check("gb10", 273.056e9);
    check("m1", 68.256e9);
}

#[test]
fn modules_of_two_sizes_differ() {
    let machine = machine(&[device("DDR4", Bytes::gib(16))]);
    assert!(said(&machine).contains("memory modules differ"), "{}", said(&machine));
}

/// Workstations of one generation have half of the channels, or all.
#[test]
fn sapphire_rapids_has_the_channels_of_its_model() {
    let channels = |model: &str| {
        let model = format!("Intel(R) Xeon(R) {model}");
        let cpuinfo = format!(
            "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: {model}\nstepping\t: 8\n"
        );
        let sheet = Sheet::of(&imitation::machine(&[("proc/cpuinfo", &cpuinfo)])).unwrap();
        sheet.memory_of(NodeKind::Dram, &model).and_then(|memory| memory.channels)
    };
    assert_eq!(["w7-2495X", "w5-2465X", "w3-2423", "w7-2595X", "w5-2545", "w3-2525"].map(channels), [Some(4); 6]);
    assert_eq!(["w9-3495X", "Platinum 8480+", "CPU Max 9480"].map(channels), [Some(8); 3]);
}
