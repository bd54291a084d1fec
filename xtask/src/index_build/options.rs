//! What an index-build run is asked to do.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::node::default_program;

/// A whole run.
pub(super) struct Options {
    pub(super) program: PathBuf,
    pub(super) rows: u64,
    /// Kills in the middle of a build.
    pub(super) kills: u32,
    /// The longest time from the beginning of a build, or a start, to a kill.
    pub(super) kill_after_ms: u64,
    /// How often the writes are timed without and with a build.
    pub(super) pairs: u32,
    /// More than this fails the run, instead of the bar.
    pub(super) ratio_max: Option<f64>,
    pub(super) writers: u64,
    /// Writes of each writer in a second.
    pub(super) rate: u64,
    pub(super) seed: u64,
}

impl Options {
    /// Reads `--rows N --kills N --kill-after MS --pairs N --ratio X --writers N --rate N --seed N
    /// --program PATH`.
    pub(super) fn parse(arguments: &[String]) -> Result<Options> {
        let mut options = Options {
            program: default_program(),
            rows: 1_000_000,
            kills: 30,
            kill_after_ms: 2_000,
            pairs: 5,
            ratio_max: None,
            writers: 4,
            rate: 100,
            seed: rand::random(),
        };
        let mut arguments = arguments.iter();
        while let Some(name) = arguments.next() {
            let value = arguments.next().with_context(|| format!("{name} needs a value"))?;
            let number =
                || value.parse::<u64>().with_context(|| format!("{name} needs a number, not {value:?}"));
            match name.as_str() {
                "--rows" => options.rows = number()?.max(1),
                "--kills" => options.kills = u32::try_from(number()?)?,
                "--kill-after" => options.kill_after_ms = number()?.max(1),
                "--pairs" => options.pairs = u32::try_from(number()?)?,
                "--ratio" => {
                    let ratio =
                        value.parse().with_context(|| format!("--ratio needs a number, not {value:?}"))?;
                    options.ratio_max = Some(ratio);
                }
                "--writers" => options.writers = number()?.max(1),
                "--rate" => options.rate = number()?.max(1),
                "--seed" => options.seed = number()?,
                "--program" => options.program = PathBuf::from(value),
                other => bail!("there is no option {other}"),
            }
        }
        Ok(options)
    }
}
