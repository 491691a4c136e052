//! What came of an experiment, as whoever shows it knows it.

use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::section::Section;

/// What came of an experiment.
pub trait Answer {
    /// The answer in whole sentences.
    fn sentences(&self) -> Vec<String> {
        Vec::new()
    }

    /// The answer and what it comes from; nothing where it was not asked for.
    fn sections(&self) -> Vec<Section>;
}

/// What makes the schema of a metric's rows.
pub type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// The schema of a metric's rows.
pub(crate) fn schema<R: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    R::json_schema(generator)
}
