//! The bytes of a shard's log entries: `docs/formats/entry.md`.

#[cfg(test)]
mod tests;
mod writer;

use bytes::{Buf, Bytes};
use datum::PrimaryKey;
use storage::{IndexBuild, IndexChange, IndexEntry, IndexId, RowChange};

pub(crate) use self::writer::EntryWriter;
use crate::SealState;

/// Only rows.
const VERSION_ROWS: u8 = 1;
/// Rows, index entries and index builds.
const VERSION_ITEMS: u8 = 2;
/// Also rows as they were before, and entries that switch the history on or off.
const VERSION_HISTORY: u8 = 3;
const KIND_ROWS: u8 = 0;
const KIND_SEAL: u8 = 1;
const KIND_HISTORY: u8 = 2;
const HEADER_BYTES: usize = 28;
const CHANGE_HEADER_BYTES: usize = 7;
const OLD_ROW_LENGTH_BYTES: usize = 4;
const FLAG_EXISTS: u8 = 1;
const FLAG_EXISTED: u8 = 2;
const FLAG_OLD_ROW: u8 = 4;
/// The first byte of an item of version 2, except for a row change.
const ITEM_ROW_NAMED: u8 = 0x10;
const ITEM_INDEX_ENTRY: u8 = 0x11;
const ITEM_INDEX_BUILD: u8 = 0x12;
const ENTRY_HEADER_BYTES: usize = 11;
const TRUNCATED: u8 = 1;

/// An entry read from the log. Keys and rows are slices of it.
pub(crate) struct Entry {
    pub(crate) incarnation: u64,
    pub(crate) sequence: u64,
    /// Its effect, if it is not an entry of rows.
    pub(crate) control: Option<Control>,
    version: u8,
    dependencies: Bytes,
    items: u32,
    rest: Bytes,
}

/// The effect of an entry without rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// The group has this seal state.
    Seal(SealState),
    /// The history is on: changes have the rows before them, and each replica keeps the entries.
    HistoryOn,
    /// Later entries are not in the history.
    HistoryOff,
}

/// One item of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// A row changes. Then the row before it, if it existed and the history is on.
    Row(RowChange, Option<Bytes>),
    /// An index entry of a row changes.
    Index(PrimaryKey, IndexChange),
    /// The build record of an index.
    Build(IndexId, IndexBuild),
}

/// Why bytes are not an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadEntry {
    #[error(
        "entry has version {version} and kind {kind}, known are versions up to {VERSION_HISTORY} and kinds up to \
         {KIND_HISTORY}"
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
    #[error("entry switches the history neither on nor off but to {0}")]
    History(u64),
    #[error("entry has a change without the row before it, though the history is on")]
    NoOldRow,
}

impl Entry {
    pub(crate) fn parse(mut bytes: Bytes) -> Result<Entry, BadEntry> {
        if bytes.len() < HEADER_BYTES {
            return Err(BadEntry::Length);
        }
        let (version, kind, _reserved) = (bytes.get_u8(), bytes.get_u8(), bytes.get_u16_le());
        let is_known = match kind {
            KIND_ROWS => (VERSION_ROWS..=VERSION_HISTORY).contains(&version),
            KIND_SEAL => version == VERSION_ITEMS,
            _ => (kind, version) == (KIND_HISTORY, VERSION_HISTORY),
        };
        if !is_known {
            return Err(BadEntry::Unknown { version, kind });
        }
        let items = bytes.get_u32_le();
        let (incarnation, sequence) = (bytes.get_u64_le(), bytes.get_u64_le());
        let dependency_bytes = bytes.get_u32_le() as usize * 8;
        if bytes.len() < dependency_bytes {
            return Err(BadEntry::Length);
        }
        let dependencies = bytes.split_to(dependency_bytes);
        let control = match kind {
            KIND_ROWS => None,
            _ if items != 0 || bytes.len() != 8 => return Err(BadEntry::Length),
            _ => Some(control(kind, bytes.get_u64_le())?),
        };
        Ok(Entry { incarnation, sequence, control, version, dependencies, items, rest: bytes })
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
                Some(&ITEM_ROW_NAMED) if self.version >= VERSION_ITEMS => named = Some(next_name(&mut rest)?),
                Some(&ITEM_INDEX_ENTRY) if self.version >= VERSION_ITEMS => {
                    let primary = named.clone().ok_or(BadEntry::Index)?;
                    each(Item::Index(primary, next_index_change(&mut rest)?));
                }
                Some(&ITEM_INDEX_BUILD) if self.version >= VERSION_ITEMS => {
                    let (index, build) = next_build(&mut rest)?;
                    each(Item::Build(index, build));
                }
                _ => {
                    let (change, old_row) = next_change(&mut rest, self.version)?;
                    named = Some(change.key.clone());
                    each(Item::Row(change, old_row));
                }
            }
        }
        if rest.is_empty() { Ok(()) } else { Err(BadEntry::Length) }
    }
}

/// The effect of an entry of this kind with this number.
fn control(kind: u8, number: u64) -> Result<Control, BadEntry> {
    match (kind, number) {
        (KIND_SEAL, number) if number > SealState::NUMBER_MAX => Err(BadEntry::SealState(number)),
        (KIND_SEAL, number) => Ok(Control::Seal(SealState::of_number(number))),
        (_, 0) => Ok(Control::HistoryOff),
        (_, 1) => Ok(Control::HistoryOn),
        (_, other) => Err(BadEntry::History(other)),
    }
}

fn next_change(rest: &mut Bytes, version: u8) -> Result<(RowChange, Option<Bytes>), BadEntry> {
    if rest.len() < CHANGE_HEADER_BYTES {
        return Err(BadEntry::Length);
    }
    let flags = rest.get_u8();
    let (key_len, row_len) = (rest.get_u16_le() as usize, rest.get_u32_le() as usize);
    let known = FLAG_EXISTS | FLAG_EXISTED | if version >= VERSION_HISTORY { FLAG_OLD_ROW } else { 0 };
    let (exists, existed) = (flags & FLAG_EXISTS != 0, flags & FLAG_EXISTED != 0);
    let has_old = flags & FLAG_OLD_ROW != 0;
    if flags & !known != 0 || (has_old && !existed) {
        return Err(BadEntry::Flags(flags));
    }
    let old_len = match has_old {
        true if rest.len() < OLD_ROW_LENGTH_BYTES => return Err(BadEntry::Length),
        true => rest.get_u32_le() as usize,
        false => 0,
    };
    if rest.len() < key_len + row_len + old_len || (!exists && row_len > 0) {
        return Err(BadEntry::Length);
    }
    let key = PrimaryKey(rest.split_to(key_len));
    let row = rest.split_to(row_len);
    let old_row = has_old.then(|| rest.split_to(old_len));
    Ok((RowChange { key, row: exists.then_some(row), existed }, old_row))
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
