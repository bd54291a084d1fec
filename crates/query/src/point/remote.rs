//! A query about one row that another node has: asked on this thread, answered when the links have
//! the answer. Where the shard is between two leaders the query waits without a thread (`seek`) and is
//! begun anew, here or there; only what is about one row no more takes one.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster::{RpcError, ServerId, ShardHandle};
use datum::{Datum, PrimaryKey, Text};
use reql::codec::Codec;
use reql::wire::{Query, parse_shared_query};
use reql::{Cancel, EvalError};
use storage::TableId;

use super::PointAnswer;
use crate::remote::{
    Request, failover_for, lost_contact, read, unpack_reports, unreadable, unwritable, watch_for_failover,
};
use crate::routing::{
    BatchKey, BatchRpc, CallError, EncodedRequest, FailoverTo, LookupAttempts, OneShot, ReadMode,
    RemoteError, ResponseSlot, RowSlot, RowUnavailable, SHORT_CALL_TIMEOUT,
};
use crate::session::{Answer, QueryError, Session};
use crate::write::WriteResult;

/// How long a read may take when it is asked for the first time. Another try is looked after, since the server
/// may hang; this one costs nothing.
const FIRST_READ_TIMEOUT: Duration = Duration::from_secs(1);
/// Who leads may have been known just before the end of the search: that long it is asked all the same.
const LAST_ATTEMPT_EXTRA: Duration = Duration::from_secs(3);

/// A query about one row on its way to another node. Completes with the result the client gets.
#[must_use = "it may still fail"]
pub struct RemotePoint {
    state: RemotePointState,
    retry: Retry,
}

enum RemotePointState {
    /// The other node was asked; a write has the result it is added to.
    Asked(ServerId, Arc<ResponseSlot>, Option<WriteResult>),
    /// The other node was asked for this row among others.
    AskedAmong(ServerId, Arc<RowSlot>),
    /// The row was not where it was looked for, or nobody is known to lead its shard.
    NotHere,
    /// Soon it is worth another try.
    Waits(Arc<OneShot<()>>),
    /// A write that was begun anew.
    Near(LocalWrite),
    /// The query runs the long way.
    Sought(Arc<OneShot<Result<Datum, EvalError>>>),
}

/// A write that is carried out here.
pub(super) type LocalWrite = Pin<Box<dyn Future<Output = Result<Datum, EvalError>> + Send>>;

/// Where a write goes on that was begun anew.
pub(super) enum Retried {
    Near(LocalWrite),
    Far(Box<RemotePoint>),
}

/// What is needed to begin anew.
pub(super) struct Retry {
    session: Session,
    /// Its text: what was read of it is more, and is seldom needed again.
    query: Option<Text>,
    shard: ShardHandle,
    /// How a read wants its row; none for a write.
    mode: Option<ReadMode>,
    attempts: Attempts,
}

/// How often the row was not where it was looked for, and until when it is looked for.
#[derive(Clone, Copy, Default)]
pub(super) struct Attempts {
    failed: u32,
    /// Who was asked last.
    asked: Option<ServerId>,
    until: Option<Instant>,
    /// How a read is asked from now on.
    call_mode: CallMode,
}

/// With whom a read is asked, and how long its answer is waited for.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum CallMode {
    /// Together with what others ask of the same server at the moment, and not for long.
    #[default]
    First,
    /// Alone, and not for long.
    Alone,
    /// It took long already: for as long as the server does not hang.
    Retry,
}

impl Attempts {
    /// Fails when it has been tried for long enough.
    fn check(self, session: &Session, shard: &ShardHandle, mode: Option<ReadMode>) -> Result<(), EvalError> {
        let timeout = if session.service.is_led(shard) { LAST_ATTEMPT_EXTRA } else { Duration::ZERO };
        match self.until.is_some_and(|until| until + timeout <= Instant::now()) {
            true => {
                session.service.note_failed_lookup(shard);
                Err(mode.map_or_else(|| unwritable(shard.range()), |mode| unreadable(shard.range(), mode)))
            }
            false => Ok(()),
        }
    }
}

impl Retry {
    /// The query once more. It is about a row of `shard`, and reads it in `mode` or writes it.
    pub fn new(session: &Session, query: &Arc<Query>, shard: &ShardHandle, mode: Option<ReadMode>) -> Retry {
        let query = Some(query.source.clone());
        Retry { session: session.clone(), query, shard: shard.clone(), mode, attempts: Attempts::default() }
    }

    /// Goes on counting where an earlier try was.
    pub fn go_on(&mut self, attempts: Attempts) {
        self.attempts = attempts;
    }

    /// The row was not at `server`, which says that `leader` leads its shard.
    fn not_at(&self, server: ServerId, leader: Option<ServerId>) {
        if self.mode == Some(ReadMode::Outdated) {
            self.shard.not_read_from(server);
        } else {
            self.shard.not_led_by(server, leader);
        }
    }

    /// Goes on as `point`, which is the same query begun anew, and counts on.
    fn become_of(&mut self, RemotePoint { state, retry }: RemotePoint) -> RemotePointState {
        *self = Retry { attempts: self.attempts, ..retry };
        state
    }

