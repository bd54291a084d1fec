//! The log lines about one server, host or address, so that each is logged once.

use std::collections::BTreeSet;

/// How many texts are remembered. After that no text is new.
const TEXTS_MAX: usize = 16;

/// The texts that were logged about one server, host or address. Several servers can be behind one address, each with
/// a different text.
#[derive(Default)]
pub(super) struct LogOnce(BTreeSet<String>);

impl LogOnce {
    /// Whether `text` is to be logged: true the first time.
    pub(super) fn should_log(&mut self, text: &str) -> bool {
        self.0.len() < TEXTS_MAX && self.0.insert(text.to_owned())
    }

    /// Forgets all texts, so that each is logged again.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
