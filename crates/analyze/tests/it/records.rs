//! Recorded runs of shared hosts: each is unpacked, read and reported once, whichever tests ask for it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, OnceLock};

use membound_analyze::of_record;
use membound_analyze::report::Report;
use membound_core::record::Record;

/// A recorded run.
pub struct Run {
    file: PathBuf,
    record: OnceLock<Record>,
    report: OnceLock<Report>,
}

impl Run {
    fn new(name: String) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/tests/records");
        Run { file: folder.join(name), record: OnceLock::new(), report: OnceLock::new() }
    }

    pub fn record(&self) -> &Record {
        self.record.get_or_init(|| {
            let plain = tempfile::NamedTempFile::new().unwrap();
            self.unpack(plain.path());
            Record::read(plain.path()).unwrap()
        })
    }

    pub fn report(&self) -> &Report {
        self.report.get_or_init(|| of_record::report(self.record()))
    }

    /// Writes the record to this file.
    pub fn unpack(&self, to: &Path) {
        let mut packed = bzip2::read::MultiBzDecoder::new(fs::File::open(&self.file).unwrap());
        std::io::copy(&mut packed, &mut fs::File::create(to).unwrap()).unwrap();
    }
}

/// Guests of which there are headlines.
pub const GUESTS: [&str; 3] = ["emr", "zen3", "zen4"];

/// Ten default runs of a guest, of which the visits to kernels that a run comes back to are kept, with what probes told.
pub fn headlines(guest: &str) -> &'static [Run] {
    static RUNS: LazyLock<BTreeMap<&str, Vec<Run>>> = LazyLock::new(|| {
        let runs = |guest| (1..=10).map(|run| Run::new(format!("{guest}-guest-headline-{run}.jsonl.bz2"))).collect();
        GUESTS.map(|guest| (guest, runs(guest))).into()
    });
    &RUNS[guest]
}

/// Six default runs of one guest, of which all visits to kernels are kept.
pub fn whole() -> &'static [Run] {
    static RUNS: LazyLock<Vec<Run>> =
        LazyLock::new(|| (1..=6).map(|run| Run::new(format!("zen4-guest-{run}.jsonl.bz2"))).collect());
    &RUNS
}
