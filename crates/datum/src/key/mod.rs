//! Keys as bytes whose order is the order of the values: primary keys, bounds and ranges of them,
//! and the keys of secondary indexes. docs/formats/key.md is the format.

mod decode;
mod encode;
mod error;
mod hand;
mod primary;
mod range;
pub mod secondary;

pub use decode::CorruptKey;
pub use error::KeyError;
pub use hand::{HANDS, hand_of};
pub use primary::{PrimaryKey, bound_position, check_bound};
pub use range::{KeyBound, KeyRange};
