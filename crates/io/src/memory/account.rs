//! What one query has allocated, on whichever threads work for it.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use super::allocator::purge;
use super::budget::{Budget, OverBudget, Owner};
use super::metered::net;

/// A thread looks at the budget each time it has allocated this much more. What a query holds may
/// be wrong by this much per thread.
const STEP_BYTES: i64 = 256 << 10;

/// An account draws this much at once, so that the budget is not asked at every step.
const DRAW_BYTES: i64 = 1 << 20;

/// Whoever drew as much as this at once leaves enough behind for the allocator to be told. What the others leave, in each
/// of an allocator's arenas, has room beside what is budgeted.
const PURGE_BYTES: i64 = 8 << 20;

/// What one query holds. Dropping it gives everything back.
#[derive(Debug)]
pub struct Account {
    budget: Arc<Budget>,
    /// Whether what is held when the work ends belongs to somebody else from then on.
    is_brief: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    owner: Owner,
    /// Allocated less freed by threads that worked for the account.
    held: i64,
    drawn: i64,
    /// The most that was ever drawn.
    drawn_max: i64,
}

thread_local! {
    static DESK: RefCell<Desk> = const { RefCell::new(Desk { account: None, base: 0, has_looked: false }) };
    /// The net allocations at which the budget is to be looked at.
    static LOOK_AT: Cell<i64> = const { Cell::new(i64::MAX) };
}

/// Whom this thread works for, and its net allocations when it last said so.
struct Desk {
    account: Option<Arc<Account>>,
    base: i64,
    /// Whether the budget was looked at since it began to work for the account.
    has_looked: bool,
}

impl Account {
    /// An account of a query that draws from `budget`.
    #[must_use]
    pub fn new(budget: Arc<Budget>) -> Arc<Account> {
        Arc::new(Account { budget, is_brief: false, state: Mutex::new(State::new()) })
    }

    /// An account for many short queries, one after the other: what they allocated and did not free
    /// (answers, log entries) is forgotten when each ends.
    #[must_use]
    pub fn brief(budget: Arc<Budget>) -> Arc<Account> {
        Arc::new(Account { budget, is_brief: true, state: Mutex::new(State::new()) })
    }

    /// The account this thread works for.
    #[must_use]
    pub fn current() -> Option<Arc<Account>> {
        DESK.with_borrow(|desk| desk.account.clone())
    }

    /// From now on this thread's allocations go on this account, until the answer is dropped.
    pub fn enter(self: &Arc<Account>) -> Work {
        Work { before: switch(Some(self.clone())), this_thread: PhantomData }
    }

    /// Somebody else keeps `bytes` that were allocated here.
    pub fn give_away(&self, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.with_state(|state| state.held = state.held.saturating_sub(bytes));
    }

    /// Fails unless `bytes` more could be drawn now, on top of what was allocated.
    pub fn check_room(&self, bytes: u64) -> Result<(), OverBudget> {
        let owner = self.with_state(|state| state.owner);
        self.budget.draw(owner, bytes)?;
        self.budget.give_back(owner, bytes);
        Ok(())
    }

    /// The query waits (or works again): what it holds is drawn by `owner` from now on, to the byte.
    pub fn move_to(&self, owner: Owner) {
        self.with_state(|state| {
            self.set_drawn(state, state.held.max(0));
            self.budget.hand_over(state.owner, owner, state.drawn.unsigned_abs());
            state.owner = owner;
        });
    }

    /// Adds what a thread allocated. Draws more when that is not covered; fails when it is refused.
    fn add(&self, bytes: i64) -> Result<(), OverBudget> {
        self.with_state(|state| {
            state.held = state.held.saturating_add(bytes);
            if state.held > state.drawn {
                let wanted = (state.held - state.drawn).max(DRAW_BYTES);
                self.budget.draw(state.owner, wanted.unsigned_abs())?;
                state.drawn += wanted;
                state.drawn_max = state.drawn_max.max(state.drawn);
            } else if state.drawn - state.held.max(0) > 4 * DRAW_BYTES {
                self.set_drawn(state, state.held.max(0) + DRAW_BYTES);
            }
            Ok(())
        })
    }

    fn set_drawn(&self, state: &mut State, bytes: i64) {
        if bytes > state.drawn {
            self.budget.draw_anyway(state.owner, (bytes - state.drawn).unsigned_abs());
        } else {
            self.budget.give_back(state.owner, (state.drawn - bytes).unsigned_abs());
        }
        state.drawn = bytes;
    }

