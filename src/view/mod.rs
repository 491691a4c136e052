//! Views: facts and reports to bytes for people and programs.

pub mod machine;
