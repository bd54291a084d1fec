//! The run phase: draws operations, writes the binding's queries, checks the responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use client::answer::{self, Failure, FailureKind};
use serde_json::Value;

use super::acknowledged::AcknowledgedCounter;
use super::chooser::KeyChooser;
use super::queries::Queries;
use super::settings::{Mix, PRIMARY_KEY};
use super::values::integrity_value;
use crate::drive::workload::{CheckDepth, OperationPart, Verdict, Workload};
use crate::result::Integrity;
use crate::rng::Rng;

/// The kinds of operation, in the order of results.
pub const NAMES: &[&str] = &["READ", "UPDATE", "INSERT", "SCAN", "READ-MODIFY-WRITE"];

const READ: u8 = 0;
const UPDATE: u8 = 1;
const INSERT: u8 = 2;
const SCAN: u8 = 3;
const READ_MODIFY_WRITE: u8 = 4;
const KINDS: [u8; 5] = [READ, UPDATE, INSERT, SCAN, READ_MODIFY_WRITE];

/// Outcomes of `dataintegrity`, shared by all threads.
#[derive(Debug, Default)]
pub struct IntegrityCounters {
    ok: AtomicU64,
    unexpected_state: AtomicU64,
    error: AtomicU64,
}

impl IntegrityCounters {
    /// The counts for a result.
    pub fn outcome(&self) -> Integrity {
        Integrity {
            ok: self.ok.load(Ordering::Relaxed),
            unexpected_state: self.unexpected_state.load(Ordering::Relaxed),
            error: self.error.load(Ordering::Relaxed),
        }
    }
}

/// The workload of one thread.
pub struct Operations {
    queries: Queries,
    keys: KeyChooser,
    inserts: Arc<AcknowledgedCounter>,
    integrity: Arc<IntegrityCounters>,
    rng: Rng,
    thresholds: [f64; 5],
}

impl Operations {
    /// A workload with the random numbers of `rng`.
    pub fn new(
        queries: Queries,
        keys: KeyChooser,
        inserts: Arc<AcknowledgedCounter>,
        integrity: Arc<IntegrityCounters>,
        rng: Rng,
    ) -> Self {
        let thresholds = thresholds(queries.settings().mix);
        Operations { queries, keys, inserts, integrity, rng, thresholds }
    }

    fn draw_kind(&mut self) -> u8 {
        let drawn = self.rng.unit();
        let place = self.thresholds.iter().position(|upper| drawn < *upper);
        // Rounding may leave the last threshold slightly below 1.
        KINDS[place.unwrap_or_else(|| last_used(&self.thresholds))]
    }

    fn read_field(&mut self) -> Option<usize> {
        let settings = self.queries.settings();
        (!settings.readallfields).then(|| self.rng.below(settings.fieldcount as u64) as usize)
    }

    fn written_field(&mut self) -> Option<usize> {
        let settings = self.queries.settings();
        (!settings.writeallfields).then(|| self.rng.below(settings.fieldcount as u64) as usize)
    }

