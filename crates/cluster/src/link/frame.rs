//! The frames of a link: docs/formats/link.md.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The lowest and highest version of the format that this program supports.
pub(super) const VERSIONS: Versions = Versions { lowest: 2, highest: 2 };
/// Longest payload of a received frame.
pub(super) const PAYLOAD_BYTES_MAX: usize = 128 << 10;
/// Longest part of a message in a sent frame.
pub(super) const PART_BYTES: usize = 64 << 10;
const HELLO_BYTES_MAX: usize = 64 << 10;
const HEADER_BYTES: usize = 20;
/// A frame header and the length of the message, which precedes its first part.
pub(super) const HEAD_BYTES_MAX: usize = HEADER_BYTES + 8;
const PREFACE_BYTES: usize = 24;
const MAGIC: &[u8; 8] = b"RKNDLINK";
/// The first bytes of a TLS alert and of a TLS handshake.
const TLS_RECORDS: [[u8; 2]; 2] = [[21, 3], [22, 3]];

/// A range of versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Versions {
    pub(super) lowest: u16,
    pub(super) highest: u16,
}

impl Versions {
    /// The highest version that both support.
    pub(super) fn common(self, other: Versions) -> Option<u16> {
        let most = self.highest.min(other.highest);
        (most >= self.lowest.max(other.lowest)).then_some(most)
    }
}

/// Why received bytes are not, or no longer, a valid link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The other side is not a server of ours.
    #[error(
        "the received bytes are not those of a link between servers: servers link cluster ports (--cluster-port, 29015 \
         by default), not the ports of drivers or of the web interface"
    )]
    NotALink,
    /// The other side uses TLS.
    #[error(
        "the other side uses TLS and this one does not: all servers of a cluster need --cluster-tls-key, \
         --cluster-tls-cert and --cluster-tls-ca, or none"
    )]
    Tls,
    /// Bytes were changed in transit.
    #[error("the checksum of the {0} does not match")]
    Checksum(&'static str),
    /// The announced length is above the limit.
    #[error("a {what} of {bytes} bytes is too long")]
    TooLong {
        /// Hello, frame, message or unfinished messages.
        what: &'static str,
        /// The announced length.
        bytes: u64,
    },
    /// A kind of frame that this version does not have.
    #[error("there is no frame of kind {0}")]
    Kind(u8),
    /// A frame with invalid flags or reserved bytes.
    #[error("a frame has invalid flags")]
    Flags,
    /// A hello without a required field.
    #[error("the hello has no valid {0}")]
    Hello(&'static str),
    /// Parts of a message that are inconsistent.
    #[error("the parts of a message are inconsistent")]
    Parts,
    /// A replication message that is truncated.
    #[error("a replication message is truncated")]
    Message,
    /// An address book that cannot be read.
    #[error("an address book cannot be read: {0}")]
    Book(&'static str),
    /// A frame that is not allowed in the current state.
    #[error("a frame is not allowed in this state")]
    OutOfTurn,
}

/// The kind of a frame (docs/formats/link.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Consent = 1,
    Welcome = 2,
    Farewell = 3,
    Heartbeat = 4,
    LogMessages = 5,
    Request = 6,
    Response = 7,
    Refusal = 8,
    Lost = 9,
    Book = 10,
    Withdrawn = 11,
}

impl Kind {
    pub(super) fn of(byte: u8) -> Result<Kind, Damage> {
        use Kind::*;
        let all = [
            Consent,
            Welcome,
            Farewell,
            Heartbeat,
            LogMessages,
            Request,
            Response,
            Refusal,
            Lost,
            Book,
            Withdrawn,
        ];
        all.into_iter().find(|kind| *kind as u8 == byte).ok_or(Damage::Kind(byte))
    }

    /// Whether the frame carries data for the users of the link, and does not change the state of the link.
    pub(super) fn is_data(self) -> bool {
        matches!(self, Kind::LogMessages | Kind::Request | Kind::Response | Kind::Refusal | Kind::Lost)
    }

    /// Whether a message of this kind may be divided into parts.
    pub(super) fn may_be_long(self) -> bool {
        matches!(self, Kind::LogMessages | Kind::Request | Kind::Response | Kind::Refusal | Kind::Book)
    }
}

/// The bits of a frame's flags.
pub(super) mod flag {
    pub(in super::super) const FIRST: u8 = 1;
    pub(in super::super) const LAST: u8 = 2;
    pub(in super::super) const WHOLE: u8 = FIRST | LAST;
    pub(in super::super) const ECHO_WANTED: u8 = 4;
    pub(in super::super) const ECHO: u8 = 8;
    pub(in super::super) const DEAF: u8 = 16;
    pub(in super::super) const ALL: u8 = WHOLE | ECHO_WANTED | ECHO | DEAF;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) flags: u8,
    pub(super) number: u64,
    pub(super) payload: Bytes,
}

/// Writes everything of a frame except `payload`: the header, and `before`, which is the beginning of the frame's
/// payload.
pub(super) fn head(out: &mut BytesMut, kind: Kind, flags: u8, number: u64, before: &[u8], payload: &[u8]) {
    let mut header = [0; HEADER_BYTES - 4];
    header[..4].copy_from_slice(&((before.len() + payload.len()) as u32).to_le_bytes());
    header[4] = kind as u8;
    header[5] = flags;
    header[8..].copy_from_slice(&number.to_le_bytes());
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&header), before);
    out.put_u32_le(crc32c::crc32c_append(checksum, payload));
    out.put_slice(&header);
    out.put_slice(before);
}

/// Writes a whole frame.
pub(super) fn put(out: &mut BytesMut, kind: Kind, flags: u8, number: u64, payload: &[u8]) {
    head(out, kind, flags, number, &[], payload);
    out.put_slice(payload);
}

