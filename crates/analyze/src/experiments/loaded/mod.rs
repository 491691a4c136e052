//! How long a load from memory takes while others use it.

pub mod rows;
pub mod sections;

use crate::answer::{Answer, SchemaOf, schema};
use crate::experiments::loaded::rows::{LoadedRow, UnderLoad};
use crate::row::{AnyRow, any};
use crate::section::Section;

impl Answer for UnderLoad {
    const NAME: &'static str = "loaded";
    const SCHEMAS: &'static [SchemaOf] = &[schema::<LoadedRow>];

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
