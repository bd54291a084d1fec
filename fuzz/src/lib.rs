//! Fuzz targets for all code that reads untrusted bytes, and the loop that feeds them.
//!
//! Runs on the stable toolchain: docs/decisions/0005-fuzzing-on-stable.md.
//!
//! - [`targets`]: the code under test, and the properties that must hold for any bytes
//! - [`mutate`]: creates new inputs from old ones
//! - [`run`]: the loop, in a thread with the stack size of a server's thread
//! - [`corpus_cache`]: stored inputs of earlier runs
//! - [`supervise`]: runs the loop in a worker process that may die, and finds the input that killed it

#![forbid(unsafe_code)]

pub mod corpus_cache;
pub mod mutate;
pub mod run;
pub mod supervise;
pub mod targets;
