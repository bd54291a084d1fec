//! JavaScript in queries: who runs it, and what a query keeps of it.
//!
//! Scripts do not run in this process: [`Scripts`] is implemented where processes are.

mod runner;
mod sandbox;

pub use sandbox::{FunctionId, ScriptAnswer, ScriptFailure, ScriptLimits, ScriptSession, Scripts};

pub(crate) use runner::{Script, ScriptRunner, ScriptValue};
