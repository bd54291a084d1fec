//! The write load: updates of single rows at a given rate, with a record of each.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use client::answer::{self, Failure, FailureKind};
use memchr::memmem;

use super::model::{Model, NO_GROUP, Row, Write};
use crate::drive::clock::nanoseconds;
use crate::drive::workload::{CheckDepth, OperationPart, Verdict, Workload};

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Acknowledged,
    /// The server did not carry it out.
    Refused,
    /// There was no response, or the server does not know.
    Unknown,
}

/// A write that was sent.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    pub write: Write,
    /// Since the start of the measurement.
    pub sent_ns: i64,
    /// Since the start of the measurement; 0 without an acknowledgement.
    pub acknowledged_ns: i64,
    pub outcome: Outcome,
}

/// The rows and all writes so far. The sequence number of a write is its place plus one.
pub struct Ledger {
    model: Model,
    written: Vec<Written>,
    started: Instant,
}

/// A ledger that the write load and the checker share.
#[derive(Clone)]
pub struct SharedLedger(Arc<Mutex<Ledger>>);

impl SharedLedger {
    /// A ledger of a table as `model` describes it. Times count from `started`.
    pub fn new(model: Model, started: Instant) -> SharedLedger {
        SharedLedger(Arc::new(Mutex::new(Ledger { model, written: Vec::new(), started })))
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The writes from number `first` on.
    pub fn written_since(&self, first: usize) -> Vec<Written> {
        self.lock().written[first..].to_vec()
    }

    /// The number of writes so far.
    pub fn len(&self) -> usize {
        self.lock().written.len()
    }

    /// Whether there was no write yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The parameters of a load.
#[derive(Clone, Debug)]
pub struct WriteShape {
    /// One write in this many is of a row that a feed has; 0 for none.
    pub match_every: u64,
    /// Durability that each write asks for; `None` for that of the table.
    pub durability: Option<&'static str>,
    /// The table's term, as JSON.
    pub table: String,
}

/// Sends updates of single rows.
pub struct WriteLoad {
    ledger: SharedLedger,
    shape: WriteShape,
    sent: u64,
}

impl WriteLoad {
    /// Writes of `shape`, recorded in `ledger`.
    pub fn new(ledger: SharedLedger, shape: WriteShape) -> WriteLoad {
        WriteLoad { ledger, shape, sent: 0 }
    }

    fn settle(&self, place: u64, outcome: Outcome) {
        let ledger = &mut *self.ledger.lock();
        let now_ns = nanoseconds(ledger.started.elapsed());
        let Some(written) = ledger.written.get_mut(place as usize) else { return };
        written.outcome = outcome;
        match outcome {
            Outcome::Acknowledged => {
                written.acknowledged_ns = now_ns;
                ledger.model.settle(&written.write, true);
            }
            Outcome::Refused => ledger.model.settle(&written.write, false),
            Outcome::Unknown => {}
        }
    }
}

impl Workload for WriteLoad {
    fn next(&mut self, _place: usize, query: &mut Vec<u8>) -> Option<OperationPart> {
        let ledger = &mut *self.ledger.lock();
        let seq = ledger.written.len() as u64 + 1;
        let wants_match = self.shape.match_every > 0 && self.sent.is_multiple_of(self.shape.match_every);
        self.sent += 1;
        let matching = if wants_match { ledger.model.write_matching(seq) } else { None };
        let write = matching.or_else(|| ledger.model.write_other(seq))?;
        let options = match self.shape.durability {
            Some(durability) => format!(r#",{{"durability":"{durability}"}}"#),
            None => String::new(),
        };
        let Row { id, group, rank, .. } = write.row;
        let (table, fields) = (&self.shape.table, format!(r#""seq":{seq},"group":{group},"rank":{rank}"#));
        query.extend_from_slice(
            format!(r#"[1,[53,[[16,[{table},{id}]],{{{fields}}}]{options}],{{}}]"#).as_bytes(),
        );
        let sent_ns = nanoseconds(ledger.started.elapsed());
        ledger.written.push(Written { write, sent_ns, acknowledged_ns: 0, outcome: Outcome::Unknown });
        Some(OperationPart { record: seq - 1, ..OperationPart::default() })
    }

    fn judge(&mut self, part: &OperationPart, body: &[u8], _: CheckDepth, _: &mut Vec<u8>) -> Verdict {
        if answer::counts_no_errors(body) && memmem::find(body, br#""replaced":1"#).is_some() {
            self.settle(part.record, Outcome::Acknowledged);
            return Verdict::Done;
        }
        let failure = match answer::check_write(body) {
            Ok(_) => Failure::new(FailureKind::WrongAnswer, "an update replaced no row"),
            Err(failure) => failure,
        };
        let is_unknown = matches!(failure.kind, FailureKind::OpIndeterminate | FailureKind::WrongAnswer);
        self.settle(part.record, if is_unknown { Outcome::Unknown } else { Outcome::Refused });
        Verdict::Failed(failure)
    }
}

pub fn document(row: &Row, text_bytes: usize) -> serde_json::Value {
    debug_assert!(row.group >= NO_GROUP);
    serde_json::json!({
        "id": row.id,
        "seq": row.seq,
        "group": row.group,
        "rank": row.rank,
        "text": "x".repeat(text_bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feeds::kind::FeedKind;

    const GOOD: &[u8] = br#"{"t":1,"r":[{"deleted":0,"errors":0,"inserted":0,"replaced":1}]}"#;

    fn load(match_every: u64) -> WriteLoad {
        let ledger = SharedLedger::new(Model::new(vec![FeedKind::Document; 3], 5), Instant::now());
        let shape = WriteShape { match_every, durability: Some("soft"), table: r#"[15,["t"]]"#.to_owned() };
        WriteLoad::new(ledger, shape)
    }

    fn send(load: &mut WriteLoad) -> (OperationPart, serde_json::Value) {
        let mut query = Vec::new();
        let part = load.next(0, &mut query).expect("a query");
        (part, serde_json::from_slice(&query).expect("JSON"))
    }

    #[test]
    fn one_write_in_some_matches_and_each_has_its_number() {
        let mut load = load(2);
        let (_, query) = send(&mut load);
        let wanted = serde_json::json!([1, [53, [[16, [[15, ["t"]], 0]], {"seq": 1, "group": 0, "rank": 0}],
            {"durability": "soft"}], {}]);
        assert_eq!(query, wanted);
        (0..3).for_each(|_| drop(send(&mut load)));
        let feeds = |written: &Written| written.write.event.map(|(feed, _)| feed);
        let of: Vec<_> = load.ledger.written_since(0).iter().map(feeds).collect();
        assert_eq!(of, [Some(0), None, Some(1), None]);
    }

    #[test]
    fn outcomes_are_recorded() {
        let mut load = load(1);
        let judge = |load: &mut WriteLoad, body: &[u8]| {
            let (part, _) = send(load);
            load.judge(&part, body, CheckDepth::Head, &mut Vec::new())
        };
        assert_eq!(judge(&mut load, GOOD), Verdict::Done);
        let refused = br#"{"t":18,"e":4100000,"r":["no"],"b":[]}"#;
        assert!(matches!(judge(&mut load, refused), Verdict::Failed(_)));
        let unknown = br#"{"t":18,"e":4200000,"r":["perhaps"],"b":[]}"#;
        assert!(matches!(judge(&mut load, unknown), Verdict::Failed(_)));
        let unchanged = br#"{"t":1,"r":[{"errors":0,"replaced":0,"unchanged":1}]}"#;
        assert!(matches!(judge(&mut load, unchanged), Verdict::Failed(_)));
        let outcomes: Vec<Outcome> = load.ledger.written_since(0).iter().map(|one| one.outcome).collect();
        assert_eq!(outcomes, [Outcome::Acknowledged, Outcome::Refused, Outcome::Unknown, Outcome::Unknown]);
    }
}
