//! The queries of one connection: which run, which are queued, and what each is answered.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Waker};
use std::time::Instant;

use ::io::memory::{Account, Owner, Reservation};
use bytes::Bytes;
use protocol::frame::Frame;
use protocol::request::{self, QueryType};
use protocol::{Failure, Token, response};
use reql::EvalError;

use super::completions::{Completion, CompletionQueue, QueryMetrics};
use super::pool_job::PoolJob;
use super::stream::Stream;
use super::token_table::{ContinueStep, DoneStep, Fetch, Job, Reply, StopStep, TokenTable};
use super::{response_frame, room};
use crate::connection::delayed_ack::DELAYED_ACK_TIMEOUT;
use crate::connection::send_buffer::SendBuffer;
use crate::service::{Answer, ParsedQuery, PendingAnswer, PolledBatch, QueryKind, Session, Work};
use crate::worker_state::WorkerState;

/// Longer queries are parsed on a thread of the pool.
const INLINE_BODY_BYTES: usize = 64 << 10;

/// The queries of one connection, from frame to response.
pub struct QuerySession {
    worker: Rc<WorkerState>,
    session: Arc<dyn Session>,
    completions: Arc<CompletionQueue>,
    /// Wakes this connection from any thread. Pending answers are polled with it.
    waker: Waker,
    jobs_max: usize,
    tokens: TokenTable,
    pending: Vec<Pending>,
    /// Whether a response took at least [`DELAYED_ACK_TIMEOUT`].
    was_slow: bool,
}

/// A write that waits for the log, or a request to another node.
struct Pending {
    token: Token,
    job: Job,
    noreply: bool,
    metrics: QueryMetrics,
    answer: PendingAnswer,
}

impl QuerySession {
    /// A session without queries. At most `jobs_max` queries run at the same time.
    pub fn new(
        worker: Rc<WorkerState>,
        session: Arc<dyn Session>,
        completions: Arc<CompletionQueue>,
        waker: Waker,
        jobs_max: usize,
    ) -> QuerySession {
        let (tokens, pending) = (TokenTable::default(), Vec::new());
        QuerySession { worker, session, completions, waker, jobs_max, tokens, pending, was_slow: false }
    }

    /// Whether the next query must wait for one of the running queries to end.
    pub fn is_full(&self) -> bool {
        self.tokens.jobs() >= self.jobs_max
    }

    /// Whether no query runs.
    pub fn is_idle(&self) -> bool {
        self.tokens.jobs() == 0
    }

    /// Whether one of the responses since the last call took at least [`DELAYED_ACK_TIMEOUT`].
    pub fn was_slow(&mut self) -> bool {
        std::mem::take(&mut self.was_slow)
    }

    /// Cancels all running queries; each is still answered.
    pub fn interrupt(&mut self) {
        self.tokens.cancel_all();
        self.tokens.parked().into_iter().for_each(|token| self.completions.feed_waker(token).wake());
    }

    /// Handles one query; appends the response if it is ready.
    pub fn on_frame(&mut self, frame: Frame<'_>, out: &mut SendBuffer) {
        let Frame { token, body } = frame;
        match request::query_type(body) {
            Ok(QueryType::Start) => self.on_start(token, body, out),
            Ok(QueryType::Continue) => self.on_continue(token, out),
            Ok(QueryType::Stop) => self.on_stop(token, out),
            Ok(QueryType::NoreplyWait) => {
                self.tokens.wait(token);
                self.answer_waits(out);
            }
            Ok(QueryType::ServerInfo) => {
                let info = self.worker.shared.service.server_info();
                response::write_server_info(out.bytes(&self.worker), token, &info);
                self.count(metrics(QueryKind::Session));
            }
            Err(failure) => self.refuse(token, QueryKind::Malformed, &failure, out),
        }
    }

    /// Takes the responses of other threads and polls the pending answers.
    pub fn collect(&mut self, out: &mut SendBuffer) {
        for completion in self.completions.take() {
            let Completion { token, job, frame, hold: _hold, stream, metrics, noreply, is_waiting } =
                completion;
            if is_waiting {
                self.end_job();
                let step = self.tokens.done_without_batch(token, job, stream);
                self.after_job(token, step, out, |_, _| {});
                continue;
            }
            let frame = if noreply { Vec::new() } else { frame };
            self.was_slow |= !noreply && metrics.started.elapsed() >= DELAYED_ACK_TIMEOUT;
            self.count(metrics);
            self.end_job();
            let step = self.tokens.done(token, job, stream);
            self.after_job(token, step, out, |out, worker| out.append(frame, worker));
        }
        for token in self.completions.take_ready() {
            if let Some(fetch) = self.tokens.unpark(token) {
                self.fetch(token, fetch, out);
            }
        }
        self.poll_pending(out);
        self.answer_waits(out);
    }

