//! Rows: what came of one case, together with the case.
//!
//! A figures type says what is measured ([`Metric`]); the [`Row`] around it knows of what case and how far it can be
//! trusted. Lists of rows of several metrics hold them as [`AnyRow`].

use std::borrow::Cow;
use std::fmt::Debug;
use std::ops::{Deref, DerefMut};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};

use crate::quality::Quality;
use membound_core::case::Case;
use membound_core::json::text;

/// What came of one case. Its figures are at hand as if they were its own fields.
#[derive(Debug, Clone, PartialEq)]
pub struct Row<F> {
    /// What was measured.
    pub case: Case,
    /// How far the figures can be trusted.
    pub quality: Quality,
    /// What came of it.
    pub figures: F,
}

impl<F> Deref for Row<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.figures
    }
}

impl<F> DerefMut for Row<F> {
    fn deref_mut(&mut self) -> &mut F {
        &mut self.figures
    }
}

impl<F> Row<F> {
    /// One of its figures, where nothing speaks against them as a whole: what crashed or can't be right has samples, too.
    pub(crate) fn sound<T>(&self, figure: Option<T>) -> Option<T> {
        figure.filter(|_| self.quality.is_measured())
    }
}

#[cfg(test)]
impl<F> Row<F> {
    /// A row as if its case had been visited three times, and come to this.
    pub(crate) fn made_up(case: Case, outcome: crate::quality::Status, figures: F) -> Row<F> {
        let quality = Quality { samples: 27, rounds: 3, outcome, reason: None, flags: Vec::new() };
        Row { case, quality, figures }
    }
}

/// Figures that have tidy rows. In JSON a row is: `metric`, its keys, `unit`, its figures, its quality.
pub trait Metric: Debug + Serialize + JsonSchema + Sized + 'static {
    /// The row's `metric`.
    const NAME: &'static str;
    /// The row's `unit`; the usual one where it depends on the row.
    const UNIT: &'static str;
    /// All units that rows have.
    const UNITS: &'static [&'static str] = &[Self::UNIT];
    /// Whether rows show the figures of other rows once more.
    const IS_REPEATED: bool = false;
    /// What tells the row from others of its metric, as JSON names it.
    type Keys: Serialize + JsonSchema;

    /// Its keys: mostly what its case says.
    fn keys(row: &Row<Self>) -> Self::Keys;

    /// What it is about, in few words.
    fn what(row: &Row<Self>) -> String;

    /// The kind of memory that it is about, where nothing else may be why it is missing.
    fn kind(_row: &Row<Self>) -> Option<String> {
        None
    }

    /// The row's `unit`, one of [`UNITS`](Metric::UNITS).
    fn unit(_row: &Row<Self>) -> &'static str {
        Self::UNIT
    }
}

/// The row as JSON has it.
#[derive(Serialize, JsonSchema)]
struct Tidy<'a, F: Metric> {
    metric: &'static str,
    #[serde(flatten)]
    keys: F::Keys,
    unit: &'static str,
    #[serde(flatten)]
    figures: &'a F,
    #[serde(flatten)]
    quality: &'a Quality,
}

impl<F: Metric> Serialize for Row<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let keys = F::keys(self);
        let tidy = Tidy { metric: F::NAME, keys, unit: F::unit(self), figures: &self.figures, quality: &self.quality };
        tidy.serialize(serializer)
    }
}

impl<F: Metric> JsonSchema for Row<F> {
    fn schema_name() -> Cow<'static, str> {
        F::NAME.into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = Tidy::<F>::json_schema(generator);
        for (field, value) in [("metric", &[F::NAME][..]), ("unit", F::UNITS)] {
            if let Some(field) = schema.pointer_mut(&format!("/properties/{field}")) {
                *field = match value {
                    [only] => serde_json::json!({ "const": only }),
                    several => serde_json::json!({ "enum": several }),
                };
            }
        }
        schema
    }
}

/// A row of any metric.
pub trait AnyRow: Debug {
    /// The name of its metric.
    fn metric(&self) -> &str;

    /// What it is about, in few words.
    fn what(&self) -> String;

    /// The kind of memory that it is about; absent where other things may be why it is missing.
    fn kind(&self) -> Option<String> {
        None
    }

    /// What was measured; absent where the row is of no single case.
    fn case(&self) -> Option<&Case>;

    /// How far its figures can be trusted; absent where they were worked out from many rows.
    fn quality(&self) -> Option<&Quality>;

    /// Whether its figures are those of other rows, seen once more.
    fn is_repeated(&self) -> bool {
        false
    }

    /// The tidy row as JSON, in one line.
    fn json(&self) -> String;

    /// What its metric's rows look like.
    fn schema(&self, generator: &mut SchemaGenerator) -> Schema;
}

impl<F: Metric> AnyRow for Row<F> {
    fn metric(&self) -> &str {
        F::NAME
    }

    fn what(&self) -> String {
        F::what(self)
    }

    fn kind(&self) -> Option<String> {
        F::kind(self)
    }

    fn case(&self) -> Option<&Case> {
        Some(&self.case)
    }

    fn quality(&self) -> Option<&Quality> {
        Some(&self.quality)
    }

    fn is_repeated(&self) -> bool {
        F::IS_REPEATED
    }

    fn json(&self) -> String {
        text(self)
    }

    fn schema(&self, generator: &mut SchemaGenerator) -> Schema {
        <Row<F>>::json_schema(generator)
    }
}

/// Rows of one metric as rows of any.
pub(crate) fn any<R: AnyRow>(rows: &[R]) -> Vec<&dyn AnyRow> {
    rows.iter().map(|row| row as &dyn AnyRow).collect()
}
