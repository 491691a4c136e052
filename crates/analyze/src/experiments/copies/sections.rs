//! Copies between the host's memory and devices': a line a route, and bandwidth over size.

use crate::answer::Answer;
use crate::chart::{Axis, Chart, LEAST_POINTS, MOST_LINES, Point, Scale, Series, line, rounded};
use crate::experiments::copies::rows::{Copies, CopyRow};
use crate::missing::reasons;
use crate::section::{Cell, Room, Section, Table};
use membound_core::machine::devices::{Device, DeviceName};
use membound_core::units::{Bytes, BytesPerSecond, percent};
use membound_core::work::copies::{CopyWork, Route};

impl Answer for Copies {
    fn sentences(&self) -> Vec<String> {
        self.devices.iter().filter_map(|device| fastest(self, device.name)).collect()
    }

    fn sections(&self) -> Vec<Section> {
        if self.rows.is_empty() {
            return Vec::new();
        }
        let device = |device: &Device| {
            let link = device.link.map_or_else(String::new, |link| format!(", {link}"));
            format!("{}: {} ({}, {}){link}", device.name, device.title, device.kind, device.driver)
        };
        vec![Section {
            id: "copies",
            title: "Copies between the host's memory and devices'".into(),
            about: "Each byte that arrives counts once; of both ways (<->) those of both. A copy is timed from giving the command \
                    to its end. A spread \
                    beside a figure (~ of a range: too few visits) is shown where it is wide."
                .into(),
            sentences: self.sentences(),
            tables: if self.rows.iter().any(|row| row.ns.is_some()) { vec![table(self)] } else { Vec::new() },
            charts: chart(self).into_iter().collect(),
            // One that is not there has no title.
            notes: self.devices.iter().filter(|found| !found.title.is_empty()).map(device).collect(),
            missing: reasons(&self.rows),
            ..Section::default()
        }]
    }
}

/// The rate of a row, where it holds.
fn known(row: &CopyRow) -> Option<f64> {
    row.sound(row.copied_bps).map(|rate| rate.value())
}

/// The row of one size; nothing where that was not measured, or can't be right.
fn at<'a>(rows: &[&'a CopyRow], size: Option<Bytes>) -> Option<&'a CopyRow> {
    rows.iter().copied().find(|row| Some(row.case.working_set) == size && row.quality.is_measured())
}

/// A line a route: what the smallest copies take, how fast the largest are, and where half of the best rate is reached.
fn table(copies: &Copies) -> Table {
    let routes = copies.routes();
    let sizes = || copies.rows.iter().map(|row| row.case.working_set);
    let (small, large) = (sizes().min(), sizes().max());
    let head = |size: Option<Bytes>, unit: &str| format!("{}\n{unit}", size.unwrap_or(Bytes(0)));
    Table::new("Each route, one command at a time")
        .left("route", routes.iter().map(|(work, _)| work.ends()))
        .right(&head(small, "takes"), routes.iter().map(|(_, rows)| at(rows, small)?.ns.map(Cell::time)))
        .right(&head(large, "GB/s"), routes.iter().map(|(_, rows)| at(rows, large)?.copied_bps.map(Cell::gbps_if_sure)))
        .right("of its\nlink", routes.iter().map(|(work, rows)| share(copies, *work, at(rows, large)?)))
        .right("best\nGB/s", routes.iter().map(|(_, rows)| best(rows)?.copied_bps.map(Cell::gbps_if_sure)))
        .right("at", routes.iter().map(|(_, rows)| best_size(rows)))
        .right("half of it\nfrom", routes.iter().map(|(_, rows)| Some(half(rows)?.to_string())))
        .in_room(Room::Wide)
        .without_blanks()
}

fn share(copies: &Copies, work: CopyWork, row: &CopyRow) -> Option<String> {
    Some(percent(row.copied_bps?.value() / copies.link_bps(work)?))
}

fn best<'a>(rows: &[&'a CopyRow]) -> Option<&'a CopyRow> {
    let known = rows.iter().filter_map(|row| Some((*row, known(row)?)));
    known.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(row, _)| row)
}

/// Where it is. Of a single size there is no best.
fn best_size(rows: &[&CopyRow]) -> Option<String> {
    let size = best(rows)?.case.working_set;
    let is_single = rows.iter().filter(|row| known(row).is_some()).count() == 1;
    Some(if is_single { format!("{size} only") } else { size.to_string() })
}

/// The smallest size that reaches half of the best rate.
fn half(rows: &[&CopyRow]) -> Option<Bytes> {
    let enough = best(rows)?.copied_bps?.value() / 2.0;
    let reaches = |row: &&&CopyRow| known(row).is_some_and(|bps| bps >= enough);
    rows.iter().find(reaches).map(|row| row.case.working_set)
}

