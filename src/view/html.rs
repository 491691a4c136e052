//! The report as one page that needs nothing else: no network, no server, no other file. Every number stands in a
//! table that is there without scripts; charts come on top. The chart library travels inside, compressed.

mod addrmap;
mod compare;
mod cores;
mod energy;
mod fleet;
mod latency;
mod numa;
mod page_cache;
mod pingpong;
mod roofline;
mod rounding;
mod streams;
mod verdict;

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::chart::{self, Chart};
use super::{
    ALONE, Flag, PAGES_CAPTION, SPREAD_CAPTION, TRAFFIC, alone, bound, break_even, counted_by_controllers, crossing,
    crossover_line, crossovers, element_note, gbps, kernel_reasons, level_kernels, level_row, level_threads,
    machine_line, measured_kinds, page_cost, page_works, ratio, reasons, spread, streams, threads,
};
use crate::model::{Cost, Kind, Kinds, Level, OffsetRow, PageRow, Quality, Rate, Report, Row, StreamTable};
use crate::plan::Protocol;
use crate::record::Environment;
use crate::units::{Bytes, BytesPerSecond, Nanoseconds, count, percent, significant, utc};

pub use compare::comparison;
pub use fleet::fleet;

const ECHARTS_GZ: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/echarts.js.gz"));
const SCRIPT: &str = include_str!("report.js");
const STYLE: &str = include_str!("report.css");
/// The browser itself refuses whatever would leave the page.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'";

/// The page.
pub fn page(report: &Report) -> String {
    let sections = [
        charts("bandwidth", "Bandwidth", BANDWIDTH, chart::bandwidth(report)),
        store_kinds(report),
        charts("scaling", "Scaling over threads", "Medians with their 95 % intervals.", chart::scaling(report)),
        charts("widths", "Access width", WIDTHS, chart::widths(report)),
        write_allocate(report),
        latency::section(report),
        kinds(report),
        pages(report),
        offsets(report),
        cores::handovers(report),
        cores::loaded(report),
        addrmap::section(report),
        numa::section(report),
        page_cache::section(report),
        roofline::section(report),
        energy::section(report),
        rounding::section(report),
        streams::section(report),
        pingpong::section(report),
        stream(report),
        charts("samples", "Samples", SAMPLES, chart::distributions(report)),
        verdict::section(report),
        warnings(report),
        environment(report),
        method(report),
        rows(report),
    ];
    let sections: Vec<Section> = sections.into_iter().filter(|section| !section.is_empty()).collect();
    document(&report.host, first_screen(report), &report.tool, &sections).into_string()
}

const BANDWIDTH: &str = "Payload is what the program reads and writes, as STREAM counts it; write-allocates are not in it. \
    Points are medians, whiskers their 95 % intervals. Shaded stretches are the levels found.";
const WIDTHS: &str = "Regular loads and stores; the fastest working set of each level, median with its 95 % interval.";
const ALIGNMENT: &str = "Loads and stores alone do not wait for each other. Where a load follows a store, the next store stores \
    what was loaded, so that waiting shows. Points between equal neighbours are left out.";
const SAMPLES: &str = "Each dot is one sample. A trend, steps or two groups mean that a single figure says too little.";

/// A part of the page below the first screen.
struct Section {
    id: &'static str,
    title: &'static str,
    about: &'static str,
    charts: Vec<Chart>,
    body: Option<Markup>,
}

impl Section {
    fn is_empty(&self) -> bool {
        self.charts.is_empty() && self.body.is_none()
    }
}

fn charts(id: &'static str, title: &'static str, about: &'static str, charts: Vec<Chart>) -> Section {
    Section { id, title, about, charts, body: None }
}

fn text(id: &'static str, title: &'static str, about: &'static str, body: Option<Markup>) -> Section {
    Section { id, title, about, charts: Vec::new(), body }
}

