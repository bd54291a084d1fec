//! One group: consensus about the order of its entries, and those on their way to the engine.
//!
//! Consensus sees empty entries; what was proposed waits here, by position, until it is applied and
//! followers have it. Consensus is told only of what is durable, so its committed position never
//! goes back. The soft position runs ahead of it: what a majority has written. A soft entry is
//! applied from there, a hard one when it is committed, and neither overtakes the other.
//!
//! `replicate` writes messages and reads them, `apply` moves the watermarks, `lead` is about roles and
//! what is asked of leaders, `origins` about copies, `change` about members, `rest` about groups in which nothing happens, `lost` about
//! replicas whose node's files are older than what they acknowledged.

mod apply;
mod caretaker;
mod change;
mod lead;
mod lost;
mod origins;
mod replicate;
mod rest;

use std::collections::{BTreeMap, VecDeque};

use raft::eraftpb::{Entry as RaftEntry, Message as RaftMessage, MessageType};
use raft::{Config, RawNode, Ready, StateRole};

use crate::contract::Done;
use crate::error::{Interruption, LogError, Refusal};
use crate::lsn::{Acks, Durability, GroupId, Lsn, Term};
use crate::member::{Members, PeerId, Role};
use crate::message::Payload;
use crate::outline::Outline;
use crate::record::{EntryKind, Record};
use crate::store::{Compacted, Store, StoredGroup};
use crate::tail::{Held, Tail};
use crate::turn::{Effects, Turn, Waiting};

use caretaker::Unled;
use change::Untold;
use lead::{Limbo, Reading};
use lost::Promise;
use origins::Origins;
use replicate::Flight;
use rest::Rest;

/// Heartbeat periods before a silent leader is given up: at least so many, at most twice as many.
const ELECTION_TICKS: usize = 10;
/// Of entries as consensus sees them, which are a few bytes each.
const MESSAGE_BYTES_MAX: u64 = 16 << 10;
/// Entries that are applied stay in memory for followers, up to this many bytes.
const TAIL_BYTES_MAX: usize = 256 << 10;
/// More than this on its way, and proposals are refused.
const PENDING_BYTES_MAX: usize = 256 << 20;

/// What one append was for: the number of the store's append, of consensus' own batch, and the
/// messages that say so.
struct Unsynced {
    append: u64,
    ready: u64,
    messages: Vec<RaftMessage>,
}

/// A group that is open.
pub(crate) struct Group {
    id: GroupId,
    own: u64,
    node: RawNode<Outline>,
    // Proposed and not ordered yet; then on the way through consensus.
    incoming: Vec<Waiting>,
    proposing: VecDeque<Waiting>,
    // What the entries of the message in hand hold, by position.
    received: BTreeMap<u64, Payload>,
    tail: Tail,
    incoming_bytes: usize,
    applied: u64,
    // The last position that has been appended here.
    written: u64,
    // The last position that a majority has appended.
    soft: u64,
    unsynced: VecDeque<Unsynced>,
    // The append that makes the present term durable.
    term_append: u64,
    // Called when everything up to the position is durable and applied.
    syncs: Vec<(u64, Done)>,
    // Followers: up to where the log is the leader's, in which term, and whether to tell it at once.
    verified: (u64, u64),
    owes_received: bool,
    // What the leader of a term has said of the soft position.
    told: (u64, u64),
    // Leaders: what others have written in this term, and what is on its way to them.
    fellows: BTreeMap<u64, Flight>,
    role: Role,
    // The change of members that was last told.
    told_members: Option<Lsn>,
    acks: Acks,
    // The term, the state and the leader last seen.
    seen: (u64, StateRole, u64),
    // The first entry of this leader's term.
    lead_from: u64,
    limbo: Vec<Limbo>,
    reading: Reading,
    origins: Origins,
    void: bool,
    told_void: bool,
    removed: bool,
    // What the replica had acknowledged and has no more.
    lost: Option<Promise>,
    // A change that is in force and not durable, and who waits for that.
    untold: Option<Untold>,
    changing: Vec<(u64, Done)>,
    election_ticks: usize,
    ticks: u64,
    deposed_at: Option<u64>,
    unled: Unled,
    wanted_at: BTreeMap<u64, u64>,
    rest: Rest,
}

/// Consensus of a replica that has applied everything up to `applied`.
fn consensus(id: u64, applied: u64, outline: Outline) -> raft::Result<RawNode<Outline>> {
    let config = Config {
        id,
        election_tick: ELECTION_TICKS,
        heartbeat_tick: 1,
        applied,
        max_size_per_msg: MESSAGE_BYTES_MAX,
        check_quorum: true,
        pre_vote: true,
        batch_append: true,
        ..Config::default()
    };
    RawNode::new(&config, outline, &slog::Logger::root(slog::Discard, slog::o!()))
}

