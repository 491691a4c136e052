//! What several tests share.

#[path = "../../../../core/tests/it/common/alone.rs"]
pub mod alone;
#[path = "../../../../core/tests/it/common/skip.rs"]
pub mod skip;