    fn on_start(&mut self, token: Token, body: &[u8], out: &mut SendBuffer) {
        if self.tokens.in_use(token) {
            let failure = Failure::client(format!("ERROR: duplicate token {token}"));
            return self.refuse(token, QueryKind::Malformed, &failure, out);
        }
        let started = Instant::now();
        if body.len() > INLINE_BODY_BYTES {
            let Some(text_hold) = self.reserve_text(token, body, out) else { return };
            let (job, cancel) = self.start_job(token, Reply::Unknown);
            let pool_job = self.pool_job(token, job, metrics(QueryKind::Read), false);
            let body = Bytes::copy_from_slice(body);
            let text = (body, text_hold);
            return pool_job.run_unread(&self.worker.shared, cancel, self.session.clone(), text);
        }
        let counting = self.worker.account.enter();
        let ParsedQuery { noreply, kind, work } = self.session.begin(Bytes::copy_from_slice(body));
        drop(counting);
        let metrics = QueryMetrics { kind, started, failed: false };
        let reply = if noreply { Reply::Unwanted } else { Reply::Wanted };
        match work {
            Work::Done(answer) => self.answer_now(token, reply, metrics, answer, out),
            Work::Pending(answer) => {
                self.worker.request_drive();
                let job = self.start_brief_job(token, reply);
                self.pending.push(Pending { token, job, noreply, metrics, answer });
                self.poll_last(out);
            }
            Work::Blocking(work) => {
                let (job, cancel) = self.start_job(token, reply);
                self.pool_job(token, job, metrics, noreply).run(&self.worker.shared, cancel, work);
            }
        }
    }

    /// Reserves memory for the text of a long query while it runs. If there is none, refuses the query.
    fn reserve_text(&mut self, token: Token, body: &[u8], out: &mut SendBuffer) -> Option<Reservation> {
        let mut hold = Reservation::new(self.worker.shared.memory.clone(), Owner::Queries);
        let Err(over) = hold.grow_to(body.len() as u64) else { return Some(hold) };
        if request::asks_for_noreply(body) {
            self.count(QueryMetrics { failed: true, ..metrics(QueryKind::Read) });
        } else {
            self.refuse(token, QueryKind::Read, &Failure::from(EvalError::memory(over)), out);
        }
        None
    }

    fn answer_now(
        &mut self,
        token: Token,
        reply: Reply,
        mut metrics: QueryMetrics,
        answer: Result<Answer, Failure>,
        out: &mut SendBuffer,
    ) {
        let answer = room::with_room(answer, &self.worker.shared.memory);
        metrics.failed = answer.is_err();
        if reply == Reply::Wanted
            && let Some(cursor) = response_frame::write(out.bytes(&self.worker), token, answer)
        {
            let account = Account::new(self.worker.shared.memory.clone());
            self.tokens.keep(token, Stream::idle(cursor, account));
        }
        self.count(metrics);
    }

    fn on_continue(&mut self, token: Token, out: &mut SendBuffer) {
        match self.tokens.resume(token) {
            ContinueStep::UnknownToken => self.refuse(token, QueryKind::Continue, &unknown(token), out),
            ContinueStep::Queued => {}
            ContinueStep::Fetch(fetch) => self.fetch(token, fetch, out),
        }
    }

    fn on_stop(&mut self, token: Token, out: &mut SendBuffer) {
        match self.tokens.stop(token) {
            StopStep::UnknownToken => self.refuse(token, QueryKind::Stop, &unknown(token), out),
            StopStep::Stopped { answers } => {
                for _ in 0..answers {
                    response::write_empty_sequence(out.bytes(&self.worker), token);
                }
                self.count(metrics(QueryKind::Stop));
            }
        }
    }

    /// Fetches the next batch of a stream: of a changefeed here, if it has elements, and otherwise on a thread of the pool.
    fn fetch(&mut self, token: Token, mut fetch: Fetch, out: &mut SendBuffer) {
        let mut metrics = metrics(QueryKind::Continue);
        if fetch.stream.cursor.is_feed() {
            let waker = self.completions.feed_waker(token);
            let counting = fetch.stream.account.enter();
            let polled = fetch.stream.cursor.poll_batch(&waker);
            drop(counting);
            match polled {
                PolledBatch::Waiting => return self.tokens.park(token, fetch),
                PolledBatch::Ready(batch) => {
                    metrics.failed = batch.is_err();
                    self.count(metrics);
                    let Fetch { stream, job } = fetch;
                    let more = batch.as_ref().is_ok_and(|batch| !batch.done).then_some(stream);
                    let step = self.tokens.done(token, job, more);
                    let answer = batch.map(|batch| Answer::Stream { batch, cursor: None });
                    return self.after_job(token, step, out, |out, worker| {
                        response_frame::write(out.bytes(worker), token, answer);
                    });
                }
                PolledBatch::NeedsThread => {}
            }
        }
        self.worker.counters.running.fetch_add(1, Relaxed);
        let pool_job = self.pool_job(token, fetch.job, metrics, false);
        pool_job.fetch(&self.worker.shared, fetch);
    }

