//! The bytes of a stored row: canonical JSON text between a checksummed header and a table of the positions of its
//! top-level members. docs/formats/row.md is the format.

use crate::layout::{
    CODEC_PLAIN, CODEC_ZSTD, HEADER_BYTES, Keys, Layout, Span, VERSION, is_row, seal, text_of,
};
use crate::value::Repr;
use crate::{Bytes, Datum, Object, Text, escape, raw};

/// Why bytes are not a valid row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CorruptRow {
    /// The row has a format version that this program does not know.
    #[error("row has format version {found}, newest known is {VERSION}")]
    UnknownVersion {
        /// The version byte.
        found: u8,
    },
    /// The row is compressed with a codec that this program does not know.
    #[error("row has unknown codec {found}")]
    UnknownCodec {
        /// The codec byte.
        found: u8,
    },
    /// The bytes changed after they were written.
    #[error("row has checksum {found:08x}, expected {expected:08x}")]
    Checksum {
        /// The checksum the row carries.
        expected: u32,
        /// The checksum of its bytes.
        found: u32,
    },
    /// The lengths in the header do not add up to the length of the row.
    #[error("row of {found} bytes does not have the length its header says")]
    Length {
        /// The length of the row.
        found: usize,
    },
}

/// The stored bytes of `object`.
///
/// Returns the bytes unchanged if the object is a stored row already. Text beyond 4 GiB cannot be stored; requests
/// are limited to far less.
#[must_use]
pub fn encode(object: &Object) -> Vec<u8> {
    let mut writer = Writer::new();
    match &object.0 {
        Repr::Raw(row) if is_row(row) => return row.to_vec(),
        Repr::Raw(_) => object.iter().for_each(|(key, value)| writer.member(&key, &value)),
        Repr::Tree(tree) => tree.0.iter().for_each(|(key, value)| writer.member(key, value)),
    }
    writer.finish()
}

/// Like [`encode`], but does not copy a row that is stored already.
#[must_use]
pub fn encode_shared(object: &Object) -> Bytes {
    match &object.0 {
        Repr::Raw(row) if is_row(row) => row.clone(),
        _ => Bytes::from(encode(object)),
    }
}

/// Whether `stored` says that it is a row compressed with zstd. `storage` reads those; every other function of this
/// module expects rows that are not compressed.
#[must_use]
#[inline]
pub fn is_compressed(stored: &[u8]) -> bool {
    stored.starts_with(&COMPRESSED_HEAD)
}

/// The first bytes of a row compressed with zstd.
pub const COMPRESSED_HEAD: [u8; 2] = [VERSION, CODEC_ZSTD];

/// The stored bytes, if `object` is an unchanged stored row.
#[must_use]
pub fn stored(object: &Object) -> Option<&Bytes> {
    match &object.0 {
        Repr::Raw(row) if is_row(row) => Some(row),
        _ => None,
    }
}

/// The stored bytes that `object` reads from, a whole row or part of one. They are not validated.
#[must_use]
pub fn source_bytes(object: &Object) -> Option<&Bytes> {
    match &object.0 {
        Repr::Raw(bytes) => Some(bytes),
        Repr::Tree(_) => None,
    }
}

/// Wraps the row in `bytes`, left as text. Validates only the checksum and the lengths.
pub fn decode(bytes: Bytes) -> Result<Object, CorruptRow> {
    check(&bytes)?;
    Ok(Object(Repr::Raw(bytes)))
}

fn check(bytes: &[u8]) -> Result<Layout<'_>, CorruptRow> {
    let length = CorruptRow::Length { found: bytes.len() };
    let header = bytes.get(..HEADER_BYTES).ok_or(length)?;
    if header[0] != VERSION {
        return Err(CorruptRow::UnknownVersion { found: header[0] });
    }
    let (checked, stored) = bytes.split_last_chunk().ok_or(length)?;
    let expected = u32::from_le_bytes(*stored);
    let found = crc32c::crc32c(checked);
    if expected != found {
        return Err(CorruptRow::Checksum { expected, found });
    }
    layout(bytes)
}

