//! Writes that other nodes carry out.

use std::sync::Arc;

use cluster::{Catalog, ServerId};
use datum::PrimaryKey;
use log::Durability;
use storage::TableId;

use super::answer::{read, unpack_reports};
use super::question::{Edits, Question, WriteQuestion};
use super::rules::Rules;
use super::waiting::{shards_of, wait};
use crate::context::{Cx, Surroundings};
use crate::edit::{ReturnChanges, RowReport};
use crate::links::{LONG, Slot, Trouble};
use crate::watch::Wants;

/// Rows another node was asked to write.
pub(crate) struct FarWrite {
    slot: Arc<Slot>,
    server: ServerId,
    ticket: u64,
    table: TableId,
    keys: Vec<PrimaryKey>,
    /// Which of the planned rows they are.
    pub indexes: Vec<usize>,
}

/// What is written to a table, however many rows.
#[derive(Clone, Copy)]
pub(crate) struct WriteTo {
    /// The table.
    pub table: TableId,
    /// What the write waits for; `None` leaves it to the table.
    pub durability: Option<Durability>,
    /// Whether the table's write hook has no say in it.
    pub ignore_hook: bool,
    /// What the reports must show.
    pub show: ReturnChanges,
    /// What of the table's settings the write is to go by.
    pub rules: Rules,
}

impl FarWrite {
    /// Asks `server` to write the rows under `keys`, which are those at `indexes`.
    pub fn ask(
        cx: &Cx,
        server: ServerId,
        to: WriteTo,
        keys: Vec<PrimaryKey>,
        edits: Edits,
        indexes: Vec<usize>,
    ) -> FarWrite {
        let ticket = cx.service.links().number();
        let question = Question::Write(WriteQuestion {
            ticket,
            table: to.table,
            durability: to.durability,
            ignore_hook: to.ignore_hook,
            show: to.show,
            rules: to.rules,
            around: Surroundings::of(cx),
            keys,
            edits,
        });
        // It takes as long as the functions of the edits do, which the query can stop.
        let slot = cx.service.links().ask(server, question.to_bytes(), LONG);
        let keys = match question {
            Question::Write(question) => question.keys,
            _ => Vec::new(),
        };
        FarWrite { slot, server, ticket, table: to.table, keys, indexes }
    }

    /// Waits for what became of the rows; `None` for a row that was not written because it is
    /// elsewhere.
    pub fn wait(&self, cx: &Cx) -> Result<Vec<Option<RowReport>>, Trouble> {
        let shards = |catalog: &Catalog| shards_of(catalog, self.table, &self.keys);
        let answer = wait(cx, &self.slot, self.server, Some(Wants::Leader), shards);
        if cx.cancel.is_set() && answer.is_err() {
            let question = Question::Cancel { ticket: self.ticket };
            cx.service.links().tell(self.server, question.to_bytes());
        }
        let reports = read(answer?, unpack_reports)?;
        if reports.len() == self.indexes.len() {
            return Ok(reports);
        }
        Err(Trouble::Eval(reql::EvalError::internal("another server reported on other rows")))
    }
}
