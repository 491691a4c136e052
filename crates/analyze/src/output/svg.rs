//! The roofline as a drawing: log-log, flops a second over flops for each byte. It needs no script, follows the reader's
//! light or dark setting, and can stand alone as a file.

use membound_core::in_order::{InOrder, distinct};
use std::fmt::Write;

use crate::across::roofline::{ArithmeticCeiling, BandwidthCeiling, Bound, RooflinePoint};
use crate::output::xml::escaped;
use crate::report::Report;
use membound_core::kernel::{Element, Width};
use membound_core::units::{percent, significant};

/// Size of the drawing and of the field inside it: left, top, right, bottom.
const SIZE: [f64; 2] = [760.0, 480.0];
const FIELD: [f64; 4] = [70.0, 56.0, 570.0, 420.0];
/// Height of a label; nearer ones would cover each other.
const LABEL: f64 = 12.0;
/// Width of a letter, about.
const LETTER: f64 = 5.9;
/// Of the dot of a point.
const RADIUS: f64 = 4.0;

const STYLE: &str = "\
    .roofline{font:11px sans-serif;color-scheme:light dark}.roofline .back{fill:#fff}.roofline text{fill:#222;stroke:#fff;stroke-width:3px;paint-order:stroke;stroke-linejoin:round}\
    .roofline .grid{stroke:#ddd}.roofline .roof{stroke:#1f5fa8;fill:none;stroke-width:1.6}\
    .roofline .promise{stroke:#b3541e;fill:none;stroke-dasharray:6 4}.roofline .dots{stroke-width:8;stroke-linecap:round}\
    .roofline .moving{stroke:#1f5fa8}.roofline .computing{stroke:#2a7f3f}.roofline .unknown{stroke:#888}\
    @media(prefers-color-scheme:dark){.roofline .back{fill:#16181c}.roofline text{fill:#ddd;stroke:#16181c}.roofline .grid{stroke:#333}\
    .roofline .roof{stroke:#7db4ef}.roofline .promise{stroke:#e9a26f}.roofline .moving{stroke:#7db4ef}\
    .roofline .computing{stroke:#7fd394}}";

/// The chart of the greatest thread count; nothing where there is no ceiling or no point to draw.
pub fn roofline(report: &Report) -> Option<String> {
    of_threads(report, *report.roofline.threads().last()?)
}

/// The chart of one thread count.
pub fn of_threads(report: &Report, threads: usize) -> Option<String> {
    let chart = Chart::new(report, threads)?;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" role=\"img\" class=\"roofline\">\n<style>{STYLE}</style>\n\
         <rect class=\"back\" width=\"100%\" height=\"100%\"/>\n",
        SIZE[0], SIZE[1]
    );
    let count = if threads == 1 { "one thread".into() } else { format!("{threads} threads") };
    let title = format!(
        "Roofline of {}, {count}, double precision",
        if report.host.is_empty() { "a machine" } else { &report.host }
    );
    label(&mut text, SIZE[0] / 2.0, 20.0, "middle", &title);
    let about = "solid: measured; dashed: specified or configured; blue points are bandwidth-bound, green ones compute-bound, grey ones unknown";
    label(&mut text, SIZE[0] / 2.0, 38.0, "middle", about);
    chart.axes(&mut text);
    chart.roofs(&mut text);
    chart.points(&mut text);
    chart.names(&mut text);
    text.push_str("</svg>\n");
    Some(text)
}

/// A line that rises with intensity: name, bytes a second, whether it is a promise.
type Slope = (String, f64, bool);
/// A line at a height: name, flops a second, whether it is a promise.
type Flat = (String, f64, bool);

struct Chart<'a> {
    report: &'a Report,
    points: Vec<&'a RooflinePoint>,
    slopes: Vec<Slope>,
    flats: Vec<Flat>,
    /// Least and greatest flops for each byte, flops a second.
    x: [f64; 2],
    y: [f64; 2],
}

