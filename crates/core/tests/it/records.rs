//! Records: what is written is read back, lines follow the published schema, and damage is told, not guessed at.

use crate::schema::Validator;
use membound_core::record::Unit;
use std::io::Write as _;

use membound_core::case as plan;
use membound_core::input::HEADER_MOST;
use membound_core::kernel::{StoreKind, Width};
use membound_core::machine::Machine;
use membound_core::memory::located::NodePages;
use membound_core::memory::{MemoryKind, MemorySpec, Obtained};
use membound_core::record::probes::{ProbeSamples, Reading};
use membound_core::record::skim::{Cases, Skim};
use membound_core::record::{
    Clock, End, Environment, Header, Line, Measured, Measurement, Outcome, Record, SCHEMA, Sample, Samples, Volume,
    Writer, records_in, schema,
};
use membound_core::units::{Bytes, Hertz};

fn header() -> Line {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("proc")).unwrap();
    Line::Header(Box::new(Header {
        schema: SCHEMA,
        tool: "membound 0.1.0".into(),
        host: "here".into(),
        started_unix_s: 1,
        command: vec!["membound".into()],
        seed: 7,
        clock: Clock { name: "tsc".into(), hz: Hertz(2.5e9), overhead_ticks: 50 },
        machine: Machine::read(root.path()).unwrap(),
        before: Environment { node_free: vec![(0, Bytes::gib(1))], ..Environment::default() },
        world: None,
        sheet: None,
        device: None,
        devices: Vec::new(),
    }))
}

fn measurement(outcome: Outcome) -> Line {
    let memory = MemorySpec::on(MemoryKind::Thp, 1);
    let case = plan::steady("triad", Width::W256, StoreKind::Nt, memory, vec![0, 1], Bytes::kib(24));
    Line::Measurement(Box::new(Measurement { started_s: 1.25, elapsed_s: 0.5, ..Measurement::new(case, 2, outcome) }))
}

fn measured() -> Outcome {
    let mut samples = Samples::default();
    samples.push(Sample { ticks: 1000, core_clock_ticks: 700, lost_us: 3, ..Sample::default() });
    samples.thread_ticks = vec![vec![1000], vec![990]];
    let reading = Reading { chain_ticks: 400, wide_ticks: 100 };
    let mut probes = ProbeSamples { chain_links: 600, wide_adds: 600, ..ProbeSamples::default() };
    probes.push([[reading; 2]; 2].into_iter());
    samples.probes = Some(probes);
    let obtained = Obtained {
        bytes: Bytes::mib(2),
        huge_bytes: Some(Bytes::mib(2)),
        pages_on_node: vec![NodePages { node: 1, pages: 512 }],
        ..Obtained::default()
    };
    let volume =
        Volume { unit: Unit::Element, units: 1024, loaded: 16384, stored: 8192, write_allocated: 0, flops: 2048 };
    Measured { volume, repetitions: 10, core_clock_links: 1000, samples, obtained }.into()
}

fn lines() -> Vec<Line> {
    vec![
        header(),
        measurement(measured()),
        measurement(Outcome::Unavailable { reason: "no AVX".into() }),
        measurement(Outcome::Crashed { reason: "SIGILL".into() }),
        measurement(Outcome::Invalid { reason: "data check failed".into() }),
        Line::End(End {
            wall_s: 1.5,
            interrupted: false,
            overran: false,
            planned: 4,
            peak_memory: None,
            after: Environment::default(),
        }),
    ]
}

fn written(lines: &[Line]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes);
    lines.iter().for_each(|line| writer.line(line).unwrap());
    bytes
}

fn read(bytes: &[u8]) -> Result<Record, String> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    Record::read(file.path()).map_err(|fault| fault.to_string())
}

#[test]
fn what_is_written_is_read_back() {
    let lines = lines();
    let record = read(&written(&lines)).unwrap();
    assert_eq!(record.measurements.len(), 4);
    assert_eq!(Line::Header(Box::new(record.header)), lines[0]);
    for (measurement, line) in record.measurements.into_iter().zip(&lines[1..]) {
        assert_eq!(&Line::Measurement(Box::new(measurement)), line);
    }
    assert!(record.end.is_some());
}

#[test]
fn every_line_follows_the_published_schema() {
    let validator = Validator::of(&schema()).unwrap();
    for line in lines() {
        let value = serde_json::to_value(&line).unwrap();
        assert_eq!(validator.fault(&value), None);
    }
    assert!(!validator.is_valid(&serde_json::json!({"type": "measurement", "round": 1})));
}

/// Ten thousand samples of 64 threads make a line of 19 MB.
#[test]
fn a_long_line_is_read_back() {
    let lines = [header(), measurement(Outcome::Invalid { reason: "x".repeat(20_000_000) })];
    assert_eq!(read(&written(&lines)).unwrap().measurements.len(), 1);
}

