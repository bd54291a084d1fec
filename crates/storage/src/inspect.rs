//! Single pairs of an engine, decoded for a check: docs/formats/engine-keys.md. Nothing here reads an engine.

use bytes::Bytes;
use datum::PrimaryKey;
use log::GroupId;

use crate::compression::is_intact_dictionary;
use crate::index_scan::hit;
use crate::layout::{
    META_APPLIED, META_BUILD, META_COUNT, META_DICTIONARY, META_VERSION, VERSION, parse_version,
};
use crate::{Applied, Count, FormatError, HistoryRecord, IndexBuild, IndexHit, IndexId, ReadError, TableId};

/// A record of the space `meta`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaRecord {
    /// The format version of the engine.
    Version(u32),
    /// How much of a group's log is applied.
    Applied(GroupId, Applied),
    /// The number of rows of a table in the range of a group.
    Count(TableId, GroupId, Count),
    /// How far an index is built in the range of a group.
    Build(TableId, GroupId, IndexId, IndexBuild),
    /// A dictionary of a table, undamaged: its number, and the bytes of its record.
    Dictionary(TableId, u32, usize),
}

/// The table and the primary key of the engine's key of a row. `None` if the key is too short.
#[must_use]
pub fn row_place(key: &[u8]) -> Option<(TableId, PrimaryKey)> {
    let (id, primary) = key.split_first_chunk::<{ TableId::BYTES }>()?;
    Some((table_of(*id), PrimaryKey(Bytes::copy_from_slice(primary))))
}

/// The entry in a pair of the space `index`, with its table and index. `None` if it is malformed.
#[must_use]
pub fn index_hit(key: &[u8], value: &[u8]) -> Option<(TableId, IndexId, IndexHit)> {
    let (id, rest) = key.split_first_chunk::<{ TableId::BYTES }>()?;
    let (index, _) = rest.split_first_chunk()?;
    Some((table_of(*id), IndexId(u32::from_be_bytes(*index)), hit(key, value)?))
}

/// The record in a pair of the space `history`, with its group. `None` if its key is malformed.
#[must_use]
pub fn history_record(key: &[u8], value: &[u8]) -> Option<(GroupId, HistoryRecord)> {
    HistoryRecord::of_pair(key, value)
}

/// The record in a pair of the space `meta`. Fails with [`FormatError::Newer`] for the version of a later program, and
/// otherwise with an error that names the damaged record.
pub fn meta_record(key: &[u8], value: &Bytes) -> Result<MetaRecord, FormatError> {
    let damaged = |what: String| FormatError::Read(ReadError::CorruptMeta { what });
    let unknown = || damaged(format!("the key {}", hex(key)));
    let (kind, rest) = key.split_first().ok_or_else(unknown)?;
    match *kind {
        META_VERSION if rest.is_empty() => match parse_version(value)? {
            found if found > VERSION => Err(FormatError::Newer { found, known: VERSION }),
            found => Ok(MetaRecord::Version(found)),
        },
        META_APPLIED => {
            let group = group_of(rest).ok_or_else(unknown)?;
            let applied = Applied::decode(Some(value.clone()), group)?;
            Ok(MetaRecord::Applied(group, applied.unwrap_or_default()))
        }
        META_COUNT => {
            let (table, group) = table_and_group(rest).ok_or_else(unknown)?;
            Ok(MetaRecord::Count(table, group, Count::decode(Some(value.clone()), group)?))
        }
        META_BUILD => {
            let (place, index) = rest.split_last_chunk::<4>().ok_or_else(unknown)?;
            let (table, group) = table_and_group(place).ok_or_else(unknown)?;
            let index = IndexId(u32::from_be_bytes(*index));
            let build = IndexBuild::decode(value);
            let build =
                build.ok_or_else(|| damaged(format!("the build of index {index} in group {group}")))?;
            Ok(MetaRecord::Build(table, group, index, build))
        }
        META_DICTIONARY => {
            let (id, number) = rest.split_last_chunk::<4>().ok_or_else(unknown)?;
            let table = table_of(id.try_into().map_err(|_| unknown())?);
            let number = u32::from_be_bytes(*number);
            match is_intact_dictionary(table, number, value) {
                true => Ok(MetaRecord::Dictionary(table, number, value.len())),
                false => Err(damaged(format!("dictionary {number} of table {table}"))),
            }
        }
        _ => Err(unknown()),
    }
}

fn table_of(id: [u8; TableId::BYTES]) -> TableId {
    TableId::from_uuid(uuid::Uuid::from_bytes(id))
}

fn group_of(bytes: &[u8]) -> Option<GroupId> {
    Some(GroupId(u64::from_be_bytes(bytes.try_into().ok()?)))
}

fn table_and_group(bytes: &[u8]) -> Option<(TableId, GroupId)> {
    let (id, group) = bytes.split_first_chunk()?;
    Some((table_of(*id), group_of(group)?))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use engine::memory::MemoryEngine;
    use engine::{Batch, Direction, Engine, Space};
    use log::Lsn;
    use std::ops::Bound::Unbounded;

    use super::*;
    use crate::Store;

    #[test]
    fn every_record_is_recognized_and_others_are_named() {
        let engine = std::sync::Arc::new(MemoryEngine::new());
        Store::open(engine.clone(), 0).unwrap();
        let (table, group) = (TableId::from_uuid(uuid::Uuid::from_u128(7)), GroupId(9));
        let applied = Applied { lsn: Lsn(5), progress: Bytes::from_static(b"progress") };
        let mut batch = Batch::new();
        applied.put(&mut batch, group);
        Count(3).put(&mut batch, table, group);
        IndexBuild::Ready.put(&mut batch, table, group, IndexId(2));
        engine.write(batch).unwrap();
        let snapshot = engine.snapshot().unwrap();
        let mut scan = snapshot.scan(Space::Meta, (Unbounded, Unbounded), Direction::Ascending);
        let mut found = Vec::new();
        while let Some((key, value)) = scan.next().unwrap() {
            found.push(meta_record(key, &Bytes::copy_from_slice(value)).unwrap());
        }
        let expected = [
            MetaRecord::Version(1),
            MetaRecord::Applied(group, applied),
            MetaRecord::Count(table, group, Count(3)),
            MetaRecord::Build(table, group, IndexId(2), IndexBuild::Ready),
        ];
        assert_eq!(found, expected);
        let error = |key: &[u8], value: &'static [u8]| {
            meta_record(key, &Bytes::from_static(value)).unwrap_err().to_string()
        };
        assert_eq!(error(&[9, 1], b""), "the record of the key 0901 is damaged");
        assert_eq!(error(&[], b""), "the record of the key  is damaged");
        assert!(error(&[META_VERSION], &[9, 0, 0, 0]).contains("format version 9"));
        let dictionary = [&[META_DICTIONARY][..], table.as_bytes(), &[0, 0, 0, 3]].concat();
        assert!(error(&dictionary, b"\x01\0\0\0nonsense").starts_with("the record of dictionary 3 of table"));
    }
}
