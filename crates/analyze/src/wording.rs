//! Figures in words: how sections write rates, intervals and reasons.

use crate::flag::Flag;
use crate::rate::{Cost, Figure, Rate};
use crate::row::AnyRow;
use membound_core::kernel::Element;
use membound_core::machine::devices::{Api, Device, MemoryFlag, MemoryType};
use membound_core::record::hand_overs::Distance;
use membound_core::stats::states::Ends;
use membound_core::units::{Nanoseconds, counted, percent, significant};
use membound_core::work::device::Buffer;

/// What every table with `±` says about it.
pub(crate) const SPREAD_CAPTION: &str =
    "undisturbed ± the farther end of its 95 % interval (~ of a range: too few visits)";

/// Where CPUs are.
pub(crate) fn apart(distance: Distance) -> &'static str {
    match distance {
        Distance::Close => "close together",
        Distance::Far => "far apart",
    }
}

/// A rate in GB/s, without the unit.
pub(crate) fn gbps(bytes_per_s: f64) -> String {
    significant(bytes_per_s / 1e9)
}

/// Beyond this share of the value its ends are shown themselves: `±99%` reads as if a figure were there.
const WIDE: f64 = 0.5;

/// `±0.7%`: the farther end of the interval against the value, `~12%` of a range, `[1.02, 31.4]` in GB/s where that is more than
/// half of it. Less than 0.1 % is not told apart: the three digits beside it are no finer.
pub(crate) fn spread(rate: &Rate) -> String {
    spread_in(rate, 1e9)
}

/// The same of a rate shown in units of so many bytes per second.
pub(crate) fn spread_in(rate: &Rate, unit: f64) -> String {
    spread_as(sign(rate.capability.ends), rate.interval(), |value| significant(value / unit))
}

/// What stands before the ends of an interval, or of a range.
fn sign(ends: Ends) -> char {
    if ends == Ends::Ci95 { '±' } else { '~' }
}

/// The same of [value, low, high].
pub(crate) fn spread_of(figure: [f64; 3]) -> String {
    spread_as('±', figure, significant)
}

/// The same where values are shown in a way of their own.
pub(crate) fn spread_as(sign: char, figure: [f64; 3], shown: impl Fn(f64) -> String) -> String {
    if farther(figure) > WIDE {
        // What is not negative has no interval below zero.
        let low = figure[1].max(figure[0].min(0.0));
        return format!("[{}, {}]", shown(low), shown(figure[2]));
    }
    format!("{sign}{}", percent(farther(figure).max(0.001)))
}

/// The farther end of [value, low, high], as a share of the value.
pub(crate) fn farther([value, low, high]: [f64; 3]) -> f64 {
    (value - low).max(high - value) / value
}

/// A value and the farther end of its interval: `1.08 ±0.3%`.
pub(crate) fn with_spread(figure: [f64; 3]) -> String {
    format!("{} {}", significant(figure[0]), spread_of(figure))
}

/// The same where its ends may be those of a range: `1.08 ~0.3%`.
pub(crate) fn with_spread_to(ends: Ends, figure: [f64; 3]) -> String {
    format!("{} {}", significant(figure[0]), spread_as(sign(ends), figure, significant))
}

/// A figure with its spread: `1.08 ±0.3%`, of a range `1.08 ~0.3%`.
pub(crate) fn with_own_spread(figure: &Figure) -> String {
    format!("{} {}", significant(figure.value()), spread_in(figure, 1.0))
}

/// `1.85 us ±0.7%`: what something takes.
pub(crate) fn time(cost: &Cost) -> String {
    let shown = |ns: f64| Nanoseconds(ns).to_string();
    format!("{} {}", shown(cost.value()), spread_as(sign(cost.capability.ends), cost.interval(), shown))
}

/// Names in a row: `store of regular, first use; load of regular` where they hold commas themselves.
fn listed(names: &[String]) -> String {
    names.join(if names.iter().any(|name| name.contains(", ")) { "; " } else { ", " })
}

