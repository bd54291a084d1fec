//! Failpoints have unique names, and the crash test knows all of them.

use std::collections::BTreeMap;

use regex::Regex;

use super::Finding;
use super::members::Source;

/// The list of the crash test.
const LIST: &str = "torture/src/crash/failpoints.rs";
const CALL: &str = r#"\bfailpoint\("([a-z._]+)"\)"#;
const LISTED: &str = r#"^\s*\("([a-z._]+)", "#;

/// Compares the calls in the crates with the list.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let pattern = |text| Regex::new(text).expect("the pattern is a constant");
    let (call, listed) = (pattern(CALL), pattern(LISTED));
    let mut calls: BTreeMap<&str, Vec<(&Source, usize)>> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.path.starts_with("crates")) {
        for (nth, line) in source.text.lines().enumerate() {
            for found in call.captures_iter(line) {
                calls.entry(found.extract::<1>().1[0]).or_default().push((source, nth + 1));
            }
        }
    }
    let Some(list) = sources.iter().find(|source| source.path.ends_with(LIST)) else { return Vec::new() };
    let mut findings = Vec::new();
    for (nth, line) in list.text.lines().enumerate() {
        let Some(found) = listed.captures(line) else { continue };
        let name = found.extract::<1>().1[0];
        match calls.remove(name).as_deref() {
            Some([_]) => {}
            Some([.., (source, line)]) => {
                findings.push(Finding::at(&source.path, *line, format!("failpoint {name} stands twice")));
            }
            _ => findings.push(Finding::at(&list.path, nth + 1, format!("there is no failpoint {name}"))),
        }
    }
    for (name, places) in calls {
        let (source, line) = places[0];
        findings.push(Finding::at(&source.path, line, format!("failpoint {name} is missing in {LIST}")));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_missing_or_repeated_are_found() {
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.to_owned() };
        let code = "io::failpoint(\"a.b\");\nio::failpoint(\"c\");\n::io::failpoint(\"d\");\nio::failpoint(\"d\");\n";
        let list =
            "const X: [(&str, F); 3] = [\n    (\"a.b\", Rare),\n    (\"d\", Rare),\n    (\"e\", Rare),\n];\n";
        let found = check(&[source("crates/a/src/lib.rs", code), source(LIST, list)]);
        let found: Vec<_> = found.into_iter().map(|one| format!("{} {}", one.place, one.what)).collect();
        assert_eq!(
            found,
            [
                "crates/a/src/lib.rs:4 failpoint d stands twice".to_owned(),
                format!("{LIST}:4 there is no failpoint e"),
                format!("crates/a/src/lib.rs:2 failpoint c is missing in {LIST}"),
            ]
        );
    }
}
