//! Measurements of running operations: histograms per operation and second, failures, and their sums over threads and
//! seconds. Histograms are merged, never averaged or truncated.

pub mod collect;
pub mod histogram;
pub mod interval;
pub mod stability;
