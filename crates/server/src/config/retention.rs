//! How long changes are kept for changefeeds.

use std::time::Duration;

use super::setting::{ConfigError, Setting};
use super::time_and_size;

/// How long, and how many, changes are kept for changefeeds that continue after a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedRetention {
    /// The age up to which changes are kept; also how long a table keeps its changes after its last feed has ended.
    pub time: Duration,
    /// The size up to which the changes of all tables are kept on this server.
    pub bytes: u64,
}

impl Default for FeedRetention {
    fn default() -> FeedRetention {
        FeedRetention { time: Duration::from_secs(24 * 3600), bytes: 1 << 30 }
    }
}

/// Parses `24h`, `1024MB`, or both with a comma between them. A part that is not given has its default.
pub(super) fn parse(setting: &Setting) -> Result<FeedRetention, ConfigError> {
    let FeedRetention { time, bytes } = FeedRetention::default();
    let (time, bytes) = time_and_size::parse(setting, (time, bytes), "24h,1024MB")?;
    Ok(FeedRetention { time, bytes })
}
