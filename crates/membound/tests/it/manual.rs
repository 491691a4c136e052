//! One command line: the same flags everywhere, help that lists what applies, groups, examples, manual pages; rows that stream,
//! reports that leave nothing unasked, the last two records compared.

use std::collections::BTreeSet;
use std::path::Path;

use crate::common::by_hand;
use crate::common::program::{run_in, text};
use membound::cli;
use membound::cli::manual::{GROUPS, REFUSED, examples};
use membound_core::record::Record;
use tempfile::TempDir;

/// Commands with their whole names, those of the fleet included.
fn commands() -> Vec<(String, clap::Command)> {
    let mut all = Vec::new();
    for one in cli::command().get_subcommands() {
        all.push((one.get_name().to_string(), one.clone()));
        all.extend(one.get_subcommands().map(|sub| (format!("{} {}", one.get_name(), sub.get_name()), sub.clone())));
    }
    all
}

#[test]
fn every_command_has_its_group_and_two_examples() {
    let top: BTreeSet<String> = cli::command().get_subcommands().map(|one| one.get_name().to_string()).collect();
    let grouped: Vec<String> = GROUPS.iter().flat_map(|(_, names)| *names).map(ToString::to_string).collect();
    assert_eq!(grouped.iter().cloned().collect::<BTreeSet<_>>(), top, "each in one group");
    assert_eq!(grouped.len(), top.len(), "and in no other");
    for (name, _) in commands().iter().filter(|(name, _)| name != "fleet") {
        let (_, own) = examples().find(|(of, _)| of == name).unwrap_or_else(|| panic!("no examples: {name}"));
        assert!(own.iter().all(|(line, _)| line.contains(&format!("membound {name}"))), "{name}: {own:?}");
    }
    let help = cli::command().render_help().to_string();
    for (title, names) in GROUPS {
        let at = |word: &str| help.find(word).unwrap_or_else(|| panic!("{word}: {help}"));
        assert!(names.iter().all(|name| at(&format!("\n  {name} ")) > at(&format!("{title}:\n"))), "{title}");
    }
}

/// A command says what it does, and not what its flags are; a line that finds no room goes on below its beginning.
#[test]
fn every_command_says_what_it_does() {
    let command = cli::command();
    let abouts: Vec<String> =
        command.get_subcommands().map(|one| one.get_about().map(ToString::to_string).unwrap_or_default()).collect();
    assert_eq!(abouts.iter().collect::<BTreeSet<_>>().len(), abouts.len(), "{abouts:?}");
    assert!(!abouts.iter().any(|about| about.is_empty() || about.contains("Flags")), "{abouts:?}");
    let help = cli::command().render_help().to_string();
    let groups = help.split("Options of the default run").next().unwrap().split("\nMeasure:").nth(1).unwrap();
    let lines = groups.lines().filter(|line| !line.is_empty() && !line.ends_with(':'));
    for line in lines {
        assert!(line.starts_with("  ") && line.len() <= 80, "{line:?}");
    }
}

/// Every example is a command line that membound takes, as far as no file is asked for.
#[test]
fn examples_are_understood() {
    for (name, own) in examples() {
        for (line, _) in own {
            let own = line.split(" | ").next().unwrap().split(" > ").next().unwrap();
            let (_, words) = own.split_once("membound").unwrap();
            let quoted: Vec<String> = words
                .split('\'')
                .enumerate()
                .flat_map(|(index, part)| match index % 2 {
                    0 => part.split_whitespace().map(String::from).collect::<Vec<_>>(),
                    _ => vec![part.to_string()],
                })
                .collect();
            let line = std::iter::once(String::from("membound")).chain(quoted);
            cli::command().try_get_matches_from(line).unwrap_or_else(|fault| panic!("{name}: {own}: {fault}"));
        }
    }
}

