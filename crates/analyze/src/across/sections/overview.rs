//! The first screen: the machine's answer in forty lines. What it rests on, all sections tell.

use std::collections::BTreeSet;

use crate::across::host_states::HostStates;
use crate::across::losses::{Loss, losses};
use crate::experiments::bandwidth::levels::{load_curve, standing};
use crate::experiments::bandwidth::rows::BandwidthRow;
use crate::flag::Flag;
use crate::hierarchy::names::{Level, LevelLatency, SIZES_FOR_LEVELS};
use crate::quality::Quality;
use crate::rate::Rate;
use crate::report::Report;
use crate::section::{Item, Section, Table};
use crate::wording::{apart, farther, gbps, some, spread_as, threads, times};
use membound_core::kernel::StoreKind;
use membound_core::stats::states::{Ends, VISITS_MIN};
use membound_core::units::{Bytes, counted, percent, significant};

/// Losses that are shown.
const LOSSES: usize = 5;
/// A figure is sure when its interval ends within this share of it.
const SURE: f64 = 0.03;
/// From so many columns on the table has room for stores.
const WITH_STORES: usize = 100;
/// Heights that a character can show.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Where the answer stands.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    /// How wide the curve is drawn.
    pub columns: usize,
    /// Whether all sections follow.
    pub is_whole: bool,
}

/// What the whole report comes to: levels, how far to trust them, what costs most. Nothing where no machine was
/// characterised: there is neither a curve of loads nor a latency beside them.
pub fn sections(report: &Report, Screen { columns, is_whole }: Screen) -> Vec<Section> {
    let figures = Figures::of(report);
    if load_curve(&report.rows).len() < SIZES_FOR_LEVELS && !figures.characterise() {
        return Vec::new();
    }
    let levels = Section {
        id: "overview",
        title: heading(report),
        about: figures.trust(report),
        tables: figures.table(columns).into_iter().collect(),
        verbatim: figures.curve(columns),
        ..Section::default()
    };
    let found = losses(report);
    let costs = Section {
        id: "costs",
        title: if found.is_empty() { String::new() } else { "What costs most here, and the cure".into() },
        items: found.iter().take(LOSSES).map(item).collect(),
        notes: left_out(report).into_iter().chain(not_measured(report, is_whole)).collect(),
        ..Section::default()
    };
    [levels, roofline(report), costs].into_iter().filter(|section| !section.is_empty()).collect()
}

/// What kernels could reach, where that was asked for by name: a run of all experiments has more to say first.
fn roofline(report: &Report) -> Section {
    let answer = report.roofline.answer().filter(|_| !report.is_of_all());
    let title = if answer.is_some() { "Roofline".into() } else { String::new() };
    Section { id: "ridge", title, notes: answer.into_iter().collect(), ..Section::default() }
}

/// `membound 0.1.0 on AMD EPYC, ..., 59 s, 812 of 934 cases`
fn heading(report: &Report) -> String {
    let wall = report.end.as_ref().map_or(String::new(), |end| format!(", {:.0} s", end.wall_s));
    format!("{} on {}{wall}{}", report.tool, report.machine.summary(), visited(report))
}

/// How much of the plan was visited.
fn visited(report: &Report) -> String {
    let Some(end) = &report.end else { return format!(", {}", counted(report.visited, "case")) };
    match report.visited < end.planned {
        true => format!(", {} of {}", report.visited, counted(end.planned, "case")),
        false => format!(", all of {}", counted(end.planned, "case")),
    }
}

fn item(loss: &Loss) -> Item {
    let factor = if loss.factor[1] == loss.factor[2] {
        format!("{} x", significant(loss.factor[0]))
    } else {
        times(loss.factor)
    };
    Item { text: format!("{factor} {}: {}", loss.than, loss.what), below: vec![("cure", loss.cure.clone())] }
}

/// Rows of one core and of all.
type Pair<'a> = [Option<&'a BandwidthRow>; 2];

/// What the table of levels shows of one of them.
struct Line<'a> {
    level: &'a Level,
    /// With regular stores, by one core and by all.
    read: Pair<'a>,
    write: Pair<'a>,
    copy: Pair<'a>,
    latency: Option<LevelLatency>,
}

/// A rate of the table, and what stands behind it.
struct ShownFigure<'a> {
    name: String,
    rate: Rate,
    is_of_few: bool,
    quality: &'a Quality,
}

