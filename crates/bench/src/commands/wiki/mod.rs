//! `bench wiki`: Terark's report on Wikipedia's articles, on a server that it starts.

mod results;
mod run;
mod server;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::ensure;
use clap::{Args, ValueEnum};

use crate::flags::OutputFlags;
use crate::fleet::flags::NodeFlags;
use crate::limits::{above_zero, at_least_one, seconds};
use crate::wiki::rows::OnBrokenLine;
use run::Wiki;

/// What to do about a line of the file that is no row.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum OnBroken {
    /// Count and name it, and go on
    Skip,
    /// Stop the load there
    Stop,
}

/// Durability of the load.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Durability {
    Soft,
    Hard,
}

/// Loads rows of articles, then measures read, batch_read and read_write, as Terark's report on Wikipedia did
///
/// Starts a server. The file has tab-separated columns, as an SQL dump of Wikipedia has (`bench wiki-rows` makes one); the
/// first three columns are the key. The results show the published figures beside the measured ones, and marks of this
/// machine: the size of the rows in blocks of 16 KB with zstd -3 and as a whole with xz -9, and the disk's own random
/// reads.
#[derive(Args, Clone, Debug)]
pub struct WikiArgs {
    /// File with the rows
    #[arg(value_name = "FILE")]
    rows: PathBuf,
    /// What to do about lines that are no rows, or have a key that came before
    #[arg(long, value_enum, default_value_t = OnBroken::Skip)]
    on_broken: OnBroken,
    /// Length of each test
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = above_zero)]
    seconds: f64,
    /// The same test before it, without being measured
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    warmup: f64,
    /// Connections of the tests
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = at_least_one::<usize>)]
    connections: usize,
    /// Rows of each insert of the load
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = at_least_one::<usize>)]
    batch: usize,
    /// Durability of the load
    #[arg(long, value_enum, default_value_t = Durability::Soft)]
    durability: Durability,
    /// Repeat the tests with so little memory for the server and its page cache, in megabytes, in a control group
    #[arg(long, value_name = "MB", value_parser = at_least_one::<u64>)]
    small_memory: Option<u64>,
    /// At the end, make the table an archive, and measure its size and the test `read` once it has settled, which takes one to
    /// two seconds for each megabyte. The dictionary is at most a 64th of --cache-size
    #[arg(long)]
    archive: bool,
    /// Leave out the mark of xz -9, which takes half a second for each megabyte
    #[arg(long)]
    no_xz: bool,
    /// Temporary folder for the server's data
    #[arg(long, value_name = "FOLDER", default_value = "wiki-node")]
    folder: PathBuf,
    #[command(flatten)]
    node: NodeFlags,
    #[command(flatten)]
    output: OutputFlags,
}

impl WikiArgs {
    fn on_broken(&self) -> OnBrokenLine {
        match self.on_broken {
            OnBroken::Skip => OnBrokenLine::Skip,
            OnBroken::Stop => OnBrokenLine::Stop,
        }
    }

    fn durability(&self) -> &'static str {
        match self.durability {
            Durability::Soft => "soft",
            Durability::Hard => "hard",
        }
    }
}

/// Runs the load and the tests. The exit code says whether all results are valid.
pub fn run(args: &WikiArgs) -> anyhow::Result<ExitCode> {
    let is_folder = |path: &PathBuf| path.is_dir() || path.to_string_lossy().ends_with('/');
    ensure!(
        args.output.json.as_ref().is_none_or(is_folder),
        "--json: the load and each test have their own result: give a folder (ending in /)"
    );
    args.node.fit(1)?;
    Wiki::new(args).all()
}
