//! Events that the log and the links report, for the node's event loop: a queue without duplicates.

use std::time::Duration;

use io::task::Condvar;
use log::{GroupId, Lsn, PeerId};
use parking_lot::Mutex;

/// Something that the node must act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The replica of this group has another role, or another leader.
    Role(GroupId),
    /// The replica of this group needs a copy of its rows.
    NeedsRows(GroupId),
    /// This node leads the group, and its log no longer has what that replica needs.
    Behind(GroupId, PeerId),
    /// The leader of this group, whose log begins after that position, offers a copy to the replica here.
    CopyOffered(GroupId, Lsn),
    /// The replica of this group is no longer a member, and is closed.
    Removed(GroupId),
    /// The group was sealed or opened again.
    SealChanged(GroupId),
    /// Rows of the catalog changed.
    Catalog,
    /// The node stops.
    Stop,
}

/// Events that the event loop has not taken yet. Pushing never waits for the loop.
#[derive(Default)]
pub struct EventQueue {
    events: Mutex<Vec<Event>>,
    pushed: Condvar,
}

impl EventQueue {
    /// Adds an event, unless an equal one waits already.
    pub(crate) fn push(&self, event: Event) {
        let mut events = self.events.lock();
        if !events.contains(&event) {
            events.push(event);
            self.pushed.notify_all();
        }
    }

    /// Takes all events; waits for one, `timeout` at most.
    pub(crate) fn take(&self, timeout: Duration) -> Vec<Event> {
        let mut events = self.events.lock();
        if events.is_empty() {
            self.pushed.wait_for(&mut events, timeout);
        }
        std::mem::take(&mut *events)
    }
}
