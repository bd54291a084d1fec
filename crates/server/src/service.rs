//! The interface between a connection and the service that runs its queries.
//!
//! A connection knows tokens, frames and sockets; a session knows queries. Answers that a session returns at once are
//! sent with one write, together with the answers to neighbouring queries. Others are sent when they are ready.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use datum::Datum;
use protocol::Failure;
use protocol::response::{Note, ServerInfo};
use protocol::scram::PasswordRecord;
use reql::Cancel;

/// Runs the queries of every connection.
pub trait QueryService: Send + Sync + 'static {
    /// The password record of `user`, or `None` if there is no such user. A lookup in memory.
    fn password(&self, user: &str) -> Option<PasswordRecord>;

    /// Id and name of this server.
    fn server_info(&self) -> ServerInfo;

    /// Carries out what queries with [`Work::Pending`] have begun, unless another thread already does. Called soon
    /// after [`Session::begin`], once for a batch of such queries.
    fn drive(&self) {}

    /// Announces that the caller is about to begin more queries: until [`QueryService::release`] the service need not
    /// wake other threads for new work or for messages on links. Meanwhile the caller must not wait for an answer.
    fn hold(&self) {}

    /// Ends a [`QueryService::hold`]; called soon after it, once for each.
    fn release(&self) {}

    /// Opens the session of one connection.
    fn session(&self, client: Client) -> Arc<dyn Session>;
}

/// The client of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// The user that was authenticated in the handshake.
    pub user: String,
    pub address: SocketAddr,
}

/// Runs the queries of one connection. Used from the connection's thread and from the pool's threads at the same time.
pub trait Session: Send + Sync {
    /// Parses a START and says how it will be answered. Called on the connection's thread: must neither block nor take
    /// longer than a point query. A query that cannot be parsed is [`Work::Done`] with its failure. The query shares
    /// `body`, it does not copy it.
    fn begin(&self, body: Bytes) -> ParsedQuery;
}

/// A query that is ready to be answered.
pub struct ParsedQuery {
    /// Whether the client expects no response, not even to an error.
    pub noreply: bool,
    /// The kind under which it is counted.
    pub kind: QueryKind,
    /// How it is answered.
    pub work: Work,
}

/// How a query is answered.
pub enum Work {
    /// The answer is ready.
    Done(Result<Answer, Failure>),
    /// The answer arrives without occupying a thread: a write that waits for the log, or a request to another node. The
    /// caller must call [`QueryService::drive`] soon.
    Pending(PendingAnswer),
    /// The query needs a thread of the pool.
    Blocking(BlockingWork),
}

/// Completes with the answer; may be polled from any thread.
pub type PendingAnswer = Pin<Box<dyn Future<Output = Result<Answer, Failure>> + Send>>;

/// Computes the answer on one thread. Stops early, with any result, when the flag is set.
pub type BlockingWork = Box<dyn FnOnce(Arc<Cancel>) -> Result<Answer, Failure> + Send>;

/// The answer to a query.
pub enum Answer {
    /// One datum that has a JSON form.
    Atom {
        value: Datum,
        /// The profile, if the query asked for one.
        profile: Option<Datum>,
    },
    /// A complete stream: the JSON texts of its items, separated by commas. They are preceded by
    /// [`TEXTS_ROOM_BYTES`](protocol::response::TEXTS_ROOM_BYTES) of free room.
    Texts(Vec<u8>),
    /// The first batch of a stream.
    Stream {
        batch: Batch,
        /// Yields the next one; `None` after the last.
        cursor: Option<Box<dyn Cursor>>,
    },
}

/// Consecutive items of a stream.
pub struct Batch {
    /// Datums that have a JSON form.
    pub items: Vec<Datum>,
    /// Whether this is the last batch.
    pub done: bool,
    /// The notes of the response: the kind of changefeed. Empty for other streams.
    pub notes: Vec<Note>,
    /// The profile, if the query asked for one.
    pub profile: Option<Datum>,
}

/// A stream between two batches. Dropping it ends the stream.
pub trait Cursor: Send {
    /// The next batch. Runs on a thread of the pool and may block; stops early, with any
    /// result, when the query's flag is set.
    fn next_batch(&mut self) -> Result<Batch, Failure>;

    /// Whether it reads a changefeed, so that [`Cursor::poll_batch`] can be called.
    fn is_feed(&self) -> bool {
        false
    }

    /// The next batch of a changefeed, without blocking. If there is no element yet, `waker` is woken once there is.
    fn poll_batch(&mut self, _waker: &Waker) -> PolledBatch {
        PolledBatch::NeedsThread
    }
}

/// The outcome of [`Cursor::poll_batch`].
pub enum PolledBatch {
    Ready(Result<Batch, Failure>),
    /// There is no element yet.
    Waiting,
    /// The batch has to be fetched on a thread of the pool.
    NeedsThread,
}

/// The kinds by which queries are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryKind {
    /// One row by its primary key.
    PointRead,
    /// A write of one row by its primary key.
    PointWrite,
    /// Any other query that writes nothing.
    Read,
    /// Any other query that writes.
    Write,
    /// The next batch of a stream.
    Continue,
    /// The client's STOP of a stream.
    Stop,
    /// NOREPLY_WAIT or SERVER_INFO.
    Session,
    /// A query that could not be parsed.
    Malformed,
}

impl QueryKind {
    /// Every kind, in the order of their discriminants.
    pub const ALL: [QueryKind; 8] = [
        QueryKind::PointRead,
        QueryKind::PointWrite,
        QueryKind::Read,
        QueryKind::Write,
        QueryKind::Continue,
        QueryKind::Stop,
        QueryKind::Session,
        QueryKind::Malformed,
    ];

    /// The label in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            QueryKind::PointRead => "point_read",
            QueryKind::PointWrite => "point_write",
            QueryKind::Read => "read",
            QueryKind::Write => "write",
            QueryKind::Continue => "continue",
            QueryKind::Stop => "stop",
            QueryKind::Session => "session",
            QueryKind::Malformed => "malformed",
        }
    }
}
