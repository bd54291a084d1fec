//! Frames: `u64 token`, `u32 length`, `length` bytes, all little-endian, in both directions.
//!
//! The first step for a query's bytes and the last for its response's. Decoding borrows from the bytes read so far
//! and never allocates, whatever a header claims.
//! Source: docs/reql-spec.md section 1.2.

/// Bytes before the body: token and length.
pub const HEADER_BYTES: usize = 12;

/// The longest request body that is accepted. A longer one is refused and the connection is closed.
pub const REQUEST_BYTES_MAX: usize = 134_217_727;

/// The longest response body. A longer one becomes a RESOURCE_LIMIT error.
pub const RESPONSE_BYTES_MAX: usize = 4_294_967_294;

/// The number a client gives a query; its responses carry it. It can be reused once the query is finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u64);

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// One complete frame, borrowed from the bytes it was decoded from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The token of the query this belongs to.
    pub token: Token,
    /// JSON text, not yet parsed.
    pub body: &'a [u8],
}

impl Frame<'_> {
    /// Header and body together.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        HEADER_BYTES + self.body.len()
    }
}

/// A frame whose length is over the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Query size ({length}) greater than maximum ({max}).", max = REQUEST_BYTES_MAX)]
pub struct TooLarge {
    /// The token to which the refusal is sent.
    pub token: Token,
    /// The length the header claims.
    pub length: usize,
}

/// The start of a byte string, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// Not a whole frame yet. It will be `frame_bytes` long in total, which is the length of the header as long as
    /// the header itself is incomplete.
    Incomplete {
        /// Header and body together.
        frame_bytes: usize,
    },
    /// A whole frame.
    Complete(Frame<'a>),
}

/// Decodes the frame at the start of `bytes`. Fails if a request is longer than [`REQUEST_BYTES_MAX`]; the bytes
/// after such a header cannot be interpreted.
pub fn decode(bytes: &[u8]) -> Result<Decoded<'_>, TooLarge> {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Ok(Decoded::Incomplete { frame_bytes: HEADER_BYTES });
    };
    let (token, length) = read_header(header);
    if length > REQUEST_BYTES_MAX {
        return Err(TooLarge { token, length });
    }
    Ok(match rest.get(..length) {
        Some(body) => Decoded::Complete(Frame { token, body }),
        None => Decoded::Incomplete { frame_bytes: HEADER_BYTES + length },
    })
}

/// Token and body length of a header. Applies no limit: for clients that read responses.
#[must_use]
pub fn read_header(header: &[u8; HEADER_BYTES]) -> (Token, usize) {
    let [t0, t1, t2, t3, t4, t5, t6, t7, l0, l1, l2, l3] = *header;
    let token = u64::from_le_bytes([t0, t1, t2, t3, t4, t5, t6, t7]);
    (Token(token), u32::from_le_bytes([l0, l1, l2, l3]) as usize)
}

