//! Which buffer to use with a device, what the device does with its own memory, and what both cost each other.

use std::collections::BTreeSet;
use std::fmt::Display;

use crate::answer::Answer;
use crate::break_even::BreakEven;
use crate::chart::{Axis, Chart, LEAST_POINTS, Limit, Mark, Point, Scale, Series, Shape, line, rounded};
use crate::experiments::device::rows::{DeviceRow, Kept, OnDevice, Ratio, Use};
use crate::missing::{reasons, said_once};
use crate::rate::Cost;
use crate::section::{Cell, Room, Section, Table};
use crate::wording::{SPREAD_CAPTION, gbps, memory_types, spread, spread_as, times};
use membound_core::curves::hierarchy::levels::Plateau;
use membound_core::in_order::InOrder;
use membound_core::machine::devices::{Api, Device};
use membound_core::memory::located::NodePages;
use membound_core::memory::proof::Proof;
use membound_core::memory::sharing::Sharing;
use membound_core::units::{Bytes, BytesPerSecond, Nanoseconds, count, percent, significant};
use membound_core::work::device::{Action, Buffer};

impl Answer for OnDevice {
    fn sentences(&self) -> Vec<String> {
        let all = [best(self), sharing(self), reading(self), own_memory(self), levels(self), contention(self)];
        all.into_iter().flatten().collect()
    }

    fn sections(&self) -> Vec<Section> {
        if self.rows.is_empty() {
            return Vec::new();
        }
        let tables = [uses(self), preparing(self), touching(self), copying(self), kernels(self), beside(self)];
        vec![Section {
            id: "device",
            title: self.device.as_ref().map_or_else(|| "A device's memory".into(), title),
            about: format!(
                "A use: the processor fills the buffer, the device reads it; the first counts from asking for the buffer, and \
                 touches memory that the program brings along for it; what is written from was touched before. What a driver makes of \
                 a flag is seen by behaviour, not taken from the flag. Figures: {SPREAD_CAPTION}."
            ),
            sentences: self.sentences(),
            tables: tables.into_iter().filter(|table| table.height() > 0).collect(),
            charts: [own_memory_over_sizes(self), chases_over_sizes(self), kept_over_the_other(self)]
                .into_iter()
                .flatten()
                .collect(),
            notes: notes(self),
            details: evidence(self),
            missing: reasons(&self.rows),
            ..Section::default()
        }]
    }
}

/// `opencl:0, AMD EPYC (cpu, Portable Computing Language 3.1)`
fn title(device: &Device) -> String {
    format!("{}, {} ({}, {})", device.name, device.title, device.kind, device.driver)
}

fn notes(on: &OnDevice) -> Vec<String> {
    let types = on.device.iter().flat_map(memory_types);
    single_precision(on).into_iter().chain(types).collect()
}

fn single_precision(on: &OnDevice) -> Option<String> {
    let has_none = on.device.as_ref().is_some_and(|device| !device.has_double);
    has_none.then(|| "The device has no double precision: its kernels work on arrays of float.".into())
}

/// What was seen of each kind of buffer.
fn evidence(on: &OnDevice) -> Vec<String> {
    let proofs = Buffer::of_devices().filter_map(|buffer| {
        let proves = |row: &DeviceRow| row.obtained.as_ref().is_some_and(|obtained| !obtained.proofs.is_empty());
        let obtained = on.tells_most(buffer, proves)?.obtained.as_ref()?;
        let proof = |proof: &Proof| {
            let not = if proof.holds { "" } else { "not " };
            format!("{not}{} ({}: {})", proof.claim, proof.by, proof.seen)
        };
        let mut told: Vec<String> = obtained.proofs.iter().map(proof).collect();
        told.extend(nodes(on, &obtained.pages_on_node));
        Some((buffer.to_string(), told.join("; ")))
    });
    said_once(proofs)
}

/// Where a buffer's pages lie, against the device.
fn nodes(on: &OnDevice, pages: &[NodePages]) -> Option<String> {
    let lie: Vec<String> = pages.iter().map(|found| found.node.to_string()).collect();
    let node = on.device.as_ref().and_then(|device| device.node);
    let device = node.map_or_else(String::new, |node| format!(", the device is attached to node {node}"));
    (!lie.is_empty()).then(|| format!("its pages lie on node {}{device}", lie.join(", ")))
}

fn name(way: &Use, api: Api) -> String {
    match (way.action, api) {
        (Action::UseWritten, Api::OpenCl) => "plain, written to".into(),
        (Action::UseWritten, Api::Cuda) => "pageable".into(),
        (Action::UseWritten, Api::Vulkan) => "staged".into(),
        _ => way.buffer.to_string(),
    }
}

