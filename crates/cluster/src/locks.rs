//! The order of this crate's locks, and the locks that check it.
//!
//! A thread that holds a lock of a [`Rank`] may take only those of later ranks. The last rank is `Leaf`: no other lock of the
//! crate is taken while a leaf is held. Only `try_lock` may be used in any order, because it does not wait; the lock counts as
//! held all the same.
//!
//! - [`RankedMutex`]: its holder may wait, for the disk or for other servers. In a simulation a task that waits for it yields.
//! - [`BriefMutex`], [`BriefRwLock`]: their holders never wait, so tasks of a simulation lock them directly. Most are leaves:
//!   the inbox, the statistics, the timings and the state machine of `Links` (`link`); `KnownLeader`, the servers in
//!   `ReplicaTransport`, and the fsync and the other servers in `DiskStalls` (`routing`); those of `CopyState`, `Attempts` and `DamageRepair` (`copy`);
//!   `Builds` (`index`); the times of `HistoryUse`, the groups of the `Inbox`, and the positions and segments of
//!   subscriptions (`feeds`); the timeout in `LostServerLookup` (`repair`).
//!
//! Five locks are plain mutexes without a rank, because condition variables need them. No lock is taken while one of them is
//! held, and nothing is waited for except the condition variable, which releases the lock; this is not checked. They are in
//! `EventQueue`, in `Notifier`, in `CatalogView` (`catalog`), in the `Inbox` of `feeds`, and the state of the cluster in `Inbound` (`node`). The last one
//! is also held while the identity file is written, so that a server joins one cluster only.
//!
//! Locks of other crates: the log holds the lock of its state (`log::file::drive`) while it calls `Leadership`,
//! `ReplicaTransport` and `Replicas`, so no blocking method of the log may be called under a lock that these take. A writer
//! holds the latch of a row (`shard::latch`) until the log has the entry; no lock of this crate is taken under it.
//!
//! Builds with debug assertions (this crate's release builds have them, the distributed program has not), unit tests and the
//! simulation (feature `mutants`) check the order at each lock of a rank, and panic if it is broken.

use std::ops::{Deref, DerefMut};

use io::task;
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The locks in the order in which they may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// `CatalogClient`: held while this node makes one change of the catalog. The holder waits for the disk, for other servers
    /// and for the event loop, so the event loop never takes it.
    CatalogChange,
    /// `Membership`: held while a change of a group's members, or a seal, is proposed.
    MemberChange,
    /// `HistoryUse`: held while the history of a group is switched on or off. The holder waits for the log.
    HistorySwitch,
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
    /// `DiskStalls`: the state of the own log as the stall monitor sees it (no lock of the log). Held while `Leadership` steps
    /// down from groups.
    OwnLog,
    /// `Leadership`: the roles. Held while a change is passed on to `ReplicaTransport`, the known leaders, `Replicas` (of
    /// `shard`), `Notifier` and `EventQueue`, so that changes are passed on in order.
    Roles,
    /// `Leadership`: the table of known leaders. Held while one `KnownLeader` is read.
    KnownLeaders,
    /// Each lock under which no other one is taken.
    Leaf,
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

/// A mutex with a place in the order of locks whose holder never waits: tasks of a simulation do not yield for it.
pub(crate) struct BriefMutex<T> {
    rank: Rank,
    inner: Mutex<T>,
}

impl<T> BriefMutex<T> {
    pub(crate) fn new(rank: Rank, value: T) -> BriefMutex<T> {
        BriefMutex { rank, inner: Mutex::new(value) }
    }

    /// A mutex under which no other lock is taken.
    pub(crate) fn leaf(value: T) -> BriefMutex<T> {
        BriefMutex::new(Rank::Leaf, value)
    }

    /// As [`RankedMutex::lock`].
    pub(crate) fn lock(&self) -> RankedGuard<'_, T> {
        held::check(self.rank);
        RankedGuard { guard: self.inner.lock(), _held: held::Held::new(self.rank) }
    }
}

