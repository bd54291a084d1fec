//! One replica of one group: consensus on the order of its entries, and the entries on their way to the engine.
//!
//! Consensus sees empty entries. Their payloads wait here, by position, until they are applied and the followers have
//! them.
//!
//! [`Group`] owns one part for each task and coordinates them; no part knows the group. `consensus` is the Raft node.
//! `proposals`, `reads` and `log_bases` hold callers that wait. `entries` has the newest entries and their positions,
//! `persistence` the appends that are not durable. `replication` and `following` are the views of a leader and of a
//! follower, `leadership` and `stand_in_leader` decide on elections, `membership` and `recovery` on membership changes
//! and lost data, `quiescence` on heartbeats. This file has the calls of the driver, `receive` handles messages, and
//! `ready` stores and sends what consensus wants; they use each other in this order.

mod consensus;
mod entries;
mod following;
mod leadership;
mod log_bases;
mod membership;
mod persistence;
mod proposals;
mod quiescence;
mod reads;
mod ready;
mod receive;
mod recovery;
mod replication;
mod stand_in_leader;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use raft::StateRole;
use raft::eraftpb::{Entry as RaftEntry, Message as RaftMessage, MessageType};

use crate::contract::{Done, LogBaseDone};
use crate::error::{Interruption, LogError, Refusal};
use crate::lsn::{Acks, GroupId, Lsn, Term};
use crate::member::{GroupStatus, MemberChange, PeerId, Role};
use crate::message::Payload;
use crate::record::EntryKind;
use crate::step::{Effects, PendingEntry, Step};
use crate::store::{Compacted, Store, StoredGroup};

use consensus::Consensus;
use entries::Entries;
use following::Following;
use leadership::Leadership;
use log_bases::LogBases;
use membership::{ChangeCheck, Membership};
use persistence::Persistence;
use proposals::Proposals;
use quiescence::Quiescence;
use reads::Reads;
use recovery::Recovery;
use replication::Replication;
use stand_in_leader::StandIn;

/// Heartbeat periods after which a follower gives up a silent leader: at least this many, at most twice as many.
const ELECTION_TICKS: usize = 10;
/// Applied entries stay in memory for followers, up to this many bytes.
const TAIL_BYTES_MAX: usize = 256 << 10;
/// Proposals are refused while more bytes than this are on their way.
const PENDING_BYTES_MAX: usize = 256 << 20;

/// A group that is open.
pub(crate) struct Group {
    consensus: Consensus,
    entries: Entries,
    proposals: Proposals,
    reads: Reads,
    log_bases: LogBases,
    persistence: Persistence,
    following: Following,
    replication: Replication,
    leadership: Leadership,
    stand_in: StandIn,
    membership: Membership,
    recovery: Recovery,
    quiescence: Quiescence,
    /// The payloads of the message that is being handled, by position.
    received: BTreeMap<u64, Payload>,
    ticks: u64,
}

