//! Bandwidth over the size of messages: measured, and by the model.

use std::collections::BTreeSet;

use super::{Axis, Chart, LEAST_SIZES, MOST_LINES, Mark, Point, Scale, Series, Shape, line, rounded};
use crate::model::Report;
use crate::model::pingpong::{PathModel, PingPongRow, title};
use crate::plan::{Buffers, MessageMode, MessagePath};
use crate::units::Bytes;

/// A chart for each path and kind of buffers.
pub(in crate::view) fn pingpong(report: &Report) -> Vec<Chart> {
    let kinds = report.messages.kinds();
    kinds.into_iter().filter_map(|(path, buffers)| of_path(report, path, buffers)).collect()
}

fn of_path(report: &Report, path: MessagePath, buffers: Buffers) -> Option<Chart> {
    let rows: Vec<&PingPongRow> = report.messages.of(path, buffers).filter(|row| row.payload_bps.is_some()).collect();
    let ways: BTreeSet<(MessageMode, usize)> = rows.iter().map(|row| (row.mode, row.pairs)).collect();
    let curve = |(index, &(mode, pairs)): (usize, &(MessageMode, usize))| {
        let ours = rows.iter().filter(|row| (row.mode, row.pairs) == (mode, pairs));
        let name = match mode {
            MessageMode::PingPong => format!("{pairs}-{pairs}"),
            mode => format!("{mode} {pairs}-{pairs}"),
        };
        Series {
            colour: index,
            symbol: mode as usize,
            // One pair's stream and exchange tell the model; the legend brings them in.
            shown: index < MOST_LINES && mode == MessageMode::PingPong,
            ..line(name, ours.filter_map(|row| point(row)).collect())
        }
    };
    let mut series: Vec<Series> = ways.iter().enumerate().map(curve).collect();
    let only = ways.iter().all(|(mode, _)| *mode != MessageMode::PingPong);
    series.iter_mut().for_each(|series| series.shown |= only);
    if !series.iter().any(|series| series.points.len() >= LEAST_SIZES) {
        return None;
    }
    let model = report.messages.model(path, buffers).filter(|model| model.model.alone.holds());
    let measured: BTreeSet<Bytes> = rows.iter().map(|row| row.message_bytes).collect();
    let measured: Vec<f64> = measured.into_iter().map(|bytes| bytes.0 as f64).collect();
    if let Some(model) = model {
        let by_model = |(index, &(mode, pairs)): (usize, &(MessageMode, usize))| {
            let points = predicted(model, pairs, &measured);
            let dashed = Series {
                shape: Shape::Curve,
                colour: index,
                dash: 1,
                ..line(format!("{pairs}-{pairs} model"), points)
            };
            (mode == MessageMode::PingPong).then_some(dashed)
        };
        let lines: Vec<Series> = ways.iter().enumerate().filter_map(by_model).collect();
        series.extend(lines);
    }
    let (x, y) =
        (Axis::new("bytes of a message", "", Scale::Sizes), Axis::new("bandwidth, GB/s", "GB/s", Scale::Linear));
    let about = "1-1: one pair alone; 2-2: two pairs at once. Steps of the model beyond the limit of a chunk come from the last, shorter \
                 chunk.";
    let about = if model.is_some_and(|model| model.model.limit.is_some()) { about.into() } else { String::new() };
    let chart = Chart::new(format!("Bandwidth: {}", title(path, buffers)), about, x, y, series);
    Some(Chart { marks: model.map_or_else(Vec::new, marks), ..chart })
}

fn point(row: &PingPongRow) -> Option<Point> {
    let rate = row.payload_bps?;
    let [median, low, high] = [rate.median, rate.ci95[0], rate.ci95[1]].map(|bps| rounded(bps / 1e9));
    Some((row.message_bytes.0 as f64, median, low, high, row.quality.samples))
}

/// One and two pairs at eight sizes an octave, so that steps show. What three and more do changes from size to size beyond the
/// limit of a chunk: they are drawn where they were measured.
fn predicted(model: &PathModel, pairs: usize, measured: &[f64]) -> Vec<Point> {
    let [low, high] = [measured.first(), measured.last()].map(|end| end.copied().unwrap_or(1.0));
    let fine = || {
        let sizes = (0..).map(|step| (low * (f64::from(step) / 8.0).exp2()).round());
        sizes.take_while(|bytes| *bytes <= high).collect()
    };
    let mut sizes: Vec<f64> = if pairs < 3 { fine() } else { measured.to_vec() };
    sizes.dedup();
    let at = |bytes: f64| {
        let rate = rounded(pairs as f64 * bytes / model.model.one_way_s(bytes, pairs) / 1e9);
        (bytes, rate, rate, rate, 0)
    };
    sizes.into_iter().map(at).collect()
}

/// Where regimes change, caches end and chunks begin.
fn marks(model: &PathModel) -> Vec<Mark> {
    let alone = &model.model.alone;
    let size = |bytes: f64| Bytes(bytes.round() as u64);
    let mark = |what: &str, [at, from, to]: [f64; 3]| Mark { name: format!("{what} {}", size(at)), at, from, to };
    let switches =
        alone.regimes.iter().filter_map(|regime| regime.to).map(|[last, next]| mark("switch", [last, last, next]));
    let caches = alone.caches.iter().map(|cache| mark("cache", cache.capacity));
    let chunks = model.model.limit.map(|limit| mark("chunks of", limit.value));
    switches.chain(caches).chain(chunks).collect()
}
