//! Point queries about a row on another node. The request is sent on the calling thread, and the response completes the
//! future. While the shard elects a leader the query waits without a thread and is then started again, here or there. A
//! thread is only needed if the query is not on the fast path any more.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster::{RpcError, ServerId, ShardHandle};
use datum::{Datum, PrimaryKey};
use reql::codec::Codec;
use reql::{Cancel, EvalError};
use storage::{Reach, TableId};

use super::PointAnswer;
use crate::remote::{
    Request, failover_for, lost_contact, read, unpack_reports, unreadable, unwritable, watch_for_failover,
};
use crate::routing::{
    BatchKey, BatchRpc, CallError, EncodedRequest, FailoverTo, LookupAttempts, OneShot, ReadMode,
    RemoteError, ResponseSlot, RowSlot, RowUnavailable, SHORT_CALL_TIMEOUT,
};
use crate::session::{Answer, KeptQuery, Query, QueryError, Session};
use crate::write::WriteResult;

/// The timeout of a read's first attempt, which is not watched for a hanging server. Later attempts are.
const FIRST_READ_TIMEOUT: Duration = Duration::from_secs(1);
/// A leader that becomes known just before the end of the lookup gets this much time for another attempt.
const LAST_ATTEMPT_EXTRA: Duration = Duration::from_secs(3);

/// A point query that waits for another node. Completes with the result for the client.
#[must_use = "it may still fail"]
pub struct RemotePoint {
    state: RemotePointState,
    retry: Retry,
}

enum RemotePointState {
    /// The request is pending; a write has the result to which its report is added.
    Requested(ServerId, Arc<ResponseSlot>, Option<WriteResult>),
    /// The request is pending in a read batch.
    Batched(ServerId, Arc<RowSlot>),
    /// The row was not where it was expected, or no leader is known.
    NotHere,
    /// It waits for the next attempt.
    Waiting(Arc<OneShot<()>>),
    /// The query was started again, and its row is on this node now.
    Local(LocalPoint),
    /// The slow path evaluates the query.
    Evaluating(Arc<OneShot<Result<Datum, EvalError>>>),
}

pub(super) type LocalPoint = Pin<Box<dyn Future<Output = Result<Datum, EvalError>> + Send>>;

/// Where a write is after it was started again.
pub(super) enum Retried {
    Local(LocalPoint),
    Remote(Box<RemotePoint>),
}

/// Starts the query again.
pub(super) struct Retry {
    session: Session,
    query: Option<KeptQuery>,
    shard: ShardHandle,
    /// The read mode; `None` for a write.
    mode: Option<ReadMode>,
    attempts: Attempts,
}

/// Failed attempts, and the time until which the query tries again.
#[derive(Clone, Copy, Default)]
pub(super) struct Attempts {
    failed: u32,
    /// The server of the last attempt.
    asked: Option<ServerId>,
    until: Option<Instant>,
    /// How a read sends its next request.
    call_mode: CallMode,
}

/// How a read sends its request, and for how long it waits.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum CallMode {
    /// In a batch, with the short timeout.
    #[default]
    Batched,
    /// Alone, with the short timeout.
    Alone,
    /// Alone, until the response arrives or the server is known to hang: the short timeout was exceeded.
    Monitored,
}

impl Attempts {
    /// Fails when the time is over.
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
    /// For a query about a row of `shard`, which reads it in `mode` or writes it.
    pub fn new(session: &Session, query: &Arc<Query>, shard: &ShardHandle, mode: Option<ReadMode>) -> Retry {
        let query = Some(KeptQuery::of(query));
        Retry { session: session.clone(), query, shard: shard.clone(), mode, attempts: Attempts::default() }
    }

    /// Continues to count from earlier attempts.
    pub fn continue_from(&mut self, attempts: Attempts) {
        self.attempts = attempts;
    }

    /// Records that the row was not at `server`, which names `leader` as the leader of its shard.
    fn forget_location(&self, server: ServerId, leader: Option<ServerId>) {
        if self.mode == Some(ReadMode::Outdated) {
            self.shard.report_without_rows(server);
        } else {
            self.shard.report_not_leader(server, leader);
        }
    }

    /// Takes the state of `point`, the same query started again, and keeps counting attempts.
    fn take_over(&mut self, RemotePoint { state, retry }: RemotePoint) -> RemotePointState {
        *self = Retry { attempts: self.attempts, ..retry };
        state
    }

    /// Takes the state of `point` and sends its request at once, since no caller flushes after this.
    fn send_as(&mut self, point: RemotePoint) -> RemotePointState {
        let state = self.take_over(point);
        self.session.service.flush_requests();
        state
    }

