//! A check, or a machine that is watched, as a file for Prometheus' textfile collector, in the text format of version 0.0.4.
//!
//! Names follow its conventions: base units (seconds, bytes, hertz), the unit last, ratios and not percent. A figure that
//! was not measured is absent, never zero. There is no label for the host: the collector adds the instance.

use std::fmt::Write;

use crate::across::check::{Against, CheckRow, Checkup, Health};
use crate::across::watch::{Series, Standing};

/// What came of a check.
#[derive(Debug, Clone, Copy)]
pub enum Told<'a> {
    /// It was made.
    Checked(&'a Checkup),
    /// The node was busy.
    Skipped {
        /// Checks in a row that were left out, this one included.
        in_a_row: u64,
    },
    /// It could not be made.
    Unable,
}

/// One metric: name, what it is, and its samples (labels, value).
struct Family {
    name: &'static str,
    help: &'static str,
    samples: Vec<(String, f64)>,
}

/// How every file begins.
pub const BEGIN: &str = "# HELP membound_";

const IN_A_ROW: &str = "membound_check_skips_in_a_row";

/// Checks in a row that were left out, as an earlier file says.
pub fn skips_in_a_row(earlier: &str) -> u64 {
    let value = earlier.lines().find_map(|line| line.strip_prefix(IN_A_ROW)?.trim().parse::<f64>().ok());
    value.map_or(0, |skips| skips.clamp(0.0, 1e15) as u64)
}

/// The whole file.
pub fn check(told: Told<'_>, finished_unix_s: u64, seconds: f64) -> String {
    let is = |holds: bool| f64::from(u8::from(holds));
    let one = |name, help, value| Family { name, help, samples: vec![(String::new(), value)] };
    let mut families = vec![
        one(
            "membound_check_timestamp_seconds",
            "When the last check ended, in seconds since 1970.",
            finished_unix_s as f64,
        ),
        one("membound_check_duration_seconds", "How long the last check took.", seconds),
        one(
            "membound_check_skipped",
            "1 if the last check was left out because the node was busy.",
            is(matches!(told, Told::Skipped { .. })),
        ),
        one("membound_check_unable", "1 if the last check could not be made.", is(matches!(told, Told::Unable))),
    ];
    if let Told::Skipped { in_a_row } = told {
        families.push(one(
            IN_A_ROW,
            "Checks in a row that were left out, the last one included; absent where it was not left out.",
            in_a_row as f64,
        ));
    }
    if let Told::Checked(checkup) = told {
        if checkup.is_judged() {
            families.push(one(
                "membound_check_healthy",
                "1 if the node is healthy, 0 if it is degraded; absent where nothing was judged.",
                is(!checkup.is_degraded()),
            ));
            families.push(one(
                "membound_check_changed_facts",
                "Facts (memory, modules, CPUs, settings) that are not those of the baseline.",
                checkup.facts.len() as f64,
            ));
        }
        families.extend(figures(checkup));
        families.extend(judgements(checkup));
    }
    whole(&families)
}

fn whole(families: &[Family]) -> String {
    families.iter().filter(|family| !family.samples.is_empty()).map(text).collect()
}

/// What is told of each figure that is watched.
type Watched = (&'static str, &'static str, fn(&Series) -> Option<f64>);

const WATCHED: &[Watched] = &[
    ("membound_watch_bytes_per_second", "Bytes read or written a second, as the last probe found them.", |series| {
        series.last.filter(|_| series.unit == "B/s")
    }),
    ("membound_watch_latency_seconds", "Dependent-load latency, as the last probe found it.", |series| {
        series.last.filter(|_| series.unit == "ns").map(|ns| ns * 1e-9)
    }),
    ("membound_watch_core_clock_hertz", "Clock of the core, as the last probe found it.", |series| {
        series.last.filter(|_| series.unit == "Hz")
    }),
    (
        "membound_watch_fallen",
        "1 if this figure fell and has not recovered; absent while too few probes were made.",
        |series| (series.needed() == 0).then(|| f64::from(u8::from(series.is_fallen()))),
    ),
    (
        "membound_watch_ratio_to_before",
        "Speed against that before the first fall which has not recovered: below 1 is slower.",
        |series| series.ratio().filter(|_| series.needed() == 0),
    ),
];

/// The whole file of a machine that is watched. Names are others than those of a check: both files may lie in one folder.
pub fn watch(standing: &Standing<'_>) -> String {
    let one = |name, help, value: Option<f64>| Family {
        name,
        help,
        samples: value.map(|value| (String::new(), value)).into_iter().collect(),
    };
    let mut families = vec![
        one(
            "membound_watch_timestamp_seconds",
            "When the last probe ended, in seconds since 1970.",
            standing.last_probe_unix_s.map(|time| time as f64),
        ),
        one("membound_watch_probes", "Probes made since watching began.", Some(standing.probes as f64)),
        one(
            "membound_watch_paused",
            "1 if nothing is probed because others use the machine; 0 once watching has ended.",
            Some(f64::from(u8::from(standing.is_paused))),
        ),
        one(
            "membound_watch_unwritten",
            "Visits that could not be written to the record yet.",
            Some(standing.unwritten as f64),
        ),
        one("membound_watch_cpu_seconds", "CPU time taken since watching began.", Some(standing.cpu.as_secs_f64())),
    ];
    families.extend(WATCHED.iter().map(|(name, help, value)| {
        let sample = |series: &Series| Some((labels(&[("quantity", series.quantity.clone())]), value(series)?));
        Family { name, help, samples: standing.watch.series.iter().filter_map(sample).collect() }
    }));
    whole(&families)
}

