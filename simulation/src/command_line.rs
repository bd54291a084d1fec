//! The words after `cargo xtask sim`: what they ask for, and what is wrong with them.

use std::time::Duration;

use rekindle_simulation::{Plot, Scope};

/// What `--help` says.
pub(crate) const HELP: &str = "\
Whole clusters in one thread, by seed: docs/simulation.md

Usage: cargo xtask sim [OPTIONS]

  --seeds N        how many seeds [100; with planted faults 7000]
  --from N         the first of them [0]
  --nodes N        machines of each [the seed draws three, four or five]
  --seconds N      how long it storms [20]
  --basic          one table of one shard on machines that are there from the start, and nothing else
  --twice          each seed two times: the traces must be equal
  --go-on          also when a seed fails
  --trace          everything that happens, as lines
  --mutant NAME    plant a fault (may be repeated); succeeds when a seed finds it for what it is
  --all-mutants    plant each of them
  --help           this";

/// So many seeds, some ten minutes, must be enough to find a planted fault, unless the command line says otherwise. The most
/// that are looked at when it does not.
pub(crate) const MUTANT_SEEDS: u64 = 7_000;

/// The longest storm: a day.
const SECONDS_MAX: u64 = 86_400;

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Asked {
    /// Say what there is to ask for.
    Help,
    /// Live through seeds.
    Seeds(Wanted),
}

/// Which seeds, and how.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Wanted {
    /// How many; a number that suits the task when nobody says.
    pub(crate) seeds: Option<u64>,
    pub(crate) from: u64,
    pub(crate) plot: Plot,
    /// Each seed twice, to see that it repeats itself.
    pub(crate) twice: bool,
    /// Also after a seed that fails.
    pub(crate) goes_on: bool,
    /// Tell everything.
    pub(crate) trace: bool,
    /// Names of planted faults, or `all`.
    pub(crate) mutants: Vec<String>,
}

/// Reads the words; fails with what to change.
pub(crate) fn read(mut words: impl Iterator<Item = String>) -> Result<Asked, String> {
    let mut wanted = Wanted::default();
    while let Some(word) = words.next() {
        let mut value =
            || words.next().ok_or_else(|| format!("{word} needs a value (--help says what there is)"));
        match word.as_str() {
            "--help" | "-h" => return Ok(Asked::Help),
            "--trace" => wanted.trace = true,
            "--twice" => wanted.twice = true,
            "--go-on" => wanted.goes_on = true,
            "--basic" => wanted.plot.scope = Scope::Basic,
            "--all-mutants" => wanted.mutants.push("all".to_owned()),
            "--mutant" => wanted.mutants.push(value()?),
            "--seeds" => wanted.seeds = Some(at_least(1, &word, &value()?)?),
            "--from" => wanted.from = at_least(0, &word, &value()?)?,
            "--nodes" => wanted.plot.nodes = at_least(1, &word, &value()?)? as usize,
            "--seconds" => wanted.plot.storm = seconds(&word, &value()?)?,
            _ => return Err(format!("there is no option {word} (--help says what there is)")),
        }
    }
    match wanted.from.checked_add(wanted.seeds.unwrap_or(MUTANT_SEEDS)) {
        Some(_) => Ok(Asked::Seeds(wanted)),
        None => Err(format!("--from {}: there are not so many seeds after it", wanted.from)),
    }
}

/// What would look at nothing, and so find nothing, is a mistake.
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

    fn asked(line: &str) -> Result<Asked, String> {
        read(line.split_whitespace().map(str::to_owned))
    }

    #[track_caller]
    fn refused(line: &str, why: &str) {
        assert_eq!(asked(line), Err(why.to_owned()));
    }

    #[test]
    fn words_say_which_seeds_and_how() {
        let plot = Plot { nodes: 9, storm: Duration::from_secs(5), scope: Scope::Basic };
        let wanted = Wanted { seeds: Some(7), from: 3, plot, goes_on: true, ..Wanted::default() };
        assert_eq!(
            asked("--seeds 7 --from 3 --nodes 9 --seconds 5 --basic --go-on"),
            Ok(Asked::Seeds(wanted))
        );
        let mutants = vec!["apply-twice".to_owned(), "all".to_owned()];
        let wanted = Wanted { mutants, twice: true, trace: true, ..Wanted::default() };
        assert_eq!(asked("--mutant apply-twice --all-mutants --twice --trace"), Ok(Asked::Seeds(wanted)));
    }

    #[test]
    fn help_names_every_option() {
        assert_eq!((asked("--help"), asked("--twice -h")), (Ok(Asked::Help), Ok(Asked::Help)));
        for line in HELP.lines().filter_map(|line| line.trim_start().strip_prefix("--")) {
            let mut words = line.split_whitespace();
            let (name, value) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let value = if matches!(value, "N" | "NAME") { "1" } else { "" };
            assert!(asked(&format!("--{name} {value}")).is_ok(), "--{name} {value}");
        }
    }

    #[test]
    fn what_is_no_option_is_called_so() {
        refused("--bogus", "there is no option --bogus (--help says what there is)");
        refused("--bogus 7", "there is no option --bogus (--help says what there is)");
        refused("seeds", "there is no option seeds (--help says what there is)");
        refused("--seeds", "--seeds needs a value (--help says what there is)");
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
        let too_few = format!("--from {last}: there are not so many seeds after it");
        refused(&format!("--from {last} --seeds 1"), &too_few);
        refused(&format!("--from {last}"), &too_few);
    }
}