    /// The read batch from `server` failed, for instance because the replica is still being filled.
    fn retry_alone(&mut self, server: ServerId) -> Result<RemotePointState, Result<Datum, EvalError>> {
        if self.mode == Some(ReadMode::Outdated) {
            self.shard.report_without_rows(server);
        }
        self.retry_with(CallMode::Alone)
    }

    /// Starts a read again with another call mode.
    fn retry_with(&mut self, call_mode: CallMode) -> Result<RemotePointState, Result<Datum, EvalError>> {
        self.attempts.call_mode = call_mode;
        self.begin_again()
    }

    /// The next state after the response of `server`, or the result of the query.
    fn settle(
        &mut self,
        server: ServerId,
        response: Result<Bytes, CallError>,
        result: Option<WriteResult>,
    ) -> Result<RemotePointState, Result<Datum, EvalError>> {
        if self.timed_out_early(server, &response) {
            // From now on the call is watched for a hanging server.
            return self.retry_with(CallMode::Monitored);
        }
        match into_result(response, result) {
            Ok(answer) => Err(answer),
            Err(RowNotHere { leader }) => {
                self.attempts.asked = Some(server);
                self.forget_location(server, leader);
                Ok(RemotePointState::NotHere)
            }
        }
    }

    /// Whether a read only failed because of the short timeout of its first attempt.
    fn timed_out_early(&self, server: ServerId, response: &Result<Bytes, CallError>) -> bool {
        matches!(response, Err(CallError::Rpc(RpcError::NoResponse(_) | RpcError::NotConnected(_))))
            && self.attempts.call_mode != CallMode::Monitored
            && self.mode.and_then(failover_for).is_some()
            && self.session.service.remote_calls().is_connected(server)
    }

    /// Waits until the next attempt makes sense.
    fn wait(&mut self) -> RemotePointState {
        let service = &self.session.service;
        self.attempts.until.get_or_insert_with(|| Instant::now() + service.lookup_timeout(&self.shard));
        let Attempts { failed, asked, .. } = self.attempts;
        let any_replica = self.mode == Some(ReadMode::Outdated);
        self.attempts.failed += 1;
        RemotePointState::Waiting(
            service.leader_lookup.wait(&self.shard, LookupAttempts { failed, asked, any_replica }),
        )
    }

    /// Starts the query again, unless the time is over.
    fn begin_again(&mut self) -> Result<RemotePointState, Result<Datum, EvalError>> {
        self.attempts.check(&self.session, &self.shard, self.mode).map_err(Err)?;
        let query = self.query.as_ref().map(KeptQuery::query).transpose().map_err(Err)?;
        let begun =
            query.and_then(|query| self.session.begin_point(&query, self.attempts.call_mode, Reach::Memory));
        match begun {
            Some(PointAnswer::Read(answer)) => Err(answer),
            Some(PointAnswer::DiskRead(point)) => Ok(RemotePointState::Local(Box::pin(point))),
            Some(PointAnswer::RemoteRead(point)) => Ok(self.send_as(point)),
            Some(PointAnswer::Write(write)) => match write.retried(self.attempts) {
                Retried::Remote(point) => Ok(self.send_as(*point)),
                Retried::Local(write) => {
                    // No caller flushes after this.
                    self.session.service.flush();
                    Ok(RemotePointState::Local(write))
                }
            },
            _ => Ok(RemotePointState::Evaluating(self.evaluate())),
        }
    }

    /// Evaluates the query on the slow path, on a thread of the pool.
    fn evaluate(&mut self) -> Arc<OneShot<Result<Datum, EvalError>>> {
        let evaluated = Arc::new(OneShot::default());
        let session = self.session.clone();
        let (found, query) = (evaluated.clone(), self.query.take());
        let (attempts, shard, mode) = (self.attempts, self.shard.clone(), self.mode);
        self.session.service.slow_path.run(move || {
            let query = query.ok_or_else(|| EvalError::internal("a query was evaluated twice"));
            let query = query.and_then(|query| query.query());
            // It may have waited for a thread until its time was over.
            let query = query.and_then(|query| attempts.check(&session, &shard, mode).map(|()| query));
            found.complete(query.and_then(|query| evaluate_query(&session, &query)));
        });
        evaluated
    }
}

pub(super) fn evaluate_query(session: &Session, query: &Query) -> Result<Datum, EvalError> {
    match session.run(query, Arc::new(Cancel::new())) {
        Ok(answered) => match answered.answer {
            Answer::Atom(datum) => Ok(datum),
            Answer::Stream(_) => Err(EvalError::internal("the result of a point query is a stream")),
        },
        Err(QueryError::Eval(error)) => Err(error),
        Err(QueryError::Compile(error)) => Err(EvalError::internal(error.to_string())),
    }
}

