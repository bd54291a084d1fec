//! What every task that breaks nodes on purpose is told.

use std::path::PathBuf;

use crate::node::default_program;

/// Which program is tried, and with which chances.
#[derive(clap::Args)]
pub(crate) struct Trial {
    /// The program under test [default: the one beside this]
    #[arg(long, default_value_os_t = default_program(), hide_default_value = true)]
    pub(crate) program: PathBuf,
    /// Where its chances come from; printed, so that a run can be repeated [default: another each time]
    #[arg(long, default_value_t = rand::random(), hide_default_value = true)]
    pub(crate) seed: u64,
}
