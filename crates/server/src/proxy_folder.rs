//! The folder of a proxy: new for each one that runs, and gone with it.

use std::io;
use std::path::Path;

use ::io::real::RealFiles;
use tempfile::{Builder, TempDir};

use crate::data_directory::{DataDirectory, Opening};

/// What the names of such folders begin with.
const PREFIX: &str = "rekindle-proxy-";

/// Makes a new folder in `parent`, and takes away those there whose proxies were killed: who is in a cluster under
/// which identity must not come from another process that happened to have the same number.
pub(crate) fn new_folder(parent: &Path) -> io::Result<TempDir> {
    sweep(parent);
    Builder::new().prefix(PREFIX).tempdir_in(parent)
}

/// Deletes the folders of proxies that do not run any more. What cannot be deleted, by this user perhaps, stays.
fn sweep(parent: &Path) {
    let Ok(inside) = std::fs::read_dir(parent) else { return };
    for entry in inside.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let path = entry.path();
        // One that runs holds the lock.
        if let Ok(_abandoned) = DataDirectory::take(&path, Opening::Open, Box::new(RealFiles))
            && let Err(error) = std::fs::remove_dir_all(&path)
        {
            tracing::debug!("the folder {} could not be removed: {error}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_proxy_has_a_new_folder_and_those_of_killed_ones_are_taken_away() {
        let parent = tempfile::tempdir().unwrap();
        let take =
            |path: &Path| DataDirectory::take(path, Opening::CreateOrOpen, Box::new(RealFiles)).unwrap();
        let killed = new_folder(parent.path()).unwrap().keep();
        drop(take(&killed));
        let other = parent.path().join("letters");
        drop(take(&other));
        let runs = new_folder(parent.path()).unwrap();
        let _lock = take(runs.path());
        assert!(!killed.exists() && other.exists());
        let next = new_folder(parent.path()).unwrap();
        assert!(runs.path().exists() && next.path() != runs.path());
        assert_eq!(std::fs::read_dir(next.path()).unwrap().count(), 0, "nothing of another is in it");
    }
}
