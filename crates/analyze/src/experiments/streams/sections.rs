//! Many streams at once: a heat map of each way of touching them.

use std::collections::{BTreeMap, BTreeSet};

use crate::answer::Answer;
use crate::chart::{Axis, Chart, LEAST_POINTS, MOST_LINES, Scale, Series, line, rounded};
use crate::experiments::streams::rows::{Congestion, Effect, StreamMap, StreamsRow};
use crate::missing::reasons;
use crate::section::{Cell, Section, Table};
use crate::wording::{flag_notes, gbps, threads, times};
use membound_core::units::{Bytes, significant};

const ABOUT: &str = "GB/s payload, undisturbed: streams or kernels across, offset from each array to the next down. + faster, - slower than at \
    offset 0 for certain (95 %, all offsets at once).";

impl Answer for Congestion {
    /// The answer.
    fn sentences(&self) -> Vec<String> {
        self.maps.iter().map(StreamMap::sentence).collect()
    }

    /// The maps.
    fn sections(&self) -> Vec<Section> {
        if self.rows.is_empty() {
            return Vec::new();
        }
        let (walks, blocks) = (walks(self), blocks(self));
        let walked = walks.into_iter().map(|map| of_map(self, map));
        let in_blocks = blocks.iter().map(|maps| of_blocks(self, maps));
        vec![Section {
            id: "streams",
            title: "Streams and offsets".into(),
            about: ABOUT.into(),
            sentences: self.sentences(),
            tables: walked.chain(in_blocks).collect(),
            charts: charts(self),
            notes: flag_notes(&self.rows),
            missing: reasons(&self.rows),
            ..Section::default()
        }]
    }
}

fn of_map(congestion: &Congestion, map: &StreamMap) -> Table {
    let rows = congestion.of(map);
    let counts: BTreeSet<u32> = rows.iter().map(|row| row.scanned().streams).collect();
    let greatest = congestion.greatest(map).0.max(1.0);
    let StreamMap { what, working_set, .. } = map;
    let memory = rows.first().map_or_else(String::new, |row| row.case.memory.to_string());
    let threads = threads(map.threads);
    let caption = format!("{what} streams, {working_set}, {memory}, {threads}; the fastest {} GB/s", gbps(greatest));
    let offsets = offsets(&rows);
    let mut table =
        Table::new(caption).right("offset", offsets.iter().map(|offset| Bytes((*offset).into()).to_string()));
    for streams in counts {
        let column: Vec<&StreamsRow> = rows.iter().copied().filter(|row| row.scanned().streams == streams).collect();
        table = table.right(&format!("{streams} "), cells(&column, &offsets, greatest));
    }
    table.with_notes(map.effects.iter().map(words).collect())
}

/// Kernels over a block, of one working set: a column each.
fn of_blocks(congestion: &Congestion, maps: &[&StreamMap]) -> Table {
    let rows: Vec<&StreamsRow> = maps.iter().flat_map(|map| congestion.of(map)).collect();
    let greatest = maps.iter().map(|map| congestion.greatest(map).0).fold(1.0, f64::max);
    let size = maps.first().map_or_else(String::new, |map| map.working_set.to_string());
    let caption = format!("Kernels with their arrays in one block, {size}; the fastest {} GB/s", gbps(greatest));
    let offsets = offsets(&rows);
    let mut table =
        Table::new(caption).right("offset", offsets.iter().map(|offset| Bytes((*offset).into()).to_string()));
    for map in maps {
        table = table.right(&block_name(congestion, map, "\n"), cells(&congestion.of(map), &offsets, greatest));
    }
    let notes = |map: &&StreamMap| {
        let name = block_name(congestion, map, ", ");
        map.effects.iter().map(|effect| format!("{name}: {}", told(effect))).collect::<Vec<_>>()
    };
    table.with_notes(maps.iter().flat_map(notes).collect())
}

/// `triad 512 regular, thp, 2 threads`.
fn block_name(congestion: &Congestion, map: &StreamMap, gap: &str) -> String {
    let memory = congestion.of(map).first().map_or_else(String::new, |row| row.case.memory.to_string());
    format!("{}{gap}{memory}{gap}{}", map.what, threads(map.threads))
}

fn offsets(rows: &[&StreamsRow]) -> BTreeSet<u32> {
    rows.iter().map(|row| row.scanned().offset_bytes).collect()
}

fn cells(column: &[&StreamsRow], offsets: &BTreeSet<u32>, greatest: f64) -> Vec<Option<Cell>> {
    let at = |offset: &u32| column.iter().find(|row| row.scanned().offset_bytes == *offset);
    offsets.iter().map(|offset| at(offset).and_then(|row| cell(row, greatest))).collect()
}

