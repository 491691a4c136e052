//! What disturbed or limits the figures.

use schemars::JsonSchema;
use serde::Serialize;

/// Something that disturbed or limits the figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Warning {
    /// What was seen, with its evidence.
    pub text: String,
    /// What helps.
    pub cure: String,
}
