//! The bytes of a shard's log entries: `docs/formats/entry.md`.

use bytes::{Buf, BufMut, Bytes};
use datum::PrimaryKey;
use storage::{IndexBuild, IndexChange, IndexEntry, IndexId, RowChange};

use crate::SealState;

/// Only rows.
const VERSION_ROWS: u8 = 1;
/// Rows, index entries and index builds.
const VERSION_ITEMS: u8 = 2;
const KIND_ROWS: u8 = 0;
const KIND_SEAL: u8 = 1;
const HEADER_BYTES: usize = 28;
const CHANGE_HEADER_BYTES: usize = 7;
const FLAG_EXISTS: u8 = 1;
const FLAG_EXISTED: u8 = 2;
/// The first byte of an item of version 2, except for a row change.
const ITEM_ROW_NAMED: u8 = 0x10;
const ITEM_INDEX_ENTRY: u8 = 0x11;
const ITEM_INDEX_BUILD: u8 = 0x12;
const ENTRY_HEADER_BYTES: usize = 11;
const TRUNCATED: u8 = 1;

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

    fn item(&mut self, kind: u8) {
        self.bytes[0] = VERSION_ITEMS;
        self.bytes.put_u8(kind);
        self.items += 1;
    }
}

/// An entry read from the log. Keys and rows are slices of it.
pub(crate) struct Entry {
    pub(crate) incarnation: u64,
    pub(crate) sequence: u64,
    /// The seal state that the entry sets, if it is a seal entry and not one of rows.
    pub(crate) seal_state: Option<SealState>,
    version: u8,
    dependencies: Bytes,
    items: u32,
    rest: Bytes,
}

/// One item of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    Row(RowChange),
    /// An index entry of a row changes.
    Index(PrimaryKey, IndexChange),
    /// The build record of an index.
    Build(IndexId, IndexBuild),
}

/// Why bytes are not an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadEntry {
    #[error(
        "entry has version {version} and kind {kind}, known are versions up to {VERSION_ITEMS} and kinds up to \
         {KIND_SEAL}"
    )]
    Unknown { version: u8, kind: u8 },
    #[error("entry's lengths do not add up to it")]
    Length,
    #[error("entry has a change with unknown flags {0:#04x}")]
    Flags(u8),
    #[error("entry has an index entry without a row, or a malformed build record")]
    Index,
    #[error("entry has seal state {0}, the greatest is {max}", max = SealState::NUMBER_MAX)]
    SealState(u64),
}

impl Entry {
    pub(crate) fn parse(mut bytes: Bytes) -> Result<Entry, BadEntry> {
        if bytes.len() < HEADER_BYTES {
            return Err(BadEntry::Length);
        }
        let (version, kind, _reserved) = (bytes.get_u8(), bytes.get_u8(), bytes.get_u16_le());
        if !matches!((version, kind), (VERSION_ROWS | VERSION_ITEMS, KIND_ROWS) | (VERSION_ITEMS, KIND_SEAL))
        {
            return Err(BadEntry::Unknown { version, kind });
        }
        let items = bytes.get_u32_le();
        let (incarnation, sequence) = (bytes.get_u64_le(), bytes.get_u64_le());
        let dependency_bytes = bytes.get_u32_le() as usize * 8;
        if bytes.len() < dependency_bytes {
            return Err(BadEntry::Length);
        }
        let dependencies = bytes.split_to(dependency_bytes);
        let seal_state = match kind {
            KIND_SEAL if items != 0 || bytes.len() != 8 => return Err(BadEntry::Length),
            KIND_SEAL => match bytes.get_u64_le() {
                number if number > SealState::NUMBER_MAX => return Err(BadEntry::SealState(number)),
                number => Some(SealState::of_number(number)),
            },
            _ => None,
        };
        Ok(Entry { incarnation, sequence, seal_state, version, dependencies, items, rest: bytes })
    }

