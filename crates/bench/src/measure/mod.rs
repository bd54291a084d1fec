//! What is recorded while operations run: histograms per operation and second, failures, and their
//! sum over threads and seconds. Nothing is averaged before the end and nothing is cut.

pub mod collect;
pub mod histogram;
pub mod interval;
pub mod stability;
