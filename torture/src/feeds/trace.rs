//! The last elements of a feed, for the description of a fault.

use std::collections::VecDeque;
use std::time::Instant;

use serde_json::Value;

const ELEMENTS_MAX: usize = 400;
const NOTES_MAX: usize = 3;

/// The last elements of a feed, and the way in which it was opened.
pub(super) struct Trace {
    began: Instant,
    elements: VecDeque<Delivered>,
    notes: VecDeque<String>,
}

struct Delivered {
    key: String,
    versions: (Option<u64>, Option<u64>),
    has_token: bool,
    at: Instant,
}

impl Default for Trace {
    fn default() -> Self {
        Trace { began: Instant::now(), elements: VecDeque::new(), notes: VecDeque::new() }
    }
}

impl Trace {
    /// Notes that the feed was opened, resumed or lost.
    pub(super) fn note(&mut self, what: String) {
        if self.notes.len() == NOTES_MAX {
            self.notes.pop_front();
        }
        self.notes.push_back(format!("{what} at {:.3?}", self.began.elapsed()));
    }

    /// Notes an element.
    pub(super) fn element(&mut self, element: &Value, has_token: bool) {
        let (old, new) = (&element["old_val"], &element["new_val"]);
        let row = if new.is_null() { old } else { new };
        let Some(key) = row["id"].as_str() else { return };
        if self.elements.len() == ELEMENTS_MAX {
            self.elements.pop_front();
        }
        let versions = (old["version"].as_u64(), new["version"].as_u64());
        self.elements.push_back(Delivered { key: key.to_owned(), versions, has_token, at: Instant::now() });
    }

    /// The last elements of the document of `element`.
    pub(super) fn about(&self, element: &Value) -> String {
        let (old, new) = (&element["old_val"], &element["new_val"]);
        let row = if new.is_null() { old } else { new };
        let own = self.elements.iter().rev().filter(|delivered| row["id"] == *delivered.key).take(4);
        let own: Vec<String> = own
            .map(|Delivered { versions: (old, new), has_token, at, .. }| {
                let at = at.duration_since(self.began);
                format!("{old:?} to {new:?} at {at:.3?}{}", if *has_token { " with token" } else { "" })
            })
            .collect();
        format!("; {:?}, now {:.3?}, last elements: {}", self.notes, self.began.elapsed(), own.join(", "))
    }
}
