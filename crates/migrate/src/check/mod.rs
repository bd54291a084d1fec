//! `rekindle migrate check`: the differences from RethinkDB that touch an application's indexes, hooks and running queries.

mod rules;
mod scan;

pub use rules::{RULES, Rule};
pub use scan::{Check, Finding, check};
