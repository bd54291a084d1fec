//! Runs commands from within other commands, by their command lines.

use anyhow::Context;
use clap::{Args, Parser};

#[derive(Parser)]
struct CommandLine<A: Args> {
    #[command(flatten)]
    args: A,
}

/// Parses `words`, separated by spaces, followed by the arguments `exact`. Fails with the errors of the command line.
pub(super) fn parse<A: Args>(words: &str, exact: &[String]) -> anyhow::Result<A> {
    let all = std::iter::once("bench").chain(words.split_whitespace()).map(str::to_owned);
    let parsed = CommandLine::<A>::try_parse_from(all.chain(exact.iter().cloned()));
    Ok(parsed.with_context(|| format!("`{words}` is not a valid command"))?.args)
}
