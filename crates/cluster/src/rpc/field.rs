//! Fields of requests and answers as bytes: docs/formats/cluster-request.md.

use bytes::{BufMut, Bytes, BytesMut};
use io::ReadFields as _;
use log::StallCause;

/// Adds bytes behind their length (4).
pub(crate) fn put(bytes: &mut BytesMut, part: &[u8]) {
    bytes.put_u32_le(part.len() as u32);
    bytes.put_slice(part);
}

/// Reads bytes that [`put`] has added; `None` if fewer bytes are left.
pub(crate) fn take(bytes: &mut Bytes) -> Option<Bytes> {
    let len = bytes.read_u32()? as usize;
    bytes.read_bytes(len)
}

/// Adds whether a log gets on (1), or why not.
pub(crate) fn put_cause(bytes: &mut BytesMut, cause: Option<StallCause>) {
    bytes.put_u8(match cause {
        None => 0,
        Some(StallCause::Full) => 1,
        Some(StallCause::Slow) => 2,
        Some(StallCause::Stopped) => 3,
    });
}

/// What [`put_cause`] has added; `None` where it makes no sense.
pub(crate) fn take_cause(bytes: &mut Bytes) -> Option<Option<StallCause>> {
    match bytes.read_u8()? {
        0 => Some(None),
        1 => Some(Some(StallCause::Full)),
        2 => Some(Some(StallCause::Slow)),
        3 => Some(Some(StallCause::Stopped)),
        _ => None,
    }
}
