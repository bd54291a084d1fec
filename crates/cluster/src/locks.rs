//! The order of this crate's locks, and the mutex that checks it.
//!
//! A thread that holds a [`RankedMutex`] may take only those that come after it in [`Rank`], and any leaf: `CatalogChange`,
//! `MemberChange`, `Publishing`, `Gate`, `LocalReplicas`, `PendingHandovers`, `Tombstones`, `LeftoverRows`,
//! `RemovedReplicas`. Only `try_lock` may be used in any order, because it does not wait; the lock counts as held all the same.
//!
//! The plain locks of the crate are leaves: no lock is taken while one of them is held, and nothing is waited for (a wait on
//! a condition variable releases its lock). By room:
//!
//! - `EventQueue` and `Notifier`
//! - `link`: four of `Links` (inbox, statistics, timings, and the state machine until a handler takes it)
//! - `routing`: `KnownLeader`; `ReplicaTransport`; the table of known leaders in `Leadership`, and its roles; three of
//!   `DiskStalls` (the own log, its fsync, the other servers)
//! - `catalog`: `CatalogView`
//! - `copy`: five of `CopyState`
//! - `index`: `Builds`
//! - `repair`: the timeout in `LostServerLookup`
//! - `node`: the state of the cluster in `Inbound`
//!
//! Four of these are no true leaves:
//!
//! - The state of the own log in `DiskStalls` (not a lock of the log): held while `Leadership` steps down from groups.
//! - The roles of `Leadership`: held while `ReplicaTransport`, the table of known leaders, `KnownLeader`, `Replicas` (of
//!   `shard`), `Notifier` and `EventQueue` are used.
//! - The table of known leaders: held while one `KnownLeader` is read.
//! - The state of the cluster in `Inbound`: held while the identity file is written, so that a server joins one cluster only.
//!
//! Locks of other crates: the log holds the lock of its state (`log::file::drive`) while it calls `Leadership`,
//! `ReplicaTransport` and `Replicas`, so no blocking method of the log may be called under a lock that these take. A writer
//! holds the latch of a row (`shard::latch`) until the log has the entry; no lock of this crate is taken under it.
//!
//! Builds with debug assertions (this crate's release builds have them, the distributed program has not), unit tests and the
//! simulation (feature `mutants`) check the order of ranks at each lock, and panic if it is broken. Leaves are not checked.

use std::ops::{Deref, DerefMut};

use io::task;
use parking_lot::{Mutex, MutexGuard};

/// The locks in the order in which they may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// `CatalogClient`: held while this node makes one change of the catalog. The holder waits for the disk, for other servers
    /// and for the event loop, so the event loop never takes it.
    CatalogChange,
    /// `Membership`: held while a change of a group's members, or a seal, is proposed.
    MemberChange,
    /// `Publisher`: held while replicas are opened and discarded. The holder waits for the disk.
    Publishing,
    /// A replica's `Gate`: held while rows of a copy are read or written. One gate at a time.
    Gate,
    /// `LocalReplicas`: the open replicas. Held briefly, like all below.
    LocalReplicas,
    /// `PendingHandovers`: replicas that cannot be opened yet.
    PendingHandovers,
    /// `Tombstones`: removed replicas whose tombstones are not durable.
    Tombstones,
    /// `LeftoverRows`: tables with rows to delete.
    LeftoverRows,
    /// `ReplicaHost`: removed replicas that the catalog still names.
    RemovedReplicas,
}

/// A mutex with a place in the order of locks. In a simulation a task that waits for it yields.
pub(crate) struct RankedMutex<T> {
    rank: Rank,
    inner: Mutex<T>,
}

impl<T> RankedMutex<T> {
    pub(crate) fn new(rank: Rank, value: T) -> RankedMutex<T> {
        RankedMutex { rank, inner: Mutex::new(value) }
    }

    /// Waits for the lock. Panics, where the order is checked, if the thread holds a lock of this rank or of a later one.
    pub(crate) fn lock(&self) -> RankedGuard<'_, T> {
        held::check(self.rank);
        RankedGuard { guard: task::lock(&self.inner), _held: held::Held::new(self.rank) }
    }

    /// Takes the lock if it is free. Cannot deadlock, so that any order is allowed.
    pub(crate) fn try_lock(&self) -> Option<RankedGuard<'_, T>> {
        Some(RankedGuard { guard: self.inner.try_lock()?, _held: held::Held::new(self.rank) })
    }
}

/// Holds a [`RankedMutex`].
pub(crate) struct RankedGuard<'a, T> {
    guard: MutexGuard<'a, T>,
    _held: held::Held,
}

impl<T> Deref for RankedGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for RankedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

#[cfg(any(debug_assertions, test, feature = "mutants"))]
mod held {
    //! The ranks that each thread, or each task of a simulation, holds.

    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use io::task;

    use crate::locks::Rank;

    thread_local! {
        static HELD: RefCell<BTreeMap<u64, Vec<Rank>>> = const { RefCell::new(BTreeMap::new()) };
    }

    pub(super) fn check(rank: Rank) {
        let task = task::current();
        let latest = HELD.with_borrow(|held| held.get(&task).and_then(|ranks| ranks.iter().max().copied()));
        assert!(
            latest.is_none_or(|latest| latest < rank),
            "lock order: {rank:?} is taken while {latest:?} is held"
        );
    }

    /// One held lock.
    pub(super) struct Held {
        task: u64,
        rank: Rank,
    }

    impl Held {
        pub(super) fn new(rank: Rank) -> Held {
            let task = task::current();
            HELD.with_borrow_mut(|held| held.entry(task).or_default().push(rank));
            Held { task, rank }
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            HELD.with_borrow_mut(|held| {
                let Some(ranks) = held.get_mut(&self.task) else { return };
                if let Some(at) = ranks.iter().rposition(|rank| *rank == self.rank) {
                    ranks.swap_remove(at);
                }
                if ranks.is_empty() {
                    held.remove(&self.task);
                }
            });
        }
    }
}

#[cfg(not(any(debug_assertions, test, feature = "mutants")))]
mod held {
    //! Nothing is checked in the program that is handed out.

    use crate::locks::Rank;

    pub(super) fn check(_: Rank) {}

    pub(super) struct Held;

    impl Held {
        pub(super) fn new(_: Rank) -> Held {
            Held
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_may_be_taken_in_order() {
        let (first, second) =
            (RankedMutex::new(Rank::Publishing, 1), RankedMutex::new(Rank::LocalReplicas, 2));
        let held = first.lock();
        assert_eq!(*held + *second.lock(), 3);
        drop(held);
        drop(second.lock());
        drop(first.lock());
    }

    #[test]
    #[should_panic(expected = "lock order: Publishing is taken while Some(LocalReplicas) is held")]
    fn a_lock_out_of_order_is_found() {
        let (first, second) =
            (RankedMutex::new(Rank::Publishing, ()), RankedMutex::new(Rank::LocalReplicas, ()));
        let _held = second.lock();
        drop(first.lock());
    }

    #[test]
    fn a_lock_that_is_only_tried_may_be_taken_out_of_order() {
        let (first, second) =
            (RankedMutex::new(Rank::Publishing, ()), RankedMutex::new(Rank::LocalReplicas, ()));
        let _held = second.lock();
        assert!(first.try_lock().is_some());
    }
}
