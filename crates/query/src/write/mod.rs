//! Writes of rows: their execution, their options, and the result of a write term.

mod executor;
mod merge;
mod options;
mod planned;
mod report;
mod system;

pub(crate) use executor::{WriteExecutor, decision, has_moved, is_refused};
pub(crate) use merge::{has_changed, merge_results};
pub(crate) use options::{durability_of, return_changes, write_options, write_options_showing};
pub(crate) use planned::PlannedWrites;
pub(crate) use report::WriteResult;
