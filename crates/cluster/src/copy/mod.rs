//! Copies of a replica's rows: given by a leader from one snapshot, piece by piece at the pace of the receiver, and put in place
//! of the rows of a replica that has none that count. Rows that are there already, from an interrupted copy or from before, are
//! compared and stay: decision 0032.

mod progress;
mod service;

pub use progress::{CopyChunking, CopyProgress};
pub use service::Copies;
