//! Codec for messages between nodes: closures, steps, pipelines and partial results as bytes, so that they can run
//! where the rows are. docs/formats/request.md is the format.
//!
//! Input is not trusted: no bytes cause a panic, and a decoded value is as valid as one compiled from a client's
//! query.

mod eval_error;
mod packer;
mod steps;
mod tally;
mod term;
mod value;

pub use packer::{BYTES_MAX, Codec, PackError, Packer, UnpackError, Unpacker};
