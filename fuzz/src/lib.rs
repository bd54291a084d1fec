//! Fuzz targets for every place where bytes from outside are read, and the loop that feeds them.
//!
//! Runs on the stable toolchain: docs/decisions/0005-fuzzing-on-stable.md.
//!
//! - [`targets`]: what is fuzzed, and what must hold for any bytes
//! - [`mutate`]: new inputs out of old ones
//! - [`run`]: the loop, in a thread with a server thread's stack
//! - [`kept`]: inputs that earlier runs found worth keeping
//! - [`supervise`]: a process that may die, and the input that killed it

#![forbid(unsafe_code)]

pub mod kept;
pub mod mutate;
pub mod run;
pub mod supervise;
pub mod targets;
