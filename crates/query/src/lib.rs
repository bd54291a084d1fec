//! A running query: open terms, selections, streams, gathering, writes, system tables.
//!
//! Line 5 of the river. A connection hands over a query that `reql` found legal; what comes back is
//! a datum or a cursor. Knows nothing of sockets and wire numbers.
//!
//! - [`Service`]: what all queries of a node share; [`Session`]: one client's queries
//! - [`Session::run`]: any query, on a thread that may block; [`Session::point`]: the reads and
//!   writes of one row that need none
//! - [`Answer`], [`Cursor`], [`Batch`]: what comes back
//! - [`Peers`], [`QueryServer`]: what is asked of other nodes, and what they ask ([`reencode_request`], [`REQUEST_VERSION`]
//!   for whoever tests its bytes)

#![forbid(unsafe_code)]

mod context;
mod edit;
mod eval;
mod http;
mod point;
mod remote;
mod request_server;
mod routing;
mod script;
mod service;
mod session;
mod stream;
mod system;
mod table;
mod term;
mod thread_pool;
mod value;
mod write;

pub use http::{Auth, HttpFailure, HttpRequest, HttpResponse, Method, Web, WebSession};
pub use point::{PointAnswer, PointWrite, RemotePoint};
pub use remote::{REQUEST_VERSION, reencode_request};
pub use reql::BatchLimits;
pub use request_server::QueryServer;
pub use routing::Peers;
pub use script::{FunctionId, ScriptAnswer, ScriptFailure, ScriptLimits, ScriptSession, Scripts};
pub use service::{
    Client, Counters, LogLevel, LogLine, PasswordMaker, RecentLog, ServerFacts, Service, ServiceOptions,
};
pub use session::{Answer, Answered, Batch, Cursor, QueryError, Session};
