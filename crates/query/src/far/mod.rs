//! What a query asks of shards that other nodes hold.
//!
//! A question is bytes (docs/formats/request.md) that the other node carries out with the very
//! code that serves its own queries. A question never leads to another one, so nodes cannot wait for
//! each other in a circle: a node that does not have what it is asked for says so, and whoever asked
//! looks again.
//!
//! - [`site`]: which node to ask for a shard, and how long to look for it
//! - [`question`], [`part`], [`answer`], [`edit`]: the bytes
//! - [`gather`], [`rows`], [`keys`], [`write`], [`everyone`]: asking for many rows, some rows,
//!   writes, and system tables
//! - [`waiting`]: for answers of servers that may hang

mod answer;
mod edit;
mod everyone;
mod gather;
mod keys;
mod part;
mod question;
mod rows;
mod rules;
mod site;
mod waiting;
mod write;

pub(crate) use answer::{
    BatchEnd, FarBatch, Outcome, Position, begin_done, pack_reports, read, unpack_reports,
};
pub(crate) use everyone::{AskedOthers, stop_elsewhere};
pub(crate) use gather::{FarTally, unless_lost};
pub(crate) use keys::FarKeys;
pub(crate) use part::Part;
pub use question::QUESTION_VERSION;
pub(crate) use question::{Edits, Question, WriteQuestion};
pub(crate) use rows::{FarRows, FarSource, Rest};
pub(crate) use rules::Rules;
pub(crate) use site::{
    Fitness, Patience, Site, all_joined, fresh, joined, lost_write, unreadable, unwritable,
};
pub(crate) use waiting::{shards_in, wait, wanted_by, watch};
pub(crate) use write::{FarWrite, WriteTo};

/// A question of another node, read and written again: what it may hold is what came.
///
/// Fails when the bytes are no question.
pub fn question_again(bytes: bytes::Bytes) -> Result<bytes::Bytes, reql::codec::UnpackError> {
    let again = |question: Question| question.to_bytes().expect("invariant: it is as large as what was read");
    Question::from_bytes(bytes).map(again)
}
