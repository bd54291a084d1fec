//! Random queries against a node and against an evaluator of its own, which is plain, slow and
//! written from the rules rather than from the node's code.
//!
//! - [`Generator`]: queries; [`Stage`]: the tables they are about
//! - [`verdict::verdict`]: what every correct server answers, if the rules say so
//! - [`run()`]: compares, and makes the first difference small

#![forbid(unsafe_code)]

// The node in memory is shared with the tests of `query`, which know the crates by these names.
extern crate query as rekindle_query;

pub mod args;
pub mod fault;
pub mod generate;
#[path = "../../crates/query/tests/support/mod.rs"]
#[allow(missing_docs, reason = "it belongs to the tests of `query`")]
mod house;
pub mod machine;
pub mod node;
mod run;
mod shrink;
pub mod stage;
mod terms;
pub mod thing;
pub mod value;
pub mod verdict;
pub mod world;

pub use generate::Generator;
pub use run::{Bench, Compared, Found, Options, run};
pub use stage::Stage;
