//! `membound devices`: what `--device` can name.

use clap::Args;
use membound_core::json;

use crate::cli::args::{Done, Format};
use membound_analyze::across::sections::devices as sections;
use membound_core::machine::devices::Api;
use membound_measure::executor::device::discover;

/// Flags of `membound devices`.
#[derive(Debug, Clone, Args)]
pub struct DevicesArgs {
    /// Print them as; json is one object
    #[arg(long, value_parser = Format::of_answers(), default_value = "table")]
    pub format: Format,
}

/// Asks the drivers, and shows what they say. That there is no device is an answer.
pub fn run(args: &DevicesArgs) -> anyhow::Result<Done> {
    let devices = discover(Api::ALL);
    if args.format == Format::Json {
        return Ok(Done::ok(json::pretty(&devices) + "\n"));
    }
    Ok(Done::ok(args.format.drawn(&sections::document(&devices))))
}
