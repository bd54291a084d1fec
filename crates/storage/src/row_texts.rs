//! JSON texts of rows for a client, in one buffer with space for the header of the response in front, so that they are
//! sent without another copy.

use datum::Object;

/// The texts of some rows with commas between them: the inside of a JSON array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowTexts {
    // The space for the header, then the texts.
    bytes: Vec<u8>,
    rows: usize,
}

impl Default for RowTexts {
    fn default() -> RowTexts {
        RowTexts { bytes: vec![0; RowTexts::ROOM_BYTES], rows: 0 }
    }
}

impl RowTexts {
    /// Bytes reserved before the texts for the header of a response in the drivers' protocol.
    pub const ROOM_BYTES: usize = 24;

    /// The number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Bytes of all texts, without the commas.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.json().len() - self.rows.saturating_sub(1)
    }

    /// Adds the text of a row.
    pub fn push(&mut self, text: &[u8]) {
        self.begin_row();
        self.bytes.extend_from_slice(text);
    }

    pub fn push_row(&mut self, row: &Object) {
        self.begin_row();
        row.write_json(&mut self.bytes);
    }

    /// Adds all rows of `others`.
    pub fn append(&mut self, others: &RowTexts) {
        if !others.is_empty() {
            self.push(others.json());
            self.rows += others.rows - 1;
        }
    }

    /// Reserves memory for `rows` more rows of the average size of those here.
    pub fn expect(&mut self, rows: usize) {
        let each = self.json().len().checked_div(self.rows).unwrap_or_default();
        // Some rows will be a little longer, and something follows the last.
        let wanted = (each + each / 16 + 1).saturating_mul(rows).saturating_add(RowTexts::ROOM_BYTES);
        self.bytes.reserve(wanted.min(RESERVED_BYTES_MAX));
    }

    #[must_use]
    pub fn json(&self) -> &[u8] {
        &self.bytes[RowTexts::ROOM_BYTES..]
    }

    /// The buffer: [`RowTexts::ROOM_BYTES`] unused bytes, then the texts.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn begin_row(&mut self) {
        if self.rows > 0 {
            self.bytes.push(b',');
        }
        self.rows += 1;
    }
}

/// The most memory reserved at once, since the rows may never come.
const RESERVED_BYTES_MAX: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use datum::{Datum, Text};

    #[test]
    fn texts_stand_as_in_an_array() {
        let mut texts = RowTexts::default();
        assert!(texts.is_empty() && texts.bytes() == 0);
        texts.expect(5);
        texts.push(b"{\"id\":1}");
        texts.expect(usize::MAX);
        let row: Object = [(Text::from("id"), Datum::Number(2.0))].into_iter().collect();
        texts.push_row(&row);
        assert_eq!((texts.len(), texts.bytes()), (2, 16));
        assert_eq!(texts.json(), b"{\"id\":1},{\"id\":2}");
        let mut all = RowTexts::default();
        all.append(&texts);
        assert_eq!(all, texts);
        all.append(&RowTexts::default());
        all.append(&texts);
        assert_eq!((all.len(), all.json()), (4, &b"{\"id\":1},{\"id\":2},{\"id\":1},{\"id\":2}"[..]));
        let bytes = texts.into_bytes();
        assert_eq!(&bytes[RowTexts::ROOM_BYTES..], b"{\"id\":1},{\"id\":2}");
    }
}
