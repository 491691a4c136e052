//! Latency under load: the curve of each mix with its knee, and every load.

use crate::answer::Answer;
use crate::chart::{Axis, Chart, Point, Scale, Series, Shape, line, rounded};
use crate::experiments::loaded::rows::{LoadCurve, LoadedRow, UnderLoad};
use crate::flag::Flag;
use crate::missing::reasons;
use crate::section::{Room, Section, Table};
use crate::wording::{SPREAD_CAPTION, gbps, spread, threads, time};
use membound_core::in_order::{distinct, each_once};
use membound_core::units::{BytesPerSecond, Nanoseconds, counted, significant};
use membound_core::work::loaded::Load;

const ABOUT: &str = "One thread chases pointers through memory while the others move so many GB/s over the bus and pause in between. A \
    line is loaded before it is stored, so what these read and write is what crosses the bus.";

impl Answer for UnderLoad {
    /// What a load of memory costs while others use it.
    fn sentences(&self) -> Vec<String> {
        let measured = |load: Load| self.rows.iter().find(|row| row.load() == load && row.is_sound());
        let mut all = Vec::new();
        if let Some((row, latency)) = measured(Load::Alone).and_then(|row| Some((row, row.latency_ns?))) {
            let [low, high] = latency.ends().map(|ns| Nanoseconds(ns).to_string());
            let idle = measured(Load::Idle).and_then(|row| row.latency_ns);
            let beside =
                idle.map_or_else(String::new, |idle| format!(", {} beside idle threads", Nanoseconds(idle.value())));
            let (source, caches) = source(row);
            all.push(format!(
                "A load from {source} takes {} [{low}, {high}] where nothing else runs{beside} (one random cycle{caches}).",
                Nanoseconds(latency.value())
            ));
        }
        all.extend(self.curves.iter().filter_map(|curve| curve_sentence(self, curve)));
        all.extend(unsaturated(&self.curves));
        all.extend(doubt(self));
        all
    }

    /// The curves, and the loads that they come from.
    fn sections(&self) -> Vec<Section> {
        let rows = &self.rows;
        if rows.is_empty() {
            return Vec::new();
        }
        let measured: Vec<&LoadedRow> = rows.iter().filter(|row| row.latency_ns.is_some()).collect();
        let mixes = by_mix(self);
        let all = every_load(&measured).map(|table| match &mixes {
            Some(_) if measured.len() > SHORT => table.wide(),
            _ => table,
        });
        vec![Section {
            id: "loaded",
            title: "Latency under load".into(),
            about: ABOUT.into(),
            sentences: self.sentences(),
            tables: mixes.into_iter().chain(all).collect(),
            charts: charts(self),
            missing: reasons(rows),
            ..Section::default()
        }]
    }
}

/// What a chase loads from, and how large it is: `memory`, unless caches may hold it.
fn source(row: &LoadedRow) -> (String, String) {
    let large = |caches: String| format!(", {caches} last-level caches large");
    match row.caches {
        Some(caches) if row.quality.has(Flag::MayBeCached) => {
            (format!("{}, which caches may hold,", row.work().chase), large(significant(caches)))
        }
        caches => ("memory".into(), caches.map_or_else(String::new, |caches| large(format!("{caches:.0}")))),
    }
}

/// Of curves whose chases caches may hold.
fn doubt(loaded: &UnderLoad) -> Option<String> {
    let mut rows = loaded.curves.iter().flat_map(|curve| &curve.rows).filter_map(|&row| loaded.rows.get(row));
    let chase = rows.find(|row| row.quality.has(Flag::MayBeCached))?.work().chase;
    Some(format!("Caches may hold the chase of {chase}: latencies, knees and saturations may be a cache's."))
}

/// Said once of all curves.
fn unsaturated(curves: &[LoadCurve]) -> Option<String> {
    let is_open = |curve: &&LoadCurve| curve.saturation_bps.is_none();
    let open = each_once(curves.iter().filter(is_open).map(|curve| curve.mix.to_string()));
    let is_none = curves.iter().all(|curve| is_open(&curve));
    match &open[..] {
        [] => None,
        [_] if is_none => Some("The curve does not show where the bus saturates.".into()),
        _ if is_none => Some("None of the curves shows where the bus saturates.".into()),
        [only] => Some(format!("The curve of {only} does not show where the bus saturates.")),
        all => Some(format!("The curves of {} do not show where the bus saturates.", all.join(", "))),
    }
}

