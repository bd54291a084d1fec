//! The query language without storage or network: terms, signatures, closed functions, transforms, terminals.
//!
//! A query arrives as bytes and becomes a validated [`Term`] ([`wire`]); the [`signature`] table describes every
//! term. [`eval()`] evaluates it. A *closed* term is a function of its arguments and is evaluated here; an *open*
//! term accesses tables, the network or the current state of the cluster and is passed to [`OpenTerms`].
//!
//! A sequence term with its arguments becomes an [`Operation`], which works on arrays and on streams ([`stream`]).
//! Split into [`Transform`]s, a [`GroupBy`] and a [`Terminal`], it becomes a [`Pipeline`] that runs where the rows
//! are, possibly on another node ([`codec`]). Pipelines that need only plain fields read them from the stored bytes
//! ([`Direct`]).

#![forbid(unsafe_code)]

pub mod args;
mod backtrace;
mod batches;
mod closure;
pub mod codec;
pub mod cost;
mod deep;
mod direct;
mod env;
mod error;
mod eval;
pub mod geo;
mod group;
mod integer;
mod items;
pub mod op;
mod operation;
mod order;
mod pipeline;
pub mod print;
mod printf;
pub mod purity;
mod scope;
mod select;
pub mod signature;
mod sorting;
mod stored;
pub mod stream;
mod term;
mod terminal;
mod transform;
mod value;
mod walk;
pub mod wire;

pub use args::{Arg, Args};
pub use backtrace::{Backtrace, Frame, TermPath};
pub use batches::BatchLimits;
pub use closure::{CallResult, Closure, Evaluate, ResultKind};
pub use direct::{Direct, Pushed};
pub use env::{
    ARRAY_LIMIT_DEFAULT, Cancel, Env, Foreign, GlobalOption, OpenTerms, OpenValue, RandomSource,
    SeededRandom, global,
};
pub use error::{CompileError, ErrorClass, EvalError, not_a_sequence};
pub use eval::{
    IndexOption, apply, closure, closure_of_argument, closure_of_predicate, closure_of_right_side,
    difference_that_fails, eval, eval_patch, eval_value, failed, interleave, operation, splice,
};
pub use group::GroupBy;
pub use operation::{
    Extras, Operation, build, check_source, checks_source_first, collect_groups, is_of_sequences,
    is_operation,
};
pub use order::{Direction, Order, SortKey, compare, needs_table, nothing_to_order_by, sort, sort_key};
pub use pipeline::{Pipeline, Tally};
pub use printf::g20;
pub use scope::Scope;
pub use select::{Filter, FilterTest, OnMissing, Predicate, Selector};
pub use signature::Op;
pub use stored::{IndexFlags, IndexFunc, StoredFunc};
pub use term::{Call, FuncTerm, Term, Traits, VarId};
pub use terminal::{Counted, Partial, Terminal};
pub use transform::{Emitted, Flow, Transform, map_array, run};
pub use value::{Grouped, GroupedKind, Grouping, Value};
