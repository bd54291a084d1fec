//! Compares random queries on a node and on a reference evaluator, which is plain, slow and written from the rules, not
//! from the code of the node. The node is in this process with its engine in memory ([`Target`]), one time in four behind
//! RPCs to another node; or it is a program, reached by the driver protocol. One query in eight has an array limit.
//!
//! - [`Generator`]: random queries; [`TestTables`]: their tables
//! - [`verdict::verdict`]: the result of every correct server, where the rules determine one
//! - [`run()`]: compares results and reduces the first difference
//! - [`term_coverage`]: the terms in the queries; a test fails if a term of the language is in none
//!
//! # Open queries
//!
//! Where the rules determine no result, the reference has no verdict and the query counts as open. The reasons are counted
//! (`--terms`):
//!
//! - several errors of different classes in one term, in several groups, in several sequences, or in an item and in the
//!   processing of an earlier one: the reported error depends on the number of items that a server has read by then, and
//!   on the number of threads;
//! - values that depend on the order of unordered rows (all orders of a run of six must agree), ties between merged
//!   sequences, `replace` of a missing row;
//! - shapes with a corner on an edge of another shape, distances from such places and to edges of equal distance, nearly
//!   antipodal places, ellipsoids unlike the earth;
//! - array limits of one, and under any limit: groups that appear and disappear before they are read, more shapes from an
//!   index than an array may hold, changes of which some are errors, nested arrays in arguments of `pluck` and `without`;
//! - the values of `now`, `random`, `uuid` and `sample`, of which only the type or the number of items is compared, unless
//!   an expression over them has the same result for every value; the texts of errors;
//! - numbers that only `strtod` accepts, times near the years 1400 and 9999, keys that are nearly too long.

#![forbid(unsafe_code)]

// The node in memory is shared with the tests of `query`, which know the crates by these names.
extern crate query as rekindle_query;

pub mod database;
pub mod evaluator;
pub mod fault;
pub mod generate;
pub mod node;
mod run;
mod shrink;
pub mod term_coverage;
#[path = "../../crates/query/tests/support/mod.rs"]
mod test_node;
pub mod test_tables;
pub mod value;
pub mod verdict;
pub mod wire;

pub use generate::{Generator, Query};
pub use node::Target;
pub use run::{Compared, Comparison, Options, RunResult, query_of, run};
pub use test_tables::TestTables;
