//! Queries on the pool's threads: run, encoded, and sent back to their connection.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use protocol::{Failure, Token};
use reql::{Cancel, ErrorClass};

use super::answer;
use super::dialogue::{Fetch, Job};
use super::mail::{Letter, Mail, Tally};
use crate::pool::QueryPool;
use crate::service::{Answer, BlockingWork, Session, Work};

/// Where a piece of work belongs and where its answer goes.
pub struct Errand {
    /// The query.
    pub token: Token,
    /// The piece of work.
    pub job: Job,
    /// The connection.
    pub mail: Arc<Mail>,
    /// What to count.
    pub tally: Tally,
    /// Whether the client wants no answer.
    pub noreply: bool,
}

impl Errand {
    /// Runs a query that was read on the connection's thread.
    pub fn run(self, pool: &QueryPool, cancel: Arc<Cancel>, work: BlockingWork) {
        pool.run(move || {
            let answer = guarded(|| work(cancel));
            self.send(answer);
        });
    }

    /// Reads and runs a query that is too long to be read on the connection's thread.
    pub fn run_unread(
        mut self,
        pool: &QueryPool,
        cancel: Arc<Cancel>,
        session: Arc<dyn Session>,
        body: Bytes,
    ) {
        pool.run(move || {
            let answer = guarded(|| {
                let begun = session.begin(body);
                self.noreply = begun.noreply;
                self.tally.kind = begun.kind;
                match begun.work {
                    Work::Done(answer) => answer,
                    Work::Pending(answer) => tokio::runtime::Handle::current().block_on(answer),
                    Work::Blocking(work) => work(cancel),
                }
            });
            self.send(answer);
        });
    }

    /// Fetches a stream's next batch.
    pub fn fetch(self, pool: &QueryPool, fetch: Fetch) {
        let Fetch { mut cursor, .. } = fetch;
        pool.run(move || {
            let answer = guarded(|| {
                let batch = cursor.next_batch()?;
                Ok(Answer::Stream { batch, cursor: Some(cursor) })
            });
            self.send(answer);
        });
    }

    fn send(self, answer: Result<Answer, Failure>) {
        let Errand { token, job, mail, mut tally, noreply } = self;
        tally.failed = answer.is_err();
        let mut frame = Vec::new();
        // The cursor of a noreply query ends here: nobody can ask for its next batch.
        let cursor = if noreply { None } else { answer::write(&mut frame, token, answer) };
        mail.deliver(Letter { token, job, frame, cursor, tally, noreply });
    }
}

/// A panic is a fault of ours: it costs its query, not the connection.
fn guarded(work: impl FnOnce() -> Result<Answer, Failure>) -> Result<Answer, Failure> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let what = panic.downcast_ref::<String>().map(String::as_str);
        let what = what.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        tracing::error!("a query panicked: {what}");
        Err(Failure::runtime(
            ErrorClass::Internal,
            format!("The server failed while it ran this query: {what}"),
        ))
    })
}