    /// The sequence numbers this entry depends on.
    pub(crate) fn dependencies(&self) -> impl Iterator<Item = u64> {
        self.dependencies.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number))
    }

    /// Calls `each` with every item, in order. Stops at the first malformed one.
    pub(crate) fn each(self, mut each: impl FnMut(Item)) -> Result<(), BadEntry> {
        let mut rest = self.rest;
        let mut named: Option<PrimaryKey> = None;
        for _ in 0..self.items {
            match rest.first() {
                Some(&ITEM_ROW_NAMED) if self.version == VERSION_ITEMS => named = Some(next_name(&mut rest)?),
                Some(&ITEM_INDEX_ENTRY) if self.version == VERSION_ITEMS => {
                    let primary = named.clone().ok_or(BadEntry::Index)?;
                    each(Item::Index(primary, next_index_change(&mut rest)?));
                }
                Some(&ITEM_INDEX_BUILD) if self.version == VERSION_ITEMS => {
                    let (index, build) = next_build(&mut rest)?;
                    each(Item::Build(index, build));
                }
                _ => {
                    let change = next_change(&mut rest)?;
                    named = Some(change.key.clone());
                    each(Item::Row(change));
                }
            }
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

fn next_name(rest: &mut Bytes) -> Result<PrimaryKey, BadEntry> {
    rest.advance(1);
    short(rest).map(PrimaryKey)
}

fn next_index_change(rest: &mut Bytes) -> Result<IndexChange, BadEntry> {
    if rest.len() < ENTRY_HEADER_BYTES {
        return Err(BadEntry::Length);
    }
    rest.advance(1);
    let (index, times, flags) = (IndexId(rest.get_u32_le()), rest.get_u32_le(), rest.get_u8());
    if flags & !TRUNCATED != 0 {
        return Err(BadEntry::Flags(flags));
    }
    let entry = (times > 0).then_some(IndexEntry { times, truncated: flags & TRUNCATED != 0 });
    Ok(IndexChange { index, key: short(rest)?, entry })
}

fn next_build(rest: &mut Bytes) -> Result<(IndexId, IndexBuild), BadEntry> {
    rest.advance(1);
    if rest.len() < 4 {
        return Err(BadEntry::Length);
    }
    let index = IndexId(rest.get_u32_le());
    let build = IndexBuild::decode(&short(rest)?).ok_or(BadEntry::Index)?;
    Ok((index, build))
}

/// Bytes after their length in two bytes.
fn short(rest: &mut Bytes) -> Result<Bytes, BadEntry> {
    if rest.len() < 2 {
        return Err(BadEntry::Length);
    }
    let len = rest.get_u16_le() as usize;
    if rest.len() < len { Err(BadEntry::Length) } else { Ok(rest.split_to(len)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &'static str) -> PrimaryKey {
        PrimaryKey(Bytes::from_static(text.as_bytes()))
    }

    fn items(bytes: Bytes) -> Result<Vec<Item>, BadEntry> {
        let mut found = Vec::new();
        Entry::parse(bytes)?.each(|item| found.push(item))?;
        Ok(found)
    }

    fn changes(bytes: Bytes) -> Result<Vec<RowChange>, BadEntry> {
        let row = |item| match item {
            Item::Row(change) => change,
            other => panic!("not a row: {other:?}"),
        };
        Ok(items(bytes)?.into_iter().map(row).collect())
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

    fn index_change(entry: Option<IndexEntry>) -> IndexChange {
        IndexChange { index: IndexId(7), key: Bytes::from_static(b"\x60value\0"), entry }
    }

    fn with_indexes() -> Bytes {
        let mut writer = EntryWriter::new(7, 9, &[8], 100);
        writer.change(&key("new"), Some(b"row"), false);
        writer.index_change(&index_change(Some(IndexEntry { times: 2, truncated: true })));
        writer.name_row(&key("kept"));
        writer.index_change(&index_change(None));
        writer.index_build(IndexId(7), &IndexBuild::Under { after: Some(key("kept")), rows: 3 });
        writer.finish()
    }

    #[test]
    fn index_entries_belong_to_the_row_before_them() {
        let row = Some(Bytes::from_static(b"row"));
        let entry = Some(IndexEntry { times: 2, truncated: true });
        assert_eq!(
            items(with_indexes()).unwrap(),
            [
                Item::Row(RowChange { key: key("new"), row, existed: false }),
                Item::Index(key("new"), index_change(entry)),
                Item::Index(key("kept"), index_change(None)),
                Item::Build(IndexId(7), IndexBuild::Under { after: Some(key("kept")), rows: 3 }),
            ]
        );
        let whole = with_indexes();
        for len in 0..whole.len() {
            assert!(items(whole.slice(..len)).is_err(), "{len} bytes of {}", whole.len());
        }
        // Version 1 has no such items, and an index entry without a row is malformed.
        let mut old = whole.to_vec();
        old[0] = VERSION_ROWS;
        assert!(items(Bytes::from(old)).is_err());
        let mut writer = EntryWriter::new(7, 9, &[], 100);
        writer.index_change(&index_change(None));
        assert_eq!(items(writer.finish()), Err(BadEntry::Index));
    }

    #[test]
    fn a_seal_is_read_as_it_was_written_and_no_other_length_is() {
        let whole = EntryWriter::seal(7, 9, SealState::sealed(4));
        let entry = Entry::parse(whole.clone()).unwrap();
        assert_eq!((entry.incarnation, entry.sequence), (7, 9));
        assert_eq!(entry.seal_state, Some(SealState::sealed(4)));
        assert_eq!(items(whole.clone()), Ok(vec![]));
        assert_eq!(Entry::parse(example()).unwrap().seal_state, None);
        for len in 0..whole.len() {
            assert!(Entry::parse(whole.slice(..len)).is_err(), "{len} bytes");
        }
        for (at, byte) in [(0, VERSION_ROWS), (1, 2), (4, 1)] {
            let mut changed = whole.to_vec();
            changed[at] = byte;
            assert!(Entry::parse(Bytes::from(changed)).is_err());
        }
    }

    #[test]
    fn a_seal_state_too_large_for_the_engine_is_refused() {
        let entry = |number| EntryWriter::seal(7, 9, SealState::of_number(number));
        let greatest = Entry::parse(entry(SealState::NUMBER_MAX)).unwrap();
        assert_eq!(greatest.seal_state.map(SealState::number), Some(SealState::NUMBER_MAX));
        for number in [SealState::NUMBER_MAX + 1, u64::MAX] {
            assert_eq!(Entry::parse(entry(number)).err(), Some(BadEntry::SealState(number)));
        }
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
        for (at, byte) in [(0, 3), (1, 1), (HEADER_BYTES + 16, 4)] {
            let mut changed = whole.to_vec();
            changed[at] = byte;
            assert!(changes(Bytes::from(changed)).is_err());
        }
    }
}