impl Group {
    /// A group as it is stored. Of one who votes alone, all stored entries are applied, and it elects
    /// itself; the records of that are pushed.
    pub fn open<S: Store>(
        id: GroupId,
        stored: &StoredGroup,
        applied: Lsn,
        turn: &mut Turn<'_, S>,
    ) -> Result<Group, LogError> {
        let fault = |cause: raft::Error| LogError::Consensus { group: id, cause: cause.to_string() };
        let mut outline = stored.outline.clone();
        let (start, last) = (outline.start(), outline.last());
        let alone = outline.members.voters == [PeerId(stored.peer)] && !stored.void;
        // One who votes alone has committed whatever it finds durable in its log.
        // So is every change of members that another follows: a leader orders it when it has applied those before.
        let changed = outline.members.at.0.max(outline.change_before_last());
        let known = outline.hard.commit.max(start).max(changed).min(last);
        outline.hard.commit = if alone { last } else { known };
        // What has left the log after the last row that changed was not about rows: nothing is missing.
        let applied = if alone { last } else { applied.0.max(start) };
        let (reached, term) = (applied.clamp(start, outline.hard.commit.max(start)), outline.hard.term);
        let node = consensus(stored.peer, reached, outline).map_err(fault)?;
        let mut group = Group {
            id,
            own: stored.peer,
            node,
            incoming: Vec::new(),
            proposing: VecDeque::new(),
            received: BTreeMap::new(),
            tail: Tail::after(last),
            incoming_bytes: 0,
            applied,
            written: last,
            soft: applied.min(last),
            unsynced: VecDeque::new(),
            term_append: 0,
            syncs: Vec::new(),
            verified: (0, 0),
            owes_received: false,
            told: (0, 0),
            fellows: BTreeMap::new(),
            role: Role::Follower { term: Term(term), leader: None },
            told_members: None,
            acks: Acks::Majority,
            seen: (term, StateRole::Follower, 0),
            lead_from: 0,
            limbo: Vec::new(),
            reading: Reading::default(),
            origins: Origins::default(),
            void: stored.void,
            told_void: false,
            removed: false,
            lost: None,
            untold: None,
            changing: Vec::new(),
            election_ticks: ELECTION_TICKS,
            ticks: 0,
            deposed_at: None,
            unled: Unled::default(),
            wanted_at: BTreeMap::new(),
            rest: Rest::default(),
        };
        group.draw_election_timeout(turn);
        if alone {
            group.node.campaign().map_err(fault)?;
        } else if applied > last && !group.void {
            // The disk lost entries that it had made durable; others may be put in their place.
            tracing::warn!(group = id.0, last, applied, "rows are ahead of the log; a copy is needed");
            group.discard_rows(turn);
        }
        group.save(turn)?;
        Ok(group)
    }

    /// Takes a proposal in; whether it is the first that waits to be ordered.
    pub fn propose(&mut self, waiting: Waiting) -> bool {
        self.incoming_bytes += waiting.entry.len();
        self.incoming.push(waiting);
        self.incoming.len() == 1
    }

    /// Whether proposals of `term` are taken, or of any term.
    pub fn may_propose(&self, term: Option<Term>) -> Result<(), Refusal> {
        let leads = self.leads();
        if leads.is_none() || term.is_some_and(|term| leads != Some(term)) {
            return Err(Refusal::NotLeader { leader: self.leader() });
        }
        if self.tail.bytes() + self.incoming_bytes > PENDING_BYTES_MAX {
            return Err(Refusal::Busy);
        }
        Ok(())
    }

    /// How many replicas an entry waits for while this one leads.
    pub fn set_acks(&mut self, acks: Acks) {
        self.acks = acks;
    }

    /// Takes a wish to be told when everything proposed so far is durable and applied.
    pub fn propose_sync(&mut self, done: Done) {
        self.syncs.push((self.tail.last() + self.incoming.len() as u64, done));
    }

