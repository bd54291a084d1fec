//! What a crash run is asked to do.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::node::default_program;

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
pub(super) struct Options {
    pub(super) program: PathBuf,
    pub(super) phases: Vec<Phase>,
    pub(super) writers: usize,
    pub(super) seed: u64,
    /// The program loses writes on purpose; the run succeeds when that is noticed.
    pub(super) expect_loss: bool,
}

impl Options {
    /// Reads `--cycles N --soft-cycles N --writers N --seed N --program PATH --expect-loss`.
    pub(super) fn parse(arguments: &[String]) -> Result<Options> {
        let (mut hard, mut soft) = (200, 50);
        let mut options = Options {
            program: default_program(),
            phases: Vec::new(),
            writers: 32,
            seed: rand::random(),
            expect_loss: false,
        };
        let mut arguments = arguments.iter();
        while let Some(name) = arguments.next() {
            if name == "--expect-loss" {
                options.expect_loss = true;
                continue;
            }
            let value = arguments.next().with_context(|| format!("{name} needs a value"))?;
            let number =
                || value.parse::<u64>().with_context(|| format!("{name} needs a number, not {value:?}"));
            match name.as_str() {
                "--cycles" => hard = u32::try_from(number()?)?,
                "--soft-cycles" => soft = u32::try_from(number()?)?,
                "--writers" => options.writers = usize::try_from(number()?)?.max(1),
                "--seed" => options.seed = number()?,
                "--program" => options.program = PathBuf::from(value),
                other => bail!("there is no option {other}"),
            }
        }
        for (durability, cycles) in [(Durability::Hard, hard), (Durability::Soft, soft)] {
            if cycles > 0 {
                options.phases.push(Phase { durability, cycles });
            }
        }
        Ok(options)
    }
}
