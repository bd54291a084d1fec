//! Counters of a log, for metrics and benchmarks.

/// Buckets of [`LogStats::group_commit`]: 1, 2, 3–4, 5–8, … entries; the last is open.
pub const GROUP_COMMIT_BUCKETS: usize = 16;

/// Counters since the log was opened. They only grow, except for the last three.
///
/// `acks_hard / fsyncs`, the acknowledged hard writes per fsync, shows how well group commit works.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Entries appended.
    pub appends: u64,
    /// Bytes appended, record headers included.
    pub append_bytes: u64,
    /// System calls that appended them.
    pub writes: u64,
    /// Fsyncs of appended bytes.
    pub fsyncs: u64,
    /// The time that they took, in microseconds.
    pub fsync_us: u64,
    /// Hard proposals acknowledged.
    pub acks_hard: u64,
    /// Soft proposals acknowledged.
    pub acks_soft: u64,
    /// Entries per fsync: `group_commit[i]` fsyncs made at most `2^i` entries durable.
    pub group_commit: [u64; GROUP_COMMIT_BUCKETS],
    /// Entries that all fsyncs made durable.
    pub group_commit_entries: u64,
    /// How often a local replica was elected to lead its group.
    pub elected: u64,
    /// How often a local leader stepped down.
    pub deposed: u64,
    /// How many groups had rows ahead of their log when they were opened here. Rows are written after the log, so files were
    /// changed or the disk lost durable data.
    pub rows_ahead: u64,
    /// Segments deleted because the engine had all of their entries.
    pub segments_deleted: u64,
    /// Segments on disk now.
    pub segments: u64,
    /// Bytes on disk now.
    pub disk_bytes: u64,
    /// Groups open now.
    pub groups: u64,
}

impl LogStats {
    /// Counts one fsync that made `entries` durable.
    pub(crate) fn count_commit(&mut self, entries: u64) {
        if entries > 0 {
            let bucket = entries.next_power_of_two().trailing_zeros() as usize;
            self.group_commit[bucket.min(GROUP_COMMIT_BUCKETS - 1)] += 1;
            self.group_commit_entries = self.group_commit_entries.saturating_add(entries);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_counted_under_the_power_of_two_that_holds_it() {
        let mut stats = LogStats::default();
        for entries in [0, 1, 2, 3, 4, 5, 1 << 40] {
            stats.count_commit(entries);
        }
        assert_eq!(stats.group_commit[..4], [1, 1, 2, 1]);
        assert_eq!(stats.group_commit[GROUP_COMMIT_BUCKETS - 1], 1);
        assert_eq!(stats.group_commit_entries, 15 + (1 << 40));
    }
}
