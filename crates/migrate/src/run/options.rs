//! The arguments and the result of a run.

use std::path::PathBuf;

use crate::catalog::Passwords;
use crate::only::Only;
use crate::rate::Rate;
use crate::report::Output;
use crate::server::Server;

/// Whether the plan is carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    DryRun,
    Copy,
    /// Copy, and then follow the source until `cut-over`.
    Follow,
}

/// The arguments of a run.
#[derive(Clone, Debug)]
pub struct Options {
    pub source: Server,
    pub target: Server,
    pub only: Vec<Only>,
    pub mode: Mode,
    pub into_existing: bool,
    pub passwords: Passwords,
    pub rate: Option<Rate>,
    pub readers: usize,
    /// Directory of the state.
    pub state: PathBuf,
    pub output: Output,
}

/// Whether everything was copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Complete,
    /// Some rows, indexes, hooks or users were refused, and named.
    Incomplete,
}
