//! Feeds of system tables: the differences between the rows whenever they are read.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use cluster::GroupId;
use datum::{Datum, Object, PrimaryKey};
use io::task;
use parking_lot::Mutex;
use reql::EvalError;

use super::element::Element;
use super::followed::SystemPlan;
use super::options::FeedOptions;
use super::part::FeedPart;
use super::position::{ClientPosition, GroupPosition};
use super::queue::{Change, ChangeQueue, Queued};
use super::queue_memory::QueueMemory;
use super::reader::next_of;
use crate::context::Cx;
use crate::remote::system_rows;
use crate::service::{FeedKind, SystemTableRows, SystemWatcher};
use crate::table::{Identifiers, TableRef, access};
use crate::value::SystemKeys;

/// About how much memory a waiting row uses.
const ROW_BYTES: usize = 500;

/// The elements of a feed of a system table, without end.
pub(super) struct SystemItems {
    feed: Arc<SystemFeed>,
    /// States and initial values.
    first: VecDeque<Element>,
}

/// The part of a feed that the thread of the table calls.
struct SystemFeed {
    cx: Arc<Cx>,
    plan: SystemPlan,
    queue: ChangeQueue,
    /// The rows as they were read last.
    known: Mutex<Arc<SystemTableRows>>,
}

impl SystemItems {
    /// Begins a feed. Fails if the caller may not read the table, or if the options do not fit.
    pub fn open(cx: &Cx, plan: SystemPlan, options: &FeedOptions) -> Result<SystemItems, EvalError> {
        options.check(plan.kind)?;
        if options.include_token || options.resume_after.is_some() {
            return Err(EvalError::logic(
                "System tables have no history, so their changefeeds cannot be resumed: leave out `include_resume_token` and \
                 `resume_after`.",
            ));
        }
        let system = &plan.rows.system;
        access::check_stream_read(cx, &TableRef::System(system.clone()))?;
        let known = rows_by_key(cx, &plan)?;
        let (name, shows_ids) = (system.table.name(), system.identifiers == Identifiers::Uuid);
        cx.feeds.add(plan.kind, options.include_states)?;
        cx.feeds.set_started();
        let cx = cx.shared()?;
        let queue = ChangeQueue::new(options.squash, options.queue_max, QueueMemory::of(&cx));
        let mut first = VecDeque::new();
        if options.include_initial {
            first.extend(options.include_states.then_some(Element::State("initializing")));
            first.extend(initial_values(&cx, &plan, &known)?);
        }
        first.extend(options.include_states.then_some(Element::State("ready")));
        let feed = Arc::new(SystemFeed { cx, plan, queue, known: Mutex::new(Arc::new(known)) });
        feed.cx
            .service
            .watch_system_table((name, shows_ids), &feed)
            .map_err(|error| EvalError::op_failed(format!("The feed cannot be started: {error}.")))?;
        Ok(SystemItems { feed, first })
    }

    fn next_element(&mut self) -> Result<Element, EvalError> {
        loop {
            if let Some(element) = self.first.pop_front() {
                return Ok(element);
            }
            match next_of(&self.feed.cx, &self.feed.queue)?.entry {
                Queued::Change(Change { old, new, .. }) => {
                    return Ok(Element::change(old, new));
                }
                Queued::Skipped { count, .. } => return Ok(Element::Skipped(count)),
                Queued::Moved { .. } => {}
            }
        }
    }
}

impl SystemFeed {
    /// Queues the change of a row, as often as the sequence has it.
    fn push(&self, key: &PrimaryKey, old: Option<&Object>, new: Option<&Object>) {
        let value =
            |row: Option<&Object>| self.plan.steps.value(&self.cx, row.map(|row| Datum::Object(row.clone())));
        let (old, new) = match value(old).and_then(|old| Ok((old, value(new)?))) {
            Ok(values) => values,
            Err(error) => return self.queue.end(error),
        };
        if old == new {
            return;
        }
        for nth in 0..self.plan.rows.times(key) as u32 {
            self.queue.push(Queued::Change(Change {
                key: (key.clone(), nth),
                can_be_combined: true,
                old: old.clone(),
                new: new.clone(),
                group: GroupId(0),
                position: GroupPosition::default(),
                bytes: ROW_BYTES,
                since: task::now(),
            }));
        }
    }
}

impl SystemWatcher for SystemFeed {
    fn is_of_catalog(&self) -> bool {
        self.plan.rows.system.table.is_of_catalog()
    }

    fn read(&self) -> Option<SystemTableRows> {
        self.cx.check_cancel().ok()?;
        rows_by_key(&self.cx, &self.plan).ok()
    }

    fn observe(&self, rows: &Arc<SystemTableRows>) {
        let table = TableRef::System(self.plan.rows.system.clone());
        if let Err(error) = access::check_read(&self.cx, &table) {
            return self.queue.end(error);
        }
        let before = std::mem::replace(&mut *self.known.lock(), rows.clone());
        if !Arc::ptr_eq(&before, rows) {
            let keys: BTreeSet<&PrimaryKey> = before.keys().chain(rows.keys()).collect();
            for key in keys {
                let (old, new) = (before.get(key), rows.get(key));
                if old != new {
                    self.push(key, old, new);
                }
            }
        }
        self.queue.tick();
    }
}

fn rows_by_key(cx: &Cx, plan: &SystemPlan) -> Result<SystemTableRows, EvalError> {
    let rows = system_rows::rows(cx, &plan.rows.system)?;
    let keyed = |row: Object| Some((PrimaryKey::encode(&row.get("id")?).ok()?, row));
    Ok(rows.into_iter().filter_map(keyed).collect())
}

fn initial_values(cx: &Cx, plan: &SystemPlan, rows: &SystemTableRows) -> Result<Vec<Element>, EvalError> {
    let value = |row: Option<&Object>| plan.steps.value(cx, row.map(|row| Datum::Object(row.clone())));
    if let (FeedKind::Point, SystemKeys::Copies(copies)) = (plan.kind, &plan.rows.keys) {
        let row = copies.keys().find_map(|key| rows.get(key));
        return Ok(vec![Element::initial(value(row)?)]);
    }
    let copies: BTreeMap<&PrimaryKey, usize> =
        rows.keys().map(|key| (key, plan.rows.times(key))).filter(|(_, times)| *times > 0).collect();
    let mut elements = Vec::new();
    for (key, times) in copies {
        let new = value(rows.get(key))?;
        elements.extend(std::iter::repeat_n(new, times).filter(Option::is_some).map(Element::initial));
    }
    Ok(elements)
}

impl FeedPart for SystemItems {
    fn next(&mut self) -> Result<Element, EvalError> {
        self.next_element()
    }

    fn is_immediate(&self) -> bool {
        true
    }

    fn positions(&self) -> Option<Vec<&ClientPosition>> {
        None
    }
}
