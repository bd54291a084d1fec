//! Runs queries: open terms, selections, streams, aggregation, writes, administration and system tables.
//!
//! A connection hands over a [`Query`]; the result is a datum or a cursor. This crate knows neither
//! sockets nor protocols of clients.
//!
//! - [`Service`]: shared by all queries of a node; [`Session`]: the queries of one client
//! - [`Session::run`]: runs any query, on a thread that may block; [`Session::point`]: reads and writes of one row,
//!   which do not block
//! - [`Answer`], [`Cursor`], [`Batch`]: results
//! - [`RemoteCalls`], [`QueryServer`]: requests to other nodes, and the server for theirs ([`reencode_request`] and
//!   [`REQUEST_VERSION`] are for tests of the format)
//!
//! The crate is divided into rooms; each uses only those above it in this list:
//!
//! - `edit`: the effect of a write on one row, and the options of writes.
//! - `thread_pool`: threads for queries and scans, and for point queries whose rows are on disk.
//! - `http`: the requests of `r.http`, which the caller of this crate sends.
//! - `script`: JavaScript in queries, which the caller of this crate runs.
//! - `routing`: calls to other nodes, leader lookup, batches of reads, and failover from servers that hang.
//! - `service`: the state that all queries of a node share.
//! - `context`: one running query, with its caller, limits and cancellation.
//! - `table`: tables as queries refer to them, and the permissions they need.
//! - `remote`: reads and writes of shards on other nodes, as requests.
//! - `stream`: sources and steps of sequences.
//! - `value`: the results of terms.
//! - `feed`: changefeeds.
//! - `write`: runs the writes of rows and sums up their results.
//! - `system`: the system tables.
//! - `session`: the queries of a connection and their cursors.
//! - `point`: reads and writes of one row, without a thread of their own.
//! - `request_server`: serves requests of other nodes with the code of the node's own queries.
//! - `term`: the open terms, one file per command or family.
//! - `eval`: the evaluator of open terms.

#![forbid(unsafe_code)]

mod context;
mod edit;
mod eval;
mod feed;
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

pub use http::{Auth, HttpClient, HttpFailure, HttpRequest, HttpResponse, HttpSession, Method};
pub use point::{DiskPoint, PointAnswer, PointWrite, RemotePoint};
pub use remote::{REQUEST_VERSION, reencode_request};
pub use reql::BatchLimits;
pub use request_server::QueryServer;
pub use routing::RemoteCalls;
pub use script::{FunctionId, ScriptAnswer, ScriptFailure, ScriptLimits, ScriptSession, Scripts};
pub use service::{
    Client, Counters, FeedCounters, FeedKind, LogLevel, LogLine, MetricsHistory, MetricsSample,
    PasswordMaker, RecentLog, ServerFacts, Service, ServiceOptions, memory_owners,
};
pub use session::{Answer, Answered, Batch, Cursor, Polled, Query, QueryError, Session};
pub use table::{NamedTableSizes, table_sizes};
