//! One file a subcommand.

pub mod machine;
