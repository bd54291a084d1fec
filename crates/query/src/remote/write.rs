//! Writes that other nodes carry out.

use std::sync::Arc;

use cluster::{Catalog, ServerId};
use datum::PrimaryKey;
use log::Durability;
use storage::TableId;

use super::request::{Edits, Request, WriteRequest};
use super::response::{read, unpack_reports};
use super::settings_version::SettingsVersion;
use super::wait::{shards_of, wait};
use crate::context::{Cx, EvalParams};
use crate::edit::{ReturnChanges, RowReport};
use crate::routing::{FailoverTo, LONG, RemoteError, ResponseSlot};

/// Rows another node was asked to write.
pub(crate) struct RemoteWrite {
    slot: Arc<ResponseSlot>,
    server: ServerId,
    ticket: u64,
    table: TableId,
    keys: Vec<PrimaryKey>,
    /// Which of the planned rows they are.
    pub indexes: Vec<usize>,
}

/// What is written to a table, however many rows.
#[derive(Clone, Copy)]
pub(crate) struct WriteTarget {
    /// The table.
    pub table: TableId,
    /// What the write waits for; `None` leaves it to the table.
    pub durability: Option<Durability>,
    /// Whether the table's write hook has no say in it.
    pub ignore_hook: bool,
    /// What the reports must show.
    pub show: ReturnChanges,
    /// What of the table's settings the write is to go by.
    pub settings: SettingsVersion,
}

impl RemoteWrite {
    /// Asks `server` to write the rows under `keys`, which are those at `indexes`.
    pub fn ask(
        cx: &Cx,
        server: ServerId,
        to: WriteTarget,
        keys: Vec<PrimaryKey>,
        edits: Edits,
        indexes: Vec<usize>,
    ) -> RemoteWrite {
        let ticket = cx.service.peers().next_number();
        let request = Request::Write(WriteRequest {
            ticket,
            table: to.table,
            durability: to.durability,
            ignore_hook: to.ignore_hook,
            show: to.show,
            settings: to.settings,
            eval_params: EvalParams::of(cx),
            keys,
            edits,
        });
        // It takes as long as the functions of the edits do, which the query can stop.
        let slot = cx.service.peers().call(server, request.to_bytes(), LONG);
        let keys = match request {
            Request::Write(request) => request.keys,
            _ => Vec::new(),
        };
        RemoteWrite { slot, server, ticket, table: to.table, keys, indexes }
    }

    /// Waits for what became of the rows; `None` for a row that was not written because it is
    /// elsewhere.
    pub fn wait(&self, cx: &Cx) -> Result<Vec<Option<RowReport>>, RemoteError> {
        let shards = |catalog: &Catalog| shards_of(catalog, self.table, &self.keys);
        let answer = wait(cx, &self.slot, self.server, Some(FailoverTo::Leader), shards);
        if cx.cancel.is_set() && answer.is_err() {
            let request = Request::Cancel { ticket: self.ticket };
            cx.service.peers().notify(self.server, request.to_bytes());
        }
        let reports = read(answer?, unpack_reports)?;
        if reports.len() == self.indexes.len() {
            return Ok(reports);
        }
        Err(RemoteError::Eval(reql::EvalError::internal("another server reported on other rows")))
    }
}
