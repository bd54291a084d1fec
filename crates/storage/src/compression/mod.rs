//! Rows compressed one by one with zstd and dictionaries trained from their own table: `docs/decisions/0047-compressed-rows.md`.
//!
//! [`CompressedEngine`] stands between the write buffer and the engine on disk. Rows above it are never compressed, and
//! rows below it are, where that makes them smaller: so no other code knows of it. A row is compressed when the write
//! buffer is flushed, once for all writes of it that the buffer has gathered. Dictionaries are trained on a thread of
//! their own, and are in the engine before any row that needs them. Rows that have settled are compressed again, better:
//! [`settling`].

mod background;
mod compressed_engine;
mod compressed_row;
mod dictionary;
mod in_use;
mod policy;
mod prepared;
mod samples;
mod settled;
mod settled_encoder;
mod settled_tables;
mod settling;
mod tables;
mod training;
mod view;

pub use compressed_engine::{CompressedEngine, CompressionOptions};
pub(crate) use dictionary::is_intact_dictionary;
pub use settling::IsArchive;
