//! A failed query, and the numbers by which drivers know its error.
//!
//! Source: docs/reql-spec.md section 1.3.

use reql::{Backtrace, CompileError, ErrorClass, EvalError};

/// Which of the three error responses a failure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The bytes are not a query, or the query is not allowed at this time.
    Client,
    /// The query is not a legal tree of terms.
    Compile,
    /// Evaluation failed, with the class drivers turn into an exception.
    Runtime(ErrorClass),
}

/// The error of a query, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which of the three error responses.
    pub kind: FailureKind,
    /// The text a client sees.
    pub message: String,
    /// The path from the root of the query to the term that failed.
    pub backtrace: Backtrace,
}

impl Failure {
    /// A CLIENT_ERROR with this text.
    pub fn client(message: impl Into<String>) -> Failure {
        Failure { kind: FailureKind::Client, message: message.into(), backtrace: Backtrace::default() }
    }

    /// A RUNTIME_ERROR at the root of the query.
    pub fn runtime(class: ErrorClass, message: impl Into<String>) -> Failure {
        Failure {
            kind: FailureKind::Runtime(class),
            message: message.into(),
            backtrace: Backtrace::default(),
        }
    }
}

impl From<CompileError> for Failure {
    fn from(error: CompileError) -> Failure {
        match error {
            CompileError::Client { message } => Failure::client(message),
            CompileError::Compile { message, backtrace } => {
                Failure { kind: FailureKind::Compile, message, backtrace }
            }
        }
    }
}

impl From<EvalError> for Failure {
    fn from(error: EvalError) -> Failure {
        Failure {
            kind: FailureKind::Runtime(error.class()),
            message: error.message(),
            backtrace: error.backtrace().clone(),
        }
    }
}

/// The number of an error class, sent as `e`.
#[must_use]
pub fn class_code(class: ErrorClass) -> u32 {
    match class {
        ErrorClass::Internal => 1_000_000,
        ErrorClass::ResourceLimit => 2_000_000,
        ErrorClass::QueryLogic => 3_000_000,
        ErrorClass::NonExistence => 3_100_000,
        ErrorClass::OpFailed => 4_100_000,
        ErrorClass::OpIndeterminate => 4_200_000,
        ErrorClass::User => 5_000_000,
        ErrorClass::Permission => 6_000_000,
    }
}
