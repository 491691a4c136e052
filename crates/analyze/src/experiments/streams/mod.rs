//! Many streams at once, by their offsets from each other.

pub mod rows;
pub mod sections;

use crate::answer::{Answer, SchemaOf, schema};
use crate::experiments::streams::rows::{Congestion, StreamsRow};
use crate::row::{AnyRow, any};
use crate::section::Section;

impl Answer for Congestion {
    const NAME: &'static str = "streams";
    const SCHEMAS: &'static [SchemaOf] = &[schema::<StreamsRow>];

    fn rows(&self) -> Vec<&dyn AnyRow> {
        any(&self.rows)
    }

    fn sentences(&self) -> Vec<String> {
        sections::sentences(self)
    }

    fn sections(&self) -> Vec<Section> {
        sections::sections(self)
    }
}
