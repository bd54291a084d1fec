//! The layout of the bytes of a stored row (docs/formats/row.md).

use std::ops::Range;

/// The version this program writes.
pub(crate) const VERSION: u8 = 1;
/// Codec byte of an uncompressed row.
pub(crate) const CODEC_PLAIN: u8 = 0;
/// Codec byte of a row that is compressed with zstd and a dictionary.
pub(crate) const CODEC_ZSTD: u8 = 1;
/// Set if offsets in the table take four bytes instead of two.
pub(crate) const FLAG_WIDE: u8 = 1;
/// Set if some top-level key is escaped in the text.
pub(crate) const FLAG_ESCAPED_KEYS: u8 = 2;
/// Bytes before the text.
pub(crate) const HEADER_BYTES: usize = 12;
/// Position of the text's length in the header.
pub(crate) const TEXT_LEN: Range<usize> = 4..8;
/// Position of the number of top-level members in the header.
pub(crate) const MEMBER_COUNT: Range<usize> = 8..12;
/// Bytes of the checksum at the end, which covers everything before it.
pub(crate) const CHECKSUM_BYTES: usize = 4;

/// The parts of a row.
#[derive(Clone, Copy)]
pub(crate) struct Layout<'a> {
    /// Canonical JSON text.
    pub text: &'a [u8],
    /// Offsets of the members' keys and values in the text.
    table: &'a [u8],
    /// The number of members in the table.
    pub count: usize,
    wide: bool,
    /// Whether keys must be unescaped before they are compared.
    pub escaped_keys: bool,
}

/// Position of one member, relative to the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// First byte of the key, after its quote.
    pub key_start: usize,
    /// First byte of the value.
    pub value_start: usize,
}

impl<'a> Layout<'a> {
    /// The parts of `row`, or `None` if its lengths are inconsistent.
    #[inline]
    pub(crate) fn of(row: &'a [u8]) -> Option<Layout<'a>> {
        let header = row.get(..HEADER_BYTES)?;
        let text_len = read_u32(&header[TEXT_LEN])?;
        let count = read_u32(&header[MEMBER_COUNT])?;
        let (text, rest) = row[HEADER_BYTES..].split_at_checked(text_len)?;
        let (table, _) = rest.split_last_chunk::<CHECKSUM_BYTES>()?;
        let wide = header[2] & FLAG_WIDE != 0;
        let escaped_keys = header[2] & FLAG_ESCAPED_KEYS != 0;
        let entry_bytes = if wide { 8 } else { 4 };
        (Some(table.len()) == count.checked_mul(entry_bytes)).then_some(Layout {
            text,
            table,
            count,
            wide,
            escaped_keys,
        })
    }

    /// The position of member `index`. Not checked against the length of the text.
    #[inline]
    pub(crate) fn span(&self, index: usize) -> Option<Span> {
        if self.wide {
            let entry = self.table.get(index * 8..index * 8 + 8)?;
            let (key_start, value_start) = (read_u32(&entry[..4])?, read_u32(&entry[4..])?);
            Some(Span { key_start, value_start })
        } else {
            let entry = self.table.get(index * 4..index * 4 + 4)?;
            let key_start = usize::from(u16::from_le_bytes([entry[0], entry[1]]));
            let value_start = usize::from(u16::from_le_bytes([entry[2], entry[3]]));
            Some(Span { key_start, value_start })
        }
    }

    /// The key of a member as spelled in the text, which ends at the `":` before the value.
    #[inline]
    pub(crate) fn key(&self, span: Span) -> Option<&'a [u8]> {
        self.text.get(span.key_start..span.value_start.checked_sub(2)?)
    }

    /// The first member whose key is not below `key`; the number of members if there is none. Keys must not be
    /// escaped.
    #[inline]
    pub(crate) fn lower_bound(&self, key: &[u8]) -> Option<usize> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.key(self.span(middle)?)? < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Some(low)
    }

    /// Position where the value of member `index` ends: before the `,"` of the next key or the last brace.
    #[inline]
    pub(crate) fn value_end(&self, index: usize) -> Option<usize> {
        if index + 1 == self.count {
            self.text.len().checked_sub(1)
        } else {
            self.span(index + 1)?.key_start.checked_sub(2)
        }
    }
}

/// Whether some top-level key is escaped in the text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    /// No key needs escaping.
    Plain,
    /// Some key does.
    Escaped,
}

/// Completes a row that begins with room for the header, followed by the text: appends the table and the checksum,
/// fills in the header.
pub(crate) fn seal(mut row: Vec<u8>, members: &[Span], keys: Keys) -> Vec<u8> {
    seal_in_place(&mut row, members, keys);
    row
}

/// As [`seal`]. Returns the checksum.
pub(crate) fn seal_in_place(row: &mut Vec<u8>, members: &[Span], keys: Keys) -> u32 {
    let text_len = row.len() - HEADER_BYTES;
    let wide = text_len > usize::from(u16::MAX);
    row.reserve_exact(members.len() * if wide { 8 } else { 4 } + CHECKSUM_BYTES);
    for member in members {
        for offset in [member.key_start, member.value_start] {
            if wide {
                row.extend_from_slice(&(offset as u32).to_le_bytes());
            } else {
                row.extend_from_slice(&(offset as u16).to_le_bytes());
            }
        }
    }
    let wide = if wide { FLAG_WIDE } else { 0 };
    let escaped = if keys == Keys::Escaped { FLAG_ESCAPED_KEYS } else { 0 };
    row[..TEXT_LEN.start].copy_from_slice(&[VERSION, CODEC_PLAIN, wide | escaped, 0]);
    row[TEXT_LEN].copy_from_slice(&(text_len as u32).to_le_bytes());
    row[MEMBER_COUNT].copy_from_slice(&(members.len() as u32).to_le_bytes());
    let checksum = crc32c::crc32c(row);
    row.extend_from_slice(&checksum.to_le_bytes());
    checksum
}

#[inline]
fn read_u32(bytes: &[u8]) -> Option<usize> {
    Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
}

/// Whether the bytes of a stored object are a whole row, as opposed to the text of an object inside one.
#[inline]
pub(crate) fn is_row(stored: &[u8]) -> bool {
    stored.first() != Some(&b'{')
}

/// The range of the JSON text in a row, or in bytes that are text only; empty if the bytes are neither.
#[inline]
pub(crate) fn text_range(stored: &[u8]) -> Range<usize> {
    if !is_row(stored) {
        return 0..stored.len();
    }
    let len = Layout::of(stored).map_or(0, |layout| layout.text.len());
    let start = HEADER_BYTES.min(stored.len());
    start..start + len
}

/// The JSON text of a row, or of bytes that are text only.
#[inline]
pub(crate) fn text_of(stored: &[u8]) -> &[u8] {
    &stored[text_range(stored)]
}
