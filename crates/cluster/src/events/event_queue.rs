//! The queue of events from the log and the links for the node's event loop, without duplicates.

use std::time::Duration;

use io::task::Condvar;
use log::{GroupId, Lsn, PeerId};
use parking_lot::Mutex;

/// An event that the node's event loop handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The role or the leader of the local replica of this group changed.
    Role(GroupId),
    /// The local replica of this group needs a copy of its rows.
    NeedsRows(GroupId),
    /// This node leads the group, and its log no longer has the entries that this replica needs.
    Behind(GroupId, PeerId),
    /// The leader of this group, whose log begins after this position, offers a copy to the local replica.
    CopyOffered(GroupId, Lsn),
    /// The local replica of this group is no longer a member and is to be closed.
    Removed(GroupId),
    /// The group was sealed, or opened again.
    SealChanged(GroupId),
    /// Rows of the catalog changed.
    Catalog,
    /// The node stops.
    Stop,
}

/// Events that the event loop has not taken yet. Pushing does not wait for the loop.
#[derive(Default)]
pub struct EventQueue {
    events: Mutex<Vec<Event>>,
    pushed: Condvar,
}

impl EventQueue {
    /// Adds an event, unless an equal one is queued already.
    pub(crate) fn push(&self, event: Event) {
        let mut events = self.events.lock();
        if !events.contains(&event) {
            events.push(event);
            self.pushed.notify_all();
        }
    }

    /// Takes all events. Waits for the first one, for `timeout` at most.
    pub(crate) fn take(&self, timeout: Duration) -> Vec<Event> {
        let mut events = self.events.lock();
        if events.is_empty() {
            self.pushed.wait_for(&mut events, timeout);
        }
        std::mem::take(&mut *events)
    }
}
