//! The load: all rows of a file, several in each insert.

use std::sync::{Arc, Mutex};

use super::block_mark::BlockMark;
use super::keys::Keys;
use super::rows::{RowFile, RowsError};
use crate::drive::workload::{CheckDepth, OperationPart, Verdict, Workload};
use client::answer::{self, Failure, FailureKind};

/// The kind of operation: one batch of rows is one insert.
pub const NAMES: &[&str] = &["INSERT"];

/// The state of a load, shared by all threads.
pub struct LoadState {
    pub file: RowFile,
    pub keys: Keys,
    pub mark: BlockMark,
    /// Bytes of the JSON of all documents that were sent.
    pub json_bytes: u64,
    /// Rows that were acknowledged.
    pub acknowledged: u64,
    /// Why the file could not be read to its end.
    pub failed: Option<RowsError>,
}

impl LoadState {
    pub fn new(file: RowFile) -> LoadState {
        LoadState {
            file,
            keys: Keys::default(),
            mark: BlockMark::new(),
            json_bytes: 0,
            acknowledged: 0,
            failed: None,
        }
    }

    /// Appends the documents of the next rows, separated by commas; returns their number.
    fn take(&mut self, rows: usize, out: &mut Vec<u8>) -> u64 {
        let mut taken = 0;
        while (taken as usize) < rows && self.failed.is_none() {
            match self.file.next_row() {
                Ok(Some(row)) => {
                    if taken > 0 {
                        out.push(b',');
                    }
                    out.extend_from_slice(row.document.as_bytes());
                    self.mark.add(row.document.as_bytes());
                    self.json_bytes += row.document.len() as u64;
                    self.keys.push(&row.key, row.digest);
                    taken += 1;
                }
                Ok(None) => break,
                Err(error) => self.failed = Some(error),
            }
        }
        taken
    }
}

/// The workload of one thread.
pub struct LoadWorkload {
    state: Arc<Mutex<LoadState>>,
    /// The query up to the documents, and after them.
    around: (String, String),
    batch: usize,
}

impl LoadWorkload {
    /// Inserts `batch` rows per query into `table`, a term.
    pub fn new(state: Arc<Mutex<LoadState>>, table: &str, durability: &str, batch: usize) -> LoadWorkload {
        let around =
            (format!("[1,[56,[{table},[2,["), format!("]]],{{\"durability\":\"{durability}\"}}],{{}}]"));
        LoadWorkload { state, around, batch }
    }
}

impl Workload for LoadWorkload {
    fn next(&mut self, _place: usize, query: &mut Vec<u8>) -> Option<OperationPart> {
        query.extend_from_slice(self.around.0.as_bytes());
        let taken = self.state.lock().ok()?.take(self.batch, query);
        query.extend_from_slice(self.around.1.as_bytes());
        (taken > 0).then_some(OperationPart { detail: taken, ..OperationPart::default() })
    }

    fn judge(&mut self, part: &OperationPart, body: &[u8], _: CheckDepth, _: &mut Vec<u8>) -> Verdict {
        let result = match answer::check_write(body) {
            Ok(result) => result,
            Err(failure) => return Verdict::Failed(failure),
        };
        if result["inserted"].as_u64() != Some(part.detail) {
            let what = format!("sent {} new rows, the server says {result}", part.detail);
            return Verdict::Failed(Failure::new(FailureKind::WrongAnswer, what));
        }
        if let Ok(mut state) = self.state.lock() {
            state.acknowledged += part.detail;
        }
        Verdict::Done
    }
}
