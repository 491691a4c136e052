//! Page cache beside a kernel.

use maud::{Markup, html};

use super::{SPREAD_CAPTION, Section, boxed, chart, charts, gbps, not_measured, ratio, remarks, spread};
use crate::model::Report;
use crate::model::page_cache::PageCacheRow;
use crate::plan::Cure;
use crate::units::{Bytes, percent};
use crate::view::{first_reasons, page_cache_title};

const ABOUT: &str = "A file fills the page cache, then each thread maps fresh memory and runs the kernel over it. Where the page cache \
    leaves a node no room, the kernel takes pages from another one rather than give it up.";

pub(super) fn section(report: &Report) -> Section {
    let found = &report.page_cache;
    let reasons = first_reasons(&found.rows);
    let rows = |indices: &[usize]| indices.iter().filter_map(|&index| found.rows.get(index)).collect::<Vec<_>>();
    let body = || {
        html! {
            @for curve in &found.curves {
                (figures(&rows(&curve.rows), "Without a cure"))
                @if !curve.cured.is_empty() { (figures(&rows(&curve.cured), "Cures")) }
            }
            (not_measured(&reasons))
        }
    };
    let body = (!found.rows.is_empty()).then(body);
    Section { body, ..charts("page-cache", "Page cache", ABOUT, chart::page_cache(report)) }
}

fn figures(rows: &[&PageCacheRow], what: &str) -> Markup {
    let Some(first) = rows.first() else { return html! {} };
    let caption = format!("{what}: {}. Speeds: {SPREAD_CAPTION}", page_cache_title(first));
    let is_cured = first.cure != Cure::Nothing;
    boxed(
        &caption,
        html! {
            thead { tr {
                th { "file" } @if is_cured { th { "cure" } th { "helps" } }
                th.num { "GB/s" } th.num { "of no file [95 %]" } th.num { "remote pages" }
                th.num { "cached" } th { "free on nodes" } th { "remarks" }
            } }
            tbody { @for row in rows { (figure(row, is_cured)) } }
        },
    )
}

fn figure(row: &PageCacheRow, is_cured: bool) -> Markup {
    let free: Vec<String> = row.nodes.iter().map(|node| format!("{}: {}", node.node, node.free)).collect();
    html! {
        tr {
            th { @if row.file_bytes == Bytes(0) { "none" } @else { (row.file_bytes) } }
            @if is_cured {
                td { (row.cure) }
                td { @match row.helps { Some(true) => "yes", Some(false) => "no", None => "–" } }
            }
            td.num { @if let Some(rate) = &row.payload_bps { (gbps(rate.median)) " " small { (spread(rate)) } } @else { "–" } }
            td.num { (row.against_no_file.map_or_else(|| "–".into(), ratio)) }
            td.num { (row.remote_share.map_or_else(|| "–".into(), percent)) }
            td.num { (row.cached_bytes.map_or_else(|| "–".into(), |bytes| bytes.to_string())) }
            td { (free.join(", ")) }
            td { (remarks(&row.quality)) }
        }
    }
}
