//! The reference: pages that are made from the schema and from the command line. `BOOK=write cargo test -p membound --test it
//! book::` writes them anew.

use crate::common::program::membound;
use std::fmt::Write;

use membound::cli;
use serde_json::Value;

use super::{root, schema};

/// Flags that as many commands have stand once, ahead of the commands.
const COMMON: usize = 8;

const HEAD: &str = "<!-- Generated: BOOK=write cargo test -p membound --test it book:: -->\n\n";

/// Holds a page against what it should be, or writes it.
#[track_caller]
fn current(name: &str, text: &str) {
    let path = root().join("docs/reference").join(name);
    let text = format!("{HEAD}{}\n", text.trim_end());
    if std::env::var("BOOK").is_ok_and(|word| word == "write") {
        std::fs::write(&path, &text).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == text, "{} is stale: BOOK=write cargo test -p membound --test it book::", path.display());
}

/// A text as a cell of a table.
pub fn cell(text: &str) -> String {
    let flat = crate::common::on_one_line(text);
    flat.replace('|', "\\|").replace('<', "&lt;")
}

/// A flag as a row of a table: what is typed, what it is if left out, what it says.
fn row(flag: &clap::Arg) -> Option<String> {
    if flag.is_hide_set() || ["help", "version"].contains(&flag.get_id().as_str()) {
        return None;
    }
    let value = flag.get_value_names().map(|names| names.join(" ")).filter(|_| flag.get_action().takes_values());
    let value = value.map(|name| format!("<{name}>")).unwrap_or_default();
    let typed = match (flag.get_long(), flag.get_short()) {
        (Some(long), Some(short)) => format!("-{short}, --{long} {value}"),
        (Some(long), None) => format!("--{long} {value}"),
        (None, _) => value,
    };
    let preset: Vec<_> = flag.get_default_values().iter().map(|one| one.to_string_lossy()).collect();
    let mut says = cell(&flag.get_help().map(ToString::to_string).unwrap_or_default());
    let words: Vec<String> = match flag.get_action().takes_values() {
        true => flag.get_possible_values().iter().map(|one| format!("`{}`", one.get_name())).collect(),
        false => Vec::new(),
    };
    if !words.is_empty() {
        write!(says, ": {}", words.join(", ")).unwrap();
    }
    let preset = if preset.is_empty() { String::new() } else { format!("`{}`", preset.join(" ")) };
    Some(format!("| `{}` | {preset} | {says} |", typed.trim().replace('|', "\\|")))
}

fn table(rows: &[String]) -> String {
    format!("| flag | default | says |\n|---|---|---|\n{}\n\n", rows.join("\n"))
}

/// All commands with their whole names; the default run has none.
fn commands(command: &clap::Command, name: &str, all: &mut Vec<(String, clap::Command)>) {
    all.push((name.to_string(), command.clone()));
    for one in command.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help") {
        commands(one, &format!("{name} {}", one.get_name()), all);
    }
}

#[test]
fn flags_are_current() {
    if !cfg!(feature = "report") {
        return;
    }
    let mut all = Vec::new();
    commands(&cli::command(), "membound", &mut all);
    let rows: Vec<Vec<String>> = all.iter().map(|(_, one)| one.get_arguments().filter_map(row).collect()).collect();
    let is_common = |row: &String| rows.iter().filter(|rows| rows.contains(row)).count() >= COMMON;
    let mut common: Vec<String> = Vec::new();
    for row in rows.iter().flatten().filter(|row| is_common(row)) {
        if !common.contains(row) {
            common.push(row.clone());
        }
    }
    let mut text =
        String::from("# Commands and flags\n\nWhat each command answers, and the flags that are its own.\n\n");
    text += "## Flags of most commands\n\n";
    text += &table(&common);
    for ((name, command), rows) in all.iter().zip(&rows) {
        let about = cell(&command.get_about().map(ToString::to_string).unwrap_or_default());
        writeln!(text, "## {name}\n\n{about}\n").unwrap();
        let own: Vec<String> = rows.iter().filter(|row| !common.contains(row)).cloned().collect();
        if !own.is_empty() {
            text += &table(&own);
        }
    }
    current("flags.md", &text);
}

fn published(of: &str) -> Value {
    let output = membound().args(["schema", of]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn rows_are_current() {
    let schema = published("row");
    let mut text = String::from(
        "# Rows\n\n`--format json`, `jsonl` and `csv` print one row per case. `membound schema row` prints this page as a JSON \
         schema. In CSV the fields of an object are columns of their own, joined by an underscore: \
         `payload_Bps_capability_value`.\n\n",
    );
    let kinds: Vec<&Value> = schema["anyOf"].as_array().unwrap().iter().collect();
    let common = schema::common(&kinds);
    text += "## In every row\n\n";
    text += &schema::table(&common);
    for kind in kinds {
        let name = kind["properties"]["metric"]["const"].as_str().unwrap_or("pingpong-model");
        let own: Vec<_> = schema::fields(kind).into_iter().filter(|field| !common.contains(field)).collect();
        writeln!(text, "## metric {name}\n").unwrap();
        text += &schema::table(&own);
    }
    text += &schema::definitions(&schema);
    current("rows.md", &text);
}

#[test]
fn records_are_current() {
    let schema = published("record");
    let mut text = String::from(
        "# Records\n\nA record is a file of JSON lines: a header, a line per visit, and a last line. Each has a `type`. Samples are \
         integers, as they were measured. `membound schema record` prints this page as a JSON schema.\n\n| type | line | says |\n\
         |---|---|---|\n",
    );
    for line in schema["oneOf"].as_array().unwrap() {
        let (kind, says) = (&line["properties"]["type"]["const"], &line["description"]);
        let kind = kind.as_str().unwrap();
        let name = line["$ref"].as_str().unwrap().rsplit('/').next().unwrap();
        writeln!(text, "| `{kind}` | [{name}](#{}) | {} |", super::links::anchor(name), cell(says.as_str().unwrap()))
            .unwrap();
    }
    text += "\n";
    text += &schema::definitions(&schema);
    current("records.md", &text);
}
