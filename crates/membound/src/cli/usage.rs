//! Faults of what was typed.

/// A fault of the command's words or files, for exit code 2; every other fault is exit code 1.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// Wraps an error as wrong usage.
pub fn usage(fault: impl std::fmt::Display) -> anyhow::Error {
    anyhow::Error::new(Usage(fault.to_string()))
}
