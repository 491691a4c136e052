//! What came of an experiment, as whoever shows or lists it knows it: an answer knows its own rows and nothing of others.

use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::row::AnyRow;
use crate::section::Section;

/// What came of an experiment.
pub trait Answer {
    /// The experiment's name.
    const NAME: &'static str;

    /// The schemas of its metrics.
    const SCHEMAS: &'static [SchemaOf];

    /// Its rows, of all its metrics.
    fn rows(&self) -> Vec<&dyn AnyRow>;

    /// The answer in whole sentences.
    fn sentences(&self) -> Vec<String>;

    /// The answer and what it comes from; nothing where it was not asked for.
    fn sections(&self) -> Vec<Section>;
}

/// What makes the schema of a metric's rows.
pub type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// The schema of a metric's rows.
pub(crate) fn schema<R: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    R::json_schema(generator)
}
