//! Runs the queries of connections: from the bytes of a START to the crate `query` and back.
//!
//! `query` knows nothing of the wire protocol, and a connection knows nothing of terms. This module translates.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use bytes::Bytes;
use cluster::Node;
use datum::{Datum, Text};
use protocol::response::{Note, ServerInfo, TEXTS_ROOM_BYTES};
use protocol::scram::PasswordRecord;
use protocol::{Failure, request};
use query::{FeedKind, PointAnswer, Polled, Query, QueryError};
use reql::{Cancel, Term, signature};
use storage::RowTexts;

use crate::service::{
    Answer, Batch, Client, Cursor, ParsedQuery, PolledBatch, QueryKind, QueryService, Session, Work,
};

/// The query service of a node.
pub struct NodeService {
    node: Arc<Node>,
    queries: Arc<query::Service>,
}

impl NodeService {
    /// The queries of `node` are run by `queries`.
    #[must_use]
    pub fn new(node: Arc<Node>, queries: Arc<query::Service>) -> NodeService {
        NodeService { node, queries }
    }
}

impl QueryService for NodeService {
    fn password(&self, user: &str) -> Option<PasswordRecord> {
        let catalog = self.node.catalog();
        let record = PasswordRecord::from_object(&catalog.user(user)?.password);
        record
            .inspect_err(|error| {
                tracing::error!("the stored password of user {user:?} cannot be used: {error}")
            })
            .ok()
    }

    fn server_info(&self) -> ServerInfo {
        ServerInfo {
            id: self.node.identity().server.to_string(),
            name: self.node.name().to_string(),
            is_proxy: self.node.is_proxy(),
        }
    }

    fn drive(&self) {
        self.queries.flush();
    }

    fn hold(&self) {
        self.node.log().hold();
    }

    fn release(&self) {
        self.node.log().release();
    }

    fn session(&self, client: Client) -> Arc<dyn Session> {
        let client = query::Client { user: Text::from(client.user), address: client.address };
        let queries = self.queries.clone();
        queries.counters().connections.fetch_add(1, Ordering::Relaxed);
        let session = query::Session::new(queries.clone(), client);
        Arc::new(NodeSession { session, queries })
    }
}

struct NodeSession {
    session: query::Session,
    queries: Arc<query::Service>,
}

impl Session for NodeSession {
    fn begin(&self, body: Bytes) -> ParsedQuery {
        let query = match Query::parse(body.clone()) {
            Ok(query) => Arc::new(query),
            Err(error) => {
                let work = Work::Done(Err(error.into()));
                return ParsedQuery {
                    noreply: request::asks_for_noreply(&body),
                    kind: QueryKind::Malformed,
                    work,
                };
            }
        };
        let noreply = query.flag("noreply");
        match self.session.point(&query) {
            Some(PointAnswer::Read(answer)) => {
                let answer = answer.map(atom).map_err(Failure::from);
                ParsedQuery { noreply, kind: QueryKind::PointRead, work: Work::Done(answer) }
            }
            Some(PointAnswer::Rows(rows)) => {
                const { assert!(RowTexts::ROOM_BYTES == TEXTS_ROOM_BYTES) };
                let work = Work::Done(Ok(Answer::Texts(rows.into_bytes())));
                ParsedQuery { noreply, kind: QueryKind::Read, work }
            }
            Some(PointAnswer::Count(count)) => {
                ParsedQuery { noreply, kind: QueryKind::Read, work: Work::Done(Ok(atom(count))) }
            }
            Some(PointAnswer::RemoteRead(read)) => {
                let answer = async move { read.await.map(atom).map_err(Failure::from) };
                ParsedQuery { noreply, kind: QueryKind::PointRead, work: Work::Pending(Box::pin(answer)) }
            }
            Some(PointAnswer::DiskRead(read)) => {
                let answer = async move { read.await.map(atom).map_err(Failure::from) };
                ParsedQuery { noreply, kind: QueryKind::PointRead, work: Work::Pending(Box::pin(answer)) }
            }
            Some(PointAnswer::RowsOnDisk) => {
                ParsedQuery { noreply, kind: QueryKind::Read, work: self.rows_from_disk(query) }
            }
            Some(PointAnswer::Write(write)) => {
                let answer = async move { write.await.map(atom).map_err(Failure::from) };
                ParsedQuery { noreply, kind: QueryKind::PointWrite, work: Work::Pending(Box::pin(answer)) }
            }
            None => ParsedQuery { noreply, kind: kind_of(query.term()), work: self.blocking(query) },
        }
    }
}

