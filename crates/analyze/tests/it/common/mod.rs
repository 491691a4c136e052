//! What several tests share.

#[path = "../../../../core/tests/it/common/by_hand.rs"]
pub mod by_hand;
#[path = "../../../../core/tests/it/common/copies.rs"]
pub mod copies;
#[path = "../../../../core/tests/it/common/facts.rs"]
pub mod facts;
#[path = "../../../../core/tests/it/common/imitation.rs"]
pub mod imitation;
#[path = "../../../../core/tests/it/common/messages.rs"]
pub mod messages;
#[path = "../../../../core/tests/it/common/recorded.rs"]
pub mod recorded;
#[path = "../../../../core/tests/it/common/schema.rs"]
pub mod schema;
