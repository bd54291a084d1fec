//! Changes that wait for the client.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Instant;

use cluster::GroupId;
use datum::{Datum, PrimaryKey};
use io::task;
use parking_lot::{Mutex, MutexGuard};
use reql::EvalError;

use super::options::Squash;
use super::position::{GroupPosition, Settled};
use super::queue_memory::QueueMemory;

/// The most bytes of rows that wait in one feed.
const BYTES_MAX: usize = 64 << 20;
/// A feed that is behind the present is read ahead until this many changes wait.
const READ_AHEAD: usize = 1000;
/// And about this many bytes.
const READ_AHEAD_BYTES: usize = 4 << 20;

/// The queue of one feed. One thread fills it, and the reader of the feed empties it.
pub(super) struct ChangeQueue {
    squash: Squash,
    changes_max: usize,
    state: Mutex<State>,
    /// Whether the feed is behind the present and was not read further, because changes wait.
    is_held_back: AtomicBool,
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
        positions: Vec<(GroupId, GroupPosition)>,
    },
}

/// An entry, and what else has happened if no change waits after it.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) entry: Queued,
    pub(super) settled: Option<Settled>,
}

#[derive(Debug)]
pub(super) struct Change {
    /// The row, and which of its entries in the sequence this is.
    pub(super) key: (PrimaryKey, u32),
    /// Whether it may be combined with other changes of the same row.
    pub(super) can_be_combined: bool,
    pub(super) old: Option<Datum>,
    pub(super) new: Option<Datum>,
    pub(super) group: GroupId,
    pub(super) position: GroupPosition,
    pub(super) bytes: usize,
    pub(super) since: Instant,
}

struct State {
    /// By the order of arrival.
    waiting: BTreeMap<u64, Queued>,
    next: u64,
    /// With `squash`, the waiting change of each row.
    by_key: HashMap<(PrimaryKey, u32), u64>,
    /// The positions after changes that have cancelled each other out, in groups without a later change that waits.
    cancelled: HashMap<GroupId, GroupPosition>,
    /// The position after the last change of each group that was queued.
    last: Vec<(GroupId, GroupPosition)>,
    /// How many changes of each group wait.
    changes_of_group: Vec<(GroupId, usize)>,
    /// How many entries are moves.
    moves: usize,
    /// The place of the entry for dropped changes, while it waits. Until it is taken, changes are only counted: a reader that does
    /// not come back costs no more than that.
    dropped_at: Option<u64>,
    changes: usize,
    bytes: usize,
    /// With `squash`: whether all waiting changes may be taken at once, because they are many.
    is_flushing: bool,
    /// Whether the client has a change after which no feed can continue before a later one is taken.
    owes_position: bool,
    ended: Option<EvalError>,
    waker: Option<Waker>,
    memory: QueueMemory,
}

impl ChangeQueue {
    /// An empty queue.
    pub fn new(squash: Squash, changes_max: usize, memory: QueueMemory) -> ChangeQueue {
        let (state, is_held_back) = (Mutex::new(State::new(memory)), AtomicBool::new(false));
        ChangeQueue { squash, changes_max, state, is_held_back }
    }

