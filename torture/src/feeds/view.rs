//! The sequences of rows that feeds follow: as terms, and as functions of documents.

use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use super::model::{Content, Document, GROUPS, Model, SCORES, TAGS, row};

/// Rows of a sequence, and the steps that they take.
#[derive(Clone, Debug)]
pub(super) struct View {
    rows: Rows,
    steps: Steps,
}

#[derive(Clone, Debug)]
enum Rows {
    Table,
    /// Primary keys from the first, up to the second, which is not included.
    Range(KeyRange),
    One(Document),
    Keys(Vec<Document>),
    Group(u32),
    Scores(u32, u32),
    Tag(u32),
    /// Ranges without common keys.
    Union(Vec<KeyRange>),
}

/// Documents of one writer.
#[derive(Clone, Copy, Debug)]
struct KeyRange {
    writer: u32,
    from: u32,
    to: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Steps {
    None,
    /// Groups below this.
    Filter(u32),
    /// Only the key and the group.
    Pluck,
    /// An object of the key and the score.
    Map,
    Without,
    Merge,
}

impl View {
    /// A random sequence over the documents of `writers` writers, of which each has used about `numbers`.
    pub(super) fn random(writers: u32, numbers: u32, random: &mut StdRng) -> View {
        let document = |random: &mut StdRng| Document {
            writer: random.random_range(0..writers),
            number: random.random_range(0..numbers),
        };
        let rows = match random.random_range(0..20) {
            0 => Rows::Table,
            1..4 => Rows::Range(KeyRange::random(document(random), numbers, random)),
            4..8 => Rows::One(document(random)),
            8..10 => Rows::Keys(distinct((0..5).map(|_| document(random)).collect())),
            10..13 => Rows::Group(random.random_range(0..GROUPS)),
            13..16 => {
                let from = random.random_range(0..SCORES);
                Rows::Scores(from, random.random_range(from..SCORES) + 1)
            }
            16..18 => Rows::Tag(random.random_range(0..TAGS)),
            _ => {
                let first = KeyRange::random(document(random), numbers, random);
                let second = KeyRange { writer: (first.writer + 1) % writers, ..first };
                Rows::Union(if writers > 1 { vec![first, second] } else { vec![first] })
            }
        };
        let steps = match random.random_range(0..10) {
            _ if matches!(rows, Rows::One(_)) => Steps::None,
            0 => Steps::Filter(random.random_range(1..GROUPS)),
            1 => Steps::Pluck,
            2 => Steps::Map,
            3 => Steps::Without,
            4 => Steps::Merge,
            _ => Steps::None,
        };
        View { rows, steps }
    }

    /// Every row of the table as it is.
    pub(super) fn table() -> View {
        View { rows: Rows::Table, steps: Steps::None }
    }

    /// The sequence of `table` as a term.
    pub(super) fn term(&self, table: &Value) -> Value {
        let key = |document: &Document| Value::from(document.key());
        let rows = match &self.rows {
            Rows::Table => table.clone(),
            Rows::Range(range) => range.term(table),
            Rows::One(document) => json!([16, [table, key(document)]]),
            Rows::Keys(documents) => {
                json!([
                    78,
                    std::iter::once(table.clone()).chain(documents.iter().map(key)).collect::<Vec<_>>()
                ])
            }
            Rows::Group(group) => json!([78, [table, group], { "index": "group" }]),
            Rows::Scores(from, to) => json!([182, [table, from, to], { "index": "score" }]),
            Rows::Tag(tag) => json!([78, [table, tag], { "index": "tags" }]),
            Rows::Union(ranges) => {
                json!([44, ranges.iter().map(|range| range.term(table)).collect::<Vec<_>>()])
            }
        };
        match self.steps {
            Steps::None => rows,
            Steps::Filter(below) => filter_term(&rows, below),
            Steps::Pluck => json!([33, [rows, "id", "group"]]),
            Steps::Map => {
                let field = |name| json!([170, [[10, [1]], name]]);
                json!([38, [rows, [69, [[2, [1]], { "id": field("id"), "score": field("score") }]]]])
            }
            Steps::Without => json!([34, [rows, "tags", "score"]]),
            Steps::Merge => json!([35, [rows, { "merged": true }]]),
        }
    }