fn uses(on: &OnDevice) -> Table {
    let is_use = |row: &&DeviceRow| matches!(row.work().action, Action::Use | Action::UseWritten);
    let bytes = on.rows.iter().find(is_use).map(|row| row.case.working_set.to_string());
    let rate = |way: &Use| {
        let bytes = on.row(way.buffer, way.action)?.case.working_set.0 as f64;
        let rate = way.later_ns?.each(|ns| bytes * 1e9 / ns);
        Some(format!("{} {}", gbps(rate.value()), spread(&rate)))
    };
    Table::new(format!("One use of {}: the processor fills, the device reads", bytes.unwrap_or_default()))
        .left("buffer", on.uses.iter().map(|way| name(way, on.api())))
        .right("first", on.uses.iter().map(|way| way.first_ns.map(Cell::time)))
        .right("later", on.uses.iter().map(|way| way.later_ns.map(Cell::time)))
        .right("GB/s", on.uses.iter().map(rate))
        .in_room(Room::Wide)
        .right(
            match on.api() {
                Api::OpenCl => "speed over\nwritten",
                Api::Cuda => "speed over\npageable",
                Api::Vulkan => "speed over\nstaged",
            },
            on.uses.iter().map(|way| way.gain.map(ratio)),
        )
        .left("pays\nafter", on.uses.iter().map(|way| way.break_even.map_or_else(|| "".into(), BreakEven::cell)))
        .left("device\nsees", on.uses.iter().map(|way| on.sharing(way.buffer).map(Sharing::word)))
}

/// Kinds of buffers of which an action is known.
fn kinds(on: &OnDevice, actions: &[Action]) -> Vec<Buffer> {
    let is_known =
        |buffer: &Buffer| actions.iter().any(|action| on.row(*buffer, *action).is_some_and(|row| row.ns.is_some()));
    Buffer::ALL.iter().copied().filter(is_known).collect()
}

fn preparing(on: &OnDevice) -> Table {
    const MAPS: [(Action, &str); 3] =
        [(Action::MapRead, "map\nread"), (Action::MapWrite, "map\nwrite"), (Action::MapInvalidate, "map\ninvalidate")];
    let kinds = kinds(on, &[Action::Allocate, Action::MapRead]);
    let sizes =
        |action: Action| on.rows.iter().filter(move |row| row.work().action == action).map(|row| row.case.working_set);
    let at = |action: Action, size: Option<Bytes>| {
        kinds.iter().map(move |&buffer| on.row_of(buffer, action, size?)?.ns.map(Cell::time)).collect::<Vec<_>>()
    };
    let (small, large) = (sizes(Action::Allocate).min(), sizes(Action::Allocate).max());
    let make = |size: Option<Bytes>| format!("make\n{}", size.unwrap_or(Bytes(0)));
    let mut table = Table::new("What the driver takes to make a buffer, to pin it, and to map and unmap it")
        .left("buffer", kinds.iter().map(Buffer::to_string))
        .right(&make(small), at(Action::Allocate, small));
    if small < large {
        table = table.right(&make(large), at(Action::Allocate, large));
    }
    let mapped = |table: Table, (action, head)| table.right(head, at(action, sizes(action).max()));
    let least = sizes(Action::MapRead).min();
    MAPS.into_iter()
        .fold(table, mapped)
        .right(&format!("map read,\n{}", least.unwrap_or(Bytes(0))), at(Action::MapRead, least))
        .right("copies at", kinds.iter().map(|&buffer| growth(on, buffer)))
        .without_blanks()
}

/// Bytes per second that mapping for reading moves, where what it takes grows with the buffer.
fn growth(on: &OnDevice, buffer: Buffer) -> Option<Cell> {
    /// Sizes differ by more than a hundred, so that a copy takes many times as long; what is below that is chance.
    const GROWS: f64 = 4.0;
    let of_kind = on.rows.iter().filter(|row| (row.work().buffer, row.work().action) == (buffer, Action::MapRead));
    let mut points: Vec<(f64, Cost)> =
        of_kind.filter_map(|row| Some((row.case.working_set.0 as f64, row.sound(row.ns)?))).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let [(small, least), .., (large, most)] = points[..] else { return None };
    if !most.is_apart(least) || most.value() < GROWS * least.value() {
        return Some("no".into());
    }
    let bps = (large - small) / (most.value() - least.value()) * 1e9;
    Some(Cell { text: BytesPerSecond(bps).to_string(), hint: "bytes mapped per second".into(), ..Cell::default() })
}