impl Group {
    /// Opens a stored group. A single voter applies all stored entries and elects itself; the records of that are pushed.
    pub fn open<S: Store>(
        id: GroupId,
        stored: &StoredGroup,
        applied: Lsn,
        step: &mut Step<'_, S>,
    ) -> Result<Group, LogError> {
        let fault = |cause: raft::Error| LogError::Consensus { group: id, cause: cause.to_string() };
        let mut outline = stored.outline.clone();
        let (start, last) = (outline.start(), outline.last());
        let single = outline.members.voters == [PeerId(stored.peer)] && !stored.rows_invalid;
        // A single voter has committed every entry that is durable in its log. A membership change followed by another is
        // committed too: a leader orders a change only after it has applied the ones before.
        let changed = outline.members.at.0.max(outline.change_before_last());
        let known = outline.hard.commit.max(start).max(changed).min(last);
        outline.hard.commit = if single { last } else { known };
        // Entries that left the log after the last one that changed rows are not missing from the engine.
        let applied = if single { last } else { applied.0.max(start) };
        let (reached, term) = (applied.clamp(start, outline.hard.commit.max(start)), outline.hard.term);
        let mut group = Group {
            consensus: Consensus::new(id, stored.peer, reached, outline).map_err(fault)?,
            entries: Entries::new(last, applied),
            proposals: Proposals::default(),
            reads: Reads::default(),
            log_bases: LogBases::default(),
            persistence: Persistence::default(),
            following: Following::default(),
            replication: Replication::default(),
            leadership: Leadership::new(term),
            stand_in: StandIn::default(),
            membership: Membership::default(),
            recovery: Recovery::new(stored.rows_invalid),
            quiescence: Quiescence::default(),
            received: BTreeMap::new(),
            ticks: 0,
        };
        group.leadership.draw_election_timeout(&mut group.consensus, step.random);
        if single {
            group.consensus.node.campaign().map_err(fault)?;
        } else if applied > last && !group.recovery.rows_invalid() {
            // The disk lost entries that it had made durable; others may be put in their place.
            tracing::warn!(
                group = id.0,
                last,
                applied,
                "rows are ahead of the log; a copy of the rows is needed"
            );
            group.discard_rows(step);
        }
        group.save(step)?;
        Ok(group)
    }

    /// Adds a proposal; returns whether it is the first that waits to be ordered.
    pub fn propose(&mut self, pending: PendingEntry) -> bool {
        self.proposals.push(pending)
    }

    /// Whether proposals are taken; with a term, only if this replica leads in it.
    pub fn may_propose(&self, term: Option<Term>) -> Result<(), Refusal> {
        let leads = self.leads();
        if leads.is_none() || term.is_some_and(|term| leads != Some(term)) {
            return Err(Refusal::NotLeader { leader: self.leader() });
        }
        if self.entries.tail.bytes() + self.proposals.incoming_bytes() > PENDING_BYTES_MAX {
            return Err(Refusal::Busy);
        }
        Ok(())
    }

    /// Adds a caller that waits until everything proposed so far is durable and applied.
    pub fn propose_sync(&mut self, done: Done) {
        self.proposals.push_sync(self.entries.tail.last(), done);
    }

    /// Adds a linearizable read; returns whether it is the first that waits to be ordered.
    pub fn propose_read(&mut self, done: Done) -> bool {
        self.reads.push(done)
    }

    /// Proposes a change of members.
    pub fn propose_change<S: Store>(
        &mut self,
        change: MemberChange,
        done: Done,
        step: &mut Step<'_, S>,
    ) -> Result<(), LogError> {
        let check = match self.leads() {
            Some(_) => self.membership.check(&self.consensus, change),
            None => Err(Refusal::NotLeader { leader: self.leader() }),
        };
        let refusal = match check {
            Ok(ChangeCheck::Propose) => return self.order_change(change, done, step),
            Ok(ChangeCheck::InForce) => {
                done(Ok(Lsn(self.entries.applied)));
                return Ok(());
            }
            Ok(ChangeCheck::HandOver) => {
                match leadership::best_follower(&self.consensus, |peer| self.lacks_rows(peer)) {
                    Some(next) => {
                        self.consensus.node.transfer_leader(next.0);
                        Refusal::NotLeader { leader: Some(next) }
                    }
                    None => Refusal::Invalid,
                }
            }
            Err(refusal) => refusal,
        };
        done(Err(refusal.into()));
        self.save(step)
    }

    fn order_change<S: Store>(
        &mut self,
        change: MemberChange,
        done: Done,
        step: &mut Step<'_, S>,
    ) -> Result<(), LogError> {
        let (entry, last) = (change.encode(), self.entries.tail.last());
        self.proposals.order_now(PendingEntry { entry, kind: EntryKind::Members, done: Some(done) });
        if self.consensus.node.propose_conf_change(Vec::new(), membership::conf_change(change)).is_err() {
            let refused = self.proposals.take_ordering().into_iter().filter_map(|pending| pending.done);
            refused.for_each(|done| done(Err(Refusal::Busy.into())));
        }
        self.save(step)?;
        // The change was ordered ahead of the proposals that still wait.
        self.proposals.postpone_syncs(last, self.entries.tail.last() - last);
        Ok(())
    }