struct Figures<'a> {
    report: &'a Report,
    lines: Vec<Line<'a>>,
    /// Copies in memory with non-temporal stores.
    nt: Pair<'a>,
    /// The most threads that anything ran with.
    most: usize,
}

impl<'a> Figures<'a> {
    fn of(report: &'a Report) -> Self {
        let most = report.rows.iter().map(BandwidthRow::threads).max().unwrap_or(1);
        let pair = |of: &dyn Fn(usize) -> Option<&'a BandwidthRow>| [of(1), of(most).filter(|_| most > 1)];
        let line = |level: &'a Level| {
            let of_store = |kernel, is_nt| pair(&|threads| best(report, level, kernel, threads, is_nt));
            Line {
                level,
                read: of_store("load", false),
                write: of_store("store", false),
                copy: of_store("copy", false),
                latency: level.latency,
            }
        };
        let memory = report.levels.iter().find(|level| level.name == "memory");
        let nt = memory.map_or([None, None], |level| pair(&|threads| best(report, level, "copy", threads, true)));
        Figures { report, lines: report.levels.iter().map(line).collect(), nt, most }
    }

    /// Whether a run that had no time for a curve looked at levels nevertheless: loads and latency, each in two of them.
    fn characterise(&self) -> bool {
        let seen = |is_there: &dyn Fn(&Line<'a>) -> bool| self.lines.iter().filter(|line| is_there(line)).count();
        seen(&|line| line.read[0].is_some()) > 1 && seen(&|line| line.latency.is_some()) > 1
    }

    /// All rates of the table at its widest, so that a run is trusted alike however it is drawn: of rows, and where the host seldom
    /// had their CPUs.
    fn rates(&self) -> Vec<ShownFigure<'a>> {
        let lines = self.lines.iter().enumerate();
        let lines = lines.map(|(at, line)| ([line.read, line.write, line.copy], self.is_shared(at)));
        let all = lines.chain([([self.nt, [None; 2], [None; 2]], true)]);
        let figures = all.flat_map(|(rows, is_shared)| {
            let of_row = |row: &'a BandwidthRow| {
                let figure = |name, rate, visits| ShownFigure {
                    name,
                    rate,
                    is_of_few: is_of_few(rate, visits),
                    quality: &row.quality,
                };
                let name = self::of_row(row);
                let seldom = self.seldom_of(row).filter(|_| is_shared);
                let seldom = seldom.map(|(place, rate, visits)| figure(format!("{name}, {place}"), rate, visits));
                [row.payload_bps.map(|rate| figure(name, rate, row.batches.len())), seldom]
            };
            rows.into_iter().flatten().flatten().flat_map(of_row).flatten().collect::<Vec<_>>()
        });
        figures.collect()
    }

    /// Whether threads share the level: the last cache, and memory.
    fn is_shared(&self, at: usize) -> bool {
        at >= self.lines.len().saturating_sub(2)
    }

    /// How many of the figures are sure, how many rest on too few visits, and what spoils the one that is least sure.
    fn trust(&self, report: &Report) -> String {
        let rates = self.rates();
        let of_rate = |figure: &ShownFigure<'_>| {
            let ShownFigure { name, rate, quality, .. } = figure;
            (name.clone(), rate.interval(), spread_as('±', rate.interval(), gbps) + &why(quality))
        };
        let latency = |line: &Line<'_>| {
            let figure = line.latency.filter(|latency| latency.ends == Ends::Ci95)?.ns;
            Some((format!("latency of {}", line.level.name), figure, spread_as('±', figure, significant)))
        };
        let known = rates.iter().filter(|figure| !figure.is_of_few).map(of_rate);
        let known: Vec<_> = known.chain(self.lines.iter().filter_map(latency)).collect();
        let all = rates.len() + self.lines.iter().filter(|line| line.latency.is_some()).count();
        let few = all - known.len();
        if all == 0 {
            return String::new();
        }
        let sure = known.iter().filter(|(_, figure, _)| farther(*figure) <= SURE).count();
        let unsure = known.iter().filter(|(_, figure, _)| farther(*figure) > SURE);
        let worst = unsure.max_by(|a, b| farther(a.1).total_cmp(&farther(b.1)));
        let rest = if few > 0 { "of the others the widest is" } else { "widest:" };
        let worst = worst.map_or(String::new(), |(name, _, spread)| format!("; {rest} {name}, {spread}"));
        let few = match few {
            0 => String::new(),
            few => format!("; {few} (~) rest on fewer than {VISITS_MIN} undisturbed visits -> a longer --budget"),
        };
        let cut = unfinished(report);
        format!("{cut}Trust: {sure} of {all} figures are within ±{}{few}{worst}.", percent(SURE))
    }

    fn table(&self, columns: usize) -> Option<Table> {
        if self.lines.is_empty() {
            return None;
        }
        let lines = self.table_lines(columns >= WITH_STORES);
        let column = |of: &dyn Fn(&TableLine) -> Option<String>| lines.iter().map(of).collect::<Vec<_>>();
        let place = |states: &HostStates| format!(" ({})", apart(states.usual));
        let place = self.report.host_states.as_ref().map_or(String::new(), place);
        let mut table = Table::new(format!("GB/s of payload, one core and all{place}; dependent-load latency"))
            .left("", lines.iter().map(|line| line.name.clone()))
            .right("size\nclaimed", column(&|line| line.sizes[0].clone()))
            .right("size\nseen", column(&|line| line.sizes[1].clone()));
        for (kind, name) in ["read", "write", "copy"].into_iter().enumerate() {
            for (place, cores) in ["1 core", "all"].into_iter().enumerate().take(self.most.min(2)) {
                table = table.right(&format!("{name}\n{cores}"), column(&|line| line.rates[kind][place].clone()));
            }
        }
        let table = table
            .right("latency\nns", column(&|line| line.latency[0].clone()))
            .right("latency\ncycles", column(&|line| line.latency[1].clone()))
            .without_blanks();
        Some(table)
    }

    /// Below each level what the host's other state gives, where it was met.
    fn table_lines(&self, with_stores: bool) -> Vec<TableLine> {
        let mut all = Vec::new();
        for (at, line) in self.lines.iter().enumerate() {
            let level = line.level;
            let rows = [line.read, if with_stores { line.write } else { [None; 2] }, line.copy];
            let size = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.to_string());
            let ns = line.latency.map(|latency| shown_latency(&latency));
            let cycles = line.latency.and_then(|latency| latency.cycles).map(significant);
            all.push(TableLine {
                name: level.name.clone(),
                sizes: [size(level.claimed), size(level.capacity)],
                rates: rows.map(|pair| pair.map(|row| row.and_then(shown_rate))),
                latency: [ns, cycles],
            });
            all.extend(self.seldom("  ", rows).filter(|_| self.is_shared(at)));
        }
        if self.nt.iter().any(Option::is_some) {
            let rows = [[None; 2], [None; 2], self.nt];
            let rates = rows.map(|pair| pair.map(|row| row.and_then(shown_rate)));
            all.push(TableLine { name: "  nt stores".into(), rates, ..TableLine::default() });
            all.extend(self.seldom("    ", rows));
        }
        all
    }

    /// The same rows where CPUs were as far apart as they seldom were.
    fn seldom(&self, indent: &str, rows: [Pair<'a>; 3]) -> Option<TableLine> {
        let of_row = |row| self.seldom_of(row).map(|(_, rate, visits)| shown(rate, visits));
        let rates = rows.map(|pair| pair.map(|row| row.and_then(of_row)));
        let (place, ..) = rows.into_iter().flatten().flatten().find_map(|row| self.seldom_of(row))?;
        Some(TableLine { name: format!("{indent}{place}"), rates, ..TableLine::default() })
    }

    /// What a row comes to there, with that place and its visits; where that differs.
    fn seldom_of(&self, row: &BandwidthRow) -> Option<(&'static str, Rate, usize)> {
        let states = self.report.host_states.as_ref()?;
        let at = self.report.rows.iter().position(|other| other.case == row.case)?;
        let (rate, visits) = states.seldom(at)?;
        Some((apart(states.usual.other()), rate, visits))
    }

    /// One core's reading speed over working sets, and the sizes at which levels end. Its ends have the figures of the table: the first
    /// and the last level's, not those of the smallest and the largest set, which were met by chance.
    fn curve(&self, columns: usize) -> Vec<String> {
        let curve = load_curve(&self.report.rows);
        let (Some(first), Some(last)) = (curve.first(), curve.last()) else { return Vec::new() };
        let (from, to) = ((first.0.0 as f64).ln(), (last.0.0 as f64).ln());
        let most = curve.iter().map(|point| point.1).fold(0.0, f64::max);
        if to <= from || most <= 0.0 {
            return Vec::new();
        }
        let label = "read, 1 core ";
        let of_level = |line: Option<&Line<'_>>| Some(gbps(line?.read[0]?.payload_bps?.value()));
        let left = of_level(self.lines.first()).unwrap_or_else(|| gbps(first.1));
        let right = of_level(self.lines.last()).unwrap_or_else(|| gbps(last.1));
        let indent = label.len() + left.len() + " |".len();
        let width = columns.saturating_sub(indent + "| ".len() + right.len() + " GB/s".len()).max(2);
        let bar = |place: usize| {
            let at = from + (to - from) * place as f64 / (width - 1) as f64;
            let distance = |bytes: Bytes| ((bytes.0 as f64).ln() - at).abs();
            let nearest = curve.iter().min_by(|a, b| distance(a.0).total_cmp(&distance(b.0)));
            let height = nearest.map_or(0.0, |point| point.1 / most * BARS.len() as f64);
            BARS[(height.ceil() as usize).clamp(1, BARS.len()) - 1]
        };
        let bars: String = (0..width).map(bar).collect();
        let line = format!("{label}{left} |{bars}| {right} GB/s");
        vec![line, axis([indent, width], self.report, [first.0, last.0])]
    }
}

