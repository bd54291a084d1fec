//! The bytes of a stored row: canonical JSON text between a checked header and a table of where
//! its top-level members are. docs/formats/row.md is the format.

use crate::layout::{
    CHECKSUM, CODEC_PLAIN, FLAG_ESCAPED_KEYS, FLAG_WIDE, HEADER_BYTES, Layout, MEMBER_COUNT, TEXT_LEN,
    VERSION,
};
use crate::value::Repr;
use crate::{Bytes, Datum, Object, Text, escape, layout};

/// Why bytes are not a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CorruptRow {
    /// Written by a version this program does not know.
    #[error("row has format version {found}, newest known is {VERSION}")]
    UnknownVersion {
        /// The version byte.
        found: u8,
    },
    /// Compressed in a way this program does not know.
    #[error("row has unknown codec {found}")]
    UnknownCodec {
        /// The codec byte.
        found: u8,
    },
    /// The bytes changed since they were written.
    #[error("row has checksum {found:08x}, expected {expected:08x}")]
    Checksum {
        /// The checksum the row carries.
        expected: u32,
        /// The checksum of its bytes.
        found: u32,
    },
    /// The lengths in the header do not add up to the row.
    #[error("row of {found} bytes does not have the length its header says")]
    Length {
        /// The length of the row.
        found: usize,
    },
}

/// The stored bytes of `object`.
///
/// An object that is a stored row already gives back its bytes. Text beyond 4 GiB cannot be stored;
/// requests are far smaller.
#[must_use]
pub fn encode(object: &Object) -> Vec<u8> {
    match &object.0 {
        Repr::Row(row) => row.to_vec(),
        Repr::Tree(tree) => {
            let mut writer = Writer::new(tree.0.len());
            for (key, value) in &tree.0 {
                writer.member(key, value);
            }
            writer.finish()
        }
        Repr::Text(_) => {
            let mut writer = Writer::new(8);
            for (key, value) in object.iter() {
                writer.member(&key, &value);
            }
            writer.finish()
        }
    }
}

/// The row in `bytes`, left as text. Checks the checksum and the lengths, and nothing else.
pub fn decode(bytes: Bytes) -> Result<Object, CorruptRow> {
    let length = CorruptRow::Length { found: bytes.len() };
    let header = bytes.get(..HEADER_BYTES).ok_or(length)?;
    if header[0] != VERSION {
        return Err(CorruptRow::UnknownVersion { found: header[0] });
    }
    let stored = header[CHECKSUM].try_into().map_err(|_| length)?;
    let expected = u32::from_le_bytes(stored);
    let found = checksum(&bytes);
    if expected != found {
        return Err(CorruptRow::Checksum { expected, found });
    }
    if header[1] != CODEC_PLAIN {
        return Err(CorruptRow::UnknownCodec { found: header[1] });
    }
    Layout::of(&bytes).ok_or(length)?;
    Ok(Object(Repr::Row(bytes)))
}

/// The canonical JSON text of a row that `decode` accepts; empty for other bytes.
#[must_use]
pub fn json(row: &Bytes) -> &[u8] {
    layout::text_of(row)
}

fn checksum(row: &[u8]) -> u32 {
    let (before, after) = row.split_at(CHECKSUM.start);
    crc32c::crc32c_append(crc32c::crc32c(before), &after[CHECKSUM.len()..])
}

/// Writes the text and remembers where its members are.
struct Writer {
    row: Vec<u8>,
    spans: Vec<(u32, u32)>,
    escaped_keys: bool,
}

impl Writer {
    fn new(members: usize) -> Writer {
        let mut row = Vec::with_capacity(256);
        row.resize(HEADER_BYTES, 0);
        row.push(b'{');
        Writer { row, spans: Vec::with_capacity(members), escaped_keys: false }
    }

    fn member(&mut self, key: &Text, value: &Datum) {
        if !self.spans.is_empty() {
            self.row.push(b',');
        }
        let key_start = self.text_len() + 1;
        escape::write_string(key, &mut self.row);
        self.escaped_keys |= self.text_len() - key_start != key.len() + 1;
        self.row.push(b':');
        self.spans.push((key_start as u32, self.text_len() as u32));
        value.write_json(&mut self.row);
    }

    fn text_len(&self) -> usize {
        self.row.len() - HEADER_BYTES
    }

    fn finish(mut self) -> Vec<u8> {
        self.row.push(b'}');
        let text_len = self.text_len();
        let wide = text_len > usize::from(u16::MAX);
        self.row.reserve_exact(self.spans.len() * if wide { 8 } else { 4 });
        for &(key, value) in &self.spans {
            if wide {
                self.row.extend_from_slice(&key.to_le_bytes());
                self.row.extend_from_slice(&value.to_le_bytes());
            } else {
                self.row.extend_from_slice(&(key as u16).to_le_bytes());
                self.row.extend_from_slice(&(value as u16).to_le_bytes());
            }
        }
        let wide = if wide { FLAG_WIDE } else { 0 };
        let escaped = if self.escaped_keys { FLAG_ESCAPED_KEYS } else { 0 };
        self.row[..4].copy_from_slice(&[VERSION, CODEC_PLAIN, wide | escaped, 0]);
        self.row[TEXT_LEN].copy_from_slice(&(text_len as u32).to_le_bytes());
        self.row[MEMBER_COUNT].copy_from_slice(&(self.spans.len() as u32).to_le_bytes());
        let checksum = checksum(&self.row);
        self.row[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
        self.row
    }
}
