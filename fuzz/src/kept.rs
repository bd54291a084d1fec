//! Inputs that earlier runs found, in a folder outside of the repository: a run begins where the last one
//! ended, and what it finds is not lost with it. Bounded, and made anew by every run: what no longer
//! shows anything of its own leaves.

use std::collections::BTreeSet;
use std::io::Result;
use std::path::{Path, PathBuf};

use crate::targets::Outcome;

/// The most inputs that are kept of a target.
pub const INPUTS_MAX: usize = 1_000;
/// The most bytes that are kept of a target.
pub const BYTES_MAX: usize = 4 << 20;

/// The kept inputs of one target.
#[derive(Clone, Debug)]
pub struct Kept {
    folder: PathBuf,
}

impl Kept {
    /// Those of the target of this name, below the folder `cache`.
    #[must_use]
    pub fn of(cache: &Path, target: &str) -> Kept {
        Kept { folder: cache.join("fuzz-corpus").join(target) }
    }

    /// All of them, shortest first; none if nothing can be read.
    #[must_use]
    pub fn read(&self) -> Vec<Vec<u8>> {
        let mut inputs: Vec<_> = self.files().iter().filter_map(|file| std::fs::read(file).ok()).collect();
        inputs.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
        inputs
    }

    /// Keeps these and no others: the shortest, if they are too many or too long together.
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
                // Another run may read at the same time, and must see all of it or nothing.
                let new = path.with_extension(format!("new{}", std::process::id()));
                std::fs::write(&new, &input)?;
                std::fs::rename(&new, &path)?;
            }
            names.insert(path);
        }
        // Gone already if another run had the same thought.
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
    fn the_shortest_are_kept_within_bounds_and_the_others_leave() {
        let folder = tempfile::tempdir().expect("a folder");
        let kept = Kept::of(folder.path(), "some");
        assert!(kept.read().is_empty());
        kept.replace(vec![b"gone soon".to_vec()]).expect("kept");
        let many: Vec<Vec<u8>> = (0..INPUTS_MAX + 5).map(|n| vec![b'x'; n + 1]).collect();
        kept.replace(many.clone()).expect("kept");
        assert_eq!(kept.read(), many[..INPUTS_MAX]);
        kept.replace(vec![vec![1; BYTES_MAX], vec![2; 10]]).expect("kept");
        assert_eq!(kept.read(), [vec![2; 10]]);
    }
}
