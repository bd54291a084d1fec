//! The engine's keys: `docs/formats/engine-keys.md`, in code.

use std::ops::Bound;

use bytes::Bytes;
use datum::{KeyBound, KeyRange};
use engine::{Batch, Direction, Engine, EngineError, ScanRange, Space};
use log::GroupId;

use crate::{FormatError, IndexId, ReadError, TableId};

/// The newest format version that this program knows: that of an engine with dictionaries for settled rows.
pub(crate) const VERSION: u32 = 3;
/// The format version of an engine with dictionaries for rows that are written, and no others.
pub(crate) const VERSION_WRITTEN: u32 = 2;
/// The format version of an engine without dictionaries and compressed rows, which earlier programs can read.
const VERSION_UNCOMPRESSED: u32 = 1;

pub(crate) const META_VERSION: u8 = 0;
pub(crate) const META_APPLIED: u8 = 1;
pub(crate) const META_COUNT: u8 = 2;
pub(crate) const META_BUILD: u8 = 3;
pub(crate) const META_DICTIONARY: u8 = 4;

/// Checks that this program understands the content of `engine`; writes the version into an empty one.
pub(crate) fn claim(engine: &dyn Engine) -> Result<(), FormatError> {
    let Some(stored) = engine.get(Space::Meta, &[META_VERSION])? else {
        let mut batch = Batch::new();
        put_version(&mut batch, VERSION_UNCOMPRESSED);
        return Ok(engine.write(batch)?);
    };
    let found = parse_version(&stored)?;
    if found > VERSION {
        return Err(FormatError::Newer { found, known: VERSION });
    }
    Ok(())
}

/// The format version in its record.
pub(crate) fn parse_version(stored: &[u8]) -> Result<u32, ReadError> {
    let bytes = stored.try_into();
    Ok(u32::from_le_bytes(bytes.map_err(|_| corrupt_meta("the format version"))?))
}

/// Adds to `batch` that the engine has at least `version`: earlier programs then refuse to open it, as they could not
/// read its rows.
pub(crate) fn raise_version(engine: &dyn Engine, batch: &mut Batch, version: u32) -> Result<(), EngineError> {
    let stored = engine.get(Space::Meta, &[META_VERSION])?;
    let stored = stored.and_then(|stored| Some(u32::from_le_bytes(stored[..].try_into().ok()?)));
    if stored.is_none_or(|stored| stored < version) {
        put_version(batch, version);
    }
    Ok(())
}

fn put_version(batch: &mut Batch, version: u32) {
    batch.put(Space::Meta, &[META_VERSION], Bytes::copy_from_slice(&version.to_le_bytes()));
}

pub(crate) fn corrupt_meta(what: impl Into<String>) -> ReadError {
    ReadError::CorruptMeta { what: what.into() }
}

/// The key of a group's applied record.
pub(crate) fn applied_key(group: GroupId) -> [u8; 9] {
    let mut key = [META_APPLIED; 9];
    key[1..].copy_from_slice(&group.0.to_be_bytes());
    key
}

/// The key of the count of a table's rows in a group.
pub(crate) fn count_key(table: TableId, group: GroupId) -> [u8; 25] {
    let mut key = [META_COUNT; 25];
    key[1..17].copy_from_slice(table.as_bytes());
    key[17..].copy_from_slice(&group.0.to_be_bytes());
    key
}

/// The prefix of the keys of all counts of a table.
pub(crate) fn counts_prefix(table: TableId) -> [u8; 17] {
    let mut key = [META_COUNT; 17];
    key[1..].copy_from_slice(table.as_bytes());
    key
}

/// The prefix of the keys of all index build records of a table in a group.
pub(crate) fn builds_prefix(table: TableId, group: GroupId) -> [u8; 25] {
    let mut key = count_key(table, group);
    key[0] = META_BUILD;
    key
}

/// The key of the build record of an index in a group.
pub(crate) fn build_key(table: TableId, group: GroupId, index: IndexId) -> [u8; 29] {
    let mut key = [0; 29];
    key[..25].copy_from_slice(&builds_prefix(table, group));
    key[25..].copy_from_slice(&index.0.to_be_bytes());
    key
}

/// The prefix of the keys of all index build records of a table.
pub(crate) fn table_builds_prefix(table: TableId) -> [u8; 17] {
    let mut key = counts_prefix(table);
    key[0] = META_BUILD;
    key
}

/// The prefix of the keys of all dictionaries of a table.
pub(crate) fn dictionaries_prefix(table: TableId) -> [u8; 17] {
    let mut key = counts_prefix(table);
    key[0] = META_DICTIONARY;
    key
}

/// The key of the dictionary with this number, which compresses rows of a table.
pub(crate) fn dictionary_key(table: TableId, number: u32) -> [u8; 21] {
    let mut key = [0; 21];
    key[..17].copy_from_slice(&dictionaries_prefix(table));
    key[17..].copy_from_slice(&number.to_be_bytes());
    key
}

/// The table whose dictionaries are deleted by deleting a range that begins with `start`.
pub(crate) fn dropped_dictionaries(start: &[u8]) -> Option<TableId> {
    let (&[META_DICTIONARY], id) = start.split_first_chunk()? else { return None };
    Some(TableId::from_uuid(uuid::Uuid::from_bytes(id.try_into().ok()?)))
}

