//! Fields of requests and answers as bytes: docs/formats/cluster-request.md.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use log::StallCause;

/// Adds bytes behind their length (4).
pub(crate) fn put(bytes: &mut BytesMut, part: &[u8]) {
    bytes.put_u32_le(part.len() as u32);
    bytes.put_slice(part);
}

/// What [`put`] has added; `None` where fewer bytes are left.
pub(crate) fn take(bytes: &mut Bytes) -> Option<Bytes> {
    let len = take_u32(bytes)? as usize;
    (len <= bytes.len()).then(|| bytes.split_to(len))
}

/// The next byte; `None` at the end.
pub(crate) fn take_u8(bytes: &mut Bytes) -> Option<u8> {
    (!bytes.is_empty()).then(|| bytes.get_u8())
}

/// The next four bytes as a number; `None` where fewer are left.
pub(crate) fn take_u32(bytes: &mut Bytes) -> Option<u32> {
    (bytes.len() >= 4).then(|| bytes.get_u32_le())
}

/// The next eight bytes as a number; `None` where fewer are left.
pub(crate) fn take_u64(bytes: &mut Bytes) -> Option<u64> {
    (bytes.len() >= 8).then(|| bytes.get_u64_le())
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
    match take_u8(bytes)? {
        0 => Some(None),
        1 => Some(Some(StallCause::Full)),
        2 => Some(Some(StallCause::Slow)),
        3 => Some(Some(StallCause::Stopped)),
        _ => None,
    }
}
