//! The bytes of a compressed row (docs/formats/row.md), and the contexts of zstd that make and read them.

use std::cell::RefCell;

use bytes::Bytes;
use datum::row::COMPRESSED_HEAD;
use datum::{CorruptRow, RestoredRow};
use zstd_safe::{CCtx, CDict, DCtx, DDict};

use super::dictionary::DictionaryNumber;

/// The first bytes of each zstd frame, which are not stored.
const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
/// Bytes of the checksum at the end.
const CHECKSUM_BYTES: usize = 4;
/// A row with a shorter text stays as it is: the engine's own bytes for a row are more than could be saved.
const TEXT_BYTES_MIN: usize = 64;
/// A row with a longer text stays as it is. No log entry has room for one.
const TEXT_BYTES_MAX: usize = 256 << 20;
/// A row is stored compressed if that saves at least one in this many bytes.
const SAVED_SHARE_MIN: usize = 8;
/// The most text that one block of a frame holds, and the fewest bytes that it takes.
const BLOCK_TEXT_BYTES_MAX: usize = 128 << 10;
const BLOCK_BYTES_MIN: usize = 4;

/// Why a compressed row cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CorruptCompression {
    /// The bytes before and after the frame are not those of a compressed row.
    #[error("its header is damaged")]
    Header,
    /// The frame says that it has no text, or more than it can have.
    #[error("its frame says that its text has {text_bytes} bytes")]
    TextBytes {
        /// The length that the frame gives; zero if it gives none.
        text_bytes: u64,
    },
    /// zstd cannot read the frame.
    #[error("its frame is damaged: {cause}")]
    Frame {
        /// What zstd found.
        cause: &'static str,
    },
    /// The text is not the one that was stored, or was compressed with another dictionary.
    #[error("its text is not the one that was stored: {0}")]
    Text(CorruptRow),
    /// The dictionary is not in the engine.
    #[error("dictionary {number} of its table is missing")]
    NoDictionary {
        /// The dictionary that the row names.
        number: DictionaryNumber,
    },
    /// The dictionary's record is damaged.
    #[error("dictionary {number} of its table is damaged")]
    Dictionary {
        /// The dictionary that the row names.
        number: DictionaryNumber,
    },
    /// There is no memory for the text or for zstd.
    #[error("there is no memory for its text")]
    Memory,
}

/// The outcome of compressing a row.
pub(super) struct CompressedRow {
    /// Its bytes, if they save enough to be stored.
    pub stored: Option<Bytes>,
    /// The length of its bytes.
    pub bytes: usize,
}

/// Compresses texts with a certain dictionary.
pub(super) trait Encoder {
    /// Replaces `frame` by the frame of `text`, in `context` if it needs one. `None` if zstd has no memory.
    fn encode(&self, context: &mut Option<CCtx<'static>>, text: &[u8], frame: &mut Vec<u8>) -> Option<()>;
}

impl Encoder for CDict<'_> {
    fn encode(&self, context: &mut Option<CCtx<'static>>, text: &[u8], frame: &mut Vec<u8>) -> Option<()> {
        let context = match context {
            Some(context) => context,
            None => context.insert(CCtx::try_create()?),
        };
        reserve(text, frame)?;
        context.compress_using_cdict(frame, text, self).ok()?;
        Some(())
    }
}

/// Empties `frame` and makes room for the frame of `text`.
pub(super) fn reserve(text: &[u8], frame: &mut Vec<u8>) -> Option<()> {
    frame.clear();
    frame.try_reserve(zstd_safe::compress_bound(text.len())).ok()
}

/// The memory that compressing and decompressing need, one for each thread.
#[derive(Default)]
struct Contexts {
    compress: Option<CCtx<'static>>,
    decompress: Option<DCtx<'static>>,
    frame: Vec<u8>,
    row: RestoredRow,
}

thread_local! {
    static CONTEXTS: RefCell<Contexts> = RefCell::default();
}

