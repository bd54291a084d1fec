//! Options of a crash run.

use std::path::PathBuf;

use super::power_cut::{Ignored, default_recorder};
use crate::harness::options::RunOptions;

/// The durability of the writes of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    Hard,
    Soft,
}

impl Durability {
    pub(super) fn name(self) -> &'static str {
        match self {
            Durability::Hard => "hard",
            Durability::Soft => "soft",
        }
    }
}

/// Some cycles at one durability, on a separate folder.
pub(super) struct Phase {
    pub(super) durability: Durability,
    pub(super) cycles: u32,
}

/// A whole run.
#[derive(clap::Args)]
pub struct Options {
    /// Kills under writes with hard durability
    #[arg(long, default_value_t = 200)]
    cycles: u32,
    /// The same with soft durability
    #[arg(long, default_value_t = 50)]
    soft_cycles: u32,
    /// Writers
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) writers: u16,
    /// The program loses writes on purpose; succeed when that is noticed
    #[arg(long)]
    pub(super) expect_loss: bool,
    /// Half of the kills at failpoints; the program must be built with `--features failpoints`
    #[arg(long)]
    pub(super) failpoints: bool,
    /// After a kill, drop the unsynced data of the node, as a power cut does; needs the package `rekindle-powercut-recorder`
    #[arg(long)]
    pub(super) power_cuts: bool,
    /// The library that records the node's changes of files [default: the one beside this]
    #[arg(long, default_value_os_t = default_recorder(), hide_default_value = true)]
    pub(super) recorder: PathBuf,
    /// Syncs that do nothing, as on a disk that lies; with `--expect-loss`
    #[arg(long, requires = "power_cuts")]
    pub(super) ignore_syncs: Option<Ignored>,
    #[command(flatten)]
    pub(super) trial: RunOptions,
}

impl Options {
    /// The phases with at least one cycle.
    pub(super) fn phases(&self) -> Vec<Phase> {
        let all = [(Durability::Hard, self.cycles), (Durability::Soft, self.soft_cycles)];
        let phases = all.into_iter().filter(|(_, cycles)| *cycles > 0);
        phases.map(|(durability, cycles)| Phase { durability, cycles }).collect()
    }
}
