//! `membound numa`: what nodes are to programs.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;

use super::page_cache::{self, PageCacheArgs};
use super::{Done, RunArgs, usage};

/// Flags of `membound numa`.
#[derive(Debug, Clone, Args)]
pub struct NumaArgs {
    /// Measure the triad beside page cache of growing size: bandwidth, where its pages land, which cure helps
    #[arg(long)]
    pub page_cache: bool,
    /// Flags of --page-cache
    #[command(flatten)]
    pub cache: PageCacheArgs,
    /// How to run
    #[command(flatten)]
    pub run: RunArgs,
    /// Write a record to this file
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
}

/// Measures and shows.
pub fn run(args: &NumaArgs) -> anyhow::Result<Done> {
    if !args.page_cache {
        return Err(usage("say what to measure: --page-cache"));
    }
    page_cache::run(&args.cache, &args.run, args.record.as_ref(), Instant::now())
}