/// Appends a frame with `body`. Returns `None` and writes nothing if the length of the body does not fit into a
/// u32.
pub fn write(out: &mut Vec<u8>, token: Token, body: &[u8]) -> Option<()> {
    let length = u32::try_from(body.len()).ok()?;
    out.reserve(HEADER_BYTES + body.len());
    out.extend_from_slice(&token.0.to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(body);
    Some(())
}

/// A frame whose body is written in place; its length is filled in at the end.
#[derive(Debug)]
#[must_use = "the frame has no length until it is finished"]
pub struct OpenFrame {
    start: usize,
}

/// Begins a frame at the end of `out`; append the body, then [`OpenFrame::finish`].
pub fn open(out: &mut Vec<u8>, token: Token) -> OpenFrame {
    let start = out.len();
    out.extend_from_slice(&token.0.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    OpenFrame { start }
}

impl OpenFrame {
    /// Fills in the length. If the body is longer than [`RESPONSE_BYTES_MAX`], removes it and fails with its
    /// length: write an error as the body instead and finish again.
    pub fn finish(self, out: &mut Vec<u8>) -> Result<(), (OpenFrame, usize)> {
        let body_start = self.start + HEADER_BYTES;
        let length = out.len().saturating_sub(body_start);
        if length > RESPONSE_BYTES_MAX {
            out.truncate(body_start);
            return Err((self, length));
        }
        if let (Some(field), Ok(length)) = (out.get_mut(self.start + 8..body_start), u32::try_from(length)) {
            field.copy_from_slice(&length.to_le_bytes());
        }
        Ok(())
    }

    /// Removes everything written since the frame was opened, header included.
    pub fn discard(self, out: &mut Vec<u8>) {
        out.truncate(self.start);
    }
}

/// The result of [`decode_all`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodedCount {
    /// The number of whole frames.
    pub frames: usize,
    /// Bytes those frames take.
    pub bytes_used: usize,
}

/// Decodes every frame of `bytes`: the entry point of the fuzz target. Never panics; the frames are adjacent and
/// lie inside the input.
pub fn decode_all(bytes: &[u8]) -> Result<DecodedCount, TooLarge> {
    let mut found = DecodedCount::default();
    loop {
        let rest = bytes.get(found.bytes_used..).unwrap_or_default();
        match decode(rest)? {
            Decoded::Incomplete { .. } => return Ok(found),
            Decoded::Complete(frame) => {
                found.frames += 1;
                found.bytes_used += frame.total_bytes();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_frames() -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes, Token(7), b"[1,2]").unwrap();
        write(&mut bytes, Token(u64::MAX), b"").unwrap();
        bytes
    }

    #[test]
    fn a_frame_is_complete_exactly_when_its_last_byte_is_there() {
        let mut bytes = Vec::new();
        write(&mut bytes, Token(7), b"[1,2]").unwrap();
        for cut in 0..bytes.len() {
            let expected = if cut < HEADER_BYTES { HEADER_BYTES } else { bytes.len() };
            assert_eq!(
                decode(&bytes[..cut]),
                Ok(Decoded::Incomplete { frame_bytes: expected }),
                "cut at {cut}"
            );
        }
        assert_eq!(decode(&bytes), Ok(Decoded::Complete(Frame { token: Token(7), body: b"[1,2]" })));
    }

    #[test]
    fn frames_lie_one_after_another() {
        let bytes = two_frames();
        assert_eq!(decode_all(&bytes), Ok(DecodedCount { frames: 2, bytes_used: bytes.len() }));
        assert_eq!(decode_all(&bytes[..bytes.len() - 1]), Ok(DecodedCount { frames: 1, bytes_used: 17 }));
    }

    #[test]
    fn a_request_over_the_limit_is_refused_before_its_body_comes() {
        let mut header = 3u64.to_le_bytes().to_vec();
        header.extend_from_slice(&134_217_727u32.to_le_bytes());
        assert_eq!(decode(&header), Ok(Decoded::Incomplete { frame_bytes: 134_217_739 }));
        header[8..].copy_from_slice(&134_217_728u32.to_le_bytes());
        let refusal = decode(&header).unwrap_err();
        assert_eq!(refusal.token, Token(3));
        assert_eq!(refusal.to_string(), "Query size (134217728) greater than maximum (134217727).");
    }

    #[test]
    fn a_frame_written_in_place_equals_one_written_whole() {
        let mut out = b"before".to_vec();
        let frame = open(&mut out, Token(9));
        out.extend_from_slice(b"{}");
        frame.finish(&mut out).unwrap();
        let mut whole = b"before".to_vec();
        write(&mut whole, Token(9), b"{}").unwrap();
        assert_eq!(out, whole);
    }

    #[test]
    fn a_discarded_frame_leaves_nothing() {
        let mut out = b"before".to_vec();
        let frame = open(&mut out, Token(9));
        out.extend_from_slice(b"half an ans");
        frame.discard(&mut out);
        assert_eq!(out, b"before");
    }

    #[test]
    fn any_bytes_are_decoded_without_a_panic() {
        // A small deterministic generator (seed 1), so that a failure is repeatable.
        let mut state = 1u64;
        let mut next = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        };
        for _ in 0..20_000 {
            let mut bytes: Vec<u8> = (0..next() % 64).map(|_| (next() % 4) as u8).collect();
            if let Some(byte) = bytes.get_mut(11) {
                *byte = (next() % 256) as u8;
            }
            if let Ok(found) = decode_all(&bytes) {
                assert!(found.bytes_used <= bytes.len(), "seed 1, input {bytes:?}");
            }
        }
    }
}
