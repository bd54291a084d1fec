//! The arguments of `cargo xtask sim`.

use std::time::Duration;

use rekindle_simulation::{RunOptions, Scope};

/// The text of `--help`.
pub(crate) const HELP: &str = "\
Whole clusters in one thread, by seed: docs/simulation.md

Usage: cargo xtask sim [OPTIONS]

  --seeds N        the number of seeds [100; with mutants 7000]
  --from N         the first seed [0]
  --nodes N        the number of machines [the seed draws three, four or five]
  --seconds N      the length of the fault period [20]
  --basic          only one table of one shard on machines that are there from the start
  --twice          run each seed two times: the traces must be equal
  --go-on          continue after a failed seed
  --trace          print every event as a line
  --mutant NAME    add a mutant (may be repeated); succeeds when a seed breaks an invariant that it concerns
  --all-mutants    each of the mutants
  --help           print this help";

/// The default number of seeds for a mutant, some ten minutes: a mutant that none of them detects is a failure.
pub(crate) const MUTANT_SEEDS: u64 = 7_000;

/// The longest fault period: a day.
const SECONDS_MAX: u64 = 86_400;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Command {
    Help,
    Seeds(Arguments),
}

/// The seeds and their options.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Arguments {
    /// The number of seeds, if given.
    pub(crate) seeds: Option<u64>,
    pub(crate) from: u64,
    pub(crate) options: RunOptions,
    /// Run each seed twice and compare the traces.
    pub(crate) twice: bool,
    /// Continue after a failed seed.
    pub(crate) continues: bool,
    /// Print every event.
    pub(crate) trace: bool,
    /// Names of mutants, or `all`.
    pub(crate) mutants: Vec<String>,
}

/// Reads the arguments; an error names the faulty one.
pub(crate) fn read(mut words: impl Iterator<Item = String>) -> Result<Command, String> {
    let mut arguments = Arguments::default();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value (see --help)"));
        match word.as_str() {
            "--help" | "-h" => return Ok(Command::Help),
            "--trace" => arguments.trace = true,
            "--twice" => arguments.twice = true,
            "--go-on" => arguments.continues = true,
            "--basic" => arguments.options.scope = Scope::Basic,
            "--all-mutants" => arguments.mutants.push("all".to_owned()),
            "--mutant" => arguments.mutants.push(value()?),
            "--seeds" => arguments.seeds = Some(at_least(1, &word, &value()?)?),
            "--from" => arguments.from = at_least(0, &word, &value()?)?,
            "--nodes" => arguments.options.nodes = at_least(1, &word, &value()?)? as usize,
            "--seconds" => arguments.options.fault_period = seconds(&word, &value()?)?,
            _ => return Err(format!("there is no option {word} (see --help)")),
        }
    }
    match arguments.from.checked_add(arguments.seeds.unwrap_or(MUTANT_SEEDS)) {
        Some(_) => Ok(Command::Seeds(arguments)),
        None => Err(format!("--from {}: there are too few seeds after it", arguments.from)),
    }
}

/// A number of at least `least`: a run without seeds or machines would pass without a check.
fn at_least(least: u64, word: &str, value: &str) -> Result<u64, String> {
    let number = value.parse().ok().filter(|number| *number >= least);
    number.ok_or_else(|| format!("{word} {value}: expected a whole number of at least {least}"))
}

fn seconds(word: &str, value: &str) -> Result<Duration, String> {
    match at_least(1, word, value)? {
        seconds if seconds > SECONDS_MAX => {
            Err(format!("{word} {value}: expected a whole number of at most {SECONDS_MAX}"))
        }
        seconds => Ok(Duration::from_secs(seconds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Result<Command, String> {
        read(line.split_whitespace().map(str::to_owned))
    }

    #[track_caller]
    fn refused(line: &str, why: &str) {
        assert_eq!(asked(line), Err(why.to_owned()));
    }

    #[test]
    fn words_say_which_seeds_and_how() {
        let options = RunOptions { nodes: 9, fault_period: Duration::from_secs(5), scope: Scope::Basic };
        let arguments =
            Arguments { seeds: Some(7), from: 3, options, continues: true, ..Arguments::default() };
        assert_eq!(
            asked("--seeds 7 --from 3 --nodes 9 --seconds 5 --basic --go-on"),
            Ok(Command::Seeds(arguments))
        );
        let mutants = vec!["apply-twice".to_owned(), "all".to_owned()];
        let arguments = Arguments { mutants, twice: true, trace: true, ..Arguments::default() };
        assert_eq!(
            asked("--mutant apply-twice --all-mutants --twice --trace"),
            Ok(Command::Seeds(arguments))
        );
    }

    #[test]
    fn help_names_every_option() {
        assert_eq!((asked("--help"), asked("--twice -h")), (Ok(Command::Help), Ok(Command::Help)));
        for line in HELP.lines().filter_map(|line| line.trim_start().strip_prefix("--")) {
            let mut words = line.split_whitespace();
            let (name, value) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let value = if matches!(value, "N" | "NAME") { "1" } else { "" };
            assert!(asked(&format!("--{name} {value}")).is_ok(), "--{name} {value}");
        }
    }

    #[test]
    fn what_is_no_option_is_called_so() {
        refused("--bogus", "there is no option --bogus (see --help)");
        refused("--bogus 7", "there is no option --bogus (see --help)");
        refused("seeds", "there is no option seeds (see --help)");
        refused("--seeds", "--seeds needs a value (see --help)");
    }

    #[test]
    fn what_would_look_at_nothing_is_refused() {
        for word in ["--seeds", "--nodes", "--seconds"] {
            refused(&format!("{word} 0"), &format!("{word} 0: expected a whole number of at least 1"));
        }
        refused("--seeds many", "--seeds many: expected a whole number of at least 1");
        refused("--seconds 86401", "--seconds 86401: expected a whole number of at most 86400");
        refused("--from -1", "--from -1: expected a whole number of at least 0");
        let last = u64::MAX;
        let too_few = format!("--from {last}: there are too few seeds after it");
        refused(&format!("--from {last} --seeds 1"), &too_few);
        refused(&format!("--from {last}"), &too_few);
    }
}
