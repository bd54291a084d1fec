//! Errors of queries.

use reql::{CompileError, EvalError};

/// A query failed, before or while it ran.
#[derive(Clone, Debug, thiserror::Error)]
pub enum QueryError {
    /// The query was refused and did not run: CLIENT_ERROR or COMPILE_ERROR.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The evaluation failed: RUNTIME_ERROR with its class.
    #[error(transparent)]
    Eval(#[from] EvalError),
}
