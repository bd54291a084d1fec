//! The tables, indexes, hooks, users and permissions of a cluster, and the plan by which the target gets them.

mod facts;
mod make;
mod parts;
mod plan;
mod read;
mod shards;
mod show;
mod users;

pub use facts::{Catalog, Grant, Hook, Index, ServerFacts, Shard, TableFacts, User};
pub use make::{HookOutcome, create_tables, make_hooks, make_indexes, make_users, wait_for_indexes};
pub use parts::{added, parts};
pub use plan::{Plan, Request, TablePlan, UserPlan, plan};
pub use read::{Scope, read, read_hook};
pub use show::{as_json, lines};
pub use users::{Passwords, read_passwords};