    /// The next entry. `Ok(None)` if there is none, in which case `waker` is woken once there is; fails if the feed has ended
    /// and is empty.
    pub fn pop(&self, waker: Option<&Waker>) -> Result<Option<Taken>, EvalError> {
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

    /// The error with which the feed ends, if it receives no more changes.
    pub fn ended(&self) -> Option<EvalError> {
        self.state.lock().ended.clone()
    }

    /// Whether no entry waits.
    pub fn is_empty(&self) -> bool {
        self.state.lock().waiting.is_empty()
    }

    /// Whether a change of the group waits, or may have been dropped.
    pub fn may_have_changes_of(&self, group: GroupId) -> bool {
        let state = self.state.lock();
        state.dropped_at.is_some() || state.changes_of_group.iter().any(|(waiting, _)| *waiting == group)
    }

    /// Whether a feed that is behind should be read further.
    pub fn wants_more(&self) -> bool {
        let state = self.state.lock();
        let wants_more = state.changes < READ_AHEAD.min(self.changes_max) && state.bytes < READ_AHEAD_BYTES;
        self.is_held_back.store(!wants_more, Ordering::Release);
        wants_more
    }

    /// Whether the feed was not read further since the last call, and the queue is empty now.
    pub fn take_held_back(&self) -> bool {
        self.is_held_back.load(Ordering::Acquire)
            && self.is_empty()
            && self.is_held_back.swap(false, Ordering::AcqRel)
    }

    /// The time at which the oldest change that waits was queued.
    pub fn oldest(&self) -> Option<Instant> {
        let state = self.state.lock();
        state.waiting.values().find_map(|entry| match entry {
            Queued::Change(change) => Some(change.since),
            _ => None,
        })
    }

    /// Adds an entry. With `squash` a change is combined with the waiting change of the same row. All changes are dropped if
    /// they become too many.
    pub fn push(&self, entry: Queued) {
        let mut state = self.state.lock();
        if state.ended.is_some() {
            return;
        }
        match entry {
            Queued::Change(change) => match state.count_as_dropped(change) {
                None => return,
                Some(change) => state.add(change, self.squash),
            },
            moved => state.append_move(moved),
        }
        let has_no_memory = state.set_memory();
        // A single change may be larger: rows of any size arrive.
        let has_many_bytes = state.bytes > BYTES_MAX && state.changes > 1;
        if state.changes > self.changes_max || has_many_bytes || has_no_memory {
            state.drop_all();
        }
        // Source: `changefeed_queue_size` in rdb_protocol/changefeed.cc of RethinkDB.
        if state.changes > self.changes_max / 2 || state.bytes > BYTES_MAX / 2 {
            state.is_flushing = true;
        }
        if state.is_due(self.squash) {
            self.notify(state);
        }
    }

    /// Ends the feed: the reader gets the error once it has taken what waits.
    pub fn end(&self, error: EvalError) {
        let mut state = self.state.lock();
        state.ended.get_or_insert(error);
        self.notify(state);
    }

    /// Wakes the reader if changes that had to wait for further ones have waited long enough. To be called again and again.
    pub fn tick(&self) {
        if let Squash::For(_) = self.squash {
            let state = self.state.lock();
            if state.waker.is_some() && state.is_due(self.squash) {
                self.notify(state);
            }
        }
    }

    fn notify(&self, mut state: MutexGuard<'_, State>) {
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl State {
    fn new(memory: QueueMemory) -> State {
        State {
            waiting: BTreeMap::new(),
            next: 0,
            by_key: HashMap::new(),
            cancelled: HashMap::new(),
            last: Vec::new(),
            changes_of_group: Vec::new(),
            moves: 0,
            dropped_at: None,
            changes: 0,
            bytes: 0,
            is_flushing: false,
            owes_position: false,
            ended: None,
            waker: None,
            memory,
        }
    }

    /// Reserves memory for what waits. Returns whether all of it must be dropped.
    fn set_memory(&mut self) -> bool {
        self.memory.set(self.bytes as u64)
    }

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

    fn pop(&mut self) -> Option<Taken> {
        let (at, entry) = self.waiting.pop_first()?;
        self.is_flushing &= !self.waiting.is_empty();
        match &entry {
            Queued::Change(change) => {
                self.uncount(change);
                self.set_memory();
                if self.by_key.get(&change.key) == Some(&at) {
                    self.by_key.remove(&change.key);
                }
            }
            Queued::Moved { .. } => self.moves -= 1,
            Queued::Skipped { .. } => self.dropped_at = None,
        }
        let settled = self.settle();
        let is_move = matches!(entry, Queued::Moved { .. });
        self.owes_position = settled.is_none() && (self.owes_position || !is_move);
        Some(Taken { entry, settled })
    }

    /// Takes the moves that are left if nothing else waits.
    fn settle(&mut self) -> Option<Settled> {
        if self.waiting.len() > self.moves {
            return None;
        }
        self.moves = 0;
        let moves = std::mem::take(&mut self.waiting).into_values().filter_map(|entry| match entry {
            Queued::Moved { from, to } => Some((from, to)),
            _ => None,
        });
        Some(Settled { moves: moves.collect(), cancelled: self.cancelled.drain().collect() })
    }

    fn append(&mut self, entry: Queued) {
        self.waiting.insert(self.next, entry);
        self.next += 1;
    }

    /// Appends a move, before the entry for dropped changes, which may be of groups that the move names.
    fn append_move(&mut self, moved: Queued) {
        let dropped = self.dropped_at.take().and_then(|at| self.waiting.remove(&at));
        if let Queued::Moved { from, .. } = &moved {
            self.last.retain(|(group, _)| !from.contains(group));
        }
        self.moves += 1;
        self.append(moved);
        if let Some(dropped) = dropped {
            self.dropped_at = Some(self.next);
            self.append(dropped);
        }
    }

    /// Counts the change if changes were dropped and the reader does not know it yet. Returns it otherwise.
    fn count_as_dropped(&mut self, change: Change) -> Option<Change> {
        let Some(Queued::Skipped { count, positions }) =
            self.dropped_at.and_then(|at| self.waiting.get_mut(&at))
        else {
            return Some(change);
        };
        *count += 1;
        set_position(positions, change.group, change.position);
        self.cancelled.remove(&change.group);
        self.memory.note_skipped(1);
        None
    }

    fn add(&mut self, mut change: Change, squash: Squash) {
        if squash != Squash::No && change.can_be_combined {
            let earlier = self.by_key.remove(&change.key).filter(|at| !self.must_stay(*at, &change));
            if let Some(Queued::Change(earlier)) = earlier.and_then(|at| self.waiting.remove(&at)) {
                self.uncount(&earlier);
                (change.old, change.since) = (earlier.old, earlier.since);
                if change.old == change.new {
                    self.cancelled.insert(change.group, change.position);
                    return;
                }
            }
            self.by_key.insert(change.key.clone(), self.next);
        }
        self.cancelled.remove(&change.group);
        set_position(&mut self.last, change.group, change.position);
        self.changes += 1;
        self.bytes += change.bytes;
        match self.changes_of_group.iter_mut().find(|(group, _)| *group == change.group) {
            Some((_, count)) => *count += 1,
            None => self.changes_of_group.push((change.group, 1)),
        }
        self.append(Queued::Change(change));
    }

    /// Whether `change` would cancel out the change at this place although the client needs one more, to have a position from which
    /// a feed can continue.
    fn must_stay(&self, at: u64, change: &Change) -> bool {
        let is_last = self.owes_position && self.changes == 1 && self.dropped_at.is_none();
        is_last && matches!(self.waiting.get(&at), Some(Queued::Change(earlier)) if earlier.old == change.new)
    }

    /// A change no longer waits.
    fn uncount(&mut self, change: &Change) {
        self.changes -= 1;
        self.bytes -= change.bytes;
        if let Some(at) = self.changes_of_group.iter().position(|(group, _)| *group == change.group) {
            self.changes_of_group[at].1 -= 1;
            if self.changes_of_group[at].1 == 0 {
                self.changes_of_group.swap_remove(at);
            }
        }
    }

    /// Drops all changes. Moves to other groups stay.
    fn drop_all(&mut self) {
        let (dropped, positions) = (self.changes as u64, std::mem::take(&mut self.last));
        let moves = self.take_moves();
        self.memory.free(std::mem::take(&mut self.waiting));
        (self.changes, self.bytes) = (0, 0);
        self.set_memory();
        self.memory.note_overflow(dropped);
        self.memory.free(std::mem::take(&mut self.by_key));
        self.changes_of_group.clear();
        moves.into_iter().for_each(|moved| self.append_move(moved));
        self.dropped_at = Some(self.next);
        self.append(Queued::Skipped { count: dropped, positions });
    }

    /// Takes the moves out of the entries.
    fn take_moves(&mut self) -> Vec<Queued> {
        if self.moves == 0 {
            // The usual case, in which the entries need not be looked at.
            return Vec::new();
        }
        self.moves = 0;
        let is_move = |(_, entry): &(&u64, &mut Queued)| matches!(entry, Queued::Moved { .. });
        let places: Vec<u64> = self.waiting.iter_mut().filter(is_move).map(|(at, _)| *at).collect();
        places.iter().filter_map(|at| self.waiting.remove(at)).collect()
    }
}

fn set_position(positions: &mut Vec<(GroupId, GroupPosition)>, group: GroupId, position: GroupPosition) {
    match positions.iter_mut().find(|(known, _)| *known == group) {
        Some((_, known)) => *known = position,
        None => positions.push((group, position)),
    }
}

#[cfg(test)]
mod tests;