fn curve_sentence(loaded: &UnderLoad, curve: &LoadCurve) -> Option<String> {
    let last = loaded.rows.get(*curve.rows.last()?)?;
    let loaders = last.case.threads().saturating_sub(1);
    let (latency, rate) = (last.latency_ns?, BytesPerSecond(last.bus_bps?.value()));
    let [ns, low, high] = latency.interval().map(|ns| Nanoseconds(ns).to_string());
    let text = format!(
        "Beside {} that move{} {rate} ({}) it takes {ns} [{low}, {high}]",
        counted(loaders, "thread"),
        if loaders == 1 { "s" } else { "" },
        curve.mix
    );
    let saturation = match curve.saturation_bps {
        Some([at, low, high]) => {
            let [at, low, high] = [at, low, high].map(|bps| BytesPerSecond(bps).to_string());
            format!("; by a queue's fit the bus saturates at {at} [{low}, {high}]")
        }
        None => String::new(),
    };
    let knee = curve.knee_bps.map_or_else(String::new, |[at, low, high]| {
        let [at, low, high] = [at, low, high].map(|bps| BytesPerSecond(bps).to_string());
        format!(", with its knee at {at} [{low}, {high}]")
    });
    Some(format!("{text}{saturation}{knee}."))
}

/// A line a curve: its last row, and what the fit says.
fn by_mix(loaded: &UnderLoad) -> Option<Table> {
    let curves: Vec<(&LoadCurve, &LoadedRow)> =
        loaded.curves.iter().filter_map(|curve| Some((curve, loaded.rows.get(*curve.rows.last()?)?))).collect();
    let interval = |[value, low, high]: [f64; 3]| format!("{} [{}, {}]", gbps(value), gbps(low), gbps(high));
    let starved =
        |curve: &LoadCurve| Some(starved(&loaded.rows, curve)).filter(|rows| *rows > 0).map(|rows| rows.to_string());
    let table = Table::new(format!(
        "Each mix at its heaviest load, {SPREAD_CAPTION}. Most: at any load. Saturation and knee are a queue's by fit; rows whose load was \
         starved are no part of it."
    ))
    .left("mix", curves.iter().map(|(curve, _)| curve.mix.to_string()))
    .right("loading\nthreads", curves.iter().map(|(curve, _)| curve.threads.saturating_sub(1).to_string()))
    .right("GB/s", curves.iter().map(|(_, row)| rate(row)))
    .right("latency", curves.iter().map(|(_, row)| row.latency_ns.as_ref().map(time)))
    .right("most\nGB/s", curves.iter().map(|(curve, _)| gbps(curve.greatest_bps)))
    .right("saturates\nat GB/s", curves.iter().map(|(curve, _)| curve.saturation_bps.map(interval)))
    .right("knee at\nGB/s", curves.iter().map(|(curve, _)| curve.knee_bps.map(interval)))
    .right("latency\nthere", curves.iter().map(|(curve, _)| curve.knee_ns.map(|ns| Nanoseconds(ns).to_string())))
    .in_room(Room::Spare)
    .right("rows\nstarved", curves.iter().map(|(curve, _)| starved(curve)))
    .without_blanks();
    (!curves.is_empty()).then_some(table)
}

/// Rows of a curve's mix that are no part of it.
fn starved(rows: &[LoadedRow], curve: &LoadCurve) -> usize {
    let is_starved = |row: &&LoadedRow| {
        let is_ours = matches!(row.load(), Load::Mixed { mix, .. } if mix == curve.mix);
        is_ours && row.case.threads() == curve.threads && row.latency_ns.is_some() && !row.is_sound()
    };
    rows.iter().filter(is_starved).count()
}

fn rate(row: &LoadedRow) -> Option<String> {
    row.bus_bps.map(|rate| format!("{} {}", gbps(rate.value()), spread(&rate)))
}

/// Of so many loads a terminal shows each, beside a table of mixes.
const SHORT: usize = 16;

/// A line a load.
fn every_load(rows: &[&LoadedRow]) -> Option<Table> {
    let others = |load: Load| match load {
        Load::Alone => "none".into(),
        Load::Idle => "idle".into(),
        Load::Mixed { mix, .. } => mix.to_string(),
    };
    let pause = |load: Load| match load {
        Load::Mixed { delay_ns: 0, .. } => Some("none".into()),
        Load::Mixed { delay_ns, .. } => Some(format!("{delay_ns} ns")),
        Load::Alone | Load::Idle => None,
    };
    let table = Table::new("All loads, latency and bandwidth in the same time")
        .left("others", rows.iter().map(|row| others(row.load())))
        .right("other\nthreads", rows.iter().map(|row| row.case.threads().saturating_sub(1).to_string()))
        .right("pause", rows.iter().map(|row| pause(row.load())))
        .right("GB/s", rows.iter().map(|row| rate(row)))
        .right("latency", rows.iter().map(|row| row.latency_ns.as_ref().map(time)))
        .right("cycles", rows.iter().map(|row| row.latency_cycles.map(significant)))
        .flags(rows.iter().copied())
        .folded();
    (!rows.is_empty()).then_some(table)
}

