//! Changes that wait for the client.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use cluster::{Catalog, FeedEnd, FeedEvent, FeedPosition, GroupId, Subscriber};
use datum::{Datum, PrimaryKey};
use io::task::{self, Condvar};
use parking_lot::Mutex;
use reql::EvalError;

use super::options::Squash;
use super::plan::{FeedPlan, row_of, unavailable};
use super::token;
use crate::context::Cx;
use crate::table::access::{Privilege, Resource, check_in};

/// The most bytes of rows that wait in one feed.
const BYTES_MAX: usize = 64 << 20;
/// A feed that is behind the present is read ahead until this many changes wait.
const READ_AHEAD: usize = 1000;
/// And about this many bytes.
const READ_AHEAD_BYTES: usize = 4 << 20;

/// The queue of one feed. The thread of the feeds fills it, and the reader of the feed empties it.
pub(super) struct FeedQueue {
    pub(super) plan: FeedPlan,
    cx: Arc<Cx>,
    squash: Squash,
    queue_max: usize,
    state: Mutex<State>,
    changed: Condvar,
}

/// An entry that the reader takes.
#[derive(Debug)]
pub(super) enum Queued {
    Change(Change),
    /// The feed goes on in other groups.
    Moved {
        from: Vec<GroupId>,
        to: Vec<GroupId>,
    },
    /// Changes were dropped: their number, and the position after the last one in each group.
    Skipped {
        count: u64,
        positions: Vec<(GroupId, FeedPosition)>,
    },
}

#[derive(Debug)]
pub(super) struct Change {
    key: PrimaryKey,
    pub(super) old: Option<Datum>,
    pub(super) new: Option<Datum>,
    pub(super) group: GroupId,
    pub(super) position: FeedPosition,
    bytes: usize,
    since: Instant,
}

#[derive(Default)]
struct State {
    /// By the order of arrival.
    waiting: BTreeMap<u64, Queued>,
    next: u64,
    /// With `squash`, the waiting change of each row.
    by_key: HashMap<PrimaryKey, u64>,
    changes: usize,
    bytes: usize,
    /// With `squash`: whether all waiting changes may be taken at once, because they are many.
    is_flushing: bool,
    ended: Option<EvalError>,
    waker: Option<Waker>,
}

impl FeedQueue {
    /// An empty queue for the feed of `plan`.
    pub fn new(cx: Arc<Cx>, plan: FeedPlan, squash: Squash, queue_max: usize) -> FeedQueue {
        FeedQueue { plan, cx, squash, queue_max, state: Mutex::default(), changed: Condvar::new() }
    }

    /// The next entry. `Ok(None)` if there is none, in which case `waker` is woken once there is; fails if the feed has ended
    /// and is empty.
    pub fn pop(&self, waker: Option<&Waker>) -> Result<Option<Queued>, EvalError> {
        let mut state = self.state.lock();
        if state.is_due(self.squash)
            && let Some(entry) = state.pop()
        {
            return Ok(Some(entry));
        }
        if let (true, Some(error)) = (state.waiting.is_empty(), &state.ended) {
            return Err(error.clone());
        }
        state.waker = waker.cloned();
        Ok(None)
    }

    /// Waits until there is an entry or the feed has ended, at most until `deadline`.
    pub fn wait(&self, deadline: Instant) {
        let mut state = self.state.lock();
        if !state.is_due(self.squash) && state.ended.is_none() {
            self.changed.wait_until(&mut state, deadline);
        }
    }

    /// Whether no entry waits.
    pub fn is_empty(&self) -> bool {
        self.state.lock().waiting.is_empty()
    }

    /// Whether a feed that is behind should be read further.
    pub fn wants_more(&self) -> bool {
        let state = self.state.lock();
        state.changes < READ_AHEAD.min(self.queue_max) && state.bytes < READ_AHEAD_BYTES
    }

    fn push(&self, entry: Queued) {
        let mut state = self.state.lock();
        if state.ended.is_some() {
            return;
        }
        match entry {
            Queued::Change(change) => state.add(change, self.squash),
            other => state.append(other),
        }
        if state.changes > self.queue_max || state.bytes > BYTES_MAX {
            state.drop_all();
        }
        // Source: `changefeed_queue_size` in rdb_protocol/changefeed.cc of RethinkDB.
        if state.changes > self.queue_max / 2 || state.bytes > BYTES_MAX / 2 {
            state.is_flushing = true;
        }
        if state.is_due(self.squash) {
            self.notify(state);
        }
    }

    fn end(&self, error: EvalError) {
        let mut state = self.state.lock();
        state.ended.get_or_insert(error);
        self.notify(state);
    }

