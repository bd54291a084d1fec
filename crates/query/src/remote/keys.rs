//! Reads of rows by their keys on another node.

use std::sync::Arc;

use cluster::{Catalog, ServerId};
use datum::{Datum, PrimaryKey};
use reql::EvalError;
use reql::codec::Codec;
use storage::TableId;

use super::request::Request;
use super::response::read;
use super::tally::unless_not_here;
use super::wait::{failover_for, shards_of, wait};
use crate::context::Cx;
use crate::routing::{ReadMode, ResponseSlot, SHORT_CALL_TIMEOUT};
use crate::table::StoredTable;

/// A pending read of rows on another node.
pub(crate) struct RemoteKeys {
    slot: Arc<ResponseSlot>,
    server: ServerId,
    /// The indexes of these rows among all rows that are read.
    pub indexes: Vec<usize>,
}

impl RemoteKeys {
    /// Requests the rows under `keys`, which are those at `indexes`, from `server`.
    pub fn send(
        cx: &Cx,
        server: ServerId,
        (table, mode): (TableId, ReadMode),
        keys: Vec<PrimaryKey>,
        indexes: Vec<usize>,
    ) -> RemoteKeys {
        let request = Request::Get { table, mode, keys };
        RemoteKeys {
            slot: cx.service.remote_calls().call(server, request.to_bytes(), SHORT_CALL_TIMEOUT),
            server,
            indexes,
        }
    }

    /// Waits for the rows, null where there is none; `None` when the server does not have the shard. `keys` are those
    /// of all rows that are read.
    pub fn wait(
        &self,
        cx: &Cx,
        table: &StoredTable,
        keys: &[PrimaryKey],
    ) -> Result<Option<Vec<Datum>>, EvalError> {
        let shards = |catalog: &Catalog| {
            let keys = self.indexes.iter().map(|i| &keys[*i]);
            shards_of(catalog, table.handle.config.id, keys)
        };
        let response = wait(cx, &self.slot, self.server, failover_for(table.read_mode), shards);
        let rows = response.and_then(|bytes| read(bytes, Vec::<Datum>::unpack));
        match unless_not_here(rows)? {
            Some(rows) if rows.len() != self.indexes.len() => {
                Err(EvalError::internal("another server returned other rows"))
            }
            Some(rows) => {
                cx.add_remote_rows_read(rows.len() as u64);
                Ok(Some(rows))
            }
            None => Ok(None),
        }
    }
}
