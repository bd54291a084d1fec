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
use crate::answer::Answer;
use crate::error::QueryError;
use crate::far::{Question, lost_write, read, unpack_reports, unreadable, unwritable, wanted_by, watch};
use crate::gets::{Errand, Manner, NoRow, RowSlot};
use crate::links::{OneShot, SHORT, Slot, Trouble, Unanswered, Written};
use crate::read_mode::ReadMode;
use crate::seek::Looks;
use crate::session::Session;
use crate::watch::Wants;
use crate::write::WriteResult;

/// How long a read may take when it is asked for the first time. Another try is looked after, since the server
/// may hang; this one costs nothing.
const FIRST: Duration = Duration::from_secs(1);
/// Who leads may have been known just before the end of the search: that long it is asked all the same.
const LAST_TRY: Duration = Duration::from_secs(3);

/// A query about one row on its way to another node. Completes with the result the client gets.
#[must_use = "it may still fail"]
pub struct FarPoint {
    state: State,
    again: Again,
}

enum State {
    /// The other node was asked; a write has the result it is added to.
    Asked(ServerId, Arc<Slot>, Option<WriteResult>),
    /// The other node was asked for this row among others.
    AskedAmong(ServerId, Arc<RowSlot>),
    /// The row was not where it was looked for, or nobody is known to lead its shard.
    Lost,
    /// Soon it is worth another try.
    Waits(Arc<OneShot<()>>),
    /// A write that was begun anew.
    Near(NearWrite),
    /// The query runs the long way.
    Sought(Arc<OneShot<Result<Datum, EvalError>>>),
}

/// A write that is carried out here.
pub(super) type NearWrite = Pin<Box<dyn Future<Output = Result<Datum, EvalError>> + Send>>;

/// Where a write goes on that was begun anew.
pub(super) enum Anew {
    Near(NearWrite),
    Far(Box<FarPoint>),
}

/// What is needed to begin anew.
pub(super) struct Again {
    session: Session,
    /// Its text: what was read of it is more, and is seldom needed again.
    query: Option<Text>,
    shard: ShardHandle,
    /// How a read wants its row; none for a write.
    mode: Option<ReadMode>,
    tries: Tries,
}

/// How often the row was not where it was looked for, and until when it is looked for.
#[derive(Clone, Copy, Default)]
pub(super) struct Tries {
    failed: u32,
    /// Who was asked last.
    asked: Option<ServerId>,
    until: Option<Instant>,
    /// How a read is asked from now on.
    asking: Asking,
}

/// With whom a read is asked, and how long its answer is waited for.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Asking {
    /// Together with what others ask of the same server at the moment, and not for long.
    #[default]
    First,
    /// Alone, and not for long.
    Alone,
    /// It took long already: for as long as the server does not hang.
    Again,
}

impl Tries {
    /// Fails when it has been tried for long enough.
    fn check(self, session: &Session, shard: &ShardHandle, mode: Option<ReadMode>) -> Result<(), EvalError> {
        let patience = if session.service.is_led(shard) { LAST_TRY } else { Duration::ZERO };
        match self.until.is_some_and(|until| until + patience <= Instant::now()) {
            true => {
                session.service.give_up(shard);
                Err(mode.map_or_else(|| unwritable(shard.range()), |mode| unreadable(shard.range(), mode)))
            }
            false => Ok(()),
        }
    }
}

impl Again {
    /// The query once more. It is about a row of `shard`, and reads it in `mode` or writes it.
    pub fn new(session: &Session, query: &Arc<Query>, shard: &ShardHandle, mode: Option<ReadMode>) -> Again {
        let query = Some(query.source.clone());
        Again { session: session.clone(), query, shard: shard.clone(), mode, tries: Tries::default() }
    }

