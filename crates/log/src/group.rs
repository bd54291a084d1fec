//! One group: consensus about the order of its entries, and those on their way to the engine.
//!
//! Consensus sees empty entries; what was proposed waits here, by position, until it is applied.
//! It is told only of what is durable, so its committed position never goes back. The soft
//! position runs ahead of it: what the operating system has. A soft entry is applied from there,
//! a hard one when it is committed, and neither overtakes the other.

use std::collections::VecDeque;

use bytes::Bytes;
use raft::eraftpb::{Entry as RaftEntry, Message, MessageType};
use raft::{Config, RawNode};

use crate::contract::{Done, Entry};
use crate::error::{Doubt, LogError, Refusal};
use crate::lsn::{Durability, GroupId, Lsn};
use crate::outline::Outline;
use crate::record::{EntryKind, Record};
use crate::store::{Forgotten, Store, StoredGroup};

/// Heartbeat periods before a silent leader is given up.
const ELECTION_TICKS: usize = 10;
const MESSAGE_BYTES_MAX: u64 = 1 << 20;

/// An entry that is not applied yet, and who is to be told.
pub(crate) struct Waiting {
    pub entry: Bytes,
    pub kind: EntryKind,
    pub done: Option<Done>,
}

/// Proposals that can be answered once a batch is applied.
#[derive(Default)]
pub(crate) struct Answers {
    pub done: Vec<(Done, Lsn)>,
    pub hard: u64,
    pub soft: u64,
}

/// What one append was for: the number of the store's append, and of consensus' own batch.
struct Unsynced {
    append: u64,
    ready: u64,
}

/// A group that is open.
pub(crate) struct Group {
    id: GroupId,
    node: RawNode<Outline>,
    // Proposed and not ordered yet.
    incoming: Vec<Waiting>,
    // Ordered and not applied; the first is at `applied + 1`.
    queue: VecDeque<Waiting>,
    applied: u64,
    soft: u64,
    unsynced: VecDeque<Unsynced>,
    // Called when everything up to the position is durable and applied.
    syncs: Vec<(u64, Done)>,
}