    fn notify(&self, mut state: parking_lot::MutexGuard<'_, State>) {
        let waker = state.waker.take();
        drop(state);
        self.changed.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl State {
    /// Whether the first entry may be taken now: with `squash`, a change may have to wait for further ones. Nothing waits once
    /// the queue is half full or the feed has ended.
    fn is_due(&self, squash: Squash) -> bool {
        match (self.waiting.first_key_value(), squash) {
            (None, _) => false,
            (Some((_, Queued::Change(change))), Squash::For(wait)) => {
                self.is_flushing || self.ended.is_some() || task::now() >= change.since + wait
            }
            (Some(_), _) => true,
        }
    }

    fn pop(&mut self) -> Option<Queued> {
        let (_, entry) = self.waiting.pop_first()?;
        self.is_flushing &= !self.waiting.is_empty();
        if let Queued::Change(change) = &entry {
            self.changes -= 1;
            self.bytes -= change.bytes;
            self.by_key.remove(&change.key);
        }
        Some(entry)
    }

    fn append(&mut self, entry: Queued) {
        self.waiting.insert(self.next, entry);
        self.next += 1;
    }

    fn add(&mut self, mut change: Change, squash: Squash) {
        if squash != Squash::No {
            let earlier = self.by_key.remove(&change.key).and_then(|at| self.waiting.remove(&at));
            if let Some(Queued::Change(earlier)) = earlier {
                self.changes -= 1;
                self.bytes -= earlier.bytes;
                (change.old, change.since) = (earlier.old, earlier.since);
                if change.old == change.new {
                    return;
                }
            }
            self.by_key.insert(change.key.clone(), self.next);
        }
        self.changes += 1;
        self.bytes += change.bytes;
        self.append(Queued::Change(change));
    }

    /// Drops all changes. Moves to other groups stay.
    fn drop_all(&mut self) {
        let (mut dropped, mut positions, mut moves) = (0, Vec::<(GroupId, FeedPosition)>::new(), Vec::new());
        for entry in std::mem::take(&mut self.waiting).into_values() {
            match entry {
                Queued::Change(Change { group, position, .. }) => {
                    dropped += 1;
                    positions.retain(|(known, _)| *known != group);
                    positions.push((group, position));
                }
                Queued::Skipped { count, positions: earlier } => {
                    dropped += count;
                    positions.retain(|(known, _)| !earlier.iter().any(|(group, _)| group == known));
                    positions.extend(earlier);
                }
                moved @ Queued::Moved { .. } => moves.push(moved),
            }
        }
        (self.changes, self.bytes) = (0, 0);
        self.by_key.clear();
        moves.into_iter().for_each(|moved| self.append(moved));
        self.append(Queued::Skipped { count: dropped, positions });
    }
}

impl Subscriber for FeedQueue {
    fn changed(&self, event: FeedEvent<'_>) {
        let FeedEvent { group, position, row } = event;
        let (old, new) = match (row_of(row.old.as_ref()), row_of(row.new.as_ref())) {
            (Ok(old), Ok(new)) => (old, new),
            (Err(error), _) | (_, Err(error)) => return self.end(error),
        };
        let steps = &self.plan.steps;
        let (old, new) = (steps.value(&self.cx, old), steps.value(&self.cx, new));
        if (old.is_none() && new.is_none()) || (!steps.is_empty() && old == new) {
            return;
        }
        let len = |row: &Option<datum::Bytes>| row.as_ref().map_or(0, datum::Bytes::len);
        let bytes = row.key.as_bytes().len() + len(&row.old) + len(&row.new);
        let (key, since) = (row.key.clone(), task::now());
        self.push(Queued::Change(Change { key, old, new, group, position, bytes, since }));
    }

    fn moved(&self, from: &[GroupId], to: &[GroupId]) {
        self.push(Queued::Moved { from: from.to_vec(), to: to.to_vec() });
    }

    fn has_room(&self) -> bool {
        self.wants_more()
    }

    fn catalog_changed(&self, catalog: &Catalog) {
        let handle = &self.plan.table.handle;
        let resource = Resource::Table(handle.db.id, handle.config.id);
        if let Err(error) = check_in(&self.cx, catalog, Privilege::Read, resource) {
            self.end(error);
        }
    }

    fn tick(&self) {
        if let Squash::For(_) = self.squash {
            let state = self.state.lock();
            if state.waker.is_some() && state.is_due(self.squash) {
                self.notify(state);
            }
        }
    }

    fn ended(&self, why: FeedEnd) {
        let table = &self.plan.table;
        let (db, name) = (&table.handle.db.name, &table.handle.config.name);
        self.end(match why {
            FeedEnd::TableDropped => EvalError::op_failed(format!("Table `{db}.{name}` does not exist.")),
            FeedEnd::Unavailable => unavailable(table),
            FeedEnd::Gone => token::gone(),
            FeedEnd::Stopped => EvalError::op_failed("The server is shutting down."),
        });
    }
}