#[test]
fn a_record_cut_off_anywhere_after_its_header_still_opens() {
    let bytes = written(&lines());
    let header_end = bytes.iter().position(|b| *b == b'\n').unwrap() + 1;
    for cut in header_end..bytes.len() {
        let record = read(&bytes[..cut]).unwrap_or_else(|fault| panic!("cut at {cut}: {fault}"));
        let whole_lines = bytes[header_end..cut].iter().filter(|b| **b == b'\n').count();
        // A line that lacks only its newline is whole too.
        assert!((whole_lines.min(4)..=whole_lines.min(4) + 1).contains(&record.measurements.len()));
    }
}

#[test]
fn damage_is_named_with_its_line_and_a_cure() {
    let check = |bytes: &[u8], expect: &[&str]| {
        let fault = read(bytes).unwrap_err();
        expect.iter().for_each(|part| assert!(fault.contains(part), "{fault}"));
    };
    check(b"", &["not a membound record", "empty", ".jsonl"]);
    check(b"hello\n", &["not a membound record"]);
    check(b"{\"type\":\"other\"}\n", &["no header"]);
    check(b"\x00\xff\x7f", &["not a membound record"]);
    check(b"BZh91AY&SY\xc4", &["packed by bzip2, unpack it first"]);
    check(b"\x1f\x8b\x08\x00", &["packed by gzip"]);
    let mut old: serde_json::Value = serde_json::to_value(header()).unwrap();
    old["schema"] = 99.into();
    check(format!("{old}\n").as_bytes(), &["schema 99", "this membound reads 2", "use the version that wrote it"]);
    let mut bytes = written(&lines());
    let second = bytes.iter().position(|b| *b == b'\n').unwrap() + 20;
    bytes[second] = b'\xff';
    check(&bytes, &[":2:", "damaged", "delete that line"]);
}

/// Only a line that the writer had no time to end is nobody's fault.
#[test]
fn damage_of_the_last_line_is_told_where_the_line_is_whole() {
    let mut bytes = written(&lines()[..2]);
    let last = bytes.len() - 5;
    bytes[last] = b'\xff';
    let skimmed = |bytes: &[u8]| {
        let skim = Skim::read("x.jsonl".as_ref(), bytes, &mut Cases::default());
        skim.map(|skim| skim.visits.len()).map_err(|fault| fault.to_string())
    };
    for fault in [read(&bytes).unwrap_err(), skimmed(&bytes).unwrap_err()] {
        assert!(fault.contains(":2:") && fault.contains("damaged"), "{fault}");
    }
    bytes.pop();
    assert_eq!((read(&bytes).unwrap().measurements.len(), skimmed(&bytes)), (0, Ok(0)));
}

#[test]
fn columns_that_do_not_line_up_are_damage() {
    let Outcome::Measured(mut measured) = measured() else { unreachable!() };
    measured.samples.ticks.push(5);
    let mut lines = lines();
    lines[1] = measurement(Outcome::Measured(measured));
    assert!(read(&written(&lines)).unwrap_err().contains("do not line up"));
}

#[test]
fn a_full_disk_is_an_error_of_the_writer_and_no_panic() {
    struct Full(usize);
    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut writer = Writer::new(Full(written(&[header()]).len() + 10));
    writer.line(&header()).unwrap();
    assert!(writer.line(&measurement(measured())).is_err());
}

#[test]
fn a_header_that_would_not_be_read_is_not_written() {
    let Line::Header(mut long) = header() else { unreachable!() };
    long.tool = "x".repeat(HEADER_MOST);
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes);
    assert!(writer.line(&Line::Header(long)).unwrap_err().to_string().contains("is not read again"));
    writer.line(&header()).unwrap();
    assert!(read(&bytes).is_ok(), "the next line is the first");
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(at in 0usize..4000, byte: u8, cut in 0usize..4000) {
        let mut bytes = written(&lines());
        let n = bytes.len();
        bytes[at % n] = byte;
        let _ = read(&bytes[..cut % n]);
    }
}

#[test]
fn a_folder_holds_whole_records_and_those_that_never_came_whole() {
    let folder = tempfile::tempdir().unwrap();
    let told = |folder: &std::path::Path| records_in(folder).unwrap_err().to_string();
    assert!(told(folder.path()).contains("holds no record"), "{}", told(folder.path()));
    assert!(told(&folder.path().join("none")).contains("cannot read"));
    for name in ["n2.jsonl", "n1.jsonl.part", "n1.jsonl", "n3.jsonl.part", "n4.part", "fleet.json", "n5.json.part"] {
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    let found = records_in(folder.path()).unwrap();
    let names: Vec<&str> = found.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["n1.jsonl", "n2.jsonl", "n3.jsonl.part"]);
}
