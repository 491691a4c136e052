//! What `--format json` prints against the schema that `membound schema row` publishes, over a short real run; and the
//! same rows once more, redrawn from the record. `MEMBOUND_ROWS=FILE` checks the rows in a file instead.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::program;
use crate::common::schema::Validator;
use crate::common::{readme_record, unpacked};

/// Runs membound in `folder`; its stdout.
fn membound(folder: &TempDir, arguments: &str) -> String {
    let mut command = program::membound();
    let output = command.current_dir(folder.path()).args(arguments.split(' ')).output().unwrap();
    let (text, talk) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "membound {arguments}: {talk}\n{text}");
    text
}

fn rows(text: &str) -> Vec<Value> {
    serde_json::from_str(text).unwrap()
}

/// Every row fits the schema, and what was measured has figures in the order that their names promise.
fn check(rows: &[Value], schema: &Value) {
    let validator = Validator::of(schema).unwrap();
    assert!(!rows.is_empty(), "no rows");
    for row in rows {
        assert_eq!(validator.fault(row), None, "{row}");
        if row["outcome"] != "measured" {
            assert!(row["reason"].is_string(), "no reason: {row}");
            continue;
        }
        let figures = row.as_object().unwrap().values().filter(|value| value["ci95"].is_array());
        let summaries: Vec<[f64; 3]> = figures.map(summary).collect();
        assert!(summaries.iter().all(|[low, median, high]| 0.0 <= *low && low <= median && median <= high), "{row}");
        if row["metric"] == "bandwidth" {
            for rate in ["payload_Bps", "bus_Bps"].map(|name| &row[name]) {
                let [low, _, high] = summary(rate);
                assert!(0.0 < low && Some(high) <= rate["best"].as_f64(), "{row}");
            }
            assert!(row["payload_Bps"]["median"].as_f64() <= row["bus_Bps"]["median"].as_f64(), "{row}");
        }
    }
}

/// A figure's interval with its median between the ends.
fn summary(figure: &Value) -> [f64; 3] {
    [&figure["ci95"][0], &figure["median"], &figure["ci95"][1]].map(|value| value.as_f64().unwrap())
}

#[test]
fn rows_fit_their_schema() {
    let folder = TempDir::new().unwrap();
    let schema: Value = serde_json::from_str(&membound(&folder, "schema row")).unwrap();
    if let Some(path) = std::env::var_os("MEMBOUND_ROWS") {
        return check(&rows(&fs::read_to_string(path).unwrap()), &schema);
    }
    let run = "bandwidth --kernel load,copy,dot --store regular,rep --width scalar --size 16KiB,64KiB --threads 1 \
               --budget 500ms --seed 1 --format json --record run.jsonl";
    let printed = rows(&membound(&folder, run));
    check(&printed, &schema);
    let outcomes: BTreeSet<_> = printed.iter().map(|row| row["outcome"].as_str().unwrap().to_string()).collect();
    assert!(outcomes.contains("measured") && outcomes.contains("unavailable"), "{outcomes:?}");
    assert_eq!(rows(&membound(&folder, "report run.jsonl --format json")), printed, "redrawn rows are the same");
}

/// Where a host moves the CPUs, figures are of the visits at one place: on the two of Zen 3, an interval of all visits ended beyond
/// the best sample of those.
#[test]
fn rows_of_a_moving_host_fit_their_schema() {
    let folder = TempDir::new().unwrap();
    let schema: Value = serde_json::from_str(&membound(&folder, "schema row")).unwrap();
    for name in ["zen3-guest-whole-1", "zen3-guest-whole-2", "emr-guest-16-whole"] {
        fs::write(folder.path().join("run.jsonl"), unpacked(name)).unwrap();
        check(&rows(&membound(&folder, "report run.jsonl --format json")), &schema);
    }
}

/// What the rows of a whole run come to, against its schema and the rows that it names.
#[test]
fn answers_fit_their_schema_and_their_rows() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("run.jsonl"), readme_record()).unwrap();
    let answers = rows(&membound(&folder, "report run.jsonl --answers"));
    let schema: Value = serde_json::from_str(&membound(&folder, "schema answers")).unwrap();
    assert_eq!((answers.len(), Validator::of(&schema).unwrap().fault(&answers[0])), (1, None));
    let names: Vec<&str> =
        answers[0]["levels"]["all"].as_array().unwrap().iter().map(|level| level["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["L1", "L2", "L3", "memory"]);
    let printed = rows(&membound(&folder, "report run.jsonl --format json"));
    let best = answers[0]["levels"]["all"][3]["best"].as_array().unwrap();
    assert!(!best.is_empty());
    for best in best {
        let row = &printed[best["row"].as_u64().unwrap() as usize];
        assert_eq!(
            (&row["kernel"], &row["threads"], &row["level"]),
            (&best["kernel"], &best["threads"], &"memory".into())
        );
    }
    assert!(answers[0]["roofline"]["points"].as_array().is_some_and(|points| !points.is_empty()));
    assert!(answers[0]["losses"].as_array().is_some_and(|losses| losses.iter().all(|loss| loss["cure"].is_string())));
}

#[test]
fn a_row_that_lies_is_seen() {
    let folder = TempDir::new().unwrap();
    let schema: Value = serde_json::from_str(&membound(&folder, "schema row")).unwrap();
    let validator = Validator::of(&schema).unwrap();
    assert!(!validator.is_valid(&serde_json::json!({"metric": "bandwidth", "kernel": 1})));
}
