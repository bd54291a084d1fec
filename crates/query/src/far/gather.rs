//! Asking for partial results: one question per node, all at the same time.

use std::sync::Arc;

use cluster::ServerId;
use datum::KeyRange;
use reql::travel::Travel;
use reql::{EvalError, Pipeline, Tally};

use super::answer::read;
use super::question::{Part, Question};
use crate::context::{Cx, Surroundings};
use crate::links::{LONG, Slot, Trouble};

/// A partial result another node is asked for.
pub(crate) struct FarTally {
    slot: Arc<Slot>,
    server: ServerId,
    ticket: u64,
    /// What it is of: to be looked for again when it is not there.
    pub ranges: Vec<KeyRange>,
}

impl FarTally {
    /// Asks `server` what `pipeline` makes of `part`.
    pub fn ask(cx: &Cx, server: ServerId, part: Part, pipeline: &Pipeline) -> FarTally {
        let (around, pipeline, ranges) = (Surroundings::of(cx), pipeline.clone(), part.ranges.clone());
        let ticket = cx.service.links().number();
        let question = Question::Gather { ticket, part, around, pipeline };
        FarTally::send(cx, server, ticket, ranges, &question)
    }

    /// Asks `server` how many rows there are in `part`.
    pub fn ask_count(cx: &Cx, server: ServerId, part: Part) -> FarTally {
        let (ticket, ranges) = (cx.service.links().number(), part.ranges.clone());
        FarTally::send(cx, server, ticket, ranges, &Question::Count { ticket, part })
    }

    fn send(cx: &Cx, server: ServerId, ticket: u64, ranges: Vec<KeyRange>, question: &Question) -> FarTally {
        let slot = cx.service.links().ask(server, question.to_bytes(), LONG);
        FarTally { slot, server, ticket, ranges }
    }

    /// Asks `server` whether the index of `part` names few of the rows.
    pub fn ask_few(cx: &Cx, server: ServerId, part: Part) -> FarTally {
        let (ticket, ranges) = (cx.service.links().number(), part.ranges.clone());
        FarTally::send(cx, server, ticket, ranges, &Question::Few { ticket, part })
    }

    /// Waits for the partial result; `None` when it is to be looked for elsewhere.
    pub fn tally(&self, cx: &Cx) -> Result<Option<Tally>, EvalError> {
        let answer = self.slot.wait(&cx.cancel);
        let tally = answer.and_then(|bytes| read(bytes, |from| Ok((Tally::unpack(from)?, from.count()?))));
        Ok(unless_lost(tally)?.map(|(tally, looked_at)| {
            cx.looked_at_elsewhere(looked_at);
            tally
        }))
    }

    /// Waits for whether there are few; `None` when nobody knows.
    pub fn few(&self, cx: &Cx) -> Option<bool> {
        self.slot.wait(&cx.cancel).and_then(|bytes| read(bytes, bool::unpack)).ok()
    }

    /// Waits for the number of rows; `None` when it is to be looked for elsewhere.
    pub fn count(&self, cx: &Cx) -> Result<Option<u64>, EvalError> {
        unless_lost(self.slot.wait(&cx.cancel).and_then(|bytes| read(bytes, u64::unpack)))
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
        Err(Trouble::Eval(error)) => Err(error),
        Err(Trouble::Moved(_) | Trouble::NotConnected | Trouble::NoAnswer) => Ok(None),
    }
}