/// The layout of a row whose checksum is known to be right.
#[inline]
fn layout(bytes: &[u8]) -> Result<Layout<'_>, CorruptRow> {
    let length = CorruptRow::Length { found: bytes.len() };
    let header = bytes.get(..HEADER_BYTES).ok_or(length)?;
    if header[0] != VERSION {
        return Err(CorruptRow::UnknownVersion { found: header[0] });
    }
    if header[1] != CODEC_PLAIN {
        return Err(CorruptRow::UnknownCodec { found: header[1] });
    }
    Layout::of(bytes).ok_or(length)
}

/// A view of a row: reads fields without copying.
#[derive(Clone, Copy)]
pub struct RowView<'a> {
    bytes: &'a [u8],
    layout: Layout<'a>,
}

impl<'a> RowView<'a> {
    /// The row in `bytes`, validated as by [`decode`].
    pub fn new(bytes: &'a [u8]) -> Result<RowView<'a>, CorruptRow> {
        Ok(RowView { bytes, layout: check(bytes)? })
    }

    /// The row in `bytes`, whose checksum the caller has verified. Verifying it again would read the whole row even
    /// if only a field or two are needed.
    #[inline]
    pub fn of_verified(bytes: &'a [u8]) -> Result<RowView<'a>, CorruptRow> {
        Ok(RowView { bytes, layout: layout(bytes)? })
    }

    /// A copy of the row, left as text.
    #[must_use]
    pub fn to_object(&self) -> Object {
        Object(Repr::Raw(Bytes::copy_from_slice(self.bytes)))
    }

    /// The canonical JSON text of the row.
    #[must_use]
    pub fn json(&self) -> &'a [u8] {
        self.layout.text
    }

    /// The canonical JSON text of the field `name`, if there is one. `position` holds the field's position in the
    /// previous row and is updated to its position in this one: consecutive rows often have the same layout.
    #[must_use]
    #[inline]
    pub fn field(&self, name: &str, position: &mut FieldPosition) -> Option<&'a [u8]> {
        if self.layout.escaped_keys {
            return self.bytes.get(raw::find(self.bytes, name)?);
        }
        let is_it = |span: Span| self.layout.key(span) == Some(name.as_bytes());
        let guess = position.member;
        let mut span = self.layout.span(guess).filter(|span| guess < self.layout.count && is_it(*span));
        if span.is_none() {
            let found = self.layout.lower_bound(name.as_bytes())?;
            span = self.layout.span(found).filter(|span| found < self.layout.count && is_it(*span));
            position.member = found;
        }
        let value_start = span?.value_start;
        position.offset = HEADER_BYTES + value_start;
        self.layout.text.get(value_start..self.layout.value_end(position.member)?)
    }
}

/// The position of a field in the previous row.
#[derive(Clone, Copy, Debug, Default)]
pub struct FieldPosition {
    /// Index of the member.
    member: usize,
    offset: usize,
}

impl FieldPosition {
    /// Offset of the field's value from the start of the stored row; 0 if it was not found yet.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }
}

/// The canonical JSON text of a row accepted by `decode`; empty for other bytes.
#[must_use]
pub fn json(row: &Bytes) -> &[u8] {
    text_of(row)
}

/// Writes the text of a row and records the positions of its members.
struct Writer {
    row: Vec<u8>,
    members: Vec<Span>,
    keys: Keys,
}

impl Writer {
    fn new() -> Writer {
        let mut row = Vec::with_capacity(512);
        row.resize(HEADER_BYTES, 0);
        row.push(b'{');
        Writer { row, members: Vec::with_capacity(16), keys: Keys::Plain }
    }

    fn member(&mut self, key: &Text, value: &Datum) {
        if !self.members.is_empty() {
            self.row.push(b',');
        }
        let key_start = self.text_len() + 1;
        escape::write_string(key, &mut self.row);
        if self.text_len() - key_start != key.len() + 1 {
            self.keys = Keys::Escaped;
        }
        self.row.push(b':');
        self.members.push(Span { key_start, value_start: self.text_len() });
        value.write_json(&mut self.row);
    }

    fn text_len(&self) -> usize {
        self.row.len() - HEADER_BYTES
    }

    fn finish(mut self) -> Vec<u8> {
        self.row.push(b'}');
        seal(self.row, &self.members, self.keys)
    }
}
