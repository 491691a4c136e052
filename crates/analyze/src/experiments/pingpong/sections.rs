//! Messages between processes: a table over sizes, pairs side by side, what the curve says of the path, and the curves.

use std::collections::BTreeSet;

use crate::answer::Answer;
use crate::chart::{Axis, Chart, LEAST_POINTS, MOST_LINES, Mark, Point, Scale, Series, Shape, line, rounded};
use crate::experiments::pingpong::rows::{Messages, PathModel, PathRow, PingPongRow, Together};
use crate::flag::Flag;
use crate::missing::reasons;
use crate::section::{Cell, Room, Section, Table};
use crate::wording::spread_in;
use membound_core::curves::pingpong::path::{Path, Source, Sourced, Unclaimed};
use membound_core::units::{Bytes, BytesPerSecond, Nanoseconds, percent, significant};
use membound_core::work::pingpong::{Buffers, MessageMode, MessagePath};

const ABOUT: &str = "k processes send to k at once (k-k). One way: half a round trip. MB/s as IMB counts them: 1e6 bytes per second, all \
    pairs together; an exchange counts both ways. Medians; model: fitted to one pair alone, what two and more do together follows \
    from it.";

impl Answer for Messages {
    fn sentences(&self) -> Vec<String> {
        let of = |(path, buffers)| match self.model(path, buffers) {
            Some(model) => of_model(model, as_measured(self, path, buffers)),
            None => as_measured(self, path, buffers).into_iter().collect(),
        };
        self.kinds().into_iter().flat_map(of).collect()
    }

    fn sections(&self) -> Vec<Section> {
        if self.rows.is_empty() {
            return Vec::new();
        }
        let tables = |(path, buffers)| {
            let rows: Vec<&PingPongRow> = self.of(path, buffers).collect();
            std::iter::once(sizes(&title(path, buffers), &rows)).chain(self.model(path, buffers).map(parameters))
        };
        vec![Section {
            id: "pingpong",
            title: "Messages between processes".into(),
            about: ABOUT.into(),
            sentences: self.sentences(),
            tables: self.kinds().into_iter().flat_map(tables).collect(),
            charts: self.kinds().into_iter().filter_map(|kind| chart(self, kind)).collect(),
            missing: reasons(&self.rows),
            ..Section::default()
        }]
    }
}

/// `2-2`, or with the mode where that is another.
fn way_name((mode, pairs): (MessageMode, usize), gap: &str) -> String {
    match mode {
        MessageMode::PingPong => format!("{pairs}-{pairs}"),
        mode => format!("{mode}{gap}{pairs}-{pairs}"),
    }
}

/// Sizes down; across what was done by how many pairs. A terminal leaves out models first.
fn sizes(title: &str, rows: &[&PingPongRow]) -> Table {
    let all: BTreeSet<Bytes> = rows.iter().map(|row| row.case.working_set).collect();
    let ways: BTreeSet<(MessageMode, usize)> = rows.iter().map(|row| row.way()).collect();
    let column = |way, cell: fn(&PingPongRow) -> Option<Cell>| {
        let at = move |size| rows.iter().find(|row| (row.way(), row.case.working_set) == (way, size));
        all.iter().map(move |size| at(*size).and_then(|row| cell(row))).collect::<Vec<_>>()
    };
    let mut table = Table::new(title).right("size", all.iter().map(ToString::to_string));
    for (index, &way) in ways.iter().enumerate() {
        let name = way_name(way, "\n");
        let room = if index == 0 { Room::Any } else { Room::Wide };
        table = table.right(&format!("{name}\none way"), column(way, one_way)).in_room(room);
        let room = if index < MOST_TOLD { Room::Any } else { Room::Spare };
        table = table.right(&format!("{name}\nMB/s"), column(way, rate)).in_room(room);
        table = table.right("model\nMB/s", column(way, by_model)).in_room(Room::Spare);
    }
    let flags = |size: &Bytes| {
        let of_size = rows.iter().filter(|row| row.case.working_set == *size);
        let flags: BTreeSet<Flag> = of_size.flat_map(|row| row.quality.flags.iter().copied()).collect();
        Cell { flags: flags.into_iter().collect(), ..Cell::default() }
    };
    table.without_blanks().left("flag", all.iter().map(flags))
}

/// Ways whose rates are never left out.
const MOST_TOLD: usize = 4;