impl<'a> Chart<'a> {
    fn new(report: &'a Report, threads: usize) -> Option<Self> {
        let of_row = |point: &&RooflinePoint| {
            report.rows.get(point.row).is_some_and(|row| row.threads() == threads && row.element() == Element::Double)
        };
        let points: Vec<&RooflinePoint> = report.roofline.points.iter().filter(of_row).collect();
        let (slopes, flats) = (slopes(report, threads), flats(report, threads));
        let reached = points.iter().map(|point| point.flops_per_s[0]).chain(flats.iter().map(|flat| flat.1));
        let most = reached.clone().reduce(f64::max)?;
        let least = reached.reduce(f64::min)?;
        let [low, high] = [least / 4.0, most * 2.0];
        let fastest = slopes.iter().map(|slope| slope.1).reduce(f64::max).unwrap_or(most);
        let slowest = slopes.iter().map(|slope| slope.1).reduce(f64::min).unwrap_or(most);
        let intensities = || points.iter().map(|point| point.intensity);
        let x = [
            intensities().reduce(f64::min).unwrap_or(low / fastest).min(low / fastest * 2.0) / 1.5,
            intensities().reduce(f64::max).unwrap_or(1.0).max(most / slowest) * 4.0,
        ];
        let is_sound = |range: [f64; 2]| range[0] > 0.0 && range[1].is_finite() && range[0] < range[1];
        (is_sound(x) && is_sound([low, high])).then_some(Chart { report, points, slopes, flats, x, y: [low, high] })
    }

    /// Where an intensity and a rate lie.
    fn at(&self, intensity: f64, flops: f64) -> [f64; 2] {
        let part = |value: f64, [low, high]: [f64; 2]| (value / low).ln() / (high / low).ln();
        let [left, top, right, bottom] = FIELD;
        [left + part(intensity, self.x) * (right - left), bottom - part(flops, self.y) * (bottom - top)]
    }

    fn axes(&self, text: &mut String) {
        let [left, top, right, bottom] = FIELD;
        for tick in ticks(self.x, 2.0) {
            let x = self.at(tick, self.y[0])[0];
            line(text, "grid", [x, top], [x, bottom]);
            label(text, x, bottom + 16.0, "middle", &plain(tick));
        }
        for tick in ticks(self.y, 10.0) {
            let y = self.at(self.x[0], tick)[1];
            line(text, "grid", [left, y], [right, y]);
            label(text, left - 6.0, y + 4.0, "end", &plain(tick / 1e9));
        }
        label(
            text,
            (left + right) / 2.0,
            bottom + 36.0,
            "middle",
            "flops for each byte (of loads and stores in L1, of the bus beyond)",
        );
        let _ = writeln!(
            text,
            "<text x=\"16\" y=\"{y:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 16 {y:.1})\">GF/s</text>",
            y = (top + bottom) / 2.0
        );
    }

    fn roofs(&self, text: &mut String) {
        let class = |is_promise: bool| if is_promise { "promise" } else { "roof" };
        for (_, rate, is_promise) in &self.slopes {
            if let Some([start, end]) = self.reach(*rate) {
                line(text, class(*is_promise), self.at(start, start * rate), self.at(end, end * rate));
            }
        }
        let fastest = self.slopes.iter().map(|slope| slope.1).reduce(f64::max);
        let mut used: Vec<f64> = Vec::new();
        for (name, flops, is_promise) in &self.flats {
            let start = fastest.map_or(self.x[0], |rate| (flops / rate).max(self.x[0]));
            let end = self.at(self.x[1], *flops);
            line(text, class(*is_promise), self.at(start, *flops), end);
            if used.iter().all(|y| (y - end[1]).abs() > LABEL) {
                label(text, end[0] + 6.0, end[1] + 4.0, "start", name);
                used.push(end[1]);
            }
        }
    }

    /// From which intensity to which a bandwidth is the roof.
    fn reach(&self, rate: f64) -> Option<[f64; 2]> {
        let peak = self.flats.iter().map(|flat| flat.1).reduce(f64::max).unwrap_or(self.y[1]);
        let (start, end) = (self.x[0].max(self.y[0] / rate), (peak / rate).min(self.x[1]));
        (start < end).then_some([start, end])
    }

    fn points(&self, text: &mut String) {
        let groups = [(Some(Bound::Bandwidth), "moving"), (Some(Bound::Arithmetic), "computing"), (None, "unknown")];
        for (bound, class) in groups {
            let _ = writeln!(text, "<g class=\"dots {class}\">");
            self.points.iter().filter(|point| point.bound == bound).for_each(|point| self.dot(text, point));
            text.push_str("</g>\n");
        }
    }

    /// A line of no length with round ends: half as long a text as a circle, and there are hundreds.
    fn dot(&self, text: &mut String, point: &RooflinePoint) {
        if let Some(row) = self.report.rows.get(point.row) {
            let [x, y] = self.at(point.intensity, point.flops_per_s[0]);
            let about = format!(
                "{} {} {}, {}: {} GF/s, {} of its roof ({})",
                row.kernel(),
                row.width(),
                row.store(),
                point.level,
                significant(point.flops_per_s[0] / 1e9),
                percent(point.fraction[0]),
                point.ceiling
            );
            let _ = writeln!(text, "<path d=\"M{x:.1} {y:.1}h0\"><title>{}</title></path>", escaped(&about));
        }
    }

