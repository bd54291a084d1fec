//! Sealing a group and opening it again, as its leader proposes it. See `seal` and docs/formats/entry.md.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use log::{Acks, Durability, Refusal, Term};

use crate::entry::EntryWriter;
use crate::proposal::Proposal;
use crate::replica::incarnation;
use crate::shard::Shard;
use crate::{SealState, WriteRefusal, WriteTicket};

impl Shard {
    /// Whether the group is sealed, as far as it was applied here.
    #[must_use]
    pub fn seal_state(&self) -> SealState {
        self.context.replica.seal_state()
    }

    /// Whether the group is sealed, or this replica has proposed that and the end is open.
    #[must_use]
    pub fn is_sealed_or_sealing(&self) -> bool {
        // First what is on its way: it is applied before it is forgotten.
        let proposed_seal = self.seals.proposed_seal();
        let seal_state = self.seal_state();
        // A later mark makes nothing of what is on its way.
        seal_state.is_sealed() || proposed_seal.is_some_and(|seal| seal > seal_state)
    }

    /// Nothing came of a seal that was proposed here: the log refused it, or the group has a later mark.
    pub fn abandon_seal(&self, seal_state: SealState) {
        self.seals.end(seal_state);
        self.tell_acks();
    }

    /// Takes no more writes, because the group is about to be sealed: [`Shard::set_seal_state`] is next, and comes
    /// behind every write of this replica then. Whoever writes is told what he is told of a sealed group.
    pub fn block_writes(&self, seal_state: SealState) {
        self.seals.block_writes(seal_state);
        // A writer that looked before is past its proposal when its latch is free.
        self.wait_for_writers();
    }

    /// Forgets a seal that was proposed here in an earlier term: if the log has it, it is applied.
    pub fn abandon_seal_of_earlier_term(&self) {
        if let Some(seal_state) = self.seals.proposed_seal()
            && self.seals.term() != self.context.replica.leadership().term
        {
            self.abandon_seal(seal_state);
        }
    }

    /// Seals the group, or opens it again: the greatest mark counts that was ever set. Once a seal is
    /// applied, no entry after it has an effect, on any replica; writes and linearizable reads are
    /// answered with [`WriteRefusal::Retired`]. The ticket resolves when a majority has the entry, whatever
    /// writes of this shard wait for.
    pub fn set_seal_state(&self, seal_state: SealState) -> WriteTicket {
        let leadership = self.context.replica.leadership();
        if leadership.term == Term(0) {
            let refusal: WriteRefusal = Refusal::NotLeader { leader: leadership.leader }.into();
            return WriteTicket::known(Err(refusal.into()));
        }
        self.seals.begin(seal_state, leadership.term);
        self.tell_acks();
        let sequence = self.sequence_last.fetch_add(1, Ordering::Relaxed) + 1;
        let entry = EntryWriter::seal(incarnation(leadership.term), sequence, seal_state);
        let (proposal, ticket) = Proposal::new(Arc::clone(&self.context), Vec::new(), sequence);
        self.log.propose_in(self.group(), Some(leadership.term), entry, Durability::Hard, proposal.done());
        proposal.release_latches();
        ticket
    }

    /// How many replicas a write waits for from now on, while this one leads.
    pub fn set_acks(&self, acks: Acks) {
        let one = acks == Acks::One;
        // Telling the log ends a rest of the group: only what is new is told.
        if self.seals.acks_one.swap(one, Ordering::AcqRel) != one {
            self.tell_acks();
        }
    }

    fn tell_acks(&self) {
        let one = self.seals.acks_one.load(Ordering::Acquire) && self.seals.proposed_seal().is_none();
        self.log.set_acks(self.group(), if one { Acks::One } else { Acks::Majority });
    }
}
