//! The history of one group from a position on, and the subscribers that follow it.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use io::task;
use log::{GroupId, Lsn};
use shard::{HistoryEntry, HistoryEvent, HistoryPosition, SealState};
use storage::TableId;

use super::ahead::Ahead;
use super::followers::{Follower, Followers};
use super::subscription::{FeedEnd, Reached};
use crate::config::ServerId;
use crate::locks::BriefMutex;

/// The most recent entries that a stream keeps, for subscribers that begin a little behind it.
const RECENT_ENTRIES_MAX: usize = 512;
/// The most bytes of rows in them.
const RECENT_BYTES_MAX: usize = 1 << 20;

/// The place from which a stream reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The history in this node's engine, up to its end.
    Own,
    /// The local replica, which reports its entries as it applies them. The stream has all earlier ones.
    Local,
    /// Another server, which has a request of the stream.
    Remote(ServerId),
    /// None yet; the next attempt is due then.
    Searching(Instant),
}

/// The history of a group from a position on.
pub(super) struct Stream {
    pub(super) group: GroupId,
    pub(super) table: TableId,
    pub(super) position: HistoryPosition,
    reached: Arc<Reached>,
    pub(super) followers: Followers,
    ahead: Ahead,
    recent: Recent,
    /// The epoch in which the group was sealed, if the last entry is a seal.
    pub(super) sealed: Option<u64>,
    pub(super) source: Source,
    /// Servers that do not have all entries after the position.
    pub(super) gone_at: HashSet<ServerId>,
    /// Servers that did not respond, or have no further entries, since the last entry.
    pub(super) failed_at: HashSet<ServerId>,
    /// The last time at which the source was known to be in contact with the group's leader.
    pub(super) healthy_at: Instant,
    /// How many log positions it is behind the local replica.
    pub(super) lag_positions: u64,
    /// The end of the replica's history when that was looked at last.
    replica_end: Lsn,
    /// The last time at which the stream had everything up to there.
    complete_at: Instant,
    /// The last time at which this node's engine was read.
    pub(super) tried_own_at: Instant,
}

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It was passed to this many followers.
    Passed(u64),
    /// It seals the group.
    Sealed,
    /// The stream had it before.
    Old,
    /// Entries before it are missing.
    Gap,
    /// The history ends here, so that later changes are not known.
    Off,
}

impl Stream {
    pub(super) fn new(group: GroupId, table: TableId, position: HistoryPosition, now: Instant) -> Stream {
        Stream {
            group,
            table,
            position,
            reached: Arc::new(BriefMutex::leaf(position)),
            followers: Followers::default(),
            ahead: Ahead::default(),
            recent: Recent::default(),
            sealed: None,
            source: Source::Own,
            gone_at: HashSet::new(),
            failed_at: HashSet::new(),
            healthy_at: now,
            lag_positions: 0,
            replica_end: Lsn(0),
            complete_at: now,
            tried_own_at: now,
        }
    }

    /// Passes the next entry to the followers.
    pub(super) fn take(&mut self, entry: Arc<HistoryEntry>) -> Taken {
        if entry.at.lsn <= self.position.lsn {
            // A later leader has put another entry there: a power loss took the entries that were passed on.
            let is_other = entry.at.incarnation > self.position.incarnation;
            return if is_other { Taken::Gap } else { Taken::Old };
        }
        if entry.previous != self.position.lsn {
            return Taken::Gap;
        }
        let before = std::mem::replace(&mut self.position, entry.at);
        match &entry.event {
            HistoryEvent::Seal(state) => self.sealed = state.is_sealed().then(|| state.epoch()),
            HistoryEvent::Off => return Taken::Off,
            HistoryEvent::Rows(_) | HistoryEvent::On => {}
        }
        self.ahead.come_to(entry.at, &mut self.followers);
        let events = self.followers.pass(self.group, before, &entry);
        self.recent.add(before, entry);
        // Published last: all events before a published position are delivered.
        *self.reached.lock() = self.position;
        if self.sealed.is_some() { Taken::Sealed } else { Taken::Passed(events) }
    }

    /// Notes the seal state that the entry at the stream's position sets, for a stream that began there. Returns whether the
    /// group is sealed.
    pub(super) fn note_seal(&mut self, seal_state: Option<SealState>) -> bool {
        let sealed = seal_state.filter(|state| state.is_sealed()).map(SealState::epoch);
        self.sealed = self.sealed.or(sealed);
        sealed.is_some()
    }