/// The preface, followed by the hello.
pub(super) fn preface(versions: Versions, hello: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(PREFACE_BYTES + hello.len());
    out.put_slice(MAGIC);
    out.put_u16_le(versions.lowest);
    out.put_u16_le(versions.highest);
    out.put_u32_le(hello.len() as u32);
    out.put_u32_le(crc32c::crc32c(hello));
    out.put_u32_le(crc32c::crc32c(&out));
    out.put_slice(hello);
    out.freeze()
}

/// One item of a link's byte stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Preface(Versions),
    Hello(Bytes),
    Frame(Frame),
}

/// Splits the bytes of one direction of a link into items, however the network divided them.
#[derive(Default)]
pub(super) struct StreamReader {
    stage: ReadStage,
    /// The unread rest of the bytes handed in last.
    unread: Bytes,
    /// The beginning of an item that is still incomplete.
    partial: BytesMut,
}

#[derive(Clone, Copy, Default)]
enum ReadStage {
    #[default]
    Preface,
    Hello {
        bytes: usize,
        checksum: u32,
    },
    Frames,
}

impl StreamReader {
    /// Hands in bytes. All items of earlier bytes must have been read.
    pub(super) fn push(&mut self, bytes: Bytes) {
        if self.partial.is_empty() {
            self.unread = bytes;
            return;
        }
        self.partial.extend_from_slice(&bytes);
        if self.partial.len() >= self.bytes_needed(&self.partial) {
            self.unread = self.partial.split().freeze();
        }
    }

    /// The next item, if it is complete.
    pub(super) fn next(&mut self) -> Result<Option<Item>, Damage> {
        if matches!(self.stage, ReadStage::Preface) && is_tls(&self.unread) {
            return Err(Damage::Tls);
        }
        let bytes_needed = self.bytes_needed(&self.unread);
        if self.unread.len() < bytes_needed {
            let unread = std::mem::take(&mut self.unread);
            self.partial.extend_from_slice(&unread);
            return Ok(None);
        }
        match self.stage {
            ReadStage::Preface => self.preface().map(Some),
            ReadStage::Hello { bytes, checksum } => {
                let hello = self.unread.split_to(bytes);
                self.stage = ReadStage::Frames;
                if crc32c::crc32c(&hello) == checksum {
                    Ok(Some(Item::Hello(hello)))
                } else {
                    Err(Damage::Checksum("hello"))
                }
            }
            ReadStage::Frames => {
                let bytes = payload_bytes(&self.unread)?;
                if self.unread.len() < HEADER_BYTES + bytes {
                    let unread = std::mem::take(&mut self.unread);
                    self.partial.extend_from_slice(&unread);
                    return Ok(None);
                }
                let frame = self.unread.split_to(HEADER_BYTES + bytes);
                read_frame(frame).map(|frame| Some(Item::Frame(frame)))
            }
        }
    }

    /// How many bytes from `seen` on are needed to make progress.
    fn bytes_needed(&self, seen: &[u8]) -> usize {
        match self.stage {
            // A TLS alert may be shorter than a preface.
            ReadStage::Preface if is_tls(seen) => seen.len(),
            ReadStage::Preface => PREFACE_BYTES,
            ReadStage::Hello { bytes, .. } => bytes,
            ReadStage::Frames if seen.len() < HEADER_BYTES => HEADER_BYTES,
            // A frame that is too long is rejected at once, without waiting for its bytes.
            ReadStage::Frames => HEADER_BYTES + payload_bytes(seen).unwrap_or(0),
        }
    }

    fn preface(&mut self) -> Result<Item, Damage> {
        let mut preface = self.unread.split_to(PREFACE_BYTES);
        if preface[..8] != MAGIC[..] {
            return Err(Damage::NotALink);
        }
        if crc32c::crc32c(&preface[..20]).to_le_bytes() != preface[20..24] {
            return Err(Damage::Checksum("preface"));
        }
        preface.advance(8);
        let versions = Versions { lowest: preface.get_u16_le(), highest: preface.get_u16_le() };
        let bytes = preface.get_u32_le() as usize;
        if bytes > HELLO_BYTES_MAX {
            return Err(Damage::TooLong { what: "hello", bytes: bytes as u64 });
        }
        self.stage = ReadStage::Hello { bytes, checksum: preface.get_u32_le() };
        Ok(Item::Preface(versions))
    }
}

fn is_tls(seen: &[u8]) -> bool {
    TLS_RECORDS.iter().any(|begin| seen.starts_with(begin))
}

/// The payload length of a frame, from a header that is complete.
fn payload_bytes(frame: &[u8]) -> Result<usize, Damage> {
    let bytes = u32::from_le_bytes([frame[4], frame[5], frame[6], frame[7]]) as usize;
    if bytes > PAYLOAD_BYTES_MAX {
        return Err(Damage::TooLong { what: "frame", bytes: bytes as u64 });
    }
    Ok(bytes)
}

fn read_frame(mut frame: Bytes) -> Result<Frame, Damage> {
    let checksum = frame.get_u32_le();
    if crc32c::crc32c(&frame) != checksum {
        return Err(Damage::Checksum("frame"));
    }
    frame.advance(4);
    let kind = Kind::of(frame.get_u8())?;
    let flags = frame.get_u8();
    if frame.get_u16_le() != 0 || flags & !flag::ALL != 0 {
        return Err(Damage::Flags);
    }
    if flags & flag::WHOLE != flag::WHOLE && !kind.may_be_long() {
        return Err(Damage::Flags);
    }
    Ok(Frame { kind, flags, number: frame.get_u64_le(), payload: frame })
}