    /// Gives every proposal its position, and pushes the records. Returns the proposals if
    /// consensus takes none.
    pub fn order<S: Store>(&mut self, turn: &mut Turn<'_, S>) -> Result<Vec<Waiting>, LogError> {
        self.ask_for_reads();
        if !self.incoming.is_empty() {
            let mut message = RaftMessage::default();
            message.set_msg_type(MessageType::MsgPropose);
            message.from = self.own;
            message.entries = vec![RaftEntry::default(); self.incoming.len()];
            self.proposing.extend(self.incoming.drain(..));
            self.incoming_bytes = 0;
            if self.node.raft.state != StateRole::Leader || self.node.step(message).is_err() {
                // Whoever waits for these to be durable waits for nothing.
                let last = self.tail.last();
                self.syncs.iter_mut().for_each(|(to, _)| *to = last.min(*to));
                return Ok(self.proposing.drain(..).collect());
            }
        }
        self.save(turn)?;
        Ok(Vec::new())
    }

    /// Carries out what consensus wants kept and sent.
    pub fn save<S: Store>(&mut self, turn: &mut Turn<'_, S>) -> Result<(), LogError> {
        loop {
            self.note_persisted(turn)?;
            if self.node.has_ready() {
                let ready = self.node.ready();
                self.save_ready(ready, turn)?;
            } else if !self.change_members(turn)? {
                break;
            }
        }
        for peer in self.node.store().take_wanted() {
            self.want_copy(peer, turn.effects);
        }
        Ok(())
    }

    fn save_ready<S: Store>(&mut self, mut ready: Ready, turn: &mut Turn<'_, S>) -> Result<(), LogError> {
        self.note_state(turn);
        // A new commit position alone is not worth a record: it is learnt again.
        if let Some(hard) = ready.hs().filter(|_| ready.must_sync()) {
            let stored = &self.node.store().hard;
            if (hard.term, hard.vote) != (stored.term, stored.vote) {
                let (group, term, vote, commit) = (self.id, hard.term, hard.vote, hard.commit);
                if term != stored.term {
                    self.term_append = turn.append;
                }
                #[cfg(any(test, feature = "mutants"))]
                let vote = if crate::mutant::is_active(crate::mutant::Mutant::ForgetVote) { 0 } else { vote };
                turn.store.push(&Record::Vote { group, term, vote, commit });
                turn.effects.urgent |= !self.is_solitary();
                self.node.mut_store().hard = hard.clone();
            }
        }
        for entry in ready.take_entries() {
            self.save_entry(&entry, turn);
        }
        for state in ready.take_read_states() {
            self.reading.confirmed(&state);
        }
        let append = match ready.must_sync() {
            true => turn.append,
            // Nothing to keep: as durable as what came before it.
            false => self.unsynced.back().map_or(0, |unsynced| unsynced.append),
        };
        let (mut now, mut later) = (ready.take_messages(), ready.take_persisted_messages());
        if self.term_append <= turn.synced {
            // That one hears its leader does not depend on what else the disk is to keep. Waiting for a slow
            // disk, the answer would come too late for a leader that asks whether a majority is alive.
            let is_answer =
                |message: &mut RaftMessage| message.get_msg_type() == MessageType::MsgHeartbeatResponse;
            now.extend(later.extract_if(.., is_answer));
        }
        for message in &later {
            if message.get_msg_type() == MessageType::MsgAppendResponse && !message.reject {
                self.verify(message.term, message.index);
            }
        }
        #[cfg(any(test, feature = "mutants"))]
        let append = if crate::mutant::is_active(crate::mutant::Mutant::AckBeforeFsync) { 0 } else { append };
        self.unsynced.push_back(Unsynced { append, ready: ready.number(), messages: later });
        self.node.advance_append_async(ready);
        self.post(now, turn)
    }

    fn save_entry<S: Store>(&mut self, entry: &RaftEntry, turn: &mut Turn<'_, S>) {
        let (group, index, term) = (self.id, entry.index, entry.term);
        let (kind, payload, done) = match (self.proposing.pop_front(), self.received.remove(&index)) {
            (Some(Waiting { entry, kind, done }), _) => (kind, entry, done),
            (None, Some((kind, payload))) => (kind, payload, None),
            // Not one of ours: consensus makes an entry of its own when it has elected.
            (None, None) => (EntryKind::Election, bytes::Bytes::new(), None),
        };
        if index <= self.tail.last() {
            self.overwrite(index, turn);
        }
        match kind {
            EntryKind::Proposed(durability) => {
                turn.effects.entries += 1;
                turn.effects.hard += u64::from(durability == Durability::Hard);
                self.owes_received |= durability == Durability::Soft;
            }
            EntryKind::Election | EntryKind::Members => turn.effects.urgent |= !self.is_solitary(),
        }
        turn.store.push(&Record::Entry { group, index, term, kind, payload: &payload });
        let fits = self.node.mut_store().append(index, term, kind);
        assert!(fits, "invariant: consensus orders entries without gaps");
        self.tail.push(Held { term, kind, payload, done });
    }

