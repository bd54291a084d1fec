//! Writes entries.

use bytes::{BufMut, Bytes};
use datum::PrimaryKey;
use storage::{IndexBuild, IndexChange, IndexId};

use super::{
    CHANGE_HEADER_BYTES, FLAG_EXISTED, FLAG_EXISTS, FLAG_OLD_ROW, HEADER_BYTES, ITEM_INDEX_BUILD,
    ITEM_INDEX_ENTRY, ITEM_ROW_NAMED, KIND_HISTORY, KIND_ROWS, KIND_SEAL, OLD_ROW_LENGTH_BYTES, TRUNCATED,
    VERSION_HISTORY, VERSION_ITEMS, VERSION_ROWS,
};
use crate::SealState;

/// Writes an entry.
pub(crate) struct EntryWriter {
    bytes: Vec<u8>,
    items: u32,
}

impl EntryWriter {
    /// An entry without changes, with capacity for `bytes_hint` bytes of them.
    pub(crate) fn new(
        incarnation: u64,
        sequence: u64,
        dependencies: &[u64],
        bytes_hint: usize,
    ) -> EntryWriter {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + 8 * dependencies.len() + bytes_hint);
        bytes.put_slice(&[VERSION_ROWS, KIND_ROWS, 0, 0]);
        bytes.put_u32_le(0);
        bytes.put_u64_le(incarnation);
        bytes.put_u64_le(sequence);
        bytes.put_u32_le(dependencies.len() as u32);
        for dependency in dependencies {
            bytes.put_u64_le(*dependency);
        }
        EntryWriter { bytes, items: 0 }
    }

    /// The encoded size of a change.
    pub(crate) fn change_bytes(key: &PrimaryKey, row: Option<&[u8]>, old_row: Option<&[u8]>) -> usize {
        let old = old_row.map_or(0, |old| OLD_ROW_LENGTH_BYTES + old.len());
        CHANGE_HEADER_BYTES + key.as_bytes().len() + row.map_or(0, <[u8]>::len) + old
    }

    /// Adds a change, with the row before it if the history is on. Keys have less than a thousand bytes, rows less than
    /// 4 GiB.
    pub(crate) fn change(
        &mut self,
        key: &PrimaryKey,
        row: Option<&[u8]>,
        existed: bool,
        old_row: Option<&[u8]>,
    ) {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = flag(row.is_some(), FLAG_EXISTS) | flag(existed, FLAG_EXISTED);
        self.bytes.put_u8(flags | flag(old_row.is_some(), FLAG_OLD_ROW));
        self.bytes.put_u16_le(key.as_bytes().len() as u16);
        self.bytes.put_u32_le(row.map_or(0, <[u8]>::len) as u32);
        if let Some(old) = old_row {
            self.bytes[0] = VERSION_HISTORY;
            self.bytes.put_u32_le(old.len() as u32);
        }
        self.bytes.put_slice(key.as_bytes());
        self.bytes.put_slice(row.unwrap_or_default());
        self.bytes.put_slice(old_row.unwrap_or_default());
        self.items += 1;
    }

    /// Names an unchanged row, for the index entries that follow.
    pub(crate) fn name_row(&mut self, key: &PrimaryKey) {
        self.item(ITEM_ROW_NAMED);
        self.bytes.put_u16_le(key.as_bytes().len() as u16);
        self.bytes.put_slice(key.as_bytes());
    }

    /// Adds a change of an index entry of the last changed or named row.
    pub(crate) fn index_change(&mut self, change: &IndexChange) {
        self.item(ITEM_INDEX_ENTRY);
        self.bytes.put_u32_le(change.index.0);
        self.bytes.put_u32_le(change.entry.map_or(0, |entry| entry.times));
        let truncated = change.entry.is_some_and(|entry| entry.truncated);
        self.bytes.put_u8(if truncated { TRUNCATED } else { 0 });
        self.bytes.put_u16_le(change.key.len() as u16);
        self.bytes.put_slice(&change.key);
    }

    /// Adds the build record of an index.
    pub(crate) fn index_build(&mut self, index: IndexId, build: &IndexBuild) {
        self.item(ITEM_INDEX_BUILD);
        let record = build.encode();
        self.bytes.put_u32_le(index.0);
        self.bytes.put_u16_le(record.len() as u16);
        self.bytes.put_slice(&record);
    }

    pub(crate) fn finish(mut self) -> Bytes {
        self.bytes[4..8].copy_from_slice(&self.items.to_le_bytes());
        Bytes::from(self.bytes)
    }

    /// An entry that only sets the group's seal state.
    pub(crate) fn seal(incarnation: u64, sequence: u64, seal_state: SealState) -> Bytes {
        let mut writer = EntryWriter::new(incarnation, sequence, &[], 8);
        writer.bytes[..2].copy_from_slice(&[VERSION_ITEMS, KIND_SEAL]);
        writer.bytes.put_u64_le(seal_state.number());
        writer.finish()
    }

    /// An entry that only switches the group's history on or off.
    pub(crate) fn history(incarnation: u64, sequence: u64, is_on: bool) -> Bytes {
        let mut writer = EntryWriter::new(incarnation, sequence, &[], 8);
        writer.bytes[..2].copy_from_slice(&[VERSION_HISTORY, KIND_HISTORY]);
        writer.bytes.put_u64_le(u64::from(is_on));
        writer.finish()
    }

    fn item(&mut self, kind: u8) {
        self.bytes[0] = self.bytes[0].max(VERSION_ITEMS);
        self.bytes.put_u8(kind);
        self.items += 1;
    }
}