impl RemotePoint {
    /// Tries again when a leader is known.
    pub(super) fn wait_for_leader(retry: Retry) -> RemotePoint {
        RemotePoint { state: RemotePointState::NotHere, retry }
    }

    /// The same after the local replica refused a write.
    pub(super) fn wait_for_other_leader(mut retry: Retry) -> RemotePoint {
        retry.attempts.asked = Some(retry.session.service.node().identity().server);
        RemotePoint::wait_for_leader(retry)
    }

    /// Requests the row under `key`. The request is sent with [`crate::Service::flush`] at the latest.
    pub(super) fn send_read(
        retry: Retry,
        batch: BatchKey,
        key: PrimaryKey,
        call_mode: CallMode,
    ) -> RemotePoint {
        let (service, server) = (&retry.session.service, batch.server);
        let failover_to = failover_for(batch.mode);
        if failover_to.is_some() && call_mode == CallMode::Batched {
            let slot = service.read_batches.add(service.remote_calls(), batch, BATCH_RPC, key);
            return RemotePoint { state: RemotePointState::Batched(server, slot), retry };
        }
        let timeout = if failover_to.is_some() && call_mode == CallMode::Alone {
            FIRST_READ_TIMEOUT
        } else {
            SHORT_CALL_TIMEOUT
        };
        let request = encode_get(batch.table, batch.mode, vec![key]);
        let slot = service.remote_calls().call_buffered(server, request, timeout);
        if let (Some(failover_to), CallMode::Monitored) = (failover_to, call_mode) {
            watch_for_failover(service, &slot, server, &retry.shard, failover_to);
        }
        RemotePoint { state: RemotePointState::Requested(server, slot, None), retry }
    }

    /// Requests a write from `server`; its report is added to `result`. The request is sent with
    /// [`crate::Service::flush`] at the latest.
    pub(super) fn send_write(
        retry: Retry,
        server: ServerId,
        request: &Request,
        result: Option<WriteResult>,
    ) -> RemotePoint {
        let service = &retry.session.service;
        let slot = service.remote_calls().call_buffered(server, request.to_bytes(), SHORT_CALL_TIMEOUT);
        watch_for_failover(service, &slot, server, &retry.shard, FailoverTo::Leader);
        RemotePoint { state: RemotePointState::Requested(server, slot, result), retry }
    }
}

impl Future for RemotePoint {
    type Output = Result<Datum, EvalError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let RemotePoint { state, retry } = &mut *self;
        loop {
            *state = match state {
                RemotePointState::NotHere => retry.wait(),
                RemotePointState::Evaluating(evaluated) => return evaluated.poll(context),
                RemotePointState::Local(write) => return write.as_mut().poll(context),
                RemotePointState::Waiting(ready) => match ready.poll(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(()) => match retry.begin_again() {
                        Ok(state) => state,
                        Err(answer) => return Poll::Ready(answer),
                    },
                },
                RemotePointState::Requested(server, slot, result) => match slot.poll(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(answer) => match retry.settle(*server, answer, result.take()) {
                        Ok(state) => state,
                        Err(answer) => return Poll::Ready(answer),
                    },
                },
                RemotePointState::Batched(server, slot) => {
                    let next = match slot.poll(context) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(Ok(row)) => return Poll::Ready(Ok(row)),
                        Poll::Ready(Err(RowUnavailable::RetryAlone)) => retry.retry_alone(*server),
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

/// The encoding of read batches.
const BATCH_RPC: BatchRpc = BatchRpc { request: encode_get, rows: decode_rows, timeout: FIRST_READ_TIMEOUT };

fn encode_get(table: TableId, mode: ReadMode, keys: Vec<PrimaryKey>) -> EncodedRequest {
    Request::Get { table, mode, keys }.to_bytes()
}

fn decode_rows(response: Bytes) -> Result<Vec<Datum>, RemoteError> {
    read(response, Vec::<Datum>::unpack)
}

/// The row was not where it was expected; nothing was done.
struct RowNotHere {
    leader: Option<ServerId>,
}

/// The result for the client, unless the row must be located again.
fn into_result(
    response: Result<Bytes, CallError>,
    result: Option<WriteResult>,
) -> Result<Result<Datum, EvalError>, RowNotHere> {
    let is_write = result.is_some();
    let read = response.map_err(RemoteError::from).and_then(|bytes| match result {
        None => decode_rows(bytes).map(|mut rows| rows.pop()),
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
        Err(RemoteError::NotHere(leader)) => Err(RowNotHere { leader }),
        Ok(None) | Err(RemoteError::NotConnected | RemoteError::NoResponse) => {
            Err(RowNotHere { leader: None })
        }
    }
}
