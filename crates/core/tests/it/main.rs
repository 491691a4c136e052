//! Tests of what can be asked and what is kept.

mod behaviour;
mod records;
#[path = "common/schema.rs"]
mod schema;
mod schemas;
