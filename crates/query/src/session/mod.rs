//! Sessions: the queries of one connection.

mod answer;
mod cursor;
mod error;
mod limits;
mod noted_wake;
mod profile;
mod query;
mod running_query;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use datum::{Datum, Text, Time, cancel};
use io::Nanos;
use reql::{Cancel, EvalError, GlobalOption, Op, Scope, SeededRandom, Term};

use self::cursor::check_json;
use self::profile::Profile;
use self::running_query::{Measured, RunningQuery};
use crate::context::{Caller, Cx, DB_DEFAULT, TablesRead, Trace, trace};
use crate::service::{Client, FeedPolling, Job, Service};
use crate::value::{DbRef, Seq, Value};

pub use answer::{Answer, Answered};
pub use cursor::{Batch, Cursor, Polled};
pub use error::QueryError;
pub(crate) use query::KeptQuery;
pub use query::Query;

/// Runs the queries of one client. Cheap to create and to clone; threads share it.
#[derive(Clone)]
pub struct Session {
    pub(crate) service: Arc<Service>,
    pub(crate) client: Arc<Client>,
    /// The number of changefeeds that it has open.
    feeds: Arc<AtomicUsize>,
}

impl Session {
    /// Queries run with the permissions of `client`.
    #[must_use]
    pub fn new(service: Arc<Service>, client: Client) -> Session {
        Session { service, client: Arc::new(client), feeds: Arc::default() }
    }

    /// Runs a query. The result is a datum or a cursor. Blocks; `cancel` ends it early with an error, now or while the
    /// cursor is read.
    pub fn run(&self, query: &Query, cancel: Arc<Cancel>) -> Result<Answered, QueryError> {
        self.service.counters().queries.fetch_add(1, Ordering::Relaxed);
        let term = &query.term;
        let started = self.service.node().clock().now();
        let mut profile = Profile::of(query, started);
        let is_explained = query.flag("explain");
        let trace =
            Arc::new(if profile.is_some() || is_explained { Trace::default() } else { Trace::sketch() });
        if let Some(profile) = &mut profile {
            profile.follow(term, trace.clone());
        }
        let _cancel_scope = cancel::scope(Some(cancel.clone()));
        let cx = self.context(query, cancel, Some(trace.clone()))?;
        if is_explained && trace::writes(term) {
            let why = "Cannot explain a query that writes: it would have to be carried out.";
            return Err(EvalError::logic(why).into());
        }
        let job = self.register(&cx, query, started, (!is_explained).then(|| trace.clone()));
        let value = match cx.eval(term, &Scope::empty()) {
            Ok(value) => value,
            Err(error) => return Err(job.explain(error).into()),
        };
        let mut answer = answer(cx, value, job, profile.clone())?;
        if is_explained {
            let read = read_to_the_end(&mut answer)?;
            let took = self.service.node().clock().now().since(started);
            answer = Answer::Atom(trace.explanation(reql::print::term(term), read, took));
        }
        let profile = match &answer {
            Answer::Atom(_) => profile.map(|profile| profile.finish(self.service.node().clock().now())),
            Answer::Stream(_) => None,
        };
        Ok(Answered { answer, profile })
    }

    fn context(
        &self,
        query: &Query,
        cancel: Arc<Cancel>,
        trace: Option<Arc<Trace>>,
    ) -> Result<Arc<Cx>, QueryError> {
        let bare = |caller: Caller| self.cx(caller, Settings::default(), cancel.clone(), None);
        let (globals, default_db) = globals(query, &self.client.user, bare);
        limits::feed_queue(&globals)?;
        let settings = Settings {
            source: query.source.clone(),
            array_limit: limits::array_limit(&globals)?,
            globals,
            default_db,
        };
        Ok(self.cx(Caller::User(self.client.user.clone()), settings, cancel, trace))
    }

    fn cx(
        &self,
        caller: Caller,
        settings: Settings,
        cancel: Arc<Cancel>,
        trace: Option<Arc<Trace>>,
    ) -> Arc<Cx> {
        let node = self.service.node();
        let now = Time::new(node.clock().unix().as_secs_f64(), 0);
        let seed = node.random().next_u64();
        Arc::new_cyclic(|me: &Weak<Cx>| Cx {
            service: self.service.clone(),
            caller,
            source: settings.source,
            globals: settings.globals,
            default_db: settings.default_db,
            now,
            array_limit: settings.array_limit,
            cancel,
            random: SeededRandom::new(seed),
            serves_remote: false,
            rows_read: trace.as_ref().map(|trace| trace.rows_read.clone()),
            trace: trace.clone(),
            tables_read: TablesRead::default(),
            scripts: Arc::default(),
            feeds: Arc::new(FeedPolling::new(self.feeds.clone(), self.service.feed_counters.clone())),
            me: me.clone(),
        })
    }

    /// Adds a query to the list of jobs; it is measured if it has a `trace`.
    fn register(&self, cx: &Cx, query: &Query, started: Nanos, trace: Option<Arc<Trace>>) -> RunningQuery {
        let node = self.service.node();
        let (id, term) = (node.new_uuid(), Arc::new(query.term.clone()));
        let measured = trace.map(|trace| Measured {
            service: self.service.clone(),
            id,
            client: self.client.clone(),
            term: term.clone(),
            source_bytes: query.source.as_ref().map_or(0, |source| source.len()),
            trace,
            started,
            of_cursor: None,
        });
        let job = Job {
            client: self.client.clone(),
            query: term,
            started: node.clock().now(),
            cancel: cx.cancel.clone(),
            feeds: cx.feeds.clone(),
            killed: Arc::default(),
        };
        RunningQuery::new(self.service.jobs.enter(id, job), measured)
    }
}

