//! Roles, and what is asked of leaders: reads, handing over.

use std::collections::VecDeque;

use raft::{ReadState, StateRole};

use super::Group;
use crate::contract::Done;
use crate::error::{Interruption, Refusal};
use crate::lsn::{Lsn, Term};
use crate::member::{GroupStatus, PeerId, PeerStatus, Role};
use crate::store::Store;
use crate::turn::{Answers, Effects, Turn};

/// So long those who wait for an old leader's entries are kept waiting, in ticks.
const DEPOSED_TICKS: u64 = 50;
/// A replica that needs a copy is told of at most once in so many ticks.
const WANTED_TICKS: u64 = 20;

/// Somebody whose entry was overwritten here. It may still be in other replicas' logs.
pub(super) struct Limbo {
    pub index: u64,
    pub term: u64,
    pub done: Done,
}

/// Linearizable reads on their way.
#[derive(Default)]
pub(super) struct Reading {
    waiting: Vec<Done>,
    // Asked together under a number, at an applied position.
    asked: VecDeque<(u64, u64, Vec<Done>)>,
    confirmed: Vec<(u64, Vec<Done>)>,
    asked_last: u64,
}

impl Reading {
    /// A majority has confirmed the leader since the reads of this number were asked.
    pub fn confirmed(&mut self, state: &ReadState) {
        let Some(number) = state.request_ctx.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)) else {
            return;
        };
        while self.asked.front().is_some_and(|(asked, ..)| *asked <= number) {
            if let Some((_, applied, reads)) = self.asked.pop_front() {
                self.confirmed.push((applied.max(state.index), reads));
            }
        }
    }

    /// Answers those whose position is applied.
    pub fn answer(&mut self, applied: u64, answers: &mut Answers) {
        for (position, reads) in self.confirmed.extract_if(.., |(position, _)| *position <= applied) {
            answers.done.extend(reads.into_iter().map(|done| (done, Ok(Lsn(position)))));
        }
    }

    /// Everyone who waits; they wait no more.
    pub fn drain(&mut self) -> Vec<Done> {
        let asked = self.asked.drain(..).flat_map(|(_, _, reads)| reads);
        let confirmed = self.confirmed.drain(..).flat_map(|(_, reads)| reads);
        self.waiting.drain(..).chain(asked).chain(confirmed).collect()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.asked.is_empty() && self.confirmed.is_empty()
    }
}

impl Group {
    /// The term in which this replica takes proposals, if it does.
    pub fn leads(&self) -> Option<Term> {
        let raft = &self.node.raft;
        match self.role {
            Role::Leader { term } if raft.state == StateRole::Leader && raft.term == term.0 => Some(term),
            _ => None,
        }
    }

    /// The term in which this replica was elected, whether or not it takes proposals yet.
    #[cfg(test)]
    pub fn elected(&self) -> Option<Term> {
        let raft = &self.node.raft;
        (raft.state == StateRole::Leader).then_some(Term(raft.term))
    }

    /// Who leads, as far as is known.
    pub fn leader(&self) -> Option<PeerId> {
        Some(PeerId(self.node.raft.leader_id)).filter(|leader| *leader != PeerId(0))
    }

    /// The role, if it has changed.
    pub fn changed_role(&mut self) -> Option<Role> {
        let raft = &self.node.raft;
        let term = Term(raft.term);
        let whole = self.applied >= self.lead_from && (self.is_alone() || self.committed() >= self.lead_from);
        let role = match raft.state {
            StateRole::Leader if whole && !self.void => Role::Leader { term },
            StateRole::Leader => Role::Follower { term, leader: None },
            _ => Role::Follower { term, leader: self.leader() },
        };
        (role != self.role).then(|| {
            self.role = role;
            role
        })
    }

    /// Those who vote, if that has changed since it was asked, or was not asked yet.
    pub fn changed_voters(&mut self) -> Option<Vec<PeerId>> {
        let members = &self.node.store().members;
        let is_new = self.told_members != Some(members.at);
        self.told_members = Some(members.at);
        is_new.then(|| members.voters.clone())
    }

    /// The role that was last told.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Whether the rows are void; whether this is the first time it is asked since they are.
    pub fn needs_rows(&mut self) -> bool {
        self.void && !std::mem::replace(&mut self.told_void, true)
    }

    /// The owner is about to replace the rows: until then they are void. Whether they were not.
    pub fn expect_rows(&mut self) -> bool {
        self.told_void = true;
        !std::mem::replace(&mut self.void, true)
    }

    /// Whether this replica was removed.
    pub fn is_removed(&self) -> bool {
        self.removed
    }

    /// Looks whether consensus has changed its state, and does what goes with that.
    pub(super) fn note_state<S: Store>(&mut self, turn: &mut Turn<'_, S>) {
        let raft = &self.node.raft;
        let now = (raft.term, raft.state, raft.leader_id);
        let before = std::mem::replace(&mut self.seen, now);
        if (before.0, before.1) == (now.0, now.1) {
            return;
        }
        self.wake();
        self.draw_election_timeout(turn);
        if before.0 != now.0 {
            // What an earlier leader's majority had written may be overwritten now.
            self.soft = self.applied;
            self.told = (0, 0);
        }
        if now.1 == StateRole::Leader {
            turn.effects.elected += 1;
            self.lead_from = self.node.store().last() + 1;
            self.fellows.clear();
            if self.limbo.is_empty() {
                self.deposed_at = None;
            }
        } else if before.1 == StateRole::Leader {
            let was_removed = self.members().removed.contains(&PeerId(self.own));
            if before.0 == now.0 && !was_removed {
                tracing::debug!(group = self.id.0, "no majority answers: this replica ceases to lead");
            }
            turn.effects.deposed += 1;
            self.deposed_at = Some(self.ticks);
            let leader = self.leader();
            let syncs = self.syncs.drain(..).map(|(_, done)| done);
            for done in self.reading.drain().into_iter().chain(syncs) {
                turn.effects.answers.done.push((done, Err(Refusal::NotLeader { leader }.into())));
            }
            for done in self.origins.drain() {
                done(Err(Refusal::NotLeader { leader }.into()));
            }
        }
    }

