//! The tests on loaded rows: reads, reads of several rows, and reads with writes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::columns::{digest_of, push_json};
use super::keys::Keys;
use super::rows::{RowFile, RowsError};
use crate::drive::workload::{CheckDepth, OperationPart, Verdict, Workload};
use crate::rng::Rng;
use client::answer::{self, ATOM, Failure, FailureKind, PARTIAL, SEQUENCE};

/// The kinds of operations.
pub const NAMES: &[&str] = &["READ", "BATCH_READ", "WRITE"];
const READ: u8 = 0;
const BATCH_READ: u8 = 1;
const WRITE: u8 = 2;
/// Rows of one `batch_read`.
pub const BATCH_ROWS: usize = 20;
/// The stream of the keys of one batch, whose seed is in its [`OperationPart`].
const BATCH_STREAM: u64 = 6_000_000;
/// Of this many operations of `read_write` one is a write.
const WRITE_ONE_IN: u64 = 10;

/// A test of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    Read,
    /// Twenty rows in each query.
    BatchRead,
    /// Nine reads for each write.
    ReadWrite,
}

impl Test {
    pub const ALL: [Test; 3] = [Test::Read, Test::BatchRead, Test::ReadWrite];

    /// The name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Test::Read => "read",
            Test::BatchRead => "batch_read",
            Test::ReadWrite => "read_write",
        }
    }
}

/// The rows of a file, again and again, for the writes of `read_write`.
pub struct WriteRows {
    pub file: RowFile,
    /// Why no row could be read.
    pub failed: Option<RowsError>,
}

impl WriteRows {
    fn next(&mut self) -> Option<String> {
        for _ in 0..2 {
            match self.file.next_row() {
                Ok(Some(row)) => return Some(row.document),
                Ok(None) => self.failed = self.file.rewind().err(),
                Err(error) => self.failed = Some(error),
            }
        }
        None
    }
}

/// The terms of the tables that are read and written.
#[derive(Clone, Debug)]
pub struct Tables {
    pub read: String,
    pub written: String,
}

/// The workload of one thread.
pub struct ReadWorkload {
    test: Test,
    keys: Arc<Keys>,
    rows: Option<Arc<Mutex<WriteRows>>>,
    tables: Tables,
    rng: Rng,
    asked: u64,
    /// The rows that queries in flight have returned in earlier batches.
    partial: HashMap<u64, usize>,
    key: String,
}

impl ReadWorkload {
    /// Reads rows under `keys`. Of `rows`, which only [`Test::ReadWrite`] needs, one is written now and then.
    pub fn new(
        test: Test,
        keys: Arc<Keys>,
        rows: Option<Arc<Mutex<WriteRows>>>,
        tables: Tables,
        rng: Rng,
    ) -> ReadWorkload {
        ReadWorkload { test, keys, rows, tables, rng, asked: 0, partial: HashMap::new(), key: String::new() }
    }

    /// Appends the key of a row as JSON.
    fn push_key(&mut self, place: usize, query: &mut Vec<u8>) {
        self.key.clear();
        push_json(self.keys.get(place).0, &mut self.key);
        query.extend_from_slice(self.key.as_bytes());
    }

    /// The same for each call with this seed.
    fn batch_rows(&self, seed: u64) -> [usize; BATCH_ROWS] {
        let mut rng = Rng::new(seed, BATCH_STREAM);
        std::array::from_fn(|_| self.keys.draw(&mut rng))
    }

    fn read(&mut self, query: &mut Vec<u8>) -> OperationPart {
        query.extend_from_slice(format!("[1,[16,[{},", self.tables.read).as_bytes());
        let place = self.keys.draw(&mut self.rng);
        self.push_key(place, query);
        query.extend_from_slice(b"]],{}]");
        OperationPart { kind: READ, whole: None, record: self.asked, detail: place as u64 }
    }

    fn batch_read(&mut self, query: &mut Vec<u8>) -> OperationPart {
        query.extend_from_slice(format!("[1,[78,[{}", self.tables.read).as_bytes());
        let seed = self.rng.next_u64();
        for place in self.batch_rows(seed) {
            query.push(b',');
            self.push_key(place, query);
        }
        query.extend_from_slice(b"]],{}]");
        OperationPart { kind: BATCH_READ, whole: None, record: self.asked, detail: seed }
    }

