//! Copies between the host's memory and devices', and between devices.

pub mod rows;
pub mod sections;