/// From and to which memory of the host copies are fastest, at the largest size that was copied to the device.
fn fastest(copies: &Copies, device: DeviceName) -> Option<String> {
    let of = |route: Route| {
        let is_it = move |row: &&CopyRow| (row.work().device, row.work().route) == (device, route);
        copies.rows.iter().filter(is_it).filter(|row| known(row).is_some())
    };
    let size = of(Route::ToDevice).map(|row| row.case.working_set).max()?;
    let fastest = |route: Route| {
        let all: Vec<&CopyRow> = of(route).filter(|row| row.case.working_set == size).collect();
        let row = best(&all)?;
        Some((row.work().host?, row.copied_bps?.value()))
    };
    let (kind, to) = fastest(Route::ToDevice)?;
    let back = fastest(Route::FromDevice)
        .map_or_else(String::new, |(kind, bps)| format!(", and come back at {} (to {kind})", BytesPerSecond(bps)));
    let both = fastest(Route::HostBothWays)
        .map_or_else(String::new, |(_, bps)| format!("; both ways at once it is {} in sum", BytesPerSecond(bps)));
    let faster = faster(&of(Route::ToDevice).collect::<Vec<_>>(), to).unwrap_or_default();
    let to = BytesPerSecond(to);
    Some(format!(
        "{device}: {size}, the largest copied to it, go there at {to} (from {kind} memory){back}{both}{faster}."
    ))
}

/// The best rate of these rows, where a size reaches more than the largest does: `; the best size is 2 MiB, with 10.5 GB/s (from
/// regular memory)`.
fn faster(rows: &[&CopyRow], largest_bps: f64) -> Option<String> {
    let row = best(rows)?;
    let (kind, bps) = (row.work().host?, row.copied_bps?.value());
    let told =
        || format!("; the best size is {}, with {} (from {kind} memory)", row.case.working_set, BytesPerSecond(bps));
    (bps > largest_bps).then(told)
}

fn chart(copies: &Copies) -> Option<Chart> {
    let curve = |(index, (work, rows)): (usize, &(CopyWork, Vec<&CopyRow>))| {
        let points = rows.iter().filter_map(|row| point(row)).collect();
        Series { colour: index, symbol: work.route as usize, shown: index < MOST_LINES, ..line(work.ends(), points) }
    };
    let series: Vec<Series> = copies.routes().iter().enumerate().map(curve).collect();
    if !series.iter().any(|series| series.points.len() >= LEAST_POINTS) {
        return None;
    }
    let (x, y) = (Axis::new("bytes of a copy", "", Scale::Sizes), Axis::new("copied, MB/s", "MB/s", Scale::Log));
    let about = "Where a line rises steadily, a copy's overhead decides; where it is level, the path does.".into();
    Some(Chart::new("Bandwidth of copies over their size".into(), about, x, y, series))
}

fn point(row: &CopyRow) -> Option<Point> {
    let [median, low, high] = row.sound(row.copied_bps)?.interval().map(|bps| rounded(bps / 1e6));
    Some((row.case.working_set.0 as f64, median, low, high, row.quality.samples))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::copies::rows::CopyFigures;
    use crate::quality::Status;
    use crate::rate::Cost;
    use membound_core::case::{Case, USUAL_MEMORY, Work, steady};
    use membound_core::kernel::{StoreKind, Width};
    use membound_core::work::device::Buffer;

    #[test]
    fn a_copy_that_came_out_wrong_is_not_the_best() {
        let row = |host, outcome, bps: f64| {
            let work =
                CopyWork { device: "cuda:0".parse().unwrap(), route: Route::ToDevice, host: Some(host), peer: None };
            let case = Case {
                work: Work::Copies(work),
                ..steady("copy", Width::Scalar, StoreKind::Regular, USUAL_MEMORY, vec![0], Bytes::mib(2))
            };
            let ns = Cost::plain(1e9 / bps, 1e9 / bps, [1e9 / bps; 2]);
            CopyRow::made_up(case, outcome, CopyFigures { ns: Some(ns), copied_bps: Some(ns.each(|ns| 1e9 / ns)) })
        };
        let rows = vec![row(Buffer::Pinned, Status::Invalid, 20e9), row(Buffer::Regular, Status::Measured, 10e9)];
        assert_eq!(rows.iter().map(|row| point(row).is_some()).collect::<Vec<_>>(), [false, true]);
        let copies = Copies { devices: Vec::new(), rows };
        let said = fastest(&copies, "cuda:0".parse().unwrap()).unwrap();
        assert!(said.contains("10.0 GB/s (from regular memory)"), "{said}");
    }
}
