//! What is asked, and how answers are judged: the only thing that differs between benchmarks.

use crate::wire::answer::Failure;

/// One query of an operation. Most operations have one; a read-modify-write has two.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Part {
    /// Number of its kind, an index into the names of the workload.
    pub lane: u8,
    /// The kind of the whole operation when it has several parts.
    pub whole: Option<u8>,
    /// The workload's own: which record.
    pub record: u64,
    /// The workload's own: anything else `judge` must know.
    pub detail: u64,
}

/// How closely an answer is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scrutiny {
    /// By the bytes at its head.
    Head,
    /// Parsed and compared with what was asked.
    Whole,
}

/// What an answer means.
#[derive(Debug, PartialEq)]
pub enum Verdict {
    /// The operation succeeded.
    Done,
    /// The operation failed.
    Failed(Failure),
    /// The part succeeded; `follow` holds the query of the next part.
    Next(Part),
    /// More of the same answer must be asked for.
    More,
}

/// A stream of operations for the connections of one thread.
pub trait Workload: Send {
    /// Writes the JSON of the next query for connection number `place` of this thread; `None` when
    /// there is nothing left to do.
    fn next(&mut self, place: usize, query: &mut Vec<u8>) -> Option<Part>;

    /// Judges the answer to `part`; writes the next query into `follow` for [`Verdict::Next`].
    fn judge(&mut self, part: &Part, body: &[u8], scrutiny: Scrutiny, follow: &mut Vec<u8>) -> Verdict;
}
