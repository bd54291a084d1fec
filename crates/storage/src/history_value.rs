//! The values of the space `history`: entries, long ones compressed where that saves much. docs/formats/engine-keys.md.

use bytes::Bytes;
use engine::{Batch, Change, Space};
use log::{EntryCompression, GroupId};
use parking_lot::Mutex;

/// The first byte of a compressed value. An entry begins with its version, which is lower.
const COMPRESSED: u8 = 0x80;

/// Compresses records on their way to an engine.
#[derive(Default)]
pub(crate) struct HistoryCompression(Mutex<EntryCompression>);

impl HistoryCompression {
    /// Compresses the records in `batch` that shrink.
    pub(crate) fn compress(&self, batch: &mut Batch) {
        let mut compression = None;
        for index in 0..batch.len() {
            let Some(Change::Put { space: Space::History, key, value }) = batch.change(index) else {
                continue;
            };
            let group = key.first_chunk().map_or(GroupId(0), |group| GroupId(u64::from_be_bytes(*group)));
            let compression = compression.get_or_insert_with(|| self.0.lock());
            let Some(frame) = compression.compress(group, value) else { continue };
            let value = Bytes::from([&[COMPRESSED], frame].concat());
            batch.supersede(index, Some(value));
        }
    }
}

/// The entry in a value; `None` if the value is damaged.
pub(crate) fn entry_of(value: &[u8]) -> Option<Bytes> {
    match value.split_first() {
        Some((&COMPRESSED, frame)) => log::decompress_entry(frame).map(Bytes::from),
        _ => Some(Bytes::copy_from_slice(value)),
    }
}
