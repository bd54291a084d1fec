//! The context of one running query: node, caller, limits, options, the query's time, and its cancellation.

mod caller;
mod tables_read;
pub(crate) mod trace;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use cluster::{Catalog, Node};
use datum::{Datum, Text, Time};
use io::Nanos;
use reql::{Cancel, Env, EvalError, GlobalOption, RandomSource, SeededRandom};
use shard::Activity;

use crate::script::ScriptRunner;
use crate::service::{FeedPolling, Service};

pub(crate) use caller::Caller;
pub(crate) use tables_read::TablesRead;
pub(crate) use trace::{ReadNote, Trace};

/// The database of a query that names none.
pub(crate) const DB_DEFAULT: &str = "test";

/// How long a query that does not find a database, table or index waits until this node has the newest catalog.
const CATALOG_CATCH_UP_TIMEOUT: Duration = Duration::from_secs(2);

/// The context of one query. Its evaluation, its cursor and its scan threads share it.
pub(crate) struct Cx {
    /// The node's query service.
    pub service: Arc<Service>,
    /// The account it runs as.
    pub caller: Caller,
    /// The text of the query, for the functions that it stores. `None` if it has none, and for requests of other nodes.
    pub source: Option<Text>,
    /// The options of the whole query, evaluated, without `db`.
    pub globals: Vec<GlobalOption>,
    /// The database of `table` with one argument; an error if the option `db` fails or is no database.
    pub default_db: Result<Text, EvalError>,
    /// The value of `now`, the same all through the query.
    pub now: Time,
    /// The most items an array may hold.
    pub array_limit: usize,
    /// Cancels the query.
    pub cancel: Arc<Cancel>,
    /// The source of the query's random numbers.
    pub random: SeededRandom,
    /// Whether this is a request of another node, which may not lead to further requests.
    pub serves_remote: bool,
    /// Records the work of the query, for `explain`, `profile` and the list of slow queries.
    pub trace: Option<Arc<Trace>>,
    /// Counts the rows that were read, where that is reported.
    pub rows_read: Option<Arc<AtomicU64>>,
    /// The tables whose rows are in the result while the client fetches it.
    pub tables_read: TablesRead,
    /// Runs its scripts in JavaScript.
    pub scripts: Arc<ScriptRunner>,
    /// Its changefeeds.
    pub feeds: Arc<FeedPolling>,
    /// This very context, for streams and threads that outlive a borrow of it.
    pub me: Weak<Cx>,
}

/// Counts the rows that a query reads.
#[derive(Clone)]
pub(crate) struct RowCounter {
    service: Arc<Service>,
    rows_read: Option<Arc<AtomicU64>>,
    activity: Option<Arc<Activity>>,
}

impl RowCounter {
    /// Counts rows of this query.
    pub fn of(cx: &Cx) -> RowCounter {
        RowCounter { service: cx.service.clone(), rows_read: cx.rows_read.clone(), activity: None }
    }

    /// Counts rows of one shard, also in the shard's own counter.
    pub fn of_shard(cx: &Cx, activity: &Arc<Activity>) -> RowCounter {
        RowCounter { activity: Some(activity.clone()), ..RowCounter::of(cx) }
    }

    /// Adds rows.
    pub fn rows(&self, count: usize) {
        self.service.counters().rows_read.fetch_add(count as u64, Ordering::Relaxed);
        if let Some(rows_read) = &self.rows_read {
            rows_read.fetch_add(count as u64, Ordering::Relaxed);
        }
        self.activity.iter().for_each(|activity| activity.add_read(count));
    }
}

/// The parameters of an evaluation besides its arguments, as they are sent to other nodes.
pub(crate) struct EvalParams {
    /// The value of `now`.
    pub now: Time,
    /// The most items an array may hold.
    pub array_limit: usize,
    /// The seed of random numbers.
    pub seed: u64,
    /// The options of the whole query. A request with one that has failed is not sent.
    pub globals: Vec<GlobalOption>,
}

impl EvalParams {
    /// For requests that evaluate nothing.
    pub fn none() -> EvalParams {
        let now = Time::new(0.0, 0);
        EvalParams { now, array_limit: reql::ARRAY_LIMIT_DEFAULT, seed: 0, globals: Vec::new() }
    }