    /// Adds a follower to this stream, whose number is `id`, and passes the entries that it lacks to it. Returns how many
    /// events that were, or the follower if it begins too far before the stream's position, or at an entry that the stream
    /// does not have.
    pub(super) fn add(&mut self, id: u64, follower: Follower) -> Result<u64, Follower> {
        let start = follower.start.entry;
        let mut events = 0;
        if start.lsn == self.position.lsn && start != self.position {
            return Err(follower);
        }
        if start.lsn > self.position.lsn {
            self.ahead.add(start, task::now());
        }
        if start.lsn < self.position.lsn {
            let Some(missed) = self.recent.after(start) else { return Err(follower) };
            for (before, entry) in missed {
                events += follower.pass_all(self.group, *before, entry);
            }
        }
        follower.subscription.follow(self.group, id, &self.reached);
        self.followers.add(follower);
        Ok(events)
    }

    /// Removes and returns the followers at whose position it has another entry. They have to follow other streams.
    pub(super) fn take_misplaced(&mut self) -> Vec<Follower> {
        self.ahead.take_misplaced()
    }

    /// Removes and returns the followers that have waited too long until it comes to their position.
    pub(super) fn take_late(&mut self, now: Instant) -> Vec<Follower> {
        self.ahead.take_late(&mut self.followers, now)
    }

    /// Whether followers of another stream of the group at `position` can join this one.
    pub(super) fn can_take_from(&self, position: HistoryPosition) -> bool {
        position == self.position || self.recent.after(position).is_some()
    }

    /// Notes how far it is behind the history of the local replica, which ends at `end`. To be called again and again.
    pub(super) fn note_lag(&mut self, end: Option<HistoryPosition>, now: Instant) {
        let end = end.map_or(self.position.lsn, |end| end.lsn);
        self.lag_positions = end.0.saturating_sub(self.position.lsn.0);
        // Entries that came since the last call are no lag: some are always under way.
        if self.position.lsn >= self.replica_end.min(end) {
            (self.complete_at, self.replica_end) = (now, end);
        }
    }

    /// The time since a change waits for one of the clients, or since the stream is behind its group.
    pub(super) fn lag(&self, now: Instant) -> Duration {
        let waits_since = |follower: &Follower| follower.subscription.subscriber.waits_since();
        let oldest = self.followers.iter().filter_map(waits_since).chain([self.complete_at]).min();
        oldest.map_or(Duration::ZERO, |oldest| now.saturating_duration_since(oldest))
    }

    /// Ends all subscriptions that follow the stream.
    pub(super) fn end(&mut self, why: FeedEnd) {
        for follower in self.followers.take() {
            if !follower.subscription.is_closed() {
                follower.subscription.close();
                follower.subscription.subscriber.ended(why);
            }
        }
    }

    /// Whether the stream has to wait for its only follower.
    pub(super) fn is_held_back(&self) -> bool {
        self.followers.len() == 1
            && self.followers.iter().any(|only| !only.subscription.subscriber.has_room())
    }
}

/// The last entries of a stream, each with the position before it.
#[derive(Default)]
struct Recent {
    entries: VecDeque<(HistoryPosition, Arc<HistoryEntry>)>,
    bytes: usize,
}

impl Recent {
    fn add(&mut self, before: HistoryPosition, entry: Arc<HistoryEntry>) {
        self.bytes += bytes_of(&entry);
        self.entries.push_back((before, entry));
        while self.entries.len() > RECENT_ENTRIES_MAX || self.bytes > RECENT_BYTES_MAX {
            let Some((_, oldest)) = self.entries.pop_front() else { break };
            self.bytes -= bytes_of(&oldest);
        }
    }

    /// The entries after `start`; `None` if some of them are not here.
    fn after(
        &self,
        start: HistoryPosition,
    ) -> Option<impl Iterator<Item = &(HistoryPosition, Arc<HistoryEntry>)>> {
        let first = self.entries.iter().position(|(before, _)| *before == start)?;
        Some(self.entries.range(first..))
    }
}

fn bytes_of(entry: &HistoryEntry) -> usize {
    let HistoryEvent::Rows(rows) = &entry.event else { return 0 };
    let len = |row: &Option<bytes::Bytes>| row.as_ref().map_or(0, bytes::Bytes::len);
    rows.iter().map(|row| row.key.as_bytes().len() + len(&row.old) + len(&row.new)).sum()
}
