//! Queries on the pool's threads: they run there, are encoded there, and are sent back to their connection.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ::io::memory::{Account, Budget, Owner, Reservation};
use bytes::Bytes;
use protocol::{Failure, Token};
use reql::{Cancel, ErrorClass};

use super::completions::{Completion, CompletionQueue, QueryMetrics};
use super::stream::Stream;
use super::token_table::{Fetch, Job};
use super::{response_frame, room};
use crate::service::{Answer, BlockingWork, Session, Work};
use crate::worker_state::Shared;

/// Identifies a piece of work on a pool thread and where its response goes.
pub struct PoolJob {
    /// The query's token.
    pub token: Token,
    /// The job within the connection.
    pub job: Job,
    /// The queue of the connection.
    pub completions: Arc<CompletionQueue>,
    /// The values to record.
    pub metrics: QueryMetrics,
    /// Whether the client wants no answer.
    pub noreply: bool,
}

/// The batch of a stream that an answer has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamStage {
    /// The first one, or the answer is no stream.
    First,
    Later,
}

impl PoolJob {
    /// Runs a query that was read on the connection's thread.
    pub fn run(self, shared: &Shared, cancel: Arc<Cancel>, work: BlockingWork) {
        let memory = shared.memory.clone();
        shared.pool.run(move || {
            let account = Account::new(memory.clone());
            let counting = account.enter();
            let answer = guarded(|| work(cancel));
            let encoded = self.encode(answer, StreamStage::First, &account, memory);
            drop(counting);
            encoded.send(account);
        });
    }

    /// Reads and runs a query that is too long to be read on the connection's thread. Its text comes with its
    /// reservation.
    pub fn run_unread(
        mut self,
        shared: &Shared,
        cancel: Arc<Cancel>,
        session: Arc<dyn Session>,
        (body, text_hold): (Bytes, Reservation),
    ) {
        let (memory, service) = (shared.memory.clone(), shared.service.clone());
        shared.pool.run(move || {
            let account = Account::new(memory.clone());
            let counting = account.enter();
            let answer = guarded(|| {
                let begun = session.begin(body);
                self.noreply = begun.noreply;
                self.metrics.kind = begun.kind;
                match begun.work {
                    Work::Done(answer) => answer,
                    Work::Pending(answer) => {
                        service.drive();
                        tokio::runtime::Handle::current().block_on(answer)
                    }
                    Work::Blocking(work) => work(cancel),
                }
            });
            let encoded = self.encode(answer, StreamStage::First, &account, memory);
            drop((counting, text_hold));
            encoded.send(account);
        });
    }

    /// Fetches a stream's next batch.
    pub fn fetch(self, shared: &Shared, fetch: Fetch) {
        let memory = shared.memory.clone();
        shared.pool.run(move || {
            let (mut cursor, account) = fetch.stream.resume();
            let counting = account.enter();
            let is_feed = cursor.is_feed();
            let answer = guarded(|| {
                let batch = cursor.next_batch()?;
                Ok(Answer::Stream { batch, cursor: Some(cursor) })
            });
            let answer = match answer {
                Ok(Answer::Stream { batch, cursor: Some(cursor) })
                    if is_feed && batch.items.is_empty() && !batch.done =>
                {
                    drop(counting);
                    return self.send_waiting(Stream::idle(cursor, account), memory);
                }
                answer => answer,
            };
            let encoded = self.encode(answer, StreamStage::Later, &account, memory);
            drop(counting);
            encoded.send(account);
        });
    }

    /// Returns a changefeed that has no element yet to its connection. An empty batch is no response: the Python driver 2.4 does not
    /// ask for another one after it.
    fn send_waiting(self, stream: Stream, memory: Arc<Budget>) {
        let PoolJob { token, job, completions, metrics, noreply } = self;
        let (frame, hold) = (Vec::new(), Reservation::new(memory, Owner::Connections));
        let stream = Some(stream);
        completions.push(Completion { token, job, frame, hold, stream, metrics, noreply, is_waiting: true });
    }

    /// Encodes the answer. From here on the connection's budget is charged for the frame.
    fn encode(
        self,
        answer: Result<Answer, Failure>,
        stream: StreamStage,
        account: &Account,
        memory: Arc<Budget>,
    ) -> Encoded {
        let answer = room::with_room(answer, &memory);
        let mut failed = answer.is_err();
        let mut frame = Vec::new();
        // The cursor of a noreply query is dropped: no client can ask for its next batch.
        let mut cursor =
            if self.noreply { None } else { response_frame::write(&mut frame, self.token, answer) };
        let mut hold = Reservation::new(memory.clone(), Owner::Connections);
        let mut has_room = room::charge(&mut hold, &frame, frame.capacity());
        if has_room.is_ok() && cursor.is_some() && stream == StreamStage::First {
            has_room = memory.check_share(Owner::Cursors);
        }
        if let Err(over) = has_room {
            (frame, cursor, failed) = (room::refusal(self.token, over), None, true);
            hold.set(frame.capacity() as u64);
        }
        // From here on the connection has it.
        account.disown(frame.capacity() as u64);
        Encoded { job_info: self, frame, hold, cursor, failed }
    }
}

/// An encoded response.
struct Encoded {
    job_info: PoolJob,
    frame: Vec<u8>,
    hold: Reservation,
    cursor: Option<Box<dyn crate::service::Cursor>>,
    failed: bool,
}

impl Encoded {
    /// Sends it to its connection, with the rest of the stream.
    fn send(self, account: Arc<Account>) {
        let Encoded {
            job_info: PoolJob { token, job, completions, mut metrics, noreply },
            frame,
            hold,
            cursor,
            failed,
        } = self;
        metrics.failed = failed;
        let stream = cursor.map(|cursor| Stream::idle(cursor, account));
        completions.push(Completion { token, job, frame, hold, stream, metrics, noreply, is_waiting: false });
    }
}

/// Runs `work`. A panic is a bug of the server: the query fails and the connection stays open.
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
