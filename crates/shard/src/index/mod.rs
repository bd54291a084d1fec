//! Secondary indexes of a shard: what they hold of a row, reading by them, building them.

mod def;
mod kept;
mod range;
mod read;
mod shapes;

pub(crate) use def::changes;
pub use def::{IndexDef, IndexDefs, IndexKind};
pub(crate) use kept::KeptIndexes;
pub use range::{Bounds, Side};
pub use read::{IndexError, IndexPlace, IndexPosition, IndexQuery, IndexRow, IndexRows, RowOrder};
pub use shapes::{ShapeHits, ShapeIndex};