fn one_way(row: &PingPongRow) -> Option<Cell> {
    let cost = row.sound(row.one_way_ns)?;
    let slowest = row.slowest_pair_ns.map_or_else(String::new, |ns| format!("; slowest pair {}", Nanoseconds(ns)));
    let [low, high] = cost.ends().map(Nanoseconds);
    let hint = format!("{} {low} to {high}, {} samples{slowest}", cost.ends_word(), row.quality.samples);
    Some(Cell { text: Nanoseconds(cost.value()).to_string(), hint, ..Cell::default() })
}

fn rate(row: &PingPongRow) -> Option<Cell> {
    let rate = row.sound(row.payload_bps)?;
    Some(Cell { text: significant(rate.value() / 1e6), hint: spread_in(&rate, 1e6), ..Cell::default() })
}

fn by_model(row: &PingPongRow) -> Option<Cell> {
    let bytes = row.way().1 as f64 * row.case.working_set.0 as f64;
    let (ns, cost) = (row.model_ns.filter(|_| bytes > 0.0)?, row.sound(row.one_way_ns)?);
    let hint = format!("{} off", percent(ns / cost.value() - 1.0));
    Some(Cell { text: significant(bytes / ns * 1e3), hint, ..Cell::default() })
}

fn parameters(model: &PathModel) -> Table {
    let rows: Vec<PathRow> = model.rows();
    let alone = &model.model.alone;
    let at = |[off, at]: [f64; 2]| format!("{} ({})", Bytes(at as u64), percent(off));
    let worst = format!("One pair: farthest off is {}.", at(alone.worst));
    let together = |Together { by_all, by_one }: &Together| {
        format!(" {0}-{0}: {1}, from 1-1 {2}.", by_all.pairs, at(by_all.worst), at(by_one.worst))
    };
    let verdict = if alone.holds() { "" } else { " The model does not hold for this curve." };
    Table::new(format!("{}: what the curve says of the path", title(model.path, model.buffers)))
        .left("parameter", rows.iter().map(|row| row.parameter.clone()))
        .right("from", rows.iter().map(|row| row.from_bytes.map_or_else(String::new, |bytes| bytes.to_string())))
        .right("value", rows.iter().map(|row| value(row, row.value)))
        .left("95 % interval", rows.iter().map(interval))
        .left("told by", rows.iter().map(|row| row.told_by.to_string()))
        .with_notes(vec![worst + &model.predictions.iter().map(together).collect::<String>() + verdict])
}

/// A figure of a path's model, with its unit.
fn value(row: &PathRow, value: f64) -> String {
    match (row.unit.as_str(), row.parameter.as_str()) {
        ("s", _) => Nanoseconds(value * 1e9).to_string(),
        ("B", _) => Bytes(value.round() as u64).to_string(),
        ("B/s", _) => BytesPerSecond(value).to_string(),
        (_, "shared") => if value > 0.0 { "yes" } else { "no" }.into(),
        (_, "held") => percent(value),
        (_, "slowdown") => significant(value),
        _ => format!("±{}", percent(value)),
    }
}

/// `[4.6 GB/s, 4.8 GB/s]`, empty where there is none; what does not hold says so.
fn interval(row: &PathRow) -> String {
    match row.ci95 {
        Some([low, high]) => format!("[{}, {}]", value(row, low), value(row, high)),
        None if row.unit.is_empty() && !row.holds => "does not hold".into(),
        None => String::new(),
    }
}