/// A line of the table of levels, as it is shown.
#[derive(Default)]
struct TableLine {
    name: String,
    /// As claimed and as seen.
    sizes: [Option<String>; 2],
    /// Reads, writes, copies: by one core and by all.
    rates: [[Option<String>; 2]; 3],
    /// In ns and in cycles.
    latency: [Option<String>; 2],
}

/// What a drawing shows of a level.
#[derive(Debug, Clone)]
pub struct Picture {
    /// Its name.
    pub name: String,
    /// `32.6 KiB of 32 KiB`: as seen and as claimed; empty for memory.
    pub size: String,
    /// `1.17 ns, 4.04 cycles`; empty where it was not measured.
    pub latency: String,
    /// Of one core and of all.
    pub rates: Vec<PictureRate>,
}

/// A rate of a drawing.
#[derive(Debug, Clone)]
pub struct PictureRate {
    /// `read, 1 core`
    pub name: String,
    /// GB/s as tables show it.
    pub shown: String,
    /// Bytes per second.
    pub bps: f64,
}

/// The levels as a drawing shows them, fastest first.
pub fn pictures(report: &Report) -> Vec<Picture> {
    let figures = Figures::of(report);
    let picture = |line: &Line<'_>| {
        let size = match (line.level.capacity, line.level.claimed) {
            (Some(seen), Some(claimed)) => format!("{seen} seen, {claimed} claimed"),
            (Some(size), None) | (None, Some(size)) => size.to_string(),
            (None, None) => String::new(),
        };
        let cycles = |cycles: f64| format!(", {} cycles", significant(cycles));
        let latency = line
            .latency
            .map(|latency| format!("{} ns{}", shown_latency(&latency), latency.cycles.map_or(String::new(), cycles)));
        let bars = |(kernel, [one, all]): (&str, Pair<'_>)| {
            let all = all.filter(|_| figures.most > 1);
            let seldom = all.and_then(|row| figures.seldom_of(row));
            let of_row = |row: &BandwidthRow| Some((row.payload_bps?, row.batches.len()));
            let bars = [
                ("1 core", one.and_then(of_row)),
                ("all", all.and_then(of_row)),
                (seldom.map_or("", |(place, ..)| place), seldom.map(|(_, rate, visits)| (rate, visits))),
            ];
            bars.map(|(cores, rate)| {
                let (rate, visits) = rate?;
                Some(PictureRate { name: format!("{kernel}, {cores}"), shown: shown(rate, visits), bps: rate.value() })
            })
        };
        let rates = [("read", line.read), ("copy", line.copy)].into_iter().flat_map(bars).flatten().collect();
        Picture { name: line.level.name.clone(), size, latency: latency.unwrap_or_default(), rates }
    };
    figures.lines.iter().map(picture).collect()
}