/// Compresses `row` with dictionary `number`. `None` if it cannot be compressed, so that it is stored as it is:
/// exactly this row would not come back, it is short, or zstd has no memory.
pub(super) fn compress(row: &[u8], number: DictionaryNumber, encoder: &dyn Encoder) -> Option<CompressedRow> {
    CONTEXTS.with_borrow_mut(|Contexts { compress, frame, row: restored, .. }| {
        let (text, checksum) = restored.take_apart(row)?;
        if !(TEXT_BYTES_MIN..=TEXT_BYTES_MAX).contains(&text.len()) {
            return None;
        }
        encoder.encode(compress, text, frame)?;
        let frame = frame.strip_prefix(&MAGIC)?;
        let (number, number_bytes) = number.encode();
        let number = &number[..number_bytes];
        let bytes = COMPRESSED_HEAD.len() + number.len() + frame.len() + CHECKSUM_BYTES;
        let saves_enough = bytes + row.len() / SAVED_SHARE_MIN <= row.len();
        let stored = saves_enough
            .then(|| Bytes::from([&COMPRESSED_HEAD[..], number, frame, &checksum.to_le_bytes()].concat()));
        Some(CompressedRow { stored, bytes })
    })
}

/// The length of the frame of `text`.
pub(super) fn frame_bytes(text: &[u8], encoder: &dyn Encoder) -> Option<usize> {
    CONTEXTS.with_borrow_mut(|Contexts { compress, frame, .. }| {
        encoder.encode(compress, text, frame)?;
        Some(frame.len())
    })
}

/// The parts of a compressed row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts<'a> {
    pub dictionary: DictionaryNumber,
    frame: &'a [u8],
    /// The checksum of the row before it was compressed.
    checksum: u32,
}

impl<'a> Parts<'a> {
    pub(super) fn of(stored: &'a [u8]) -> Result<Parts<'a>, CorruptCompression> {
        Parts::try_of(stored).ok_or(CorruptCompression::Header)
    }

    fn try_of(stored: &'a [u8]) -> Option<Parts<'a>> {
        let rest = stored.strip_prefix(&COMPRESSED_HEAD)?;
        let (dictionary, rest) = DictionaryNumber::decode(rest)?;
        let (frame, checksum) = rest.split_last_chunk()?;
        Some(Parts { dictionary, frame, checksum: u32::from_le_bytes(*checksum) })
    }

    /// Rebuilds the row in `row`.
    pub(super) fn decompress<'b>(
        &self,
        dictionary: &DDict<'_>,
        row: &'b mut RestoredRow,
    ) -> Result<&'b [u8], CorruptCompression> {
        CONTEXTS.with_borrow_mut(|Contexts { decompress, frame, .. }| {
            let context = match decompress {
                Some(context) => context,
                None => decompress.insert(DCtx::try_create().ok_or(CorruptCompression::Memory)?),
            };
            frame.clear();
            frame.try_reserve(MAGIC.len() + self.frame.len()).map_err(|_| CorruptCompression::Memory)?;
            frame.extend_from_slice(&MAGIC);
            frame.extend_from_slice(self.frame);
            let text_bytes = text_bytes(frame)?;
            let text = row.begin(text_bytes).ok_or(CorruptCompression::Memory)?;
            let read = context.decompress_using_ddict(text, frame, dictionary);
            match read {
                Ok(read) if read == text_bytes => Ok(()),
                Ok(read) => Err(CorruptCompression::TextBytes { text_bytes: read as u64 }),
                Err(code) => Err(CorruptCompression::Frame { cause: zstd_safe::get_error_name(code) }),
            }
        })?;
        row.finish(self.checksum).map_err(CorruptCompression::Text)
    }
}

/// The length of the text of a frame, as the frame gives it, but never more than a frame of its length can hold: so a
/// damaged frame does not make the caller reserve gigabytes.
fn text_bytes(frame: &[u8]) -> Result<usize, CorruptCompression> {
    let given = zstd_safe::get_frame_content_size(frame);
    let given = given.map_err(|_| CorruptCompression::Header)?.unwrap_or_default();
    let most = (frame.len() / BLOCK_BYTES_MIN + 1).saturating_mul(BLOCK_TEXT_BYTES_MAX).min(TEXT_BYTES_MAX);
    match usize::try_from(given) {
        Ok(bytes) if bytes > 0 && bytes <= most => Ok(bytes),
        _ => Err(CorruptCompression::TextBytes { text_bytes: given }),
    }
}
