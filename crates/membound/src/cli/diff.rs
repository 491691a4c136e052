//! `membound diff`: the last two records of this host in a folder, compared.

use std::path::PathBuf;

use clap::Args;

use crate::cli::args::Done;
use crate::cli::compare::{CompareArgs, HowArgs};
use crate::cli::{compare, measure, usage};
use membound_core::record::{Record, records_in};

/// Flags of `membound diff`.
#[derive(Debug, Clone, Args)]
pub struct DiffArgs {
    /// Folder with records of this host, two at least [default: the current one]
    #[arg(value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// How to compare
    #[command(flatten)]
    pub how: HowArgs,
}

/// Compares the last record with the one before.
pub fn run(args: &DiffArgs) -> anyhow::Result<Done> {
    let folder = args.folder.clone().unwrap_or_else(crate::cli::args::here);
    let host = measure::host();
    let mut own = Vec::new();
    for path in records_in(&folder).map_err(usage)? {
        // What is no record of this version is none of the last two.
        match Record::header(&path) {
            Ok(header) if header.host == host => own.push((header.started_unix_s, path)),
            _ => {}
        }
    }
    own.sort();
    let [.., (_, a), (_, b)] = &own[..] else {
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