    /// A leader that lost its office long ago can no longer say what became of its entries. Elected again
    /// since, it can of those that its log has.
    pub(super) fn answer_deposed(&mut self, effects: &mut Effects) {
        if self.deposed_at.is_some_and(|since| self.ticks >= since + DEPOSED_TICKS) {
            self.deposed_at = None;
            let limbo = self.limbo.drain(..).map(|limbo| limbo.done);
            let leads = self.node.raft.state == StateRole::Leader;
            let held = (!leads).then(|| self.tail.take_done());
            let waiting = held.into_iter().flatten().chain(limbo);
            effects.answers.done.extend(waiting.map(|done| (done, Err(Interruption::Deposed.into()))));
        }
    }

    /// Takes a wish to know what a linearizable read must have applied; whether it is the first that
    /// waits.
    pub fn propose_read(&mut self, done: Done) -> bool {
        self.reading.waiting.push(done);
        self.reading.waiting.len() == 1
    }

    /// Asks a majority whether this is still the leader, once for all reads that wait.
    pub(super) fn ask_for_reads(&mut self) {
        let reads = std::mem::take(&mut self.reading.waiting);
        if reads.is_empty() {
            return;
        }
        #[cfg(any(test, feature = "mutants"))]
        if crate::mutant::is_active(crate::mutant::Mutant::SkipReadIndex) {
            return self.reading.confirmed.push((self.applied, reads));
        }
        if self.is_alone() {
            return self.reading.confirmed.push((self.applied, reads));
        }
        self.reading.asked_last += 1;
        self.reading.asked.push_back((self.reading.asked_last, self.applied, reads));
        self.node.read_index(self.reading.asked_last.to_le_bytes().to_vec());
    }

    /// Hands leadership over.
    pub fn transfer(&mut self, to: PeerId) {
        if self.node.raft.state == StateRole::Leader && self.members().voters.contains(&to) {
            self.node.transfer_leader(to.0);
        }
    }

    /// Stands for election, unless a leader is known to be alive.
    pub fn campaign(&mut self) {
        let raft = &self.node.raft;
        let led = raft.leader_id != 0 && raft.election_elapsed < raft.election_timeout();
        // Who stands already stands again: not all may have heard it.
        let may_stand = matches!(raft.state, StateRole::Follower | StateRole::PreCandidate);
        if may_stand && raft.promotable() && !led && self.may_stand() {
            // Fails only if it leads already.
            drop(self.node.campaign());
        }
    }

    /// Whether this replica may be elected and take office: its rows are good, and its log is whole.
    pub(super) fn may_stand(&self) -> bool {
        !self.void && self.log_is_whole()
    }

    /// Whether the log is on the disk, and has all that this replica, which is a member still, acknowledged.
    pub(super) fn log_is_whole(&self) -> bool {
        let log = &self.node.raft.raft_log;
        !self.removed && self.lost.is_none() && log.persisted == log.last_index()
    }

    /// Remembers that a replica needs a copy of the rows, now and then. None comes from here while there are none.
    pub(super) fn want_copy(&mut self, peer: u64, effects: &mut Effects) {
        let told = self.wanted_at.get(&peer);
        let due = told.is_none_or(|told| self.ticks >= told + WANTED_TICKS);
        if due && !self.void && self.node.raft.state == StateRole::Leader {
            self.wanted_at.insert(peer, self.ticks);
            effects.wanted.push((self.id, PeerId(peer)));
        }
    }

    /// Whether another replica needs a copy of the rows: it said lately that its own are void, or what it lacks is
    /// no longer in the log here. Nobody does where all have taken a rest, in which no time passes.
    pub(super) fn lacks_rows(&self, peer: u64) -> bool {
        let is_void = || self.fellows.get(&peer).is_some_and(|flight| flight.is_void(self.ticks));
        let matched = self.node.raft.prs().get(peer).map_or(0, |progress| progress.matched);
        !self.is_asleep() && (matched < self.node.store().start() || is_void())
    }

    /// The state of the group.
    pub fn status(&self) -> GroupStatus {
        let raft = &self.node.raft;
        let leads = raft.state == StateRole::Leader;
        let others = raft.prs().iter().filter(|(peer, _)| leads && **peer != self.own);
        // Nobody is asked in a group that rests; a server that goes silent is known by its link.
        let rests = self.is_asleep();
        let mut peers: Vec<_> = others
            .map(|(peer, progress)| PeerStatus {
                peer: PeerId(*peer),
                matched: Lsn(progress.matched),
                active: rests || progress.recent_active,
                needs_rows: self.lacks_rows(*peer),
            })
            .collect();
        peers.sort_unstable_by_key(|status| status.peer);
        GroupStatus {
            own: PeerId(self.own),
            role: self.role,
            start: Lsn(self.node.store().start()),
            last: Lsn(self.node.store().last()),
            last_term: Term(self.node.store().last_term()),
            committed: Lsn(self.committed()),
            durable: Lsn(self.durable()),
            applied: Lsn(self.applied),
            needs_rows: self.void,
            members: self.members().clone(),
            members_durable: leads && self.members_durable(),
            peers,
        }
    }
}
