//! Asking for partial results: one question per node, all at the same time.

use std::sync::Arc;

use bytes::Bytes;
use cluster::{Catalog, ServerId};
use datum::KeyRange;
use reql::codec::Codec;
use reql::{EvalError, Pipeline, Tally};
use storage::TableId;

use super::answer::read;
use super::part::Part;
use super::question::Question;
use super::waiting::{shards_in, wait, wanted_by};
use crate::context::{Cx, Surroundings};
use crate::links::{LONG, Slot, Trouble};
use crate::read_mode::ReadMode;

/// A partial result another node is asked for.
pub(crate) struct FarTally {
    slot: Arc<Slot>,
    server: ServerId,
    ticket: u64,
    table: TableId,
    mode: ReadMode,
    /// What it is of: to be looked for again when it is not there.
    pub ranges: Vec<KeyRange>,
}

impl FarTally {
    /// Asks `server` what `pipeline` makes of `part`.
    pub fn ask(cx: &Cx, server: ServerId, part: Part, pipeline: &Pipeline) -> FarTally {
        let (around, pipeline) = (Surroundings::of(cx), pipeline.clone());
        FarTally::send(cx, server, part, |ticket, part| Question::Gather { ticket, part, around, pipeline })
    }

    /// Asks `server` how many rows there are in `part`.
    pub fn ask_count(cx: &Cx, server: ServerId, part: Part) -> FarTally {
        FarTally::send(cx, server, part, |ticket, part| Question::Count { ticket, part })
    }

    fn send(cx: &Cx, server: ServerId, part: Part, question: impl FnOnce(u64, Part) -> Question) -> FarTally {
        let (ticket, table, mode) = (cx.service.links().number(), part.table, part.mode);
        let ranges = part.ranges.clone();
        let slot = cx.service.links().ask(server, question(ticket, part).to_bytes(), LONG);
        FarTally { slot, server, ticket, table, mode, ranges }
    }

    fn wait(&self, cx: &Cx) -> Result<Bytes, Trouble> {
        let shards = |catalog: &Catalog| shards_in(catalog, self.table, &self.ranges);
        wait(cx, &self.slot, self.server, wanted_by(self.mode), shards)
    }

    /// Asks `server` whether the index of `part` names few of the rows.
    pub fn ask_few(cx: &Cx, server: ServerId, part: Part) -> FarTally {
        FarTally::send(cx, server, part, |ticket, part| Question::Few { ticket, part })
    }

    /// Waits for the partial result; `None` when it is to be looked for elsewhere.
    pub fn tally(&self, cx: &Cx) -> Result<Option<Tally>, EvalError> {
        let tally =
            self.wait(cx).and_then(|bytes| read(bytes, |from| Ok((Tally::unpack(from)?, from.count()?))));
        Ok(unless_lost(tally)?.map(|(tally, looked_at)| {
            cx.looked_at_elsewhere(looked_at);
            tally
        }))
    }

    /// Waits for whether there are few; `None` when nobody knows.
    pub fn few(&self, cx: &Cx) -> Option<bool> {
        self.wait(cx).and_then(|bytes| read(bytes, bool::unpack)).ok()
    }

    /// Waits for the number of rows; `None` when it is to be looked for elsewhere.
    pub fn count(&self, cx: &Cx) -> Result<Option<u64>, EvalError> {
        unless_lost(self.wait(cx).and_then(|bytes| read(bytes, u64::unpack)))
    }

    /// Tells the node to stop, if it is still at it: the result is not wanted any more.
    pub fn cancel(&self, cx: &Cx) {
        let question = Question::Cancel { ticket: self.ticket };
        cx.service.links().tell(self.server, question.to_bytes());
    }
}

/// What was read, or `None` when it may be there for another try: reading twice harms nobody.
pub(crate) fn unless_lost<T>(answer: Result<T, Trouble>) -> Result<Option<T>, EvalError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(Trouble::Eval(error) | Trouble::Unasked(error)) => Err(error),
        Err(Trouble::Moved(_) | Trouble::NotConnected | Trouble::NoAnswer) => Ok(None),
    }
}
