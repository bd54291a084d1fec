//! Files and folders: where a module with children is, empty files, entries of a folder, and the length of decisions.

use std::path::Path;

use super::Finding;
use super::members::{Source, entries};

/// Folders that a reader takes in at a glance, and the entries that they may have.
const ENTRIES_MAX: [(&str, usize); 2] = [("crates/cluster/src", 16), ("crates/query/src", 20)];
const DECISIONS: &str = "docs/decisions";
/// Lines that a decision may have. Its tables and the measurements are pages of their own.
const DECISION_LINES_MAX: usize = 75;

/// Checks all sources and documents: module style, empty files, entries of two folders, lengths of decisions.
pub(super) fn check(root: &Path, sources: &[Source], documents: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(sources.iter().filter_map(|source| beside_its_folder(root, source)));
    findings.extend(sources.iter().filter_map(empty));
    findings.extend(ENTRIES_MAX.iter().filter_map(|(folder, most)| too_many_entries(root, folder, *most)));
    findings.extend(documents.iter().filter_map(long_decision));
    findings
}

fn beside_its_folder(root: &Path, source: &Source) -> Option<Finding> {
    let folder = source.path.with_extension("");
    root.join(&folder).is_dir().then(|| {
        let what = format!("stands beside the folder {0}; move it to {0}/mod.rs", folder.display());
        Finding::about(&source.path, what + " (a test: main.rs)")
    })
}

fn empty(source: &Source) -> Option<Finding> {
    source.text.trim().is_empty().then(|| Finding::about(&source.path, "is empty"))
}

fn too_many_entries(root: &Path, folder: &str, most: usize) -> Option<Finding> {
    let count = entries(&root.join(folder)).len();
    (count > most).then(|| Finding::about(Path::new(folder), format!("has {count} entries ({most} at most)")))
}

/// The file of a decision begins with its number; other pages of the folder are lists.
fn long_decision(page: &Source) -> Option<Finding> {
    let name = page.path.strip_prefix(DECISIONS).ok()?.to_str()?;
    let lines = page.text.lines().count();
    (name.starts_with(|c: char| c.is_ascii_digit()) && lines > DECISION_LINES_MAX)
        .then(|| Finding::about(&page.path, format!("{lines} lines ({DECISION_LINES_MAX} at most)")))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn file(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.to_owned() }
    }

    #[test]
    fn a_file_beside_a_folder_of_its_name_is_found() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("crates/a/src/b")).unwrap();
        let found = |path: &str| beside_its_folder(root.path(), &file(path, "//! X.\n"));
        assert_eq!(
            found("crates/a/src/b.rs").unwrap().what,
            "stands beside the folder crates/a/src/b; move it to crates/a/src/b/mod.rs (a test: main.rs)"
        );
        assert!(found("crates/a/src/b/mod.rs").is_none());
        assert!(found("crates/a/src/c.rs").is_none());
    }

    #[test]
    fn an_empty_file_is_found() {
        assert!(empty(&file("a.rs", "\n")).is_some());
        assert!(empty(&file("a.rs", "//! A.\n")).is_none());
    }

    #[test]
    fn a_folder_with_too_many_entries_is_found() {
        let root = tempfile::tempdir().unwrap();
        for name in ["b.rs", "c.rs", "d"] {
            fs::create_dir_all(root.path().join("a").join(name)).unwrap();
        }
        assert_eq!(too_many_entries(root.path(), "a", 2).unwrap().what, "has 3 entries (2 at most)");
        assert!(too_many_entries(root.path(), "a", 3).is_none());
    }

    #[test]
    fn a_long_decision_is_found() {
        let found = |path: &str, lines| long_decision(&file(path, &"x\n".repeat(lines)));
        assert!(found("docs/decisions/0001-a.md", 75).is_none());
        assert_eq!(found("docs/decisions/0001-a.md", 76).unwrap().what, "76 lines (75 at most)");
        assert!(found("docs/decisions/README.md", 99).is_none() && found("docs/a.md", 99).is_none());
    }
}
