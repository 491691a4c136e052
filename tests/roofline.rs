//! Specification sheets and what follows from them: each number worked out by hand.

mod common;

use std::path::Path;

use membound::kernel::{Element, Width};
use membound::machine::{Balance, Sheet};
use membound::model::limits::{Basis, limits};
use proptest::prelude::*;

fn sheet(name: &str) -> Sheet {
    Sheet::find(Path::new(name)).unwrap()
}

#[track_caller]
fn near(found: Option<f64>, expect: f64) {
    let found = found.expect("a figure");
    assert!((found / expect - 1.0).abs() < 1e-9, "{found}, not {expect}");
}

#[test]
fn the_sheets_that_come_along_are_sound() {
    let all: Vec<(&str, Sheet)> = Sheet::all().collect();
    assert!(all.len() >= 16);
    for (name, sheet) in &all {
        assert!(sheet.source.len() > 20, "{name} names no source");
        assert!(!sheet.cores.is_empty(), "{name}");
    }
}

/// Four Cortex-A15 at 1.4 GHz and eight C66x at 1.2 GHz, DDR3-1600 on two channels of 64 bits.
#[test]
fn peaks_of_66ak2h12() {
    let sheet = sheet("66ak2h12");
    let [a15, c66] = &sheet.cores[..] else { panic!("two kinds of cores") };
    // 4 x 1.4 GHz x 4 lanes x 2 flops.
    near(a15.flops(32), 44.8e9);
    // 4 x 1.4 GHz x 4 flops.
    let ieee = a15.arithmetic(32, 32).and_then(|row| row.most(32)).unwrap();
    near(a15.cycles_per_s().map(|cycles| cycles * ieee), 22.4e9);
    // 4 x 1.4 GHz x 1 lane x 2 flops.
    near(a15.flops(64), 11.2e9);
    // 8 x 1.2 GHz x 16 flops, and x 6.
    near(c66.flops(32), 153.6e9);
    near(c66.flops(64), 57.6e9);
    near(sheet.flops(64), 68.8e9);
    // 2 x 1600e6 x 8 B.
    near(sheet.memory_of("").and_then(|memory| memory.bytes_per_s()), 25.6e9);
}

/// No clock, so nothing a second; 62 cores x 16 flops in a cycle.
#[test]
fn peaks_of_knights_corner() {
    let sheet = sheet("knc");
    let cores = &sheet.cores[0];
    assert_eq!(cores.count, Some(62));
    assert_eq!((cores.flops_per_cycle(64), cores.flops_per_cycle(32)), (Some(16.0), Some(32.0)));
    assert_eq!(cores.caches[1].bytes(), Some(membound::units::Bytes::kib(512)));
    assert_eq!((cores.flops(64), sheet.flops(64)), (None, None));
}

/// 8 cores x 1.4 GHz x 1 flop; 40 GB/s read and 20 written.
#[test]
fn balance_of_ultrasparc_t2() {
    let sheet = sheet("ultrasparc-t2");
    near(sheet.flops(64), 11.2e9);
    let memory = sheet.memory_of("").and_then(|memory| memory.bytes_per_s());
    near(memory, 60e9);
    near(memory.map(|memory| memory / sheet.flops(64).unwrap()), 60.0 / 11.2);
    // A third of it was ever measured: 20 GB/s, 1.786 B/flop.
    near(memory.map(|memory| memory / 3.0 / sheet.flops(64).unwrap()), 20.0 / 11.2);
}

#[test]
fn peaks_of_sockets() {
    let memory = |name: &str, model: &str| sheet(name).memory_of(model).and_then(|memory| memory.bytes_per_s());
    near(memory("zen2", "AMD EPYC 7742 64-Core Processor"), 204.8e9); // 8 x 3200e6 x 8
    near(memory("zen3", "AMD EPYC 7763 64-Core Processor"), 204.8e9);
    near(memory("zen4", "AMD EPYC 9654 96-Core Processor"), 460.8e9); // 12 x 4800e6 x 8
    near(memory("zen5", "AMD EPYC 9755 128-Core Processor"), 576e9); // 12 x 6000e6 x 8
    near(memory("ice-lake-sp", ""), 204.8e9);
    near(memory("sapphire-rapids", ""), 307.2e9); // 8 x 4800e6 x 8
    near(memory("emerald-rapids", ""), 358.4e9); // 8 x 5600e6 x 8
    near(memory("granite-rapids", "Intel(R) Xeon(R) 6972P"), 844.8e9); // 12 x 8800e6 x 8
    near(memory("grace", ""), 546.112e9); // 16 x 8533e6 x 4
    near(memory("graviton2", ""), 204.8e9);
    near(memory("graviton3", ""), 307.2e9);
    near(memory("graviton4", ""), 537.6e9); // 12 x 5600e6 x 8
    near(memory("knl-7250", ""), 115.2e9); // 6 x 2400e6 x 8
    assert_eq!(memory("zen4", "AMD Ryzen 9 7950X"), None, "a desktop has other memory");
    assert_eq!(memory("zen4", "AMD EPYC 8534P"), None, "six channels");
}

