//! Sequences of an open query: where their items come from and the steps they take.

mod indexed;
mod pipe;
mod rows;

pub(crate) use indexed::{Distinct, IndexItems, IndexPart, IndexRead, Ties, ValuesOf};
pub(crate) use pipe::{Pipe, Source};
pub(crate) use rows::{KeyOrder, KeySource, RowPart, RowSource};
