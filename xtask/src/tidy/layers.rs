//! A package may use those on lower lines of the picture in ARCHITECTURE.md, never one on its own line or above.

use std::fs;
use std::path::Path;

use super::Finding;
use super::members::Member;

const LINES: [&[&str]; 12] = [
    &["datum", "io"],
    &["reql", "engine", "log"],
    &["storage"],
    &["shard"],
    &["cluster"],
    &["protocol", "query", "inspect"],
    &["client"],
    &["server", "bench", "migrate"],
    &["rekindle"],
    // Beside the crates: tools that use them, and that none of them uses.
    &["powercut"],
    &["differential", "fuzz", "powercut-recorder", "simulation", "torture"],
    &["xtask"],
];

/// Checks the manifest of every member.
pub(super) fn check(root: &Path, members: &[Member]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for Member { name, folder } in members {
        let manifest = folder.join("Cargo.toml");
        let Some(line) = line_of(name) else {
            findings.push(Finding::about(
                &manifest,
                "the list of layers has no line for it; see ARCHITECTURE.md",
            ));
            continue;
        };
        let text = fs::read_to_string(root.join(&manifest)).unwrap_or_default();
        for (number, used) in dependencies(&text) {
            if line_of(used).is_some_and(|other| other >= line) {
                let what = format!("{name} (line {line}) may not use {used}: it is not on a lower line");
                findings.push(Finding::at(&manifest, number, what));
            }
        }
    }
    findings
}

fn line_of(name: &str) -> Option<usize> {
    LINES.iter().position(|line| line.contains(&name))
}

fn dependencies(manifest: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut inside = false;
    manifest.lines().enumerate().filter_map(move |(i, line)| {
        if line.starts_with('[') {
            inside = line.contains("dependencies");
            return None;
        }
        let name = line.split(['.', ' ', '=']).next()?;
        (inside && !name.is_empty()).then_some((i + 1, name))
    })
}

#[cfg(test)]
mod tests {
    use super::{dependencies, line_of};

    #[test]
    fn names_of_dependencies_are_read() {
        let text = "[package]\nname = \"x\"\n[dependencies]\ndatum.workspace = true\nlog = { a = 1 }\n[lints]\nworkspace = true\n";
        assert_eq!(dependencies(text).collect::<Vec<_>>(), [(4, "datum"), (5, "log")]);
    }

    #[test]
    fn every_line_is_above_its_predecessor() {
        assert!(line_of("storage") > line_of("engine"));
        assert_eq!(line_of("nowhere"), None);
    }
}
