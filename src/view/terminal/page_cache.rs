//! Page cache beside a kernel: a table over file sizes, and one of the cures.

use super::{
    Column, SPREAD_CAPTION, findings, flag_column, head, joined, legend, note, rate_figure, reason_lines, table,
    warnings,
};
use crate::model::Report;
use crate::model::page_cache::{CacheCurve, PageCacheRow};
use crate::units::{Bytes, percent};
use crate::view::{first_reasons, page_cache_title, ratio};

/// The answer, the tables, what limits them.
pub fn page_cache(report: &Report) -> String {
    joined([findings(report), section(report), warnings(report)])
}

/// Empty where nothing was measured beside page cache.
pub(super) fn section(report: &Report) -> String {
    let found = &report.page_cache;
    let rows = |indices: &[usize]| -> Vec<&PageCacheRow> {
        let rows = indices.iter().filter_map(|&index| found.rows.get(index));
        rows.filter(|row| row.payload_bps.is_some()).collect()
    };
    let curve = |curve: &CacheCurve| {
        let (files, cured) = (rows(&curve.rows), rows(&curve.cured));
        let mut text = String::new();
        if let Some(first) = files.first().or(cured.first()) {
            let about = format!(
                "GB/s payload, {SPREAD_CAPTION}, beside a file that the page cache holds; free: of the first thread's node, \
                 before the memory is mapped; remote: share of its pages on another node than the thread."
            );
            text = head(&page_cache_title(first)) + &note(&about);
        }
        let size =
            |row: &PageCacheRow| if row.file_bytes == Bytes(0) { "none".into() } else { row.file_bytes.to_string() };
        if !files.is_empty() {
            text += &figures(Column::right("file", files.iter().map(|row| size(row))), &files);
        }
        if let Some(first) = cured.first() {
            text += &("\n".to_string() + &head(&format!("Cures, beside {}", size(first))));
            text += &figures(Column::left("cure", cured.iter().map(|row| row.cure.to_string())), &cured);
        }
        text
    };
    let curves: Vec<String> = found.curves.iter().map(curve).collect();
    let reasons = reason_lines(&first_reasons(&found.rows));
    curves.join("\n") + &legend(&found.rows) + &reasons
}

fn figures(key: Column, rows: &[&PageCacheRow]) -> String {
    let text = |value: Option<String>| value.unwrap_or_else(|| "-".into());
    let helps = |row: &&PageCacheRow| match row.helps {
        Some(true) => "yes".to_string(),
        Some(false) => "no".into(),
        None => String::new(),
    };
    let mut columns = vec![
        key,
        Column::right("cached", rows.iter().map(|row| text(row.cached_bytes.map(|bytes| bytes.to_string())))),
        Column::right("free", rows.iter().map(|row| text(row.home_room().map(|room| room.free.to_string())))),
        Column::right("remote", rows.iter().map(|row| text(row.remote_share.map(percent)))),
        Column::right("GB/s", rows.iter().map(|row| text(row.payload_bps.as_ref().map(rate_figure)))),
        Column::right("of no file", rows.iter().map(|row| text(row.against_no_file.map(ratio)))),
        Column::left("helps", rows.iter().map(helps)),
        flag_column(rows.iter().copied()),
    ];
    columns.retain(|column| column.cells.iter().any(|cell| !cell.is_empty()));
    table(&columns)
}
