//! What was said of somebody in the log, so that it is said once.

use std::collections::BTreeSet;

/// Texts that are remembered; of somebody of whom there was more to say nothing new is said.
const TEXTS_MAX: usize = 16;

/// The texts that were said of one server, host or place. Behind one there may be several, of which each has its own.
#[derive(Default)]
pub(super) struct Said(BTreeSet<String>);

impl Said {
    /// Whether `text` is news, which it is once.
    pub(super) fn is_news(&mut self, text: &str) -> bool {
        self.0.len() < TEXTS_MAX && self.0.insert(text.to_owned())
    }

    /// Everything is news again.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
