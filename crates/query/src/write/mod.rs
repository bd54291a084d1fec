//! Writing rows: what becomes of one row, how many rows are written at once, and the result
//! that a write term answers.

mod drive;
mod edit;
mod merge;
mod options;
mod report;

pub(crate) use drive::{Driver, EntryFill, Planned, decision};
pub(crate) use edit::{Conflict, Edit, Patch, RowReport, Target, key_missing};
pub(crate) use merge::merge_results;
pub(crate) use options::{ReturnChanges, WriteOptions, durability_of};
pub(crate) use report::WriteResult;
