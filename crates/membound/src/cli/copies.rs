//! `membound copies`: how fast bytes go between the host's memory and devices', and between devices.

use std::time::Duration;

use clap::Args;

use crate::cli::args::{Done, RunArgs, number};
use crate::cli::measure::Job;
use crate::cli::usage::usage;
use membound_analyze::output::terminal;
use membound_core::experiments::copies;
use membound_core::experiments::pingpong::Sizes;
use membound_core::in_order::{distinct, each_once};
use membound_core::machine::devices::{Api, Device, DeviceName, Devices};
use membound_measure::executor::device::discover;

/// Flags of `membound copies`.
#[derive(Debug, Clone, Args)]
pub struct CopiesArgs {
    /// Devices, such as cuda:0,cuda:1 (`membound devices` lists them) [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub device: Vec<DeviceName>,
    /// Bytes of a copy: sizes, and ranges of powers of two such as 64..64MiB [default: eight sizes from 64 B to 64 MiB]
    #[arg(long = "size", value_name = "LIST", value_delimiter = ',')]
    pub sizes: Vec<Sizes>,
    /// Sizes of a range for each doubling
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number(1, 16))]
    pub steps: u32,
    /// How to run
    #[command(flatten)]
    pub run: RunArgs,
}

pub(crate) const BUDGET: Duration = Duration::from_secs(60);

/// Measures and shows.
pub fn run(args: &CopiesArgs) -> anyhow::Result<Done> {
    let (job, frame) = Job::begin(&args.run, BUDGET, |report| terminal::answer(report, &report.copies))?;
    let devices = devices(args)?;
    let cases = copies::copies(&frame, &devices, &Sizes::all(&args.sizes, args.steps)).map_err(usage)?;
    job.from_now(BUDGET).between(devices).finish(&cases)
}

/// The devices that were named, or all there are.
fn devices(args: &CopiesArgs) -> anyhow::Result<Vec<Device>> {
    let apis = distinct(args.device.iter().map(|name| name.api));
    let Devices { devices, absent, .. } = discover(if apis.is_empty() { Api::ALL } else { &apis });
    if args.device.is_empty() {
        let why = || absent.iter().map(|(api, why)| format!("{api}: {why}")).collect::<Vec<_>>().join("; ");
        anyhow::ensure!(!devices.is_empty(), "there is no device to copy to: {}", why());
        return Ok(devices);
    }
    Ok(named(&args.device, &devices))
}

/// Each once, in the order in which they were named. One that is not there is planned for, so that a record has its outcome.
fn named(names: &[DeviceName], devices: &[Device]) -> Vec<Device> {
    let find = |name: DeviceName| devices.iter().find(|device| device.name == name).cloned();
    let device = |name: DeviceName| find(name).unwrap_or_else(|| Device::unknown(name));
    each_once(names.iter().copied()).into_iter().map(device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_named_twice_is_told_once() {
        let names = ["cuda:1", "cuda:0", "cuda:1"].map(|name| name.parse().unwrap());
        let [second, first, _] = names;
        let there = Device { title: "there".into(), ..Device::unknown(first) };
        let found = named(&names, std::slice::from_ref(&there));
        assert_eq!(found, [Device::unknown(second), there]);
    }
}
