//! A cursor: a stream that the client reads batch by batch.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use datum::{Datum, cancel};
use io::memory::Account;
use io::{Nanos, task};
use reql::stream::Items;
use reql::{BatchLimits, EvalError};

use super::noted_wake::NotedWake;
use super::profile::Profile;
use super::running_query::RunningQuery;
use crate::context::Cx;
use crate::service::FeedKind;
use crate::stream::Pipe;
use crate::table::access;

/// Some items of a stream, in its order.
#[derive(Debug)]
pub struct Batch {
    /// The items; each was checked to have a JSON form.
    pub items: Vec<Datum>,
    /// Whether this is the last batch.
    pub done: bool,
    /// The profile of this batch, if the query asked for one.
    pub profile: Option<Datum>,
}

/// The outcome of [`Cursor::poll_batch`].
#[derive(Debug)]
pub enum Polled {
    Ready(Result<Batch, EvalError>),
    /// There is no element yet.
    Waiting,
    /// The next elements have to be read on a thread that may block.
    NeedsThread,
}

/// The rest of a stream. It holds a snapshot of the tables it reads; dropping it ends the query.
pub struct Cursor {
    cx: Arc<Cx>,
    items: Box<dyn Items>,
    /// The item after the last batch: read to know whether there is another batch.
    ahead: Option<Datum>,
    /// The error with which a feed ends, after items that were delivered.
    failed: Option<EvalError>,
    /// Whether the last batch has ended before the feed had no more elements.
    is_cut: bool,
    /// Woken when a feed may have elements again.
    wake: Arc<NotedWake>,
    is_first: bool,
    limits: BatchLimits,
    profile: Option<Profile>,
    job: RunningQuery,
}

impl Cursor {
    /// Fails if the batch options are invalid. Other results than streams do not check them.
    pub(crate) fn open(
        cx: Arc<Cx>,
        pipe: Pipe,
        mut job: RunningQuery,
        profile: Option<Profile>,
    ) -> Result<Cursor, EvalError> {
        let limits = BatchLimits::of_options(|name| cx.global(name))?;
        let items = pipe.open(&cx)?;
        if cx.feeds.kind().is_some() {
            // The reader of a feed never waits here: see `poll_batch`.
            cx.feeds.set_waker(Some(Waker::noop().clone()));
            cx.feeds.set_may_block(true);
        }
        job.has_cursor(cx.feeds.kind().is_some());
        let wake = NotedWake::new();
        Ok(Cursor {
            cx,
            items,
            ahead: None,
            failed: None,
            is_cut: false,
            wake,
            is_first: true,
            limits,
            profile,
            job,
        })
    }

    /// Whether the stream has no end.
    pub(crate) fn is_endless(&self) -> bool {
        self.items.endless().is_some()
    }

    /// The kind of changefeed that it reads, and whether that reports states; `None` if it reads none.
    #[must_use]
    pub fn feed(&self) -> Option<(FeedKind, bool)> {
        self.cx.feeds.kind()
    }

    /// As [`Cursor::next_batch`], without blocking: if there is no element yet, `waker` is woken once there is. Only for
    /// cursors of changefeeds.
    pub fn poll_batch(&mut self, waker: &Waker) -> Polled {
        if !self.items.is_immediate() {
            return self.poll_readiness(waker);
        }
        if !self.cx.feeds.is_live() {
            return Polled::NeedsThread;
        }
        self.cx.feeds.set_waker(Some(waker.clone()));
        self.cx.feeds.set_may_block(false);
        let batch = self.next_batch();
        self.cx.feeds.set_may_block(true);
        match batch {
            Ok(batch) if batch.items.is_empty() && !batch.done => match self.cx.feeds.is_live() {
                true => Polled::Waiting,
                false => Polled::NeedsThread,
            },
            ended => Polled::Ready(ended),
        }
    }

    /// As [`Cursor::poll_batch`], for elements that take steps of any length: a batch is never ready here.
    fn poll_readiness(&mut self, waker: &Waker) -> Polled {
        let was_woken = self.wake.renew(waker);
        self.cx.feeds.set_waker(Some(Waker::from(self.wake.clone())));
        match was_woken
            || std::mem::take(&mut self.is_cut)
            || self.ahead.is_some()
            || self.failed.is_some()
            || self.cx.cancel.is_set()
        {
            true => Polled::NeedsThread,
            false => Polled::Waiting,
        }
    }

