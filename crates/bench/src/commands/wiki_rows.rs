//! `bench wiki-rows`: makes a file of rows for `bench wiki` from texts on this machine.

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::Args;

use crate::limits::at_least_one;
use crate::wiki::maker::RowMaker;
use crate::wiki::texts;

/// Makes rows as in an SQL dump of Wikipedia, about 2.8 KB each, from texts
///
/// Reads plain text and HTML (without its tags), such as the documentation packages of Debian. A paragraph that stands in
/// several files is used once. The same texts and seed give the same rows.
#[derive(Args, Clone, Debug)]
pub struct WikiRowsArgs {
    /// Folders or files with texts
    #[arg(value_name = "PATH", default_value = "/usr/share/doc")]
    texts: Vec<PathBuf>,
    /// The file to write; an existing one is not overwritten
    #[arg(short = 'o', long, value_name = "FILE")]
    output: PathBuf,
    /// Stop at this size, in megabytes
    #[arg(long, value_name = "MB", default_value_t = 400, value_parser = at_least_one::<u64>)]
    megabytes: u64,
    /// Seed of lengths, ids and users
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub fn run(args: &WikiRowsArgs) -> anyhow::Result<ExitCode> {
    let files = texts::find(&args.texts).context("looking for texts")?;
    ensure!(!files.is_empty(), "there are no texts; give folders with plain text or HTML");
    let output = File::create_new(&args.output);
    let output = output.with_context(|| format!("--output {} cannot be created", args.output.display()))?;
    let mut maker = RowMaker::new(BufWriter::new(output), args.seed);
    let (mut used, mut skipped) = (0, 0);
    let bytes_max = args.megabytes * 1_000_000;
    for file in &files {
        match texts::paragraphs(file) {
            Some(paragraphs) => {
                used += 1;
                paragraphs.iter().try_for_each(|paragraph| maker.add(paragraph)).context("writing rows")?;
            }
            None => skipped += 1,
        }
        if maker.bytes() >= bytes_max {
            break;
        }
    }
    let (rows, bytes) = maker.finish().context("writing rows")?;
    println!(
        "{rows} rows, {:.1} MB, {} bytes each, from {used} files ({skipped} were no text)",
        bytes as f64 / 1e6,
        bytes / rows.max(1)
    );
    if bytes < bytes_max {
        eprintln!(
            "wiki-rows: there was text for no more than that; install documentation packages, or give more folders"
        );
    }
    Ok(ExitCode::SUCCESS)
}
