//! The memory budget and the reservations of its owners.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// A kind of user that reserves memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Running queries.
    Queries,
    /// Cursors between two batches.
    Cursors,
    /// Queries being received and responses being sent.
    Connections,
    /// Changes that wait for the clients of changefeeds.
    Feeds,
}

impl Owner {
    /// All owners, in the order of their numbers.
    pub const ALL: [Owner; 4] = [Owner::Queries, Owner::Cursors, Owner::Connections, Owner::Feeds];

    /// Reservations of the owner end at this fraction of the budget. Clients that take no responses, or leave cursors open,
    /// must leave memory for the queries of others.
    fn share_divisor(self) -> i64 {
        match self {
            Owner::Connections | Owner::Cursors => 3,
            Owner::Queries | Owner::Feeds => 1,
        }
    }

    /// The name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Owner::Queries => "queries",
            Owner::Cursors => "cursors",
            Owner::Connections => "connections",
            Owner::Feeds => "feeds",
        }
    }
}

/// Memory that may be reserved, in bytes. Shared by all owners.
#[derive(Debug)]
pub struct Budget {
    limit: AtomicI64,
    total: AtomicI64,
    owners: [AtomicI64; Owner::ALL.len()],
    refused: AtomicU64,
}

/// More memory was requested than is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverBudget {
    /// Bytes requested.
    pub requested: u64,
    /// Bytes reserved by all owners at that moment.
    pub reserved: u64,
    /// Bytes in the budget.
    pub limit: u64,
}

impl fmt::Display for OverBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OverBudget { requested, reserved, limit } = self;
        write!(f, "{requested} bytes requested, but {reserved} of {limit} are in use")
    }
}

impl std::error::Error for OverBudget {}

impl Budget {
    /// A budget of `limit` bytes, none of them reserved.
    #[must_use]
    pub fn new(limit: u64) -> Arc<Budget> {
        Arc::new(Budget {
            limit: AtomicI64::new(signed(limit)),
            total: AtomicI64::new(0),
            owners: Default::default(),
            refused: AtomicU64::new(0),
        })
    }

    /// A budget that refuses nothing.
    #[must_use]
    pub fn unlimited() -> Arc<Budget> {
        Budget::new(u64::MAX)
    }

    /// The size of the budget in bytes.
    #[must_use]
    pub fn limit(&self) -> u64 {
        unsigned(self.limit.load(Relaxed))
    }

    /// Sets the size of the budget. Reservations beyond it stay.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(signed(limit), Relaxed);
    }

    /// Bytes reserved by `owner` now.
    #[must_use]
    pub fn reserved_by(&self, owner: Owner) -> u64 {
        unsigned(self.owners[owner as usize].load(Relaxed))
    }

    /// The number of refused requests.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Reserves `bytes` for `owner`, or fails and reserves nothing if fewer are left, or if the owner would have more than
    /// its share.
    pub fn reserve(&self, owner: Owner, bytes: u64) -> Result<(), OverBudget> {
        let (requested, limit) = (signed(bytes), self.limit.load(Relaxed));
        let refuse = |reserved, limit| {
            self.refused.fetch_add(1, Relaxed);
            Err(OverBudget { requested: bytes, reserved: unsigned(reserved), limit: unsigned(limit) })
        };
        let of_owner = &self.owners[owner as usize];
        let before = of_owner.fetch_add(requested, Relaxed);
        if before.saturating_add(requested) > limit / owner.share_divisor() {
            of_owner.fetch_sub(requested, Relaxed);
            return refuse(before, limit / owner.share_divisor());
        }
        let before = self.total.fetch_add(requested, Relaxed);
        if before.saturating_add(requested) > limit {
            of_owner.fetch_sub(requested, Relaxed);
            self.total.fetch_sub(requested, Relaxed);
            return refuse(before, limit);
        }
        Ok(())
    }

    /// Fails unless `owner` could reserve `bytes` more now.
    pub fn check(&self, owner: Owner, bytes: u64) -> Result<(), OverBudget> {
        self.reserve(owner, bytes)?;
        self.release(owner, bytes);
        Ok(())
    }

    /// Fails if `owner` has more than its share already: reservations that were moved to it are not checked.
    pub fn check_share(&self, owner: Owner) -> Result<(), OverBudget> {
        let (reserved, share) =
            (self.reserved_by(owner), self.limit() / owner.share_divisor().unsigned_abs());
        if reserved > share {
            self.refused.fetch_add(1, Relaxed);
            return Err(OverBudget { requested: 0, reserved, limit: share });
        }
        Ok(())
    }

    /// Reserves `bytes` that are in use already, even beyond the limit: memory that cannot be refused must at least be
    /// counted.
    pub fn reserve_unchecked(&self, owner: Owner, bytes: u64) {
        self.change(owner, signed(bytes));
    }

    /// Releases reserved bytes.
    pub fn release(&self, owner: Owner, bytes: u64) {
        self.change(owner, -signed(bytes));
    }

    /// Transfers reserved bytes from one owner to another.
    pub fn transfer(&self, from: Owner, to: Owner, bytes: u64) {
        self.owners[from as usize].fetch_sub(signed(bytes), Relaxed);
        self.owners[to as usize].fetch_add(signed(bytes), Relaxed);
    }

    fn change(&self, owner: Owner, bytes: i64) {
        self.total.fetch_add(bytes, Relaxed);
        self.owners[owner as usize].fetch_add(bytes, Relaxed);
    }
}