impl NodeSession {
    /// Reads the rows of a query whose rows are on disk.
    fn rows_from_disk(&self, query: Arc<Query>) -> Work {
        let session = self.session.clone();
        Work::Blocking(Box::new(move |cancel: Arc<Cancel>| match session.rows_from_disk(&query) {
            Some(rows) => Ok(Answer::Texts(rows.into_bytes())),
            None => first_answer(session.run(&query, cancel).map_err(failure)?),
        }))
    }

    /// Runs the query to its answer or to the first batch of its stream.
    fn blocking(&self, query: Arc<Query>) -> Work {
        let session = self.session.clone();
        Work::Blocking(Box::new(move |cancel: Arc<Cancel>| {
            let answered = session.run(&query, cancel).map_err(failure)?;
            first_answer(answered)
        }))
    }
}

impl Drop for NodeSession {
    fn drop(&mut self) {
        self.queries.counters().connections.fetch_sub(1, Ordering::Relaxed);
    }
}

fn atom(value: Datum) -> Answer {
    Answer::Atom { value, profile: None }
}

fn kind_of(term: &Term) -> QueryKind {
    match term.as_call() {
        Some(call) if signature::of(call.op).is_write() => QueryKind::Write,
        _ => QueryKind::Read,
    }
}

fn first_answer(answered: query::Answered) -> Result<Answer, Failure> {
    match answered.answer {
        query::Answer::Atom(value) => Ok(Answer::Atom { value, profile: answered.profile }),
        query::Answer::Stream(cursor) => {
            let mut cursor = NodeCursor(cursor);
            let batch = cursor.next_batch()?;
            Ok(Answer::Stream { batch, cursor: Some(Box::new(cursor)) })
        }
    }
}

struct NodeCursor(Box<query::Cursor>);

impl Cursor for NodeCursor {
    fn next_batch(&mut self) -> Result<Batch, Failure> {
        let batch = self.0.next_batch()?;
        Ok(self.batch(batch))
    }

    fn is_feed(&self) -> bool {
        self.0.feed().is_some()
    }

    fn poll_batch(&mut self, waker: &Waker) -> PolledBatch {
        match self.0.poll_batch(waker) {
            Polled::Ready(batch) => {
                PolledBatch::Ready(batch.map(|batch| self.batch(batch)).map_err(Failure::from))
            }
            Polled::Waiting => PolledBatch::Waiting,
            Polled::NeedsThread => PolledBatch::NeedsThread,
        }
    }
}

impl NodeCursor {
    /// A batch with the notes of its stream.
    fn batch(&self, batch: query::Batch) -> Batch {
        let query::Batch { items, done, profile } = batch;
        let notes = self.0.feed().map(|(kind, includes_states)| {
            let kind = match kind {
                FeedKind::Sequence | FeedKind::Aggregate | FeedKind::Join | FeedKind::Union => {
                    Note::SequenceFeed
                }
                FeedKind::Point => Note::AtomFeed,
                FeedKind::FirstRows => Note::OrderByLimitFeed,
            };
            [Some(kind), includes_states.then_some(Note::IncludesStates)].into_iter().flatten().collect()
        });
        Batch { items, done, notes: notes.unwrap_or_default(), profile }
    }
}

fn failure(error: QueryError) -> Failure {
    match error {
        QueryError::Compile(error) => error.into(),
        QueryError::Eval(error) => error.into(),
    }
}
