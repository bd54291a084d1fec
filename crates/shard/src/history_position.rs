//! Positions in a group's history.

use log::Lsn;

/// A position in the history of a group: just after one of its entries, or before the first one.
///
/// The incarnation tells the entry apart from another one that a later leader put at the same position of the log after
/// a power loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HistoryPosition {
    /// The last entry before this position; 0 at the beginning.
    pub lsn: Lsn,
    /// The incarnation in that entry; 0 at the beginning.
    pub incarnation: u64,
}

impl HistoryPosition {
    /// The number of bytes of its encoded form.
    pub const BYTES: usize = 16;

    /// Its form in messages and tokens: two little-endian numbers.
    #[must_use]
    pub fn encode(self) -> [u8; HistoryPosition::BYTES] {
        let mut bytes = [0; HistoryPosition::BYTES];
        bytes[..8].copy_from_slice(&self.lsn.0.to_le_bytes());
        bytes[8..].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes
    }

    /// Reads what [`HistoryPosition::encode`] wrote.
    #[must_use]
    pub fn decode(bytes: &[u8; HistoryPosition::BYTES]) -> HistoryPosition {
        let mut numbers = bytes.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number));
        let mut next = || numbers.next().unwrap_or_default();
        HistoryPosition { lsn: Lsn(next()), incarnation: next() }
    }
}
