//! How much memory there is to draw, and who has drawn how much.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// Who may draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Queries that are being worked on.
    Queries,
    /// Streams between two batches.
    Cursors,
    /// Queries being received and answers being sent.
    Connections,
}

impl Owner {
    /// Every owner, in the order of its number.
    pub const ALL: [Owner; 3] = [Owner::Queries, Owner::Cursors, Owner::Connections];

    /// The name metrics show.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Owner::Queries => "queries",
            Owner::Cursors => "cursors",
            Owner::Connections => "connections",
        }
    }
}

/// Memory that may be drawn, in bytes. Shared by everybody who draws.
#[derive(Debug)]
pub struct Budget {
    limit: AtomicI64,
    total: AtomicI64,
    owners: [AtomicI64; Owner::ALL.len()],
    refused: AtomicU64,
}

/// There is not as much left as was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverBudget {
    /// Bytes that were asked for.
    pub requested: u64,
    /// Bytes drawn by all at that moment.
    pub reserved: u64,
    /// Bytes there are.
    pub limit: u64,
}

impl fmt::Display for OverBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OverBudget { requested, reserved, limit } = self;
        write!(f, "{requested} bytes more than the {reserved} of {limit} that are in use")
    }
}

impl std::error::Error for OverBudget {}

impl Budget {
    /// A budget of `limit` bytes, none of them drawn.
    #[must_use]
    pub fn new(limit: u64) -> Arc<Budget> {
        Arc::new(Budget {
            limit: AtomicI64::new(signed(limit)),
            total: AtomicI64::new(0),
            owners: Default::default(),
            refused: AtomicU64::new(0),
        })
    }

    /// A budget that refuses nobody.
    #[must_use]
    pub fn unlimited() -> Arc<Budget> {
        Budget::new(u64::MAX)
    }

    /// Bytes there are in all.
    #[must_use]
    pub fn limit(&self) -> u64 {
        unsigned(self.limit.load(Relaxed))
    }

    /// There are so many bytes from now on. What was drawn beyond them stays drawn.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(signed(limit), Relaxed);
    }

    /// Bytes `owner` has drawn now.
    #[must_use]
    pub fn reserved_by(&self, owner: Owner) -> u64 {
        unsigned(self.owners[owner as usize].load(Relaxed))
    }

    /// How often somebody was refused.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Draws `bytes` for `owner`, or fails and draws nothing when there are not as many left.
    pub fn reserve(&self, owner: Owner, bytes: u64) -> Result<(), OverBudget> {
        let requested = signed(bytes);
        let before = self.total.fetch_add(requested, Relaxed);
        if before.saturating_add(requested) > self.limit.load(Relaxed) {
            self.total.fetch_sub(requested, Relaxed);
            self.refused.fetch_add(1, Relaxed);
            return Err(OverBudget { requested: bytes, reserved: unsigned(before), limit: self.limit() });
        }
        self.owners[owner as usize].fetch_add(requested, Relaxed);
        Ok(())
    }

    /// Draws `bytes` that are in use already, however many are left: what cannot be refused must
    /// at least be known.
    pub fn reserve_unchecked(&self, owner: Owner, bytes: u64) {
        self.change(owner, signed(bytes));
    }

    /// Gives back what was drawn.
    pub fn release(&self, owner: Owner, bytes: u64) {
        self.change(owner, -signed(bytes));
    }

    /// Lets `to` have what `from` has drawn.
    pub fn transfer(&self, from: Owner, to: Owner, bytes: u64) {
        self.owners[from as usize].fetch_sub(signed(bytes), Relaxed);
        self.owners[to as usize].fetch_add(signed(bytes), Relaxed);
    }

    fn change(&self, owner: Owner, bytes: i64) {
        self.total.fetch_add(bytes, Relaxed);
        self.owners[owner as usize].fetch_add(bytes, Relaxed);
    }
}

/// A buffer of known size, on somebody's account as long as this lives.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<Budget>,
    owner: Owner,
    bytes: u64,
}

impl Reservation {
    /// Nothing yet.
    #[must_use]
    pub fn new(budget: Arc<Budget>, owner: Owner) -> Reservation {
        Reservation { budget, owner, bytes: 0 }
    }

    /// The buffer has this many bytes now.
    pub fn set(&mut self, bytes: u64) {
        if bytes >= self.bytes {
            self.budget.reserve_unchecked(self.owner, bytes - self.bytes);
        } else {
            self.budget.release(self.owner, self.bytes - bytes);
        }
        self.bytes = bytes;
    }

    /// The buffer is about to have this many bytes; fails, and changes nothing, if they are not left.
    pub fn grow_to(&mut self, bytes: u64) -> Result<(), OverBudget> {
        if bytes > self.bytes {
            self.budget.reserve(self.owner, bytes - self.bytes)?;
            self.bytes = bytes;
        }
        Ok(())
    }

    /// What the buffer is said to have.
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

/// As a signed number small enough that a few can be added.
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
    fn nobody_draws_more_than_there_is() {
        let budget = Budget::new(100);
        assert_eq!(budget.reserve(Owner::Queries, 60), Ok(()));
        let refused = OverBudget { requested: 41, reserved: 60, limit: 100 };
        assert_eq!(budget.reserve(Owner::Cursors, 41), Err(refused));
        assert_eq!(budget.reserve(Owner::Cursors, 40), Ok(()));
        budget.release(Owner::Queries, 60);
        assert_eq!((budget.reserved_by(Owner::Queries), budget.reserved_by(Owner::Cursors)), (0, 40));
        assert_eq!(budget.refused(), 1);
    }

    #[test]
    fn a_hold_gives_back_what_it_has() {
        let budget = Budget::new(100);
        let mut hold = Reservation::new(budget.clone(), Owner::Connections);
        hold.set(150);
        assert_eq!(budget.reserved_by(Owner::Connections), 150, "what is there is counted");
        assert!(hold.grow_to(151).is_err());
        hold.set(10);
        assert_eq!(hold.grow_to(100), Ok(()));
        drop(hold);
        assert_eq!(budget.reserved_by(Owner::Connections), 0);
    }

    #[test]
    fn an_endless_budget_refuses_nobody() {
        let budget = Budget::unlimited();
        assert_eq!(budget.reserve(Owner::Queries, 1 << 50), Ok(()));
    }
}
