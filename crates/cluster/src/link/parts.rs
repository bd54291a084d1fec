//! Joins the parts of messages.

use std::collections::BTreeMap;

use bytes::{Buf, Bytes};

use super::frame::{Damage, Frame, Kind, flag};

pub(super) const MESSAGE_BYTES_MAX: u64 = 256 << 20;
/// The most bytes of unfinished messages of one link.
const UNFINISHED_BYTES_MAX: u64 = 1 << 30;
/// The most memory that is reserved for a message before its bytes arrive.
const ROOM_BYTES_MAX: u64 = 4 << 20;

/// What a link carries, joined from its frames: a request, a response, a batch of messages between replicas, or the content
/// of another frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) flags: u8,
    pub(super) number: u64,
    pub(super) body: Bytes,
}

/// The unfinished messages of one link.
#[derive(Default)]
pub(super) struct Assembly {
    unfinished: BTreeMap<(Kind, u64), Unfinished>,
    bytes: u64,
}

struct Unfinished {
    total: u64,
    body: Vec<u8>,
}

impl Assembly {
    /// Takes a frame. Returns the message, if the frame was its last part.
    pub(super) fn take(&mut self, frame: Frame) -> Result<Option<Message>, Damage> {
        let Frame { kind, flags, number, mut payload } = frame;
        if flags & flag::WHOLE == flag::WHOLE {
            return Ok(Some(Message { kind, flags, number, body: payload }));
        }
        if flags & flag::FIRST != 0 {
            if payload.len() < 8 {
                return Err(Damage::Parts);
            }
            let total = payload.get_u64_le();
            if total > MESSAGE_BYTES_MAX {
                return Err(Damage::TooLong { what: "message", bytes: total });
            }
            let body = Vec::with_capacity(total.min(ROOM_BYTES_MAX) as usize);
            if self.unfinished.insert((kind, number), Unfinished { total, body }).is_some() {
                return Err(Damage::Parts);
            }
        }
        let unfinished = self.unfinished.get_mut(&(kind, number)).ok_or(Damage::Parts)?;
        unfinished.body.extend_from_slice(&payload);
        self.bytes += payload.len() as u64;
        if self.bytes > UNFINISHED_BYTES_MAX {
            return Err(Damage::TooLong { what: "total of unfinished messages", bytes: self.bytes });
        }
        let (here, total) = (unfinished.body.len() as u64, unfinished.total);
        let is_last = flags & flag::LAST != 0;
        if here > total || is_last != (here == total) {
            return Err(Damage::Parts);
        }
        if !is_last {
            return Ok(None);
        }
        Ok(self.remove(kind, number).map(|body| Message { kind, flags, number, body: Bytes::from(body) }))
    }

    /// The sender has withdrawn this request: its remaining parts will not arrive.
    pub(super) fn withdraw(&mut self, number: u64) {
        self.remove(Kind::Request, number);
    }

    fn remove(&mut self, kind: Kind, number: u64) -> Option<Vec<u8>> {
        let found = self.unfinished.remove(&(kind, number))?;
        self.bytes -= found.body.len() as u64;
        Some(found.body)
    }
}