impl<T: Default> Default for BriefMutex<T> {
    /// A leaf.
    fn default() -> BriefMutex<T> {
        BriefMutex::leaf(T::default())
    }
}

impl<T: Default> Default for BriefRwLock<T> {
    /// A leaf.
    fn default() -> BriefRwLock<T> {
        BriefRwLock::new(Rank::Leaf, T::default())
    }
}

/// As [`BriefMutex`], for many readers or one writer.
pub(crate) struct BriefRwLock<T> {
    rank: Rank,
    inner: RwLock<T>,
}

impl<T> BriefRwLock<T> {
    pub(crate) fn new(rank: Rank, value: T) -> BriefRwLock<T> {
        BriefRwLock { rank, inner: RwLock::new(value) }
    }

    /// As [`RankedMutex::lock`]. A thread does not read twice at once: a writer that waits in between would block it for ever.
    pub(crate) fn read(&self) -> RankedReadGuard<'_, T> {
        held::check(self.rank);
        Ranked { guard: self.inner.read(), _held: held::Held::new(self.rank) }
    }

    /// As [`RankedMutex::lock`].
    pub(crate) fn write(&self) -> Ranked<RwLockWriteGuard<'_, T>> {
        held::check(self.rank);
        Ranked { guard: self.inner.write(), _held: held::Held::new(self.rank) }
    }
}

/// Holds a lock with a rank.
pub(crate) struct Ranked<G> {
    guard: G,
    _held: held::Held,
}

/// Holds a [`RankedMutex`] or a [`BriefMutex`].
pub(crate) type RankedGuard<'a, T> = Ranked<MutexGuard<'a, T>>;

/// Holds a [`BriefRwLock`] for reading.
pub(crate) type RankedReadGuard<'a, T> = Ranked<RwLockReadGuard<'a, T>>;

impl<G: Deref> Deref for Ranked<G> {
    type Target = G::Target;
    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Ranked<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

#[cfg(any(debug_assertions, test, feature = "mutants"))]
mod held {
    //! The ranks that each thread, or each task of a simulation, holds.

    use std::cell::RefCell;

    use io::task;

    use crate::locks::Rank;

    thread_local! {
        /// The locks of this thread's tasks, each with the number of the task.
        static HELD: RefCell<Vec<(u64, Rank)>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn check(rank: Rank) {
        let task = task::current();
        let latest = HELD.with_borrow(|held| {
            held.iter().filter(|(holder, _)| *holder == task).map(|(_, rank)| *rank).max()
        });
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
            HELD.with_borrow_mut(|held| held.push((task, rank)));
            Held { task, rank }
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            HELD.with_borrow_mut(|held| {
                if let Some(at) = held.iter().rposition(|held| *held == (self.task, self.rank)) {
                    held.swap_remove(at);
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
    #[test]
    #[should_panic(expected = "lock order: Leaf is taken while Some(Leaf) is held")]
    fn no_lock_is_taken_under_a_leaf() {
        let (first, second) = (BriefMutex::leaf(()), BriefMutex::leaf(()));
        let _held = first.lock();
        drop(second.lock());
    }

    #[test]
    #[should_panic(expected = "lock order: Leaf is taken while Some(Leaf) is held")]
    fn readers_of_one_lock_are_not_nested() {
        let lock = BriefRwLock::new(Rank::Leaf, ());
        let _held = lock.read();
        drop(lock.read());
    }

    #[test]
    fn a_leaf_may_be_taken_under_any_other_lock() {
        let (first, second, leaf) = (
            RankedMutex::new(Rank::CatalogChange, ()),
            BriefRwLock::new(Rank::KnownLeaders, ()),
            BriefMutex::leaf(1),
        );
        let _held = (first.lock(), second.write());
        assert_eq!(*leaf.lock(), 1);
    }
}