/// Bandwidth over the size of messages: measured, and by the model.
fn chart(messages: &Messages, (path, buffers): (MessagePath, Buffers)) -> Option<Chart> {
    let rows: Vec<&PingPongRow> =
        messages.of(path, buffers).filter(|row| row.sound(row.payload_bps).is_some()).collect();
    let ways: BTreeSet<(MessageMode, usize)> = rows.iter().map(|row| row.way()).collect();
    let curve = |(index, &(mode, pairs)): (usize, &(MessageMode, usize))| {
        let ours = rows.iter().filter(|row| row.way() == (mode, pairs));
        Series {
            colour: index,
            symbol: mode as usize,
            // One pair's stream and exchange tell the model; the legend brings them in.
            shown: index < MOST_LINES && mode == MessageMode::PingPong,
            ..line(way_name((mode, pairs), " "), ours.filter_map(|row| point(row)).collect())
        }
    };
    let mut series: Vec<Series> = ways.iter().enumerate().map(curve).collect();
    let only = ways.iter().all(|(mode, _)| *mode != MessageMode::PingPong);
    series.iter_mut().for_each(|series| series.shown |= only);
    if !series.iter().any(|series| series.points.len() >= LEAST_POINTS) {
        return None;
    }
    let model = messages.model(path, buffers).filter(|model| model.model.alone.holds());
    let measured: BTreeSet<Bytes> = rows.iter().map(|row| row.case.working_set).collect();
    let measured: Vec<f64> = measured.into_iter().map(|bytes| bytes.0 as f64).collect();
    if let Some(model) = model {
        let measured_ways = ways.iter().filter(|(mode, _)| *mode == MessageMode::PingPong).map(|(_, pairs)| *pairs);
        let all = measured_ways.chain(model.forecasts.iter().map(|forecast| forecast.0)).enumerate();
        let all = all.filter(|(_, pairs)| !model.spread.contains(pairs));
        series.extend(all.map(|(index, pairs)| modelled(model, pairs, index, &measured)));
    }
    let (x, y) =
        (Axis::new("bytes of a message", "", Scale::Sizes), Axis::new("bandwidth, GB/s", "GB/s", Scale::Linear));
    let about = "1-1: one pair alone; 2-2: two pairs at once. Steps of the model beyond the limit of a chunk come from the last, shorter \
                 chunk.";
    let about = if model.is_some_and(|model| model.model.limit.is_some()) { about.into() } else { String::new() };
    let chart = Chart::new(format!("Bandwidth: {}", title(path, buffers)), about, x, y, series);
    Some(Chart { marks: model.map_or_else(Vec::new, marks), ..chart })
}

/// A dashed line: by one pair alone where that is as good as what all curves tell, or where nothing else was measured.
fn modelled(model: &PathModel, pairs: usize, colour: usize, measured: &[f64]) -> Series {
    let own = model.predictions.iter().find(|together| together.by_all.pairs == pairs);
    let is_by_one = own.is_none_or(|together| together.by_one.holds());
    let path = if is_by_one { &model.one_pair } else { &model.model };
    let name = match (pairs, is_by_one) {
        (1, _) => "1-1 model".into(),
        (_, true) => format!("{pairs}-{pairs} predicted from 1-1"),
        (_, false) => format!("{pairs}-{pairs} model"),
    };
    Series { shape: Shape::Curve, colour, dash: 1, ..line(name, predicted(path, pairs, measured)) }
}

fn point(row: &PingPongRow) -> Option<Point> {
    let rate = row.payload_bps?;
    let [median, low, high] = rate.interval().map(|bps| rounded(bps / 1e9));
    Some((row.case.working_set.0 as f64, median, low, high, row.quality.samples))
}

/// One and two pairs at eight sizes an octave, so that steps show. What three and more do changes from size to size beyond the
/// limit of a chunk: they are drawn where they were measured.
fn predicted(path: &Path, pairs: usize, measured: &[f64]) -> Vec<Point> {
    let [low, high] = [measured.first(), measured.last()].map(|end| end.copied().unwrap_or(1.0));
    let fine = || {
        let sizes = (0..).map(|step| (low * (f64::from(step) / 8.0).exp2()).round());
        sizes.take_while(|bytes| *bytes <= high).collect()
    };
    let mut sizes: Vec<f64> = if pairs < 3 { fine() } else { measured.to_vec() };
    sizes.dedup();
    let at = |bytes: f64| {
        let rate = rounded(pairs as f64 * bytes / path.one_way_s(bytes, pairs) / 1e9);
        (bytes, rate, rate, rate, 0)
    };
    sizes.into_iter().map(at).collect()
}

/// Where regimes change, caches end and chunks begin.
fn marks(model: &PathModel) -> Vec<Mark> {
    let alone = &model.model.alone;
    let size = |bytes: f64| Bytes(bytes.round() as u64);
    let mark = |what: &str, [at, from, to]: [f64; 3]| Mark { name: format!("{what} {}", size(at)), at, from, to };
    let switches =
        alone.regimes.iter().filter_map(|regime| regime.to).map(|[last, next]| mark("switch", [last, last, next]));
    let caches = alone.caches.iter().map(|cache| mark("cache", cache.capacity));
    let chunks = model.model.limit.map(|limit| mark("chunks of", limit.value));
    switches.chain(caches).chain(chunks).collect()
}