/// The processor on the mapped buffer.
fn touching(on: &OnDevice) -> Table {
    const WAYS: [(Action, &str); 4] = [
        (Action::Store, "store"),
        (Action::StoreNt, "store\nnt"),
        (Action::Load, "load"),
        (Action::LoadNt, "load\nnt"),
    ];
    let kinds = kinds(on, &WAYS.map(|(action, _)| action));
    let table = Table::new("The processor on the mapped buffer, GB/s")
        .left("buffer", kinds.iter().map(Buffer::to_string))
        .right("first\nstore", kinds.iter().map(|&buffer| first_store(on, buffer)));
    let add = |table: Table, (action, head): (Action, &str)| {
        table.right(head, kinds.iter().map(|&buffer| on.row(buffer, action)?.payload_bps.map(Cell::gbps)))
    };
    WAYS.into_iter().fold(table, add).without_blanks()
}

/// Copies, by driver and device. A byte that is copied counts once.
fn copying(on: &OnDevice) -> Table {
    const WAYS: [(Action, &str); 6] = [
        (Action::Write, "write\nto it"),
        (Action::Read, "read\nfrom it"),
        (Action::Copy, "copy\nfrom it"),
        (Action::CopyBack, "copy\nto it"),
        (Action::CopyBoth, "both\nways"),
        (Action::KernelRead, "kernel\nreads"),
    ];
    let size = on.buffer_bytes();
    let copied = |buffer: Buffer, action: Action| Some(on.row_of(buffer, action, size?)?.payload_bps?.times(0.5));
    let is_known = |buffer: &Buffer| WAYS.iter().any(|(action, _)| copied(*buffer, *action).is_some());
    let kinds: Vec<Buffer> = Buffer::ALL.iter().copied().filter(is_known).collect();
    let table = Table::new("Copies between it and regular memory or a plain buffer, GB/s copied")
        .left("buffer", kinds.iter().map(Buffer::to_string));
    let add = |table: Table, (action, head): (Action, &str)| {
        table.right(head, kinds.iter().map(|&buffer| copied(buffer, action).map(Cell::gbps_if_sure)))
    };
    WAYS.into_iter().fold(table, add).without_blanks()
}

/// Stores to a buffer that was just made.
fn first_store(on: &OnDevice, buffer: Buffer) -> Option<Cell> {
    let is_it =
        |row: &&DeviceRow| (row.work().buffer, row.work().action, row.is_first_use()) == (buffer, Action::Store, true);
    let row = on.rows.iter().find(is_it)?;
    row.sound(row.payload_bps).map(Cell::gbps)
}

fn kernels(on: &OnDevice) -> Table {
    let is_it = |row: &&DeviceRow| row.work().action.is_on_own_memory() && row.sound(row.ns).is_some();
    let rows: Vec<&DeviceRow> = on.rows.iter().filter(is_it).collect();
    // Chases are over many more.
    let sizes: BTreeSet<Bytes> =
        rows.iter().filter(|row| row.payload_bps.is_some()).map(|row| row.case.working_set).collect();
    let find = |size: Bytes, action: Action| {
        rows.iter().find(|row| (row.case.working_set, row.work().action) == (size, action)).copied()
    };
    let table =
        Table::new("The device on its own memory: STREAM's kernels in GB/s, a dependent load of one work item in ns");
    let table = table.right("size", sizes.iter().map(Bytes::to_string));
    let add = |table: Table, action: &Action| {
        let rate = |&size: &Bytes| find(size, *action)?.payload_bps.map(Cell::gbps);
        table.right(action.kernel().unwrap_or_default(), sizes.iter().map(rate))
    };
    let ns = |&size: &Bytes| Some(significant(find(size, Action::Chase)?.ns?.value()));
    let table = Action::KERNELS.iter().fold(table, add).right("load\nns", sizes.iter().map(ns)).without_blanks();
    table.with_notes(within_cache(on, &sizes).into_iter().collect())
}

/// Which of these sets say nothing of the device's memory.
fn within_cache(on: &OnDevice, sizes: &BTreeSet<Bytes>) -> Option<String> {
    let (least, largest) = (sizes.first()?, sizes.last()?);
    match on.device.as_ref()?.cache {
        Some(cache) => {
            (*least <= cache).then(|| format!("Sets of up to {cache} fit into the device's cache: their figures are the cache's."))
        }
        None => (least < largest)
            .then(|| "The driver does not tell the size of the device's cache: figures of the smaller sets may be the cache's.".into()),
    }
}

