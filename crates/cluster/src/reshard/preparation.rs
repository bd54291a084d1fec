//! How long the preparation of a reshard may take: everything before the seals.

use std::time::Duration;

/// How long everything before the seals may take, and how much longer for each shard of the table.
pub(super) const PREPARATION_TIMEOUT: Duration = Duration::from_secs(30);
const PREPARATION_TIMEOUT_PER_SHARD: Duration = Duration::from_millis(400);

/// How long everything may take that comes before the seals of a table of so many shards.
pub(crate) fn preparation_timeout(shards: usize) -> Duration {
    PREPARATION_TIMEOUT
        + PREPARATION_TIMEOUT_PER_SHARD.saturating_mul(u32::try_from(shards).unwrap_or(u32::MAX))
}
