//! The paths of this repository that Markdown names exist.

use std::path::Path;

use super::Finding;
use super::members::Source;

/// Folders at the root of the repository that paths in backticks begin with.
const ROOTS: [&str; 9] =
    ["crates/", "docs/", "tests/", "xtask/", "tools/", "fuzz/", "torture/", "simulation/", "differential/"];

/// Pages about names that are not of this repository (`docs/reference`), or that were right at a release (`CHANGELOG.md`).
const UNCHECKED: [&str; 2] = ["docs/reference", "CHANGELOG.md"];

/// Folders that programs make, and that are not committed.
const GENERATED: [&str; 1] = ["fuzz/artifacts"];

/// Checks every page except `UNCHECKED`.
pub(super) fn check(root: &Path, documents: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in documents.iter().filter(|page| UNCHECKED.iter().all(|start| !page.path.starts_with(start))) {
        for (line, path) in named(&page.text) {
            if !root.join(path).exists() {
                findings.push(Finding::at(&page.path, line, format!("names {path}, which is not there")));
            }
        }
    }
    findings
}

/// The paths in backticks outside of fenced code, with the numbers of their lines.
fn named(text: &str) -> Vec<(usize, &str)> {
    let mut is_fenced = false;
    let mut found = Vec::new();
    for (nth, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced {
            let spans = line.split('`').skip(1).step_by(2);
            found.extend(spans.filter(|span| is_place(span)).map(|span| (nth + 1, span)));
        }
    }
    found
}

/// Whether a word in backticks is a path of this repository. A part in capitals stands for a name: `fuzz/corpus/TARGET`.
fn is_place(word: &str) -> bool {
    let is_placeholder = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_uppercase());
    ROOTS.iter().any(|start| word.starts_with(start))
        && GENERATED.iter().all(|folder| !Path::new(word).starts_with(folder))
        && !word.contains(['*', ' ', '<', '…'])
        && !word.split('/').any(is_placeholder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_from_backticks_outside_of_code() {
        let text = "`crates/a` and `b/c`\n```text\n`docs/x`\n```\n`crates/*/src`, `fuzz/corpus/TARGET`, `tests/x.rs`\n";
        assert_eq!(named(text), [(1, "crates/a"), (5, "tests/x.rs")]);
        assert!(named("`fuzz/artifacts/a`, crates/none, `cargo test crates/a`").is_empty());
    }

    #[test]
    fn a_path_that_is_not_there_is_found_on_every_page_but_those_of_users() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("crates/a")).unwrap();
        let page = |path: &str| Source { path: path.into(), text: "`crates/a`\n`crates/b`\n".to_owned() };
        let pages = ["docs/decisions/0001.md", "docs/reference/a.md", "CHANGELOG.md", "STYLE.md"].map(page);
        let found = check(root.path(), &pages);
        let places: Vec<&str> = found.iter().map(|finding| finding.place.as_str()).collect();
        assert_eq!(places, ["docs/decisions/0001.md:2", "STYLE.md:2"]);
        assert_eq!(found[0].what, "names crates/b, which is not there");
    }
}