    /// Becomes that of `point`, whose question leaves now: nobody comes back for the links' turn.
    fn leaves_as(&mut self, point: RemotePoint) -> RemotePointState {
        let state = self.become_of(point);
        self.session.service.flush_requests();
        state
    }

    /// What `server` was asked for together with others has no answer: a replica that is being filled, say.
    fn ask_alone(&mut self, server: ServerId) -> Result<RemotePointState, Result<Datum, EvalError>> {
        if self.mode == Some(ReadMode::Outdated) {
            self.shard.not_read_from(server);
        }
        self.ask(CallMode::Alone)
    }

    /// A read is begun anew, and asked otherwise.
    fn ask(&mut self, call_mode: CallMode) -> Result<RemotePointState, Result<Datum, EvalError>> {
        self.attempts.call_mode = call_mode;
        self.begin()
    }

    /// What comes next, now that the answer of `server` is here; the end of the query if that is all.
    fn settle(
        &mut self,
        server: ServerId,
        answer: Result<Bytes, CallError>,
        result: Option<WriteResult>,
    ) -> Result<RemotePointState, Result<Datum, EvalError>> {
        if self.was_short(server, &answer) {
            // It is looked after from now on.
            return self.ask(CallMode::Retry);
        }
        match finished(answer, result) {
            Ok(answer) => Err(answer),
            Err(NotHere { leader }) => {
                self.attempts.asked = Some(server);
                self.not_at(server, leader);
                Ok(RemotePointState::NotHere)
            }
        }
    }

    /// Whether there was no answer only because the first try of a read is a short one.
    fn was_short(&self, server: ServerId, answer: &Result<Bytes, CallError>) -> bool {
        matches!(answer, Err(CallError::Rpc(RpcError::NoAnswer(_) | RpcError::NotConnected(_))))
            && self.attempts.call_mode != CallMode::Retry
            && self.mode.and_then(failover_for).is_some()
            && self.session.service.peers().is_connected(server)
    }

    /// Waits until another try is worth it.
    fn wait(&mut self) -> RemotePointState {
        let service = &self.session.service;
        self.attempts.until.get_or_insert_with(|| Instant::now() + service.lookup_timeout(&self.shard));
        let Attempts { failed, asked, .. } = self.attempts;
        let any_replica = self.mode == Some(ReadMode::Outdated);
        self.attempts.failed += 1;
        RemotePointState::Waits(
            service.leader_lookup.wait(&self.shard, LookupAttempts { failed, asked, any_replica }),
        )
    }

    /// Begins anew, unless it has been tried for long enough.
    fn begin(&mut self) -> Result<RemotePointState, Result<Datum, EvalError>> {
        self.attempts.check(&self.session, &self.shard, self.mode).map_err(Err)?;
        let query = self.query.as_ref().map(read_again).transpose().map_err(Err)?;
        match query.and_then(|query| self.session.begin_point(&query, self.attempts.call_mode)) {
            Some(PointAnswer::Read(answer)) => Err(answer),
            Some(PointAnswer::RemoteRead(point)) => Ok(self.leaves_as(point)),
            Some(PointAnswer::Write(write)) => match write.retried(self.attempts) {
                Retried::Far(point) => Ok(self.leaves_as(*point)),
                Retried::Near(write) => {
                    // Nobody comes back for the log's turn.
                    self.session.service.flush();
                    Ok(RemotePointState::Near(write))
                }
            },
            _ => Ok(RemotePointState::Sought(self.run())),
        }
    }

    /// Runs the query the long way on a thread of its own, if it was not yet.
    fn run(&mut self) -> Arc<OneShot<Result<Datum, EvalError>>> {
        let sought = Arc::new(OneShot::default());
        let session = self.session.clone();
        let (found, query) = (sought.clone(), self.query.take());
        let (attempts, shard, mode) = (self.attempts, self.shard.clone(), self.mode);
        self.session.service.slow_path.run(move || {
            let query = query.ok_or_else(|| EvalError::internal("a query was looked for twice"));
            let query = query.and_then(|query| read_again(&query));
            // Others may have kept the threads for so long that it is not worth another search.
            let query = query.and_then(|query| attempts.check(&session, &shard, mode).map(|()| query));
            found.complete(query.and_then(|query| run_long(&session, &query)));
        });
        sought
    }
}

