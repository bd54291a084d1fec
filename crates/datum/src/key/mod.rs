//! Encodes keys as bytes that sort like the values: primary keys, bounds and ranges of them, and the keys of
//! secondary indexes. docs/formats/key.md is the format.

mod bucket;
mod decode;
mod encode;
mod error;
mod primary;
mod range;
pub mod secondary;

pub use bucket::{BUCKETS, bucket_of};
pub use decode::CorruptKey;
pub use error::KeyError;
pub use primary::{PrimaryKey, bound_position, check_bound};
pub use range::{KeyBound, KeyRange};