    /// Gives every proposal its position, and pushes the records. Returns the proposals if consensus takes none.
    pub fn order<S: Store>(&mut self, step: &mut Step<'_, S>) -> Result<Vec<PendingEntry>, LogError> {
        self.reads.begin_round(&mut self.consensus, self.entries.applied);
        let count = self.proposals.begin_ordering();
        if count > 0 {
            let mut message = RaftMessage::default();
            message.set_msg_type(MessageType::MsgPropose);
            message.from = self.consensus.own;
            message.entries = vec![RaftEntry::default(); count];
            if !self.consensus.is_leader() || self.consensus.node.step(message).is_err() {
                self.proposals.limit_syncs(self.entries.tail.last());
                return Ok(self.proposals.take_ordering());
            }
        }
        self.save(step)?;
        Ok(Vec::new())
    }

    /// Sets how many replicas an entry waits for while this one leads.
    pub fn set_acks(&mut self, acks: Acks) {
        self.leadership.acks = acks;
    }

    /// Hands leadership over.
    pub fn transfer(&mut self, to: PeerId) {
        if self.consensus.is_leader() && self.consensus.members().voters.contains(&to) {
            self.consensus.node.transfer_leader(to.0);
        }
    }

    /// Stands for election, unless a leader is known to be alive.
    pub fn campaign(&mut self) {
        let raft = self.consensus.raft();
        let has_leader = raft.leader_id != 0 && raft.election_elapsed < raft.election_timeout();
        // A pre-candidate stands again, since its requests may have been lost.
        let may_campaign = matches!(raft.state, StateRole::Follower | StateRole::PreCandidate);
        let may_stand = self.recovery.may_stand(&self.consensus, &self.membership);
        if may_campaign && raft.promotable() && !has_leader && may_stand {
            // Fails only if it leads already.
            drop(self.consensus.node.campaign());
        }
    }

    /// Adds a request for the log base of a copy of the rows at `at`. A replica that is elected and does not take
    /// proposals yet answers as well, since the copy may be needed for a quorum.
    pub fn request_log_base(&mut self, at: Lsn, done: LogBaseDone) {
        if self.recovery.rows_invalid() || !self.consensus.is_leader() {
            return done(Err(Refusal::NotLeader { leader: self.leader() }.into()));
        }
        if at.0 > self.consensus.outline().last() {
            return done(Err(Refusal::Invalid.into()));
        }
        self.log_bases.push(at.0, self.ticks, done);
        self.log_bases.answer_committed(&self.consensus, &self.membership);
    }

    /// The nodes of `peers` are unreachable; returns whether that woke the group.
    pub fn note_unreachable(&mut self, peers: &BTreeSet<PeerId>) -> bool {
        self.quiescence.note_unreachable(&mut self.consensus, peers)
    }

    /// The nodes of `peers` are reachable again; returns whether that woke the group.
    pub fn note_reachable(&mut self, peers: &BTreeSet<PeerId>) -> bool {
        self.quiescence.note_reachable(&mut self.consensus, peers)
    }

    /// Ends quiescence.
    pub fn wake(&mut self) {
        self.quiescence.wake(&mut self.consensus);
    }

