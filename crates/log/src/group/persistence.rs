//! Appends of one group that are not durable yet, and the messages that may only be sent once they are.

use std::collections::VecDeque;

use raft::eraftpb::Message as RaftMessage;

/// One batch of consensus state in an append of the store.
struct UnsyncedBatch {
    /// The number of the store's append.
    append: u64,
    /// The number of the batch in consensus; zero for none.
    ready: u64,
    /// Responses that may only be sent once the append is durable.
    messages: Vec<RaftMessage>,
}

/// A batch that has become durable.
pub(super) struct SyncedBatch {
    pub ready: u64,
    pub messages: Vec<RaftMessage>,
}

/// Which state of consensus is durable.
#[derive(Default)]
pub(super) struct Persistence {
    unsynced: VecDeque<UnsyncedBatch>,
    /// The append that makes the present term durable.
    term_append: u64,
}

impl Persistence {
    /// The record of a new term is in `append`.
    pub fn note_term(&mut self, append: u64) {
        self.term_append = append;
    }

    /// Whether the present term is durable once appends up to `synced` are.
    pub fn term_is_durable(&self, synced: u64) -> bool {
        self.term_append <= synced
    }

    /// Adds a batch that is in `append`.
    pub fn push(&mut self, append: u64, ready: u64, messages: Vec<RaftMessage>) {
        self.unsynced.push_back(UnsyncedBatch { append, ready, messages });
    }

    /// The append of the newest batch; zero if every batch is durable.
    pub fn last_append(&self) -> u64 {
        self.unsynced.back().map_or(0, |batch| batch.append)
    }

    /// Removes the oldest batch, if it is durable once appends up to `synced` are.
    pub fn next_synced(&mut self, synced: u64) -> Option<SyncedBatch> {
        self.unsynced.front().filter(|batch| batch.append <= synced)?;
        let batch = self.unsynced.pop_front()?;
        Some(SyncedBatch { ready: batch.ready, messages: batch.messages })
    }

    /// Delays all responses until `append` is durable.
    pub fn hold_back_until(&mut self, append: u64) {
        self.unsynced.push_front(UnsyncedBatch { append, ready: 0, messages: Vec::new() });
    }

    /// Whether every batch is durable.
    pub fn is_complete(&self) -> bool {
        self.unsynced.is_empty()
    }
}