/// One pair as measured, what the model reads from its curve, then what several do together.
fn of_model(model: &PathModel, measured: Option<String>) -> Vec<String> {
    let alone = &model.model.alone;
    let title = title(model.path, model.buffers);
    if !alone.holds() {
        let (residual, allowed) = (percent(alone.residual), percent(alone.allowed()));
        let fault = "the curve has not the form of the model";
        let fault = format!(
            "{title}: {fault}: a typical point is {residual} off, where {allowed} are allowed; so nothing is read from it."
        );
        return measured.into_iter().chain([fault]).collect();
    }
    let asymptote = alone.asymptote.map(|rate| BytesPerSecond(rate[0]));
    let mut parts: Vec<String> =
        asymptote.into_iter().map(|rate| format!("by the model long messages approach {rate}")).collect();
    let switches = alone.regimes.iter().filter_map(|regime| regime.to).map(|to| Bytes(to[0] as u64).to_string());
    let switches: Vec<String> = switches.collect();
    if !switches.is_empty() {
        parts.push(format!("beyond {} they are sent another way", switches.join(" and beyond ")));
    }
    for cache in &alone.caches {
        let [capacity, low, high] = cache.capacity.map(|bytes| Bytes(bytes.round() as u64));
        let beyond = BytesPerSecond(cache.bytes_per_s[0]);
        parts.push(format!("a cache holds {capacity} [{low}, {high}], beyond it bytes go at {beyond}"));
    }
    let mut together = vec![limit_words(model)];
    together.extend(model.predictions.iter().map(|together| together_words(model, together)));
    together.extend(model.forecasts.iter().map(|(pairs, points)| forecast_words(model, *pairs, points)));
    if !model.spread.is_empty() {
        let ways: Vec<String> = model.spread.iter().map(|pairs| format!("{pairs}-{pairs}")).collect();
        together.push(format!("of {} the model says nothing: the pairs are over several paths", ways.join(", ")));
    }
    let alone = (!parts.is_empty()).then(|| format!("{title}: {}.", parts.join("; ")));
    let together = format!("{title}, pairs together: {}.", together.join("; "));
    measured.into_iter().chain(alone).chain([together]).collect()
}

fn limit_words(model: &PathModel) -> String {
    let smallest = "lies below the smallest messages that were measured";
    match (model.model.limit, model.model.unclaimed) {
        (Some(Sourced { value, by }), _) => {
            let [limit, low, high] = value.map(|bytes| Bytes(bytes.round() as u64));
            let two = model.predictions.iter().find(|together| together.by_one.pairs == 2);
            let doubt = match two {
                Some(two) if by == Source::OnePair && !two.by_one.holds() => ", which 2-2 does not bear out",
                _ => "",
            };
            format!("messages over {limit} [{low}, {high}] are cut in chunks ({by} tells{doubt})")
        }
        (None, Some(Unclaimed::Residual(off))) => {
            format!("of chunks nothing is claimed: a typical size is {} off, or uncertain by that", percent(off))
        }
        (None, Some(Unclaimed::Smallest(bytes))) => {
            format!("of chunks nothing is claimed: their limit {smallest} ({})", Bytes(bytes as u64))
        }
        (None, None) if model.predictions.is_empty() => {
            "one pair shows no chunks; two pairs over one path would tell (--pairs 1,2)".into()
        }
        (None, None) => "no sign of chunks".into(),
    }
}

/// What pairs reach: [bytes, bytes a second].
fn reach(points: &[[f64; 2]], [overshoots, ends, reaches]: [&str; 3]) -> String {
    let best = points.iter().max_by(|a, b| a[1].total_cmp(&b[1]));
    best.zip(points.last()).map_or_else(String::new, |(best, last)| {
        let (most, size, end) = (BytesPerSecond(best[1]), Bytes(best[0] as u64), BytesPerSecond(last[1]));
        if best[1] > 1.1 * last[1] {
            format!(" {overshoots} to {most} at {size} and {ends} at {end}")
        } else {
            format!(" {reaches} {most}")
        }
    })
}

