//! Read modes: which replica may serve a read, and how fresh its rows must be.

use reql::EvalError;

/// How fresh a read must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadMode {
    /// The leader's applied state.
    Single,
    /// Linearizable.
    Majority,
    /// Any replica.
    Outdated,
    /// This node's own replica.
    DebugDirect,
}

impl ReadMode {
    /// `single`, `majority` or `outdated`; any other name is an error.
    pub fn parse(name: &str) -> Result<ReadMode, EvalError> {
        match name {
            "single" => Ok(ReadMode::Single),
            "majority" => Ok(ReadMode::Majority),
            "outdated" => Ok(ReadMode::Outdated),
            "_debug_direct" => Ok(ReadMode::DebugDirect),
            other => Err(EvalError::logic(format!(
                "Read mode `{other}` unrecognized (options are \"majority\", \"single\", and \"outdated\")."
            ))),
        }
    }

    /// Fails for the local replica's rows, which may be older than those of all other replicas.
    pub fn check_up_to_date(self) -> Result<(), EvalError> {
        match self {
            ReadMode::DebugDirect => Err(EvalError::logic(
                "DEBUG_DIRECT is not a legal read mode for this operation (an up-to-date read mode is required).",
            )),
            _ => Ok(()),
        }
    }
}
