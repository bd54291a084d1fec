//! The memory of the process as one budget, shared by all of its large users.
//!
//! Caches have fixed sizes, which are set aside. Running queries, open cursors and connections reserve the rest in
//! chunks. A reservation that exceeds it is refused: the query fails, and the process survives.
//!
//! - [`Budget`]: the total, and the reservations of each owner
//! - [`Account`]: the allocations of one query on all its threads, as counted by the allocator
//! - [`Reservation`]: the memory of a buffer of known size
//! - [`Metered`]: the allocator that counts
//! - [`freed_bytes`], [`return_freed`]: freed memory that the allocator keeps
//!
//! A thread's allocations are charged to the account it has [entered](Account::enter). Code that may allocate without
//! bounds calls [`check`] from time to time. Without [`Metered`] nothing is counted.

mod account;
mod allocator;
mod budget;
mod metered;

pub use account::{Account, AccountGuard, check};
pub use allocator::{freed_bytes, return_freed};
pub use budget::{Budget, OverBudget, Owner, Reservation};
pub use metered::Metered;
