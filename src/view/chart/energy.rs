//! Joules for each gigabyte, a bar each kernel.

use super::{Axis, Chart, Limit, Scale, Series, Shape, line, rounded};
use crate::model::Report;
use crate::model::energy::EnergyRow;
use crate::units::significant;
use crate::view::energy_meters;

/// A chart for each meter.
pub(in crate::view) fn energy(report: &Report) -> Vec<Chart> {
    energy_meters(report).iter().filter_map(|(meter, rows)| of_meter(meter, rows)).collect()
}

fn of_meter(meter: &str, rows: &[&EnergyRow]) -> Option<Chart> {
    let moving: Vec<&&EnergyRow> = rows.iter().filter(|row| row.payload_j_per_gb.is_some()).collect();
    let name = |row: &&&EnergyRow| {
        let store = row.store.map_or_else(String::new, |store| store.to_string());
        format!("{} {store} {}", row.kernel, row.working_set_bytes)
    };
    let bars = |name: &str, colour: usize, of: fn(&EnergyRow) -> Option<crate::model::Cost>| {
        let point = |(at, row): (usize, &&&EnergyRow)| {
            let cost = of(row)?;
            let [low, high] = cost.ci95.map(|end| rounded(end.max(0.0)));
            Some((at as f64, rounded(cost.median), low, high, row.quality.samples))
        };
        let points = moving.iter().enumerate().filter_map(point).collect();
        Series { shape: Shape::Bar, colour, ..line(name.into(), points) }
    };
    let series =
        vec![bars("payload", 0, |row| row.payload_j_per_gb), bars("beyond idle", 1, |row| row.beyond_idle_j_per_gb)];
    let series: Vec<Series> = series.into_iter().filter(|series| !series.points.is_empty()).collect();
    let x = Axis {
        names: moving.iter().map(name).collect(),
        ..Axis::new("kernel, store kind, working set", "", Scale::Names)
    };
    let y = Axis::new("J for each GB of payload", "J/GB", Scale::Linear);
    // The cheapest that was seen is what the others are to be held against.
    let least =
        moving.iter().filter_map(|row| row.payload_j_per_gb).map(|cost| cost.median).fold(f64::INFINITY, f64::min);
    let limit = Limit { name: format!("least {}", significant(least)), at: least };
    let chart = Chart::new(format!("Energy of moving a gigabyte, {meter}"), String::new(), x, y, series);
    (!moving.is_empty()).then_some(Chart { limits: vec![limit], ..chart })
}