    /// Sends a job's response, unless its query was stopped, and does what follows from its end.
    fn after_job(
        &mut self,
        token: Token,
        step: DoneStep,
        out: &mut SendBuffer,
        send: impl FnOnce(&mut SendBuffer, &WorkerState),
    ) {
        match step {
            DoneStep::Forget => {}
            DoneStep::Send { refuse } => {
                send(out, &self.worker);
                for _ in 0..refuse {
                    self.refuse(token, QueryKind::Continue, &unknown(token), out);
                }
            }
            DoneStep::SendAndFetch(fetch) if fetch.stream.cursor.is_feed() => {
                send(out, &self.worker);
                // Not at once: a client may have sent many requests, and other connections have their turn first.
                self.tokens.park(token, fetch);
                self.completions.feed_waker(token).wake();
            }
            DoneStep::SendAndFetch(fetch) => {
                send(out, &self.worker);
                self.fetch(token, fetch, out);
            }
        }
    }

    fn poll_pending(&mut self, out: &mut SendBuffer) {
        // Backwards: `swap_remove` moves the last answer, which was already polled, to the place of one that ended.
        for index in (0..self.pending.len()).rev() {
            self.poll_one(index, out);
        }
    }

    /// Polls the newest pending answer: its log may answer at once.
    fn poll_last(&mut self, out: &mut SendBuffer) {
        if let Some(index) = self.pending.len().checked_sub(1) {
            self.poll_one(index, out);
        }
    }

    fn poll_one(&mut self, index: usize, out: &mut SendBuffer) {
        let Some(pending) = self.pending.get_mut(index) else { return };
        let std::task::Poll::Ready(answer) =
            pending.answer.as_mut().poll(&mut Context::from_waker(&self.waker))
        else {
            return;
        };
        let Pending { token, job, noreply, mut metrics, .. } = self.pending.swap_remove(index);
        let answer = room::with_room(answer, &self.worker.shared.memory);
        metrics.failed = answer.is_err();
        self.was_slow |= !noreply && metrics.started.elapsed() >= DELAYED_ACK_TIMEOUT;
        self.count(metrics);
        self.end_job();
        let step = self.tokens.done(token, job, None);
        self.after_job(token, step, out, |out, worker| {
            if !noreply {
                response_frame::write(out.bytes(worker), token, answer);
            }
        });
    }

    fn answer_waits(&mut self, out: &mut SendBuffer) {
        for token in self.tokens.take_finished_waits() {
            response::write_wait_complete(out.bytes(&self.worker), token);
            self.count(metrics(QueryKind::Session));
        }
    }

    fn refuse(&mut self, token: Token, kind: QueryKind, failure: &Failure, out: &mut SendBuffer) {
        response::write_failure(out.bytes(&self.worker), token, failure);
        self.count(QueryMetrics { failed: true, ..metrics(kind) });
    }

    fn pool_job(&self, token: Token, job: Job, metrics: QueryMetrics, noreply: bool) -> PoolJob {
        PoolJob { token, job, completions: self.completions.clone(), metrics, noreply }
    }

    fn start_job(&mut self, token: Token, reply: Reply) -> (Job, Arc<reql::Cancel>) {
        self.worker.counters.running.fetch_add(1, Relaxed);
        self.tokens.start(token, reply)
    }

    fn start_brief_job(&mut self, token: Token, reply: Reply) -> Job {
        self.worker.counters.running.fetch_add(1, Relaxed);
        self.tokens.start_brief(token, reply)
    }

    fn end_job(&self) {
        self.worker.counters.running.fetch_sub(1, Relaxed);
    }

    fn count(&self, metrics: QueryMetrics) {
        let counters = &self.worker.counters;
        counters.latency(metrics.kind).record(metrics.started.elapsed());
        if metrics.failed {
            counters.failures.fetch_add(1, Relaxed);
        }
    }
}

/// The client has disconnected: its queries are cancelled.
impl Drop for QuerySession {
    fn drop(&mut self) {
        self.tokens.cancel_all();
        self.worker.counters.running.fetch_sub(self.tokens.jobs() as i64, Relaxed);
    }
}

fn metrics(kind: QueryKind) -> QueryMetrics {
    QueryMetrics { kind, started: Instant::now(), failed: false }
}

fn unknown(token: Token) -> Failure {
    Failure::client(format!("Token {token} not in stream cache."))
}
