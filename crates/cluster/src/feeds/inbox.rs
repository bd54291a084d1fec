//! The messages to the thread of the feeds.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use io::task::Condvar;
use log::GroupId;
use parking_lot::Mutex;
use shard::{HistoryListener, HistoryPosition, HistoryRecord};

use super::response::HistoryResponse;
use super::subscription::Subscription;
use crate::config::ServerId;
use crate::locks::BriefRwLock;
use crate::rpc::Responder;

pub(super) enum Message {
    /// These records have joined the history of a group here.
    Recorded(GroupId, Vec<HistoryRecord>),
    /// The local replica of a group is closed, or a copy replaces its rows.
    Interrupted(GroupId),
    /// A new subscription, with its segments.
    Subscribe(Arc<Subscription>),
    /// A stream's request to another server has ended.
    Response {
        stream: u64,
        server: ServerId,
        response: Option<HistoryResponse>,
    },
    /// Another server reads the history of a group.
    Read {
        group: GroupId,
        after: HistoryPosition,
        respond: Responder,
    },
    /// This node shows another version of the catalog.
    Catalog,
    /// A subscriber that is behind has room again.
    Room,
    Stop,
}

/// Messages that the thread has not taken yet. Adding one does not wait for the thread.
#[derive(Default)]
pub(crate) struct Inbox {
    messages: Mutex<Vec<Message>>,
    arrived: Condvar,
    /// The groups whose local histories the thread needs.
    watched: BriefRwLock<HashSet<GroupId>>,
}

impl Inbox {
    pub(super) fn push(&self, message: Message) {
        let mut messages = self.messages.lock();
        messages.push(message);
        if messages.len() == 1 {
            self.arrived.notify_all();
        }
    }

    /// Takes all messages. Waits for the first one, for `timeout` at most; without a timeout as long as it takes.
    pub(super) fn take(&self, timeout: Option<Duration>) -> Vec<Message> {
        let mut messages = self.messages.lock();
        match timeout {
            _ if !messages.is_empty() => {}
            Some(timeout) => _ = self.arrived.wait_for(&mut messages, timeout),
            None => self.arrived.wait(&mut messages),
        }
        std::mem::take(&mut *messages)
    }

    pub(super) fn watch(&self, group: GroupId) {
        self.watched.write().insert(group);
    }

    pub(super) fn unwatch(&self, group: GroupId) {
        self.watched.write().remove(&group);
    }

    fn is_watched(&self, group: GroupId) -> bool {
        self.watched.read().contains(&group)
    }
}

impl HistoryListener for Inbox {
    fn recorded(&self, group: GroupId, records: Vec<HistoryRecord>) {
        if self.is_watched(group) {
            self.push(Message::Recorded(group, records));
        }
    }

    fn interrupted(&self, group: GroupId) {
        if self.is_watched(group) {
            self.push(Message::Interrupted(group));
        }
    }
}
