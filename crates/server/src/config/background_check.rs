//! How often, and how fast, a server verifies its stored data.

use std::time::Duration;

use super::setting::{ConfigError, Setting};
use super::{time_and_size, value};

/// When a server verifies its stored data while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackgroundCheck {
    /// The time from the end of a check to the beginning of the next.
    pub interval: Duration,
    /// The most bytes that are read in a second.
    pub bytes_per_second: u64,
}

impl Default for BackgroundCheck {
    fn default() -> BackgroundCheck {
        BackgroundCheck { interval: Duration::from_secs(7 * 86_400), bytes_per_second: 4 << 20 }
    }
}

/// Parses `7d`, `4MB`, or both with a comma between them; `None` for `off`. A part that is not given has its default.
pub(super) fn parse(setting: &Setting) -> Result<Option<BackgroundCheck>, ConfigError> {
    if value::text(setting) == "off" {
        return Ok(None);
    }
    let BackgroundCheck { interval, bytes_per_second } = BackgroundCheck::default();
    let (interval, bytes_per_second) =
        time_and_size::parse(setting, (interval, bytes_per_second), "7d,4MB (or off)")?;
    Ok(Some(BackgroundCheck { interval, bytes_per_second }))
}
