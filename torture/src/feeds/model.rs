//! The documents as pure functions: which row a document is after its nth write. So one number per document says what a feed
//! has delivered, and every value can be checked without a record of the writes.

use serde_json::{Value, json};

/// Documents have a group below this, for equality by an index.
pub(super) const GROUPS: u32 = 20;
/// Documents have a score below this, for orders; far fewer than documents, so that many have the same.
pub(super) const SCORES: u32 = 50;
/// Documents have two different tags below this, for an index with several entries for each row.
pub(super) const TAGS: u32 = 12;
/// One write in this many deletes the document.
const DELETE_ONE_IN: u64 = 5;

/// A document: its writer, and its number among the documents of that writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Document {
    pub(super) writer: u32,
    pub(super) number: u32,
}

impl Document {
    pub(super) fn key(self) -> String {
        format!("{:02}-{:06}", self.writer, self.number)
    }

    /// The document with this key, if any may have it.
    pub(super) fn of_key(key: &str) -> Option<Document> {
        let (writer, number) = key.split_once('-')?;
        let document = Document { writer: writer.parse().ok()?, number: number.parse().ok()? };
        (document.key() == key).then_some(document)
    }

    /// The document of an element's row.
    pub(super) fn of_row(row: &Value) -> Option<Document> {
        Document::of_key(row["id"].as_str()?)
    }

    /// Its place in lists of all documents of `writers` writers.
    pub(super) fn place(self, writers: u32) -> usize {
        (self.number * writers + self.writer) as usize
    }

    pub(super) fn at(place: usize, writers: u32) -> Document {
        Document { writer: place as u32 % writers, number: place as u32 / writers }
    }
}

/// The fields of a document after one of its writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Content {
    /// The number of writes of the document, this one included.
    pub(super) version: u32,
    pub(super) group: u32,
    pub(super) score: u32,
    pub(super) tags: [u32; 2],
}

/// The states of all documents of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    pub(super) seed: u64,
}

impl Model {
    /// The document after `version` of its writes; `None` before the first and after a deletion. A deletion never follows a
    /// deletion.
    pub(super) fn state(self, document: Document, version: u32) -> Option<Content> {
        if version == 0 || self.is_deletion(document, version) {
            return None;
        }
        let random = self.hash(document, version);
        let draw = |shift: u32, below: u32| (random >> shift) as u32 % below;
        let tag = draw(24, TAGS);
        let tags = [tag, (tag + 1 + draw(32, TAGS - 1)) % TAGS];
        Some(Content { version, group: draw(8, GROUPS), score: draw(16, SCORES), tags })
    }

    fn is_deletion(self, document: Document, version: u32) -> bool {
        let deletes = |version| self.hash(document, version).is_multiple_of(DELETE_ONE_IN);
        version > 1 && deletes(version) && !self.is_deletion(document, version - 1)
    }

    fn hash(self, document: Document, version: u32) -> u64 {
        let place = u64::from(document.writer) << 32 | u64::from(document.number);
        let mut hash = self.seed ^ place.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for word in [u64::from(version), 0x5bd1_e995] {
            hash = (hash ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
            hash ^= hash >> 32;
        }
        hash
    }
}

/// The fields of a row but its key.
pub(super) fn fields(content: &Content) -> Value {
    let Content { version, group, score, tags } = content;
    json!({ "version": version, "group": group, "score": score, "tags": tags })
}

/// The whole row, as a read returns it.
pub(super) fn row(document: Document, content: &Content) -> Value {
    let mut row = fields(content);
    row["id"] = document.key().into();
    row
}

/// A row, or its fields, as a term: arrays are terms of their own there.
pub(super) fn as_term(mut row: Value) -> Value {
    row["tags"] = json!([2, row["tags"].take()]);
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_deleted_at_times_and_never_twice_in_a_row() {
        let (model, document) = (Model { seed: 7 }, Document { writer: 3, number: 14 });
        assert_eq!(model.state(document, 0), None);
        assert!(model.state(document, 1).is_some());
        let states: Vec<_> = (1..2000).map(|version| model.state(document, version)).collect();
        let deletions = states.iter().filter(|state| state.is_none()).count();
        assert!((200..500).contains(&deletions), "{deletions} deletions");
        assert!(states.windows(2).all(|pair| pair[0].is_some() || pair[1].is_some()));
        assert!(states.iter().flatten().all(|content| content.tags[0] != content.tags[1]));
    }

    #[test]
    fn a_key_names_its_document() {
        let document = Document { writer: 3, number: 14 };
        assert_eq!(Document::of_key(&document.key()), Some(document));
        assert_eq!(Document::at(document.place(8), 8), document);
        for other in ["", "3-14", "03-", "marked", "03-0000014"] {
            assert_eq!(Document::of_key(other), None, "{other}");
        }
    }
}
