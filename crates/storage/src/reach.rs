//! Where a read may look for a row.

/// Whether a read may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It looks in caches and memtables only. If the row is not there, it fails with an error for which
    /// [`ReadError::needs_disk`](crate::ReadError::needs_disk) holds.
    Memory,
    /// It may block until the disk has delivered the row.
    Disk,
}
