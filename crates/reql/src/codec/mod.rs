//! What travels between nodes: closures, steps, pipelines and partial results as bytes, so that
//! they are carried out where the rows are. docs/formats/request.md is the format.
//!
//! Whatever comes in is checked as if a stranger had sent it: no bytes make it panic, and what is
//! read back is as legal as what a client's query compiles to.

mod eval_error;
mod packer;
mod steps;
mod tally;
mod term;
mod value;

pub use packer::{BYTES_MAX, Codec, PackError, Packer, UnpackError, Unpacker};