/// The same as curves, with what clock and bus of its memory allow and the size of its cache.
fn own_memory_over_sizes(on: &OnDevice) -> Option<Chart> {
    let curve = |(index, &action): (usize, &Action)| {
        let rows = on.rows.iter().filter(|row| row.work().action == action);
        let point = |row: &DeviceRow| {
            let [middle, low, high] = row.sound(row.payload_bps)?.interval().map(|bps| rounded(bps / 1e9));
            Some((row.case.working_set.0 as f64, middle, low, high, row.quality.samples))
        };
        let name = action.kernel().unwrap_or_default().into();
        Series { colour: index, symbol: index, ..line(name, rows.filter_map(point).collect()) }
    };
    let series: Vec<Series> = Action::KERNELS.iter().enumerate().map(curve).collect();
    if !series.iter().any(|series| series.points.len() >= LEAST_POINTS) {
        return None;
    }
    let peak = on.device.as_ref().and_then(|device| device.peak_bps).map(|peak| rounded(peak as f64 / 1e9));
    let limits = peak.map(|at| Limit { name: "clock and bus of its memory".into(), at });
    let (x, y) =
        (Axis::new("bytes of all arrays", "", Scale::Sizes), Axis::new("read and written, GB/s", "GB/s", Scale::Log));
    let about =
        "Where a line rises steadily, launching a kernel decides; above the limit the cache of the device does.".into();
    Some(Chart {
        limits: limits.into_iter().collect(),
        marks: cache(on).into_iter().collect(),
        ..Chart::new("STREAM's kernels on the device's own memory".into(), about, x, y, series)
    })
}

fn cache(on: &OnDevice) -> Option<Mark> {
    let at = on.device.as_ref()?.cache?.0 as f64;
    Some(Mark { name: "its last-level cache".into(), at, from: at, to: at })
}

/// What a load that waits for another takes, with the size of the device's cache.
fn chases_over_sizes(on: &OnDevice) -> Option<Chart> {
    let point = |row: &DeviceRow| {
        let [middle, low, high] = row.sound(row.ns)?.interval().map(rounded);
        Some((row.case.working_set.0 as f64, middle, low, high, row.quality.samples))
    };
    let chases = on.rows.iter().filter(|row| row.work().action == Action::Chase);
    let points: Vec<Point> = chases.filter_map(point).collect();
    if points.len() < LEAST_POINTS {
        return None;
    }
    let (x, y) = (Axis::new("bytes", "", Scale::Sizes), Axis::new("from load to load, ns", "ns", Scale::Log));
    let about = "One work item follows a chain of lines in random order: where the line rises, a level of the device's memory ends.";
    let series = vec![line("random".into(), points)];
    Some(Chart {
        marks: cache(on).into_iter().collect(),
        ..Chart::new("Loads that wait for each other on the device's own memory".into(), about.into(), x, y, series)
    })
}

/// A ratio and its ends: `1.08 ±0.3%`, of single visits `1.08 ~0.3%`.
fn ratio(Ratio { ends, has_interval }: Ratio) -> String {
    let sign = if has_interval { '±' } else { '~' };
    format!("{} {}", significant(ends[0]), spread_as(sign, ends, significant))
}

/// What each side is called, without what it copies from.
fn agent(kept: &Kept) -> &'static str {
    match (kept.action, kept.buffer) {
        // Whoever copies regular memory, the driver decides.
        (Action::Copy, Buffer::Regular) => "driver's write",
        (Action::Copy, _) => "device's copy",
        _ => "processor's triad",
    }
}

fn side(kept: &Kept) -> String {
    match (kept.action, kept.buffer) {
        (Action::Copy, Buffer::Plain) => agent(kept).into(),
        (Action::Copy, buffer) => format!("{} from {buffer}", agent(kept)),
        _ => agent(kept).into(),
    }
}

fn beside(on: &OnDevice) -> Table {
    Table::new(
        "Both at once: GB/s read and written, of a triad by several CPUs those of one; and what the other moves of what it has alone",
    )
        .left("timed", on.kept.iter().map(side))
        .right("CPUs", on.kept.iter().map(|kept| kept.triads.to_string()))
        .right("alone", on.kept.iter().map(|kept| gbps(kept.alone.value())))
        .right("other\nat", on.kept.iter().map(|kept| kept.other.map(|share| format!("~{}", percent(share)))))
        .right("beside\nit", on.kept.iter().map(|kept| format!("{} {}", gbps(kept.beside.value()), spread(&kept.beside))))
        .right("keeps", on.kept.iter().map(|kept| ratio(kept.share)))
        .without_blanks()
}

