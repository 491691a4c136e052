//! Tests of what can be asked and what is kept.

mod common {
    pub mod by_hand;
    pub mod imitation;
}

mod behaviour;
mod plans;
mod records;
#[path = "common/schema.rs"]
mod schema;
mod schemas;
mod sources;
