//! The interface of a benchmark: its queries, and the checks of responses.

use client::answer::Failure;

/// One query of an operation. Most operations have one; a read-modify-write has two.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OperationPart {
    /// Number of its kind, an index into the names of the workload.
    pub kind: u8,
    /// The kind of the whole operation when it has several parts.
    pub whole: Option<u8>,
    /// For the workload: the record.
    pub record: u64,
    /// For the workload: other data that `judge` needs.
    pub detail: u64,
}

/// How thoroughly a response is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckDepth {
    /// By its first bytes.
    Head,
    /// Parsed and compared with the query.
    Whole,
}

/// The verdict on a response.
#[derive(Debug, PartialEq)]
pub enum Verdict {
    /// The operation succeeded.
    Done,
    Failed(Failure),
    /// The part succeeded; `follow` holds the query of the next part.
    Next(OperationPart),
    /// Another batch of the same response must be requested.
    More,
    /// The stream of this response must be ended; the operation goes on until the response to that.
    Stop,
}

/// The source of operations for the connections of one thread.
pub trait Workload: Send {
    /// Writes the JSON of the next query for connection number `place` of this thread; `None` when there are no more
    /// operations.
    fn next(&mut self, place: usize, query: &mut Vec<u8>) -> Option<OperationPart>;

    /// Checks the response to `part`; writes the next query into `follow` for [`Verdict::Next`].
    fn judge(
        &mut self,
        part: &OperationPart,
        body: &[u8],
        depth: CheckDepth,
        follow: &mut Vec<u8>,
    ) -> Verdict;
}
