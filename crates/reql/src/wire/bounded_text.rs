//! A text with a maximum length, for terms whose values share parts: a small term may have an enormous text.

use datum::Datum;

/// Bytes of text; nothing is appended once they are too many.
pub(super) struct BoundedText {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl BoundedText {
    pub(super) fn new(bytes_max: usize) -> BoundedText {
        BoundedText { bytes: Vec::new(), bytes_max }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        if !self.is_over() {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Whether the text is too long, so that nothing more is appended.
    pub(super) fn is_over(&self) -> bool {
        self.bytes.len() > self.bytes_max
    }

    /// Appends a value as its own JSON.
    pub(super) fn json(&mut self, datum: &Datum) {
        // Do not escape a string that is too long already.
        if datum.json_may_fit(self.bytes_max) {
            datum.write_json(&mut self.bytes);
        } else {
            self.bytes.resize(self.bytes_max + 1, b' ');
        }
    }

    /// The text; `None` if it is too long.
    pub(super) fn finish(self) -> Option<Vec<u8>> {
        (!self.is_over()).then_some(self.bytes)
    }
}
