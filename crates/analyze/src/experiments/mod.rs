//! The list of experiments: what each tells of a report. Whatever walks over all of them walks over this list.

pub mod addrmap;
pub mod bandwidth;
pub mod c2c;
pub mod copies;
pub mod device;
pub mod energy;
pub mod flops;
pub mod kinds;
pub mod latency;
pub mod loaded;
pub mod offsets;
pub mod page_cache;
pub mod pages;
pub mod pingpong;
pub mod plain;
pub mod rounding;
pub mod streams;

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::across::numa::rows::{Numa, NumaRow};
use crate::across::sections::kernel;
use crate::across::traffic;
use crate::answer::{Answer, SchemaOf, schema};
use crate::experiments::latency::rows::LatencyRow;
use crate::experiments::plain::Plain;
use crate::quality::Quality;
use crate::report::Report;
use crate::row::{AnyRow, any};
use crate::section::Section;

/// What an experiment tells.
#[derive(Debug)]
pub struct Experiment {
    /// Its name.
    pub name: &'static str,
    /// Its rows, of all its metrics.
    pub rows: fn(&Report) -> Vec<&dyn AnyRow>,
    /// The schemas of these metrics.
    pub schemas: &'static [SchemaOf],
    /// The answer in whole sentences.
    pub sentences: fn(&Report) -> Vec<String>,
    /// The answer and what it comes from; nothing where it was not asked for.
    pub sections: fn(&Report) -> Vec<Section>,
}

/// An experiment whose answer is that field of the report. It has rows in these lists, each of one metric; or none; or they are
/// gathered otherwise.
macro_rules! answer {
    ($name:literal, $field:ident) => {
        answer!($name, $field, |_| Vec::new(), &[])
    };
    ($name:literal, $field:ident, $($($list:ident).+),+) => {
        answer!(
            $name,
            $field,
            |report| [$(any(&report.$($list).+)),+].concat(),
            &[$(schema_of(|report| &report.$($list).+)),+]
        )
    };
    ($name:literal, $field:ident, $rows:expr, $schemas:expr) => {
        Experiment {
            name: $name,
            rows: $rows,
            schemas: $schemas,
            sentences: |report| report.$field.sentences(),
            sections: |report| report.$field.sections(),
        }
    };
}

/// The schema of the rows in a list.
const fn schema_of<R: JsonSchema>(_: fn(&Report) -> &Vec<R>) -> SchemaOf {
    schema::<R>
}

/// All experiments, in the order in which their answers are told.
const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "bandwidth",
        rows: |report| any(&report.rows),
        schemas: &[schema_of(|report| &report.rows)],
        sentences: |report| bandwidth::sections::sentences(&report.bandwidth()),
        sections: |report| bandwidth::sections::sections(&report.bandwidth()),
    },
    Experiment {
        name: "kernel",
        rows: |_| Vec::new(),
        schemas: &[],
        sentences: |report| kernel::sentences(&report.rows),
        sections: |report| kernel::sections(&report.rows),
    },
    Experiment {
        name: "write-allocate",
        rows: |_| Vec::new(),
        schemas: &[],
        sentences: |report| traffic::sentences(&report.write_allocate, &report.rows),
        sections: |report| traffic::sections(&report.write_allocate, &report.rows),
    },
    answer!("weights", weightings),
    answer!("kinds", kinds),
    answer!("device", device, device.rows),
    answer!("copies", copies, copies.rows),
    answer!(
        "latency",
        latency,
        |report| [any(&report.latency.rows), any(&report.latency.together)].concat(),
        &[schema::<LatencyRow>]
    ),
    answer!("pages", pages, pages),
    answer!("offsets", offsets, offsets),
    answer!("c2c", handovers, handovers.rows),
    answer!("loaded", loaded, loaded.rows),
    answer!("addrmap", addrmap, addrmap),
    answer!("numa", numa, |report| report.numa.iter().flat_map(Numa::any_rows).collect(), &[schema::<NumaRow>]),
    answer!("page-cache", page_cache, page_cache.rows),
    answer!("flops", flops, flops),
    answer!("energy", energy, energy),
    answer!("rounding", rounding, rounding.rows),
    answer!("streams", congestion, congestion.rows),
    answer!("plain", plain, |report| report.plain.rows(), Plain::SCHEMAS),
    answer!("pingpong", messages, messages.rows, messages.parameters),
    answer!("stream", stream),
];

/// The names of all experiments.
pub fn names() -> impl Iterator<Item = &'static str> {
    EXPERIMENTS.iter().map(|experiment| experiment.name)
}

/// The schema of the rows of all metrics: each row fits one of them.
impl JsonSchema for dyn AnyRow {
    fn schema_name() -> Cow<'static, str> {
        "AnyRow".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let metrics = EXPERIMENTS.iter().flat_map(|experiment| experiment.schemas);
        let all: Vec<Schema> = metrics.map(|schema| schema(generator)).collect();
        schemars::json_schema!({
            "description": "Any row, as `--format json` prints them one after the other.",
            "anyOf": all,
        })
    }
}

/// The answers of all experiments, most important first; without one, what there is instead.
pub(crate) fn sentences(report: &Report) -> Vec<String> {
    let answers: Vec<String> = EXPERIMENTS.iter().flat_map(|experiment| (experiment.sentences)(report)).collect();
    if !answers.is_empty() {
        return answers;
    }
    // Of kinds of memory there is no fastest.
    if let Some(fastest) = bandwidth::sections::fastest(&report.bandwidth()).filter(|_| report.kinds.is_none()) {
        return vec![fastest];
    }
    let is_measured = report.any_rows().filter_map(|row| row.quality()).any(Quality::is_measured);
    let instead = if is_measured {
        "No findings: the figures below are all there is; there is nothing to hold them against."
    } else {
        "No findings: nothing was measured that an answer could rest on."
    };
    vec![instead.into()]
}

impl Report {
    /// All rows of all metrics.
    pub fn any_rows(&self) -> impl Iterator<Item = &dyn AnyRow> {
        EXPERIMENTS.iter().flat_map(|experiment| (experiment.rows)(self))
    }

    /// The answers of all experiments, each with what it comes from, by experiment.
    pub fn sections(&self) -> impl Iterator<Item = (&'static str, Vec<Section>)> {
        EXPERIMENTS.iter().map(|experiment| (experiment.name, (experiment.sections)(self)))
    }
}
