//! What work costs in energy.

pub mod rows;
pub mod sections;

use crate::answer::{Answer, SchemaOf, schema};
use crate::experiments::energy::rows::EnergyRow;
use crate::row::{AnyRow, any};
use crate::section::Section;

impl Answer for Vec<EnergyRow> {
    const NAME: &'static str = "energy";
    const SCHEMAS: &'static [SchemaOf] = &[schema::<EnergyRow>];

    fn rows(&self) -> Vec<&dyn AnyRow> {
        any(self)
    }

    fn sentences(&self) -> Vec<String> {
        sections::sentences(self)
    }

    fn sections(&self) -> Vec<Section> {
        sections::sections(self)
    }
}
