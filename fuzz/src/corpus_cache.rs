//! Inputs found by earlier runs, in a directory outside the repository: a run begins where the last one ended, and its
//! findings are not lost. The cache is bounded, and each run rewrites it: an input without a distinct outcome is
//! removed.

use std::collections::BTreeSet;
use std::io::Result;
use std::path::{Path, PathBuf};

use crate::targets::Outcome;

/// The most inputs stored per target.
pub const INPUTS_MAX: usize = 1_000;
/// The most bytes stored per target.
pub const BYTES_MAX: usize = 4 << 20;

/// The stored inputs of one target.
#[derive(Clone, Debug)]
pub struct CorpusCache {
    folder: PathBuf,
}

impl CorpusCache {
    /// The inputs of the target with this name, in the directory `cache`.
    #[must_use]
    pub fn of(cache: &Path, target: &str) -> CorpusCache {
        CorpusCache { folder: cache.join("fuzz-corpus").join(target) }
    }

    /// All inputs, shortest first; none if nothing can be read.
    #[must_use]
    pub fn read(&self) -> Vec<Vec<u8>> {
        let mut inputs: Vec<_> = self.files().iter().filter_map(|file| std::fs::read(file).ok()).collect();
        inputs.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
        inputs
    }

    /// Replaces the stored inputs; only the shortest if they are too many or too large.
    pub fn replace(&self, mut inputs: Vec<Vec<u8>>) -> Result<()> {
        std::fs::create_dir_all(&self.folder)?;
        inputs.sort_by_key(Vec::len);
        inputs.truncate(INPUTS_MAX);
        let mut room = BYTES_MAX;
        let mut names = BTreeSet::new();
        for input in inputs {
            let Some(left) = room.checked_sub(input.len()) else { break };
            room = left;
            let path = self.folder.join(format!("{:016x}", Outcome::of(&input).0));
            if !path.exists() {
                // Written under another name first: a concurrent run must see the whole file or none.
                let new = path.with_extension(format!("new{}", std::process::id()));
                std::fs::write(&new, &input)?;
                std::fs::rename(&new, &path)?;
            }
            names.insert(path);
        }
        // Fails if a concurrent run has removed it.
        self.files()
            .iter()
            .filter(|file| !names.contains(*file))
            .for_each(|file| drop(std::fs::remove_file(file)));
        Ok(())
    }

    fn files(&self) -> Vec<PathBuf> {
        let inside = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        inside.map(|entry| entry.path()).filter(|path| path.extension().is_none()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_inputs_are_kept_within_bounds() {
        let folder = tempfile::tempdir().expect("a folder");
        let kept = CorpusCache::of(folder.path(), "some");
        assert!(kept.read().is_empty());
        kept.replace(vec![b"gone soon".to_vec()]).expect("kept");
        let many: Vec<Vec<u8>> = (0..INPUTS_MAX + 5).map(|n| vec![b'x'; n + 1]).collect();
        kept.replace(many.clone()).expect("kept");
        assert_eq!(kept.read(), many[..INPUTS_MAX]);
        kept.replace(vec![vec![1; BYTES_MAX], vec![2; 10]]).expect("kept");
        assert_eq!(kept.read(), [vec![2; 10]]);
    }
}
