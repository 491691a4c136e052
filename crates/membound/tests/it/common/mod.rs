//! What several tests share.

#[path = "../../../../core/tests/it/common/alone.rs"]
pub mod alone;
#[path = "../../../../core/tests/it/common/by_hand.rs"]
pub mod by_hand;
#[path = "../../../../core/tests/it/common/copies.rs"]
pub mod copies;
#[path = "../../../../core/tests/it/common/facts.rs"]
pub mod facts;
pub mod fake_driver;
pub mod fleets;
#[path = "../../../../core/tests/it/common/imitation.rs"]
pub mod imitation;
pub mod launched;
#[path = "../../../../core/tests/it/common/messages.rs"]
pub mod messages;
pub mod planted;
pub mod program;
#[path = "../../../../core/tests/it/common/recorded.rs"]
pub mod recorded;
pub mod reports;
#[path = "../../../../core/tests/it/common/schema.rs"]
pub mod schema;
pub mod seccomp;
pub mod signals;
pub mod simulated;
#[path = "../../../../core/tests/it/common/skip.rs"]
pub mod skip;
pub mod slurm;

/// The run that the README shows.
pub fn readme_record() -> Vec<u8> {
    unpacked("readme")
}

/// What a record of `tests/records` comes to.
pub fn report_of(name: &str) -> membound_analyze::report::Report {
    membound_analyze::of_record::report(&record_of(name))
}

/// A record of `tests/records`, read.
pub fn record_of(name: &str) -> membound_core::record::Record {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    std::fs::write(&path, unpacked(name)).unwrap();
    membound_core::record::Record::read(&path).unwrap()
}

/// A record of `tests/records`, by its file's name.
pub fn unpacked(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/records/{name}.jsonl.bz2", env!("CARGO_MANIFEST_DIR"));
    let packed = std::fs::File::open(path).unwrap();
    let mut record = Vec::new();
    std::io::Read::read_to_end(&mut bzip2::read::MultiBzDecoder::new(packed), &mut record).unwrap();
    record
}

/// Text with single spaces and no line breaks: tables are padded, sentences wrapped.
pub fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