impl Group {
    /// A group whose stored entries are all applied. A group of one elects itself; the records
    /// of that are pushed to `store`.
    pub fn open(
        id: GroupId,
        stored: &StoredGroup,
        store: &mut impl Store,
        append: u64,
    ) -> Result<Group, LogError> {
        let fault = |cause: raft::Error| LogError::Consensus { group: id, cause: cause.to_string() };
        let mut outline = stored.outline.clone();
        let applied = outline.last();
        let alone = outline.members.voters == [stored.peer];
        if alone {
            // One who votes alone has committed whatever it finds durable in its log.
            outline.hard.commit = applied;
        }
        let config = Config {
            id: stored.peer,
            election_tick: ELECTION_TICKS,
            heartbeat_tick: 1,
            applied,
            max_size_per_msg: MESSAGE_BYTES_MAX,
            check_quorum: true,
            pre_vote: true,
            batch_append: true,
            ..Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let node = RawNode::new(&config, outline, &logger).map_err(fault)?;
        let mut group = Group {
            id,
            node,
            incoming: Vec::new(),
            queue: VecDeque::new(),
            applied,
            soft: applied,
            unsynced: VecDeque::new(),
            syncs: Vec::new(),
        };
        if alone {
            group.node.campaign().map_err(fault)?;
        }
        group.save_ready(store, append);
        Ok(group)
    }

    /// Takes a proposal in; whether it is the first that waits to be ordered.
    pub fn propose(&mut self, waiting: Waiting) -> bool {
        self.incoming.push(waiting);
        self.incoming.len() == 1
    }

    /// Takes a wish to be told when everything proposed so far is durable and applied.
    pub fn propose_sync(&mut self, done: Done) {
        let ordered = self.applied + self.queue.len() as u64;
        self.syncs.push((ordered + self.incoming.len() as u64, done));
    }

    /// Gives every proposal its position, and pushes the records to `store`; `append` is the
    /// number of the append they will be in. Returns the proposals if consensus takes none.
    pub fn order(&mut self, store: &mut impl Store, append: u64) -> Option<Vec<Waiting>> {
        if self.incoming.is_empty() {
            return None;
        }
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.from = self.node.raft.id;
        message.entries = vec![RaftEntry::default(); self.incoming.len()];
        if self.node.step(message).is_err() {
            return Some(std::mem::take(&mut self.incoming));
        }
        self.queue.extend(self.incoming.drain(..));
        self.save_ready(store, append);
        None
    }

    /// Carries out what consensus wants kept.
    fn save_ready(&mut self, store: &mut impl Store, append: u64) {
        let group = self.id;
        while self.node.has_ready() {
            let ready = self.node.ready();
            // A new commit position alone is not worth a record: it is learnt again.
            if let Some(hard) = ready.hs().filter(|_| ready.must_sync()) {
                let stored = &self.node.store().hard;
                if (hard.term, hard.vote) != (stored.term, stored.vote) {
                    let (term, vote, commit) = (hard.term, hard.vote, hard.commit);
                    store.push(&Record::Vote { group, term, vote, commit });
                    self.node.mut_store().hard = hard.clone();
                }
            }
            for RaftEntry { index, term, .. } in ready.entries() {
                let nth = (index - self.applied - 1) as usize;
                if nth == self.queue.len() {
                    // Not one of ours: consensus makes an entry of its own when it has elected.
                    let entry = Bytes::new();
                    self.queue.push_back(Waiting { entry, kind: EntryKind::Election, done: None });
                }
                let Waiting { entry, kind, .. } = &self.queue[nth];
                let (index, term, kind) = (*index, *term, *kind);
                store.push(&Record::Entry { group, index, term, kind, payload: entry });
                let fits = self.node.mut_store().append(index, term, kind == EntryKind::Election);
                assert!(fits, "invariant: consensus orders entries without gaps");
            }
            let append = match ready.must_sync() {
                true => append,
                // Nothing to keep: as durable as what came before it.
                false => self.unsynced.back().map_or(0, |unsynced| unsynced.append),
            };
            self.unsynced.push_back(Unsynced { append, ready: ready.number() });
            self.node.advance_append_async(ready);
        }
    }

    /// The last append has returned.
    pub fn appended(&mut self) {
        self.soft = self.node.store().last();
    }

    /// Appends up to number `append` are durable. Consensus may now commit; what it wants kept
    /// goes with append number `next`.
    pub fn synced(&mut self, append: u64, next: u64, store: &mut impl Store) {
        loop {
            let mut persisted = None;
            while self.unsynced.front().is_some_and(|unsynced| unsynced.append <= append) {
                persisted = self.unsynced.pop_front().map(|unsynced| unsynced.ready);
            }
            let Some(ready) = persisted else { return };
            self.node.on_persist_ready(ready);
            self.save_ready(store, next);
        }
    }

    /// Whether something appended is not durable yet.
    pub fn is_unsynced(&self) -> bool {
        !self.unsynced.is_empty()
    }

    /// Moves entries that may be applied to `batch`, and those who wait for them to `answers`.
    pub fn take_applicable(&mut self, batch: &mut Vec<Entry>, answers: &mut Answers) {
        let committed = self.node.raft.raft_log.committed;
        loop {
            let index = self.applied + 1;
            let Some(front) = self.queue.front() else { break };
            let may_apply = match front.kind {
                EntryKind::Proposed(Durability::Hard) => index <= committed,
                EntryKind::Proposed(Durability::Soft) | EntryKind::Election => index <= self.soft,
            };
            if !may_apply {
                break;
            }
            let Some(waiting) = self.queue.pop_front() else { break };
            self.applied = index;
            match waiting.kind {
                EntryKind::Election => continue,
                EntryKind::Proposed(Durability::Hard) => answers.hard += 1,
                EntryKind::Proposed(Durability::Soft) => answers.soft += 1,
            }
            batch.push((self.id, Lsn(index), waiting.entry));
            if let Some(done) = waiting.done {
                answers.done.push((done, Lsn(index)));
            }
        }
        let reached = self.applied.min(committed);
        if reached > self.node.raft.raft_log.applied {
            self.node.advance_apply_to(reached);
        }
        for (to, done) in self.syncs.extract_if(.., |(to, _)| *to <= reached) {
            answers.done.push((done, Lsn(to)));
        }
    }

    /// Everything up to here is applied and durable in the log.
    pub fn settled(&self) -> u64 {
        self.applied.min(self.node.raft.raft_log.committed)
    }

    /// Whether nothing is on its way.
    pub fn is_idle(&self) -> bool {
        self.incoming.is_empty() && self.queue.is_empty() && self.syncs.is_empty()
    }

    /// Entries have left the store.
    pub fn forget(&mut self, forgotten: &Forgotten) {
        self.node.mut_store().forget(forgotten.index, forgotten.proposed);
    }

    /// Tells everybody that their fate is unknown, or that nothing was written.
    pub fn abandon(&mut self, doubt: &Doubt) {
        for done in self.incoming.drain(..).filter_map(|waiting| waiting.done) {
            done(Err(Refusal::Stopped.into()));
        }
        for done in self.queue.drain(..).filter_map(|waiting| waiting.done) {
            done(Err(doubt.clone().into()));
        }
        for (_, done) in self.syncs.drain(..) {
            done(Err(doubt.clone().into()));
        }
    }

    /// Tells those who wait before anything is written: the fault the crash harness must find.
    #[cfg(feature = "ack-before-append")]
    pub fn answer_early(&mut self, answers: &mut Answers) {
        for (nth, waiting) in self.queue.iter_mut().enumerate() {
            if let Some(done) = waiting.done.take() {
                answers.done.push((done, Lsn(self.applied + 1 + nth as u64)));
            }
        }
    }
}