    fn write(&mut self, query: &mut Vec<u8>) -> Option<OperationPart> {
        let document = self.rows.as_ref()?.lock().ok()?.next()?;
        query.extend_from_slice(format!("[1,[56,[{},{document}]", self.tables.written).as_bytes());
        query.extend_from_slice(br#",{"conflict":"replace"}],{}]"#);
        Some(OperationPart { kind: WRITE, whole: None, record: self.asked, detail: 0 })
    }

    fn judge_read(&self, part: &OperationPart, body: &[u8], depth: CheckDepth) -> Verdict {
        if answer::is_null_atom(body) {
            return Verdict::Failed(Failure::new(
                FailureKind::NotFound,
                "no row under a key that was loaded",
            ));
        }
        if depth == CheckDepth::Head && answer::type_at_head(body) == Some(ATOM) {
            return Verdict::Done;
        }
        let rows = match answer::parse(body) {
            Ok(parsed) => parsed.r,
            Err(failure) => return Verdict::Failed(failure),
        };
        let (key, digest) = self.keys.get(part.detail as usize);
        match rows.first() {
            Some(row) if row["id"] == key && digest_of(row) == Some(digest) => Verdict::Done,
            other => wrong(format!("not the row that was loaded under {key:?}: {}", shortened(other))),
        }
    }

    fn judge_batch(&mut self, part: &OperationPart, body: &[u8], depth: CheckDepth) -> Verdict {
        let before = self.partial.remove(&part.record);
        match (answer::type_at_head(body), depth) {
            (Some(SEQUENCE), CheckDepth::Head) if before.is_none() => return Verdict::Done,
            (Some(SEQUENCE | PARTIAL), _) => {}
            _ => {
                return answer::parse(body)
                    .map_or_else(Verdict::Failed, |_| wrong("not a sequence".to_owned()));
            }
        }
        let answer = match answer::parse(body) {
            Ok(answer) => answer,
            Err(failure) => return Verdict::Failed(failure),
        };
        if depth != CheckDepth::Head
            && let Some(other) = self.foreign_row(part.detail, &answer.r)
        {
            return wrong(format!(
                "not a row that was loaded under one of the keys: {}",
                shortened(Some(other))
            ));
        }
        let rows = before.unwrap_or(0) + answer.r.len();
        if answer.t == PARTIAL {
            self.partial.insert(part.record, rows);
            return Verdict::More;
        }
        match rows {
            BATCH_ROWS => Verdict::Done,
            rows => wrong(format!("{rows} rows for {BATCH_ROWS} keys that were loaded")),
        }
    }

    /// A row that is none of the batch with this seed.
    fn foreign_row<'a>(&self, seed: u64, rows: &'a [Value]) -> Option<&'a Value> {
        let expected = self.batch_rows(seed).map(|place| self.keys.get(place));
        rows.iter().find(|row| {
            let is_it = |(key, digest): &(&str, u32)| row["id"] == *key && digest_of(row) == Some(*digest);
            !expected.iter().any(is_it)
        })
    }
}

impl Workload for ReadWorkload {
    fn next(&mut self, _place: usize, query: &mut Vec<u8>) -> Option<OperationPart> {
        self.asked += 1;
        match self.test {
            Test::Read => Some(self.read(query)),
            Test::BatchRead => Some(self.batch_read(query)),
            Test::ReadWrite if self.rng.below(WRITE_ONE_IN) == 0 => self.write(query),
            Test::ReadWrite => Some(self.read(query)),
        }
    }

    fn judge(&mut self, part: &OperationPart, body: &[u8], depth: CheckDepth, _: &mut Vec<u8>) -> Verdict {
        match part.kind {
            READ => self.judge_read(part, body, depth),
            BATCH_READ => self.judge_batch(part, body, depth),
            _ if depth == CheckDepth::Head && answer::counts_no_errors(body) => Verdict::Done,
            _ => answer::check_write(body).map_or_else(Verdict::Failed, |_| Verdict::Done),
        }
    }
}

fn wrong(what: String) -> Verdict {
    Verdict::Failed(Failure::new(FailureKind::WrongAnswer, what))
}

fn shortened(row: Option<&Value>) -> String {
    row.map_or_else(|| "nothing".to_owned(), |row| row.to_string().chars().take(200).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wiki::columns::parse;

    fn workload(test: Test, keys: Keys) -> ReadWorkload {
        let tables = Tables { read: "\"T\"".to_owned(), written: "\"W\"".to_owned() };
        ReadWorkload::new(test, Arc::new(keys), None, tables, Rng::new(1, 2))
    }

    fn judge(workload: &mut ReadWorkload, part: &OperationPart, body: &str) -> Verdict {
        workload.judge(part, body.as_bytes(), CheckDepth::Whole, &mut Vec::new())
    }

    #[test]
    fn a_row_is_compared_with_the_file() {
        let line: Vec<String> = (0..15).map(|column| format!("'{column}\"'")).collect();
        let row = parse(line.join("\t").as_bytes()).unwrap();
        let mut keys = Keys::default();
        keys.push(&row.key, row.digest);
        let mut read = workload(Test::Read, keys);
        let mut query = Vec::new();
        let part = read.next(0, &mut query).unwrap();
        let asked: Value = serde_json::from_slice(&query).unwrap();
        assert_eq!(asked[1][1][1], row.key.as_str());
        let answer = |document: &str| format!(r#"{{"t":1,"r":[{document}]}}"#);
        assert_eq!(judge(&mut read, &part, &answer(&row.document)), Verdict::Done);
        let changed = row.document.replace("'7", "'8");
        for other in ["null", "{}", &*changed] {
            assert!(matches!(judge(&mut read, &part, &answer(other)), Verdict::Failed(_)), "{other}");
        }
    }

    #[test]
    fn rows_of_a_batch_are_counted_over_all_its_parts() {
        let row = parse((0..15).map(|column| column.to_string()).collect::<Vec<_>>().join("\t").as_bytes());
        let row = row.unwrap();
        let mut keys = Keys::default();
        keys.push(&row.key, row.digest);
        let mut batch = workload(Test::BatchRead, keys);
        let mut query = Vec::new();
        let part = batch.next(0, &mut query).unwrap();
        let asked: Value = serde_json::from_slice(&query).unwrap();
        assert_eq!(asked[1][1].as_array().map(Vec::len), Some(BATCH_ROWS + 1));
        let rows =
            |kind, count| format!(r#"{{"t":{kind},"r":[{}]}}"#, vec![row.document.as_str(); count].join(","));
        assert_eq!(judge(&mut batch, &part, &rows(3, 8)), Verdict::More);
        assert_eq!(judge(&mut batch, &part, &rows(2, 12)), Verdict::Done);
        assert!(matches!(judge(&mut batch, &part, &rows(2, 12)), Verdict::Failed(_)));
        let foreign = rows(2, 20).replacen("\"7\"", "\"8\"", 1);
        assert!(matches!(judge(&mut batch, &part, &foreign), Verdict::Failed(_)), "{foreign}");
    }
}
