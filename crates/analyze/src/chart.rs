//! What charts show: points, names, bands and limits. How they are drawn is `report.js`'s part, and the option object of
//! the chart library is made there: it needs functions (labels of logarithmic axes, whiskers), which no JSON can hold. So
//! the typed option builder of the charming crate is not used, only the script in its package.

use serde::{Serialize, Serializer};
use serde_json::json;

/// A line through fewer points is no curve.
pub(crate) const LEAST_POINTS: usize = 6;
/// More lines at once can't be told apart; the legend brings in the others.
pub(crate) const MOST_LINES: usize = 8;

/// A chart and the words around it.
#[derive(Debug, Clone, Serialize)]
pub struct Chart {
    /// What stands above it.
    #[serde(skip)]
    pub title: String,
    /// What to read from it.
    #[serde(skip)]
    pub about: String,
    /// Across.
    pub x: Axis,
    /// Upward.
    pub y: Axis,
    /// What is drawn.
    pub series: Vec<Series>,
    /// Stretches of the x axis.
    pub bands: Vec<Band>,
    /// Places on the x axis, each with its interval.
    pub marks: Vec<Mark>,
    /// Heights to compare with.
    pub limits: Vec<Limit>,
}

/// An axis.
#[derive(Debug, Clone, Serialize)]
pub struct Axis {
    /// What it measures.
    pub name: &'static str,
    /// What stands after a number in tooltips.
    pub unit: &'static str,
    /// How far apart values are.
    pub scale: Scale,
    /// Names along a `names` axis.
    pub names: Vec<String>,
}

/// How far apart an axis sets values.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Bytes, logarithmic.
    Sizes,
    /// Logarithmic.
    Log,
    /// From zero.
    Linear,
    /// Places in a sequence.
    Order,
    /// Bytes before (below zero) and behind a place.
    Offsets,
    /// As far as the points reach.
    Close,
    /// One place a name.
    Names,
}

/// Points that belong together.
#[derive(Debug, Clone, Serialize)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// How its points are drawn.
    pub shape: Shape,
    /// Index into the palette, so that a thing has the same colour in all charts.
    pub colour: usize,
    /// Index into the dash patterns.
    pub dash: usize,
    /// Index into the symbols.
    pub symbol: usize,
    /// Whether it is drawn before the reader asks for it.
    pub shown: bool,
    /// By rising x.
    #[serde(serialize_with = "short")]
    pub points: Vec<Point>,
}

/// How points are drawn.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// A line with symbols.
    Line,
    /// A line without symbols.
    Curve,
    /// A bar from zero.
    Bar,
    /// A dot alone.
    Dot,
}

/// x, median, low and high end of its interval (all in the axis's unit), samples.
pub type Point = (f64, f64, f64, f64, usize);

/// Sizes are whole numbers, and `4096` says as much as `4096.0`. A single sample has no interval: x, value, number of samples.
fn short<S: Serializer>(points: &[Point], to: S) -> Result<S::Ok, S::Error> {
    let number = |x: f64| if x.fract() == 0.0 && x.abs() < 1e15 { json!(x as i64) } else { json!(x) };
    let short = |&(x, middle, low, high, n): &Point| match [middle, low, high].map(rounded) {
        [middle, low, high] if low == middle && middle == high => json!([number(x), number(middle), n]),
        [middle, low, high] => json!([number(x), number(middle), number(low), number(high), n]),
    };
    to.collect_seq(points.iter().map(short))
}

/// A stretch of the x axis.
#[derive(Debug, Clone, Serialize)]
pub struct Band {
    /// What it is.
    pub name: String,
    /// Its low end.
    pub from: f64,
    /// Its high end.
    pub to: f64,
}

/// A place on the x axis with its interval.
#[derive(Debug, Clone, Serialize)]
pub struct Mark {
    /// What it is.
    pub name: String,
    /// Where it is.
    pub at: f64,
    /// Its low end.
    pub from: f64,
    /// Its high end.
    pub to: f64,
}

/// A height to compare with.
#[derive(Debug, Clone, Serialize)]
pub struct Limit {
    /// What it is.
    pub name: String,
    /// Where it is.
    pub at: f64,
}

impl Axis {
    /// Without names along it.
    pub fn new(name: &'static str, unit: &'static str, scale: Scale) -> Self {
        Axis { name, unit, scale, names: Vec::new() }
    }
}

impl Chart {
    /// Without bands, marks and limits.
    pub fn new(title: String, about: String, x: Axis, y: Axis, series: Vec<Series>) -> Self {
        Chart { title, about, x, y, series, bands: Vec::new(), marks: Vec::new(), limits: Vec::new() }
    }

    /// The chart in words, for those who can't see it.
    pub fn label(&self) -> String {
        let names: Vec<&str> = self.series.iter().map(|series| series.name.as_str()).collect();
        format!("Chart: {}; {} over {}; {}", self.title, self.y.name, self.x.name, names.join(", "))
    }
}

/// A line in the first colour, shown at once.
pub fn line(name: String, points: Vec<Point>) -> Series {
    Series { name, shape: Shape::Line, colour: 0, dash: 0, symbol: 0, shown: true, points }
}

/// A dozen digits would only make the page larger; five are beyond any sample's precision.
pub fn rounded(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(0.0)
}
