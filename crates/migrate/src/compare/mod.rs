//! Compares a range of keys on both sides: by digests, then row by row.

mod merge;
mod read;

pub use merge::{Difference, DifferenceKind, merge};
pub use read::{Digest, Rows, digest, read_keys, read_rows, rows_with_keys};
