//! Commands that run other commands say so in words, as a user would.

use anyhow::Context;
use clap::{Args, Parser};

#[derive(Parser)]
struct Words<A: Args> {
    #[command(flatten)]
    args: A,
}

/// The arguments that `words` stand for, separated by spaces; `exact` follow as they are. Fails as the
/// command line would.
pub(super) fn read<A: Args>(words: &str, exact: &[String]) -> anyhow::Result<A> {
    let all = std::iter::once("bench").chain(words.split_whitespace()).map(str::to_owned);
    let parsed = Words::<A>::try_parse_from(all.chain(exact.iter().cloned()));
    Ok(parsed.with_context(|| format!("`{words}` is no legal command"))?.args)
}