/// Calls `read` with the number and the record of each dictionary of `table`, the highest number first, until it
/// returns false.
pub(crate) fn scan_dictionaries(
    engine: &dyn Engine,
    table: TableId,
    mut read: impl FnMut(u32, &[u8]) -> bool,
) -> Result<(), EngineError> {
    let prefix = dictionaries_prefix(table);
    let end = after_prefix(&prefix);
    let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    let range = (Bound::Included(&prefix[..]), end);
    let mut scan = engine.snapshot()?.scan(Space::Meta, range, Direction::Descending);
    while let Some((key, record)) = scan.next()? {
        let number = key.last_chunk().map(|number| u32::from_be_bytes(*number));
        if number.is_some_and(|number| !read(number, record)) {
            break;
        }
    }
    Ok(())
}

/// The prefix of the keys of all entries of an index.
pub(crate) fn index_prefix(table: TableId, index: IndexId) -> [u8; 20] {
    let mut key = [0; 20];
    key[..16].copy_from_slice(table.as_bytes());
    key[16..].copy_from_slice(&index.0.to_be_bytes());
    key
}

/// The first key after all keys that begin with `prefix`, or `None` if no such key exists.
pub fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut next = prefix.to_vec();
    while let Some(last) = next.pop() {
        if last < u8::MAX {
            next.push(last + 1);
            return Some(next);
        }
    }
    None
}

/// The engine's key of a row, on the stack if it is not unusually long.
pub(crate) struct RowKey {
    short: [u8; RowKey::SHORT_BYTES],
    short_len: usize,
    long: Vec<u8>,
}

impl RowKey {
    const SHORT_BYTES: usize = 96;

    pub(crate) fn new(table: TableId, key: &[u8]) -> RowKey {
        let len = TableId::BYTES + key.len();
        let mut row_key = RowKey { short: [0; RowKey::SHORT_BYTES], short_len: 0, long: Vec::new() };
        if len <= RowKey::SHORT_BYTES {
            row_key.short[..TableId::BYTES].copy_from_slice(table.as_bytes());
            row_key.short[TableId::BYTES..len].copy_from_slice(key);
            row_key.short_len = len;
        } else {
            row_key.long = [table.as_bytes(), key].concat();
        }
        row_key
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self.short_len {
            0 => &self.long,
            len => &self.short[..len],
        }
    }
}

/// A range of rows as the engine's range of keys.
pub(crate) struct RowRange {
    start: Bound<Vec<u8>>,
    end: Bound<Vec<u8>>,
}

impl RowRange {
    pub(crate) fn new(table: TableId, range: &KeyRange) -> RowRange {
        let full = |key: &[u8]| [table.as_bytes(), key].concat();
        let start = match &range.start {
            KeyBound::Unbounded => Bound::Included(table.as_bytes().to_vec()),
            KeyBound::Included(key) => Bound::Included(full(key.as_bytes())),
            KeyBound::Excluded(key) => Bound::Excluded(full(key.as_bytes())),
        };
        let end = match &range.end {
            KeyBound::Unbounded => match table.next() {
                Some(next) => Bound::Excluded(next.as_bytes().to_vec()),
                None => Bound::Unbounded,
            },
            KeyBound::Included(key) => Bound::Included(full(key.as_bytes())),
            KeyBound::Excluded(key) => Bound::Excluded(full(key.as_bytes())),
        };
        RowRange { start, end }
    }

    /// The first key inside and the first key outside; `None` as the latter if there is none.
    pub(crate) fn bounds(&self) -> (Vec<u8>, Option<Vec<u8>>) {
        let after = |key: &[u8]| [key, &[0]].concat();
        let start = match &self.start {
            Bound::Included(key) => key.clone(),
            Bound::Excluded(key) => after(key),
            Bound::Unbounded => Vec::new(),
        };
        let end = match &self.end {
            Bound::Included(key) => Some(after(key)),
            Bound::Excluded(key) => Some(key.clone()),
            Bound::Unbounded => None,
        };
        (start, end)
    }

    pub(crate) fn as_scan_range(&self) -> ScanRange<'_> {
        (self.start.as_ref().map(Vec::as_slice), self.end.as_ref().map(Vec::as_slice))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::memory::MemoryEngine;

    #[test]
    fn a_new_engine_is_claimed_and_a_newer_one_refused() {
        let engine = MemoryEngine::new();
        claim(&engine).unwrap();
        claim(&engine).unwrap();
        let mut batch = Batch::new();
        batch.put(Space::Meta, &[META_VERSION], Bytes::copy_from_slice(&7_u32.to_le_bytes()));
        engine.write(batch).unwrap();
        assert!(matches!(claim(&engine), Err(FormatError::Newer { found: 7, known: VERSION })));
        let mut batch = Batch::new();
        batch.put(Space::Meta, &[META_VERSION], Bytes::from_static(b"x"));
        engine.write(batch).unwrap();
        assert!(matches!(claim(&engine), Err(FormatError::Read(ReadError::CorruptMeta { .. }))));
    }

    #[test]
    fn a_row_key_is_the_same_on_the_stack_and_off_it() {
        let table = TableId::from_uuid(uuid::Uuid::from_u128(7));
        for len in [0, 1, 79, 80, 81, 500] {
            let key = vec![9; len];
            assert_eq!(RowKey::new(table, &key).as_bytes(), [table.as_bytes(), &key[..]].concat());
        }
    }
}