    fn judge_read(&self, part: &OperationPart, body: &[u8], depth: CheckDepth) -> Result<(), Failure> {
        let integrity = self.queries.settings().dataintegrity;
        if answer::is_null_atom(body) {
            if integrity {
                self.integrity.error.fetch_add(1, Ordering::Relaxed);
            }
            let key = self.queries.settings().keys.key(part.record);
            return Err(Failure::new(FailureKind::NotFound, format!("no row under key {key}")));
        }
        let at_head = answer::type_at_head(body) == Some(answer::ATOM);
        if depth == CheckDepth::Head && !integrity && at_head {
            return Ok(());
        }
        let parsed = answer::parse(body)?;
        let row = parsed.r.first().unwrap_or(&Value::Null);
        let outcome = self.compare_row(part, row);
        if integrity {
            let counter = match outcome {
                Ok(()) => &self.integrity.ok,
                Err(_) => &self.integrity.unexpected_state,
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
        outcome
    }

    fn compare_row(&self, part: &OperationPart, row: &Value) -> Result<(), Failure> {
        let settings = self.queries.settings();
        let key = settings.keys.key(part.record);
        let wrong = |what: String| Err(Failure::new(FailureKind::WrongAnswer, what));
        if settings.readallfields && row[PRIMARY_KEY].as_str() != Some(&key) {
            return wrong(format!("requested {key}, the row's key is {}", row[PRIMARY_KEY]));
        }
        let asked = match decode_field(part.detail) {
            Some(place) => &self.queries.fields()[place..=place],
            None => self.queries.fields(),
        };
        for field in asked {
            let Some(value) = row[field].as_str() else {
                return wrong(format!("row {key} has no text in {field}"));
            };
            let Some(length) = settings.field_lengths.constant() else { continue };
            if value.len() as u64 != length {
                return wrong(format!("{field} of {key} is {} bytes long", value.len()));
            }
            if settings.dataintegrity && value != integrity_value(&key, field, length as usize) {
                return wrong(format!("{field} of {key} differs from the written value"));
            }
        }
        Ok(())
    }

    fn judge_scan(&self, part: &OperationPart, body: &[u8], depth: CheckDepth) -> Verdict {
        let t = answer::type_at_head(body);
        if t == Some(answer::PARTIAL) {
            return Verdict::More;
        }
        if depth == CheckDepth::Head && t == Some(answer::SEQUENCE) {
            return Verdict::Done;
        }
        let parsed = match answer::parse(body) {
            Ok(parsed) => parsed,
            Err(failure) => return Verdict::Failed(failure),
        };
        let found = parsed.r.len() as u64;
        if found > part.detail {
            let what = format!("requested {} rows, got {found}", part.detail);
            return Verdict::Failed(Failure::new(FailureKind::WrongAnswer, what));
        }
        Verdict::Done
    }
}

impl Workload for Operations {
    fn next(&mut self, _place: usize, query: &mut Vec<u8>) -> Option<OperationPart> {
        let kind = self.draw_kind();
        let plain = |kind, record| OperationPart { kind, record, ..OperationPart::default() };
        if kind == INSERT {
            let record = self.inserts.allocate();
            self.queries.insert(record, &mut self.rng, query);
            return Some(plain(INSERT, record));
        }
        let record = self.keys.draw(&mut self.rng);
        Some(match kind {
            UPDATE => {
                let field = self.written_field();
                self.queries.update(record, field, &mut self.rng, query);
                plain(UPDATE, record)
            }
            SCAN => {
                let field = self.read_field();
                let length = self.queries.settings().scan_lengths.draw(&mut self.rng);
                self.queries.scan(record, length, field, query);
                OperationPart { detail: length, ..plain(SCAN, record) }
            }
            _ => {
                let field = self.read_field();
                self.queries.read(record, field, query);
                let whole = (kind == READ_MODIFY_WRITE).then_some(READ_MODIFY_WRITE);
                OperationPart { detail: encode_field(field), whole, ..plain(READ, record) }
            }
        })
    }

    fn judge(
        &mut self,
        part: &OperationPart,
        body: &[u8],
        depth: CheckDepth,
        follow: &mut Vec<u8>,
    ) -> Verdict {
        let outcome = match part.kind {
            READ => self.judge_read(part, body, depth),
            UPDATE => judge_write(body, br#""skipped":0,"#, "skipped"),
            INSERT => {
                self.inserts.acknowledge(part.record);
                judge_write(body, br#""inserted":1,"#, "not inserted")
            }
            _ => return self.judge_scan(part, body, depth),
        };
        if let Err(failure) = outcome {
            return Verdict::Failed(failure);
        }
        if part.kind == READ && part.whole.is_some() {
            let field = self.written_field();
            self.queries.update(part.record, field, &mut self.rng, follow);
            return Verdict::Next(OperationPart { kind: UPDATE, ..*part });
        }
        Verdict::Done
    }
}

/// Checks a write of one row: no errors, and `expected` among the counts.
fn judge_write(body: &[u8], expected: &[u8], otherwise: &str) -> Result<(), Failure> {
    let has_expected = memchr::memmem::find(body, expected).is_some();
    if answer::counts_no_errors(body) && has_expected {
        return Ok(());
    }
    let result = answer::check_write(body)?;
    if result["skipped"].as_u64() == Some(0) {
        return Ok(());
    }
    Err(Failure::new(FailureKind::NotFound, format!("the row was {otherwise}: {result}")))
}

fn thresholds(mix: Mix) -> [f64; 5] {
    let mut sum = 0.0;
    [mix.read, mix.update, mix.insert, mix.scan, mix.read_modify_write].map(|share| {
        sum += share;
        sum
    })
}

fn last_used(thresholds: &[f64; 5]) -> usize {
    thresholds.iter().position(|upper| *upper >= thresholds[4]).unwrap_or(0)
}

fn encode_field(field: Option<usize>) -> u64 {
    field.map_or(0, |place| place as u64 + 1)
}

fn decode_field(detail: u64) -> Option<usize> {
    detail.checked_sub(1).map(|place| place as usize)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ycsb::properties::Properties;
    use crate::ycsb::settings::Settings;

    fn operations(changes: &[(&str, &str)]) -> Operations {
        let mut properties = Properties::default();
        changes.iter().for_each(|(name, value)| properties.set(name, value));
        let settings = Settings::from_properties(&properties).expect("settings");
        let inserts = Arc::new(AcknowledgedCounter::new(1_000));
        let keys = KeyChooser::new(&settings, 1_000, Arc::clone(&inserts));
        let queries = Queries::new(&settings, None);
        Operations::new(queries, keys, inserts, Arc::default(), Rng::new(1, 0))
    }

    fn row(operations: &Operations, record: u64) -> Value {
        let settings = operations.queries.settings();
        let key = settings.keys.key(record);
        let mut row = json!({ PRIMARY_KEY: key });
        for field in operations.queries.fields() {
            row[field] = json!(integrity_value(&key, field, 100));
        }
        row
    }

    fn atom(row: &Value) -> Vec<u8> {
        // The members in the order of the servers.
        format!(r#"{{"t":1,"r":[{row}],"n":[]}}"#).into_bytes()
    }

    #[test]
    fn kinds_are_drawn_by_their_shares() {
        let changes = [("readproportion", "0.5"), ("updateproportion", "0.5")];
        let mut half = operations(&changes);
        let reads = (0..100_000).filter(|_| half.draw_kind() == READ).count();
        assert!((49_300..50_700).contains(&reads), "{reads}");
        let mut only = operations(&[("readproportion", "1"), ("updateproportion", "0")]);
        assert!((0..1_000).all(|_| only.draw_kind() == READ));
    }

    #[test]
    fn a_read_is_checked_by_its_head_or_completely() {
        let mut ops = operations(&[]);
        let part = OperationPart { kind: READ, record: 3, ..OperationPart::default() };
        let good = atom(&row(&ops, 3));
        let other = atom(&row(&ops, 4));
        let mut judge = |body: &[u8], depth| ops.judge(&part, body, depth, &mut Vec::new());
        assert_eq!(judge(&good, CheckDepth::Head), Verdict::Done);
        assert_eq!(judge(&good, CheckDepth::Whole), Verdict::Done);
        assert_eq!(judge(&other, CheckDepth::Head), Verdict::Done);
        assert!(matches!(
            judge(&other, CheckDepth::Whole),
            Verdict::Failed(Failure { kind: FailureKind::WrongAnswer, .. })
        ));
        assert!(matches!(
            judge(br#"{"t":1,"r":[null],"n":[]}"#, CheckDepth::Head),
            Verdict::Failed(Failure { kind: FailureKind::NotFound, .. })
        ));
        assert!(matches!(
            judge(br#"{"t":18,"e":4100000,"r":["gone"],"b":[]}"#, CheckDepth::Head),
            Verdict::Failed(Failure { kind: FailureKind::OpFailed, .. })
        ));
    }

    #[test]
    fn integrity_is_judged_on_every_read() {
        let mut ops = operations(&[("dataintegrity", "true")]);
        let part = OperationPart { kind: READ, record: 3, ..OperationPart::default() };
        let good = row(&ops, 3);
        let mut changed = good.clone();
        changed["field4"] = json!("x".repeat(100));
        ops.judge(&part, &atom(&good), CheckDepth::Head, &mut Vec::new());
        ops.judge(&part, &atom(&changed), CheckDepth::Head, &mut Vec::new());
        ops.judge(&part, br#"{"t":1,"r":[null],"n":[]}"#, CheckDepth::Head, &mut Vec::new());
        let outcome = ops.integrity.outcome();
        assert_eq!((outcome.ok, outcome.unexpected_state, outcome.error), (1, 1, 1));
    }

    #[test]
    fn a_read_modify_write_reads_then_updates_the_same_record() {
        let changes =
            [("readproportion", "0"), ("updateproportion", "0"), ("readmodifywriteproportion", "1")];
        let mut ops = operations(&changes);
        let part = ops.next(0, &mut Vec::new()).expect("an operation");
        assert_eq!((part.kind, part.whole), (READ, Some(READ_MODIFY_WRITE)));
        let mut follow = Vec::new();
        let body = atom(&row(&ops, part.record));
        let verdict = ops.judge(&part, &body, CheckDepth::Head, &mut follow);
        let update = OperationPart { kind: UPDATE, ..part };
        assert_eq!(verdict, Verdict::Next(update));
        let key = ops.queries.settings().keys.key(part.record);
        assert!(follow.windows(key.len()).any(|w| w == key.as_bytes()));
        let written = br#"{"t":1,"r":[{"errors":0,"replaced":1,"skipped":0,"unchanged":0}]}"#;
        assert_eq!(ops.judge(&update, written, CheckDepth::Head, &mut follow), Verdict::Done);
    }

    #[test]
    fn a_write_that_touches_no_row_is_a_failure() {
        let mut ops = operations(&[]);
        let part = OperationPart { kind: UPDATE, ..OperationPart::default() };
        let skipped = br#"{"t":1,"r":[{"errors":0,"replaced":0,"skipped":1,"unchanged":0}]}"#;
        assert!(matches!(
            ops.judge(&part, skipped, CheckDepth::Head, &mut Vec::new()),
            Verdict::Failed(Failure { kind: FailureKind::NotFound, .. })
        ));
    }

    #[test]
    fn a_scan_continues_until_its_last_batch() {
        let mut ops = operations(&[]);
        let part = OperationPart { kind: SCAN, detail: 1, ..OperationPart::default() };
        let mut judge = |body: &[u8]| ops.judge(&part, body, CheckDepth::Whole, &mut Vec::new());
        assert_eq!(judge(br#"{"t":3,"r":[{}],"n":[]}"#), Verdict::More);
        assert_eq!(judge(br#"{"t":2,"r":[{}],"n":[]}"#), Verdict::Done);
        assert!(matches!(judge(br#"{"t":2,"r":[{},{}],"n":[]}"#), Verdict::Failed(_)));
    }
}