/// What each side keeps over what the other moves, as latency stands over load.
fn kept_over_the_other(on: &OnDevice) -> Option<Chart> {
    let triads = on.kept.iter().filter(|kept| kept.pauses.is_some()).map(|kept| kept.triads).max()?;
    let curve = |index: usize, action: Action| {
        let of = on.kept.iter().filter(|kept| (kept.triads, kept.action) == (triads, action));
        let point = |kept: &Kept| {
            let [share, low, high] = kept.share.ends.map(|share| rounded(100.0 * share));
            Some((rounded(100.0 * kept.other?), share, low, high, kept.samples))
        };
        let mut points: Vec<Point> = of.filter_map(point).chain([(0.0, 100.0, 100.0, 100.0, 0)]).collect();
        points.order_by(|a, b| a.0.total_cmp(&b.0));
        let name = agent(on.kept.iter().find(|kept| kept.action == action)?);
        Some(Series { colour: index, symbol: index, ..line(name.into(), points) })
    };
    let whole = |x: f64| (x, 100.0 - x, 100.0 - x, 100.0 - x, 0);
    let shared = Series {
        shape: Shape::Curve,
        colour: 2,
        dash: 1,
        ..line("one path for both".into(), vec![whole(0.0), whole(100.0)])
    };
    let sides = [Action::HostTriad, Action::Copy];
    let mut series: Vec<Series> =
        sides.into_iter().enumerate().filter_map(|(index, action)| curve(index, action)).collect();
    series.push(shared);
    let axis = |name: &'static str| Axis::new(name, "%", Scale::Linear);
    let about = "Above the dashed line more goes through than one of both gets alone: each has a path of its own, or does not fill it.";
    Some(Chart::new(
        "What each side keeps while the other works".into(),
        about.into(),
        axis("the other's speed, % of what it has alone"),
        axis("speed kept, %"),
        series,
    ))
}

/// Which buffer to use.
fn best(on: &OnDevice) -> Option<String> {
    let written = on.uses.iter().find(|way| way.action == Action::UseWritten)?;
    let size = on.row(Buffer::Plain, Action::UseWritten)?.case.working_set;
    let base = Nanoseconds(written.later_ns?.value());
    let gain = |way: &Use| way.gain.map_or([0.0; 3], Ratio::wide);
    let is_faster = |way: &&Use| gain(way)[1] > 1.0;
    let fastest = on.uses.iter().filter(is_faster).map(|way| gain(way)[0]).max_by(f64::total_cmp);
    // Of those that may be as fast as the fastest the one that pays first.
    let pays = |way: &&Use| match way.break_even {
        Some(BreakEven::AtOnce) => 0.0,
        Some(BreakEven::After { uses, .. }) => uses,
        _ => f64::INFINITY,
    };
    let may_be_fastest = |way: &&Use| fastest.is_some_and(|fastest| gain(way)[2] >= fastest);
    let faster = on.uses.iter().filter(is_faster).filter(may_be_fastest);
    let faster = faster.min_by(|a, b| pays(a).total_cmp(&pays(b)).then(gain(b)[0].total_cmp(&gain(a)[0])));
    let (call, mapped) = match on.api() {
        Api::OpenCl => ("by clEnqueueWriteBuffer", "mapped "),
        Api::Cuda => ("from pageable memory", ""),
        Api::Vulkan => ("by way of a staging buffer", "mapped "),
    };
    let head = format!("Handing {size} to the device {call} takes {base}");
    let Some(way) = faster else { return Some(head + &unsure(on, mapped)) };
    let later = Nanoseconds(way.later_ns?.value());
    let pays = match way.break_even {
        Some(BreakEven::AtOnce) => ", and is the better choice from the first use on".into(),
        Some(BreakEven::After { uses, low, high }) => {
            let ends = BreakEven::wide_ends(uses, low, high).map_or_else(String::new, |ends| format!(" {ends}"));
            let uses = if count(uses) == "1" { "one use".into() } else { format!("{} uses", count(uses)) };
            format!(", and pays after about {uses}{ends}")
        }
        _ => String::new(),
    };
    Some(format!("{head}; a {mapped}{} buffer takes {later}, {} the speed{pays}.", way.buffer, speed(way.gain?)))
}

/// What is told where no buffer is surely faster than the written one.
fn unsure(on: &OnDevice, mapped: &str) -> String {
    let may_be = |way: &Use| Some((way.buffer, way.gain.filter(|gain| gain.wide()[2] > 1.0)?));
    match on.uses.iter().filter_map(may_be).max_by(|(_, a), (_, b)| a.ends[0].total_cmp(&b.ends[0])) {
        Some((buffer, gain)) if gain.ends[0] > 1.0 => {
            format!("; a {mapped}{buffer} buffer may be faster, {} the speed: a longer --budget tells.", speed(gain))
        }
        Some(_) => "; no other kind of buffer is known to be faster.".into(),
        None => "; no other kind of buffer is faster.".into(),
    }
}