    /// Goes on counting where an earlier try was.
    pub fn go_on(&mut self, tries: Tries) {
        self.tries = tries;
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
    fn become_of(&mut self, FarPoint { state, again }: FarPoint) -> State {
        *self = Again { tries: self.tries, ..again };
        state
    }

    /// Becomes that of `point`, whose question leaves now: nobody comes back for the links' turn.
    fn leaves_as(&mut self, point: FarPoint) -> State {
        let state = self.become_of(point);
        self.session.service.turn_links();
        state
    }

    /// What `server` was asked for together with others has no answer: a replica that is being filled, say.
    fn ask_alone(&mut self, server: ServerId) -> Result<State, Result<Datum, EvalError>> {
        if self.mode == Some(ReadMode::Outdated) {
            self.shard.not_read_from(server);
        }
        self.ask(Asking::Alone)
    }

    /// A read is begun anew, and asked otherwise.
    fn ask(&mut self, asking: Asking) -> Result<State, Result<Datum, EvalError>> {
        self.tries.asking = asking;
        self.begin()
    }

    /// What comes next, now that the answer of `server` is here; the end of the query if that is all.
    fn settle(
        &mut self,
        server: ServerId,
        answer: Result<Bytes, Unanswered>,
        result: Option<WriteResult>,
    ) -> Result<State, Result<Datum, EvalError>> {
        if self.was_short(server, &answer) {
            // It is looked after from now on.
            return self.ask(Asking::Again);
        }
        match finished(answer, result) {
            Ok(answer) => Err(answer),
            Err(Lost { leader }) => {
                self.tries.asked = Some(server);
                self.not_at(server, leader);
                Ok(State::Lost)
            }
        }
    }

    /// Whether there was no answer only because the first try of a read is a short one.
    fn was_short(&self, server: ServerId, answer: &Result<Bytes, Unanswered>) -> bool {
        matches!(answer, Err(Unanswered::Lost(RpcError::NoAnswer(_) | RpcError::NotConnected(_))))
            && self.tries.asking != Asking::Again
            && self.mode.and_then(wanted_by).is_some()
            && self.session.service.links().is_connected(server)
    }

    /// Waits until another try is worth it.
    fn wait(&mut self) -> State {
        let service = &self.session.service;
        self.tries.until.get_or_insert_with(|| Instant::now() + service.search(&self.shard));
        let Tries { failed, asked, .. } = self.tries;
        let any_will_do = self.mode == Some(ReadMode::Outdated);
        self.tries.failed += 1;
        State::Waits(service.seeks.wait(&self.shard, Looks { failed, asked, any_will_do }))
    }

    /// Begins anew, unless it has been tried for long enough.
    fn begin(&mut self) -> Result<State, Result<Datum, EvalError>> {
        self.tries.check(&self.session, &self.shard, self.mode).map_err(Err)?;
        let query = self.query.as_ref().map(read_again).transpose().map_err(Err)?;
        match query.and_then(|query| self.session.begin_point(&query, self.tries.asking)) {
            Some(PointAnswer::Read(answer)) => Err(answer),
            Some(PointAnswer::FarRead(point)) => Ok(self.leaves_as(point)),
            Some(PointAnswer::Write(write)) => match write.anew(self.tries) {
                Anew::Far(point) => Ok(self.leaves_as(*point)),
                Anew::Near(write) => {
                    // Nobody comes back for the log's turn.
                    self.session.service.turn();
                    Ok(State::Near(write))
                }
            },
            _ => Ok(State::Sought(self.run())),
        }
    }

    /// Runs the query the long way on a thread of its own, if it was not yet.
    fn run(&mut self) -> Arc<OneShot<Result<Datum, EvalError>>> {
        let sought = Arc::new(OneShot::default());
        let session = self.session.clone();
        let (found, query) = (sought.clone(), self.query.take());
        let (tries, shard, mode) = (self.tries, self.shard.clone(), self.mode);
        self.session.service.seekers.run(move || {
            let query = query.ok_or_else(|| EvalError::internal("a query was looked for twice"));
            let query = query.and_then(|query| read_again(&query));
            // Others may have kept the threads for so long that it is not worth another search.
            let query = query.and_then(|query| tries.check(&session, &shard, mode).map(|()| query));
            found.tell(query.and_then(|query| run_long(&session, &query)));
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

impl FarPoint {
    /// Tries once more, as soon as that is worth it: nobody is known to lead.
    pub(super) fn seek(again: Again) -> FarPoint {
        FarPoint { state: State::Lost, again }
    }

    /// The same after the replica that is here refused a write.
    pub(super) fn seek_elsewhere(mut again: Again) -> FarPoint {
        again.tries.asked = Some(again.session.service.node().identity().server);
        FarPoint::seek(again)
    }

    /// Asks for the row under `key`. The question leaves with [`crate::Service::turn`] at the latest.
    pub(super) fn ask_read(again: Again, errand: Errand, key: PrimaryKey, asking: Asking) -> FarPoint {
        let (service, server) = (&again.session.service, errand.server);
        let wants = wanted_by(errand.mode);
        if wants.is_some() && asking == Asking::First {
            let slot = service.gets.add(service.links(), errand, MANNER, key);
            return FarPoint { state: State::AskedAmong(server, slot), again };
        }
        let patience = if wants.is_some() && asking == Asking::Alone { FIRST } else { SHORT };
        let question = question_for(errand.table, errand.mode, vec![key]);
        let slot = service.links().call_buffered(server, question, patience);
        if let (Some(wants), Asking::Again) = (wants, asking) {
            watch(service, &slot, server, &again.shard, wants);
        }
        FarPoint { state: State::Asked(server, slot, None), again }
    }

    /// Asks `server` to write; `result` is what its report is added to. The question leaves with
    /// [`crate::Service::turn`] at the latest.
    pub(super) fn ask(
        again: Again,
        server: ServerId,
        question: &Question,
        result: Option<WriteResult>,
    ) -> FarPoint {
        let service = &again.session.service;
        let slot = service.links().call_buffered(server, question.to_bytes(), SHORT);
        watch(service, &slot, server, &again.shard, Wants::Leader);
        FarPoint { state: State::Asked(server, slot, result), again }
    }
}

impl Future for FarPoint {
    type Output = Result<Datum, EvalError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let FarPoint { state, again } = &mut *self;
        loop {
            *state = match state {
                State::Lost => again.wait(),
                State::Sought(sought) => return sought.poll(context),
                State::Near(write) => return write.as_mut().poll(context),
                State::Waits(ready) => match ready.poll(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(()) => match again.begin() {
                        Ok(state) => state,
                        Err(answer) => return Poll::Ready(answer),
                    },
                },
                State::Asked(server, slot, result) => match slot.poll(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(answer) => match again.settle(*server, answer, result.take()) {
                        Ok(state) => state,
                        Err(answer) => return Poll::Ready(answer),
                    },
                },
                State::AskedAmong(server, slot) => {
                    let next = match slot.poll(context) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(Ok(row)) => return Poll::Ready(Ok(row)),
                        Poll::Ready(Err(NoRow::AskAlone)) => again.ask_alone(*server),
                        Poll::Ready(Err(NoRow::Lost(error))) => {
                            again.settle(*server, Err(Unanswered::Lost(error)), None)
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
const MANNER: Manner = Manner { question: question_for, rows: rows_in, patience: FIRST };

fn question_for(table: TableId, mode: ReadMode, keys: Vec<PrimaryKey>) -> Written {
    Question::Get { table, mode, keys }.to_bytes()
}

fn rows_in(answer: Bytes) -> Result<Vec<Datum>, Trouble> {
    read(answer, Vec::<Datum>::unpack)
}

/// The row was not where it was looked for; nothing was done.
struct Lost {
    leader: Option<ServerId>,
}

/// What the client gets, unless the row is to be looked for.
fn finished(
    answer: Result<Bytes, Unanswered>,
    result: Option<WriteResult>,
) -> Result<Result<Datum, EvalError>, Lost> {
    let is_write = result.is_some();
    let read = answer.map_err(Trouble::from).and_then(|bytes| match result {
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
        Err(Trouble::Eval(error) | Trouble::Unasked(error)) => Ok(Err(error)),
        Err(Trouble::NoAnswer) if is_write => Ok(Err(lost_write())),
        Err(Trouble::Moved(leader)) => Err(Lost { leader }),
        Ok(None) | Err(Trouble::NotConnected | Trouble::NoAnswer) => Err(Lost { leader: None }),
    }
}
