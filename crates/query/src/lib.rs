//! A running query: open terms, selections, streams, gathering, writes, system tables.
//!
//! Line 5 of the river. A connection hands over a query that `reql` found legal; what comes back is
//! a datum or a cursor. Knows nothing of sockets and wire numbers.
//!
//! - [`Service`]: what all queries of a node share; [`Session`]: one client's queries
//! - [`Session::run`]: any query, on a thread that may block; [`Session::point`]: the reads and
//!   writes of one row that need none
//! - [`Answer`], [`Cursor`], [`Batch`]: what comes back
//! - [`Links`], [`QuestionDesk`]: what is asked of other nodes, and what they ask ([`question_again`], [`QUESTION_VERSION`]
//!   for whoever tests its bytes)

#![forbid(unsafe_code)]

mod access;
mod answer;
mod args;
mod asker;
mod client;
mod context;
mod cursor;
mod cursors;
mod desk;
mod edit;
mod error;
mod eval;
mod everywhere;
mod explain;
mod failure;
mod far;
mod gather;
mod gets;
mod group;
mod hook;
mod http;
mod ids;
mod jobs;
mod limits;
mod links;
mod log_book;
mod lost;
mod names;
mod order;
mod piece;
mod point;
mod pool;
mod profile;
mod rates;
mod read;
mod read_mode;
mod reshape;
mod rights;
mod row;
mod script;
mod seek;
mod seq;
mod service;
mod session;
mod slice;
mod stream;
mod streamed;
mod system;
mod table;
mod term;
mod value;
mod watch;
mod write;

pub use answer::{Answer, Answered};
pub use client::Client;
pub use cursor::{Batch, Cursor};
pub use desk::QuestionDesk;
pub use error::QueryError;
pub use far::{QUESTION_VERSION, question_again};
pub use http::{Auth, HttpFailure, HttpRequest, HttpResponse, Method, Web, WebSession};
pub use links::Links;
pub use log_book::{LogBook, LogLevel, LogLine};
pub use point::{FarPoint, PointAnswer, PointWrite};
pub use reql::BatchLimits;
pub use script::{FunctionId, ScriptAnswer, ScriptFailure, ScriptLimits, ScriptSession, Scripts};
pub use service::{Counters, PasswordMaker, ServerFacts, Service, ServiceOptions};
pub use session::Session;
