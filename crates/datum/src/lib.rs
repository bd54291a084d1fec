//! A JSON value with ReQL's types, its total order, its stored form and its key form.
//!
//! Bottom of the river: knows nothing of tables, terms or machines.

mod kind;
mod number;
mod object;
mod order;
mod print;
mod time;
mod value;

pub use bytes::Bytes;
pub use bytestring::ByteString as Text;
pub use kind::Kind;
pub use object::{Object, ObjectBuilder};
pub use time::Time;
pub use value::{Array, Datum};
