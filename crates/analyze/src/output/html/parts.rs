//! Parts of a page.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::chart::Chart;
use membound_core::json::text;

/// A part of the page below the first screen.
pub(crate) struct Section {
    pub(crate) id: &'static str,
    pub(crate) title: String,
    pub(crate) about: String,
    pub(crate) charts: Vec<Chart>,
    pub(crate) body: Option<Markup>,
}

impl Section {
    pub(crate) fn is_empty(&self) -> bool {
        self.charts.is_empty() && self.body.is_none()
    }
}

/// A table in a box of its own, which scrolls where the page is too narrow for it.
pub(crate) fn boxed(caption: &str, classes: &str, table: Markup) -> Markup {
    region("box", caption, classes, table)
}

/// The same with the tools that find, sort and take along its rows.
pub(crate) fn sortable(caption: &str, classes: &str, table: Markup) -> Markup {
    region("box sortable", caption, classes, table)
}

/// Without a caption there is no strip for one.
fn region(kind: &str, caption: &str, classes: &str, table: Markup) -> Markup {
    let label = Some(caption).filter(|caption| !caption.is_empty());
    html! {
        div class=(kind) tabindex="0" role="region" aria-label=[label] {
            table class=(classes) { @if let Some(caption) = label { caption { (caption) } } (table) }
        }
    }
}

/// What stands between backticks is to be typed.
pub(crate) fn marked(text: &str) -> Markup {
    let parts: Vec<&str> = text.split('`').collect();
    html! {
        @if parts.len().is_multiple_of(2) { (text) } @else {
            @for (place, part) in parts.iter().enumerate() { @if place % 2 == 1 { code { (part) } } @else { (part) } }
        }
    }
}

pub(crate) const ECHARTS_GZ: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/echarts.js.gz"));

pub(crate) const SCRIPT: &str = include_str!("report.js");

pub(crate) const STYLE: &str = include_str!("report.css");

/// The browser itself refuses whatever would leave the page.
pub(crate) const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'";

/// A page: its title, what stands above all else, what wrote it, its parts.
pub(crate) fn document(title: &str, first_screen: Markup, tool: &str, sections: &[Section]) -> Markup {
    let charts: Vec<&Chart> = sections.iter().flat_map(|section| &section.charts).collect();
    let data = text(&charts);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                title { "membound: " (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(columns_to_the_right())) }
            }
            body {
                header { (first_screen) }
                (contents(sections))
                noscript { p.note { "Charts need JavaScript; the tables hold every number." } }
                p.note #fault hidden {}
                main { @for section in sections { (whole(section)) } }
                footer { (tool) ". One file: keep it, send it; it fetches nothing." }
                script #data type="application/json" { (PreEscaped(harmless(&data))) }
                @if !charts.is_empty() {
                    script #library type="text/plain" { (PreEscaped(STANDARD.encode(ECHARTS_GZ))) }
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
}

/// What the classes `r1`, `r2` and so on of a table mean: text on the right in that column.
fn columns_to_the_right() -> String {
    const MOST: usize = 40;
    let of_column = |n| format!(".r{n}>tbody>tr>:nth-child({n})");
    (1..=MOST).map(of_column).collect::<Vec<_>>().join(",") + "{text-align:right}"
}

/// JSON that ends no script element, whatever its strings hold.
pub(crate) fn harmless(json: &str) -> String {
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

pub(crate) fn contents(sections: &[Section]) -> Markup {
    html! {
        nav aria-label="Sections" { @for section in sections { a href={ "#" (section.id) } { (section.title) } } }
    }
}

pub(crate) fn whole(section: &Section) -> Markup {
    html! {
        section id=(section.id) {
            // The script closes all but the first: without it everything is in sight.
            details.part open {
                summary { h2 { (section.title) } }
                @if !section.about.is_empty() { p.about { (marked(&section.about)) } }
                @if !section.charts.is_empty() {
                    div.charts { @for chart in &section.charts { (figure(chart)) } }
                }
                @if let Some(body) = &section.body { (body) }
            }
        }
    }
}

pub(crate) fn figure(chart: &Chart) -> Markup {
    html! {
        figure {
            h3 { (chart.title) }
            div.chart role="img" aria-label=(chart.label()) {}
            @if !chart.about.is_empty() { figcaption { (chart.about) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_set_as_such() {
        assert_eq!(marked("see `--all`, <b>").into_string(), "see <code>--all</code>, &lt;b&gt;");
        assert_eq!(marked("a ` alone").into_string(), "a ` alone");
    }
}
