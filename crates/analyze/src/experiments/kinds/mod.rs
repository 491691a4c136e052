//! Memory kinds side by side.

pub mod rows;
pub mod sections;
