//! `tidy`: the rules of STYLE.md that a program can check, over every member of the workspace. It never edits.

mod circles;
mod constants;
mod failpoints;
mod files;
mod glossary;
mod graph;
mod impls;
mod layers;
mod lengths;
mod members;
mod messages;
mod modules;
mod paths;
mod prose;
mod repeats;
mod rooms;
mod words;

use std::path::Path;
use std::process::ExitCode;

use torture::harness::checkout;

/// A rule that is broken, and where.
pub(crate) struct Finding {
    /// File, and line where there is one.
    pub(crate) place: String,
    /// The fault and its remedy.
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

/// Runs every check over the repository and prints the findings.
pub(crate) fn run() -> ExitCode {
    let root = checkout::root();
    let members = members::members(&root);
    let (sources, documents) = (members::rust_sources(&root, &members), members::documents(&root));
    let mut findings = Vec::new();
    if sources.is_empty() {
        findings.push(Finding::about(&root, "no sources: this tool was built in a checkout that is gone"));
    }
    findings.extend(layers::check(&root, &members));
    findings.extend(circles::check(&root, &members));
    findings.extend(rooms::check(&root, &members));
    findings.extend(impls::check(&root, &members));
    findings.extend(lengths::check(&sources));
    findings.extend(failpoints::check(&sources));
    findings.extend(files::check(&root, &sources, &documents));
    findings.extend(words::check(&root, &sources));
    findings.extend(repeats::check(&sources));
    findings.extend(constants::check(&sources));
    findings.extend(glossary::check(&root, &members));
    findings.extend(paths::check(&root, &documents));
    findings.extend(prose::check(&members, &sources, &documents));
    for finding in &findings {
        println!("{}: {}", finding.place, finding.what);
    }
    println!("tidy: {} files looked at, {} findings", sources.len(), findings.len());
    if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
