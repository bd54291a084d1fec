//! Bytes of a link, as frames: docs/formats/link.md.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The version of the format this program speaks, lowest and highest.
pub(super) const VERSIONS: Versions = Versions { least: 2, most: 2 };
/// Longest payload of a frame that is taken.
pub(super) const PAYLOAD_BYTES_MAX: usize = 128 << 10;
/// Longest part of a message that is sent.
pub(super) const PART_BYTES: usize = 64 << 10;
const HELLO_BYTES_MAX: usize = 64 << 10;
const HEADER_BYTES: usize = 20;
/// A header and the length of a message before its first part.
pub(super) const HEAD_BYTES_MAX: usize = HEADER_BYTES + 8;
const PREFACE_BYTES: usize = 24;
const MAGIC: &[u8; 8] = b"RKNDLINK";
/// How an alert and a handshake of TLS begin.
const TLS_RECORDS: [[u8; 2]; 2] = [[21, 3], [22, 3]];

/// A range of versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Versions {
    pub(super) least: u16,
    pub(super) most: u16,
}

impl Versions {
    /// The highest version both speak.
    pub(super) fn common(self, other: Versions) -> Option<u16> {
        let most = self.most.min(other.most);
        (most >= self.least.max(other.least)).then_some(most)
    }
}

/// Bytes that are not a link, or no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// Whoever speaks is no server of ours.
    #[error(
        "what was received does not begin as a link between servers does: they link cluster ports (--cluster-port, \
         29015 unless another is given), not those of drivers or of the web interface"
    )]
    NotALink,
    /// It speaks TLS.
    #[error(
        "the other side uses TLS and this one does not: all servers of a cluster need --cluster-tls-key, \
         --cluster-tls-cert and --cluster-tls-ca, or none"
    )]
    Tls,
    /// Bytes were changed on their way.
    #[error("the checksum of the {0} does not match")]
    Checksum(&'static str),
    /// More bytes announced than are ever sent.
    #[error("a {what} of {bytes} bytes is too long")]
    TooLong {
        /// Hello, frame, message or unfinished messages.
        what: &'static str,
        /// How many bytes.
        bytes: u64,
    },
    /// A kind of frame this version does not have.
    #[error("there is no frame of kind {0}")]
    Kind(u8),
    /// A frame with flags or reserved bytes it cannot have.
    #[error("a frame has flags it cannot have")]
    Flags,
    /// A hello without a field that it must have.
    #[error("the hello has no legal {0}")]
    Hello(&'static str),
    /// Parts of a message that do not fit together.
    #[error("the parts of a message do not fit together")]
    Parts,
    /// A log_message that ends before its end.
    #[error("a log_message is cut off")]
    Message,
    /// An address book that cannot be read.
    #[error("an address book cannot be read: {0}")]
    Book(&'static str),
    /// A frame that has no place at this moment.
    #[error("a frame came out of turn")]
    OutOfTurn,
}

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Consent = 1,
    Welcome = 2,
    Farewell = 3,
    Heartbeat = 4,
    LogMessages = 5,
    Request = 6,
    Answer = 7,
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
            Answer,
            Refusal,
            Lost,
            Book,
            Withdrawn,
        ];
        all.into_iter().find(|kind| *kind as u8 == byte).ok_or(Damage::Kind(byte))
    }

    /// Whether it is for those who use the link, and leaves the link as it is.
    pub(super) fn is_talk(self) -> bool {
        matches!(self, Kind::LogMessages | Kind::Request | Kind::Answer | Kind::Refusal | Kind::Lost)
    }

    /// Whether messages of this kind may come in parts.
    pub(super) fn may_be_long(self) -> bool {
        matches!(self, Kind::LogMessages | Kind::Request | Kind::Answer | Kind::Refusal | Kind::Book)
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

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) flags: u8,
    pub(super) number: u64,
    pub(super) payload: Bytes,
}

/// The first bytes of a frame whose payload is `before` and then `payload`, which are not copied.
pub(super) fn head(out: &mut BytesMut, kind: Kind, flags: u8, number: u64, before: &[u8], payload: &[u8]) {
    let mut rest = [0; HEADER_BYTES - 4];
    rest[..4].copy_from_slice(&((before.len() + payload.len()) as u32).to_le_bytes());
    rest[4] = kind as u8;
    rest[5] = flags;
    rest[8..].copy_from_slice(&number.to_le_bytes());
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&rest), before);
    out.put_u32_le(crc32c::crc32c_append(checksum, payload));
    out.put_slice(&rest);
    out.put_slice(before);
}

