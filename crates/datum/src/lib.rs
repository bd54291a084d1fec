//! A JSON value with ReQL's types, its total order, its stored form and its key form.
//!
//! Lowest layer of the workspace: knows nothing of tables, terms or servers.
//!
//! - [`Datum`], [`Object`], [`Array`], [`Time`]: the value; cheap to clone, lazy when stored
//! - [`json`]: text to values; [`Datum::write_json`], [`Datum::pretty`]: values to text
//! - [`Scalar`]: a simple value read in place from a stored row
//! - [`cancel`]: ends long walks through values when the work they are for is cancelled
//! - [`pseudo`]: times, binaries, shapes and literals as `$reql_type$` objects
//! - [`row`]: the bytes of a stored row; [`key`]: the bytes of a key, in the order of values

#![forbid(unsafe_code)]

mod binary;
pub mod cancel;
mod compact;
pub mod deep;
mod escape;
pub mod json;
mod json_error;
pub mod key;
mod kind;
mod layout;
mod number;
mod object;
mod order;
mod print;
pub mod pseudo;
mod ptype;
mod raw;
mod reader;
mod restored_row;
pub mod row;
mod saslprep;
mod scalar;
mod size;
mod splice;
mod time;
mod utf8;
mod value;

pub use bytes::Bytes;
pub use bytestring::ByteString as Text;
pub use escape::may_be_escape;
pub use json::JsonError;
pub use key::{KeyBound, KeyError, KeyRange, PrimaryKey};
pub use kind::Kind;
pub use number::format_number;
pub use object::ObjectBuilder;
pub use restored_row::RestoredRow;
pub use row::CorruptRow;
pub use saslprep::saslprep;
pub use scalar::Scalar;
pub use time::Time;
pub use utf8::text_from_bytes;
pub use value::{Array, Datum, Object};
