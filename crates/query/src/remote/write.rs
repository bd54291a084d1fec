//! Writes of rows on another node.

use std::sync::Arc;

use cluster::{Catalog, ServerId};
use datum::PrimaryKey;
use storage::TableId;

use super::request::{Edits, Request, WriteRequest};
use super::response::{read, unpack_reports};
use super::settings_version::SettingsVersion;
use super::wait::{shards_of, wait};
use crate::context::{Cx, EvalParams};
use crate::edit::{RowReport, WriteOptions};
use crate::routing::{FailoverTo, LONG_CALL_TIMEOUT, RemoteError, ResponseSlot};

/// A pending write on another node.
pub(crate) struct RemoteWrite {
    slot: Arc<ResponseSlot>,
    server: ServerId,
    ticket: u64,
    table: TableId,
    keys: Vec<PrimaryKey>,
    /// The indexes of these rows among the planned ones.
    pub indexes: Vec<usize>,
}

/// The parts of a write that are the same for all its rows.
#[derive(Clone, Copy)]
pub(crate) struct WriteTarget {
    pub table: TableId,
    /// The options of the term.
    pub options: WriteOptions,
    /// The version of the table's settings that the write must apply.
    pub settings: SettingsVersion,
}

impl RemoteWrite {
    /// Requests `server` to write the rows under `keys`, which are those at `indexes`.
    pub fn send(
        cx: &Cx,
        server: ServerId,
        to: WriteTarget,
        keys: Vec<PrimaryKey>,
        edits: Edits,
        indexes: Vec<usize>,
    ) -> RemoteWrite {
        let ticket = cx.service.remote_calls().next_number();
        let request = Request::Write(WriteRequest {
            ticket,
            table: to.table,
            options: to.options,
            settings: to.settings,
            eval_params: EvalParams::of(cx),
            keys,
            edits,
        });
        // The functions of the edits may take any time; cancelling the query stops them.
        let slot = cx.service.remote_calls().call(server, request.to_bytes(), LONG_CALL_TIMEOUT);
        let keys = match request {
            Request::Write(request) => request.keys,
            _ => Vec::new(),
        };
        RemoteWrite { slot, server, ticket, table: to.table, keys, indexes }
    }

    /// Waits for the reports; `None` for a row that was not written because it is not there.
    pub fn wait(&self, cx: &Cx) -> Result<Vec<Option<RowReport>>, RemoteError> {
        let shards = |catalog: &Catalog| shards_of(catalog, self.table, &self.keys);
        let response = wait(cx, &self.slot, self.server, Some(FailoverTo::Leader), shards);
        if cx.cancel.is_set() && response.is_err() {
            let request = Request::Cancel { ticket: self.ticket };
            cx.service.remote_calls().notify(self.server, request.to_bytes());
        }
        let reports = read(response?, unpack_reports)?;
        if reports.len() == self.indexes.len() {
            return Ok(reports);
        }
        Err(RemoteError::Eval(reql::EvalError::internal("another server reported on other rows")))
    }
}