/// What the labels of a figure are made of, and the figure in base units.
type Quantity = (&'static str, &'static str, fn(&CheckRow) -> bool);

const QUANTITIES: &[Quantity] = &[
    ("membound_memory_read_bytes_per_second", "Bytes read from memory a second.", |row| is_rate(row, "load", true)),
    ("membound_memory_write_bytes_per_second", "Bytes written to memory a second, by regular stores.", |row| {
        is_rate(row, "store", true)
    }),
    ("membound_memory_copy_bytes_per_second", "Bytes read and written a second by copying in memory.", |row| {
        is_rate(row, "copy", true)
    }),
    ("membound_memory_triad_bytes_per_second", "Bytes read and written a second by the triad in memory.", |row| {
        is_rate(row, "triad", true)
    }),
    ("membound_cache_read_bytes_per_second", "Bytes read from a cache a second.", |row| is_rate(row, "load", false)),
    ("membound_latency_seconds", "Dependent-load latency.", |row| row.unit == "ns"),
    ("membound_core_clock_hertz", "Clock of the cores while they were measured.", |row| row.unit == "Hz"),
];

fn is_rate(row: &CheckRow, kernel: &str, is_memory: bool) -> bool {
    row.unit == "B/s" && row.kernel.as_deref() == Some(kernel) && (row.level.as_deref() == Some("memory")) == is_memory
}

fn figures(checkup: &Checkup) -> Vec<Family> {
    let family = |(name, help, is_own): &Quantity| {
        let mut samples: Vec<(String, f64)> = Vec::new();
        for row in checkup.rows.iter().filter(|row| is_own(row)) {
            let Some(value) = row.value else { continue };
            let value = if row.unit == "ns" { value * 1e-9 } else { value };
            let mut named = vec![];
            named.extend(row.kernel.as_deref().map(|kernel| ("kernel", kernel.to_string())));
            named.extend(row.level.as_deref().map(|level| ("level", level.to_string())));
            if row.level.is_some() {
                named.push(("threads", row.threads.to_string()));
            }
            let labels = labels(&named);
            // A figure that is held against baseline and sheet has two rows.
            if samples.iter().all(|(other, _)| *other != labels) {
                samples.push((labels, value));
            }
        }
        Family { name, help, samples }
    };
    QUANTITIES.iter().map(family).collect()
}

fn judgements(checkup: &Checkup) -> Vec<Family> {
    let of = |against: Against, value: fn(&CheckRow) -> Option<f64>| -> Vec<(String, f64)> {
        let own = checkup.rows.iter().filter(|row| row.against == Some(against));
        own.filter_map(|row| Some((labels(&[("quantity", row.quantity.clone())]), value(row)?))).collect()
    };
    let ratio = |row: &CheckRow| row.ratio;
    let is_degraded = |row: &CheckRow| match row.health {
        Health::Unknown | Health::TooNoisy => None,
        health => Some(f64::from(u8::from(health == Health::Degraded))),
    };
    let mut degraded: Vec<(String, f64)> = Vec::new();
    for row in checkup.rows.iter().filter(|row| row.against.is_some()) {
        let labels =
            labels(&[("quantity", row.quantity.clone()), ("against", row.against.map_or("", Against::word).into())]);
        degraded.extend(is_degraded(row).map(|value| (labels, value)));
    }
    vec![
        Family {
            name: "membound_check_ratio_to_baseline",
            help: "Speed against the baseline: below 1 is slower.",
            samples: of(Against::Baseline, ratio),
        },
        Family {
            name: "membound_check_ratio_to_spec",
            help: "Speed against the limit of the specification sheet.",
            samples: of(Against::Sheet, ratio),
        },
        Family {
            name: "membound_check_least_ratio",
            help: "The ratio below which a figure is degraded.",
            samples: [Against::Baseline, Against::Sheet]
                .into_iter()
                .filter_map(|against| {
                    let row = checkup.rows.iter().find(|row| row.against == Some(against))?;
                    Some((labels(&[("against", against.word().into())]), row.least_ratio?))
                })
                .collect(),
        },
        Family { name: "membound_check_degraded", help: "1 if this figure is degraded.", samples: degraded },
    ]
}

fn labels(named: &[(&str, String)]) -> String {
    if named.is_empty() {
        return String::new();
    }
    let label = |(name, value): &(&str, String)| format!("{name}=\"{}\"", escaped(value));
    format!("{{{}}}", named.iter().map(label).collect::<Vec<_>>().join(","))
}

/// As the format wants it in labels.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn text(family: &Family) -> String {
    let mut text = format!("# HELP {0} {1}\n# TYPE {0} gauge\n", family.name, family.help);
    for (labels, value) in &family.samples {
        // Writing to a String can't fail.
        let _ = writeln!(text, "{}{labels} {value}", family.name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        assert_eq!(labels(&[]), "");
        assert_eq!(labels(&[("a", "x\"y\\z\nw".into()), ("b", "2".into())]), r#"{a="x\"y\\z\nw",b="2"}"#);
    }

    #[test]
    fn a_skipped_check_has_no_health() {
        let text = check(Told::Skipped { in_a_row: 3 }, 1_700_000_000, 0.5);
        assert_eq!((skips_in_a_row(&text), skips_in_a_row("")), (3, 0));
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                "membound_check_timestamp_seconds 1700000000",
                "membound_check_duration_seconds 0.5",
                "membound_check_skipped 1",
                "membound_check_unable 0",
                "membound_check_skips_in_a_row 3"
            ]
        );
        assert!(check(Told::Unable, 0, 0.0).contains("\nmembound_check_unable 1\n"));
    }
}