/// Names, and how many more there are.
pub(crate) fn some(names: &[String], most: usize) -> String {
    let shown = listed(&names[..most.min(names.len())]);
    match names.len().saturating_sub(most) {
        0 => shown,
        left => format!("{shown} and {left} more"),
    }
}

/// `2 threads`
pub(crate) fn threads(count: usize) -> String {
    counted(count, "thread")
}

/// A ratio with its interval, as a speed-up: `1.38 x [1.36, 1.40]`. One visit of each side has none.
pub(crate) fn times(gain: [f64; 3]) -> String {
    format!("{} x {}", significant(gain[0]), interval(gain))
}

/// The same in a sentence, where a ratio that may be almost anything in its interval is no finding of that size.
pub(crate) fn about_times(gain: [f64; 3]) -> String {
    let [_, low, high] = gain.map(significant);
    match has_no_interval(gain) {
        true => format!("about {}", times(gain)),
        false if farther(gain) > WIDE => format!("between {low} x and {high} x"),
        false => times(gain),
    }
}

/// Whether a ratio is known well enough to be told as a finding.
pub(crate) fn is_known(gain: [f64; 3]) -> bool {
    !has_no_interval(gain) && farther(gain) <= WIDE
}

/// Whether there is no interval at all.
fn has_no_interval([_, low, high]: [f64; 3]) -> bool {
    low == high
}

/// What there is to know about rows whose table has no room for flags: each flag with how many it befell.
pub(crate) fn flag_notes<R: AnyRow>(rows: &[R]) -> Vec<String> {
    let befell = |flag: Flag| {
        let count = rows.iter().filter_map(|row| row.quality()).filter(|quality| quality.has(flag)).count();
        (count > 0).then(|| format!("{flag}: {} ({count} of {} cases)", flag.means(), rows.len()))
    };
    Flag::ALL.iter().filter_map(|flag| befell(*flag)).collect()
}

/// A ratio with its interval: `1.38 [1.36, 1.40]`.
pub(crate) fn ratio(gain: [f64; 3]) -> String {
    format!("{} {}", significant(gain[0]), interval(gain))
}

fn interval(gain: [f64; 3]) -> String {
    let [_, low, high] = gain.map(significant);
    if has_no_interval(gain) { "(no interval)".into() } else { format!("[{low}, {high}]") }
}

/// `68.9`, or with an interval `103.1 ±0.8`: a speed in percent.
pub(crate) fn speed_figure(speed: Option<f64>, ci95: Option<[f64; 2]>) -> String {
    let Some(speed) = speed else { return "-".into() };
    // From ten times on, three digits.
    let percent =
        |speed: f64| if speed < 9.9995 { format!("{:.1}", 100.0 * speed) } else { significant(100.0 * speed) };
    match ci95 {
        Some([low, high]) => format!("{} ±{}", percent(speed), percent((speed - low).max(high - speed))),
        None => percent(speed),
    }
}

/// What streams are arrays of, where it is not the usual: `, float`.
pub(crate) fn element_note(element: Element) -> String {
    if element.is_usual() { String::new() } else { format!(", {element}") }
}

/// What a device's types of memory promise, and which kinds of buffers lie in each: a line a type.
pub(crate) fn memory_types(device: &Device) -> Vec<String> {
    let types = &device.memory_types;
    let line = |(number, of): (u32, &MemoryType)| {
        let flags: Vec<&str> = of.flags.iter().map(|flag| flag.word()).collect();
        let flags = if flags.is_empty() { "no flags".into() } else { flags.join(", ") };
        let used = used_as(number, types);
        format!("{}: memory type {number} of heap {} ({}): {flags}: {used}", device.name, of.heap, of.heap_bytes)
    };
    (0..).zip(types).map(line).collect()
}

