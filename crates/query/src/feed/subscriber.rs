//! Receives the changes of a feed from the cluster, and queues them for the client.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use cluster::{Catalog, ChangedRow, FeedEnd, FeedEvent, GroupId, Subscriber, TableHandle};
use datum::{Bytes, Datum, Object, Text};
use io::task;
use parking_lot::Mutex;
use reql::EvalError;

use super::options::Squash;
use super::plan::{FeedPlan, unavailable};
use super::position::GroupPosition;
use super::queue::{Change, ChangeQueue, Queued};
use super::queue_memory::QueueMemory;
use super::token;
use crate::context::Cx;
use crate::table::access::{Privilege, Resource, check_in};

/// The subscriber of a feed of rows.
pub(super) struct FeedSubscriber {
    pub plan: FeedPlan,
    pub queue: ChangeQueue,
    cx: Arc<Cx>,
    /// For a feed that was resumed: how many elements of the next change of a group were delivered before.
    delivered: Mutex<HashMap<GroupId, u32>>,
}

impl FeedSubscriber {
    /// Receives nothing yet. At most `changes_max` changes wait.
    pub fn new(cx: Arc<Cx>, plan: FeedPlan, squash: Squash, changes_max: usize) -> FeedSubscriber {
        let queue = ChangeQueue::new(squash, changes_max, QueueMemory::of(&cx));
        FeedSubscriber { plan, queue, cx, delivered: Mutex::default() }
    }

    /// Leaves out the first elements of the next change of each group, which were delivered before.
    pub fn leave_out(&self, delivered: impl Iterator<Item = (GroupId, u32)>) {
        *self.delivered.lock() = delivered.filter(|(_, elements)| *elements > 0).collect();
    }

    /// Queues a change with whole rows, for a reader that computes something from them.
    fn push_row(&self, event: FeedEvent<'_>, old: Option<Datum>, new: Option<Datum>) {
        let FeedEvent { group, position, row, .. } = event;
        self.queue.push(Queued::Change(Change {
            key: (row.key.clone(), 0),
            can_be_combined: false,
            old,
            new,
            group,
            position: GroupPosition::of(position),
            bytes: bytes_of(row),
            since: task::now(),
        }));
    }

    /// Queues the elements for a change, one for each time that the sequence has or had the row.
    fn push_elements(&self, event: FeedEvent<'_>, old: (Option<Datum>, usize), new: (Option<Datum>, usize)) {
        let FeedEvent { group, before, position, row } = event;
        let delivered = self.delivered.lock().remove(&group).unwrap_or(0);
        let ((old, old_times), (new, new_times)) = (old, new);
        let is_trivial = !self.plan.steps.is_empty() && old == new;
        let count = old_times.max(new_times) as u32;
        for nth in delivered..count {
            let of = |value: &Option<Datum>, times: usize| value.clone().filter(|_| (nth as usize) < times);
            let (old, new) = (of(&old, old_times), of(&new, new_times));
            let is_both = (nth as usize) < old_times.min(new_times);
            if (old.is_none() && new.is_none()) || (is_both && is_trivial) {
                continue;
            }
            let position = match nth + 1 == count {
                true => GroupPosition::of(position),
                false => GroupPosition { feed: before, elements: nth + 1 },
            };
            let (key, since) = ((row.key.clone(), nth), task::now());
            let bytes = bytes_of(row);
            let change = Change { key, can_be_combined: true, old, new, group, position, bytes, since };
            self.queue.push(Queued::Change(change));
        }
    }
}

/// About how much memory a waiting change uses besides the row.
const ENTRY_BYTES: usize = 200;

/// About how much memory a waiting change of the row uses.
fn bytes_of(row: &ChangedRow) -> usize {
    let len = |row: &Option<Bytes>| row.as_ref().map_or(0, Bytes::len);
    ENTRY_BYTES + row.key.as_bytes().len() + len(&row.old) + len(&row.new)
}

/// The error of a feed whose index was dropped, or replaced by another one of the same name.
fn index_gone(table: &TableHandle, name: &Text) -> EvalError {
    match table.config.indexes.find(name) {
        Some(_) => {
            EvalError::op_failed(format!("The secondary index `{name}` was replaced by a different one."))
        }
        None => EvalError::op_failed(format!(
            "Index `{name}` was not found on table `{}.{}`.",
            table.db.name, table.config.name
        )),
    }
}

impl Subscriber for FeedSubscriber {
    fn changed(&self, event: FeedEvent<'_>) {
        let row = event.row;
        let times = self.plan.entries.times_of_change(row, &self.cx.cancel);
        let (rows, (old_times, new_times)) = match row.objects().and_then(|rows| Ok((rows, times?))) {
            Ok(found) => found,
            Err(error) => {
                let why = format!("a changed row is damaged: {error}");
                return self.queue.end(EvalError::internal(why));
            }
        };
        if old_times.max(new_times) == 0 {
            return;
        }
        let datum = |row: &Option<Object>| row.clone().map(Datum::Object);
        let (old, new) = (datum(&rows.old), datum(&rows.new));
        if self.plan.view.is_none() {
            // Steps of any length are left to the reader.
            let is_raw = !self.plan.steps.are_bounded();
            let value = |row| if is_raw { Ok(row) } else { self.plan.steps.value(&self.cx, row) };
            match value(old).and_then(|old| Ok((old, value(new)?))) {
                Ok((old, new)) => self.push_elements(event, (old, old_times), (new, new_times)),
                Err(error) => self.queue.end(error),
            }
        } else {
            match self.plan.admits(&self.cx, &row.key, rows) {
                Ok(true) => self.push_row(event, old, new),
                Ok(false) => {}
                Err(error) => self.queue.end(error),
            }
        }
    }

    fn moved(&self, from: &[GroupId], to: &[GroupId]) {
        self.queue.push(Queued::Moved { from: from.to_vec(), to: to.to_vec() });
    }

    fn has_room(&self) -> bool {
        self.queue.wants_more()
    }

    fn catalog_changed(&self, catalog: &Catalog) {
        let handle = &self.plan.table.handle;
        let resource = Resource::Table(handle.db.id, handle.config.id);
        if let Err(error) = check_in(&self.cx, catalog, Privilege::Read, resource) {
            return self.queue.end(error);
        }
        if let Some(index) = &self.plan.index
            && let Some(table) = catalog.table_by_id(handle.config.id)
        {
            let present = table.config.indexes.all().into_iter();
            if !present.into_iter().any(|present| present.id == index.id) {
                self.queue.end(index_gone(table, &index.name));
            }
        }
    }

    fn tick(&self) {
        self.queue.tick();
    }

    fn waits_since(&self) -> Option<Instant> {
        self.queue.oldest()
    }

    fn ended(&self, why: FeedEnd) {
        let table = &self.plan.table;
        let (db, name) = (&table.handle.db.name, &table.handle.config.name);
        self.queue.end(match why {
            FeedEnd::TableDropped => EvalError::op_failed(format!("Table `{db}.{name}` does not exist.")),
            FeedEnd::Unavailable => unavailable(table),
            FeedEnd::Gone => token::gone(),
            FeedEnd::Stopped => EvalError::op_failed("The server is shutting down."),
        });
    }
}
