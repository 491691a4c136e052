//! How long a load takes: the ladder, translation of addresses, lines in flight, the map over cores.

pub mod chases;
pub mod ladder;
pub mod map;
pub mod parallelism;
pub mod rows;
pub mod sections;
pub mod translation;

use crate::answer::{Answer, SchemaOf, schema};
use crate::experiments::latency::chases::Latency;
use crate::experiments::latency::rows::LatencyRow;
use crate::row::AnyRow;
use crate::section::Section;

impl Answer for Latency {
    const NAME: &'static str = "latency";
    const SCHEMAS: &'static [SchemaOf] = &[schema::<LatencyRow>];

    fn rows(&self) -> Vec<&dyn AnyRow> {
        self.rows.iter().chain(&self.together).map(|row| row as &dyn AnyRow).collect()
    }

    fn sentences(&self) -> Vec<String> {
        sections::sentences(self)
    }

    fn sections(&self) -> Vec<Section> {
        sections::sections(self)
    }
}