/// The row that stands for a kernel in a level, with regular stores or with non-temporal ones.
fn best<'a>(report: &'a Report, level: &Level, kernel: &str, threads: usize, is_nt: bool) -> Option<&'a BandwidthRow> {
    let store = if is_nt { StoreKind::Nt } else { StoreKind::Regular };
    report.rows.get(standing(&report.rows, level, (kernel, threads, store))?)
}

/// Why the plan was cut short, if anybody did that.
fn unfinished(report: &Report) -> &'static str {
    match &report.end {
        None if report.is_cut_off() => "The record has no end: the run was killed. ",
        None => "",
        Some(end) if end.overran => "The run was stopped after twice its budget. ",
        Some(end) if end.interrupted => "The run was interrupted. ",
        Some(_) => "",
    }
}

/// Whether a figure of so many visits rests on too few undisturbed ones to be trusted with its interval.
fn is_of_few(rate: Rate, visits: usize) -> bool {
    let undisturbed = rate.undisturbed_share * visits as f64;
    !rate.has_interval() || rate.undisturbed_share < 1.0 && undisturbed < VISITS_MIN as f64
}

/// `186`, or `~186` where too few visits stand behind it.
fn shown(rate: Rate, visits: usize) -> String {
    let mark = if is_of_few(rate, visits) { "~" } else { "" };
    format!("{mark}{}", gbps(rate.value()))
}