/// The text and the evaluated options of a query.
struct Settings {
    source: Option<Text>,
    globals: Vec<GlobalOption>,
    default_db: Result<Text, EvalError>,
    array_limit: usize,
}

impl Default for Settings {
    fn default() -> Self {
        let default_db = Ok(Text::from_static(DB_DEFAULT));
        Settings { source: None, globals: Vec::new(), default_db, array_limit: reql::ARRAY_LIMIT_DEFAULT }
    }
}

/// Options that are evaluated before the query has a user, so that they cannot use tables. Source: RethinkDB 2.4, which
/// refuses reads and writes there for want of permission.
const LIMIT_OPTIONS: [&str; 2] = ["array_limit", "changefeed_queue_size"];

/// The options of the whole query as datums, and the database of `table` with one argument. Options that are not
/// literals are evaluated with the context of `bare` for `user`, without options, unless they belong to terms that the query does
/// not have. One that fails or has the wrong type becomes the error of the terms that ask for it; in RethinkDB such an error has an
/// empty backtrace.
fn globals(
    query: &Query,
    user: &Text,
    bare: impl Fn(Caller) -> Arc<Cx>,
) -> (Vec<GlobalOption>, Result<Text, EvalError>) {
    let mut globals = Vec::with_capacity(query.options.len());
    let mut default_db = Ok(Text::from_static(DB_DEFAULT));
    for (name, term) in &query.options {
        if let ("db", Some(db)) = (name.as_ref(), db_name(term)) {
            default_db = Ok(db);
            continue;
        }
        let is_limit = LIMIT_OPTIONS.contains(&name.as_ref());
        let is_asked_for = is_limit || reql::purity::may_ask_for(&query.term, name);
        if !matches!(term, Term::Datum(_)) && !is_asked_for {
            continue;
        }
        let caller = if is_limit { Caller::None } else { Caller::User(user.clone()) };
        let value = global(term, || bare(caller)).map_err(EvalError::frameless);
        if name == "db" {
            default_db = value.and_then(Global::into_db);
        } else {
            globals.push((name.clone(), value.and_then(Global::into_datum)));
        }
    }
    (globals, default_db)
}

/// The name in `r.db(name)`.
fn db_name(term: &Term) -> Option<Text> {
    match term {
        Term::Call(call) => match (call.op, call.args.as_slice()) {
            (Op::Db, [Term::Datum(Datum::String(name))]) => Some(name.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// The value of an option of the whole query.
enum Global {
    Datum(Datum),
    Db(DbRef),
}

impl Global {
    fn into_db(self) -> Result<Text, EvalError> {
        match self {
            Global::Db(db) => Ok(db.name),
            Global::Datum(value) => Err(Value::Datum(value).mismatch("DATABASE").frameless()),
        }
    }

    fn into_datum(self) -> Result<Datum, EvalError> {
        match self {
            Global::Datum(value) => Ok(value),
            Global::Db(db) => Err(Value::Db(db).mismatch("DATUM").frameless()),
        }
    }
}

fn global(term: &Term, bare: impl FnOnce() -> Arc<Cx>) -> Result<Global, EvalError> {
    if let Term::Datum(value) = term {
        return Ok(Global::Datum(value.clone()));
    }
    let cx = bare();
    match cx.eval(term, &Scope::empty())? {
        Value::Db(db) => Ok(Global::Db(db)),
        other => other.into_datum(&cx).map(Global::Datum),
    }
}

/// Reads a result to its end and drops its items.
fn read_to_the_end(answer: &mut Answer) -> Result<trace::Answered, EvalError> {
    let Answer::Stream(cursor) = answer else { return Ok(trace::Answered { kind: "value", items: 1 }) };
    if cursor.is_endless() {
        let why = "Cannot explain an infinite stream: it would have to be read to its end. Use `limit`.";
        return Err(EvalError::logic(why));
    }
    let mut items = 0;
    loop {
        let batch = cursor.next_batch()?;
        items += batch.items.len() as u64;
        if batch.done {
            return Ok(trace::Answered { kind: "stream", items });
        }
    }
}

/// The result that the client gets for the value of the query.
fn answer(
    cx: Arc<Cx>,
    value: Value,
    job: RunningQuery,
    profile: Option<Profile>,
) -> Result<Answer, EvalError> {
    let datum = match value {
        Value::Table(slice) => {
            let pipe = slice.into_seq(&cx)?.pipe;
            return Cursor::open(cx, pipe, job, profile).map(|cursor| Answer::Stream(Box::new(cursor)));
        }
        Value::Seq(Seq { eager: true, pipe, .. }) => {
            Datum::Array(reql::stream::collect(&mut *pipe.open(&cx)?, &cx.env())?)
        }
        Value::Seq(seq) => {
            let cursor = Cursor::open(cx, seq.pipe, job, profile)?;
            return Ok(Answer::Stream(Box::new(cursor)));
        }
        Value::Grouped(grouped) => grouped.into_answer(&cx)?,
        Value::Datum(datum) => datum,
        Value::Row(row) => row.into_datum(&cx)?,
        other => {
            let kind = other.kind();
            return Err(EvalError::logic(format!(
                "Query result must be of type DATUM, GROUPED_DATA, or STREAM (got {kind})."
            )));
        }
    };
    check_json(&datum)?;
    // A value that was still evaluated while the query was cancelled may be wrong.
    cx.check_stopped().map_err(|error| job.explain(error))?;
    Ok(Answer::Atom(datum))
}