/// A frame in one piece.
pub(super) fn put(out: &mut BytesMut, kind: Kind, flags: u8, number: u64, payload: &[u8]) {
    head(out, kind, flags, number, &[], payload);
    out.put_slice(payload);
}

/// The preface and the hello behind it.
pub(super) fn preface(versions: Versions, hello: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(PREFACE_BYTES + hello.len());
    out.put_slice(MAGIC);
    out.put_u16_le(versions.least);
    out.put_u16_le(versions.most);
    out.put_u32_le(hello.len() as u32);
    out.put_u32_le(crc32c::crc32c(hello));
    out.put_u32_le(crc32c::crc32c(&out));
    out.put_slice(hello);
    out.freeze()
}

/// What stands next on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Preface(Versions),
    Hello(Bytes),
    Frame(Frame),
}

/// Takes the bytes of one direction of a link apart, however they were cut on their way.
#[derive(Default)]
pub(super) struct StreamReader {
    stage: Stage,
    /// What was handed in last, as far as it is not read.
    rest: Bytes,
    /// The beginning of an item whose end has not come yet.
    begun: BytesMut,
}

#[derive(Clone, Copy, Default)]
enum Stage {
    #[default]
    Preface,
    Hello {
        bytes: usize,
        checksum: u32,
    },
    Frames,
}

impl StreamReader {
    /// Hands in bytes. Everything handed in before must have been read.
    pub(super) fn push(&mut self, bytes: Bytes) {
        if self.begun.is_empty() {
            self.rest = bytes;
            return;
        }
        self.begun.extend_from_slice(&bytes);
        if self.begun.len() >= self.wanted(&self.begun) {
            self.rest = self.begun.split().freeze();
        }
    }

    /// The next item, if all of it is here.
    pub(super) fn next(&mut self) -> Result<Option<Item>, Damage> {
        if matches!(self.stage, Stage::Preface) && is_tls(&self.rest) {
            return Err(Damage::Tls);
        }
        let wanted = self.wanted(&self.rest);
        if self.rest.len() < wanted {
            let rest = std::mem::take(&mut self.rest);
            self.begun.extend_from_slice(&rest);
            return Ok(None);
        }
        match self.stage {
            Stage::Preface => self.preface().map(Some),
            Stage::Hello { bytes, checksum } => {
                let hello = self.rest.split_to(bytes);
                self.stage = Stage::Frames;
                if crc32c::crc32c(&hello) == checksum {
                    Ok(Some(Item::Hello(hello)))
                } else {
                    Err(Damage::Checksum("hello"))
                }
            }
            Stage::Frames => {
                let bytes = payload_bytes(&self.rest)?;
                if self.rest.len() < HEADER_BYTES + bytes {
                    let rest = std::mem::take(&mut self.rest);
                    self.begun.extend_from_slice(&rest);
                    return Ok(None);
                }
                let frame = self.rest.split_to(HEADER_BYTES + bytes);
                read_frame(frame).map(|frame| Some(Item::Frame(frame)))
            }
        }
    }

    /// How many bytes are needed to get on, as far as `seen` tells.
    fn wanted(&self, seen: &[u8]) -> usize {
        match self.stage {
            // What TLS says first may be all that it says.
            Stage::Preface if is_tls(seen) => seen.len(),
            Stage::Preface => PREFACE_BYTES,
            Stage::Hello { bytes, .. } => bytes,
            Stage::Frames if seen.len() < HEADER_BYTES => HEADER_BYTES,
            // One that is too long is found out without waiting for it.
            Stage::Frames => HEADER_BYTES + payload_bytes(seen).unwrap_or(0),
        }
    }

    fn preface(&mut self) -> Result<Item, Damage> {
        let mut preface = self.rest.split_to(PREFACE_BYTES);
        if preface[..8] != MAGIC[..] {
            return Err(Damage::NotALink);
        }
        if crc32c::crc32c(&preface[..20]).to_le_bytes() != preface[20..24] {
            return Err(Damage::Checksum("preface"));
        }
        preface.advance(8);
        let versions = Versions { least: preface.get_u16_le(), most: preface.get_u16_le() };
        let bytes = preface.get_u32_le() as usize;
        if bytes > HELLO_BYTES_MAX {
            return Err(Damage::TooLong { what: "hello", bytes: bytes as u64 });
        }
        self.stage = Stage::Hello { bytes, checksum: preface.get_u32_le() };
        Ok(Item::Preface(versions))
    }
}

fn is_tls(seen: &[u8]) -> bool {
    TLS_RECORDS.iter().any(|begin| seen.starts_with(begin))
}

/// The length of the payload of the frame that begins `frame`, which holds a whole header.
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
