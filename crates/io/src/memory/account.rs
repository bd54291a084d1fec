//! The memory that one query has allocated, on any thread.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use super::allocator::return_freed;
use super::budget::{Budget, OverBudget, Owner};
use super::metered::net;

/// A thread checks the budget each time it has allocated this much more. The memory counted for a query may be off by
/// this much per thread.
const CHECK_INTERVAL_BYTES: i64 = 256 << 10;

/// An account reserves at least this much at once, so that not every check goes to the budget.
const RESERVE_BYTES: i64 = 1 << 20;

/// After an account that reserved this much or more has ended, the allocator is asked to return memory to the
/// system. Less may stay in the allocator's arenas: the memory limit leaves room for that beside the budget.
const PURGE_BYTES: i64 = 8 << 20;

/// The memory of one query. Dropping it releases everything.
#[derive(Debug)]
pub struct Account {
    budget: Arc<Budget>,
    /// Whether memory still held when a thread leaves the account is no longer counted from then on.
    resets_on_leave: bool,
    state: Mutex<AccountState>,
}

#[derive(Debug)]
struct AccountState {
    owner: Owner,
    /// Bytes allocated minus bytes freed by threads that worked for the account.
    held: i64,
    reserved: i64,
    /// The most that was ever reserved.
    reserved_max: i64,
}

thread_local! {
    static THREAD_ACCOUNT: RefCell<ThreadAccount> =
        const { RefCell::new(ThreadAccount { account: None, base: 0, has_checked: false }) };
    /// The net allocations at which the budget is checked next.
    static CHECK_AT: Cell<i64> = const { Cell::new(i64::MAX) };
}

/// The account that this thread works for, and its net allocations when they were last charged.
struct ThreadAccount {
    account: Option<Arc<Account>>,
    base: i64,
    /// Whether the budget was checked since the thread entered the account.
    has_checked: bool,
}

impl Account {
    /// An account of a query that reserves from `budget`.
    #[must_use]
    pub fn new(budget: Arc<Budget>) -> Arc<Account> {
        Arc::new(Account { budget, resets_on_leave: false, state: Mutex::new(AccountState::new()) })
    }

    /// An account for many short queries, one after the other. Memory that they allocated and did not free (responses,
    /// log entries) is no longer counted when each ends.
    #[must_use]
    pub fn for_short_queries(budget: Arc<Budget>) -> Arc<Account> {
        Arc::new(Account { budget, resets_on_leave: true, state: Mutex::new(AccountState::new()) })
    }

    /// The account this thread works for.
    #[must_use]
    pub fn current() -> Option<Arc<Account>> {
        THREAD_ACCOUNT.with_borrow(|current| current.account.clone())
    }

    /// Charges this thread's allocations to this account, until the guard is dropped.
    pub fn enter(self: &Arc<Account>) -> AccountGuard {
        AccountGuard { before: switch(Some(self.clone())), this_thread: PhantomData }
    }

    /// Stops counting `bytes` that were allocated here and now belong to another owner.
    pub fn disown(&self, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.with_state(|state| state.held = state.held.saturating_sub(bytes));
    }

    /// Fails unless `bytes` more could be reserved now.
    pub fn check_room(&self, bytes: u64) -> Result<(), OverBudget> {
        let owner = self.with_state(|state| state.owner);
        self.budget.check(owner, bytes)
    }

    /// Moves the reservation, adjusted to the exact bytes held, to `owner`: the query now waits (or runs again).
    pub fn move_to(&self, owner: Owner) {
        self.with_state(|state| {
            self.set_reserved(state, state.held.max(0));
            self.budget.transfer(state.owner, owner, state.reserved.unsigned_abs());
            state.owner = owner;
        });
    }

    /// Adds the allocations of a thread. Reserves more if they exceed the reservation; fails if that is refused.
    fn add(&self, bytes: i64) -> Result<(), OverBudget> {
        self.with_state(|state| {
            state.held = state.held.saturating_add(bytes);
            if state.held > state.reserved {
                let requested = (state.held - state.reserved).max(RESERVE_BYTES);
                self.budget.reserve(state.owner, requested.unsigned_abs())?;
                state.reserved += requested;
                state.reserved_max = state.reserved_max.max(state.reserved);
            } else if state.reserved - state.held.max(0) > 4 * RESERVE_BYTES {
                self.set_reserved(state, state.held.max(0) + RESERVE_BYTES);
            }
            Ok(())
        })
    }

    fn set_reserved(&self, state: &mut AccountState, bytes: i64) {
        if bytes > state.reserved {
            self.budget.reserve_unchecked(state.owner, (bytes - state.reserved).unsigned_abs());
        } else {
            self.budget.release(state.owner, (state.reserved - bytes).unsigned_abs());
        }
        state.reserved = bytes;
    }

    /// Releases everything. Much memory is first returned to the system, then to the budget, so that the next account
    /// cannot reserve memory that the process still holds.
    fn end(&self) {
        if self.with_state(|state| std::mem::take(&mut state.reserved_max)) >= PURGE_BYTES {
            return_freed();
        }
        self.with_state(|state| {
            state.held = 0;
            self.set_reserved(state, 0);
        });
    }

