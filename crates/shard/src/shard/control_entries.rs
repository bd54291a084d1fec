//! Entries without rows that the leader of a group proposes: seals, openings, and switches of the history. See `seal`,
//! `history` and docs/formats/entry.md.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use log::{Acks, Durability, Refusal, Term};
use storage::ReadError;

use super::Shard;
use crate::entry::EntryWriter;
use crate::history::position_in;
use crate::history_position::HistoryPosition;
use crate::proposal::Proposal;
use crate::replica::incarnation;
use crate::{SealState, WriteRefusal, WriteTicket};

impl Shard {
    /// Whether the group is sealed, or this replica has proposed a seal with an unknown outcome.
    #[must_use]
    pub fn is_sealed_or_sealing(&self) -> bool {
        // The proposed seal is read first: a seal is applied before its proposal is forgotten.
        let proposed_seal = self.seals.proposed_seal();
        let seal_state = self.seal_state();
        // A later state cancels the proposed seal.
        seal_state.is_sealed() || proposed_seal.is_some_and(|seal| seal > seal_state)
    }

    /// Forgets a seal that was proposed here and failed: the log refused it, or the group has a later state.
    pub fn abandon_seal(&self, seal_state: SealState) {
        self.seals.end(seal_state);
        self.send_acks();
    }

    /// Blocks writes because the group is about to be sealed. [`Shard::set_seal_state`] follows, and its entry comes
    /// after every write of this replica. Writers get the same error as for a sealed group.
    pub fn block_writes(&self, seal_state: SealState) {
        self.seals.block_writes(seal_state);
        // A writer that checked before this has proposed its write when its latch is free.
        self.wait_for_writers();
    }

    /// Forgets a seal that was proposed here in an earlier term. If the log has it, it will be applied.
    pub fn abandon_seal_of_earlier_term(&self) {
        if let Some(seal_state) = self.seals.proposed_seal()
            && self.seals.term() != self.context.replica.leadership().term
        {
            self.abandon_seal(seal_state);
        }
    }

    /// Seals the group, or opens it again. The greatest state ever set wins. Once a seal is applied, no later entry has
    /// an effect, on any replica; writes and linearizable reads fail with [`WriteRefusal::Retired`]. The ticket
    /// resolves when a quorum has the entry, regardless of the acknowledgements that writes of this shard wait for.
    pub fn set_seal_state(&self, seal_state: SealState) -> WriteTicket {
        let leadership = self.context.replica.leadership();
        if leadership.term == Term(0) {
            let refusal: WriteRefusal = Refusal::NotLeader { leader: leadership.leader }.into();
            return WriteTicket::known(Err(refusal.into()));
        }
        self.seals.begin(seal_state, leadership.term);
        self.send_acks();
        let sequence = self.sequence_last.fetch_add(1, Ordering::Relaxed) + 1;
        let entry = EntryWriter::seal(incarnation(leadership.term), sequence, seal_state);
        let (proposal, ticket) = Proposal::new(Arc::clone(&self.context), Vec::new(), sequence);
        self.log.propose_in(self.group(), Some(leadership.term), entry, Durability::Hard, proposal.done());
        proposal.release_latches();
        ticket
    }

    /// Sets how many replicas a write waits for while this replica leads.
    pub fn set_acks(&self, acks: Acks) {
        let one = acks == Acks::One;
        // Only changes are passed on, since the call wakes a quiesced group.
        if self.seals.acks_one.swap(one, Ordering::AcqRel) != one {
            self.send_acks();
        }
    }

    fn send_acks(&self) {
        let one = self.seals.acks_one.load(Ordering::Acquire) && self.seals.proposed_seal().is_none();
        self.log.set_acks(self.group(), if one { Acks::One } else { Acks::Majority });
    }

    /// Whether the history is on, as far as it is applied here.
    #[must_use]
    pub fn has_history(&self) -> bool {
        self.context.replica.has_history()
    }

    /// The end of the history that is applied here; `None` while it is off.
    #[must_use]
    pub fn history_end(&self) -> Option<HistoryPosition> {
        self.context.replica.history()
    }

    /// The end of the history up to which reads show rows; `None` while it is off. For a moment it is after
    /// [`Shard::history_end`]: the rows of an entry can be read before the entry counts as applied. One lookup in the engine.
    pub fn shown_history_end(&self) -> Result<Option<HistoryPosition>, ReadError> {
        position_in(self.table.applied(self.group())?, self.group())
    }

    /// Switches the history on: from the position at which the ticket resolves, every applied entry is in the history of
    /// every replica. Only on the leader.
    pub fn switch_history_on(&self) -> WriteTicket {
        self.history_switch.begin();
        // A writer that looked before this has proposed its entry when its latch is free.
        self.wait_for_writers();
        self.propose_history(true)
    }

    /// Switches the history off. Only on the leader.
    pub fn switch_history_off(&self) -> WriteTicket {
        self.propose_history(false)
    }

    fn propose_history(&self, is_on: bool) -> WriteTicket {
        let leadership = self.context.replica.leadership();
        if leadership.term == Term(0) {
            let refusal: WriteRefusal = Refusal::NotLeader { leader: leadership.leader }.into();
            return WriteTicket::known(Err(refusal.into()));
        }
        let sequence = self.sequence_last.fetch_add(1, Ordering::Relaxed) + 1;
        let entry = EntryWriter::history(incarnation(leadership.term), sequence, is_on);
        let (proposal, ticket) = Proposal::new(Arc::clone(&self.context), Vec::new(), sequence);
        self.log.propose_in(self.group(), Some(leadership.term), entry, Durability::Hard, proposal.done());
        proposal.release_latches();
        ticket
    }
}
