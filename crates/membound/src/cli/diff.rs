//! `membound diff`: the last two records of this host in a folder, compared: of one command where there are two.

use std::path::PathBuf;

use clap::Args;

use crate::cli::args::Done;
use crate::cli::compare::{CompareArgs, HowArgs};
use crate::cli::{compare, measure, usage};
use membound_core::record::{Record, records_in};

/// Flags of `membound diff`.
#[derive(Debug, Clone, Args)]
pub struct DiffArgs {
    /// Folder with records of this host, two at least, of one command if there are; those of `watch` are left out [default: the
    /// current one]
    #[arg(value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// How to compare
    #[command(flatten)]
    pub how: HowArgs,
}

/// A record of this host: when it began, the subcommand that made it, where it is.
type Own = (u64, Option<String>, PathBuf);

/// Compares the last record with the one before.
pub fn run(args: &DiffArgs) -> anyhow::Result<Done> {
    let folder = args.folder.clone().unwrap_or_else(crate::cli::args::here);
    let host = measure::host();
    let mut own = Vec::new();
    for path in records_in(&folder).map_err(usage)? {
        // What is no record of this version is none of the last two.
        match Record::header(&path) {
            // Nor is what `watch` adds to for months: it is no run.
            Ok(header) if header.host == host && header.subcommand() != Some("watch") => {
                own.push((header.started_unix_s, header.subcommand().map(String::from), path));
            }
            _ => {}
        }
    }
    own.sort();
    let Some([a, b]) = last_two(&own) else {
        let count = own.len();
        let records = if count == 1 { "1 record" } else { "records" };
        let has = if count == 0 { "no records".into() } else { records.to_string() };
        return Err(usage(format!(
            "{} holds {has} of {host}, and it takes two; run `membound --out {}` once more, or name both: membound compare A B",
            folder.display(),
            folder.display()
        )));
    };
    compare::run(&CompareArgs { a: a.clone(), b: b.clone(), others: Vec::new(), how: args.how.clone() })
}

/// The last two records of one subcommand, which have the same cases; where no two are, the last two.
fn last_two(own: &[Own]) -> Option<[&PathBuf; 2]> {
    let before = |last: usize| own[..last].iter().rev().find(|earlier| earlier.1 == own[last].1);
    let alike = (0..own.len()).rev().find_map(|last| Some([&before(last)?.2, &own[last].2]));
    let [.., a, b] = own else { return None };
    Some(alike.unwrap_or([&a.2, &b.2]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_two_of_one_command_are_compared() {
        let check = |commands: &[&str], expect: Option<[u64; 2]>| {
            let own: Vec<Own> =
                (0..).zip(commands).map(|(at, of)| (at, Some((*of).into()), format!("{at}").into())).collect();
            let found = last_two(&own).map(|two| two.map(|path| path.display().to_string().parse().unwrap()));
            assert_eq!(found, expect, "{commands:?}");
        };
        check(&["latency"], None);
        check(&["latency", "latency", "latency"], Some([1, 2]));
        check(&["latency", "bandwidth", "latency"], Some([0, 2]));
        check(&["latency", "latency", "bandwidth"], Some([0, 1]));
        check(&["latency", "bandwidth"], Some([0, 1]));
    }
}
