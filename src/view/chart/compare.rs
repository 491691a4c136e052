//! How much cells differ: a chart a group, the largest differences first.

use super::{Axis, Chart, Limit, Point, Scale, Series, Shape, line, rounded};
use crate::model::compare::{Comparison, ComparisonRow};
use crate::view::{common_words, own_words};

/// More names can't stand beside each other.
const MOST: usize = 16;

/// One chart a group.
pub(in super::super) fn comparison(comparison: &Comparison) -> Vec<Chart> {
    comparison.groups().iter().map(|(name, rows)| chart(comparison, name, rows)).collect()
}

fn chart(comparison: &Comparison, name: &str, rows: &[&ComparisonRow]) -> Chart {
    let rows = &rows[..rows.len().min(MOST)];
    let common = common_words(rows);
    let names = rows.iter().map(|row| own_words(&row.what, &common)).collect();
    let points = rows.iter().enumerate().filter_map(|(index, row)| point(index, row)).collect();
    let series = vec![Series { shape: Shape::Dot, ..line("B".into(), points) }];
    let x = Axis { names, ..Axis::new("cell", "", Scale::Names) };
    let y = Axis::new("speed of B, % of A's", "%", Scale::Close);
    let noise = 100.0 * comparison.noise;
    let limit = |name: &str, at: f64| Limit { name: name.into(), at: rounded(at) };
    let mut limits = vec![limit("alike", 100.0)];
    if noise > 0.0 && !comparison.is_by_hand {
        limits = vec![limit("noise allowed", 1e4 / (100.0 + noise)), limit("", 100.0 + noise)];
    }
    let about = match &common[..] {
        [] => String::new(),
        words => format!("All: {}.", words.join(", ")),
    };
    let left = if rows.len() == MOST { ", the largest differences" } else { "" };
    Chart { limits, ..Chart::new(format!("{name}{left}"), about, x, y, series) }
}

fn point(index: usize, row: &ComparisonRow) -> Option<Point> {
    let speed = 100.0 * row.speed?;
    let [low, high] = row.speed_ci95.map_or([speed; 2], |ends| ends.map(|end| 100.0 * end));
    Some((index as f64, rounded(speed), rounded(low), rounded(high), row.draws[0] + row.draws[1]))
}