    /// Names stand where they cover no point and no other name; what has no room has none, and the table tells it.
    fn names(&self, text: &mut String) {
        let places: Vec<[f64; 2]> =
            self.points.iter().map(|point| self.at(point.intensity, point.flops_per_s[0])).collect();
        let dot = |[x, y]: &[f64; 2]| [x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS];
        let mut taken: Vec<[f64; 4]> = places.iter().map(dot).collect();
        let mut has_room = |[x, y]: [f64; 2], name: &str| {
            let width = LETTER * name.chars().count() as f64;
            let own = [x + 6.0, y - LABEL / 2.0, x + 6.0 + width, y + LABEL / 2.0];
            let apart =
                |other: &[f64; 4]| (0..2).any(|axis| own[axis] > other[axis + 2] || other[axis] > own[axis + 2]);
            let is_free = own[2] < FIELD[2] && taken.iter().all(apart);
            if is_free {
                taken.push(own);
                label(text, x + 6.0, y + 4.0, "start", name);
            }
            is_free
        };
        for (name, rate, _) in &self.slopes {
            let Some([start, end]) = self.reach(*rate) else { continue };
            let along = |step: u32| start * (end / start).powf(0.02 + 0.04 * f64::from(step));
            let _ = (0..24).any(|step| has_room(self.at(along(step), along(step) * rate), name));
        }
        for (point, at) in self.points.iter().zip(&places) {
            let Some(row) = self.report.rows.get(point.row) else { continue };
            has_room(*at, &format!("{} {}", row.kernel(), point.level));
        }
    }
}

/// For each level the fastest of what it delivers, and what is known of it without measuring.
fn slopes(report: &Report, threads: usize) -> Vec<Slope> {
    let ours = || report.roofline.bandwidth.iter().filter(move |ceiling| ceiling.threads == threads);
    let mut slopes = Vec::new();
    for level in distinct(ours().map(|ceiling| ceiling.place())) {
        let of = || ours().filter(|ceiling| ceiling.place() == level);
        if let Some(best) = BandwidthCeiling::greatest(of()) {
            slopes.push((format!("{level}, {}", best.kernel), best.measured.best, false));
            slopes.extend(best.specified.map(|rate| (format!("{level}, limit"), rate, true)));
        }
    }
    let scattered = report.roofline.without_prefetch.iter().filter(|ceiling| ceiling.threads == threads);
    slopes.extend(scattered.map(|ceiling| {
        let loads = if ceiling.chains == 1 { "dependent".into() } else { format!("{} chains of", ceiling.chains) };
        (format!("memory, {loads} {} loads", ceiling.order), ceiling.bps[0], false)
    }));
    slopes
}

/// Each balance at the widest width and the best scalar.
fn flats(report: &Report, threads: usize) -> Vec<Flat> {
    let ours = |ceiling: &&ArithmeticCeiling| ceiling.threads == threads && ceiling.element == Element::Double;
    let ours: Vec<&ArithmeticCeiling> = report.roofline.arithmetic.iter().filter(ours).collect();
    let widest = ours.iter().map(|ceiling| ceiling.width).max().unwrap_or(Width::Scalar);
    let mut flats: Vec<Flat> = Vec::new();
    for ceiling in ours.iter().filter(|ceiling| [widest, Width::Scalar].contains(&ceiling.width)) {
        let name = format!("{}, {}", ceiling.balance, ceiling.width);
        flats.extend(ceiling.measured.map(|figure| (name.clone(), figure.best, false)));
        flats.extend(ceiling.specified.map(|flops| (format!("{name}, specified"), flops, true)));
    }
    // Measured ones first: their labels stay where two lie on each other.
    flats.order_by_key(|flat| flat.2);
    flats
}

/// Powers of a base inside a range.
fn ticks([low, high]: [f64; 2], base: f64) -> Vec<f64> {
    let power = |value: f64| value.ln() / base.ln();
    let (first, last) = (power(low).ceil() as i32, power(high).floor() as i32);
    // A range of many powers of two needs fewer lines.
    let step = ((last - first) / 12 + 1).max(1);
    (first..=last).filter(|k| k % step == 0).map(|k| base.powi(k)).collect()
}

/// A power of two or ten without needless zeros; below one as a fraction.
fn plain(value: f64) -> String {
    if value < 1.0 && (1.0 / value).fract() == 0.0 { format!("1/{}", 1.0 / value) } else { format!("{value}") }
}

fn line(text: &mut String, class: &str, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2]) {
    let _ = writeln!(text, "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>");
}

fn label(text: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let _ = writeln!(text, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>", escaped(words));
}