/// Bandwidth over the offset: a line a number of streams, or a kernel.
fn chart(title: String, about: &str, lines: Vec<(String, Vec<&StreamsRow>)>) -> Option<Chart> {
    let all: Vec<&StreamsRow> = lines.iter().flat_map(|(_, rows)| rows.iter().copied()).collect();
    let offsets: Vec<u32> = offsets(&all).into_iter().collect();
    if offsets.len() < LEAST_POINTS {
        return None;
    }
    // Offsets that double would crowd at the left of a straight axis.
    let step = offsets[1] - offsets[0];
    let is_even = offsets.windows(2).all(|pair| pair[1] - pair[0] == step);
    let place = |offset: u32| match is_even {
        true => f64::from(offset),
        false => offsets.iter().position(|other| *other == offset).unwrap_or(0) as f64,
    };
    let point = |row: &&StreamsRow| {
        let [value, low, high] = row.payload_bps?.interval().map(|bps| rounded(bps / 1e9));
        Some((place(row.scanned().offset_bytes), value, low, high, row.quality.samples))
    };
    let series = |(index, (name, rows)): (usize, (String, Vec<&StreamsRow>))| Series {
        colour: index,
        shown: index < MOST_LINES,
        ..line(name, rows.iter().filter_map(point).collect())
    };
    let series: Vec<Series> = lines.into_iter().filter(|(_, rows)| rows.len() > 1).enumerate().map(series).collect();
    let x = match is_even {
        true => Axis::new("offset between arrays, bytes", "B", Scale::Offsets),
        false => {
            let names = offsets.iter().map(|offset| Bytes((*offset).into()).to_string()).collect();
            Axis { names, ..Axis::new("offset between arrays", "", Scale::Names) }
        }
    };
    let y = Axis::new("bandwidth, GB/s", "GB/s", Scale::Linear);
    Some(Chart::new(title, about.into(), x, y, series))
}

fn charts(congestion: &Congestion) -> Vec<Chart> {
    let walk = |map: &&StreamMap| {
        let rows = congestion.of(map);
        let counts: BTreeSet<u32> = rows.iter().map(|row| row.scanned().streams).collect();
        let of = |streams: u32| {
            let rows = rows.iter().copied().filter(|row| row.scanned().streams == streams).collect();
            (format!("{streams} streams"), rows)
        };
        let title = format!("Offsets between streams: {}, {}", map.what, threads(map.threads));
        chart(title, "Payload.", counts.into_iter().map(of).collect())
    };
    let block = |maps: &Vec<&StreamMap>| {
        let size = maps.first().map_or_else(String::new, |map| map.working_set.to_string());
        let lines = maps.iter().map(|map| (block_name(congestion, map, ", "), congestion.of(map))).collect();
        chart(format!("Offsets between arrays in one block, {size}"), "Payload.", lines)
    };
    let walks: Vec<Chart> = walks(congestion).iter().filter_map(walk).collect();
    walks.into_iter().chain(blocks(congestion).iter().filter_map(block)).collect()
}

fn walks(congestion: &Congestion) -> Vec<&StreamMap> {
    congestion.maps.iter().filter(|map| map.what.touch().is_some()).collect()
}

/// Maps of kernels, those of one working set together.
fn blocks(congestion: &Congestion) -> Vec<Vec<&StreamMap>> {
    let mut found: BTreeMap<Bytes, Vec<&StreamMap>> = BTreeMap::new();
    for map in congestion.maps.iter().filter(|map| map.what.touch().is_none()) {
        found.entry(map.working_set).or_default().push(map);
    }
    found.into_values().collect()
}

/// A rate, the deeper in colour the slower; whether it is another than at offset 0.
fn cell(row: &StreamsRow, greatest: f64) -> Option<Cell> {
    let rate = row.payload_bps?;
    let sign = match row.over_aligned {
        Some([_, low, _]) if low > 1.0 => "+",
        Some([.., high]) if high < 1.0 => "-",
        _ => " ",
    };
    let over = row.over_aligned.map(|over| over.map(significant));
    let over = over.map_or_else(String::new, |[ratio, low, high]| format!("; {ratio} x offset 0 [{low}, {high}]"));
    let [low, high] = rate.ends().map(gbps);
    Some(Cell {
        text: gbps(rate.value()) + sign,
        is_strong: sign != " ",
        heat: Some(1.0 - rate.value() / greatest),
        hint: format!("{} {low} to {high} GB/s{over}", rate.ends_word()),
        ..Cell::default()
    })
}

fn words(effect: &Effect) -> String {
    format!("{} streams: {}", effect.streams, told(effect))
}

fn told(effect: &Effect) -> String {
    let told = |what: &str, at: Option<(u32, [f64; 3])>| {
        at.map(|(offset, over)| format!("{what} {}: {}", Bytes(offset.into()), times(over)))
    };
    let parts = [
        told("pad by", effect.best),
        told("avoid", effect.worst),
        effect.period.map(|period| format!("period {}", Bytes(period.into()))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}
