//! Sequences: sources of items, the steps they take, and terms that need all items.

mod bucketed_rows;
mod gather;
mod indexed;
mod interleave;
mod keys;
mod open;
mod pipe;
mod plan;
mod renamed_index;
pub(crate) mod row_reads;
mod rows;
mod scan_range;
mod shapes;
mod steps;

pub(crate) use gather::{LocalRows, count_each, gather};
pub(crate) use indexed::{Distinct, Indexed, ShardIndexRange, Ties};
pub(crate) use interleave::{Buckets, Next, ROUND_ROWS};
pub(crate) use keys::KeySource;
pub(crate) use open::FoundRange;
pub(crate) use pipe::{Pipe, Source};
pub(crate) use plan::{OrderSeen, condition, names_few};
pub(crate) use renamed_index::by_function;
pub(crate) use rows::{RowSource, Rows, ShardRange};
