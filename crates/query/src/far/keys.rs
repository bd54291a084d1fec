//! Asking for the rows under some keys.

use std::sync::Arc;

use cluster::ServerId;
use datum::{Datum, PrimaryKey};
use reql::EvalError;
use reql::travel::Travel;
use storage::TableId;

use super::answer::read;
use super::gather::unless_lost;
use super::question::Question;
use crate::context::Cx;
use crate::links::{SHORT, Slot};
use crate::table::ReadMode;

/// Rows another node was asked for.
pub(crate) struct FarKeys {
    slot: Arc<Slot>,
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
        FarKeys { slot: cx.service.links().ask(server, question.to_bytes(), SHORT), indexes }
    }

    /// Waits for the rows, null where there is none; `None` when they are to be looked for elsewhere.
    pub fn wait(&self, cx: &Cx) -> Result<Option<Vec<Datum>>, EvalError> {
        let rows = self.slot.wait(&cx.cancel).and_then(|bytes| read(bytes, Vec::<Datum>::unpack));
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
