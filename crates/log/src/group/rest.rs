//! Time passing in a group, and groups in which nothing happens: those need no heartbeats.
//!
//! A leader that has had nothing to do for a while, and whose followers have everything, offers them
//! a rest. When all have taken it no clock ticks in the group, on any node: the link between two
//! nodes says whether both are alive. Any message but these, a proposal, or a silent node ends it.

use std::collections::BTreeSet;

use raft::StateRole;
use raft::eraftpb::MessageType;

use super::{ELECTION_TICKS, Group};
use crate::error::LogError;
use crate::member::PeerId;
use crate::message::Content;
use crate::store::Store;
use crate::turn::{Effects, Turn};

/// A leader offers a rest after so many ticks without anything to do.
const QUIET_TICKS: u32 = 20;

/// Whether a group rests.
#[derive(Default)]
pub(super) struct Rest {
    asleep: bool,
    quiet_ticks: u32,
    // Who has taken the rest that was offered last.
    taken: BTreeSet<u64>,
    // Voters whose nodes went silent since it began.
    silent: BTreeSet<PeerId>,
}

impl Group {
    /// Whether the group needs no ticks.
    pub fn is_asleep(&self) -> bool {
        // One who is left alone by a leader that went must still elect itself.
        let leads = self.node.raft.state == StateRole::Leader;
        self.rest.asleep || (leads && self.is_solitary() && self.limbo.is_empty())
    }

    /// Ends a rest. The leader is given as long as after a heartbeat.
    pub fn wake(&mut self) {
        self.rest.quiet_ticks = 0;
        self.rest.taken.clear();
        self.rest.silent.clear();
        if std::mem::take(&mut self.rest.asleep) {
            self.node.raft.election_elapsed = 0;
        }
    }

    /// The nodes of `peers` do not answer. Whether that concerns this group: its leader is one, or it is led from here
    /// and of its voters no majority is left that is heard of. Who has a majority leads on and need not be disturbed.
    pub fn silent(&mut self, peers: &BTreeSet<PeerId>) -> bool {
        if !self.rest.asleep {
            return false;
        }
        let members = &self.node.store().members;
        self.rest.silent.extend(members.voters.iter().filter(|voter| peers.contains(voter)));
        let heard = members.voters.len() - self.rest.silent.len();
        let concerned = match self.node.raft.state {
            StateRole::Leader => heard * 2 <= members.voters.len(),
            _ => self.leader().is_some_and(|leader| peers.contains(&leader)),
        };
        if concerned {
            self.wake();
        }
        concerned
    }

    /// The nodes of `peers` answer again: they may have started anew.
    pub fn back(&mut self, peers: &BTreeSet<PeerId>) -> bool {
        let members = self.members();
        let concerned = self.rest.asleep && peers.iter().any(|peer| members.contains(*peer));
        if concerned {
            self.wake();
        }
        concerned
    }

    /// Messages end a rest, but for those about resting, and answers that come late.
    pub(super) fn disturb(&mut self, content: &Content) {
        let is_answer =
            |kind| matches!(kind, MessageType::MsgHeartbeatResponse | MessageType::MsgAppendResponse);
        let disturbs = match content {
            Content::Rest { .. } | Content::Resting { .. } | Content::Received { .. } => false,
            Content::Consensus { message, .. } => !is_answer(message.get_msg_type()),
            Content::NeedsRows { .. } | Content::Lost { .. } | Content::Gone => true,
        };
        if disturbs {
            self.wake();
        }
    }

    /// Lets one tick pass.
    pub fn tick<S: Store>(&mut self, turn: &mut Turn<'_, S>) -> Result<(), LogError> {
        self.ticks += 1;
        self.answer_deposed(turn.effects);
        self.answer_origins_ahead(turn)?;
        let raft = &mut self.node.raft;
        raft.set_randomized_election_timeout(self.election_ticks);
        let stands = raft.state != StateRole::Leader && raft.election_elapsed + 1 >= self.election_ticks;
        self.note_unled(stands);
        let stands_in = stands && self.stands_without_rows();
        if stands && !self.may_stand() && !stands_in {
            // Votes for others all the same, so its leader may not seem alive for ever.
            self.node.raft.election_elapsed = ELECTION_TICKS;
            return self.save(turn);
        }
        if stands_in {
            tracing::info!(
                group = self.id.0,
                "nobody with rows is elected: a replica with the log alone stands"
            );
        }
        self.node.tick();
        if stands {
            self.draw_election_timeout(turn);
        }
        self.hand_over_without_rows();
        self.save(turn)?;
        self.offer_rest(turn.effects);
        Ok(())
    }

    /// When this replica stands for election, if no leader is heard of: drawn from the injected
    /// chance, not by consensus itself, so that a simulation can repeat it.
    pub(super) fn draw_election_timeout<S>(&mut self, turn: &Turn<'_, S>) {
        let more = turn.random.next_u64() % ELECTION_TICKS as u64;
        self.election_ticks = ELECTION_TICKS + more as usize;
        self.node.raft.set_randomized_election_timeout(self.election_ticks);
    }

    fn offer_rest(&mut self, effects: &mut Effects) {
        if !self.may_rest() {
            self.rest.quiet_ticks = 0;
            return;
        }
        self.rest.quiet_ticks += 1;
        if self.rest.quiet_ticks.is_multiple_of(QUIET_TICKS) {
            self.rest.taken.clear();
            let (term, index) = (self.node.raft.term, self.committed());
            let content = Content::Rest { term, index };
            let members = self.members();
            for peer in members.voters.iter().chain(&members.learners) {
                if peer.0 != self.own {
                    self.send(peer.0, &content, effects);
                }
            }
        }
    }

    /// Whether a leader's group has nothing to do, and everybody has everything.
    fn may_rest(&self) -> bool {
        let (raft, last) = (&self.node.raft, self.node.store().last());
        self.leads().is_some()
            && self.is_idle()
            && self.limbo.is_empty()
            && !self.is_unsynced()
            && self.reading.is_empty()
            && self.origins.is_empty()
            && raft.lead_transferee.is_none()
            && raft.raft_log.committed == last
            && raft
                .prs()
                .iter()
                .all(|(_, progress)| progress.matched == last && progress.committed_index >= last)
    }

    /// A leader offers a rest: taken if nothing is missing here, and nobody waits for what time will tell.
    pub(super) fn rest_with(&mut self, leader: PeerId, term: u64, index: u64, effects: &mut Effects) {
        let raft = &self.node.raft;
        let follows = raft.term == term && raft.leader_id == leader.0 && raft.state == StateRole::Follower;
        let whole = raft.raft_log.committed == index && self.node.store().last() == index;
        let awaits = self.is_unsynced() || !self.limbo.is_empty();
        if follows && whole && self.applied == index && !awaits && !self.void {
            self.rest.asleep = true;
            self.send(leader.0, &Content::Resting { term, index }, effects);
        }
    }

    /// A follower has taken the rest that was offered.
    pub(super) fn rests(&mut self, follower: PeerId, index: u64) {
        if index != self.node.store().last() || !self.may_rest() {
            return;
        }
        self.rest.taken.insert(follower.0);
        let members = self.members();
        let mut others = members.voters.iter().chain(&members.learners).filter(|peer| peer.0 != self.own);
        if others.all(|peer| self.rest.taken.contains(&peer.0)) {
            self.rest.asleep = true;
        }
    }
}
