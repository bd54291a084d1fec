//! JavaScript in queries: the traits that run it, and the sessions of a query.
//!
//! Scripts do not run in this process: the caller of this crate implements [`Scripts`].

mod runner;
mod sandbox;

pub use sandbox::{FunctionId, ScriptAnswer, ScriptFailure, ScriptLimits, ScriptSession, Scripts};

pub(crate) use runner::{Script, ScriptRunner, ScriptValue};
