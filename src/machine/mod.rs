//! Placeholder until the machine stage lands.
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
/// Facts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Machine {}