    /// The last append has returned: the log holds what was pushed.
    pub fn appended(&mut self, effects: &mut Effects, synced: u64) {
        self.written = self.node.store().last();
        self.tell_received(effects, synced);
    }

    /// Appends up to number `turn.synced` are durable. Consensus may now commit; what it wants kept
    /// goes with the next append.
    pub fn synced<S: Store>(&mut self, turn: &mut Turn<'_, S>) -> Result<(), LogError> {
        if self.term_append <= turn.synced {
            self.tell_received(turn.effects, turn.synced);
        }
        self.save(turn)
    }

    /// Tells consensus what is durable, and others what they may know because of it.
    fn note_persisted<S: Store>(&mut self, turn: &mut Turn<'_, S>) -> Result<(), LogError> {
        while self.unsynced.front().is_some_and(|unsynced| unsynced.append <= turn.synced) {
            let Some(Unsynced { ready, messages, .. }) = self.unsynced.pop_front() else { break };
            self.node.on_persist_ready(ready);
            self.regain(&messages);
            self.post(messages, turn)?;
        }
        let is_kept = self.untold.take_if(|untold| untold.append <= turn.synced).is_some();
        if is_kept && self.node.raft.state == StateRole::Leader {
            // Until the others know, they would need those of before to elect another leader.
            self.node.raft.bcast_append();
        }
        Ok(())
    }

    /// Nothing that the log holds is acknowledged before this append is durable.
    pub fn hold_back_until(&mut self, append: u64) {
        self.unsynced.push_front(Unsynced { append, ready: 0, messages: Vec::new() });
    }

    /// Whether something appended is not durable yet.
    pub fn is_unsynced(&self) -> bool {
        !self.unsynced.is_empty() || !self.members_durable_here()
    }

    /// The replica.
    pub fn own(&self) -> PeerId {
        PeerId(self.own)
    }

    /// Whether a message to `peer` is for this replica.
    pub fn is_peer(&self, peer: PeerId) -> bool {
        self.own == peer.0
    }

    /// Whether this replica votes alone.
    pub fn is_alone(&self) -> bool {
        self.members().voters == [PeerId(self.own)]
    }

    /// Whether there is no other replica at all.
    pub fn is_solitary(&self) -> bool {
        self.is_alone() && self.members().learners.is_empty()
    }

    /// The members in force.
    pub fn members(&self) -> &Members {
        &self.node.store().members
    }

    /// The last position that is durable on a majority.
    pub fn committed(&self) -> u64 {
        self.node.raft.raft_log.committed
    }

    /// The last position that is durable on a majority and here.
    pub(super) fn durable(&self) -> u64 {
        self.committed().min(self.node.raft.raft_log.persisted)
    }

    /// Everything up to here is applied and durable in the log.
    pub fn settled(&self) -> u64 {
        match self.void {
            true => self.node.store().start(),
            false => self.applied.min(self.durable()),
        }
    }

    /// Whether nothing is on its way.
    pub fn is_idle(&self) -> bool {
        self.incoming.is_empty() && self.syncs.is_empty() && self.applied >= self.tail.last()
    }

    /// Entries have left the store.
    pub fn forget(&mut self, forgotten: &Compacted) {
        self.node.mut_store().forget(forgotten.index, forgotten.proposed);
    }

    /// Tells everybody that their fate is unknown, or that nothing was written.
    pub fn abandon(&mut self, doubt: &Interruption) {
        for done in self.incoming.drain(..).filter_map(|waiting| waiting.done) {
            done(Err(Refusal::Stopped.into()));
        }
        let limbo = self.limbo.drain(..).map(|limbo| limbo.done);
        let syncs = self.syncs.drain(..).chain(self.changing.drain(..)).map(|(_, done)| done);
        for done in self.tail.take_done().chain(limbo).chain(syncs) {
            done(Err(doubt.clone().into()));
        }
        for done in self.reading.drain() {
            done(Err(Refusal::Stopped.into()));
        }
        for done in self.origins.drain() {
            done(Err(Refusal::Stopped.into()));
        }
    }

    /// Tells those who wait before anything is written: the fault the crash harness must find.
    #[cfg(feature = "ack-before-append")]
    pub fn answer_early(&mut self, effects: &mut Effects) {
        for index in self.applied + 1..=self.tail.last() {
            if let Some(done) = self.tail.get_mut(index).and_then(|held| held.done.take()) {
                effects.answers.done.push((done, Ok(Lsn(index))));
            }
        }
    }
}
