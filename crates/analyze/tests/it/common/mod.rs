//! What several tests share.

#[path = "../../../../core/tests/it/common/by_hand.rs"]
pub mod by_hand;
#[path = "../../../../core/tests/it/common/facts.rs"]
pub mod facts;
#[path = "../../../../core/tests/it/common/recorded.rs"]
pub mod recorded;
