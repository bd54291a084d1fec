//! The operations of clients and their results, in order.

use std::collections::BTreeMap;

use datum::{Datum, Object, PrimaryKey, Text};
use io::Nanos;

/// The mode of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Linearizable.
    Majority,
    /// The state that the leader has applied.
    Single,
    /// The state that any replica has applied.
    Outdated,
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads the value.
    Read(Mode),
    /// Sets the value to the operation's number.
    Put,
    /// The same, and returns the previous value.
    Swap,
    /// Adds one to the counter.
    Add,
}

/// A document of one of the tables.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Document {
    /// The table's name.
    pub table: String,
    pub number: u64,
}

/// One operation.
#[derive(Clone, Debug)]
pub struct Op {
    /// Its unique number, from 1.
    pub number: u64,
    pub document: Document,
    pub kind: Kind,
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It took effect, with the value that it returned, if any.
    Done(Option<u64>),
    /// It was refused: it never took effect and never will.
    Refused(String),
    /// Unknown: it may have taken effect, or may still.
    Unknown(String),
}

/// An operation and its times.
#[derive(Clone, Debug)]
pub struct Record {
    /// The operation.
    pub op: Op,
    /// When it was sent: the number of the event.
    pub asked: u64,
    /// When it was sent, by the simulated clock.
    pub asked_at: Nanos,
    /// When its result arrived, by the simulated clock.
    pub answered_at: Nanos,
    /// The number of the event of its result, and the result; `None` before that.
    pub answered: Option<(u64, Outcome)>,
}

/// All operations.
#[derive(Default)]
pub struct History {
    records: Vec<Record>,
    moments: u64,
    /// The simulated time.
    pub now: Nanos,
}

impl History {
    /// Records that a client sends an operation now; returns it.
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

    /// Records the result of operation `number`.
    pub fn answer(&mut self, number: u64, outcome: Outcome) {
        self.moments += 1;
        let record = &mut self.records[number as usize - 1];
        (record.answered, record.answered_at) = (Some((self.moments, outcome)), self.now);
    }

    /// Whether an operation is a write that took effect.
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

    /// The number of operations that took effect.
    #[must_use]
    pub fn done(&self) -> u64 {
        let done = |record: &&Record| matches!(record.answered, Some((_, Outcome::Done(_))));
        self.records.iter().filter(done).count() as u64
    }

    /// All records, in order.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.records
    }
}

impl Document {
    /// Its primary key; documents with adjacent numbers are far apart.
    #[must_use]
    pub fn id(&self) -> Datum {
        Datum::from(format!("{:016x}", self.number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// The stored form of its key.
    #[must_use]
    pub fn key(&self) -> PrimaryKey {
        PrimaryKey::encode(&self.id()).expect("invariant: sixteen digits fit a key")
    }
}

/// The row of a document with this value and counter.
#[must_use]
pub fn row(document: &Document, value: u64, count: u64) -> Object {
    let fields = [
        (Text::from_static("id"), document.id()),
        (Text::from_static("value"), Datum::Number(value as f64)),
        (Text::from_static("count"), Datum::Number(count as f64)),
    ];
    fields.into_iter().collect()
}

/// A number in a row; 0 if there is none.
#[must_use]
pub fn field(row: Option<&Object>, name: &str) -> u64 {
    match row.and_then(|row| row.get(name)) {
        Some(Datum::Number(number)) => number as u64,
        _ => 0,
    }
}
