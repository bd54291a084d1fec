//! `tidy`: the habits of this house that a program can check. It looks and never edits.

mod circles;
mod layers;
mod lengths;
mod words;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// One source file: its path inside the repository and its text.
pub(crate) struct Source {
    /// Relative to the repository.
    pub(crate) path: PathBuf,
    /// The whole text.
    pub(crate) text: String,
}

/// Something a reader of the code should not have to meet.
pub(crate) struct Finding {
    /// File, and line where there is one.
    pub(crate) place: String,
    /// What is wrong and what to do.
    pub(crate) what: String,
}

impl Finding {
    /// A finding at a line (counted from 1) of a file.
    pub(crate) fn at(path: &Path, line: usize, what: impl Into<String>) -> Finding {
        Finding { place: format!("{}:{line}", path.display()), what: what.into() }
    }

    /// A finding about a whole file.
    pub(crate) fn about(path: &Path, what: impl Into<String>) -> Finding {
        Finding { place: path.display().to_string(), what: what.into() }
    }
}

/// Runs every check over the repository and prints what it found.
pub(crate) fn run() -> ExitCode {
    let root = torture::harness::checkout::root();
    let sources = rust_sources(&root);
    let mut findings = Vec::new();
    if sources.is_empty() {
        findings.push(Finding::about(
            &root,
            "nothing to look at: this tool was built in a checkout that is gone",
        ));
    }
    findings.extend(layers::check(&root));
    findings.extend(circles::check(&root));
    findings.extend(lengths::check(&sources));
    findings.extend(words::check(&root, &sources));
    for finding in &findings {
        println!("{}: {}", finding.place, finding.what);
    }
    println!("tidy: {} files looked at, {} findings", sources.len(), findings.len());
    if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn rust_sources(root: &Path) -> Vec<Source> {
    let mut sources = Vec::new();
    for folder in ["crates", "xtask", "fuzz", "tests"] {
        collect(root, Path::new(folder), &mut sources);
    }
    sources
}

fn collect(root: &Path, folder: &Path, sources: &mut Vec<Source>) {
    for path in entries(&root.join(folder)) {
        let Some(name) = path.file_name().map(PathBuf::from) else { continue };
        let inner = folder.join(&name);
        if path.is_dir() {
            if name != Path::new("target") && name != Path::new("node_modules") {
                collect(root, &inner, sources);
            }
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = fs::read_to_string(&path).unwrap_or_default();
            sources.push(Source { path: inner, text });
        }
    }
}

/// The entries of a folder in name order; none when it cannot be read.
pub(crate) fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}
