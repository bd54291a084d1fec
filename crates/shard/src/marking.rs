//! Sealing a group and opening it again, as its leader proposes it. See `seal` and docs/formats/entry.md.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use log::{Acks, Durability, Refusal, Term};

use crate::entry::EntryWriter;
use crate::proposal::Proposal;
use crate::replica::incarnation;
use crate::shard::Shard;
use crate::{SealMark, WriteRefusal, WriteTicket};

impl Shard {
    /// Whether the group is sealed, as far as it was applied here.
    #[must_use]
    pub fn mark(&self) -> SealMark {
        self.answers.replica.mark()
    }

    /// Whether the group is sealed, or this replica has proposed that and the end is open.
    #[must_use]
    pub fn is_being_sealed(&self) -> bool {
        // First what is on its way: it is applied before it is forgotten.
        let on_its_way = self.marking.on_its_way();
        let mark = self.mark();
        // A later mark makes nothing of what is on its way.
        mark.is_sealed() || on_its_way.is_some_and(|seal| seal > mark)
    }

    /// Nothing came of a seal that was proposed here: the log refused it, or the group has a later mark.
    pub fn end_sealing(&self, mark: SealMark) {
        self.marking.end(mark);
        self.tell_acks();
    }

    /// Takes no more writes, because the group is about to be sealed: [`Shard::set_mark`] is next, and comes
    /// behind every write of this replica then. Whoever writes is told what he is told of a sealed group.
    pub fn hold_back(&self, mark: SealMark) {
        self.marking.hold_back(mark);
        // A writer that looked before is past its proposal when its latch is free.
        self.wait_for_writers();
    }

    /// Forgets a seal that was proposed here in an earlier term: if the log has it, it is applied.
    pub fn forget_sealing_of_before(&self) {
        if let Some(mark) = self.marking.on_its_way()
            && self.marking.term() != self.answers.replica.office().term
        {
            self.end_sealing(mark);
        }
    }

    /// Seals the group, or opens it again: the greatest mark counts that was ever set. Once a seal is
    /// applied, no entry after it has an effect, on any replica; writes and linearizable reads are
    /// answered with [`WriteRefusal::Retired`]. The ticket resolves when a majority has the entry, whatever
    /// writes of this shard wait for.
    pub fn set_mark(&self, mark: SealMark) -> WriteTicket {
        let office = self.answers.replica.office();
        if office.term == Term(0) {
            let refusal: WriteRefusal = Refusal::NotLeader { leader: office.leader }.into();
            return WriteTicket::known(Err(refusal.into()));
        }
        self.marking.begin(mark, office.term);
        self.tell_acks();
        let sequence = self.sequence_last.fetch_add(1, Ordering::Relaxed) + 1;
        let entry = EntryWriter::seal(incarnation(office.term), sequence, mark);
        let (proposal, ticket) = Proposal::new(Arc::clone(&self.answers), Vec::new(), sequence);
        self.log.propose_in(self.group(), Some(office.term), entry, Durability::Hard, proposal.done());
        proposal.let_go();
        ticket
    }

    /// How many replicas a write waits for from now on, while this one leads.
    pub fn set_acks(&self, acks: Acks) {
        let one = acks == Acks::One;
        // Telling the log ends a rest of the group: only what is new is told.
        if self.marking.acks_one.swap(one, Ordering::AcqRel) != one {
            self.tell_acks();
        }
    }

    fn tell_acks(&self) {
        let one = self.marking.acks_one.load(Ordering::Acquire) && self.marking.on_its_way().is_none();
        self.log.set_acks(self.group(), if one { Acks::One } else { Acks::Majority });
    }
}
