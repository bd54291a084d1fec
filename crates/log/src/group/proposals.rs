//! Proposals of one group, from their arrival until their outcome is known.

use std::collections::VecDeque;

use super::consensus::Consensus;
use crate::contract::Done;
use crate::error::{Interruption, Refusal};
use crate::lsn::Lsn;
use crate::outline::Outline;
use crate::step::{Answers, PendingEntry};
use crate::tail::Held;

/// A caller that waits until everything up to `to` is durable and applied.
struct SyncWaiter {
    to: u64,
    done: Done,
}

/// A proposal whose entry was overwritten in the local log. Another replica may still have the entry, so the outcome is
/// uncertain.
struct Uncertain {
    index: u64,
    term: u64,
    done: Done,
}

/// Proposals that wait for a position or for their outcome. Entries with a position are in the
/// [`Tail`](crate::tail::Tail).
#[derive(Default)]
pub(super) struct Proposals {
    /// Not given to consensus yet.
    incoming: Vec<PendingEntry>,
    incoming_bytes: usize,
    /// Given to consensus, which has not returned them as entries yet.
    ordering: VecDeque<PendingEntry>,
    syncs: Vec<SyncWaiter>,
    uncertain: Vec<Uncertain>,
}

impl Proposals {
    /// Adds a proposal; returns whether it is the first that waits to be ordered.
    pub fn push(&mut self, pending: PendingEntry) -> bool {
        self.incoming_bytes += pending.entry.len();
        self.incoming.push(pending);
        self.incoming.len() == 1
    }

    /// Bytes of the proposals that wait to be ordered.
    pub fn incoming_bytes(&self) -> usize {
        self.incoming_bytes
    }

    /// Whether no proposal waits to be ordered and no sync is pending.
    pub fn is_idle(&self) -> bool {
        self.incoming.is_empty() && self.syncs.is_empty()
    }

    /// Adds a sync of everything proposed so far to a log that ends at `last`.
    pub fn push_sync(&mut self, last: u64, done: Done) {
        self.syncs.push(SyncWaiter { to: last + self.incoming.len() as u64, done });
    }

    /// Answers syncs up to position `reached`.
    pub fn answer_syncs(&mut self, reached: u64, answers: &mut Answers) {
        for SyncWaiter { to, done } in self.syncs.extract_if(.., |sync| sync.to <= reached) {
            answers.done.push((done, Ok(Lsn(to))));
        }
    }

    /// Syncs after position `last` wait for `more` entries that were ordered ahead of the incoming ones.
    pub fn postpone_syncs(&mut self, last: u64, more: u64) {
        self.syncs.iter_mut().filter(|sync| sync.to > last).for_each(|sync| sync.to += more);
    }

    /// Moves the incoming proposals to the ones given to consensus; returns their number.
    pub fn begin_ordering(&mut self) -> usize {
        let count = self.incoming.len();
        self.ordering.extend(self.incoming.drain(..));
        self.incoming_bytes = 0;
        count
    }

    /// Adds one proposal to the ones given to consensus.
    pub fn order_now(&mut self, pending: PendingEntry) {
        self.ordering.push_back(pending);
    }

    /// Consensus has turned the oldest proposal that it was given into an entry.
    pub fn next_ordered(&mut self) -> Option<PendingEntry> {
        self.ordering.pop_front()
    }

    /// Consensus took none of the proposals that it was given: removes and returns them.
    pub fn take_ordering(&mut self) -> Vec<PendingEntry> {
        self.ordering.drain(..).collect()
    }

    /// No entry follows position `last`: syncs wait for that one at most.
    pub fn limit_syncs(&mut self, last: u64) {
        self.syncs.iter_mut().for_each(|sync| sync.to = last.min(sync.to));
    }

    /// An entry with a waiting proposer was overwritten at `index`.
    pub fn note_overwritten(&mut self, index: u64, held: Held) {
        if let Some(done) = held.done {
            self.uncertain.push(Uncertain { index, term: held.term, done });
        }
    }

    /// Whether no proposal is uncertain.
    pub fn are_certain(&self) -> bool {
        self.uncertain.is_empty()
    }

    /// Answers uncertain proposals whose outcome is now known: another entry is committed at their position, or a still
    /// later leader had their entry and it is applied.
    pub fn answer_uncertain(&mut self, consensus: &Consensus, applied: u64, answers: &mut Answers) {
        let (committed, outline): (u64, &Outline) = (consensus.committed(), consensus.outline());
        let is_known = |uncertain: &mut Uncertain| match outline.term_at(uncertain.index) {
            Some(term) if term == uncertain.term => uncertain.index <= applied,
            _ => uncertain.index <= committed,
        };
        for Uncertain { index, term, done } in self.uncertain.extract_if(.., is_known) {
            let outcome = match outline.term_at(index) {
                Some(found) if found == term => Ok(Lsn(index)),
                Some(_) if index > outline.start() => Err(Refusal::Replaced.into()),
                _ => Err(Interruption::Deposed.into()),
            };
            answers.done.push((done, outcome));
        }
    }

    /// Removes and returns the callbacks of proposals that wait to be ordered.
    pub fn drain_incoming(&mut self) -> impl Iterator<Item = Done> {
        self.incoming.drain(..).filter_map(|pending| pending.done)
    }

    /// Removes and returns the callbacks of syncs.
    pub fn drain_syncs(&mut self) -> Vec<Done> {
        self.syncs.drain(..).map(|sync| sync.done).collect()
    }

    /// Removes and returns the callbacks of uncertain proposals.
    pub fn drain_uncertain(&mut self) -> Vec<Done> {
        self.uncertain.drain(..).map(|uncertain| uncertain.done).collect()
    }
}
