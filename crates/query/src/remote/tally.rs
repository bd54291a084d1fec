//! Partial results of other nodes: one request per node, all at the same time.

use std::sync::Arc;

use bytes::Bytes;
use cluster::{Catalog, ServerId};
use datum::KeyRange;
use reql::codec::Codec;
use reql::{EvalError, Pipeline, Tally};
use storage::TableId;

use super::request::Request;
use super::response::read;
use super::table_ranges::TableRanges;
use super::wait::{failover_for, shards_in, wait};
use crate::context::{Cx, EvalParams};
use crate::routing::{LONG_CALL_TIMEOUT, ReadMode, RemoteError, ResponseSlot};

/// A pending partial result of another node.
pub(crate) struct RemoteTally {
    slot: Arc<ResponseSlot>,
    server: ServerId,
    ticket: u64,
    table: TableId,
    mode: ReadMode,
    /// The ranges it covers, to read them again if the node does not have them.
    pub ranges: Vec<KeyRange>,
}

impl RemoteTally {
    /// Requests the result of `pipeline` over `part` from `server`.
    pub fn request(cx: &Cx, server: ServerId, part: TableRanges, pipeline: &Pipeline) -> RemoteTally {
        let (eval_params, pipeline) = (EvalParams::of(cx), pipeline.clone());
        RemoteTally::send(cx, server, part, |ticket, part| Request::Gather {
            ticket,
            part,
            eval_params,
            pipeline,
        })
    }

    /// Requests the number of rows of `part` from `server`.
    pub fn request_count(cx: &Cx, server: ServerId, part: TableRanges) -> RemoteTally {
        RemoteTally::send(cx, server, part, |ticket, part| Request::Count { ticket, part })
    }

    fn send(
        cx: &Cx,
        server: ServerId,
        part: TableRanges,
        request: impl FnOnce(u64, TableRanges) -> Request,
    ) -> RemoteTally {
        let (ticket, table, mode) = (cx.service.remote_calls().next_number(), part.table, part.mode);
        let ranges = part.ranges.clone();
        let slot =
            cx.service.remote_calls().call(server, request(ticket, part).to_bytes(), LONG_CALL_TIMEOUT);
        RemoteTally { slot, server, ticket, table, mode, ranges }
    }

    fn wait(&self, cx: &Cx) -> Result<Bytes, RemoteError> {
        let shards = |catalog: &Catalog| shards_in(catalog, self.table, &self.ranges);
        wait(cx, &self.slot, self.server, failover_for(self.mode), shards)
    }

    /// Asks `server` whether the index of `part` names few of the rows.
    pub fn request_few(cx: &Cx, server: ServerId, part: TableRanges) -> RemoteTally {
        RemoteTally::send(cx, server, part, |ticket, part| Request::Few { ticket, part })
    }

    /// Waits for the partial result; `None` when the node does not have all ranges.
    pub fn tally(&self, cx: &Cx) -> Result<Option<Tally>, EvalError> {
        let tally =
            self.wait(cx).and_then(|bytes| read(bytes, |from| Ok((Tally::unpack(from)?, from.count()?))));
        Ok(unless_not_here(tally)?.map(|(tally, rows_read)| {
            cx.add_remote_rows_read(rows_read);
            tally
        }))
    }

    /// Waits for the response; `None` when there is none.
    pub fn few(&self, cx: &Cx) -> Option<bool> {
        self.wait(cx).and_then(|bytes| read(bytes, bool::unpack)).ok()
    }

    /// Waits for the number of rows; `None` when the node does not have all ranges.
    pub fn count(&self, cx: &Cx) -> Result<Option<u64>, EvalError> {
        unless_not_here(self.wait(cx).and_then(|bytes| read(bytes, u64::unpack)))
    }

    /// Cancels the request, if it is still running: its result is not needed any more.
    pub fn cancel(&self, cx: &Cx) {
        let request = Request::Cancel { ticket: self.ticket };
        cx.service.remote_calls().notify(self.server, request.to_bytes());
    }
}

/// The value, or `None` when a retry may find it: a read can be repeated.
pub(crate) fn unless_not_here<T>(response: Result<T, RemoteError>) -> Result<Option<T>, EvalError> {
    match response {
        Ok(value) => Ok(Some(value)),
        Err(RemoteError::Eval(error) | RemoteError::NotSent(error)) => Err(error),
        Err(RemoteError::NotHere(_) | RemoteError::NotConnected | RemoteError::NoResponse) => Ok(None),
    }
}
