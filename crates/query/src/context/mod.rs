//! What every part of one running query shares: the node, who asks, limits, options, the
//! query's time, and the flag that stops it.

mod caller;
mod tables_read;
pub(crate) mod trace;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use cluster::{Catalog, Node};
use datum::{Datum, Text, Time};
use io::Nanos;
use reql::{Cancel, Env, EvalError, RandomSource, SeededRandom};
use shard::Activity;

use crate::script::ScriptRunner;
use crate::service::Service;

pub(crate) use caller::Caller;
pub(crate) use tables_read::TablesRead;
pub(crate) use trace::{ReadNote, Trace};

/// The database of a query that does not say another.
pub(crate) const DB_DEFAULT: &str = "test";

/// How long a query that finds nothing waits for news of the catalog.
const CATCH_UP: Duration = Duration::from_secs(2);

/// The surroundings of one query. Shared by its evaluation, its cursor and its scan threads.
pub(crate) struct Cx {
    /// The node's query service: the node itself, the scan threads, the list of running queries.
    pub service: Arc<Service>,
    /// Who asks.
    pub caller: Caller,
    /// The options of the whole query, evaluated; `db` is kept apart.
    pub globals: Vec<(Text, Datum)>,
    /// The name of the database that one-argument `table` means; that it is none, if the query says something else.
    pub default_db: Result<Text, EvalError>,
    /// What `now` answers all through the query.
    pub now: Time,
    /// The most items an array may hold.
    pub array_limit: usize,
    /// Set when the query should stop.
    pub cancel: Arc<Cancel>,
    /// Where the query's random numbers come from.
    pub random: SeededRandom,
    /// Whether this is a question of another node, which may not lead to further ones.
    pub served: bool,
    /// What it does is written down here, when somebody wants to know.
    pub trace: Option<Arc<Trace>>,
    /// How many rows it has looked at, when somebody wants to know.
    pub looked_at: Option<Arc<AtomicU64>>,
    /// The tables that its answer is made of while it is fetched.
    pub tables_read: TablesRead,
    /// Its scripts in JavaScript.
    pub scripts: Arc<ScriptRunner>,
    /// This very context, for streams and threads that live on.
    pub me: Weak<Cx>,
}

/// Counts the rows that a query looks at.
#[derive(Clone)]
pub(crate) struct RowCounter {
    service: Arc<Service>,
    looked_at: Option<Arc<AtomicU64>>,
    activity: Option<Arc<Activity>>,
}

impl RowCounter {
    /// For the rows of this query.
    pub fn of(cx: &Cx) -> RowCounter {
        RowCounter { service: cx.service.clone(), looked_at: cx.looked_at.clone(), activity: None }
    }

    /// For those of one shard, which counts them, too.
    pub fn of_shard(cx: &Cx, activity: &Arc<Activity>) -> RowCounter {
        RowCounter { activity: Some(activity.clone()), ..RowCounter::of(cx) }
    }

    /// So many rows were looked at.
    pub fn rows(&self, count: usize) {
        self.service.counters().rows_read.fetch_add(count as u64, Ordering::Relaxed);
        if let Some(looked_at) = &self.looked_at {
            looked_at.fetch_add(count as u64, Ordering::Relaxed);
        }
        self.activity.iter().for_each(|activity| activity.add_read(count));
    }
}

/// What an evaluation knows besides its arguments, as it travels to other nodes.
pub(crate) struct EvalParams {
    /// What `now` answers.
    pub now: Time,
    /// The most items an array may hold.
    pub array_limit: usize,
    /// Where random numbers begin.
    pub seed: u64,
    /// The options of the whole query.
    pub globals: Vec<(Text, Datum)>,
}

impl EvalParams {
    /// For what evaluates nothing.
    pub fn none() -> EvalParams {
        let now = Time::new(0.0, 0);
        EvalParams { now, array_limit: reql::ARRAY_LIMIT_DEFAULT, seed: 0, globals: Vec::new() }
    }

    /// What `cx` knows, with a seed of its own.
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
    /// The surroundings of a question of another node, where `user` was found to be allowed it.
    pub fn served(
        service: Arc<Service>,
        user: Text,
        eval_params: EvalParams,
        cancel: Arc<Cancel>,
    ) -> Arc<Cx> {
        Arc::new_cyclic(|me: &Weak<Cx>| Cx {
            service,
            caller: Caller::User(user),
            globals: eval_params.globals,
            default_db: Ok(Text::from_static(DB_DEFAULT)),
            now: eval_params.now,
            array_limit: eval_params.array_limit,
            cancel,
            random: SeededRandom::new(eval_params.seed),
            served: true,
            trace: None,
            looked_at: Some(Arc::default()),
            tables_read: TablesRead::default(),
            scripts: Arc::default(),
            me: me.clone(),
        })
    }

    /// Another node has looked at so many rows for this query.
    pub fn add_remote_rows_read(&self, rows: u64) {
        if let Some(looked_at) = &self.looked_at {
            looked_at.fetch_add(rows, Ordering::Relaxed);
        }
    }

    /// The rows looked at since this was called last.
    pub fn take_looked_at(&self) -> u64 {
        self.looked_at.as_ref().map_or(0, |looked_at| looked_at.swap(0, Ordering::Relaxed))
    }

    /// How long it is since then.
    pub fn since(&self, started: Nanos) -> Duration {
        self.node().clock().now().since(started)
    }

    /// The node.
    pub fn node(&self) -> &Node {
        self.service.node()
    }

    /// This context, to keep.
    pub fn shared(&self) -> Result<Arc<Cx>, EvalError> {
        self.me.upgrade().ok_or_else(|| EvalError::internal("the query is over"))
    }

    /// The present catalog. Terms that follow a change in the same query see the change.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.node().catalog()
    }

    /// What `found` finds in the catalog; if that is nothing, what it finds once this node has everything
    /// that the catalog holds now: another node may have made it just before.
    pub fn retry_with_fresh_catalog<T>(&self, found: impl Fn() -> Option<T>) -> Option<T> {
        found().or_else(|| {
            if !self.served {
                self.node().catch_up(CATCH_UP);
            }
            found()
        })
    }

    /// The surroundings of closed evaluation at the top, where functions may reach tables.
    pub fn env(&self) -> Env<'_> {
        Env { open: Some(self), ..self.closed_env() }
    }

    /// The surroundings of closed evaluation beside the rows.
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

    /// Fails if the query was told to stop, or holds more memory than it may.
    pub fn check_cancel(&self) -> Result<(), EvalError> {
        self.cancel.check()
    }

    /// Fails if the query was told to stop, or came too deep.
    pub fn unless_stopped(&self) -> Result<(), EvalError> {
        if self.cancel.is_set() { self.cancel.check() } else { Ok(()) }
    }

    /// Fails if an array may not hold `count` items, or there is no memory left for them.
    pub fn check_array(&self, count: usize) -> Result<(), EvalError> {
        self.closed_env().check_array(count)
    }

    /// The option of the whole query with this name.
    pub fn global(&self, name: &str) -> Option<&Datum> {
        self.globals.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }
}
