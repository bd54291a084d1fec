//! Reads and writes of shards on other nodes, as RPCs.
//!
//! A request is bytes (docs/formats/request.md). The other node carries it out with the code that serves its own
//! queries. It never sends further requests for it, so nodes cannot wait for each other in a circle: a node without
//! the shard responds that it is not here, and the sender looks up the shard again.
//!
//! - [`target`]: which node to send a request for a shard to, and for how long to retry
//! - [`request`], [`table_ranges`], [`response`], [`edit`], [`settings_version`]: the bytes
//! - [`tally`], [`rows`], [`keys`], [`write`]: aggregates, scans, reads by key and writes
//! - [`broadcast`], [`system_rows`]: requests to all nodes, for system tables
//! - [`wait`]: blocking for a response of a server that may hang

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
    LeaderConfirmations, RetryBudget, Target, joined, joined_ranges, lost_contact, refreshed, unreadable,
    unwritable,
};
pub(crate) use wait::{failover_for, shards_in, wait, watch_for_failover};
pub(crate) use write::{RemoteWrite, WriteTarget};

/// Decodes a request and encodes it again: the result is the same bytes if they are valid.
///
/// Fails when the bytes are no request.
pub fn reencode_request(bytes: bytes::Bytes) -> Result<bytes::Bytes, reql::codec::UnpackError> {
    let again = |request: Request| request.to_bytes().expect("invariant: it is as large as what was read");
    Request::from_bytes(bytes).map(again)
}
