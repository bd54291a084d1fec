//! The language without the world: terms, signatures, closed functions, transforms, terminals.
//!
//! A query arrives as bytes and becomes a [`Term`] that is known to be legal ([`wire`]); its
//! [`signature`] says what each term is. [`eval()`] walks it. Everything here is a function of its
//! arguments; what touches tables or the network is handed to [`OpenTerms`].
//!
//! Sequence terms are made into an [`Operation`] of their arguments, which works on arrays, on
//! streams ([`stream`]) and, taken apart into [`Transform`]s, a [`GroupBy`] and a [`Terminal`], in
//! a [`Pipeline`] where the rows are, which may be another node ([`travel`]). What a pipeline asks of
//! plain fields is found in the stored bytes ([`Direct`]).

#![forbid(unsafe_code)]

pub mod args;
mod backtrace;
mod batches;
mod closure;
mod deep;
mod direct;
pub mod effort;
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
pub mod travel;
mod value;
mod walk;
pub mod wire;

pub use args::{Arg, Args};
pub use backtrace::{Backtrace, Frame, Way};
pub use batches::BatchLimits;
pub use closure::{Answer, Answered, Closure, Run};
pub use direct::{Direct, Pushed};
pub use env::{ARRAY_LIMIT_DEFAULT, Cancel, Chance, Env, Foreign, OpenTerms, OpenValue, SeededChance};
pub use error::{CompileError, ErrorClass, EvalError, infinite, not_a_sequence};
pub use eval::{
    IndexOption, apply, closure, closure_of_argument, closure_of_predicate, closure_of_right_side, eval,
    eval_patch, eval_value, failed, interleave, operation, splice,
};
pub use group::GroupBy;
pub use operation::{
    Extras, Operation, build, check_source, gathered, is_of_sequences, is_operation, looks_first,
};
pub use order::{Direction, Order, SortKey, by_nothing, compare, needs_table, sort, sort_key};
pub use pipeline::{Pipeline, Tally};
pub use printf::g20;
pub use scope::Scope;
pub use select::{Filter, FilterTest, OnMissing, Predicate, Selector};
pub use signature::Op;
pub use stored::StoredFunc;
pub use term::{Call, FuncTerm, Term, Traits, VarId};
pub use terminal::{Partial, Taken, Terminal};
pub use transform::{Emitted, Flow, Transform, map_array, run};
pub use value::{Grouped, GroupedKind, Grouping, Value};