    /// Advances the clock of the group by one tick.
    pub fn tick<S: Store>(&mut self, step: &mut Step<'_, S>) -> Result<(), LogError> {
        self.ticks += 1;
        self.answer_deposed(step.effects);
        // After a power loss, entries that a single voter ordered in a term that is not durable may be other ones.
        if self.membership.is_durable() && self.persistence.term_is_durable(step.synced) {
            self.log_bases.answer_overdue(&self.consensus, &self.entries, self.ticks, step.store)?;
        }
        self.leadership.apply_election_timeout(&mut self.consensus);
        let is_due = self.leadership.is_election_due(&self.consensus);
        self.stand_in.note_leaderless(is_due, &self.consensus, self.ticks);
        let may_stand = self.recovery.may_stand(&self.consensus, &self.membership);
        let stands_in = is_due && self.should_stand_in();
        if is_due && !may_stand && !stands_in {
            // It still votes for other candidates, so its last leader must not count as alive.
            self.consensus.node.raft.election_elapsed = ELECTION_TICKS;
            return self.save(step);
        }
        if stands_in {
            let group = self.consensus.id.0;
            tracing::info!(
                group,
                "no replica with rows can be elected: one without rows stands for election"
            );
        }
        self.consensus.node.tick();
        if is_due {
            self.leadership.draw_election_timeout(&mut self.consensus, step.random);
        }
        self.hand_over_without_rows();
        self.save(step)?;
        let is_idle = self.may_quiesce();
        self.quiescence.note_tick(&self.consensus, is_idle, step.effects);
        Ok(())
    }

    /// A leader that stepped down long ago no longer learns the outcome of its entries. If it was elected again since, it
    /// does learn that of the entries in its log.
    fn answer_deposed(&mut self, effects: &mut Effects) {
        if self.leadership.take_deposed_timeout(self.ticks) {
            let uncertain = self.proposals.drain_uncertain();
            let held = (!self.consensus.is_leader()).then(|| self.entries.tail.take_done());
            let waiting = held.into_iter().flatten().chain(uncertain);
            effects.answers.done.extend(waiting.map(|done| (done, Err(Interruption::Deposed.into()))));
        }
    }

    fn should_stand_in(&self) -> bool {
        self.recovery.rows_invalid()
            && self.recovery.log_is_whole(&self.consensus, &self.membership)
            && self.stand_in.should_stand(&self.consensus, self.ticks)
    }

    /// A leader without rows hands over to a replica with rows and the whole log, if there is one.
    fn hand_over_without_rows(&mut self) {
        let is_transferring = self.consensus.raft().lead_transferee.is_some();
        if !self.recovery.rows_invalid() || !self.consensus.is_leader() || is_transferring {
            return;
        }
        if let Some(to) = stand_in_leader::successor(&self.consensus, |peer| self.lacks_rows(peer)) {
            let group = self.consensus.id.0;
            tracing::info!(group, to, "a leader without rows hands over to a replica with rows");
            self.consensus.node.transfer_leader(to);
        }
    }

    /// Delays all acknowledgements of entries in the log until this append is durable.
    pub fn hold_back_until(&mut self, append: u64) {
        self.persistence.hold_back_until(append);
    }

    /// Entries have left the store.
    pub fn compact(&mut self, compacted: &Compacted) {
        self.consensus.node.mut_store().compact(compacted.index, compacted.proposed);
    }

    /// The owner begins to replace the rows, which are invalid until it has finished. Returns whether they were valid.
    pub fn begin_restore(&mut self) -> bool {
        self.recovery.begin_restore()
    }

    /// The term in which this replica takes proposals, if it does.
    pub fn leads(&self) -> Option<Term> {
        self.leadership.leads(&self.consensus)
    }

    /// The leader of the current term, if known.
    pub fn leader(&self) -> Option<PeerId> {
        self.consensus.leader()
    }

    /// The term in which this replica was elected, whether or not it takes proposals yet.
    #[cfg(test)]
    pub fn elected(&self) -> Option<Term> {
        self.consensus.is_leader().then_some(Term(self.consensus.term()))
    }

    /// The role that was last reported.
    pub fn role(&self) -> Role {
        self.leadership.role()
    }

    /// The role, if it has changed since the last report.
    pub fn take_changed_role(&mut self) -> Option<Role> {
        let (applied, rows_invalid) = (self.entries.applied, self.recovery.rows_invalid());
        self.leadership.take_changed_role(&self.consensus, applied, rows_invalid)
    }