/// The reservation of a buffer of known size. Released when dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<Budget>,
    owner: Owner,
    bytes: u64,
}

impl Reservation {
    /// A reservation of zero bytes.
    #[must_use]
    pub fn new(budget: Arc<Budget>, owner: Owner) -> Reservation {
        Reservation { budget, owner, bytes: 0 }
    }

    /// Bytes that all owners of its kind have reserved, and the size of the budget.
    #[must_use]
    pub fn share(&self) -> (u64, u64) {
        (self.budget.reserved_by(self.owner), self.budget.limit())
    }

    /// Sets the size of the buffer, even beyond the limit.
    pub fn set(&mut self, bytes: u64) {
        if bytes >= self.bytes {
            self.budget.reserve_unchecked(self.owner, bytes - self.bytes);
        } else {
            self.budget.release(self.owner, self.bytes - bytes);
        }
        self.bytes = bytes;
    }

    /// Reserves memory for a buffer of this size. Fails, and changes nothing, if that is not left.
    pub fn grow_to(&mut self, bytes: u64) -> Result<(), OverBudget> {
        if bytes > self.bytes {
            self.budget.reserve(self.owner, bytes - self.bytes)?;
            self.bytes = bytes;
        }
        Ok(())
    }

    /// The reserved bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.release(self.owner, self.bytes);
    }
}

/// As a signed number, small enough that a few can be added.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX).min(i64::MAX / 4)
}

fn unsigned(bytes: i64) -> u64 {
    u64::try_from(bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_stay_within_the_budget() {
        let budget = Budget::new(100);
        assert_eq!(budget.reserve(Owner::Queries, 60), Ok(()));
        let refused = OverBudget { requested: 41, reserved: 60, limit: 100 };
        assert_eq!(budget.reserve(Owner::Feeds, 41), Err(refused));
        assert_eq!(budget.reserve(Owner::Feeds, 40), Ok(()));
        budget.release(Owner::Queries, 60);
        assert_eq!((budget.reserved_by(Owner::Queries), budget.reserved_by(Owner::Feeds)), (0, 40));
        assert_eq!(budget.refused(), 1);
    }

    #[test]
    fn a_dropped_reservation_is_released() {
        let budget = Budget::new(100);
        let mut reservation = Reservation::new(budget.clone(), Owner::Feeds);
        reservation.set(150);
        assert_eq!(budget.reserved_by(Owner::Feeds), 150, "the whole buffer is counted");
        assert!(reservation.grow_to(151).is_err());
        reservation.set(10);
        assert_eq!(reservation.grow_to(100), Ok(()));
        drop(reservation);
        assert_eq!(budget.reserved_by(Owner::Feeds), 0);
    }

    #[test]
    fn connections_and_cursors_have_a_third_of_the_budget_each() {
        for owner in [Owner::Connections, Owner::Cursors] {
            let budget = Budget::new(120);
            assert_eq!(budget.reserve(owner, 30), Ok(()));
            assert_eq!((budget.check(owner, 10), budget.check_share(owner)), (Ok(()), Ok(())));
            let refused = OverBudget { requested: 11, reserved: 30, limit: 40 };
            assert_eq!(budget.check(owner, 11), Err(refused));
            budget.reserve_unchecked(owner, 80);
            assert_eq!(budget.check_share(owner), Err(OverBudget { requested: 0, reserved: 110, limit: 40 }));
            assert_eq!(budget.reserve(Owner::Queries, 10), Ok(()));
            assert!(budget.reserve(Owner::Queries, 1).is_err());
            budget.release(owner, 110);
            assert_eq!((budget.check(owner, 40), budget.check(Owner::Queries, 110)), (Ok(()), Ok(())));
        }
    }

    #[test]
    fn an_unlimited_budget_refuses_nothing() {
        let budget = Budget::unlimited();
        assert_eq!(budget.reserve(Owner::Queries, 1 << 50), Ok(()));
    }
}