    /// Gives everything back: to the system, when it was much, and then to the budget, so that nobody draws it
    /// who cannot have it yet.
    fn end(&self) {
        if self.with_state(|state| std::mem::take(&mut state.drawn_max)) >= PURGE_BYTES {
            purge();
        }
        self.with_state(|state| {
            state.held = 0;
            self.set_drawn(state, 0);
        });
    }

    fn with_state<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    fn new() -> State {
        State { owner: Owner::Queries, held: 0, drawn: 0, drawn_max: 0 }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.end();
    }
}

/// Fails when this thread works for an account that has allocated more than it may draw. Nearly
/// free; to be asked wherever much may be allocated.
pub fn check() -> Result<(), OverBudget> {
    if net() <= LOOK_AT.get() { Ok(()) } else { look() }
}

#[cold]
fn look() -> Result<(), OverBudget> {
    DESK.with_borrow_mut(|desk| {
        desk.has_looked = true;
        let looked = desk.settle();
        // Who was refused is asked again at once, so that ignoring the error does not help.
        LOOK_AT.set(if looked.is_ok() { desk.base.saturating_add(STEP_BYTES) } else { i64::MIN });
        looked
    })
}

impl Desk {
    /// Puts what was allocated since the last time on the account.
    fn settle(&mut self) -> Result<(), OverBudget> {
        let now = net();
        let bytes = now.wrapping_sub(self.base);
        self.base = now;
        self.account.as_ref().map_or(Ok(()), |account| account.add(bytes))
    }
}

/// Makes this thread work for `account`; answers for whom it did before.
fn switch(account: Option<Arc<Account>>) -> Option<Arc<Account>> {
    DESK.with_borrow_mut(|desk| {
        match &desk.account {
            Some(leaving) if leaving.is_brief => {
                if desk.has_looked {
                    leaving.end();
                }
                desk.base = net();
            }
            // A refusal now finds its query when it asks next; what is here already is known.
            _ => drop(desk.settle()),
        }
        desk.has_looked = false;
        LOOK_AT.set(if account.is_some() { desk.base.saturating_add(STEP_BYTES) } else { i64::MAX });
        std::mem::replace(&mut desk.account, account)
    })
}

/// This thread works for an account as long as this lives.
#[must_use]
#[derive(Debug)]
pub struct Work {
    before: Option<Arc<Account>>,
    /// Belongs to the thread it was made on.
    this_thread: PhantomData<*const ()>,
}

impl Drop for Work {
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
    fn what_is_allocated_is_drawn_and_given_back() {
        let budget = Budget::new(100 * MB);
        let account = Account::new(budget.clone());
        let work = account.enter();
        let large = bytes(20 * MB);
        assert_eq!(check(), Ok(()));
        let drawn = budget.drawn_by(Owner::Queries);
        assert!((20 * MB..22 * MB).contains(&drawn), "{drawn}");
        drop(large);
        let small = bytes(MB);
        assert_eq!(check(), Ok(()), "not looked at: less is held than before");
        drop(work);
        let drawn = budget.drawn_by(Owner::Queries);
        assert!((MB..6 * MB).contains(&drawn), "{drawn}");
        drop(small);
        drop(account);
        assert_eq!(budget.drawn_by(Owner::Queries), 0);
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
    fn who_works_for_nobody_is_not_counted() {
        let budget = Budget::new(MB);
        let account = Account::new(budget.clone());
        let work = account.enter();
        let inner = Account::new(Budget::endless());
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
        // Both are sizes that an allocator has.
        let (kept, given) = (bytes(96 << 10), bytes(48 << 10));
        drop(work);
        account.give_away(48 << 10);
        account.move_to(Owner::Cursors);
        let drawn = budget.drawn_by(Owner::Cursors);
        assert!((96 << 10..106 << 10).contains(&drawn), "{drawn}");
        assert_eq!(budget.drawn_by(Owner::Queries), 0);
        account.move_to(Owner::Queries);
        assert_eq!(budget.drawn_by(Owner::Cursors), 0);
        drop((kept, given));
    }

    #[test]
    fn a_brief_account_forgets() {
        let budget = Budget::new(10 * MB);
        let account = Account::brief(budget.clone());
        let mut kept = Vec::new();
        for _ in 0..20 {
            let _work = account.enter();
            kept.push(bytes(MB));
            assert_eq!(check(), Ok(()));
        }
        assert_eq!(budget.drawn_by(Owner::Queries), 0);
        let _work = account.enter();
        let large = bytes(20 * MB);
        assert!(check().is_err());
        drop(large);
    }
}
