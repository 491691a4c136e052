//! Many streams at once: a heat map of each way of touching them.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::{Section, boxed, gbps, not_measured, text};
use crate::model::Report;
use crate::model::streams::StreamMap;
use crate::units::{Bytes, significant};
use crate::view::reasons;

const ABOUT: &str = "Each stream starts so many bytes further in its huge page than the one before. Colour deepens as speed falls below \
    the map's fastest. Bold: faster or slower than at offset 0 for certain, all offsets compared at once (95 %).";
/// Share of the heat's colour where nothing moves: text on it must stay readable, in light and dark.
const HEAT_MOST: f64 = 60.0;

pub(super) fn section(report: &Report) -> Section {
    let reasons = reasons(&report.congestion.rows);
    let body = || {
        html! {
            @for map in &report.congestion.maps { p { (map.sentence()) } (heat_map(report, map)) }
            (not_measured(&reasons))
        }
    };
    text("streams", "Streams and offsets", ABOUT, (!report.congestion.rows.is_empty()).then(body))
}

fn heat_map(report: &Report, map: &StreamMap) -> Markup {
    let rows = report.congestion.of(map);
    let offsets: BTreeSet<u32> = rows.iter().map(|row| row.offset_bytes).collect();
    let counts: BTreeSet<u32> = rows.iter().map(|row| row.streams).collect();
    let greatest = report.congestion.greatest(map).0.max(1.0);
    let cell = |streams: u32, offset: u32| {
        let row = rows.iter().find(|row| (row.streams, row.offset_bytes) == (streams, offset));
        let Some((row, rate)) = row.and_then(|row| Some((row, row.payload_bps?))) else { return html! { td {} } };
        let heat = HEAT_MOST * (1.0 - rate.median / greatest).clamp(0.0, 1.0);
        let over = row.over_aligned.map_or_else(String::new, |[ratio, low, high]| {
            format!("{} x offset 0 [{}, {}]", significant(ratio), significant(low), significant(high))
        });
        let is_certain = row.over_aligned.is_some_and(|[_, low, high]| low > 1.0 || high < 1.0);
        let [low, high] = rate.ci95.map(gbps);
        html! {
            td.num.heat style={ "--heat: " (format!("{heat:.0}%")) } title={ "95 % interval " (low) " to " (high) " GB/s; " (over) } {
                @if is_certain { b { (gbps(rate.median)) } } @else { (gbps(rate.median)) }
            }
        }
    };
    boxed(
        &format!("{}, {}: GB/s payload, fastest {}", map.touch, map.working_set, gbps(greatest)),
        html! {
            thead { tr { th { "offset" } @for streams in &counts { th.num { (streams) } } } }
            tbody { @for &offset in &offsets { tr {
                th { (Bytes(offset.into())) }
                @for &streams in &counts { (cell(streams, offset)) }
            } } }
        },
    )
}
