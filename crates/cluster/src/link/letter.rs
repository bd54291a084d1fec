//! Letters of the log as a link carries them (docs/formats/link.md, frames).

use bytes::{Buf, BufMut, Bytes, BytesMut};
use log::GroupId;
pub use log::{Message as Letter, PeerId};

use super::frame::Damage;

/// Bytes of a letter beside its body.
pub(super) const ENVELOPE_BYTES: usize = 28;

/// Writes `letter` behind those already in `out`.
pub(super) fn put(out: &mut BytesMut, letter: &Letter) {
    out.put_u64_le(letter.group.0);
    out.put_u64_le(letter.from.0);
    out.put_u64_le(letter.to.0);
    // Bodies are far below the limit of a message, which is checked when they are handed in.
    out.put_u32_le(letter.body.len() as u32);
    out.put_slice(&letter.body);
}

/// The letters of one message.
pub(super) fn read_all(mut message: Bytes) -> Result<Vec<Letter>, Damage> {
    let mut letters = Vec::new();
    while !message.is_empty() {
        if message.len() < ENVELOPE_BYTES {
            return Err(Damage::Letter);
        }
        let group = GroupId(message.get_u64_le());
        let from = PeerId(message.get_u64_le());
        let to = PeerId(message.get_u64_le());
        let body_bytes = message.get_u32_le() as usize;
        if message.len() < body_bytes {
            return Err(Damage::Letter);
        }
        letters.push(Letter { group, from, to, body: message.split_to(body_bytes) });
    }
    Ok(letters)
}
