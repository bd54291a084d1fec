//! The temporary folder of a proxy: new for each process, and deleted when it ends.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ::io::real::RealFiles;
use rustix::process::geteuid;
use tempfile::{Builder, TempDir};

use super::data_directory::{DataDirectory, OpenMode};

/// The prefix of their names.
const PREFIX: &str = "rekindle-proxy-";

/// A file that marks such a folder.
const MARK: &str = "of_a_proxy";
/// The data directory inside it.
const DATA: &str = "data";

/// The path of the data directory in the folder of a proxy.
pub(crate) fn data_in(folder: &Path) -> PathBuf {
    folder.join(DATA)
}

/// Creates a new folder in `parent`, and deletes the folders of killed proxies. A fixed name, such as one with the
/// process id, could give a proxy the identity of an earlier one.
pub(crate) fn new_folder(parent: &Path) -> io::Result<TempDir> {
    sweep(parent);
    let is_private = Permissions::from_mode(0o700);
    let folder = Builder::new().prefix(PREFIX).permissions(is_private).tempdir_in(parent)?;
    std::fs::write(folder.path().join(MARK), "")?;
    Ok(folder)
}

/// Deletes the folders of proxies that no longer run. A folder that this user cannot delete stays.
fn sweep(parent: &Path) {
    let Ok(inside) = std::fs::read_dir(parent) else { return };
    for entry in inside.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let path = entry.path();
        // The parent may contain other folders. The folder of a running proxy is locked, so it cannot be taken here.
        if is_of_a_proxy(&path)
            && let Ok(_abandoned) = DataDirectory::take(&data_in(&path), OpenMode::Open, Box::new(RealFiles))
            && let Err(error) = std::fs::remove_dir_all(&path)
        {
            tracing::debug!("cannot remove the folder {}: {error}", path.display());
        }
    }
}

/// Whether this user made the folder for a proxy, and no other user can write to it.
fn is_of_a_proxy(path: &Path) -> bool {
    let is_own = |at: &Path, is_kind: fn(&std::fs::Metadata) -> bool| {
        at.symlink_metadata().is_ok_and(|found| is_kind(&found) && found.uid() == geteuid().as_raw())
    };
    let is_private = |found: &std::fs::Metadata| found.is_dir() && found.mode() & 0o077 == 0;
    is_own(path, is_private) && is_own(&path.join(MARK), std::fs::Metadata::is_file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_proxy_has_a_new_folder_and_those_of_killed_ones_are_taken_away() {
        let parent = tempfile::tempdir().unwrap();
        let take =
            |path: &Path| DataDirectory::take(path, OpenMode::CreateOrOpen, Box::new(RealFiles)).unwrap();
        let killed = new_folder(parent.path()).unwrap().keep();
        drop(take(&data_in(&killed)));
        // Folders of servers, despite their names.
        let others = ["letters", "rekindle-proxy-1"].map(|name| parent.path().join(name));
        others.iter().for_each(|other| drop(take(other)));
        let runs = new_folder(parent.path()).unwrap();
        let _lock = take(&data_in(runs.path()));
        assert!(!killed.exists() && others.iter().all(|other| other.exists()));
        let next = new_folder(parent.path()).unwrap();
        assert!(runs.path().exists() && next.path() != runs.path());
        assert!(!data_in(next.path()).exists(), "nothing of another is in it");
    }

    #[test]
    fn a_folder_writable_by_others_or_without_a_valid_mark_stays() {
        let parent = tempfile::tempdir().unwrap();
        let unmarked = |folder: &Path| std::fs::remove_file(folder.join(MARK)).unwrap();
        let open = |folder: &Path| std::fs::set_permissions(folder, Permissions::from_mode(0o770)).unwrap();
        let linked = |folder: &Path| {
            unmarked(folder);
            std::os::unix::fs::symlink(data_in(folder).join("metadata"), folder.join(MARK)).unwrap();
        };
        for spoil in [&unmarked as &dyn Fn(&Path), &open, &linked] {
            let killed = new_folder(parent.path()).unwrap();
            let opening = OpenMode::CreateOrOpen;
            drop(DataDirectory::take(&data_in(killed.path()), opening, Box::new(RealFiles)).unwrap());
            spoil(&killed.keep());
        }
        drop(new_folder(parent.path()).unwrap());
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 3);
    }
}
