//! Rebuilds a stored row from its text and its checksum, the only parts that a compressed row has (docs/formats/row.md).

use crate::layout::{CHECKSUM_BYTES, CODEC_PLAIN, HEADER_BYTES, Keys, Layout, Span, VERSION, seal_in_place};
use crate::{CorruptRow, raw};

/// A stored row that is rebuilt from its text, in memory that the next row reuses.
#[derive(Default)]
pub struct RestoredRow {
    row: Vec<u8>,
    members: Vec<Span>,
}

impl RestoredRow {
    /// Room for a text of `text_bytes` bytes, which the caller fills with the text before [`RestoredRow::finish`].
    /// `None` if there is no memory for it.
    pub fn begin(&mut self, text_bytes: usize) -> Option<&mut [u8]> {
        let bytes = HEADER_BYTES.checked_add(text_bytes)?;
        self.row.try_reserve(bytes.saturating_sub(self.row.len())).ok()?;
        self.row.resize(bytes, 0);
        Some(&mut self.row[HEADER_BYTES..])
    }

    /// Adds everything that follows from the text. Fails if the row then does not have this checksum: its text is
    /// not the one that was stored.
    pub fn finish(&mut self, checksum: u32) -> Result<&[u8], CorruptRow> {
        let text = self.row.get(HEADER_BYTES..).unwrap_or_default();
        self.members.clear();
        let mut keys = Keys::Plain;
        if text.first() == Some(&b'{') {
            for member in raw::Members::of(text) {
                if text[member.key.clone()].contains(&b'\\') {
                    keys = Keys::Escaped;
                }
                self.members.push(Span { key_start: member.key.start, value_start: member.value.start });
            }
        }
        let found = seal_in_place(&mut self.row, &self.members, keys);
        if found != checksum {
            return Err(CorruptRow::Checksum { expected: checksum, found });
        }
        Ok(&self.row)
    }

    /// The text and the checksum of `row`, if exactly this row is rebuilt from them. Rows that the caller must not
    /// take apart give `None`: damaged ones, and compressed ones.
    pub fn take_apart<'a>(&mut self, row: &'a [u8]) -> Option<(&'a [u8], u32)> {
        if !row.starts_with(&[VERSION, CODEC_PLAIN]) {
            return None;
        }
        let text = Layout::of(row)?.text;
        let checksum = u32::from_le_bytes(*row.last_chunk::<CHECKSUM_BYTES>()?);
        self.begin(text.len())?.copy_from_slice(text);
        let rebuilt = self.finish(checksum).ok()?;
        (rebuilt == row).then_some((text, checksum))
    }

    /// The rebuilt row.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.row
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Datum, Object, Text, json, row};

    fn encoded(text: &str) -> Vec<u8> {
        match json::parse(text.as_bytes()).unwrap() {
            Datum::Object(object) => row::encode(&object),
            other => panic!("not an object: {other:?}"),
        }
    }

    #[test]
    fn a_row_is_rebuilt_from_its_text() {
        let long = format!(r#"{{"a":"{}","b":[1,{{"c":"\"]}}"}}],"z":null}}"#, "x".repeat(70_000));
        let texts = [
            "{}",
            r#"{"a":1}"#,
            r#"{"a\"b":1,"c\\":{"d":[]},"e":"f\\"}"#,
            r#"{"":"","é":"日本","n":-1.5e-7,"o":{"p":{"q":{}}},"t":true}"#,
            &long,
        ];
        let mut restored = RestoredRow::default();
        for text in texts {
            let row = encoded(text);
            let (text, checksum) = restored.take_apart(&row).expect("it is rebuilt");
            let mut other = RestoredRow::default();
            other.begin(text.len()).unwrap().copy_from_slice(text);
            assert_eq!(other.finish(checksum).unwrap(), row);
            assert_eq!(other.into_bytes(), row);
        }
    }

    #[test]
    fn another_text_is_refused() {
        let row = encoded(r#"{"a":"text"}"#);
        let mut restored = RestoredRow::default();
        let (text, checksum) = restored.take_apart(&row).expect("it is rebuilt");
        for at in 0..text.len() {
            let mut changed = text.to_vec();
            changed[at] ^= 1;
            restored.begin(changed.len()).unwrap().copy_from_slice(&changed);
            assert!(matches!(restored.finish(checksum), Err(CorruptRow::Checksum { .. })), "byte {at}");
        }
        restored.begin(0).unwrap();
        assert!(restored.finish(checksum).is_err());
        for damaged in 0..row.len() {
            let mut row = row.clone();
            row[damaged] ^= 0x10;
            assert_eq!(restored.take_apart(&row), None, "byte {damaged}");
        }
    }

    #[test]
    fn other_bytes_are_not_taken_apart() {
        let mut restored = RestoredRow::default();
        for bytes in [&b""[..], b"{}", &[VERSION], &[VERSION, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]] {
            assert_eq!(restored.take_apart(bytes), None);
        }
        let empty: Object = std::iter::empty::<(Text, Datum)>().collect();
        assert!(restored.take_apart(&row::encode(&empty)).is_some());
    }
}