    /// Whether it has one document, and so an initial value without a row.
    pub(super) fn one(&self) -> Option<Document> {
        match self.rows {
            Rows::One(document) => Some(document),
            _ => None,
        }
    }

    /// Whether it is a union of sequences.
    pub(super) fn is_union(&self) -> bool {
        matches!(self.rows, Rows::Union(_))
    }

    /// Whether it may have rows of the document.
    pub(super) fn covers(&self, document: Document) -> bool {
        match &self.rows {
            Rows::Range(range) => range.has(document),
            Rows::One(one) => *one == document,
            Rows::Keys(documents) => documents.contains(&document),
            Rows::Union(ranges) => ranges.iter().any(|range| range.has(document)),
            Rows::Table | Rows::Group(_) | Rows::Scores(..) | Rows::Tag(_) => true,
        }
    }

    /// The document in the sequence after `version` of its writes.
    pub(super) fn value(&self, model: Model, document: Document, version: u32) -> Option<Value> {
        let content = self.visible(model, document, version)?;
        let mut row = row(document, &content);
        match self.steps {
            Steps::None | Steps::Filter(_) => {}
            Steps::Pluck => row = json!({ "id": row["id"], "group": content.group }),
            Steps::Map => row = json!({ "id": row["id"], "score": content.score }),
            Steps::Without => row = json!({ "id": row["id"], "group": content.group, "version": version }),
            Steps::Merge => row["merged"] = true.into(),
        }
        Some(row)
    }

    /// The first version after `version`, and up to `newest`, with another value than the version before it.
    pub(super) fn next_change(
        &self,
        model: Model,
        document: Document,
        version: u32,
        newest: u32,
    ) -> Option<u32> {
        let mut before = self.visible(model, document, version);
        for next in version + 1..=newest {
            let after = self.visible(model, document, next);
            if !self.are_same(before, after) {
                return Some(next);
            }
            before = after;
        }
        None
    }

    /// Whether two versions of the document have the same value.
    pub(super) fn is_same(&self, model: Model, document: Document, one: u32, other: u32) -> bool {
        self.are_same(self.visible(model, document, one), self.visible(model, document, other))
    }

    fn are_same(&self, one: Option<Content>, other: Option<Content>) -> bool {
        match (one, other) {
            (None, None) => true,
            (Some(one), Some(other)) => match self.steps {
                Steps::Pluck => one.group == other.group,
                Steps::Map => one.score == other.score,
                _ => one.version == other.version,
            },
            _ => false,
        }
    }

    fn visible(&self, model: Model, document: Document, version: u32) -> Option<Content> {
        let content = model.state(document, version).filter(|_| self.covers(document))?;
        let is_member = match self.rows {
            Rows::Group(group) => content.group == group,
            Rows::Scores(from, to) => (from..to).contains(&content.score),
            Rows::Tag(tag) => content.tags.contains(&tag),
            _ => true,
        };
        let passes = match self.steps {
            Steps::Filter(below) => content.group < below,
            _ => true,
        };
        (is_member && passes).then_some(content)
    }
}

impl KeyRange {
    fn random(document: Document, numbers: u32, random: &mut StdRng) -> KeyRange {
        let Document { writer, number } = document;
        KeyRange { writer, from: number, to: number + random.random_range(1..=numbers) }
    }

    fn term(self, table: &Value) -> Value {
        let key = |number| Document { writer: self.writer, number }.key();
        json!([182, [table, key(self.from), key(self.to)]])
    }

    fn has(self, document: Document) -> bool {
        document.writer == self.writer && (self.from..self.to).contains(&document.number)
    }
}

/// The rows with a group below `below`.
pub(super) fn filter_term(rows: &Value, below: u32) -> Value {
    json!([39, [rows, [69, [[2, [1]], [19, [[170, [[10, [1]], "group"]], below]]]]]])
}

/// A key that is named twice would have two elements for each change.
fn distinct(mut documents: Vec<Document>) -> Vec<Document> {
    documents.sort_unstable();
    documents.dedup();
    documents
}