/// Flops in a cycle of one core, double precision.
#[test]
fn peaks_of_cores() {
    let per_cycle = |name: &str| sheet(name).cores[0].flops_per_cycle(64);
    for (name, flops) in [("zen2", 16.0), ("zen3", 16.0), ("zen4", 16.0), ("zen5", 32.0), ("graviton2", 8.0)] {
        assert_eq!(per_cycle(name), Some(flops), "{name}");
    }
    for (name, flops) in [("ice-lake-sp", 32.0), ("sapphire-rapids", 32.0), ("grace", 16.0), ("graviton3", 16.0)] {
        assert_eq!(per_cycle(name), Some(flops), "{name}");
    }
    // 68 x 1.4 GHz x 2 units x 8 lanes x 2.
    near(sheet("knl-7250").flops(64), 3046.4e9);
    // Zen 4 adds and multiplies on pipes of their own: 4 instructions of 4 doubles.
    let cores = &sheet("zen4").cores[0];
    let of = |width, balance| cores.arithmetic(64, width).and_then(|row| row.flops_per_cycle(balance, 64));
    assert_eq!(of(256, Balance::Separate), Some(16.0));
    assert_eq!(of(256, Balance::Add), Some(8.0));
    assert_eq!(of(512, Balance::Fma), Some(16.0));
    // Golden Cove has three ports for 256 bits and two for 512.
    let cores = &sheet("sapphire-rapids").cores[0];
    let of = |width, balance| cores.arithmetic(64, width).and_then(|row| row.flops_per_cycle(balance, 64));
    assert_eq!(of(256, Balance::Separate), Some(12.0));
    assert_eq!(of(512, Balance::Separate), Some(16.0));
}

#[test]
fn a_wrong_sheet_is_told_with_file_line_and_cure() {
    let check = |text: &str, expect: &[&str]| {
        let error = Sheet::parse(text, "mine.toml").unwrap_err().to_string();
        assert!(expect.iter().all(|part| error.contains(part)), "{error}\nlacks one of {expect:?}");
    };
    let head = "name = \"x\"\nsource = \"y\"\n";
    check("name = 3", &["mine.toml:1", "string"]);
    check(&format!("{head}clock = 3\n"), &["mine.toml:3", "unknown field `clock`"]);
    check(head, &["mine.toml:1", "needs [[cores]] or [[memory]]"]);
    check(&format!("{head}[[cores]]\nname = \"c\"\ncount = 0\n"), &["mine.toml:5", "`count` is 0", "from 1 to"]);
    check(&format!("{head}[[cores]]\nname = \"c\"\nclock_ghz = -2.0\n"), &["mine.toml:5", "`clock_ghz` is -2"]);
    check(&format!("{head}[[cores]]\nname = \"c\"\nclock_ghz = nan\n"), &["mine.toml:5", "NaN"]);
    check(&format!("{head}[[memory]]\nname = \"m\"\nchannels = 2\n"), &["mine.toml:3", "mt_s and width_bits"]);
    check(
        &format!("{head}[[cores]]\nname = \"c\"\n[[cores.caches]]\nlevel = 1\nsize = \"32 parsecs\"\n"),
        &["mine.toml:7", "32 parsecs"],
    );
    let error = Sheet::find(Path::new("/nowhere/x.toml")).unwrap_err().to_string();
    assert!(
        error.contains("/nowhere/x.toml") && error.contains("known sheets are") && error.contains("zen4"),
        "{error}"
    );
}

#[test]
fn a_huge_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("huge.toml");
    std::fs::write(&path, "#".repeat(1 << 20)).unwrap();
    assert!(Sheet::find(&path).unwrap_err().to_string().contains("too many"));
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in ".{0,300}") {
        let _ = Sheet::parse(&text, "fuzz");
    }

    /// A sound sheet with a piece cut out, and another put in.
    #[test]
    fn no_damage_makes_the_parser_panic(from in 0usize..1200, length in 0usize..80, put in "[-0-9a-z=\"\\[\\]\n.{}]{0,20}") {
        let text = include_str!("../specs/66ak2h12.toml");
        let cut = |at: usize| (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap();
        let damaged = [&text[..cut(from)], &put, &text[cut(from + length)..]].concat();
        if let Ok(sheet) = Sheet::parse(&damaged, "fuzz") {
            prop_assert!(sheet.flops(64).is_none_or(|flops| flops.is_finite() && flops > 0.0));
        }
    }
}

#[test]
fn limits_of_a_machine_follow_from_sheet_and_clock() {
    let machine = common::empty().machine;
    let found = limits(&machine, Some(&sheet("66ak2h12")), &[]);
    // 1.4 GHz x 2 flops: the first kind of cores.
    let double = found.flops.iter().find(|limit| limit.element == Element::Double && limit.balance == Balance::Fma);
    let double = double.unwrap();
    assert_eq!(double.width, Width::Scalar);
    near(double.per_s.as_ref().map(|limit| limit.value), 2.8e9);
    let memory = found.memory_bps.unwrap();
    assert_eq!((memory.value, memory.basis), (25.6e9, Basis::Specified));
    assert!(memory.says.contains("2 channels of 64 bits DDR3 at 1600 MT/s"), "{}", memory.says);
    let none = limits(&machine, None, &[]);
    assert_eq!((none.sheet, none.memory_bps, none.flops.len()), (None, None, 0));
}
