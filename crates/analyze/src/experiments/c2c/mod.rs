//! What passing a line from core to core costs.

pub mod rows;
pub mod sections;

use crate::answer::{Answer, SchemaOf, schema};
use crate::experiments::c2c::rows::{HandoverRow, Handovers};
use crate::row::{AnyRow, any};
use crate::section::Section;

impl Answer for Handovers {
    const NAME: &'static str = "c2c";
    const SCHEMAS: &'static [SchemaOf] = &[schema::<HandoverRow>];

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
