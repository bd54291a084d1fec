//! Writing rows: what becomes of one row, how many rows are written at once, and the result
//! that a write term answers.

mod drive;
mod merge;
mod options;
mod planned;
mod report;
mod system;

pub(crate) use drive::{WriteExecutor, decision, has_moved, is_refused};
pub(crate) use merge::{has_changed, merge_results};
pub(crate) use options::{WriteOptions, durability_of, return_changes};
pub(crate) use planned::PlannedWrites;
pub(crate) use report::WriteResult;
