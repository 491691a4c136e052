//! The report as one page that needs nothing else: no network, no server, no other file. Every number stands in a
//! table that is there without scripts; charts come on top. The chart library travels inside, compressed.

pub mod parts;
pub mod section;

use crate::output::html::parts::{document, marked};
use maud::{Markup, PreEscaped, html};

use crate::across::sections;
use crate::across::sections::overview::Screen;
use crate::experiments::bandwidth::sections::all_rows;
use crate::output::{ending, machine_line, svg};
use crate::report::Report;
use crate::section::{Item, Section, Table};
use crate::wording::gbps;
use membound_core::record::{Clock, Environment};
use membound_core::units::{Bytes, Nanoseconds, significant, utc};

/// Columns of what is set in letters of one width.
const PAGE_COLUMNS: usize = 110;

/// The page.
pub fn page(report: &Report) -> String {
    let mut sections = Vec::new();
    let screen = Screen { columns: PAGE_COLUMNS, is_whole: true };
    let overview = sections::overview::sections(report, screen);
    // What stands above all sections is not said in one of them once more.
    let told: &[String] = if overview.is_empty() { &report.findings } else { &[] };
    for mut one in report.sections().flat_map(|(_, own)| own) {
        one.sentences.retain(|sentence| !told.contains(sentence));
        sections.push(section::drawn(one));
    }
    let [warnings, host, _, verdict] = ending(report);
    sections.extend([
        roofline(report),
        section::drawn(verdict),
        section::drawn(host),
        section::drawn(warnings),
        section::drawn(environment(report)),
        section::drawn(method(report)),
        section::drawn(all_rows(&report.rows)),
    ]);
    let sections: Vec<parts::Section> = sections.into_iter().filter(|section| !section.is_empty()).collect();
    document(&report.host, first_screen(report, &overview), &report.tool, &sections).into_string()
}

fn first_screen(report: &Report, overview: &[Section]) -> Markup {
    let machine = machine_line(&report.machine);
    html! {
        h1 { @if report.host.is_empty() { "membound report" } @else { (report.host) } }
        p.facts {
            (utc(report.started_unix_s)) " · " (report.tool)
            @if !machine.is_empty() { br; (machine) }
        }
        @match overview {
            [] => (findings(report)),
            [levels, rest @ ..] => {
                div id="overview" { p.trust { (levels.about) } (drawing(report)) }
                @for one in rest { (answer(one)) }
                (answer(&Section { id: "curve", about: String::new(), ..levels.clone() }))
            },
        }
        @if !report.warnings.is_empty() {
            p.alert { a href="#warnings" {
                @if report.warnings.len() == 1 { "1 warning" } @else { (report.warnings.len()) " warnings" }
            } " about these figures, with what helps." }
        }
    }
}

/// Sentences, where no machine was characterised.
fn findings(report: &Report) -> Markup {
    html! {
        @for (index, finding) in report.findings.iter().enumerate() {
            p.lead[index == 0].finding[index > 0] { (finding) }
        }
    }
}

/// A section of the overview: its tables, and what costs most as cards.
fn answer(one: &Section) -> Markup {
    let (about, items) = (&one.about, &one.items);
    let rest = section::drawn(Section { items: Vec::new(), ..one.clone() });
    html! {
        div id=(one.id) {
            @if one.id == "curve" { h2 { "All figures of the first screen" } } @else { h2 { (one.title) } }
            @if !about.is_empty() { p.trust { (about) } }
            @if !items.is_empty() { div.costs { @for item in items { (card(item)) } } }
            @if let Some(body) = &rest.body { (body) }
        }
    }
}

/// Levels beside each other: size, latency, and bars of what one core and all read and copy, on one scale from zero.
fn drawing(report: &Report) -> Markup {
    let pictures = sections::overview::pictures(report);
    let most = pictures.iter().flat_map(|one| &one.rates).map(|rate| rate.bps).fold(0.0, f64::max);
    let share = |bps: f64| (100.0 * bps / most).clamp(0.0, 100.0);
    html! {
        @if !pictures.is_empty() {
            ul.levels { @for (index, one) in pictures.iter().enumerate() {
                li.level style={ "--tone: var(--c" (index % 8) ")" } {
                    h3 { (one.name) }
                    div.size { (one.size) }
                    div { span.big { (one.latency) } }
                    @for rate in &one.rates {
                        small { (rate.name) " " b { (rate.shown) } " GB/s" }
                        span.bar.copy[rate.name.starts_with("copy")] style={ "--share: " (format!("{:.1}", share(rate.bps))) "%" } {}
                    }
                }
            } }
            @if most > 0.0 { p.about { "Bars: GB/s, from 0 to " (gbps(most)) "." } }
        }
    }
}

/// `64.7 x slower`, of what, and the cure.
fn card(item: &Item) -> Markup {
    let (factor, what) = item.text.split_once(": ").unwrap_or(("", &item.text));
    html! {
        div {
            b { (factor) }
            p { (marked(what)) }
            @for (_, cure) in &item.below { p.cure { (marked(cure)) } }
        }
    }
}

/// With a drawing for each thread count.
fn roofline(report: &Report) -> parts::Section {
    let drawn = section::drawn(sections::roofline::section(&report.roofline, &report.rows));
    let drawing = |count: &usize| svg::of_threads(report, *count);
    let drawings: Vec<String> = report.roofline.threads().iter().filter_map(drawing).collect();
    let body = drawn.body.map(|body| html! { @for drawing in drawings { figure { (PreEscaped(drawing)) } } (body) });
    parts::Section { body, ..drawn }
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
    let of = |time: usize| lines.iter().map(move |(_, values)| values[time].clone());
    let table = Table::new("The machine's state; – where it could not be read")
        .left("", lines.iter().map(|(name, _)| name.clone()))
        .right("before", of(0))
        .right("after", of(1));
    let tables = if lines.is_empty() { Vec::new() } else { vec![table] };
    Section { id: "environment", title: "Environment".into(), tables, ..Section::default() }
}

fn method(report: &Report) -> Section {
    let samples = || report.rows.iter().filter(|row| row.quality.samples > 0).map(|row| row.quality.samples);
    let Clock { name, hz, overhead_ticks } = &report.clock;
    let mut facts = vec![
        ("clock", format!("{name}, {hz}; an empty interval takes {overhead_ticks} ticks")),
        ("seed of the order", report.seed.to_string()),
    ];
    if let (Some(least), Some(most)) = (samples().min(), samples().max()) {
        let each = if least == most { most.to_string() } else { format!("{least} to {most}") };
        facts.push(("samples", format!("{} in {} rows, {each} each", samples().sum::<usize>(), samples().count())));
    }
    match &report.end {
        Some(end) => {
            let stop = match (end.interrupted, end.overran) {
                (_, true) => "; stopped after twice its budget, finished cases are here",
                (true, false) => "; stopped by the user, finished cases are here",
                (false, false) => "",
            };
            let took = Nanoseconds(end.wall_s * 1e9);
            facts.push(("run", format!("{took} for {} planned cases{stop}", end.planned)));
            facts.extend(end.peak_memory.map(|peak| ("peak memory", peak.to_string())));
        }
        None => facts.push(("run", "ended before its end was recorded; finished cases are here".into())),
    }
    let facts = facts.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
    Section { id: "method", title: "How it was measured".into(), facts, ..Section::default() }
}
