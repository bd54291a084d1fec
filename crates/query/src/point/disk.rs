//! Point queries whose row is on disk. A reader thread runs them as the fast path would have, except that it may wait for
//! the disk; meanwhile the connection goes on with other queries.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use datum::{Datum, PrimaryKey};
use reql::EvalError;
use storage::{Reach, TableId};

use super::PointAnswer;
use super::remote::{CallMode, evaluate_query};
use crate::routing::OneShot;
use crate::session::{Query, Session};

/// A point query that waits for the disk. Completes with the result for the client.
#[must_use = "it may still fail"]
pub struct DiskPoint(DiskPointState);

enum DiskPointState {
    /// A reader thread has it.
    Reading(Arc<OneShot<Begun>>),
    /// The row was read, and the result waits for something else.
    Pending(PendingResult),
    /// The slow path evaluates the query.
    Evaluating(Arc<OneShot<Result<Datum, EvalError>>>),
}

type PendingResult = Pin<Box<dyn Future<Output = Result<Datum, EvalError>> + Send>>;

/// How far a reader thread has brought a query.
enum Begun {
    Finished(Result<Datum, EvalError>),
    Pending(PendingResult),
    /// It is no query of the fast path any more.
    NotFast(Arc<OneShot<Result<Datum, EvalError>>>),
}

/// Passes a result on; an error, if it is dropped without one.
struct ResultSender {
    begun: Arc<OneShot<Begun>>,
    has_sent: bool,
}

impl DiskPoint {
    /// Hands over a read.
    pub(super) fn read(session: &Session, query: &Arc<Query>) -> DiskPoint {
        let (point, job) = DiskPoint::job(session, query);
        session.service.readers.run(job);
        point
    }

    /// Hands over a write of the row under `key`.
    pub(super) fn write(session: &Session, query: &Arc<Query>, table: TableId, key: PrimaryKey) -> DiskPoint {
        let (point, job) = DiskPoint::job(session, query);
        session.service.readers.run_write(table, key, job);
        point
    }

    fn job(session: &Session, query: &Arc<Query>) -> (DiskPoint, impl FnOnce() + Send + 'static) {
        session.service.counters().from_disk.fetch_add(1, Ordering::Relaxed);
        let begun = Arc::new(OneShot::default());
        let (session, query, sender) =
            (session.clone(), query.clone(), ResultSender { begun: begun.clone(), has_sent: false });
        let job = move || sender.send(begin(&session, &query));
        (DiskPoint(DiskPointState::Reading(begun)), job)
    }
}

/// Runs the query again, now with the disk. Nothing that it needs is known yet: meanwhile the shard may have moved.
fn begin(session: &Session, query: &Arc<Query>) -> Begun {
    match session.begin_point(query, CallMode::Alone, Reach::Disk) {
        Some(PointAnswer::Read(answer)) => Begun::Finished(answer),
        Some(PointAnswer::RemoteRead(point)) => {
            session.service.flush_requests();
            Begun::Pending(Box::pin(point))
        }
        Some(PointAnswer::Write(write)) => {
            session.service.flush();
            Begun::Pending(Box::pin(write))
        }
        _ => Begun::NotFast(evaluate(session, query)),
    }
}

/// Evaluates the query on the slow path: that may take long, and reader threads are for reads.
fn evaluate(session: &Session, query: &Arc<Query>) -> Arc<OneShot<Result<Datum, EvalError>>> {
    let evaluated = Arc::new(OneShot::default());
    let (session, query, found) = (session.clone(), query.clone(), evaluated.clone());
    session.service.clone().slow_path.run(move || found.complete(evaluate_query(&session, &query)));
    evaluated
}

impl ResultSender {
    fn send(mut self, begun: Begun) {
        self.has_sent = true;
        self.begun.complete(begun);
    }
}

impl Drop for ResultSender {
    fn drop(&mut self) {
        if !self.has_sent {
            let error = EvalError::internal("the server failed while it read a row");
            self.begun.complete(Begun::Finished(Err(error)));
        }
    }
}

impl Future for DiskPoint {
    type Output = Result<Datum, EvalError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            self.0 = match &mut self.0 {
                DiskPointState::Pending(result) => return result.as_mut().poll(context),
                DiskPointState::Evaluating(evaluated) => return evaluated.poll(context),
                DiskPointState::Reading(begun) => match begun.poll(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Begun::Finished(answer)) => return Poll::Ready(answer),
                    Poll::Ready(Begun::Pending(result)) => DiskPointState::Pending(result),
                    Poll::Ready(Begun::NotFast(evaluated)) => DiskPointState::Evaluating(evaluated),
                },
            };
        }
    }
}
