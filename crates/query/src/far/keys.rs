//! Asking for the rows under some keys.

use std::sync::Arc;

use cluster::{Catalog, ServerId};
use datum::{Datum, PrimaryKey};
use reql::EvalError;
use reql::codec::Codec;
use storage::TableId;

use super::answer::read;
use super::gather::unless_lost;
use super::question::Question;
use super::waiting::{shards_of, wait, wanted_by};
use crate::context::Cx;
use crate::links::{SHORT, Slot};
use crate::read_mode::ReadMode;
use crate::table::StoredTable;

/// Rows another node was asked for.
pub(crate) struct FarKeys {
    slot: Arc<Slot>,
    server: ServerId,
    /// Which of the wanted rows they are.
    pub indexes: Vec<usize>,
}

impl FarKeys {
    /// Asks `server` for the rows under `keys`, which are those at `indexes`.
    pub fn ask(
        cx: &Cx,
        server: ServerId,
        (table, mode): (TableId, ReadMode),
        keys: Vec<PrimaryKey>,
        indexes: Vec<usize>,
    ) -> FarKeys {
        let question = Question::Get { table, mode, keys };
        FarKeys { slot: cx.service.links().ask(server, question.to_bytes(), SHORT), server, indexes }
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
        let answer = wait(cx, &self.slot, self.server, wanted_by(table.read_mode), shards);
        let rows = answer.and_then(|bytes| read(bytes, Vec::<Datum>::unpack));
        match unless_lost(rows)? {
            Some(rows) if rows.len() != self.indexes.len() => {
                Err(EvalError::internal("another server answered about other rows"))
            }
            Some(rows) => {
                cx.looked_at_elsewhere(rows.len() as u64);
                Ok(Some(rows))
            }
            None => Ok(None),
        }
    }
}
