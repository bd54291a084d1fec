//! The bytes a shard puts into the log: `docs/formats/entry.md`.

use bytes::{Buf, BufMut, Bytes};
use datum::PrimaryKey;
use storage::RowChange;

const VERSION: u8 = 1;
const KIND_ROWS: u8 = 0;
const HEADER_BYTES: usize = 28;
const CHANGE_HEADER_BYTES: usize = 7;
const FLAG_EXISTS: u8 = 1;
const FLAG_EXISTED: u8 = 2;

/// An entry that is being written.
pub(crate) struct EntryWriter {
    bytes: Vec<u8>,
    changes: u32,
}

impl EntryWriter {
    /// An entry without changes, with room for `bytes_hint` bytes of them.
    pub(crate) fn new(
        incarnation: u64,
        sequence: u64,
        dependencies: &[u64],
        bytes_hint: usize,
    ) -> EntryWriter {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + 8 * dependencies.len() + bytes_hint);
        bytes.put_slice(&[VERSION, KIND_ROWS, 0, 0]);
        bytes.put_u32_le(0);
        bytes.put_u64_le(incarnation);
        bytes.put_u64_le(sequence);
        bytes.put_u32_le(dependencies.len() as u32);
        for dependency in dependencies {
            bytes.put_u64_le(*dependency);
        }
        EntryWriter { bytes, changes: 0 }
    }

    /// Bytes that a change takes.
    pub(crate) fn change_bytes(key: &PrimaryKey, row: Option<&[u8]>) -> usize {
        CHANGE_HEADER_BYTES + key.as_bytes().len() + row.map_or(0, <[u8]>::len)
    }

    /// Adds a change. Keys have less than a thousand bytes, rows less than 4 GiB.
    pub(crate) fn change(&mut self, key: &PrimaryKey, row: Option<&[u8]>, existed: bool) {
        let exists = if row.is_some() { FLAG_EXISTS } else { 0 };
        let existed = if existed { FLAG_EXISTED } else { 0 };
        self.bytes.put_u8(exists | existed);
        self.bytes.put_u16_le(key.as_bytes().len() as u16);
        self.bytes.put_u32_le(row.map_or(0, <[u8]>::len) as u32);
        self.bytes.put_slice(key.as_bytes());
        self.bytes.put_slice(row.unwrap_or_default());
        self.changes += 1;
    }

    /// The entry.
    pub(crate) fn finish(mut self) -> Bytes {
        self.bytes[4..8].copy_from_slice(&self.changes.to_le_bytes());
        Bytes::from(self.bytes)
    }
}

/// An entry read from the log. Keys and rows are slices of it.
pub(crate) struct Entry {
    pub(crate) incarnation: u64,
    pub(crate) sequence: u64,
    dependencies: Bytes,
    changes: u32,
    rest: Bytes,
}

/// Why bytes are not an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadEntry {
    #[error("entry has version {version} and kind {kind}, known are version {VERSION} and kind {KIND_ROWS}")]
    Unknown { version: u8, kind: u8 },
    #[error("entry's lengths do not add up to it")]
    Length,
    #[error("entry has a change with unknown flags {0:#04x}")]
    Flags(u8),
}

impl Entry {
    pub(crate) fn parse(mut bytes: Bytes) -> Result<Entry, BadEntry> {
        if bytes.len() < HEADER_BYTES {
            return Err(BadEntry::Length);
        }
        let (version, kind, _reserved) = (bytes.get_u8(), bytes.get_u8(), bytes.get_u16_le());
        if (version, kind) != (VERSION, KIND_ROWS) {
            return Err(BadEntry::Unknown { version, kind });
        }
        let changes = bytes.get_u32_le();
        let (incarnation, sequence) = (bytes.get_u64_le(), bytes.get_u64_le());
        let dependency_bytes = bytes.get_u32_le() as usize * 8;
        if bytes.len() < dependency_bytes {
            return Err(BadEntry::Length);
        }
        let dependencies = bytes.split_to(dependency_bytes);
        Ok(Entry { incarnation, sequence, dependencies, changes, rest: bytes })
    }

    /// The sequence numbers this entry depends on.
    pub(crate) fn dependencies(&self) -> impl Iterator<Item = u64> {
        self.dependencies.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number))
    }

    /// Calls `each` with every change in order. Stops at the first that is malformed.
    pub(crate) fn each_change(self, mut each: impl FnMut(RowChange)) -> Result<(), BadEntry> {
        let mut rest = self.rest;
        for _ in 0..self.changes {
            each(next_change(&mut rest)?);
        }
        if rest.is_empty() { Ok(()) } else { Err(BadEntry::Length) }
    }
}

fn next_change(rest: &mut Bytes) -> Result<RowChange, BadEntry> {
    if rest.len() < CHANGE_HEADER_BYTES {
        return Err(BadEntry::Length);
    }
    let flags = rest.get_u8();
    let (key_len, row_len) = (rest.get_u16_le() as usize, rest.get_u32_le() as usize);
    if flags & !(FLAG_EXISTS | FLAG_EXISTED) != 0 {
        return Err(BadEntry::Flags(flags));
    }
    let exists = flags & FLAG_EXISTS != 0;
    if rest.len() < key_len + row_len || (!exists && row_len > 0) {
        return Err(BadEntry::Length);
    }
    let key = PrimaryKey(rest.split_to(key_len));
    let row = rest.split_to(row_len);
    Ok(RowChange { key, row: exists.then_some(row), existed: flags & FLAG_EXISTED != 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &'static str) -> PrimaryKey {
        PrimaryKey(Bytes::from_static(text.as_bytes()))
    }

    fn changes(bytes: Bytes) -> Result<Vec<RowChange>, BadEntry> {
        let mut found = Vec::new();
        Entry::parse(bytes)?.each_change(|change| found.push(change))?;
        Ok(found)
    }

    fn example() -> Bytes {
        let mut writer = EntryWriter::new(7, 9, &[8, 3], 100);
        writer.change(&key("new"), Some(b"row"), false);
        writer.change(&key("gone"), None, true);
        writer.change(&key(""), Some(b""), true);
        writer.finish()
    }

    #[test]
    fn what_is_written_is_read() {
        let entry = Entry::parse(example()).unwrap();
        assert_eq!((entry.incarnation, entry.sequence), (7, 9));
        assert_eq!(entry.dependencies().collect::<Vec<_>>(), [8, 3]);
        let row = |bytes: &'static [u8]| Some(Bytes::from_static(bytes));
        assert_eq!(
            changes(example()).unwrap(),
            [
                RowChange { key: key("new"), row: row(b"row"), existed: false },
                RowChange { key: key("gone"), row: None, existed: true },
                RowChange { key: key(""), row: row(b""), existed: true },
            ]
        );
    }

    #[test]
    fn no_cut_or_grown_entry_is_read() {
        let whole = example();
        for len in 0..whole.len() {
            assert!(changes(whole.slice(..len)).is_err(), "{len} bytes of {}", whole.len());
        }
        let mut grown = whole.to_vec();
        grown.push(0);
        assert_eq!(changes(Bytes::from(grown)), Err(BadEntry::Length));
        for (at, byte) in [(0, 2), (1, 1), (HEADER_BYTES + 16, 4)] {
            let mut changed = whole.to_vec();
            changed[at] = byte;
            assert!(changes(Bytes::from(changed)).is_err());
        }
    }
}