/// `190`, or `~190` where its ends are a range.
fn shown_latency(latency: &LevelLatency) -> String {
    let mark = if latency.ends == Ends::Range { "~" } else { "" };
    format!("{mark}{}", significant(latency.ns[0]))
}

/// The same of a row.
fn shown_rate(row: &BandwidthRow) -> Option<String> {
    row.payload_bps.map(|rate| shown(rate, row.batches.len()))
}

/// `load in L2 with 2 threads`
fn of_row(row: &BandwidthRow) -> String {
    let level = row.level.as_deref().unwrap_or_default();
    format!("{} in {level} with {}", row.kernel_and_store(), threads(row.threads()))
}

/// What a longer run would have measured besides, where the plan was too long for this one. Only a run of all experiments is known to
/// have planned what is missing.
fn left_out(report: &Report) -> Option<String> {
    let end = report.end.as_ref().filter(|end| report.visited < end.planned && !end.interrupted)?;
    let parts = [
        ("arithmetic", report.flops.is_empty()),
        ("memory kinds", report.kinds.is_none()),
        ("page faults", report.pages.is_empty()),
        ("offsets", report.offsets.is_empty()),
    ];
    let is_left_out = |(_, is_missing): &(&str, bool)| *is_missing && report.is_of_all();
    let parts: Vec<&str> = parts.into_iter().filter(is_left_out).map(|(name, _)| name).collect();
    let parts = if parts.is_empty() { String::new() } else { format!(", with all of {}", parts.join(", ")) };
    let cases = format!("{} of {}", end.planned - report.visited, counted(end.planned, "case"));
    Some(format!("Left out for lack of time: {cases}{parts}; a longer --budget has room for them."))
}

/// What a row's flags say first of what disturbed it, and the cure.
fn why(quality: &Quality) -> String {
    let tells = |flag: &&Flag| !matches!(flag, Flag::WideInterval | Flag::FewSamples);
    let flag = quality.flags.iter().find(tells).or(quality.flags.first());
    flag.map_or(String::new(), |flag| format!(" ({}) -> {}", flag.means(), flag.cure()))
}

/// Sizes below the curve: its ends, and where levels end as far as there is room.
fn axis([indent, width]: [usize; 2], report: &Report, [first, last]: [Bytes; 2]) -> String {
    let (from, to) = ((first.0 as f64).ln(), (last.0 as f64).ln());
    let mut line: Vec<char> = vec![' '; indent + width];
    let mut put = |bytes: Bytes| {
        let text: Vec<char> = bytes.to_string().replace(' ', "").replace("iB", "").chars().collect();
        let place = ((bytes.0 as f64).ln() - from) / (to - from) * (width - 1) as f64;
        let start = (indent + place.max(0.0) as usize).min(indent + width - text.len());
        let around = start.saturating_sub(1)..(start + text.len() + 1).min(line.len());
        if line[around].iter().all(|c| *c == ' ') {
            line[start..start + text.len()].copy_from_slice(&text);
        }
    };
    put(first);
    put(last);
    report.levels.iter().filter_map(|level| level.capacity).for_each(&mut put);
    line.into_iter().collect::<String>().trim_end().into()
}

/// Names of what could not be measured; its sections say why.
fn not_measured(report: &Report, is_whole: bool) -> Option<String> {
    const SHOWN: usize = 8;
    let missing = report.sections().flat_map(|(_, sections)| sections).flat_map(|section| section.missing);
    let names: BTreeSet<String> = missing.flat_map(|missing| missing.names).collect();
    let names: Vec<String> = names.into_iter().collect();
    let why = if is_whole { "the sections below say why" } else { "--all says why" };
    (!names.is_empty()).then(|| format!("Not measured: {}; {why}.", some(&names, SHOWN)))
}