/// What measures has the same flags of a run; what is hidden is refused, and nothing else.
#[test]
fn flags_are_the_same_everywhere() {
    let measuring = GROUPS[0].1.iter().copied().chain(["roofline"]);
    for name in measuring {
        let all = cli::command();
        let one = all.find_subcommand(name).unwrap();
        for flag in ["budget", "samples", "seed", "cpus", "list", "verify", "format", "record", "html"] {
            assert!(one.get_arguments().any(|own| own.get_long() == Some(flag)), "{name} --{flag}");
        }
    }
    for (name, one) in commands().iter().filter(|(name, _)| name != "kernel") {
        let hidden: BTreeSet<&str> =
            one.get_arguments().filter(|flag| flag.is_hide_set()).filter_map(clap::Arg::get_long).collect();
        let refused = REFUSED
            .iter()
            .find(|(of, _)| of == name)
            .map_or(BTreeSet::new(), |(_, flags)| flags.iter().copied().collect());
        assert_eq!(hidden, refused, "{name}");
    }
    let folder = TempDir::new().unwrap();
    let value = |flag: &str| match flag {
        "store" => Some("nt"),
        "load" => Some("nt"),
        "kernel" => Some("copy"),
        "unroll" => Some("2"),
        "misalign" => Some("8"),
        "offsets" => Some("scan"),
        _ => None,
    };
    for (name, flags) in REFUSED {
        for flag in flags {
            let long = format!("--{flag}");
            let words: Vec<&str> = [name, &long].into_iter().chain(value(flag)).collect();
            let output = run_in(folder.path(), &words);
            let talk = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{words:?}: {talk}");
            assert!(talk.contains("does not apply here"), "{words:?}: {talk}");
        }
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = TempDir::new().unwrap();
    let output = run_in(folder.path(), &["man", "--out", "pages"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let pages = folder.path().join("pages");
    let names: Vec<String> =
        commands().iter().map(|(name, _)| format!("membound-{}.1", name.replace(' ', "-"))).collect();
    for name in names.iter().chain([&"membound.1".to_string()]) {
        let page = std::fs::read_to_string(pages.join(name)).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        for section in [".SH NAME", ".SH SYNOPSIS", ".SH EXAMPLES", "EXIT STATUS", ".SH ENVIRONMENT"] {
            assert!(page.contains(section), "{name}: no {section}: {page}");
        }
    }
    assert!(std::fs::read_to_string(pages.join("membound-fleet-run.1")).unwrap().contains("membound fleet run"));
    let again = run_in(folder.path(), &["man", "--out", "pages"]);
    assert_eq!(again.status.code(), Some(2), "nothing is overwritten: {}", text(&again.stderr));
    assert!(text(&run_in(folder.path(), &["man", "fleet", "run"]).stdout).contains("node\\-timeout"));
    assert!(text(&run_in(folder.path(), &["man", "nothing"]).stderr).contains("no command 'nothing'"));
}

const SMALL: [&str; 8] = ["bandwidth", "--kernel", "load,copy", "--size", "16KiB", "--threads", "all", "--quiet"];

/// A line for each visit, and the last line of a case is what the record says in the end.
#[test]
fn rows_stream_while_they_are_measured() {
    let folder = TempDir::new().unwrap();
    let words = [&SMALL[..], &["--budget", "1s", "--format", "jsonl", "--record", "run.jsonl"]].concat();
    let output = run_in(folder.path(), &words);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows: Vec<serde_json::Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let record = Record::read(&folder.path().join("run.jsonl")).unwrap();
    assert_eq!(rows.len(), record.measurements.len(), "a row for each visit");
    let again = text(&run_in(folder.path(), &["report", "run.jsonl", "--format", "jsonl"]).stdout);
    for line in again.lines() {
        let whole: serde_json::Value = serde_json::from_str(line).unwrap();
        let same = |row: &&serde_json::Value| ["kernel", "width_bits"].iter().all(|key| row[*key] == whole[*key]);
        let last = rows.iter().rfind(same).unwrap();
        assert_eq!(last["payload_Bps"]["median"], whole["payload_Bps"]["median"], "{last}");
    }
}

/// Pages stand where they were asked for, once, and nowhere else.
#[test]
fn reports_leave_what_they_were_asked_for() {
    let folder = TempDir::new().unwrap();
    let write = |name: &str, host: &str, started: u64| {
        let path = folder.path().join(name);
        let mut record = crate::common::simulated::latency_record();
        (record.header.host, record.header.started_unix_s) = (host.into(), started);
        by_hand::write(&record, &path);
    };
    std::fs::create_dir(folder.path().join("records")).unwrap();
    write("records/a.jsonl", "n1", 1);
    write("records/b.jsonl", "n1", 2);
    let names = || std::fs::read_dir(folder.path()).unwrap().count();
    assert!(run_in(folder.path(), &["report", "records"]).status.success());
    assert_eq!(names(), 1, "no page unasked");
    if cfg!(feature = "report") {
        let output = run_in(folder.path(), &["report", "records", "--out", "new/pages"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(std::fs::read_dir(folder.path().join("new/pages")).unwrap().count(), 2);
        let again = run_in(folder.path(), &["report", "records", "--out", "new/pages"]);
        assert_eq!(again.status.code(), Some(1));
        assert!(text(&again.stderr).contains("nothing is overwritten"), "{}", text(&again.stderr));
    }
    let several = run_in(folder.path(), &["report", "records", "--html", "x.html"]);
    assert_eq!(several.status.code(), Some(2), "{}", text(&several.stderr));
    assert!(text(&several.stderr).contains("there are 2 records"));
}

#[test]
fn the_last_two_records_of_this_host_are_compared() {
    let folder = TempDir::new().unwrap();
    let host = cli::measure::host();
    for (name, of, started) in [("a", &host, 30), ("b", &host, 10), ("c", &host, 20), ("d", &"another".to_string(), 40)]
    {
        let mut record = crate::common::simulated::latency_record();
        (record.header.host, record.header.started_unix_s) = (of.clone(), started);
        by_hand::write(&record, &folder.path().join(format!("{name}.jsonl")));
    }
    let output = run_in(folder.path(), &["diff"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(said.contains("A: c.jsonl, 1 record of") && said.contains("B: a.jsonl, 1 record of"), "{said}");
    assert!(!said.contains("b.jsonl") && !said.contains("d.jsonl"), "{said}");
    std::fs::remove_file(folder.path().join("a.jsonl")).unwrap();
    std::fs::remove_file(folder.path().join("c.jsonl")).unwrap();
    let output = run_in(folder.path(), &["diff"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("1 record of"), "{}", text(&output.stderr));
}

/// The command lines of a text: in fences those that call membound, elsewhere those in backquotes.
fn command_lines(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (index, block) in text.split("```").enumerate() {
        let lines: Vec<&str> = match index % 2 {
            1 => block.lines().skip(1).collect(),
            _ => block.split('`').skip(1).step_by(2).collect(),
        };
        let lines = lines.into_iter().map(|line| line.split("  #").next().unwrap_or_default().trim());
        let calls = |line: &&str| {
            line.starts_with("membound ")
                || ["mpirun ", "srun "].iter().any(|by| line.starts_with(by) && line.contains(" membound "))
        };
        found.extend(lines.filter(calls).map(String::from));
    }
    found
}

/// No page names a command, a flag or a value that is not there.
#[test]
fn commands_in_docs_are_understood() {
    use clap::error::ErrorKind;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pages = crate::book::pages(&root.join("docs")).into_iter().chain([root.join("README.md")]);
    let (mut count, mut wrong) = (0, Vec::new());
    for path in pages.filter(|path| !path.ends_with("exit-status.md")) {
        for line in command_lines(&std::fs::read_to_string(&path).unwrap()) {
            // What a run prints, `membound 0.1.0 on ...`, and lines of tables are no commands.
            let (_, words) = line.split_once("membound ").unwrap();
            if words.starts_with(|c: char| c.is_ascii_digit()) || line.contains("...") || line.contains("   ") {
                continue;
            }
            count += 1;
            let mut own = vec![String::from("membound")];
            for (index, part) in words.split('\'').enumerate() {
                let is_word = index % 2 == 1;
                own.extend(if is_word {
                    vec![part.to_string()]
                } else {
                    part.split_whitespace().map(String::from).collect()
                });
            }
            let end =
                own.iter().position(|word| ["|", ">", "||", "&&", "\\"].contains(&word.as_str())).unwrap_or(own.len());
            let unfinished = [
                ErrorKind::MissingRequiredArgument,
                ErrorKind::MissingSubcommand,
                ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
                ErrorKind::DisplayHelp,
            ];
            match cli::command().try_get_matches_from(&own[..end]) {
                Err(fault) if !unfinished.contains(&fault.kind()) => {
                    wrong.push(format!(
                        "{}: {line}: {}",
                        path.display(),
                        fault.to_string().lines().next().unwrap_or_default()
                    ));
                }
                _ => {}
            }
        }
    }
    assert!(count > 60, "{count} command lines");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The first screen answers ten questions, each where docs/first-screen.md says.
#[test]
fn ten_questions_are_answered_on_the_first_screen() {
    let readme = include_str!("../../../../README.md");
    let screen = readme.split("<!-- screen -->").nth(1).and_then(|rest| rest.split("<!-- end -->").next()).unwrap();
    let (_, table) = include_str!("../../../../docs/first-screen.md").split_once("|---|---|---|\n").unwrap();
    let lines: Vec<&str> = table.lines().take_while(|line| line.starts_with('|')).collect();
    assert_eq!(lines.len(), 10);
    for line in lines {
        let word = line.trim_end_matches(" |").rsplit('|').next().unwrap().trim().trim_matches('`');
        assert!(!word.is_empty() && screen.contains(word), "'{word}' is not on the screen: {line}");
    }
    assert!(screen.lines().count() <= 40 + 3, "forty lines between their fences");
}
