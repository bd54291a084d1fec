//! What a query asks of shards that other nodes hold.
//!
//! A question is bytes (docs/formats/request.md) that the other node carries out with the very
//! code that serves its own queries. A question never leads to another one, so nodes cannot wait for
//! each other in a circle: a node that does not have what it is asked for says so, and whoever asked
//! looks again.
//!
//! - [`target`]: which node to ask for a shard, and how long to look for it
//! - [`request`], [`table_ranges`], [`response`], [`edit`]: the bytes
//! - [`tally`], [`rows`], [`keys`], [`write`], [`broadcast`]: asking for many rows, some rows,
//!   writes, and system tables
//! - [`wait`]: for answers of servers that may hang

mod broadcast;
mod edit;
mod keys;
mod request;
mod response;
mod rows;
mod settings_version;
pub(crate) mod system_rows;
mod table_ranges;
mod tally;
mod target;
mod wait;
mod write;

pub(crate) use broadcast::{SystemRowRequests, stop_job_on_others};
pub(crate) use keys::RemoteKeys;
pub use request::REQUEST_VERSION;
pub(crate) use request::{Edits, Request, WriteRequest};
pub(crate) use response::{
    BatchEnd, CursorBatch, ReadPosition, Response, begin_done, pack_reports, read, unpack_reports,
};
pub(crate) use rows::{RemoteRows, RemoteSource, ReopenedRows};
pub(crate) use settings_version::SettingsVersion;
pub(crate) use table_ranges::TableRanges;
pub(crate) use tally::{RemoteTally, unless_not_here};
pub(crate) use target::{
    LeaderConfirmations, RetryBudget, Target, all_joined, joined, lost_contact, refreshed, unreadable,
    unwritable,
};
pub(crate) use wait::{failover_for, shards_in, wait, watch};
pub(crate) use write::{RemoteWrite, WriteTarget};

/// A question of another node, read and written again: what it may hold is what came.
///
/// Fails when the bytes are no question.
pub fn reencode_request(bytes: bytes::Bytes) -> Result<bytes::Bytes, reql::codec::UnpackError> {
    let again = |request: Request| request.to_bytes().expect("invariant: it is as large as what was read");
    Request::from_bytes(bytes).map(again)
}
