//! What clients asked for and what they were told, in the order in which it happened.

use std::collections::BTreeMap;

use datum::{Datum, Object, PrimaryKey, Text};
use io::Nanos;

/// How a read is to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Linearizable.
    Majority,
    /// What the leader has applied.
    Single,
    /// What any replica has applied.
    Outdated,
}

/// What is done to a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Its value is read.
    Read(Mode),
    /// It gets the operation's number as its value.
    Put,
    /// The same, and the value that was there before is the answer.
    Swap,
    /// One is added to its count.
    Add,
}

/// A document of one of the tables.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Document {
    /// The table's name.
    pub table: String,
    /// Which document.
    pub number: u64,
}

/// One operation.
#[derive(Clone, Debug)]
pub struct Op {
    /// Its number, which no other has; from 1.
    pub number: u64,
    /// On what.
    pub document: Document,
    /// What.
    pub kind: Kind,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was done; the value that was there, if it asked for one.
    Done(Option<u64>),
    /// It was refused: it never took effect and never will.
    Refused(String),
    /// Nobody knows.
    Unknown(String),
}

/// An operation, and when it was asked for and answered.
#[derive(Clone, Debug)]
pub struct Record {
    /// What was asked.
    pub op: Op,
    /// When; moments are counted, not measured.
    pub asked: u64,
    /// When, by the world's clock.
    pub asked_at: Nanos,
    /// When it was answered, by the same.
    pub answered_at: Nanos,
    /// When it was answered, and how; `None` while it is under way.
    pub answered: Option<(u64, Outcome)>,
}

/// Everything that was asked.
#[derive(Default)]
pub struct History {
    records: Vec<Record>,
    moments: u64,
    /// What the world's clock shows.
    pub now: Nanos,
}

impl History {
    /// Notes that `kind` is asked of `document` now; returns the operation.
    pub fn ask(&mut self, document: Document, kind: Kind) -> Op {
        self.moments += 1;
        let op = Op { number: self.records.len() as u64 + 1, document, kind };
        let (asked, now) = (self.moments, self.now);
        self.records.push(Record {
            op: op.clone(),
            asked,
            asked_at: now,
            answered_at: Nanos::default(),
            answered: None,
        });
        op
    }

    /// Notes the answer to operation `number`.
    pub fn answer(&mut self, number: u64, outcome: Outcome) {
        self.moments += 1;
        let record = &mut self.records[number as usize - 1];
        (record.answered, record.answered_at) = (Some((self.moments, outcome)), self.now);
    }

    /// Whether an operation changes something, and was done.
    #[must_use]
    pub fn is_write_done(&self, number: u64) -> bool {
        let record = &self.records[number as usize - 1];
        let is_done = matches!(record.answered, Some((_, Outcome::Done(_))));
        is_done && !matches!(record.op.kind, Kind::Read(_))
    }

    /// All operations, by document.
    #[must_use]
    pub fn by_document(&self) -> BTreeMap<Document, Vec<&Record>> {
        let mut documents: BTreeMap<Document, Vec<&Record>> = BTreeMap::new();
        for record in &self.records {
            documents.entry(record.op.document.clone()).or_default().push(record);
        }
        documents
    }

    /// How many operations were done.
    #[must_use]
    pub fn done(&self) -> u64 {
        let done = |record: &&Record| matches!(record.answered, Some((_, Outcome::Done(_))));
        self.records.iter().filter(done).count() as u64
    }

    /// All of it, in order.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.records
    }
}

impl Document {
    /// Its primary key; neighbours by number are far apart.
    #[must_use]
    pub fn id(&self) -> Datum {
        Datum::from(format!("{:016x}", self.number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// The same, as it is stored.
    #[must_use]
    pub fn key(&self) -> PrimaryKey {
        PrimaryKey::encode(&self.id()).expect("invariant: sixteen digits fit a key")
    }
}

/// The row of a document with that value and count.
#[must_use]
pub fn row(document: &Document, value: u64, count: u64) -> Object {
    let fields = [
        (Text::from_static("id"), document.id()),
        (Text::from_static("value"), Datum::Number(value as f64)),
        (Text::from_static("count"), Datum::Number(count as f64)),
    ];
    fields.into_iter().collect()
}

/// A number in a row; 0 when there is none.
#[must_use]
pub fn field(row: Option<&Object>, name: &str) -> u64 {
    match row.and_then(|row| row.get(name)) {
        Some(Datum::Number(number)) => number as u64,
        _ => 0,
    }
}
