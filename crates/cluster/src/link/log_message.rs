//! Replication messages as a link carries them (docs/formats/link.md, "Frames").

use bytes::{Buf, BufMut, Bytes, BytesMut};
use log::GroupId;
pub use log::{Message, PeerId};

use super::frame::Damage;

/// Bytes of a replication message in addition to its body.
pub(super) const ENVELOPE_BYTES: usize = 28;

/// Appends `log_message` to `out`.
pub(super) fn put(out: &mut BytesMut, log_message: &Message) {
    out.put_u64_le(log_message.group.0);
    out.put_u64_le(log_message.from.0);
    out.put_u64_le(log_message.to.0);
    // Bodies are far below the limit for messages, which is checked when they are queued.
    out.put_u32_le(log_message.body.len() as u32);
    out.put_slice(&log_message.body);
}

/// The replication messages of one frame payload.
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