    /// The parameters of `cx`, with a new seed.
    pub fn of(cx: &Cx) -> EvalParams {
        EvalParams {
            now: cx.now,
            array_limit: cx.array_limit,
            seed: cx.random.next_u64(),
            globals: cx.globals.clone(),
        }
    }
}

impl Cx {
    /// The context of a request of another node for `user`, whose permissions that node has checked.
    pub fn served(
        service: Arc<Service>,
        user: Text,
        eval_params: EvalParams,
        cancel: Arc<Cancel>,
    ) -> Arc<Cx> {
        Arc::new_cyclic(|me: &Weak<Cx>| Cx {
            service,
            caller: Caller::User(user),
            source: None,
            globals: eval_params.globals,
            default_db: Ok(Text::from_static(DB_DEFAULT)),
            now: eval_params.now,
            array_limit: eval_params.array_limit,
            cancel,
            random: SeededRandom::new(eval_params.seed),
            serves_remote: true,
            trace: None,
            rows_read: Some(Arc::default()),
            tables_read: TablesRead::default(),
            scripts: Arc::default(),
            feeds: Arc::default(),
            me: me.clone(),
        })
    }

    /// The record of the query's work, if it takes a further entry.
    pub fn trace_room(&self) -> Option<&Arc<Trace>> {
        self.trace.as_ref().filter(|trace| trace.take_room())
    }

    /// Adds rows that another node has read for this query.
    pub fn add_remote_rows_read(&self, rows: u64) {
        if let Some(rows_read) = &self.rows_read {
            rows_read.fetch_add(rows, Ordering::Relaxed);
        }
    }

    /// The rows read since the last call.
    pub fn take_rows_read(&self) -> u64 {
        self.rows_read.as_ref().map_or(0, |rows_read| rows_read.swap(0, Ordering::Relaxed))
    }

    /// The time since `started`.
    pub fn since(&self, started: Nanos) -> Duration {
        self.node().clock().now().since(started)
    }

    /// The node that runs the query.
    pub fn node(&self) -> &Node {
        self.service.node()
    }

    /// A shared reference to this context.
    pub fn shared(&self) -> Result<Arc<Cx>, EvalError> {
        self.me.upgrade().ok_or_else(|| EvalError::internal("the query is over"))
    }

    /// The present catalog. Terms after a change in the same query see the change.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.node().catalog()
    }

    /// The result of `found`. If it is none, waits until this node has the newest catalog and calls it again: another
    /// node may have created the object just before.
    pub fn retry_with_fresh_catalog<T>(&self, found: impl Fn() -> Option<T>) -> Option<T> {
        found().or_else(|| {
            if !self.serves_remote {
                self.node().catch_up(CATALOG_CATCH_UP_TIMEOUT);
            }
            found()
        })
    }

    /// The environment for closed terms on this thread, whose functions may use tables.
    pub fn env(&self) -> Env<'_> {
        Env { open: Some(self), ..self.closed_env() }
    }

    /// The environment for closed terms on scan threads.
    pub fn closed_env(&self) -> Env<'_> {
        Env {
            now: self.now,
            array_limit: self.array_limit,
            cancel: &self.cancel,
            random: &self.random,
            globals: &self.globals,
            open: None,
        }
    }

    /// Fails if the query was cancelled, or uses more memory than it may.
    pub fn check_cancel(&self) -> Result<(), EvalError> {
        self.cancel.check()
    }

    /// Fails if the query was cancelled. Cheaper than [`Cx::check_cancel`], which also checks memory.
    pub fn check_stopped(&self) -> Result<(), EvalError> {
        if self.cancel.is_set() { self.cancel.check() } else { Ok(()) }
    }

    /// Fails if an array may not have `count` items, or there is no memory for them.
    pub fn check_array(&self, count: usize) -> Result<(), EvalError> {
        self.closed_env().check_array(count)
    }

    /// The option of the whole query with this name. Fails if its evaluation has failed.
    pub fn global(&self, name: &str) -> Result<Option<&Datum>, EvalError> {
        reql::global(&self.globals, name)
    }

    /// Whether the query has an option with this name.
    pub fn has_global(&self, name: &str) -> bool {
        self.globals.iter().any(|(key, _)| key == name)
    }
}
