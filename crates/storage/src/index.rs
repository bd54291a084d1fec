//! Entries of secondary indexes as bytes. Only the creator of a key interprets it.

use bytes::{BufMut, Bytes, BytesMut};

/// The id of an index within its table; never reused there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IndexId(pub u32);

impl std::fmt::Display for IndexId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A change of the entry of a row under one key of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexChange {
    pub index: IndexId,
    /// The index key (`docs/formats/key.md`), less than 64 KiB.
    pub key: Bytes,
    /// The new entry, or `None` if it is removed.
    pub entry: Option<IndexEntry>,
}

/// The value stored under an index key and a primary key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// How many values of the row have this key; at least 1.
    pub times: u32,
    /// Whether the key was truncated, so that the values must be read from the row.
    pub truncated: bool,
}

const FLAG_TRUNCATED: u8 = 1;
const FLAG_TIMES: u8 = 2;
const SHORT_BYTES: usize = 3;

impl IndexEntry {
    /// The entry as stored bytes, for an index key of `key_len` bytes. The length tells where the primary key begins.
    pub(crate) fn encode(self, key_len: usize) -> Bytes {
        let mut bytes = BytesMut::with_capacity(SHORT_BYTES + 4);
        bytes.put_u16_le(key_len as u16);
        let truncated = if self.truncated { FLAG_TRUNCATED } else { 0 };
        if self.times == 1 {
            bytes.put_u8(truncated);
        } else {
            bytes.put_u8(truncated | FLAG_TIMES);
            bytes.put_u32_le(self.times);
        }
        bytes.freeze()
    }

    /// The entry and the length of its key, or `None` if the bytes are not a valid entry.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(IndexEntry, usize)> {
        let (head, rest) = bytes.split_first_chunk::<SHORT_BYTES>()?;
        let key_len = usize::from(u16::from_le_bytes([head[0], head[1]]));
        let times = match (head[2] & FLAG_TIMES, rest) {
            (0, []) => 1,
            (FLAG_TIMES, rest) => u32::from_le_bytes(rest.try_into().ok()?),
            _ => return None,
        };
        (head[2] & !(FLAG_TRUNCATED | FLAG_TIMES) == 0)
            .then_some((IndexEntry { times, truncated: head[2] & FLAG_TRUNCATED != 0 }, key_len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_and_other_bytes_do_not() {
        for entry in [
            IndexEntry { times: 1, truncated: false },
            IndexEntry { times: 1, truncated: true },
            IndexEntry { times: 70_000, truncated: true },
        ] {
            let bytes = entry.encode(192);
            assert_eq!(IndexEntry::decode(&bytes), Some((entry, 192)));
            assert_eq!(IndexEntry::decode(&bytes[1..]), None);
        }
        assert_eq!(IndexEntry::decode(&[1, 0, 4]), None);
        assert_eq!(IndexEntry::decode(&[1, 0, 0, 7]), None);
    }
}
