//! The memory of the process, as one budget that everybody who may need much of it draws from.
//!
//! Caches have sizes of their own, which are set aside. What is left is drawn in chunks by running
//! queries, open cursors and connections, and a draw that would exceed it is refused: the query gets
//! an error, the process lives.
//!
//! - [`Budget`]: how much there is, and who has drawn how much
//! - [`Account`]: what one query has allocated, on all its threads, read off the allocator
//! - [`Reservation`]: a buffer of known size
//! - [`Metered`]: the allocator that counts
//!
//! A thread's allocations go on the account it [entered](Account::enter); [`check`] is asked now
//! and then by whoever may allocate without bounds. Without [`Metered`] nothing is counted.

mod account;
mod allocator;
mod budget;
mod metered;

pub use account::{Account, AccountGuard, check};
pub use budget::{Budget, OverBudget, Owner, Reservation};
pub use metered::Metered;
