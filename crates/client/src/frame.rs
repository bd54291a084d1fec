//! Query and response frames on the client's side.

pub use protocol::frame::HEADER_BYTES;
use protocol::frame::{Token, read_header};

/// Appends one frame with the JSON that `json` writes.
pub fn push(out: &mut Vec<u8>, token: u64, json: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&token.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    json(out);
    let length = (out.len() - start - HEADER_BYTES) as u32;
    out[start + 8..start + HEADER_BYTES].copy_from_slice(&length.to_le_bytes());
}

/// A complete frame at the start of a buffer.
#[derive(Debug, PartialEq)]
pub struct Frame<'a> {
    /// The token of its query.
    pub token: u64,
    /// Its JSON.
    pub body: &'a [u8],
}

impl Frame<'_> {
    /// Its size in the buffer.
    pub fn bytes(&self) -> usize {
        HEADER_BYTES + self.body.len()
    }
}

/// The frame at the start of `buffer`; `None` while it is incomplete.
pub fn first(buffer: &[u8]) -> Option<Frame<'_>> {
    let header = buffer.first_chunk::<HEADER_BYTES>()?;
    let (Token(token), length) = read_header(header);
    let body = buffer.get(HEADER_BYTES..HEADER_BYTES + length)?;
    Some(Frame { token, body })
}

/// How many bytes of the frame at the start of `buffer` are missing; 0 if its length is not known yet.
pub fn missing(buffer: &[u8]) -> usize {
    let Some(header) = buffer.first_chunk::<HEADER_BYTES>() else { return 0 };
    let (_, length) = read_header(header);
    (HEADER_BYTES + length).saturating_sub(buffer.len())
}

#[cfg(test)]
mod tests {
    use super::{Frame, first, missing, push};

    #[test]
    fn a_frame_is_read_back_once_it_is_complete() {
        let mut bytes = Vec::new();
        push(&mut bytes, 7, |out| out.extend_from_slice(b"[1,2]"));
        push(&mut bytes, 8, |out| out.extend_from_slice(b"[]"));
        for end in 0..17 {
            assert_eq!(first(&bytes[..end]), None);
        }
        assert_eq!(missing(&bytes[..14]), 3);
        let frame = first(&bytes).expect("complete");
        assert_eq!(frame, Frame { token: 7, body: b"[1,2]" });
        assert_eq!(first(&bytes[frame.bytes()..]), Some(Frame { token: 8, body: b"[]" }));
    }
}
