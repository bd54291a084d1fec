//! A query about one row that another node has: asked on this thread, answered when the links have
//! the answer. Where the shard is between two leaders the query waits without a thread (`seek`) and is
//! begun anew, here or there; only what is about one row no more takes one.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster::{AskError, ServerId, ShardHandle};
use datum::Datum;
use reql::travel::Travel;
use reql::wire::Query;
use reql::{Cancel, EvalError};

use super::PointAnswer;
use crate::answer::Answer;
use crate::error::QueryError;
use crate::far::{Question, lost_write, read, unpack_reports, unreadable, unwritable, wanted_by, watch};
use crate::links::{OneShot, SHORT, Slot, Trouble, Unanswered};
use crate::session::Session;
use crate::table::ReadMode;
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
    query: Option<Arc<Query>>,
    shard: ShardHandle,
    /// How a read wants its row; none for a write.
    mode: Option<ReadMode>,
    tries: Tries,
}

/// How often the row was not where it was looked for, and until when it is looked for.
#[derive(Clone, Copy, Default)]
pub(super) struct Tries {
    failed: u32,
    until: Option<Instant>,
    /// How a read is asked from now on.
    asking: Asking,
}

/// How long the answer to a read is waited for.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Asking {
    /// Not for long.
    #[default]
    First,
    /// It took long already: for as long as the server does not hang.
    Again,
}

impl Tries {
    /// Fails when it has been tried for long enough.
    fn check(self, session: &Session, shard: &ShardHandle, mode: Option<ReadMode>) -> Result<(), EvalError> {
        let patience = if shard.leader().is_some() { LAST_TRY } else { Duration::ZERO };
        match self.until.is_some_and(|until| until + patience <= Instant::now()) {
            true => {
                session.service.seeks.lost.give_up(shard);
                Err(mode.map_or_else(|| unwritable(shard.range()), |mode| unreadable(shard.range(), mode)))
            }
            false => Ok(()),
        }
    }
}

impl Again {
    /// The query once more. It is about a row of `shard`, and reads it in `mode` or writes it.
    pub fn new(session: &Session, query: &Arc<Query>, shard: &ShardHandle, mode: Option<ReadMode>) -> Again {
        let session = Session::new(session.service.clone(), session.client.clone());
        Again { session, query: Some(query.clone()), shard: shard.clone(), mode, tries: Tries::default() }
    }

    /// Goes on counting where an earlier try was.
    pub fn go_on(&mut self, tries: Tries) {
        self.tries = tries;
    }

    /// The row was not at `server`, which says that `leader` leads its shard.
    fn not_at(&self, server: ServerId, leader: Option<ServerId>) {
        // Of a group that has a replica here the log hears who leads.
        if self.mode != Some(ReadMode::Outdated) && !self.shard.hears() {
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
        self.session.service.links().turn();
        state
    }

    /// The answer to a read takes long: it is begun anew, and looked after.
    fn insist(&mut self) -> Result<State, Result<Datum, EvalError>> {
        self.tries.asking = Asking::Again;
        self.begin()
    }

    /// Whether there was no answer only because the first try of a read is a short one.
    fn was_short(&self, server: ServerId, answer: &Result<Bytes, Unanswered>) -> bool {
        matches!(answer, Err(Unanswered::Lost(AskError::NoAnswer(_) | AskError::NotConnected(_))))
            && self.tries.asking == Asking::First
            && self.mode.and_then(wanted_by).is_some()
            && self.session.service.links().is_connected(server)
    }

    /// Waits until another try is worth it.
    fn wait(&mut self) -> State {
        let failed = self.tries.failed;
        let seeks = &self.session.service.seeks;
        self.tries.until.get_or_insert_with(|| Instant::now() + seeks.lost.search(&self.shard));
        self.tries.failed += 1;
        let any_will_do = self.mode == Some(ReadMode::Outdated);
        State::Waits(seeks.wait(&self.shard, failed, any_will_do))
    }

    /// Begins anew, unless it has been tried for long enough.
    fn begin(&mut self) -> Result<State, Result<Datum, EvalError>> {
        self.tries.check(&self.session, &self.shard, self.mode).map_err(Err)?;
        match self.query.as_ref().and_then(|query| self.session.begin_point(query, self.tries.asking)) {
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
        let session = Session::new(self.session.service.clone(), self.session.client.clone());
        let (found, query) = (sought.clone(), self.query.take());
        let (tries, shard, mode) = (self.tries, self.shard.clone(), self.mode);
        self.session.service.seekers.run(move || {
            let query = query.ok_or_else(|| EvalError::internal("a query was looked for twice"));
            // Others may have kept the threads for so long that it is not worth another search.
            let query = query.and_then(|query| tries.check(&session, &shard, mode).map(|()| query));
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
    /// Tries once more, as soon as that is worth it.
    pub(super) fn seek(again: Again) -> FarPoint {
        FarPoint { state: State::Lost, again }
    }

    /// Asks `server` for a row. The question leaves with [`crate::Service::turn`] at the latest.
    pub(super) fn ask_read(again: Again, server: ServerId, question: &Question, asking: Asking) -> FarPoint {
        let service = &again.session.service;
        let wants = again.mode.and_then(wanted_by);
        let patience = if wants.is_some() && asking == Asking::First { FIRST } else { SHORT };
        let slot = service.links().ask_aside(server, question.to_bytes(), patience);
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
        let slot = service.links().ask_aside(server, question.to_bytes(), SHORT);
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
                    Poll::Ready(answer) if again.was_short(*server, &answer) => match again.insist() {
                        Ok(state) => state,
                        Err(answer) => return Poll::Ready(answer),
                    },
                    Poll::Ready(answer) => match finished(answer, result.take()) {
                        Ok(answer) => return Poll::Ready(answer),
                        Err(Lost { leader }) => {
                            again.not_at(*server, leader);
                            State::Lost
                        }
                    },
                },
            };
        }
    }
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
        Ok(Some(datum)) => Ok(Ok(datum)),
        Err(Trouble::Eval(error) | Trouble::Unasked(error)) => Ok(Err(error)),
        Err(Trouble::NoAnswer) if is_write => Ok(Err(lost_write())),
        Err(Trouble::Moved(leader)) => Err(Lost { leader }),
        Ok(None) | Err(Trouble::NotConnected | Trouble::NoAnswer) => Err(Lost { leader: None }),
    }
}
