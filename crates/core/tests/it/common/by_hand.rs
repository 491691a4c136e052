//! Records made by hand.
#![allow(dead_code)] // Each test file uses its part.

use std::sync::LazyLock;

use membound_core::machine::Machine;
use membound_core::machine::fact::Fact;
use membound_core::machine::firmware::Dimm;
use membound_core::record::{Clock, Environment, Header, Line, Measurement, Record, SCHEMA, Writer};
use membound_core::units::{Bytes, Hertz};
use tempfile::TempDir;

/// A folder for the files of a machine: in memory where that can be, since thousands of files that come and go keep a disk's file
/// system busy for longer than a test.
pub fn machine_folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// A machine of which nothing can be read.
pub fn unknown_machine() -> Machine {
    static READ: LazyLock<Machine> = LazyLock::new(|| {
        let root = machine_folder();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        Machine::read(root.path()).unwrap()
    });
    READ.clone()
}

/// A clock of so many hertz.
pub fn clock(hz: f64) -> Clock {
    Clock { name: "tsc".into(), hz: Hertz(hz), overhead_ticks: 20 }
}

/// The same of a machine that says that it is simulated.
pub fn simulated_clock(hz: f64) -> Clock {
    Clock { name: "simulated".into(), ..clock(hz) }
}

/// A record of these visits, in this order.
pub fn record(clock: Clock, machine: Machine, measurements: Vec<Measurement>) -> Record {
    let header = Header {
        schema: SCHEMA,
        tool: "test".into(),
        host: "made up".into(),
        started_unix_s: 0,
        command: Vec::new(),
        seed: 0,
        clock,
        machine,
        before: Environment::default(),
        world: None,
        sheet: None,
        device: None,
        devices: Vec::new(),
    };
    Record { header, measurements, end: None }
}

/// The record once more, from the file that it was written to.
pub fn written_and_read(record: &Record) -> Record {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    write(record, &path);
    Record::read(&path).unwrap()
}

/// Writes a record as a run does.
pub fn write(record: &Record, path: &std::path::Path) {
    let mut writer = Writer::new(std::fs::File::create(path).unwrap());
    writer.line(&Line::Header(Box::new(record.header.clone()))).unwrap();
    for measurement in &record.measurements {
        writer.line(&Line::Measurement(Box::new(measurement.clone()))).unwrap();
    }
    if let Some(end) = &record.end {
        writer.line(&Line::End(end.clone())).unwrap();
    }
}

/// A memory module of 38.4 GB/s: 8 bytes at 4800 MT/s.
pub fn module() -> Dimm {
    fn unknown<T>() -> Fact<T> {
        Fact::absent("made up")
    }
    Dimm {
        slot: unknown(),
        size: Fact::Known(Bytes::gib(32)),
        technology: unknown(),
        rated_mt_s: unknown(),
        configured_mt_s: Fact::Known(4800),
        data_width_bits: Fact::Known(64),
        total_width_bits: unknown(),
        ranks: unknown(),
        manufacturer: unknown(),
        part_number: unknown(),
    }
}
