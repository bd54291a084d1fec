//! Latches: one writer per row at a time, and the rows that are proposed but not applied yet.
//!
//! Latches are striped by key: a stripe is one mutex for a share of the keys, with the map of their proposed rows. A
//! write holds the stripes of its keys from reading the old row until the log has the new one, so that the log's order
//! is the order of evaluation.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher;

use datum::{Object, PrimaryKey};
use foldhash::fast::RandomState;
use parking_lot::{Mutex, MutexGuard};

/// Enough that eight writers rarely contend, few enough that an idle shard stays small.
const STRIPES: usize = 128;

/// All latches of a shard.
pub(crate) struct Latches {
    stripes: Vec<Mutex<Stripe>>,
    hash: RandomState,
}

/// The latches a write holds.
pub(crate) struct HeldLatches<'a> {
    latches: &'a Latches,
    // Ascending by stripe.
    stripes: Vec<(usize, MutexGuard<'a, Stripe>)>,
}

/// The proposed rows of one stripe's keys.
#[derive(Default)]
pub(crate) struct Stripe {
    rows: HashMap<PrimaryKey, Proposals, RandomState>,
}

/// The unresolved proposals of one row; each was evaluated on the one before.
struct Proposals {
    // Ascending by sequence.
    older: Vec<Proposed>,
    newest: Proposed,
}

/// A row that is proposed to the log.
pub(crate) struct Proposed {
    /// The proposal's number.
    pub(crate) sequence: u64,
    /// The row, or `None` if it is deleted.
    pub(crate) row: Option<Object>,
}

/// The outcome of a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProposalFate {
    /// The engine has the row.
    Applied,
    /// The proposal failed, or its outcome is unknown.
    Failed,
}

impl Latches {
    pub(crate) fn new() -> Latches {
        let stripes = (0..STRIPES).map(|_| Mutex::default()).collect();
        Latches { stripes, hash: RandomState::default() }
    }

    /// Holds the stripes of all `keys`. Every writer locks stripes in the same order.
    pub(crate) fn hold<'k>(&self, keys: impl Iterator<Item = &'k PrimaryKey>) -> HeldLatches<'_> {
        let mut numbers: Vec<usize> = keys.map(|key| self.stripe_of(key)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let stripes = numbers.into_iter().map(|n| (n, self.stripes[n].lock())).collect();
        HeldLatches { latches: self, stripes }
    }

    /// Waits until no write is between reading and proposing.
    pub(crate) fn wait_for_writers(&self) {
        for stripe in &self.stripes {
            drop(stripe.lock());
        }
    }

    /// Forgets the proposed row of `key` once the outcome is known.
    pub(crate) fn settle(&self, key: &PrimaryKey, sequence: u64, fate: ProposalFate) {
        self.stripes[self.stripe_of(key)].lock().settle(key, sequence, fate);
    }

    fn stripe_of(&self, key: &PrimaryKey) -> usize {
        self.hash.hash_one(key) as usize % STRIPES
    }
}

impl HeldLatches<'_> {
    /// The newest proposed row of `key`, if it has one.
    pub(crate) fn newest(&self, key: &PrimaryKey) -> Option<&Proposed> {
        self.stripes[self.held_index(key)].1.rows.get(key).map(|proposals| &proposals.newest)
    }

    /// Makes `proposed` the newest row of `key`.
    pub(crate) fn propose(&mut self, key: PrimaryKey, proposed: Proposed) {
        let index = self.held_index(&key);
        match self.stripes[index].1.rows.entry(key) {
            Entry::Vacant(vacant) => {
                vacant.insert(Proposals { older: Vec::new(), newest: proposed });
            }
            Entry::Occupied(mut occupied) => {
                let proposals = occupied.get_mut();
                let older = std::mem::replace(&mut proposals.newest, proposed);
                proposals.older.push(older);
            }
        }
    }

    fn held_index(&self, key: &PrimaryKey) -> usize {
        match self.stripes.len() {
            1 => 0,
            _ => {
                let number = self.latches.stripe_of(key);
                self.stripes.partition_point(|(held, _)| *held < number)
            }
        }
    }
}

impl Stripe {
    fn settle(&mut self, key: &PrimaryKey, sequence: u64, fate: ProposalFate) {
        let Some(proposals) = self.rows.get_mut(key) else { return };
        let last = match fate {
            // Earlier proposals are applied too; the engine has this row or a newer one.
            ProposalFate::Applied => {
                proposals.older.retain(|older| older.sequence > sequence);
                proposals.newest.sequence <= sequence
            }
            // Later proposals were evaluated on it and fail with it.
            ProposalFate::Failed => proposals.fall_back_before(sequence),
        };
        if last {
            self.rows.remove(key);
        }
    }
}

impl Proposals {
    /// Drops `sequence` and all later proposals; returns whether none is left. Does nothing if that proposal was
    /// already dropped with one it depended on: later ones were made without it.
    fn fall_back_before(&mut self, sequence: u64) -> bool {
        if self.newest.sequence != sequence && !self.older.iter().any(|older| older.sequence == sequence) {
            return false;
        }
        self.older.retain(|older| older.sequence < sequence);
        match self.older.pop() {
            Some(survivor) => {
                self.newest = survivor;
                false
            }
            None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> PrimaryKey {
        PrimaryKey::encode(&datum::Datum::from("k")).unwrap()
    }

    fn propose(latches: &Latches, sequence: u64) {
        latches.hold([&key()].into_iter()).propose(key(), Proposed { sequence, row: None });
    }

    #[track_caller]
    fn check_newest(latches: &Latches, expected: Option<u64>) {
        let held = latches.hold([&key()].into_iter());
        assert_eq!(held.newest(&key()).map(|newest| newest.sequence), expected);
    }

    #[test]
    fn the_newest_proposal_is_seen_until_it_is_applied() {
        let latches = Latches::new();
        check_newest(&latches, None);
        propose(&latches, 1);
        propose(&latches, 5);
        check_newest(&latches, Some(5));
        latches.settle(&key(), 1, ProposalFate::Applied);
        check_newest(&latches, Some(5));
        latches.settle(&key(), 5, ProposalFate::Applied);
        check_newest(&latches, None);
        latches.settle(&key(), 5, ProposalFate::Applied);
    }

    #[test]
    fn a_refused_proposal_takes_its_dependants_along_and_nothing_else() {
        let latches = Latches::new();
        for sequence in [5, 6, 7] {
            propose(&latches, sequence);
        }
        latches.settle(&key(), 6, ProposalFate::Failed);
        check_newest(&latches, Some(5));
        propose(&latches, 8);
        // The failure of 7, which depended on 6, arrives later; 8 never depended on it.
        latches.settle(&key(), 7, ProposalFate::Failed);
        check_newest(&latches, Some(8));
        latches.settle(&key(), 5, ProposalFate::Applied);
        check_newest(&latches, Some(8));
        latches.settle(&key(), 8, ProposalFate::Failed);
        check_newest(&latches, None);
    }

    #[test]
    fn many_keys_are_held_at_once_whatever_their_order() {
        let latches = Latches::new();
        let keys: Vec<_> = (0..300).map(|n| PrimaryKey::encode(&datum::Datum::from(n)).unwrap()).collect();
        let mut held = latches.hold(keys.iter().chain(keys.iter().rev()));
        for (n, key) in keys.iter().enumerate() {
            held.propose(key.clone(), Proposed { sequence: n as u64, row: None });
        }
        for (n, key) in keys.iter().enumerate() {
            assert_eq!(held.newest(key).unwrap().sequence, n as u64);
        }
    }
}