/// `2-2 overshoots to 9.1 GB/s at 1 MiB and ends at 4.7 GB/s, predicted from 1-1 and that limit within 2.1 % typically`.
fn together_words(model: &PathModel, Together { by_all, by_one }: &Together) -> String {
    let pairs = by_all.pairs;
    let measured: Vec<[f64; 2]> =
        by_all.points.iter().map(|[bytes, s, _]| [*bytes, pairs as f64 * bytes / s]).collect();
    let reach = reach(&measured, ["overshoots", "ends", "reaches"]);
    let two_told = [model.model.slowdown.by, model.model.is_shared.by].contains(&Source::TwoPairs);
    let is_limit_by_two = model.model.limit.is_some_and(|limit| limit.by == Source::TwoPairs);
    let (from, shown) = match (by_one.holds(), by_all.holds()) {
        (true, _) if is_limit_by_two => ("predicted from 1-1 and that limit", by_one),
        (true, _) => ("predicted from 1-1", by_one),
        (false, true) if by_all.is_prediction && (two_told || is_limit_by_two) => {
            ("predicted from 1-1 and 2-2", by_all)
        }
        (false, true) if by_all.is_prediction => ("predicted from 1-1", by_all),
        (false, true) => ("described", by_all),
        (false, false) => {
            let off = percent(by_all.off);
            return format!(
                "{pairs}-{pairs}{reach}, which the model misses by {off}: it does not hold for pairs together"
            );
        }
    };
    let [worst, at] = shown.worst;
    let (off, worst, at) = (percent(shown.off), percent(worst.abs()), Bytes(at as u64));
    let alone = match from {
        "described" => format!("; from 1-1 alone it would be {} off", percent(by_one.off)),
        _ => String::new(),
    };
    format!("{pairs}-{pairs}{reach}, {from} within {off} typically and {worst} at worst ({at}){alone}")
}

/// Pairs that were not measured, if they share the path.
fn forecast_words(model: &PathModel, pairs: usize, points: &[[f64; 2]]) -> String {
    let reach = reach(points, ["would overshoot", "end", "would reach"]);
    let whole = if model.model.limit.is_none() { " and messages go whole" } else { "" };
    format!("{pairs}-{pairs}{reach} if they share the path{whole} (predicted from 1-1, not measured)")
}

/// `Messages, same cache, rotating buffers`.
fn title(path: MessagePath, buffers: Buffers) -> String {
    format!("Messages, {path}, {buffers} buffers")
}

/// The shortest and the longest message of the fewest pairs, as their rows have them.
fn as_measured(messages: &Messages, path: MessagePath, buffers: Buffers) -> Option<String> {
    let measured = || messages.of(path, buffers).filter(|row| row.sound(row.one_way_ns).is_some());
    let shortest = measured().min_by_key(|row| (row.way().1, row.way().0, row.case.working_set))?;
    let is_alike = |row: &&PingPongRow| row.way() == shortest.way();
    let longest = measured().filter(is_alike).max_by_key(|row| row.case.working_set)?;
    let takes = Nanoseconds(shortest.one_way_ns?.value());
    let (size, (mode, pairs)) = (shortest.case.working_set, shortest.way());
    let mut text = format!("{}, {mode} {pairs}-{pairs}: {size} take {takes} one way", title(path, buffers));
    if let Some(rate) = longest.payload_bps.filter(|_| longest.case.working_set > size) {
        text += &format!(", {} go at {}", longest.case.working_set, BytesPerSecond(rate.value()));
    }
    Some(text + ".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::pingpong::rows::PingPongFigures;
    use crate::quality::Status;
    use crate::rate::Cost;
    use membound_core::case::{Case, USUAL_MEMORY, Work, steady};
    use membound_core::kernel::{StoreKind, Width};
    use membound_core::work::pingpong::PingPong;

    const KIND: (MessagePath, Buffers) = (MessagePath::ALL[0], Buffers::ALL[0]);

    fn row(bytes: u64, ns: f64, outcome: Status) -> PingPongRow {
        let (path, buffers) = KIND;
        let mode = MessageMode::PingPong;
        let work =
            PingPong { mode, buffers, path, pairs: Vec::new(), spread: false, pool: Bytes(0), oversubscribed: false };
        let case = steady("load", Width::Scalar, StoreKind::Regular, USUAL_MEMORY, vec![0, 1], Bytes(bytes));
        let cost = Cost::plain(ns, ns, [ns; 2]);
        let figures = PingPongFigures {
            one_way_ns: Some(cost),
            payload_bps: Some(cost.each(|ns| bytes as f64 * 1e9 / ns)),
            slowest_pair_ns: None,
            fastest_pair_ns: None,
            model_ns: None,
        };
        PingPongRow::made_up(Case { work: Work::PingPong(work), ..case }, outcome, figures)
    }

    #[test]
    fn what_crashed_is_neither_told_nor_drawn() {
        let rows = vec![row(8, 1.0, Status::Crashed), row(64, 200.0, Status::Measured)];
        let cells = |row: &PingPongRow| [one_way(row), rate(row)].map(|cell| cell.is_some());
        assert_eq!([&rows[0], &rows[1]].map(cells), [[false; 2], [true; 2]]);
        let messages = Messages { rows, ..Messages::default() };
        let said = as_measured(&messages, KIND.0, KIND.1).unwrap();
        assert!(said.contains("64 B take 200 ns one way"), "{said}");
    }
}
