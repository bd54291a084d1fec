//! What a crash run is asked to do.

use crate::harness::options::Trial;

/// What the writes of a phase wait for.
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

/// Some cycles at one durability, on a folder of their own.
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
    #[command(flatten)]
    pub(super) trial: Trial,
}

impl Options {
    /// The phases that are asked for.
    pub(super) fn phases(&self) -> Vec<Phase> {
        let phases = [(Durability::Hard, self.cycles), (Durability::Soft, self.soft_cycles)];
        let asked_for = phases.into_iter().filter(|(_, cycles)| *cycles > 0);
        asked_for.map(|(durability, cycles)| Phase { durability, cycles }).collect()
    }
}
