//! The time of day.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What passed since 1970 began; nothing on a clock that was set to an earlier time.
pub fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
