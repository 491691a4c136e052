//! Drivers of our own, each of which has every fault: compiled when first needed, and loaded in place of the real one.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use super::launched::text;
use super::program;
use super::skip::skip;

/// A fake driver.
pub struct FakeDriver {
    api: &'static str,
    library: &'static str,
    /// `FAKE_API` names the fault.
    variable: String,
    /// Where its library lies; nothing where there is no compiler.
    folder: Option<TempDir>,
}

impl FakeDriver {
    /// Compiles `tests/API/fake.c`.
    pub fn new(api: &'static str, library: &'static str) -> Self {
        let variable = format!("FAKE_{}", api.to_uppercase());
        FakeDriver { api, library, variable, folder: compiled(api, library, &[]) }
    }

    /// Its folder; nothing, and a skip, where there is no compiler.
    pub fn folder(&self) -> Option<&Path> {
        if self.folder.is_none() {
            skip("no C compiler");
        }
        self.folder.as_ref().map(TempDir::path)
    }

    /// Another folder with the same driver, compiled with a flag.
    pub fn with(&self, flag: &str) -> TempDir {
        compiled(self.api, self.library, &[flag]).unwrap()
    }

    /// What membound says, where the driver has a fault.
    pub fn run(&self, fault: &str, arguments: &[&str]) -> Option<Output> {
        Some(membound(self.folder()?, &[(&self.variable, fault)], arguments))
    }

    /// Visits each case of `kinds` once. Rows, and the exit code.
    pub fn kinds(&self, fault: &str, more: &[&str]) -> Option<(Vec<Value>, Option<i32>)> {
        self.run(fault, &kinds(&self.first(), more)).map(|output| rows(&output))
    }

    /// The same of copies between the devices with these numbers.
    pub fn copies(&self, fault: &str, numbers: &[u32]) -> Option<(Vec<Value>, Option<i32>)> {
        let devices: Vec<String> = numbers.iter().map(|number| format!("{}:{number}", self.api)).collect();
        let arguments = ["copies", "--size", "64,256KiB", "--device", &devices.join(",")];
        self.run(fault, &[&arguments[..], &ONCE].concat()).map(|output| rows(&output))
    }

    /// The same of all buffers, and how many pieces of memory lived at once.
    pub fn counted(&self) -> Option<(Vec<Value>, Option<i32>, u32)> {
        let logs = tempfile::tempdir().unwrap();
        let (log, variable) = (logs.path().join("most"), format!("{}_LOG", self.variable));
        let device = self.first();
        let arguments = kinds(&device, &["--part", "buffers"]);
        let output = membound(self.folder()?, &[(&variable, log.to_str().unwrap())], &arguments);
        let (found, code) = rows(&output);
        let visits: u64 = found.iter().filter_map(|row| row["rounds"].as_u64()).sum();
        assert!(visits >= 50, "{visits}");
        Some((found, code, std::fs::read_to_string(&log).unwrap().lines().last().unwrap().parse().unwrap()))
    }

    /// The library in this folder has no device, and the reason has these parts.
    pub fn has_none(&self, folder: &Path, fault: &str, parts: [&str; 2]) {
        let (devices, absent) = self.listed_from(folder, fault);
        assert!(devices.is_empty());
        parts.iter().for_each(|part| assert!(absent[0].contains(part), "{absent:?}"));
    }

    /// A driver that hangs in its first call is ended, and nothing was measured.
    pub fn hang_is_ended(&self) {
        let Some((found, code)) = self.kinds("hang", &["--part", "contention"]) else { return };
        all_are(&found, "unavailable", "has not answered for 20 s");
        assert_eq!(code, Some(1), "nothing was measured");
    }

    /// The name of its first device.
    fn first(&self) -> String {
        format!("{}:0", self.api)
    }

    /// What `membound devices` says of its devices, and why there are none.
    pub fn listed(&self, fault: &str) -> Option<(Vec<Value>, Vec<String>)> {
        Some(self.listed_from(self.folder()?, fault))
    }

    /// The same by the library in this folder.
    pub fn listed_from(&self, folder: &Path, fault: &str) -> (Vec<Value>, Vec<String>) {
        let output = membound(folder, &[(&self.variable, fault)], &["devices", "--format", "json"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let all: Value = serde_json::from_slice(&output.stdout).unwrap();
        let is_of = |device: &&Value| device["name"].as_str().unwrap().split_once(':').unwrap().0 == self.api;
        let devices = all["devices"].as_array().unwrap().iter().filter(is_of).cloned().collect();
        let absent = all["absent"].as_array().into_iter().flatten().filter(|pair| pair[0] == self.api);
        (devices, absent.map(|pair| pair[1].as_str().unwrap().to_string()).collect())
    }
}

/// A visit to each case, however long that takes.
pub const ONCE: [&str; 8] = ["--samples", "3", "--rounds", "1", "--budget", "120s", "--format", "json"];

fn kinds<'a>(device: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["kinds", "--device", device, "--size", "256KiB"], &ONCE[..], more].concat()
}

fn compiled(api: &str, library: &str, flags: &[&str]) -> Option<TempDir> {
    let folder = tempfile::tempdir().unwrap();
    let source = format!("{}/tests/{api}/fake.c", env!("CARGO_MANIFEST_DIR"));
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(folder.path().join(library)).args(flags).arg(source);
    match compiler.output() {
        Ok(output) if output.status.success() => Some(folder),
        Ok(output) => panic!("{}", text(&output.stderr)),
        Err(_) => None,
    }
}

/// What membound says with the libraries of this folder.
pub fn membound(folder: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = program::membound();
    command.env("LD_LIBRARY_PATH", folder).envs(variables.iter().copied());
    command.args(arguments).output().unwrap()
}

/// Rows of a run, and its exit code.
pub fn rows(output: &Output) -> (Vec<Value>, Option<i32>) {
    let stderr = text(&output.stderr);
    assert!(!stderr.contains("panicked"), "{stderr}");
    let rows = serde_json::from_slice(&output.stdout).unwrap_or_else(|fault| panic!("{fault}: {stderr}"));
    (rows, output.status.code())
}

/// How buffers of a kind are shared, by all rows that tell.
pub fn sharing<'a>(rows: &'a [Value], buffer: &str) -> Vec<&'a str> {
    let of_kind = rows.iter().filter(|row| row["buffer"] == buffer);
    let mut found: Vec<&str> = of_kind.filter_map(|row| row["sharing"].as_str()).collect();
    found.dedup();
    found
}

/// The rows that have this there, of which there are some: what is said of all of none is no test.
pub fn of(rows: &[Value], key: &str, value: impl Into<Value>) -> Vec<Value> {
    let value = value.into();
    let found: Vec<Value> = rows.iter().filter(|row| row[key] == value).cloned().collect();
    assert!(!found.is_empty(), "no row whose {key} is {value}: {rows:?}");
    found
}

/// The rows of what was not measured.
pub fn not_measured(rows: Vec<Value>) -> Vec<Value> {
    rows.into_iter().filter(|row| row["outcome"] != "measured").collect()
}

/// All rows have this outcome, and a reason with this text.
pub fn all_are(rows: &[Value], outcome: &str, part: &str) {
    assert!(!rows.is_empty());
    for row in rows {
        assert_eq!(row["outcome"], outcome, "{row}");
        assert!(row["reason"].as_str().unwrap().contains(part), "{row}");
    }
}
