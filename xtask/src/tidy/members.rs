//! The packages of the workspace and their source files.

use std::fs;
use std::path::{Path, PathBuf};

/// One package: its name without `rekindle-`, which is the last part of its folder, and that folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) name: String,
    /// Relative to the repository.
    pub(super) folder: PathBuf,
}

/// One source file: its path inside the repository and its text.
pub(super) struct Source {
    /// Relative to the repository.
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// The members that the root manifest lists, in its order; `crates/*` stands for every folder of `crates`.
pub(super) fn members(root: &Path) -> Vec<Member> {
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap_or_default();
    let listed = manifest.split_once("\nmembers = [").and_then(|(_, rest)| rest.split_once(']'));
    let listed = listed.map_or("", |(listed, _)| listed);
    let mut members = Vec::new();
    for pattern in listed.split('"').skip(1).step_by(2) {
        match pattern.strip_suffix("/*") {
            Some(parent) => {
                let folders = entries(&root.join(parent)).into_iter().filter(|path| path.is_dir());
                members.extend(folders.filter_map(|path| member(Path::new(parent), &path)));
            }
            None => members.extend(member(Path::new(""), Path::new(pattern))),
        }
    }
    members
}

fn member(parent: &Path, path: &Path) -> Option<Member> {
    let name = path.file_name()?.to_str()?.to_owned();
    Some(Member { folder: parent.join(&name), name })
}

/// The Rust files of all members and of `tests`.
pub(super) fn rust_sources(root: &Path, members: &[Member]) -> Vec<Source> {
    let mut sources = Vec::new();
    for folder in members.iter().map(|member| member.folder.as_path()).chain([Path::new("tests")]) {
        collect(root, folder, "rs", &mut sources);
    }
    sources
}

/// Every Markdown file of the repository.
pub(super) fn documents(root: &Path) -> Vec<Source> {
    let mut documents = Vec::new();
    collect(root, Path::new(""), "md", &mut documents);
    documents
}

fn collect(root: &Path, folder: &Path, extension: &str, sources: &mut Vec<Source>) {
    const SKIPPED: [&str; 6] = ["target", ".git", "testdata", "node_modules", "venv", "dist"];
    for path in entries(&root.join(folder)) {
        let Some(name) = path.file_name() else { continue };
        let inner = folder.join(name);
        if path.is_dir() {
            if SKIPPED.iter().all(|skipped| name != *skipped) {
                collect(root, &inner, extension, sources);
            }
        } else if path.extension().is_some_and(|found| found == extension) {
            let text = fs::read_to_string(&path).unwrap_or_default();
            sources.push(Source { path: inner, text });
        }
    }
}

/// The entries of a folder in name order; none if it cannot be read.
pub(super) fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_from_the_root_manifest() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["crates/a", "crates/b", "tool/src"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        fs::write(root.path().join("Cargo.toml"), "[workspace]\nmembers = [\"crates/*\", \"tool\"]\n")
            .unwrap();
        fs::write(root.path().join("tool/src/main.rs"), "//! A tool.\n").unwrap();
        let members = members(root.path());
        let folders: Vec<&Path> = members.iter().map(|member| member.folder.as_path()).collect();
        assert_eq!(folders, [Path::new("crates/a"), Path::new("crates/b"), Path::new("tool")]);
        let sources = rust_sources(root.path(), &members);
        assert_eq!(sources[0].path, Path::new("tool/src/main.rs"));
    }
}
