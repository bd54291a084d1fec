//! Sequences of an open query: where their items come from and the steps they take.

mod deal;
mod handed;
mod indexed;
mod keys;
mod open;
mod pipe;
pub(crate) mod plan;
mod replaced;
mod rows;
mod shapes;
mod steps;

pub(crate) use crate::order::{IndexItems, IndexRead, KeyOrder, Wanted};
pub(crate) use deal::{Hands, STRETCH_ROWS, Turn};
pub(crate) use indexed::{Distinct, IndexPart, Indexed, Ties};
pub(crate) use keys::KeySource;
pub(crate) use open::Found;
pub(crate) use pipe::{Pipe, Source};
pub(crate) use plan::{OrderSeen, names_few};
pub(crate) use replaced::by_function;
pub(crate) use rows::{RowPart, RowSource, Rows};