    /// The voters, if the members have changed since the last call, and on the first call.
    pub fn take_changed_voters(&mut self) -> Option<Vec<PeerId>> {
        self.membership.take_changed_voters(self.consensus.members())
    }

    /// Whether the rows have become invalid since the last call.
    pub fn take_invalid_report(&mut self) -> bool {
        self.recovery.take_invalid_report()
    }

    pub fn is_removed(&self) -> bool {
        self.membership.removed
    }

    /// The peer id of this replica.
    pub fn own(&self) -> PeerId {
        PeerId(self.consensus.own)
    }

    /// Whether this replica is the only voter.
    pub fn is_single_voter(&self) -> bool {
        self.consensus.is_single_voter()
    }

    /// Whether the group needs no ticks.
    pub fn is_quiesced(&self) -> bool {
        // A single voter that does not lead yet needs ticks to elect itself.
        let leads_alone = self.consensus.is_leader() && self.consensus.is_single_replica();
        self.quiescence.is_quiesced() || (leads_alone && self.proposals.are_certain())
    }

    /// Whether no proposal is on its way and everything is applied.
    pub fn is_idle(&self) -> bool {
        self.proposals.is_idle() && self.entries.are_applied()
    }

    /// The last position that is applied, and durable in the log.
    pub fn settled(&self) -> u64 {
        match self.recovery.rows_invalid() {
            true => self.consensus.outline().start(),
            false => self.entries.applied.min(self.consensus.durable()),
        }
    }

    /// The position after which another replica may need entries of this log; `None` if there is no other replica. Only a
    /// leader knows which entries the others have.
    pub fn needed_after(&self) -> Option<u64> {
        let matched = self.consensus.other_members().map(|peer| self.consensus.matched(peer));
        matched.min().map(|matched| if self.consensus.is_leader() { matched } else { 0 })
    }

    /// Whether another replica needs a copy of the rows. None does in a quiesced group, whose clock stands still.
    fn lacks_rows(&self, peer: u64) -> bool {
        !self.is_quiesced() && self.replication.lacks_rows(&self.consensus, peer, self.ticks)
    }

    pub fn status(&self) -> GroupStatus {
        let (outline, is_leader) = (self.consensus.outline(), self.consensus.is_leader());
        let peers = self.replication.statuses(&self.consensus, self.is_quiesced(), self.ticks);
        GroupStatus {
            own: self.own(),
            role: self.role(),
            start: Lsn(outline.start()),
            last: Lsn(outline.last()),
            last_term: Term(outline.last_term()),
            committed: Lsn(self.consensus.committed()),
            durable: Lsn(self.consensus.durable()),
            applied: Lsn(self.entries.applied),
            needs_rows: self.recovery.rows_invalid(),
            members: outline.members.clone(),
            members_durable: is_leader && self.membership.is_durable_on_quorum(&self.consensus),
            peers,
        }
    }

    /// Answers all callers: their outcome is unknown, or nothing was written for them.
    pub fn abandon(&mut self, cause: &Interruption) {
        for done in self.proposals.drain_incoming() {
            done(Err(Refusal::Stopped.into()));
        }
        let (uncertain, syncs) = (self.proposals.drain_uncertain(), self.proposals.drain_syncs());
        let held = self.entries.tail.take_done();
        for done in held.chain(uncertain).chain(syncs).chain(self.membership.drain()) {
            done(Err(cause.clone().into()));
        }
        for done in self.reads.drain() {
            done(Err(Refusal::Stopped.into()));
        }
        for done in self.log_bases.drain() {
            done(Err(Refusal::Stopped.into()));
        }
    }

    /// Answers proposers before anything is written: a fault that the crash harness must find.
    #[cfg(feature = "ack-before-append")]
    pub fn answer_early(&mut self, effects: &mut Effects) {
        for index in self.entries.applied + 1..=self.entries.tail.last() {
            if let Some(done) = self.entries.tail.get_mut(index).and_then(|held| held.done.take()) {
                effects.answers.done.push((done, Ok(Lsn(index))));
            }
        }
    }
}
