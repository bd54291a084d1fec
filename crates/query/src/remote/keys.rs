//! Asking for the rows under some keys.

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
use crate::routing::{ReadMode, ResponseSlot, SHORT};
use crate::table::StoredTable;

/// Rows another node was asked for.
pub(crate) struct RemoteKeys {
    slot: Arc<ResponseSlot>,
    server: ServerId,
    /// Which of the wanted rows they are.
    pub indexes: Vec<usize>,
}

impl RemoteKeys {
    /// Asks `server` for the rows under `keys`, which are those at `indexes`.
    pub fn ask(
        cx: &Cx,
        server: ServerId,
        (table, mode): (TableId, ReadMode),
        keys: Vec<PrimaryKey>,
        indexes: Vec<usize>,
    ) -> RemoteKeys {
        let request = Request::Get { table, mode, keys };
        RemoteKeys { slot: cx.service.peers().call(server, request.to_bytes(), SHORT), server, indexes }
    }

    /// Waits for the rows, null where there is none; `None` when they are to be looked for elsewhere. `keys` are
    /// all that are wanted.
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
        let answer = wait(cx, &self.slot, self.server, failover_for(table.read_mode), shards);
        let rows = answer.and_then(|bytes| read(bytes, Vec::<Datum>::unpack));
        match unless_not_here(rows)? {
            Some(rows) if rows.len() != self.indexes.len() => {
                Err(EvalError::internal("another server answered about other rows"))
            }
            Some(rows) => {
                cx.add_remote_rows_read(rows.len() as u64);
                Ok(Some(rows))
            }
            None => Ok(None),
        }
    }
}
