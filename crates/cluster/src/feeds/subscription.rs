//! A feed as its reader sees it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use datum::KeyRange;
use log::GroupId;
use shard::{ChangedRow, HistoryPosition};
use storage::TableId;

use super::interest::Interest;
use super::position::FeedPosition;
use crate::catalog::Catalog;
use crate::locks::BriefMutex;

/// A change of a row that a feed is interested in.
#[derive(Clone, Copy, Debug)]
pub struct FeedEvent<'a> {
    pub group: GroupId,
    /// The position of the feed before this change.
    pub before: FeedPosition,
    /// The position of the feed once this change is delivered.
    pub position: FeedPosition,
    pub row: &'a ChangedRow,
}

/// Why a feed ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedEnd {
    /// The catalog no longer has the table.
    TableDropped,
    /// For some seconds no replica of a group could be reached that is in contact with its leader.
    Unavailable,
    /// No replica that can be reached has all entries after the feed's position.
    Gone,
    /// The node stops.
    Stopped,
}

/// Receives the changes of a feed, one call at a time. All calls come from the thread of the feeds, so they must not block.
pub trait Subscriber: Send + Sync {
    /// A row has changed, and reads on the replica that reported it show that.
    fn changed(&self, event: FeedEvent<'_>);

    /// The groups `from` were sealed, and the feed has all of their changes. It continues at the beginning of `to`.
    fn moved(&self, from: &[GroupId], to: &[GroupId]);

    /// Whether it takes more changes now. Asked while the feed is behind the present: it is not read further meanwhile.
    fn has_room(&self) -> bool;

    /// This node shows another version of the catalog.
    fn catalog_changed(&self, catalog: &Catalog);

    /// Called several times a second, for subscribers that wait for time to pass.
    fn tick(&self) {}

    /// The time since which a change waits to be taken further, if one does. Asked now and then.
    fn waits_since(&self) -> Option<Instant> {
        None
    }

    /// There are no further calls.
    fn ended(&self, why: FeedEnd);
}

/// A subscriber, the rows that it follows, and how far it has come in each group.
pub struct Subscription {
    pub(super) table: TableId,
    pub(super) interest: Interest,
    pub(super) subscriber: Arc<dyn Subscriber>,
    is_closed: AtomicBool,
    segments: BriefMutex<Vec<Segment>>,
}

/// The position that a stream has reached, published by the thread of the feeds.
pub(super) type Reached = BriefMutex<HistoryPosition>;

/// The part of a subscription in one group.
#[derive(Clone)]
pub(super) struct Segment {
    pub(super) group: GroupId,
    /// The rows of the group that may be of interest.
    pub(super) range: KeyRange,
    /// Where it began in this group.
    pub(super) start: FeedPosition,
    /// The stream that it follows, and the position of that; `None` before the thread has taken the subscription.
    pub(super) stream: Option<(u64, Arc<Reached>)>,
}

impl Segment {
    pub(super) fn new(group: GroupId, range: KeyRange, start: FeedPosition) -> Segment {
        Segment { group, range, start, stream: None }
    }

    fn position(&self) -> FeedPosition {
        let reached = self.stream.as_ref().map(|(_, reached)| *reached.lock());
        match reached {
            Some(reached) if reached.lsn > self.start.entry.lsn => FeedPosition::after(reached),
            _ => self.start,
        }
    }
}

impl Subscription {
    pub(super) fn new(
        table: TableId,
        interest: Interest,
        subscriber: Arc<dyn Subscriber>,
        segments: Vec<Segment>,
    ) -> Subscription {
        Subscription {
            table,
            interest,
            subscriber,
            is_closed: AtomicBool::new(false),
            segments: BriefMutex::leaf(segments),
        }
    }

    /// The position in each group. All changes before it have been passed to the subscriber; perhaps later ones as well.
    #[must_use]
    pub fn positions(&self) -> Vec<(GroupId, FeedPosition)> {
        let segments = self.segments();
        segments.iter().map(|segment| (segment.group, segment.position())).collect()
    }

    /// Ends the subscription. Calls of the subscriber may still be under way.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    pub(super) fn segments(&self) -> Vec<Segment> {
        self.segments.lock().clone()
    }

    pub(super) fn set_segments(&self, segments: Vec<Segment>) {
        *self.segments.lock() = segments;
    }

    /// Sets the stream that the segment in `group` follows.
    pub(super) fn follow(&self, group: GroupId, stream: u64, reached: &Arc<Reached>) {
        let mut segments = self.segments.lock();
        let own = segments.iter_mut().filter(|segment| segment.group == group);
        own.for_each(|segment| segment.stream = Some((stream, reached.clone())));
    }
}
