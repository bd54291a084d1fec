//! The load phase: inserts documents in batches, and computes the sums against which later runs check their answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use client::answer::{self, Failure, FailureKind};

use super::queries::Queries;
use crate::drive::workload::{CheckDepth, OperationPart, Verdict, Workload};

/// The kind of operation: one batch of documents is one insert.
pub const NAMES: &[&str] = &["INSERT"];

/// The progress of a load, shared by all threads.
#[derive(Debug, Default)]
pub struct LoadProgress {
    next: AtomicU64,
    end: u64,
    documents: AtomicU64,
    sentences: AtomicU64,
    bytes: AtomicU64,
}

impl LoadProgress {
    pub fn new(records: std::ops::Range<u64>) -> Self {
        LoadProgress { next: records.start.into(), end: records.end, ..LoadProgress::default() }
    }

    /// Documents acknowledged.
    pub fn documents(&self) -> u64 {
        self.documents.load(Ordering::Relaxed)
    }

    /// Sentences in the first fields of the acknowledged documents.
    pub fn sentences(&self) -> u64 {
        self.sentences.load(Ordering::Relaxed)
    }

    /// Bytes of the acknowledged queries.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn claim(&self, batch: u64) -> Option<std::ops::Range<u64>> {
        let start = self.next.fetch_add(batch, Ordering::Relaxed);
        (start < self.end).then(|| start..self.end.min(start + batch))
    }
}

/// The workload of one thread.
pub struct LoadWorkload {
    queries: Queries,
    progress: Arc<LoadProgress>,
    batch: u64,
    seed: u64,
}

impl LoadWorkload {
    /// Inserts `batch` documents per query.
    pub fn new(queries: Queries, progress: Arc<LoadProgress>, batch: u64, seed: u64) -> Self {
        LoadWorkload { queries, progress, batch: batch.clamp(1, 1 << 20), seed }
    }
}

/// Encodes the data for the acknowledgement of a batch: its documents (20 bits) and bytes.
fn encode(documents: u64, bytes: u64) -> u64 {
    documents | (bytes << 21)
}

impl Workload for LoadWorkload {
    fn next(&mut self, _place: usize, query: &mut Vec<u8>) -> Option<OperationPart> {
        let records = self.progress.claim(self.batch)?;
        let documents = records.end - records.start;
        let sentences = self.queries.insert_many(records, self.seed, query);
        let detail = encode(documents, query.len() as u64);
        Some(OperationPart { kind: 0, whole: None, record: sentences, detail })
    }

    fn judge(&mut self, part: &OperationPart, body: &[u8], _: CheckDepth, _: &mut Vec<u8>) -> Verdict {
        let (documents, bytes) = (part.detail & ((1 << 21) - 1), part.detail >> 21);
        let result = match answer::check_write(body) {
            Ok(result) => result,
            Err(failure) => return Verdict::Failed(failure),
        };
        if result["inserted"].as_u64() != Some(documents) {
            let what = format!("sent {documents} new documents, the server says {result}");
            return Verdict::Failed(Failure::new(FailureKind::WrongAnswer, what));
        }
        self.progress.documents.fetch_add(documents, Ordering::Relaxed);
        self.progress.sentences.fetch_add(part.record, Ordering::Relaxed);
        self.progress.bytes.fetch_add(bytes, Ordering::Relaxed);
        Verdict::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ycsb::settings::Settings;

    #[test]
    fn every_record_is_claimed_once_and_only_acknowledged_ones_count() {
        let progress = Arc::new(LoadProgress::new(10..25));
        let queries = Queries::new(&Settings::default(), None);
        let mut load = LoadWorkload::new(queries, Arc::clone(&progress), 10, 1);
        let mut query = Vec::new();
        let first = load.next(0, &mut query).expect("a batch");
        let second = load.next(0, &mut Vec::new()).expect("the rest");
        assert!(load.next(0, &mut Vec::new()).is_none());
        let answer = |n| format!(r#"{{"t":1,"r":[{{"errors":0,"inserted":{n}}}]}}"#).into_bytes();
        let mut judge = |part, n| load.judge(part, &answer(n), CheckDepth::Head, &mut Vec::new());
        assert_eq!(judge(&first, 10), Verdict::Done);
        assert!(matches!(judge(&second, 4), Verdict::Failed(_)));
        assert_eq!((progress.documents(), progress.sentences()), (10, first.record));
        assert_eq!(progress.bytes(), query.len() as u64);
    }
}
