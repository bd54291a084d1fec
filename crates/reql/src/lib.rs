//! The language without the world: terms, signatures, closed functions, transforms, terminals.
//!
//! A query arrives as bytes ([`wire`]), becomes a [`Term`] checked against its
//! [`signature`], and is evaluated by [`eval`]. Everything here is a function of its arguments;
//! terms that touch tables or the network are handed to the caller through [`OpenTerms`].

pub mod args;
mod backtrace;
mod closure;
mod deep;
mod env;
mod error;
pub mod op;
mod printf;
mod scope;
pub mod signature;
mod term;
pub mod wire;

pub use args::{Arg, Args};
pub use backtrace::{Backtrace, Frame};
pub use closure::{Closure, Run};
pub use env::{ARRAY_LIMIT_DEFAULT, Cancel, Chance, Env, OpenTerms, SeededChance};
pub use error::{CompileError, ErrorClass, EvalError};
pub use scope::Scope;
pub use signature::Op;
pub use term::{Call, FuncTerm, Term, Traits, VarId};
