//! LogMessages of the log as a link carries them (docs/formats/link.md, frames).

use bytes::{Buf, BufMut, Bytes, BytesMut};
use log::GroupId;
pub use log::{Message, PeerId};

use super::frame::Damage;

/// Bytes of a log_message beside its body.
pub(super) const ENVELOPE_BYTES: usize = 28;

/// Writes `log_message` behind those already in `out`.
pub(super) fn put(out: &mut BytesMut, log_message: &Message) {
    out.put_u64_le(log_message.group.0);
    out.put_u64_le(log_message.from.0);
    out.put_u64_le(log_message.to.0);
    // Bodies are far below the limit of a message, which is checked when they are handed in.
    out.put_u32_le(log_message.body.len() as u32);
    out.put_slice(&log_message.body);
}

/// The log_messages of one message.
pub(super) fn read_all(mut message: Bytes) -> Result<Vec<Message>, Damage> {
    let mut log_messages = Vec::new();
    while !message.is_empty() {
        if message.len() < ENVELOPE_BYTES {
            return Err(Damage::Message);
        }
        let group = GroupId(message.get_u64_le());
        let from = PeerId(message.get_u64_le());
        let to = PeerId(message.get_u64_le());
        let body_bytes = message.get_u32_le() as usize;
        if message.len() < body_bytes {
            return Err(Damage::Message);
        }
        log_messages.push(Message { group, from, to, body: message.split_to(body_bytes) });
    }
    Ok(log_messages)
}