/// The kinds of buffers that lie there, or why none does.
fn used_as(number: u32, types: &[MemoryType]) -> String {
    let lies_there = |buffer: &&Buffer| buffer.types(types).first() == Some(&number);
    let kinds: Vec<&str> = Buffer::of(Api::Vulkan).iter().filter(lies_there).map(|buffer| buffer.word()).collect();
    let flags = types.get(number as usize).map_or(&[][..], |of| &of.flags);
    let is_visible = flags.contains(&MemoryFlag::HostVisible);
    let before = (0..number).zip(types).find(|(_, of)| of.flags == flags).map(|(before, _)| before);
    match (kinds.is_empty(), is_visible, before) {
        (false, true, _) => format!("of kind {}", kinds.join(" and ")),
        (false, false, _) => format!("the processor can't map it; of kind {}", kinds.join(" and ")),
        (true, _, Some(before)) => format!("not measured: its flags are those of type {before}, which comes first"),
        (true, false, None) => "not measured: the processor can't map it".into(),
        (true, true, None) => "not measured: a program must enable a feature to use it".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use membound_core::units::Bytes;

    #[test]
    fn every_type_of_memory_is_told() {
        use MemoryFlag::{DeviceCoherent, DeviceLocal, HostCoherent, HostVisible};
        let mut device = Device::unknown("vulkan:0".parse().unwrap());
        let all: [&[MemoryFlag]; 5] = [
            &[],
            &[DeviceLocal],
            &[HostVisible, HostCoherent],
            &[HostVisible, HostCoherent],
            &[HostVisible, HostCoherent, DeviceCoherent],
        ];
        let of = |flags: &[MemoryFlag]| MemoryType { flags: flags.to_vec(), heap: 1, heap_bytes: Bytes::gib(2) };
        device.memory_types = all.into_iter().map(of).collect();
        assert_eq!(
            memory_types(&device),
            [
                "vulkan:0: memory type 0 of heap 1 (2 GiB): no flags: not measured: the processor can't map it",
                "vulkan:0: memory type 1 of heap 1 (2 GiB): device-local: the processor can't map it; of kind plain",
                "vulkan:0: memory type 2 of heap 1 (2 GiB): host-visible, host-coherent: of kind coherent",
                "vulkan:0: memory type 3 of heap 1 (2 GiB): host-visible, host-coherent: not measured: its flags are those of type 2, \
                 which comes first",
                "vulkan:0: memory type 4 of heap 1 (2 GiB): host-visible, host-coherent, device-coherent: not measured: a program must \
                 enable a feature to use it",
            ]
        );
    }

    #[test]
    fn ratios_are_told_as_far_as_they_are_known() {
        assert_eq!(times([1.38, 1.36, 1.40]), "1.38 x [1.36, 1.40]");
        assert_eq!(times([1.92; 3]), "1.92 x (no interval)");
        assert_eq!(about_times([1.92; 3]), "about 1.92 x (no interval)");
        assert_eq!(about_times([1.27, 1.18, 13.3]), "between 1.18 x and 13.3 x");
        assert_eq!(about_times([1.38, 1.36, 1.40]), "1.38 x [1.36, 1.40]");
        assert_eq!([[1.92; 3], [1.27, 1.18, 13.3], [1.38, 1.36, 1.40]].map(is_known), [false, false, true]);
    }

    #[test]
    fn wide_intervals_are_their_ends() {
        assert_eq!(with_spread([1.08, 1.077, 1.083]), "1.08 ±0.3%");
        assert_eq!(with_spread([10.0, 5.0, 12.0]), "10.0 ±50%");
        assert_eq!(with_spread([10.0, 4.9, 12.0]), "10.0 [4.90, 12.0]");
        let rate = Rate::plain(2e10, 1e10, [1e9, 2e10]);
        assert_eq!((spread(&rate), spread_in(&rate, 1e6)), ("[1.00, 20.0]".into(), "[1000, 20000]".into()));
        assert_eq!(time(&Cost::plain(1.0, 1850.0, [200.0, 2000.0])), "1.85 us [200 ns, 2.00 us]");
    }
}
