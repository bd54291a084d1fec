//! Encodes and decodes the fields of requests and responses: docs/formats/cluster-request.md.

use bytes::{BufMut, Bytes, BytesMut};
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
