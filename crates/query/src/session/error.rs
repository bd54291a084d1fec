//! Why a query did not get an answer.

use reql::{CompileError, EvalError};

/// A query that failed: refused before it ran, or while it ran.
#[derive(Clone, Debug, thiserror::Error)]
pub enum QueryError {
    /// Nothing ran: the client is told of a CLIENT_ERROR or COMPILE_ERROR.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// Evaluation failed: the client is told of a RUNTIME_ERROR with its class.
    #[error(transparent)]
    Eval(#[from] EvalError),
}
