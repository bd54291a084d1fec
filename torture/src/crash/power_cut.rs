//! Power cuts: the node runs with the recorder of `powercut`, and after a kill its directory loses unsynced data.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use powercut::{Disk, IgnoredSyncs, Tree};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const RECORDER_ROOT: &str = "REKINDLE_POWERCUT_ROOT";
const RECORDER_JOURNAL: &str = "REKINDLE_POWERCUT_JOURNAL";

/// The library that `cargo build --release --package rekindle-powercut-recorder` builds: it lies beside this tool.
pub(super) fn default_recorder() -> PathBuf {
    let here = std::env::current_exe().unwrap_or_default();
    here.with_file_name("librekindle_powercut_recorder.so")
}

/// Syncs that do nothing, so that a run must notice lost writes.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum Ignored {
    /// Syncs of files under `log`
    Log,
    /// Syncs of files under `engine`
    Engine,
    /// Syncs of every directory
    Directories,
}

impl Ignored {
    fn syncs(self) -> IgnoredSyncs {
        match self {
            Ignored::Log => IgnoredSyncs::Files("log/"),
            Ignored::Engine => IgnoredSyncs::Files("engine/"),
            Ignored::Directories => IgnoredSyncs::Directories,
        }
    }
}

/// The disk of a node across kills and power cuts.
pub(super) struct Power {
    recorder: PathBuf,
    root: PathBuf,
    journal: PathBuf,
    ignored: Option<IgnoredSyncs>,
    disk: Disk,
    random: StdRng,
    tally: Tally,
}

#[derive(Default)]
struct Tally {
    cuts: u32,
    /// Cuts after which the directory was another one.
    dropped: u32,
    /// Kills without a cut, after which the next process finds unsynced data.
    kept: u32,
    files: usize,
    names: usize,
}

impl Power {
    /// The power of a node with its data directory in `folder`. Fails if there is no recorder.
    pub(super) fn new(folder: &Path, recorder: &Path, ignored: Option<Ignored>, seed: u64) -> Result<Power> {
        ensure!(
            recorder.is_file(),
            "{} is missing: cargo build --release --package rekindle-powercut-recorder",
            recorder.display()
        );
        let folder = folder.canonicalize()?;
        let ignored = ignored.map(Ignored::syncs);
        Ok(Power {
            recorder: recorder.canonicalize()?,
            root: folder.join("data"),
            journal: folder.join("journal"),
            ignored,
            disk: Disk::new(&Tree::default(), ignored),
            random: StdRng::seed_from_u64(seed),
            tally: Tally::default(),
        })
    }

    /// Has a process of this command recorded.
    pub(super) fn record(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", &self.recorder)
            .env(RECORDER_ROOT, &self.root)
            .env(RECORDER_JOURNAL, &self.journal);
    }

    /// Replays the changes of the killed process; with this probability, the power is cut as well. Without a cut the next
    /// process finds unsynced data, and a later cut can drop it still.
    pub(super) fn after_kill(&mut self, cut: f64) -> Result<()> {
        // A process that is killed as it starts has no journal yet.
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&self.journal);
        let mut file = file.context("the journal of the killed process")?;
        let mut journal = Vec::new();
        file.read_to_end(&mut journal)?;
        let len = self.disk.replay(&journal).context("replaying the journal")?;
        let found = Tree::read(&self.root).context("the directory of the killed process")?;
        self.disk.reconcile(&found).context("the journal and the directory")?;
        if !self.random.random_bool(cut) {
            self.tally.kept += 1;
            // The next process goes on after the last whole record.
            file.set_len(len as u64)?;
            return Ok(());
        }
        let (files, names) = self.disk.unsynced();
        let left = self.disk.cut_power(&found, &mut self.random);
        left.write(&self.root, &found).context("dropping unsynced data")?;
        fs::remove_file(&self.journal)?;
        self.tally.cuts += 1;
        self.tally.dropped += u32::from(left != found);
        self.tally.files += files;
        self.tally.names += names;
        self.disk = Disk::new(&left, self.ignored);
        Ok(())
    }

    /// Prints how much there was to lose.
    pub(super) fn report(&self) {
        let Tally { cuts, dropped, kept, files, names } = self.tally;
        println!(
            "crash: {cuts} power cuts, {dropped} of which dropped something; unsynced before them: {files} files and {names} \
             names; {kept} kills without a cut"
        );
    }
}
