//! The names of a simulated disk, and the ones that a power loss leaves.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::content::Content;
use crate::sim::SimRandom;

pub(super) type SharedContent = Arc<Mutex<Content>>;

/// Names and the files that they stand for.
#[derive(Clone, Default)]
pub(super) struct Names {
    present: BTreeMap<PathBuf, SharedContent>,
    /// The names of the last syncs of their folders.
    durable: BTreeMap<PathBuf, SharedContent>,
    /// The changes since then, in order.
    unsynced: Vec<Change>,
}

#[derive(Clone)]
enum Change {
    Added(PathBuf, SharedContent),
    Removed(PathBuf),
    Renamed(PathBuf, PathBuf),
}

impl Change {
    fn is_in(&self, dir: &Path) -> bool {
        let (Change::Added(path, _) | Change::Removed(path) | Change::Renamed(_, path)) = self;
        path.parent() == Some(dir)
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, SharedContent>) {
        match self {
            Change::Added(path, content) => drop(names.insert(path.clone(), Arc::clone(content))),
            Change::Removed(path) => drop(names.remove(path)),
            Change::Renamed(from, to) => {
                if let Some(content) = names.remove(from) {
                    names.insert(to.clone(), content);
                }
            }
        }
    }
}

impl Names {
    pub(super) fn durable(names: BTreeMap<PathBuf, SharedContent>) -> Names {
        Names { durable: names.clone(), present: names, unsynced: Vec::new() }
    }

    pub(super) fn all(&self) -> &BTreeMap<PathBuf, SharedContent> {
        &self.present
    }

    pub(super) fn get(&self, path: &Path) -> Result<&SharedContent> {
        self.present.get(path).ok_or_else(|| Error::from(ErrorKind::NotFound))
    }

    pub(super) fn add(&mut self, path: &Path, content: &SharedContent) {
        self.change(Change::Added(path.to_owned(), Arc::clone(content)));
    }

    pub(super) fn remove(&mut self, path: &Path) -> Result<()> {
        self.get(path)?;
        self.change(Change::Removed(path.to_owned()));
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> Result<()> {
        self.get(from)?;
        self.change(Change::Renamed(from.to_owned(), to.to_owned()));
        Ok(())
    }

    /// Makes the names in `dir` durable.
    pub(super) fn sync(&mut self, dir: &Path) {
        let (synced, unsynced) = self.unsynced.drain(..).partition(|change| change.is_in(dir));
        self.unsynced = unsynced;
        let synced: Vec<Change> = synced;
        synced.iter().for_each(|change| change.apply(&mut self.durable));
    }

    /// Forgets the unsynced changes, or all after the first few: a file system writes its journal when it likes, in order.
    pub(super) fn forget_unsynced(&mut self, random: &SimRandom) {
        let kept = match random.one_in(2) {
            true => 0,
            false => random.below(self.unsynced.len() as u64 + 1) as usize,
        };
        for change in &self.unsynced[..kept] {
            change.apply(&mut self.durable);
        }
        self.unsynced.clear();
        self.present = self.durable.clone();
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.present);
        self.unsynced.push(change);
    }
}