/// `2.55 x [1.57, 4.14]`; a range is called one.
fn speed(Ratio { ends, has_interval }: Ratio) -> String {
    if has_interval {
        return times(ends);
    }
    let [gain, low, high] = ends.map(significant);
    format!("{gain} x (by few visits, {low} to {high})")
}

/// Which kinds are shared and which are copied.
fn sharing(on: &OnDevice) -> Option<String> {
    let of = |sharing: Sharing| {
        let kinds = Buffer::of_devices().filter(|&buffer| on.sharing(buffer) == Some(sharing));
        let kinds: Vec<String> = kinds.map(|buffer| buffer.to_string()).collect();
        (!kinds.is_empty()).then(|| (sharing, kinds.join(", ")))
    };
    let clause = |(sharing, kinds): (Sharing, String)| match sharing {
        Sharing::Same => format!("the device works on the very memory that the processor maps (zero copy): {kinds}"),
        Sharing::Copied => format!("mapping copies: {kinds}"),
        Sharing::Migrated => format!("pages move to whoever touches them: {kinds}"),
        Sharing::OneWay => format!("only one side sees the other's stores: {kinds}"),
    };
    let clauses: Vec<String> = Sharing::ALL.iter().filter_map(|&sharing| of(sharing)).map(clause).collect();
    (!clauses.is_empty()).then(|| format!("By behaviour, {}.", clauses.join("; ")))
}

/// What reading a mapped buffer costs against regular memory, where that is much, and whether non-temporal loads cure it.
fn reading(on: &OnDevice) -> Option<String> {
    /// As slow as memory that is not cached is, and cached memory never.
    const SLOW: f64 = 0.5;
    let rate = |buffer: Buffer, action: Action| on.row(buffer, action)?.payload_bps;
    let regular = rate(Buffer::Regular, Action::Load)?;
    let slow = |buffer: Buffer| {
        let load = rate(buffer, Action::Load)?;
        let nt = rate(buffer, Action::LoadNt).filter(|nt| nt.is_apart(load) && nt.value() > load.value());
        let cure = nt.map_or_else(String::new, |nt| format!(" (non-temporal loads: {})", per_second(nt.value())));
        (load.value() < SLOW * regular.value()).then(|| format!("{buffer} at {}{cure}", per_second(load.value())))
    };
    let slow: Vec<String> = Buffer::of_devices().filter_map(slow).collect();
    let usual = per_second(regular.value());
    (!slow.is_empty()).then(|| format!("The processor reads regular memory at {usual}, but {}.", slow.join(", ")))
}

fn per_second(bps: f64) -> impl Display {
    BytesPerSecond(bps)
}

/// What the device's own memory moves, against what its clock and bus allow, and what a load of it takes: by the largest working set
/// that was measured, where that does not fit into its cache; by the largest of all where the driver tells of no cache.
fn own_memory(on: &OnDevice) -> Option<String> {
    let device = on.device.as_ref()?;
    let of = |action: Action| {
        match device.cache {
            Some(cache) => on.measured_row(Buffer::Plain, action).filter(|row| 2 * cache.0 < row.case.working_set.0),
            // A smaller one may be the cache's.
            None => on.row(Buffer::Plain, action),
        }
    };
    let triad = of(Action::KernelTriad)?;
    let bps = triad.payload_bps?.value();
    let peak = device.peak_bps.map(|peak| peak as f64);
    let share = peak.map_or_else(String::new, |peak| {
        format!(", {} of the {} that its clock and bus allow", percent(bps / peak), per_second(peak))
    });
    let size = triad.case.working_set;
    let load = of(Action::Chase).filter(|_| on.levels().len() < 2).and_then(|row| {
        // A chase is one buffer, and three arrays can be more than a buffer.
        let over = row.case.working_set;
        let over = if over == size { String::new() } else { format!(", over {over},") };
        Some(format!("; a load that waits for another{over} takes {}", Nanoseconds(row.ns?.value())))
    });
    let load = load.unwrap_or_default();
    Some(format!("On {size} of its own memory the device's triad moves {}{share}{load}.", per_second(bps)))
}

/// What a load takes in each level of the device's memory.
fn levels(on: &OnDevice) -> Option<String> {
    let levels = on.levels();
    let [within @ .., last] = &levels[..] else { return None };
    let ns = |level: &Plateau| Nanoseconds(1.0 / level.speed);
    let each = |level: &Plateau| Some(format!("{} up to {}", ns(level), level.capacity?));
    let within: Vec<String> = within.iter().filter_map(each).collect();
    let within = (!within.is_empty()).then(|| within.join(", "))?;
    Some(format!("On the device, a load that waits for another takes {within}, and {} beyond.", ns(last)))
}

