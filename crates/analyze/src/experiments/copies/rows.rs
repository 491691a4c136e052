//! Copies: from visits to rows, and routes side by side.

use schemars::JsonSchema;
use serde::Serialize;

use crate::quality::Sampled;
use crate::rate::{Cost, Rate};
use crate::row::{Metric, Row};
use crate::visits::{Gauge, Visits};
use membound_core::case::Work;
use membound_core::in_order::{InOrder, grouped};
use membound_core::machine::devices::{Device, DeviceName};
use membound_core::record::{Measured, Measurement};
use membound_core::units::Bytes;
use membound_core::work::copies::{CopyWork, Route};
use membound_core::work::device::Buffer;

/// A copy of one size on one route.
pub type CopyRow = Row<CopyFigures>;

/// What it takes.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CopyFigures {
    /// Nanoseconds from giving the command to its end; of both ways, until both have ended. Absent where nothing was measured.
    pub ns: Option<Cost>,
    /// Bytes that arrive per second: each byte counts once. Of both ways those of both.
    #[serde(rename = "copied_Bps")]
    pub copied_bps: Option<Rate>,
}

/// What tells rows of copies from each other.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CopyKeys {
    /// The device that copies.
    #[schemars(with = "String")]
    device: DeviceName,
    /// From where to where.
    route: Route,
    /// Memory on the host's side; absent between devices.
    host: Option<Buffer>,
    /// The other device; absent where the host's memory is one end.
    #[schemars(with = "Option<String>")]
    peer: Option<DeviceName>,
    /// The CPU that gives the commands and waits.
    cpus: Vec<u32>,
    /// Bytes of one copy.
    bytes: Bytes,
}

impl Metric for CopyFigures {
    const NAME: &'static str = "copies";
    const UNIT: &'static str = "B/s";
    type Keys = CopyKeys;

    fn keys(row: &CopyRow) -> CopyKeys {
        let CopyWork { device, route, host, peer } = row.work();
        CopyKeys { device, route, host, peer, cpus: row.case.cpus.clone(), bytes: row.case.working_set }
    }

    fn what(row: &CopyRow) -> String {
        row.work().ends()
    }
}

impl CopyRow {
    /// What was copied by whom.
    pub fn work(&self) -> CopyWork {
        let work = if let Work::Copies(work) = self.case.work { Some(work) } else { None };
        work.expect("rows of copies are made of copies alone")
    }
}

/// All that is known of copies; no rows where none were measured.
#[derive(Debug, Clone, Default)]
pub struct Copies {
    /// The devices, as their drivers describe them.
    pub devices: Vec<Device>,
    /// One row a case, by route and size.
    pub rows: Vec<CopyRow>,
}

/// What a record tells of copies.
pub(crate) fn copies(visits: &Visits<'_>) -> Copies {
    let mut rows: Vec<CopyRow> = visits.rows(|case| row(case, &visits.gauge));
    rows.order_by_key(|row| (row.work(), row.case.working_set));
    Copies { devices: visits.header().devices.clone(), rows }
}

fn row(visits: &[&Measurement], gauge: &Gauge) -> Option<CopyRow> {
    let case = &visits[0].case;
    let Work::Copies(work) = case.work else { return None };
    let mut sampled = Sampled::of(visits, gauge, |visit| ns(visit, gauge.hz));
    let ns = sampled.cost();
    let bytes = case.working_set.0 as f64 * if work.route.is_both_ways() { 2.0 } else { 1.0 };
    let copied_bps = ns.map(|ns| ns.each(|ns| bytes * 1e9 / ns));
    let _ = sampled.obtained();
    Some(Row { case: case.clone(), quality: sampled.quality, figures: CopyFigures { ns, copied_bps } })
}

/// Nanoseconds of each copy, sample by sample.
pub(crate) fn ns(visit: &Measured, hz: f64) -> Vec<f64> {
    visit.samples.ns_each(visit.repetitions as f64, hz)
}

impl Copies {
    /// The routes, each with its rows, smallest first.
    pub fn routes(&self) -> Vec<(CopyWork, Vec<&CopyRow>)> {
        grouped(&self.rows, |row| row.work())
    }

    /// What a device's link can move on a route at most; absent where there is none, or it is not known.
    pub fn link_bps(&self, work: CopyWork) -> Option<f64> {
        let link = self.devices.iter().find(|device| device.name == work.device)?.link?;
        let ways = if work.route.is_both_ways() { 2.0 } else { 1.0 };
        work.host.map(|_| link.most.unwrap_or(link.now).bps() * ways)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use membound_core::machine::devices::{Link, LinkState};

    /// 16 GT/s x 16 lanes x 128/130 / 8 bits = 31.5 GB/s one way, twice that both ways; none between devices.
    #[test]
    fn limits_of_links_by_hand() {
        let name: DeviceName = "cuda:0".parse().unwrap();
        let link = Some(Link {
            now: LinkState { lane_mtps: 2500, lanes: 16 },
            most: Some(LinkState { lane_mtps: 16_000, lanes: 16 }),
        });
        let copies = Copies { devices: vec![Device { link, ..Device::unknown(name) }], rows: Vec::new() };
        let limit = |route, host| copies.link_bps(CopyWork { device: name, route, host, peer: None });
        let tenths = |bps: Option<f64>| bps.map(|bps| (bps / 1e8).round());
        assert_eq!(tenths(limit(Route::ToDevice, Some(Buffer::Pinned))), Some(315.0));
        assert_eq!(tenths(limit(Route::HostBothWays, Some(Buffer::Pinned))), Some(630.0));
        assert_eq!(limit(Route::BetweenDevices, None), None);
    }
}