/// Latency over bandwidth, a line a mix, with the knee of each: one chart a number of threads.
fn charts(loaded: &UnderLoad) -> Vec<Chart> {
    let chart = |count: usize| {
        let curves = || loaded.curves.iter().filter(move |curve| curve.threads == count).enumerate();
        let mut series: Vec<Series> = curves().map(|(index, curve)| curve_series(loaded, curve, index)).collect();
        let knees: Vec<Series> = curves().filter_map(|(index, curve)| knee(curve, index)).collect();
        let about = if knees.is_empty() {
            "No curve bends far enough for a knee within what was measured."
        } else {
            "Lone dots are knees: there bandwidth over latency is greatest, by the fit of a queue."
        };
        series.extend(knees);
        let x = Axis::new("bandwidth of the others on the bus, GB/s", "GB/s", Scale::Linear);
        let y = Axis::new("latency of a load from memory, ns", "ns", Scale::Close);
        Chart::new(format!("Latency under load, {}", threads(count)), about.into(), x, y, series)
    };
    distinct(loaded.curves.iter().map(|curve| curve.threads)).into_iter().map(chart).collect()
}

fn curve_series(loaded: &UnderLoad, curve: &LoadCurve, index: usize) -> Series {
    let point = |&row: &usize| -> Option<Point> {
        let row = loaded.rows.get(row)?;
        let rate = row.bus_bps.map_or(0.0, |rate| rate.value() / 1e9);
        let [median, low, high] = row.latency_ns?.interval().map(rounded);
        Some((rounded(rate), median, low, high, row.quality.samples))
    };
    let points = curve.rows.iter().filter_map(point).collect();
    Series { colour: index, symbol: index, ..line(curve.mix.to_string(), points) }
}

fn knee(curve: &LoadCurve, index: usize) -> Option<Series> {
    let (rate, latency) = (rounded(curve.knee_bps?[0] / 1e9), rounded(curve.knee_ns?));
    let points = vec![(rate, latency, latency, latency, 0)];
    Some(Series { shape: Shape::Dot, colour: index, symbol: 3, ..line(format!("knee {}", curve.mix), points) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::loaded::rows::LoadedFigures;
    use crate::quality::Status;
    use crate::rate::Cost;
    use membound_core::case::{Case, USUAL_MEMORY, Work, steady};
    use membound_core::kernel::mix::Mix;
    use membound_core::kernel::{StoreKind, Width};
    use membound_core::units::Bytes;
    use membound_core::work::loaded::Loaded;

    fn row(load: Load, caches: f64, flags: &[Flag]) -> LoadedRow {
        let chase = Bytes::gib(1);
        let case = steady("load", Width::Scalar, StoreKind::Regular, USUAL_MEMORY, vec![0, 1], chase);
        let (cost, rate) = (Cost::plain(38.0, 38.0, [37.0, 39.0]), Cost::plain(10e9, 10e9, [10e9; 2]));
        let figures = LoadedFigures {
            caches: Some(caches),
            latency_ns: Some(cost),
            latency_cycles: None,
            payload_bps: Some(rate),
            bus_bps: Some(rate),
            obtained: None,
        };
        let case = Case { work: Work::Loaded(Loaded { chase, load }), ..case };
        let mut row = LoadedRow::made_up(case, Status::Measured, figures);
        row.quality.flags = flags.to_vec();
        row
    }

    fn said(caches: f64, flags: &[Flag]) -> Vec<String> {
        let mix = Mix::ALL[0];
        let curve = LoadCurve {
            mix,
            threads: 2,
            rows: vec![1],
            greatest_bps: 10e9,
            idle_ns: None,
            saturation_bps: Some([12e9, 11e9, 13e9]),
            knee_bps: None,
            knee_ns: None,
        };
        let rows = vec![row(Load::Alone, caches, flags), row(Load::Mixed { mix, delay_ns: 0 }, caches, flags)];
        UnderLoad { rows, curves: vec![curve] }.sentences()
    }

    /// A guest of little memory, told of a socket's cache: 1 GiB is 0.4 of it.
    #[test]
    fn what_caches_may_hold_is_not_told_as_memory() {
        let cached = said(0.4, &[Flag::MayBeCached]);
        let expect = "A load from 1 GiB, which caches may hold, takes 38.0 ns [37.0 ns, 39.0 ns] where nothing else runs (one random cycle, \
                      0.400 last-level caches large).";
        assert_eq!(cached[0], expect);
        assert!(cached.last().unwrap().starts_with("Caches may hold the chase of 1 GiB"), "{cached:?}");
        let beyond = said(4.0, &[]);
        assert!(beyond[0].starts_with("A load from memory takes") && beyond[0].contains(", 4 last-level caches"));
        assert!(!beyond.iter().any(|sentence| sentence.starts_with("Caches may hold")), "{beyond:?}");
    }
}
