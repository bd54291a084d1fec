//! Random queries against a node and against an evaluator of its own, which is plain, slow and
//! written from the rules rather than from the node's code. The node is one in this process with the engine in
//! memory ([`Party`]), every fourth time behind questions to another one, or a program on its disk, which is asked
//! by the protocol of drivers. One query in eight has a limit on arrays of its own.
//!
//! - [`Generator`]: queries; [`TestTables`]: the tables they are about
//! - [`verdict::verdict`]: what every correct server answers, if the rules say so
//! - [`run()`]: compares, and makes the first difference small
//! - [`coverage`]: which terms were asked for; a test fails when one never is
//!
//! # What is left open
//!
//! The reference has no opinion, and the query counts as open, where the rules have none. The reasons
//! are counted (`--terms`):
//!
//! - several mistakes of different classes in one term, in several groups, in several sequences, or in an
//!   item and in what is done with an earlier one: which of them is told depends on how many items a
//!   server has read by then, and on how many threads;
//! - what has another value in another order of rows that have none (all orders of a run of six must
//!   agree), ties between sequences that are merged, `replace` of a row that is not there;
//! - shapes of which a corner is on an edge of another, distances from such places and to edges equally far away,
//!   nearly antipodal places, ellipsoids unlike the earth;
//! - array limits of one, and under any: groups that come and go before they are read, more shapes from an index
//!   than an array may hold, changes of which some are errors, nested arrays in what `pluck` and `without` take;
//! - of `now`, `random`, `uuid` and `sample` only the type or the number of items is compared, unless what
//!   is asked of them is the same for every value; of texts of errors, nothing;
//! - what `strtod` reads, times near the years 1400 and 9999, keys that are nearly too long.

#![forbid(unsafe_code)]

// The node in memory is shared with the tests of `query`, which know the crates by these names.
extern crate query as rekindle_query;

pub mod database;
pub mod evaluator;
pub mod fault;
pub mod generate;
#[path = "../../crates/query/tests/support/mod.rs"]
#[allow(missing_docs, reason = "it belongs to the tests of `query`")]
mod house;
pub mod node;
mod run;
mod shrink;
pub mod term_coverage;
pub mod test_tables;
pub mod value;
pub mod verdict;
pub mod wire;

pub use generate::{Generator, Query};
pub use node::Party;
pub use run::{Bench, Compared, Found, Options, query_of, run};
pub use test_tables::TestTables;
