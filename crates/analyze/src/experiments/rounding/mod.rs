//! One sum in many ways.

pub mod rows;
pub mod sections;

use crate::answer::{Answer, SchemaOf, schema};
use crate::experiments::rounding::rows::{Rounding, RoundingRow};
use crate::row::{AnyRow, any};
use crate::section::Section;

impl Answer for Rounding {
    const NAME: &'static str = "rounding";
    const SCHEMAS: &'static [SchemaOf] = &[schema::<RoundingRow>];

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
