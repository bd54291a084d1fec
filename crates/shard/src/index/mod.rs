//! Secondary indexes of a shard: definitions, reads, and the set that writes maintain.

mod def;
mod geo;
mod maintained;
mod range;
mod read;

pub(crate) use def::changes;
pub use def::{IndexDef, IndexDefs, IndexKind};
pub use geo::{GeoIndexHits, GeoIndexReader};
pub(crate) use maintained::MaintainedIndexes;
pub use range::{Bounds, Side};
pub use read::{IndexCursor, IndexError, IndexQuery, IndexRow, IndexRowPosition, IndexRows, RowOrder};
