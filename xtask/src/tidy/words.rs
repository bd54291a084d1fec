//! Names of files, headers, docstrings, and leftovers.

use std::fs;
use std::path::Path;

use super::Finding;
use super::members::{Source, entries};

const NAMES_WITHOUT_MEANING: [&str; 8] =
    ["utils", "util", "common", "helpers", "helper", "misc", "types", "manager"];
/// A public function with this many parameters has a docstring.
const PARAMETERS_MANY: usize = 3;
const MARKERS: [&str; 4] = ["todo!(", "unimplemented!(", "dbg!(", "#[ignore"];

/// Checks file names, `//!` headers, docstrings of public items, leftovers, and that
/// `ARCHITECTURE.md` has a heading for every folder under `crates`.
pub(super) fn check(root: &Path, sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        let checker = source.path.starts_with("xtask/src/tidy");
        findings.extend(file_name(source));
        findings.extend(header(source));
        findings.extend(docstrings(source));
        if !checker {
            findings.extend(leftovers(source));
        }
    }
    findings.extend(architecture(root));
    findings
}

fn file_name(source: &Source) -> Option<Finding> {
    let parts = source.path.with_extension("");
    let bad =
        parts.iter().filter_map(|part| part.to_str()).find(|part| NAMES_WITHOUT_MEANING.contains(part))?;
    Some(Finding::about(&source.path, format!("{bad:?} says nothing; find the real name")))
}

fn header(source: &Source) -> Option<Finding> {
    let first = source.text.lines().find(|line| !line.starts_with("#!") && !line.trim().is_empty())?;
    (!first.starts_with("//!"))
        .then(|| Finding::about(&source.path, "begins without a `//!` line saying what it is"))
}

fn docstrings(source: &Source) -> Vec<Finding> {
    if !source.path.starts_with("crates")
        || source.path.iter().any(|part| part == "tests" || part == "examples")
    {
        return Vec::new();
    }
    let lines: Vec<&str> = source.text.lines().collect();
    let tests_from = lines.iter().position(|line| line.starts_with("#[cfg(test)]")).unwrap_or(lines.len());
    let mut findings = Vec::new();
    for i in 0..tests_from {
        if needs_docstring(&lines[i..]) && !has_docstring(&lines[..i]) {
            findings.push(Finding::at(&source.path, i + 1, "a public item without a docstring"));
        }
    }
    findings
}

/// Whether the first line begins a public type, a public trait, or a public function that can fail or has many
/// parameters. The name of another function may say everything.
fn needs_docstring(lines: &[&str]) -> bool {
    let item = lines[0].trim_start();
    let begins = |starts: &[&str]| starts.iter().any(|start| item.starts_with(start));
    if begins(&["pub struct ", "pub enum ", "pub trait "]) {
        return true;
    }
    begins(&["pub fn ", "pub const fn ", "pub async fn "]) && {
        let signature = signature(lines);
        signature.contains("-> Result<") || parameters(&signature) >= PARAMETERS_MANY
    }
}

/// The lines of a function up to its body, as one.
fn signature(lines: &[&str]) -> String {
    let end = lines.iter().position(|line| line.trim_end().ends_with(['{', ';', '}']));
    lines[..end.map_or(lines.len(), |end| end + 1)].join(" ")
}

/// The number of parameters without `self`: each has one colon outside of its type.
fn parameters(signature: &str) -> usize {
    let text = signature.replace("->", "").replace("::", "");
    let (mut depth, mut angles, mut colons) = (0, 0, 0);
    for c in text.chars() {
        match c {
            '<' => angles += 1,
            '>' => angles -= 1,
            '(' if angles == 0 => depth += 1,
            ')' if angles == 0 => depth -= 1,
            ':' if depth == 1 && angles == 0 => colons += 1,
            _ => {}
        }
        if c == ')' && depth == 0 && angles == 0 {
            break;
        }
    }
    colons
}

fn has_docstring(before: &[&str]) -> bool {
    let mut attribute = false;
    for line in before.iter().rev().map(|line| line.trim()) {
        if line.starts_with("///") || line.starts_with("#[doc") {
            return true;
        }
        if line.ends_with(']') {
            attribute = !line.starts_with("#[");
        } else if !attribute {
            return false;
        }
        if line.starts_with("#[") {
            attribute = false;
        }
    }
    false
}

fn leftovers(source: &Source) -> Vec<Finding> {
    let lines = source.text.lines().enumerate();
    lines
        .filter_map(|(i, line)| {
            let marker = MARKERS.iter().find(|marker| line.contains(**marker))?;
            Some(Finding::at(&source.path, i + 1, format!("`{marker}` is left here")))
        })
        .collect()
}

fn architecture(root: &Path) -> Vec<Finding> {
    let file = Path::new("ARCHITECTURE.md");
    let text = fs::read_to_string(root.join(file)).unwrap_or_default();
    let headings: Vec<&str> = text.lines().filter(|line| line.starts_with('#')).collect();
    let mut findings = Vec::new();
    for folder in entries(&root.join("crates")) {
        let name = folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let quoted = format!("`crates/{name}`");
        if !headings.iter().any(|heading| heading.contains(&quoted)) {
            findings.push(Finding::about(file, format!("has no heading for {quoted}")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::{has_docstring, needs_docstring, parameters};

    #[test]
    fn attributes_may_stand_between_docstring_and_item() {
        assert!(has_docstring(&["/// says it", "#[must_use]"]));
        assert!(has_docstring(&["/// says it", "#[derive(", "    Clone", ")]"]));
        assert!(!has_docstring(&["}", ""]));
        assert!(!has_docstring(&["/// of another", "fn other() {}", "#[must_use]"]));
    }
    #[test]
    fn public_types_and_functions_that_fail_need_docstrings() {
        assert!(needs_docstring(&["pub struct A {"]));
        assert!(needs_docstring(&["    pub fn read(&self) -> Result<A, B> {"]));
        assert!(needs_docstring(&["pub fn read(", "    a: A,", ") -> Result<A, B> {"]));
        assert!(!needs_docstring(&["pub fn group(&self, id: GroupId) -> Option<&Group> {"]));
        assert!(!needs_docstring(&["pub fn group(&self) -> u64 {", "fn read() -> Result<A, B> {"]));
        assert!(!needs_docstring(&["struct A {"]));
    }

    #[test]
    fn parameters_are_counted_without_self_and_generics() {
        assert_eq!(parameters("pub fn a(&self) -> u8 {"), 0);
        assert_eq!(parameters("pub fn a<T: Clone>(&self, b: impl Fn(u8) -> u8, c: io::Error) {"), 2);
        assert_eq!(parameters("pub fn a(b: HashMap<A, fn(c: u8)>, d: u8, e: u8) where T: Clone {"), 3);
    }
}
