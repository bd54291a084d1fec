//! A query about one row that another node has: asked on this thread, answered when the links have
//! the answer. Only a row that was not where it was looked for takes a thread.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use cluster::{AskError, ServerId};
use datum::Datum;
use reql::travel::Travel;
use reql::wire::Query;
use reql::{Cancel, EvalError};

use crate::answer::Answer;
use crate::error::QueryError;
use crate::far::{Question, lost_write, read, unpack_reports};
use crate::links::{OneShot, SHORT, Slot, Trouble};
use crate::session::Session;
use crate::write::WriteResult;

/// A query about one row on its way to another node. Completes with the result the client gets.
#[must_use = "it may still fail"]
pub struct FarPoint {
    state: State,
    again: Again,
}

enum State {
    /// The other node was asked; a write has the result it is added to.
    Asked(Arc<Slot>, Option<WriteResult>),
    /// The row was not there and is looked for.
    Sought(Arc<OneShot<Result<Datum, EvalError>>>),
}

/// What is needed to begin anew.
pub(super) struct Again {
    session: Session,
    query: Option<Query>,
}

impl Again {
    /// The query once more, in full.
    pub fn new(session: &Session, query: &Query) -> Again {
        let Query { kind, term, optargs } = query;
        let query = Query { kind: *kind, term: term.clone(), optargs: optargs.clone() };
        let session = Session::new(session.service.clone(), session.client.clone());
        Again { session, query: Some(query) }
    }

    /// Runs the query the long way on a thread of its own, if it was not yet.
    fn run(&mut self) -> Arc<OneShot<Result<Datum, EvalError>>> {
        let sought = Arc::new(OneShot::default());
        let session = Session::new(self.session.service.clone(), self.session.client.clone());
        let (found, query) = (sought.clone(), self.query.take());
        self.session.service.seekers.run(move || {
            let query = query.ok_or_else(|| EvalError::internal("a query was looked for twice"));
            found.tell(query.and_then(|query| run_long(&session, &query)));
        });
        sought
    }
}

fn run_long(session: &Session, query: &Query) -> Result<Datum, EvalError> {
    match session.run(query, Arc::new(Cancel::new())) {
        Ok(answered) => match answered.answer {
            Answer::Atom(datum) => Ok(datum),
            Answer::Stream(_) => Err(EvalError::internal("one row became a stream")),
        },
        Err(QueryError::Eval(error)) => Err(error),
        Err(QueryError::Compile(error)) => Err(EvalError::internal(error.to_string())),
    }
}

impl FarPoint {
    /// Looks for the row the long way.
    pub(super) fn seek(mut again: Again) -> FarPoint {
        FarPoint { state: State::Sought(again.run()), again }
    }

    /// Asks `server`; for a write `result` is what its report is added to.
    pub(super) fn ask(
        again: Again,
        server: ServerId,
        question: &Question,
        result: Option<WriteResult>,
    ) -> FarPoint {
        let slot = again.session.service.links().ask(server, question.to_bytes(), SHORT);
        FarPoint { state: State::Asked(slot, result), again }
    }
}

impl Future for FarPoint {
    type Output = Result<Datum, EvalError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let answer = match &mut self.state {
                State::Sought(sought) => return sought.poll(context),
                State::Asked(slot, result) => match slot.poll(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(answer) => finished(answer, result.take()),
                },
            };
            match answer {
                Ok(datum) => return Poll::Ready(Ok(datum)),
                Err(Some(error)) => return Poll::Ready(Err(error)),
                Err(None) => self.state = State::Sought(self.again.run()),
            }
        }
    }
}

/// What the client gets; no error means that the row is to be looked for.
fn finished(
    answer: Result<Bytes, AskError>,
    result: Option<WriteResult>,
) -> Result<Datum, Option<EvalError>> {
    let is_write = result.is_some();
    let read = answer.map_err(Trouble::from).and_then(|bytes| match result {
        None => read(bytes, Vec::<Datum>::unpack).map(|mut rows| rows.pop()),
        Some(mut result) => {
            let report = read(bytes, unpack_reports)?.pop().flatten();
            Ok(report.map(|report| {
                result.add(report);
                result.into_datum()
            }))
        }
    });
    match read {
        Ok(Some(datum)) => Ok(datum),
        Err(Trouble::Eval(error)) => Err(Some(error)),
        Err(Trouble::NoAnswer) if is_write => Err(Some(lost_write())),
        Ok(None) | Err(Trouble::Moved | Trouble::NotConnected | Trouble::NoAnswer) => Err(None),
    }
}