/// A page: its title, what stands above all else, what wrote it, its parts.
fn document(title: &str, first_screen: Markup, tool: &str, sections: &[Section]) -> Markup {
    let charts: Vec<&Chart> = sections.iter().flat_map(|section| &section.charts).collect();
    let data = serde_json::to_string(&charts).expect("charts have string keys only");
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                title { "membound: " (title) }
                style { (PreEscaped(STYLE)) }
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

/// JSON that ends no script element, whatever its strings hold.
fn harmless(json: &str) -> String {
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

fn first_screen(report: &Report) -> Markup {
    let machine = machine_line(&report.machine);
    html! {
        h1 { @if report.host.is_empty() { "membound report" } @else { (report.host) } }
        p.facts {
            (utc(report.started_unix_s)) " · " (report.tool)
            @if !machine.is_empty() { br; (machine) }
        }
        @if report.findings.is_empty() {
            p.lead { "No findings: nothing was measured that an answer could rest on." }
        }
        @for (index, finding) in report.findings.iter().enumerate() {
            p.lead[index == 0].finding[index > 0] { (finding) }
        }
        @if !report.warnings.is_empty() {
            p.alert { a href="#warnings" {
                @if report.warnings.len() == 1 { "1 warning" } @else { (report.warnings.len()) " warnings" }
            } " about these figures, with what helps." }
        }
        @if report.levels.iter().any(|level| !level.best.is_empty()) { (levels(report)) }
    }
}

fn contents(sections: &[Section]) -> Markup {
    html! {
        nav aria-label="Sections" { @for section in sections { a href={ "#" (section.id) } { (section.title) } } }
    }
}

fn whole(section: &Section) -> Markup {
    html! {
        section id=(section.id) {
            h2 { (section.title) }
            @if !section.about.is_empty() { p.about { (section.about) } }
            @if let Some(body) = &section.body { (body) }
            @if !section.charts.is_empty() {
                div.charts { @for chart in &section.charts { (figure(chart)) } }
            }
        }
    }
}

fn figure(chart: &Chart) -> Markup {
    html! {
        figure {
            h3 { (chart.title) }
            div.chart role="img" aria-label=(chart.label()) {}
            @if !chart.about.is_empty() { figcaption { (chart.about) } }
        }
    }
}

/// A table in a box of its own, which scrolls where the page is too narrow for it.
fn boxed(caption: &str, table: Markup) -> Markup {
    html! {
        div.box tabindex="0" role="region" aria-label=(caption) { table { caption { (caption) } (table) } }
    }
}

fn levels(report: &Report) -> Markup {
    let (kernels, counts) = (level_kernels(report), level_threads(report));
    let caption = format!("Levels. Payload of the fastest variant: {SPREAD_CAPTION}.");
    let size = |size: Option<Bytes>| size.map_or_else(|| "–".into(), |size| size.to_string());
    boxed(
        &caption,
        html! {
            thead {
                tr {
                    th rowspan="2" { "level" }
                    th colspan="2" { "capacity" }
                    @if !kernels.is_empty() {
                        @for &count in &counts { th.group colspan=(kernels.len()) { (threads(count)) ", GB/s" } }
                    }
                }
                tr {
                    th.num { "measured" } th.num { "claimed" }
                    @for _ in &counts { @for kernel in &kernels { th.num { (kernel) } } }
                }
            }
            tbody { @for level in &report.levels {
                tr {
                    th { (level.name) }
                    td.num { (size(level.capacity)) }
                    td.num { (size(level.claimed)) }
                    @for &count in &counts { @for kernel in &kernels { (level_cell(report, level, kernel, count)) } }
                }
            } }
        },
    )
}

fn level_cell(report: &Report, level: &Level, kernel: &str, count: usize) -> Markup {
    let row = level_row(report, level, kernel, count);
    let Some((row, rate)) = row.and_then(|row| Some((row, row.payload_bps?))) else {
        return html! { td.num { "–" } };
    };
    let [low, high] = rate.ci95.map(BytesPerSecond);
    html! {
        td.num title={ (row.store) " stores, width " (row.width) "; 95 % interval " (low) " to " (high) } {
            (gbps(rate.median)) " " small { (spread(&rate)) }
            @if let Some(share) = report.limits.share(row, &report.machine) {
                br; small { (percent(share)) " of the limit" }
            }
        }
    }
}

fn store_kinds(report: &Report) -> Section {
    let gain = |gain: Option<[f64; 3]>| gain.map_or_else(|| "–".into(), ratio);
    let table = || {
        boxed(
            "Against regular stores of the same width, with 95 % intervals",
            html! {
                thead { tr {
                    th { "kernel" } th.num { "threads" } th { "store" } th { "as fast as regular at" }
                    th.num { "gain at the largest working set" } th.num { "bound" }
                } }
                tbody { @for case in crossovers(report) { tr title=(crossover_line(case)) {
                    th { (case.kernel) }
                    td.num { (case.threads) }
                    td { (case.store) " " (case.width) }
                    td { (crossing(case)) }
                    td.num { (gain(case.gain)) }
                    td.num { (bound(case.bound)) }
                } } }
            },
        )
    };
    let body = (!report.crossovers.is_empty()).then(table);
    let about = "The dashed mark is where speeds are equal, the stretch around it its 95 % interval.";
    Section { body, ..charts("stores", "Store kinds", about, chart::store_kinds(report)) }
}

fn write_allocate(report: &Report) -> Section {
    let about = "A regular store first reads the line it writes. Non-temporal stores save that read, so that the two differ by the \
                 ratio of bytes, if traffic is all that counts and enough threads saturate memory.";
    let rate = |index: usize, rate: fn(&Row) -> Option<Rate>| {
        report.rows.get(index).and_then(rate).map_or_else(|| "–".into(), |rate| BytesPerSecond(rate.median).to_string())
    };
    let means = |traffic| TRAFFIC.iter().find(|(other, _)| *other == traffic).map_or("", |(_, means)| means);
    let table = || {
        boxed(
            "Write-allocate at memory level: medians; bytes of an element as counted from the loop",
            html! {
                thead { tr {
                    th { "kernel" } th.num { "threads" } th { "saturate memory" } th.num { "payload bytes" } th.num { "bus bytes" }
                    th.num { "regular, payload" } th.num { "regular, bus" } th.num { "nt, payload" }
                    th.num { "nt : regular [95 %]" } th.num { "bytes counted" } th { "so" } th { "which means" }
                    th { "memory controllers" }
                } }
                tbody { @for case in &report.write_allocate { tr {
                    th { (case.kernel) }
                    td.num { (case.threads) }
                    td { @if case.saturates { "yes" } }
                    td.num { (case.payload_bytes) }
                    td.num { (case.bus_bytes) }
                    td.num { (rate(case.regular, |row| row.payload_bps)) }
                    td.num { (rate(case.regular, |row| row.bus_bps)) }
                    td.num { (rate(case.nt, |row| row.payload_bps)) }
                    td.num { (ratio(case.gain)) }
                    td.num { (bound(case.bound)) }
                    td { (case.traffic) }
                    td { (means(case.traffic)) }
                    td { (counted_by_controllers(case).unwrap_or_else(|| "not read".into())) }
                } } }
            },
        )
    };
    text("write-allocate", "Write-allocate", about, (!report.write_allocate.is_empty()).then(table))
}

fn kinds(report: &Report) -> Section {
    let about = "Which kind should a buffer be? A first use counts from asking for the memory: mapping, page faults, zeroing. \
                 What a kind is was read back or proved, never taken on trust.";
    let body = report.kinds.as_ref().map(|kinds| kinds_table(report, kinds));
    Section { body, ..charts("kinds", "Memory kinds", about, chart::kinds(report)) }
}

fn kinds_table(report: &Report, kinds: &Kinds) -> Markup {
    let (measured, missing) = measured_kinds(kinds);
    let time = |seconds: f64| Nanoseconds(seconds * 1e9).to_string();
    let cost = |cost: Option<Cost>| match cost {
        Some(cost) => {
            html! { td.num title={ "95 % interval " (time(cost.ci95[0])) " to " (time(cost.ci95[1])) } { (time(cost.median)) } }
        }
        None => html! { td.num { "–" } },
    };
    let rate = |rate: Option<Rate>| match rate {
        Some(rate) => html! { td.num { (gbps(rate.median)) " " small { (spread(&rate)) } } },
        None => html! { td.num { "–" } },
    };
    let copied = |kind: &Kind| kind.steady.and_then(|index| report.rows.get(index)?.copied_bps);
    let (size, element) = (kinds.bytes, element_note(kinds.element));
    let caption = format!("A buffer of {size}, {}{element}; GB/s: {SPREAD_CAPTION}", threads(kinds.threads));
    html! {
        (boxed(&caption, html! {
            thead { tr {
                th { "kind" } th.num { "first copy" } th.num { "later copies" } th.num { "copied" } th.num { "gain [95 %]" }
                th { "pays after" }
                @for (name, ..) in ALONE { th.num { (name) } }
                th.num { "faults" } th.num { "ns a fault" }
            } }
            tbody { @for kind in &measured { tr {
                th { (kind.memory) }
                (cost(kind.first_s))
                (cost(kind.steady_s))
                (rate(copied(kind)))
                td.num { (kind.gain.map_or_else(|| "–".into(), ratio)) }
                td { (break_even(kind)) }
                @for (_, kernel, store, load) in ALONE {
                    (rate(alone(report, kind, kernel, store, load).and_then(|row| row.payload_bps)))
                }
                td.num { (kind.faults.map_or_else(|| "–".into(), count)) }
                td.num { (kind.fault_ns.map_or_else(|| "–".into(), significant)) }
            } } }
        }))
        details {
            summary { "How each kind is known" }
            dl.facts { @for kind in measured.iter().filter(|kind| !kind.proof.is_empty()) { dt { (kind.memory) } dd { (kind.proof) } } }
        }
        @if !missing.is_empty() {
            p { "Not measured:" }
            ul { @for kind in missing { li { (kind.memory) ": " (kind.proof) } } }
        }
    }
}

fn offsets(report: &Report) -> Section {
    let cycles =
        |row: &OffsetRow, value: fn(Cost) -> f64| row.cycles.map_or_else(|| "–".into(), |c| significant(value(c)));
    let table = || {
        html! {
            details {
                summary { "Cycles by kind of offset" }
                (boxed("Core clock cycles for each access or pair: median over the offsets of a kind, its 95 % interval", html! {
                    thead { tr {
                        th { "access" } th { "place" } th.num { "offsets" } th.num { "cycles" } th.num { "95 %" }
                        th.num { "best" } th { "remarks" }
                    } }
                    tbody { @for row in &report.offsets { tr {
                        td { (row.scan) }
                        td { (row.place) }
                        td.num { (row.count) }
                        td.num { (cycles(row, |cost| cost.median)) }
                        td.num { (cycles(row, |cost| cost.ci95[0])) " to " (cycles(row, |cost| cost.ci95[1])) }
                        td.num { (cycles(row, |cost| cost.best)) }
                        td {
                            @if let Some(fault) = row.quality.fault() { (fault) " " }
                            (row.quality.flags.join(" "))
                        }
                    } } }
                }))
            }
        }
    };
    let body = (!report.offsets.is_empty()).then(table);
    Section { body, ..charts("alignment", "Alignment", ALIGNMENT, chart::offsets(report)) }
}

fn stream(report: &Report) -> Section {
    text("stream", "STREAM table", "", report.stream.as_ref().map(stream_table))
}

fn stream_table(stream: &StreamTable) -> Markup {
    html! {
        p { (stream.title) ": arrays of " (stream.array_elements) " elements, " (threads(stream.threads)) "." }
        @if !stream.unmet.is_empty() { ul { @for rule in &stream.unmet { li { "Not met: " (rule) } } } }
        (boxed("Rates in 1e6 bytes a second, times in seconds", html! {
            thead { tr {
                th { "Function" } th { "Variant" } th.num { "Best Rate MB/s" } th.num { "Avg time" }
                th.num { "Min time" } th.num { "Max time" }
            } }
            // STREAM's own digits: its tables are compared by eye.
            tbody { @for line in &stream.lines { tr {
                th { (line.function) }
                td { (line.variant) }
                td.num { (format!("{:.1}", line.best_mbps)) }
                @for time in [line.avg_s, line.min_s, line.max_s] { td.num { (format!("{time:.6}")) } }
            } } }
        }))
        p { (stream.validation) }
    }
}

fn pages(report: &Report) -> Section {
    let number = |value: Option<f64>, text: fn(f64) -> String| value.map_or_else(|| "–".into(), text);
    let line = |row: &PageRow| {
        html! { tr {
            th { (row.work) }
            td { (row.memory) }
            td.num { (row.threads) }
            td.num { (row.page_bytes) }
            td.num { (row.page_ns.as_ref().map_or_else(|| "–".into(), page_cost)) }
            td.num { (number(row.bps.map(|rate| rate.median), gbps)) }
            td.num { (number(row.faults_per_page, significant)) }
            td { (row.quality.flags.join(" ")) }
        } }
    };
    let table = || {
        let reasons = reasons(&report.pages);
        html! {
            (boxed(&format!("Times: {SPREAD_CAPTION}"), html! {
                thead { tr {
                    th { "work" } th { "memory" } th.num { "threads" } th.num { "page" } th.num { "time a page" }
                    th.num { "GB/s" } th.num { "faults a page" } th { "remarks" }
                } }
                tbody { @for (_, rows) in page_works(report) { @for row in rows { (line(row)) } } }
            }))
            (not_measured(&reasons))
        }
    };
    let body = (!report.pages.is_empty()).then(table);
    Section { body, ..charts("pages", "What pages cost", PAGES_CAPTION, chart::pages(report)) }
}

fn warnings(report: &Report) -> Section {
    // The verdict tells of the rest.
    let others = || report.verdict.other_warnings(&report.warnings);
    let list = || {
        html! { dl.warnings { @for warning in others() { dt { (warning.text) } dd { (warning.cure) } } } }
    };
    text("warnings", "Warnings", "", others().next().is_some().then(list))
}

fn environment(report: &Report) -> Section {
    let (before, after) = (&report.before, report.end.as_ref().map(|end| &end.after));
    let both = [Some(before), after];
    let size = |size: Option<Bytes>| size.map(|size| size.to_string());
    let mut lines: Vec<(String, [Option<String>; 2])> = Vec::new();
    let mut line = |name: String, value: &dyn Fn(&Environment) -> Option<String>| {
        lines.push((name, both.map(|environment| environment.and_then(value))));
    };
    line("memory available".into(), &|e| size(e.available));
    line("page cache".into(), &|e| size(e.page_cache));
    for (node, _) in &before.node_free {
        let free = |e: &Environment| e.node_free.iter().find(|(other, _)| other == node).map(|(_, bytes)| *bytes);
        line(format!("free on node {node}"), &|e| size(free(e)));
    }
    line("load average, 1 min".into(), &|e| e.load_average.map(significant));
    line("steal since boot".into(), &|e| e.steal_s.map(|s| Nanoseconds(s * 1e9).to_string()));
    lines.retain(|(_, values)| values.iter().any(Option::is_some));
    let cell = |value: &Option<String>| value.clone().unwrap_or_else(|| "–".into());
    let table = || {
        boxed(
            "The machine's state; – where it could not be read",
            html! {
                thead { tr { th {} th.num { "before" } th.num { "after" } } }
                tbody { @for (name, values) in &lines {
                    tr { th { (name) } @for value in values { td.num { (cell(value)) } } }
                } }
            },
        )
    };
    text("environment", "Environment", "", (!lines.is_empty()).then(table))
}

fn method(report: &Report) -> Section {
    let samples = || report.rows.iter().filter(|row| row.quality.samples > 0).map(|row| row.quality.samples);
    let mut facts = vec![
        (
            "clock",
            format!(
                "{}, {}; an empty interval takes {} ticks",
                report.clock.name, report.clock.hz, report.clock.overhead_ticks
            ),
        ),
        ("seed of the order", report.seed.to_string()),
    ];
    if let (Some(least), Some(most)) = (samples().min(), samples().max()) {
        let each = if least == most { most.to_string() } else { format!("{least} to {most}") };
        facts.push(("samples", format!("{} in {} rows, {each} each", samples().sum::<usize>(), samples().count())));
    }
    match &report.end {
        Some(end) => {
            let stop = if end.interrupted { "; stopped by the user, finished cases are here" } else { "" };
            let took = Nanoseconds(end.wall_s * 1e9);
            facts.push(("run", format!("{took} for {} planned cases{stop}", end.planned)));
            facts.extend(end.peak_memory.map(|peak| ("peak memory", peak.to_string())));
        }
        None => facts.push(("run", "ended before its end was recorded; finished cases are here".into())),
    }
    let body = html! {
        dl.facts { @for (name, value) in &facts { dt { (name) } dd { (value) } } }
    };
    text("method", "How it was measured", "", Some(body))
}

/// What came of a row where it was not measured, and its flags.
fn remarks(quality: &Quality) -> Markup {
    html! { @if !quality.is_measured() { (quality.outcome) " " } (quality.flags.join(" ")) }
}

fn not_measured(reasons: &[String]) -> Markup {
    html! { @if !reasons.is_empty() { p { "Not measured:" } ul { @for reason in reasons { li { (reason) } } } } }
}

fn rows(report: &Report) -> Section {
    let reasons = kernel_reasons(&report.rows);
    let flags: BTreeSet<&str> = report.rows.iter().flat_map(|row| &row.quality.flags).map(String::as_str).collect();
    let body = || {
        html! {
            details {
                summary { (report.rows.len()) @if report.rows.len() == 1 { " row" } @else { " rows" } }
                div.rows { (boxed(&format!("Rates in GB/s: {SPREAD_CAPTION}"), html! {
                    thead { tr {
                        th { "kernel" } th { "store" } th { "load" } th { "memory" } th { "level" } th { "width" }
                        th { "working set" } th { "threads" } th { "payload" } th { "best" }
                        th { "bus" } th { "B/cycle" } th { "samples" } th { "remarks" }
                    } }
                    tbody { @for row in &report.rows { (row_line(row)) } }
                })) }
                @if !flags.is_empty() {
                    dl { @for flag in flags.into_iter().filter_map(Flag::of) { dt { (flag.word) } dd { (flag.means) } } }
                }
            }
            (not_measured(&reasons))
        }
    };
    text("rows", "All rows", "", (!report.rows.is_empty()).then(body))
}

/// A row of the large table. There may be thousands, so it holds text only: numbers are set right by their column.
fn row_line(row: &Row) -> Markup {
    let rate = |rate: Option<Rate>, value: fn(Rate) -> f64| rate.map_or_else(|| "–".into(), |r| gbps(value(r)));
    html! {
        tr {
            td { (row.kernel) } td { (row.store) @if row.misaligned_bytes > 0 { " unaligned" } } td { (row.load) }
            td { (row.asked()) (streams(row)) } td { (row.level.as_deref().unwrap_or("")) } td { (row.width) }
            td { (row.working_set_bytes) } td { (row.threads) }
            td { (rate(row.payload_bps, |r| r.median)) @if let Some(rate) = &row.payload_bps { " " (spread(rate)) } }
            td { (rate(row.payload_bps, |r| r.best)) }
            td { (rate(row.bus_bps, |r| r.median)) }
            td { (row.bytes_per_cycle.map_or_else(|| "–".into(), significant)) }
            td { (row.quality.samples) }
            td {
                @if !row.quality.is_measured() { (row.quality.outcome) " " }
                @if !row.element.is_usual() { (row.element) " " }
                @if row.protocol == Protocol::Stream { "STREAM passes " }
                @if row.protocol == Protocol::FirstUse { "first use " }
                (row.quality.flags.join(" "))
            }
        }
    }
}