    fn with_state<R>(&self, change: impl FnOnce(&mut AccountState) -> R) -> R {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl AccountState {
    fn new() -> AccountState {
        AccountState { owner: Owner::Queries, held: 0, reserved: 0, reserved_max: 0 }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.end();
    }
}

/// Fails if this thread works for an account that has allocated more than it may reserve. Nearly free; to be called
/// wherever much may be allocated.
pub fn check() -> Result<(), OverBudget> {
    if net() <= CHECK_AT.get() { Ok(()) } else { check_budget() }
}

#[cold]
fn check_budget() -> Result<(), OverBudget> {
    THREAD_ACCOUNT.with_borrow_mut(|current| {
        current.has_checked = true;
        let checked = current.settle();
        // After a refusal the next call checks again at once, so that ignoring the error does not help.
        CHECK_AT.set(if checked.is_ok() {
            current.base.saturating_add(CHECK_INTERVAL_BYTES)
        } else {
            i64::MIN
        });
        checked
    })
}

impl ThreadAccount {
    /// Charges the allocations since the last call to the account.
    fn settle(&mut self) -> Result<(), OverBudget> {
        let now = net();
        let bytes = now.wrapping_sub(self.base);
        self.base = now;
        self.account.as_ref().map_or(Ok(()), |account| account.add(bytes))
    }
}

/// Switches this thread to `account`; returns the previous one.
fn switch(account: Option<Arc<Account>>) -> Option<Arc<Account>> {
    THREAD_ACCOUNT.with_borrow_mut(|current| {
        match &current.account {
            Some(previous) if previous.resets_on_leave => {
                if current.has_checked {
                    previous.end();
                }
                current.base = net();
            }
            // An error now would not reach the query: its next check reports it. The memory held is counted in any
            // case.
            _ => drop(current.settle()),
        }
        current.has_checked = false;
        CHECK_AT.set(if account.is_some() {
            current.base.saturating_add(CHECK_INTERVAL_BYTES)
        } else {
            i64::MAX
        });
        std::mem::replace(&mut current.account, account)
    })
}

/// While it lives, this thread works for an account.
#[must_use]
#[derive(Debug)]
pub struct AccountGuard {
    before: Option<Arc<Account>>,
    /// Bound to the thread that created it.
    this_thread: PhantomData<*const ()>,
}

impl Drop for AccountGuard {
    fn drop(&mut self) {
        let before = self.before.take();
        drop(switch(before));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    #[global_allocator]
    static ALLOCATOR: crate::memory::Metered<std::alloc::System> = crate::memory::Metered(std::alloc::System);

    fn bytes(count: u64) -> Vec<u8> {
        vec![1; usize::try_from(count).expect("a small number")]
    }

    #[test]
    fn allocations_are_reserved_and_released() {
        let budget = Budget::new(100 * MB);
        let account = Account::new(budget.clone());
        let work = account.enter();
        let large = bytes(20 * MB);
        assert_eq!(check(), Ok(()));
        let reserved = budget.reserved_by(Owner::Queries);
        assert!((20 * MB..22 * MB).contains(&reserved), "{reserved}");
        drop(large);
        let small = bytes(MB);
        assert_eq!(check(), Ok(()), "not looked at: less is held than before");
        drop(work);
        let reserved = budget.reserved_by(Owner::Queries);
        assert!((MB..6 * MB).contains(&reserved), "{reserved}");
        drop(small);
        drop(account);
        assert_eq!(budget.reserved_by(Owner::Queries), 0);
    }

    #[test]
    fn more_than_there_is_is_refused_until_it_is_freed() {
        let budget = Budget::new(10 * MB);
        let account = Account::new(budget.clone());
        let _work = account.enter();
        assert_eq!(check(), Ok(()));
        let large = bytes(20 * MB);
        assert!(check().is_err());
        assert!(check().is_err(), "asking again does not help");
        drop(large);
        assert_eq!(check(), Ok(()));
    }

    #[test]
    fn threads_share_an_account() {
        let budget = Budget::new(10 * MB);
        let account = Account::new(budget.clone());
        let held = std::thread::scope(|scope| {
            let thread = || {
                let _work = account.enter();
                let held = bytes(4 * MB);
                (check().is_ok(), held)
            };
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(thread)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
        });
        assert_eq!(held.iter().filter(|(granted, _)| *granted).count(), 2, "the third is too much");
    }

    #[test]
    fn a_thread_without_an_account_is_not_counted() {
        let budget = Budget::new(MB);
        let account = Account::new(budget.clone());
        let work = account.enter();
        let inner = Account::new(Budget::unlimited());
        let within = inner.enter();
        let large = bytes(20 * MB);
        assert_eq!(check(), Ok(()), "on the inner account");
        drop(within);
        assert_eq!(check(), Ok(()), "not on the outer");
        drop(work);
        let more = bytes(20 * MB);
        assert_eq!(check(), Ok(()));
        drop((large, more));
    }

    #[test]
    fn an_account_that_waits_is_exact() {
        let budget = Budget::new(100 * MB);
        let account = Account::new(budget.clone());
        let work = account.enter();
        // Both are size classes of the allocator.
        let (kept, given) = (bytes(96 << 10), bytes(48 << 10));
        drop(work);
        account.disown(48 << 10);
        account.move_to(Owner::Cursors);
        let reserved = budget.reserved_by(Owner::Cursors);
        assert!((96 << 10..106 << 10).contains(&reserved), "{reserved}");
        assert_eq!(budget.reserved_by(Owner::Queries), 0);
        account.move_to(Owner::Queries);
        assert_eq!(budget.reserved_by(Owner::Cursors), 0);
        drop((kept, given));
    }

    #[test]
    fn an_account_for_short_queries_is_reset() {
        let budget = Budget::new(10 * MB);
        let account = Account::for_short_queries(budget.clone());
        let mut kept = Vec::new();
        for _ in 0..20 {
            let _work = account.enter();
            kept.push(bytes(MB));
            assert_eq!(check(), Ok(()));
        }
        assert_eq!(budget.reserved_by(Owner::Queries), 0);
        let _work = account.enter();
        let large = bytes(20 * MB);
        assert!(check().is_err());
        drop(large);
    }
}