/// What both keep where the most CPUs do the triad.
fn contention(on: &OnDevice) -> Option<String> {
    let whole = || on.kept.iter().filter(|kept| kept.pauses.is_none());
    let triads = whole().map(|kept| kept.triads).max()?;
    let of = |action: Action| whole().find(|kept| (kept.triads, kept.action) == (triads, action));
    let (triad, copy) = (of(Action::HostTriad)?, of(Action::Copy)?);
    let cpus = if triads == 1 { String::new() } else { format!(" by {triads} CPUs") };
    let from = if copy.buffer == Buffer::Plain { String::new() } else { format!(" from {} memory", copy.buffer) };
    let who = agent(copy);
    Some(format!(
        "Side by side, the processor's triad{cpus} keeps {} of its speed and the {who}{from} {}{}.",
        ratio(triad.share),
        ratio(copy.share),
        in_sum(triad, copy)
    ))
}

/// What both shares come to, where they can be added and the sum tells one path from two.
fn in_sum(triad: &Kept, copy: &Kept) -> String {
    /// Nothing is faster beside another: a percent is chance.
    const MORE_THAN_ALONE: f64 = 1.01;
    if let Some(faster) = [triad, copy].into_iter().find(|kept| kept.share.ends[1] > MORE_THAN_ALONE) {
        return format!(
            ". Alone the {} was slower than beside, which no sharing explains, so there is no sum",
            agent(faster)
        );
    }
    let shares = [triad.share, copy.share];
    let ends = [0, 1, 2].map(|end| shares.iter().map(|share| share.ends[end]).sum());
    let [_, low, high]: [f64; 3] = ends;
    if low <= 1.0 && high >= 2.0 {
        return ", which does not tell one path for both from two".into();
    }
    let sum = Ratio { ends, has_interval: shares.iter().all(|share| share.has_interval) };
    format!(": in sum {}, where 1 is one path for both and 2 is nothing shared", ratio(sum))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::device::rows::DeviceFigures;
    use crate::quality::Status;
    use membound_core::case::{Case, USUAL_MEMORY, Work, steady};
    use membound_core::kernel::{StoreKind, Width};
    use membound_core::work::device::DeviceWork;

    /// Regular memory at 10 GB/s, a pinned buffer at 1.
    fn read(outcome: Status) -> OnDevice {
        let row = |buffer, bps: f64, outcome| {
            let work = DeviceWork::new("cuda:0".parse().unwrap(), buffer, Action::Load);
            let case = steady("load", Width::Scalar, StoreKind::Regular, USUAL_MEMORY, vec![0], Bytes::mib(64));
            let (ns, rate) = (Cost::plain(1e6, 1e6, [1e6; 2]), Cost::plain(bps, bps, [bps; 2]));
            let (ns, payload_bps) = (Some(ns), Some(rate));
            let figures = DeviceFigures { ns, payload_bps, beside_bps: None, sharing: None, obtained: None };
            DeviceRow::made_up(Case { work: Work::Device(work), ..case }, outcome, figures)
        };
        let rows = vec![row(Buffer::Regular, 10e9, Status::Measured), row(Buffer::Pinned, 1e9, outcome)];
        OnDevice { rows, ..OnDevice::default() }
    }

    #[test]
    fn what_cannot_be_right_is_no_figure() {
        let (sound, wrong) = (read(Status::Measured), read(Status::Invalid));
        assert!(reading(&sound).unwrap().contains("pinned at 1.00 GB/s"), "{:?}", reading(&sound));
        assert_eq!(reading(&wrong), None);
        assert_eq!([&sound, &wrong].map(|on| touching(on).height()), [2, 1]);
    }

    /// Of a few visits 1.2 to 3.2 times the speed can be slower, too; 0.7 to 0.9 in an interval can't be faster.
    #[test]
    fn what_may_be_faster_is_not_called_slower() {
        let told = |gains: &[([f64; 3], bool)]| {
            let way = |(ends, has_interval)| Use {
                buffer: Buffer::Pinned,
                action: Action::Use,
                first_ns: None,
                later_ns: None,
                gain: Some(Ratio { ends, has_interval }),
                break_even: None,
            };
            unsure(&OnDevice { uses: gains.iter().copied().map(way).collect(), ..OnDevice::default() }, "mapped ")
        };
        let (few, slower) = (([2.2, 1.2, 3.2], false), ([0.8, 0.7, 0.9], true));
        let may_be = "; a mapped pinned buffer may be faster, 2.20 x (by few visits, 1.20 to 3.20) the speed: a longer --budget tells.";
        assert_eq!(told(&[slower, few]), may_be);
        assert_eq!(told(&[slower, ([0.9, 0.7, 1.1], true)]), "; no other kind of buffer is known to be faster.");
        assert_eq!(told(&[slower]), "; no other kind of buffer is faster.");
        assert_eq!(told(&[]), "; no other kind of buffer is faster.");
    }

    /// Of 96 and 768 MiB the larger was not measured: with a cache of 40 MiB the smaller one tells, with one of unknown size neither.
    #[test]
    fn what_may_lie_in_a_cache_is_not_called_memory() {
        let on = |cache: Option<Bytes>, outcome| {
            let row = |mib, outcome| {
                let work = DeviceWork::new("cuda:0".parse().unwrap(), Buffer::Plain, Action::KernelTriad);
                let case = Case::new(Work::Device(work), USUAL_MEMORY, vec![0], Bytes::mib(mib));
                let (ns, rate) = (Cost::plain(1e6, 1e6, [1e6; 2]), Cost::plain(2e12, 2e12, [2e12; 2]));
                let (ns, payload_bps) = (Some(ns), Some(rate));
                DeviceRow::made_up(
                    case,
                    outcome,
                    DeviceFigures { ns, payload_bps, beside_bps: None, sharing: None, obtained: None },
                )
            };
            let device = Device { cache, ..Device::unknown("cuda:0".parse().unwrap()) };
            let rows = vec![row(24, Status::Measured), row(96, Status::Measured), row(768, outcome)];
            OnDevice { device: Some(device), rows, ..OnDevice::default() }
        };
        let said =
            |cache, outcome| own_memory(&on(cache, outcome)).map(|said| said.split(" of").next().unwrap().to_string());
        assert_eq!(said(Some(Bytes::mib(40)), Status::Unavailable).unwrap(), "On 96 MiB");
        assert_eq!(said(None, Status::Unavailable), None);
        assert_eq!(said(None, Status::Measured).unwrap(), "On 768 MiB");
        let note = |cache| kernels(&on(cache, Status::Measured)).notes.join(" ");
        assert_eq!(
            note(Some(Bytes::mib(40))),
            "Sets of up to 40 MiB fit into the device's cache: their figures are the cache's."
        );
        assert_eq!(note(Some(Bytes::mib(12))), "");
        assert!(note(None).starts_with("The driver does not tell"), "{}", note(None));
    }

    #[test]
    fn a_range_is_called_one() {
        let said = |has_interval| speed(Ratio { ends: [2.5, 2.0, 3.0], has_interval });
        assert_eq!([said(true), said(false)], ["2.50 x [2.00, 3.00]", "2.50 x (by few visits, 2.00 to 3.00)"]);
    }

    /// 0.8 to 1.0 and 0.72 to 0.88 are 1.52 to 1.88 together; 0.5 to 1.3 and 0.3 to 1.3 are 0.8 to 2.6, which may be anything.
    #[test]
    fn shares_are_added_where_the_sum_tells_something() {
        let kept = |action, ends: [f64; 3], has_interval| Kept {
            alone: Cost::plain(10e9, 10e9, [10e9; 2]),
            beside: Cost::plain(9e9, 9e9, [9e9; 2]),
            share: Ratio { ends, has_interval },
            samples: 7,
            action,
            triads: 3,
            buffer: Buffer::Regular,
            other: None,
            pauses: None,
        };
        let said = |triad, copy, has_interval| {
            let kept = vec![kept(Action::HostTriad, triad, true), kept(Action::Copy, copy, has_interval)];
            contention(&OnDevice { kept, ..OnDevice::default() }).unwrap()
        };
        let [triad, copy] = [[0.9, 0.8, 1.0], [0.8, 0.72, 0.88]];
        assert_eq!(
            said(triad, copy, true),
            "Side by side, the processor's triad by 3 CPUs keeps 0.900 ±11% of its speed and the driver's write from regular memory \
             0.800 ±10%: in sum 1.70 ±11%, where 1 is one path for both and 2 is nothing shared."
        );
        assert!(said(triad, copy, false).contains("0.800 ~10%: in sum 1.70 ~11%"));
        assert!(
            said([0.9, 0.5, 1.3], [0.8, 0.3, 1.3], true).ends_with("which does not tell one path for both from two.")
        );
        let faster = said(triad, [1.3, 1.2, 1.4], true);
        assert!(
            faster.contains("Alone the driver's write was slower than beside") && !faster.contains("in sum"),
            "{faster}"
        );
    }
}
