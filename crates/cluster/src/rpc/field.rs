//! Encodes and decodes the fields of requests and responses: docs/formats/cluster-request.md.

use bytes::{BufMut, Bytes, BytesMut};
use datum::{KeyBound, KeyRange, PrimaryKey};
use io::ReadFields as _;
use log::StallCause;

/// Appends the length of `part` (4 bytes), then `part`.
pub(crate) fn put(bytes: &mut BytesMut, part: &[u8]) {
    bytes.put_u32_le(part.len() as u32);
    bytes.put_slice(part);
}

/// Reads bytes written by [`put`]; `None` if too few bytes are left.
pub(crate) fn take(bytes: &mut Bytes) -> Option<Bytes> {
    let len = bytes.read_u32()? as usize;
    bytes.read_bytes(len)
}

/// Appends the health of a log (1 byte): that it makes progress, or the cause of its stall.
pub(crate) fn put_cause(bytes: &mut BytesMut, cause: Option<StallCause>) {
    bytes.put_u8(match cause {
        None => 0,
        Some(StallCause::Full) => 1,
        Some(StallCause::Slow) => 2,
        Some(StallCause::Stopped) => 3,
    });
}

/// Reads the byte written by [`put_cause`]; `None` if it has no known value.
pub(crate) fn take_cause(bytes: &mut Bytes) -> Option<Option<StallCause>> {
    match bytes.read_u8()? {
        0 => Some(None),
        1 => Some(Some(StallCause::Full)),
        2 => Some(Some(StallCause::Slow)),
        3 => Some(Some(StallCause::Stopped)),
        _ => None,
    }
}

/// Appends the key up to which rows reach: 1 and the key, or 0 and an empty key for the end of their range.
pub(crate) fn put_reach(bytes: &mut BytesMut, reach: Option<&PrimaryKey>) {
    bytes.put_u8(u8::from(reach.is_some()));
    put(bytes, reach.map_or(&[], PrimaryKey::as_bytes));
}

/// Reads what [`put_reach`] wrote; `None` for anything else.
pub(crate) fn take_reach(bytes: &mut Bytes) -> Option<Option<PrimaryKey>> {
    let kind = bytes.read_u8()?;
    let key = PrimaryKey(take(bytes)?);
    match kind {
        0 => Some(None),
        1 => Some(Some(key)),
        _ => None,
    }
}

/// Appends a range of keys: for each end a byte (0: none, 1: included, 2: excluded) and the key.
pub(crate) fn put_range(bytes: &mut BytesMut, range: &KeyRange) {
    for bound in [&range.start, &range.end] {
        let (kind, key): (u8, &[u8]) = match bound {
            KeyBound::Unbounded => (0, &[]),
            KeyBound::Included(key) => (1, key.as_bytes()),
            KeyBound::Excluded(key) => (2, key.as_bytes()),
        };
        bytes.put_u8(kind);
        put(bytes, key);
    }
}

/// Reads what [`put_range`] wrote; `None` for anything else.
pub(crate) fn take_range(bytes: &mut Bytes) -> Option<KeyRange> {
    let mut bound = || {
        let (kind, key) = (bytes.read_u8()?, PrimaryKey(take(bytes)?));
        match kind {
            0 => Some(KeyBound::Unbounded),
            1 => Some(KeyBound::Included(key)),
            2 => Some(KeyBound::Excluded(key)),
            _ => None,
        }
    };
    Some(KeyRange { start: bound()?, end: bound()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_round_trip_and_truncated_ones_are_refused() {
        let key = |text: &'static str| PrimaryKey(Bytes::from_static(text.as_bytes()));
        let range = KeyRange { start: KeyBound::Included(key("a")), end: KeyBound::Excluded(key("b")) };
        for range in [range, KeyRange::all()] {
            let mut bytes = BytesMut::new();
            put_range(&mut bytes, &range);
            let bytes = bytes.freeze();
            assert_eq!(take_range(&mut bytes.clone()), Some(range));
            for len in 0..bytes.len() {
                assert_eq!(take_range(&mut bytes.slice(..len)), None);
            }
        }
    }
}