    /// The next items. Blocks, except on a changefeed, of which it returns what there is; fails soon after the query is
    /// cancelled.
    pub fn next_batch(&mut self) -> Result<Batch, EvalError> {
        let _cancel_scope = cancel::scope(Some(self.cx.cancel.clone()));
        let began = self.now();
        let batch = self.fill().map_err(|error| self.job.explain(error));
        self.job.read_batch(began, batch.as_ref().map_or(0, |batch| batch.items.len()));
        batch
    }

    fn fill(&mut self) -> Result<Batch, EvalError> {
        access::recheck_stream_reads(&self.cx)?;
        let limits = match std::mem::replace(&mut self.is_first, false) {
            true => self.limits.first(),
            false => self.limits,
        };
        let mut filling = Filling::new(limits, self.now());
        let done = loop {
            let item = match self.next() {
                Err(error) if error.is_not_ready() => break false,
                // The changes before the end of a feed are delivered first.
                Err(error) if !filling.items.is_empty() && self.cx.feeds.kind().is_some() => {
                    self.failed = Some(error);
                    break false;
                }
                item => item?,
            };
            let Some(item) = item else { break true };
            if filling.is_full(|| self.now()) {
                self.ahead = Some(item);
                break false;
            }
            filling.push(item)?;
            if filling.items.len() == 1 {
                // Steps after the feed may leave nothing of further elements for a long time.
                self.cx.feeds.stop_at(Some(task::now() + limits.time_max));
            }
        };
        self.is_cut = self.cx.feeds.is_stopped();
        self.cx.feeds.stop_at(None);
        self.cx.check_stopped()?;
        let profile = self.profile.clone().map(|profile| profile.finish(self.now()));
        Ok(Batch { items: filling.items, done, profile })
    }

    fn next(&mut self) -> Result<Option<Datum>, EvalError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.cx.check_cancel()?;
        match self.ahead.take() {
            Some(item) => Ok(Some(item)),
            None => self.items.next(&self.cx.env()),
        }
    }

    fn now(&self) -> Nanos {
        self.cx.node().clock().now()
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.cx.feeds.close();
    }
}

/// A batch that is being filled.
struct Filling {
    items: Vec<Datum>,
    bytes: usize,
    limits: BatchLimits,
    started: Nanos,
}

/// From this size on a batch is only encoded if there is memory for it: rows that share parts may have used little
/// until then.
const LARGE_BATCH_BYTES: usize = 4 << 20;

/// The clock is read once per this many rows.
const ROWS_PER_CLOCK_READ: usize = 16;

impl Filling {
    fn new(limits: BatchLimits, started: Nanos) -> Filling {
        Filling { items: Vec::new(), bytes: 0, limits, started }
    }

    fn is_full(&self, now: impl Fn() -> Nanos) -> bool {
        let rows = self.items.len();
        if rows < self.limits.rows_min.max(1) {
            return false;
        }
        let late = || rows.is_multiple_of(ROWS_PER_CLOCK_READ) && self.is_late(now());
        rows >= self.limits.rows_max || self.bytes >= self.limits.bytes_max || late()
    }

    fn is_late(&self, now: Nanos) -> bool {
        let spent: Duration = now.since(self.started);
        spent >= self.limits.time_max
    }

    fn push(&mut self, item: Datum) -> Result<(), EvalError> {
        self.bytes += check_json(&item)?;
        if let (LARGE_BATCH_BYTES.., Some(account)) = (self.bytes, Account::current()) {
            account.check_room(self.bytes as u64).map_err(EvalError::memory)?;
        }
        self.items.push(item);
        Ok(())
    }
}

/// Most bytes of a value in a response, roughly: a frame cannot be larger.
const ANSWER_BYTES_MAX: usize = u32::MAX as usize;

/// The approximate length of the JSON of `datum`. Fails with `Cannot convert r.minval to JSON.` if it contains a bound,
/// which has no JSON form.
pub(crate) fn check_json(datum: &Datum) -> Result<usize, EvalError> {
    let bytes = datum.json_size_to(ANSWER_BYTES_MAX);
    if bytes >= ANSWER_BYTES_MAX {
        return Err(EvalError::resource("Query result is too large to be sent (limit 4 GiB)."));
    }
    match datum.not_json() {
        None => Ok(bytes),
        Some(kind) => {
            let name = kind.name().to_lowercase();
            Err(EvalError::logic(format!("Cannot convert `r.{name}` to JSON.")))
        }
    }
}