/// The query whose text is `source`, which was legal.
fn read_again(source: &Text) -> Result<Arc<Query>, EvalError> {
    let query = parse_shared_query(source.clone().into_bytes());
    query.map(Arc::new).map_err(|error| EvalError::internal(error.to_string()))
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

impl RemotePoint {
    /// Tries once more, as soon as that is worth it: nobody is known to lead.
    pub(super) fn seek(retry: Retry) -> RemotePoint {
        RemotePoint { state: RemotePointState::NotHere, retry }
    }

    /// The same after the replica that is here refused a write.
    pub(super) fn seek_elsewhere(mut retry: Retry) -> RemotePoint {
        retry.attempts.asked = Some(retry.session.service.node().identity().server);
        RemotePoint::seek(retry)
    }

    /// Asks for the row under `key`. The question leaves with [`crate::Service::flush`] at the latest.
    pub(super) fn ask_read(
        retry: Retry,
        batch: BatchKey,
        key: PrimaryKey,
        call_mode: CallMode,
    ) -> RemotePoint {
        let (service, server) = (&retry.session.service, batch.server);
        let failover_to = failover_for(batch.mode);
        if failover_to.is_some() && call_mode == CallMode::First {
            let slot = service.read_batches.add(service.peers(), batch, BATCH_RPC, key);
            return RemotePoint { state: RemotePointState::AskedAmong(server, slot), retry };
        }
        let timeout = if failover_to.is_some() && call_mode == CallMode::Alone {
            FIRST_READ_TIMEOUT
        } else {
            SHORT_CALL_TIMEOUT
        };
        let request = question_for(batch.table, batch.mode, vec![key]);
        let slot = service.peers().call_buffered(server, request, timeout);
        if let (Some(failover_to), CallMode::Retry) = (failover_to, call_mode) {
            watch_for_failover(service, &slot, server, &retry.shard, failover_to);
        }
        RemotePoint { state: RemotePointState::Asked(server, slot, None), retry }
    }

    /// Asks `server` to write; `result` is what its report is added to. The question leaves with
    /// [`crate::Service::flush`] at the latest.
    pub(super) fn ask(
        retry: Retry,
        server: ServerId,
        request: &Request,
        result: Option<WriteResult>,
    ) -> RemotePoint {
        let service = &retry.session.service;
        let slot = service.peers().call_buffered(server, request.to_bytes(), SHORT_CALL_TIMEOUT);
        watch_for_failover(service, &slot, server, &retry.shard, FailoverTo::Leader);
        RemotePoint { state: RemotePointState::Asked(server, slot, result), retry }
    }
}

impl Future for RemotePoint {
    type Output = Result<Datum, EvalError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let RemotePoint { state, retry } = &mut *self;
        loop {
            *state = match state {
                RemotePointState::NotHere => retry.wait(),
                RemotePointState::Sought(sought) => return sought.poll(context),
                RemotePointState::Near(write) => return write.as_mut().poll(context),
                RemotePointState::Waits(ready) => match ready.poll(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(()) => match retry.begin() {
                        Ok(state) => state,
                        Err(answer) => return Poll::Ready(answer),
                    },
                },
                RemotePointState::Asked(server, slot, result) => match slot.poll(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(answer) => match retry.settle(*server, answer, result.take()) {
                        Ok(state) => state,
                        Err(answer) => return Poll::Ready(answer),
                    },
                },
                RemotePointState::AskedAmong(server, slot) => {
                    let next = match slot.poll(context) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(Ok(row)) => return Poll::Ready(Ok(row)),
                        Poll::Ready(Err(RowUnavailable::RetryAlone)) => retry.ask_alone(*server),
                        Poll::Ready(Err(RowUnavailable::Rpc(error))) => {
                            retry.settle(*server, Err(CallError::Rpc(error)), None)
                        }
                    };
                    match next {
                        Ok(state) => state,
                        Err(answer) => return Poll::Ready(answer),
                    }
                }
            };
        }
    }
}

/// How a row is asked for among others.
const BATCH_RPC: BatchRpc = BatchRpc { request: question_for, rows: rows_in, timeout: FIRST_READ_TIMEOUT };

fn question_for(table: TableId, mode: ReadMode, keys: Vec<PrimaryKey>) -> EncodedRequest {
    Request::Get { table, mode, keys }.to_bytes()
}

fn rows_in(answer: Bytes) -> Result<Vec<Datum>, RemoteError> {
    read(answer, Vec::<Datum>::unpack)
}

/// The row was not where it was looked for; nothing was done.
struct NotHere {
    leader: Option<ServerId>,
}

/// What the client gets, unless the row is to be looked for.
fn finished(
    answer: Result<Bytes, CallError>,
    result: Option<WriteResult>,
) -> Result<Result<Datum, EvalError>, NotHere> {
    let is_write = result.is_some();
    let read = answer.map_err(RemoteError::from).and_then(|bytes| match result {
        None => rows_in(bytes).map(|mut rows| rows.pop()),
        Some(mut result) => {
            let report = read(bytes, unpack_reports)?.pop().flatten();
            Ok(report.map(|report| {
                result.add(report);
                result.into_datum()
            }))
        }
    });
    match read {
        Ok(Some(datum)) => Ok(Ok(datum)),
        Err(RemoteError::Eval(error) | RemoteError::NotSent(error)) => Ok(Err(error)),
        Err(RemoteError::NoResponse) if is_write => Ok(Err(lost_contact())),
        Err(RemoteError::NotHere(leader)) => Err(NotHere { leader }),
        Ok(None) | Err(RemoteError::NotConnected | RemoteError::NoResponse) => Err(NotHere { leader: None }),
    }
}
