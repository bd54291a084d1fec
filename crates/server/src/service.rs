//! The seam between a connection and whoever runs its queries.
//!
//! A connection knows tokens, frames and sockets; a session knows queries. What a session
//! answers at once is sent with the same write as its neighbours; everything else is answered
//! when it is done.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

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

    /// Who this server is.
    fn server_info(&self) -> ServerInfo;

    /// Called soon after [`Session::begin`] has answered [`Work::Pending`], once for as many as came
    /// together: what they began is carried out, if nobody else does so already.
    fn drive(&self) {}

    /// The caller begins more in a moment: until [`QueryService::release`] nobody need be woken for what is begun or
    /// arrives on links. Until then it must not wait for an answer.
    fn hold(&self) {}

    /// Once for each [`QueryService::hold`], soon after it.
    fn release(&self) {}

    /// What one connection's queries run in.
    fn session(&self, client: Client) -> Arc<dyn Session>;
}

/// Who is at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// The account that was proved in the handshake.
    pub user: String,
    /// Where it comes from.
    pub address: SocketAddr,
}

/// One connection's way to have queries run. Used from the connection's thread and from the
/// pool's, at the same time.
pub trait Session: Send + Sync {
    /// Reads a START and says how it will be answered. Called on the connection's thread: must
    /// neither block nor take longer than a point query. A query that cannot be read is
    /// [`Work::Done`] with its failure. What the query keeps of `body` is shared, not copied.
    fn begin(&self, body: Bytes) -> Begun;
}

/// A query that was read.
pub struct Begun {
    /// Whether the client wants no answer, not even an error.
    pub noreply: bool,
    /// What it is counted as.
    pub kind: QueryKind,
    /// How its answer comes about.
    pub work: Work,
}

/// How an answer comes about.
pub enum Work {
    /// It is here.
    Done(Result<Answer, Failure>),
    /// It comes without anybody waiting for it: a write on its way to the log, or a question to another
    /// node. [`QueryService::turn`] is to be called.
    Pending(PendingAnswer),
    /// Somebody must work for it: runs on a thread of the pool.
    Blocking(BlockingWork),
}

/// Completes when the answer is there; may be polled from any thread.
pub type PendingAnswer = Pin<Box<dyn Future<Output = Result<Answer, Failure>> + Send>>;

/// Runs to the answer on one thread. Stops early, with any result, when the flag is set.
pub type BlockingWork = Box<dyn FnOnce(Arc<Cancel>) -> Result<Answer, Failure> + Send>;

/// What a query answers.
pub enum Answer {
    /// One datum that has a JSON form.
    Atom {
        /// The datum.
        value: Datum,
        /// What was measured, when the query asked for it.
        profile: Option<Datum>,
    },
    /// A stream that ends with these items: their JSON texts, with commas between them.
    /// Before them is [`TEXTS_ROOM_BYTES`](protocol::response::TEXTS_ROOM_BYTES) of room.
    Texts(Vec<u8>),
    /// The first batch of a stream.
    Stream {
        /// The batch.
        batch: Batch,
        /// Where the next one comes from; `None` after the last.
        cursor: Option<Box<dyn Cursor>>,
    },
}

/// Some items of a stream, in its order.
pub struct Batch {
    /// Datums that have a JSON form.
    pub items: Vec<Datum>,
    /// Whether another may follow.
    pub done: bool,
    /// What kind of changefeed it is; empty for anything else.
    pub notes: Vec<Note>,
    /// What was measured, when the query asked for it.
    pub profile: Option<Datum>,
}

/// A stream between two batches. Dropping it ends the stream.
pub trait Cursor: Send {
    /// The next batch. Runs on a thread of the pool and may block; stops early, with any
    /// result, when the query's flag is set.
    fn next_batch(&mut self) -> Result<Batch, Failure>;
}

/// What queries are counted by.
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
    /// The end of a stream that the client wants no more of.
    Stop,
    /// Waiting for noreply queries, or asking who the server is.
    Session,
    /// A query that could not be read.
    Malformed,
}

impl QueryKind {
    /// Every kind, in the order of its number.
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

    /// The name metrics show.
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
