//! No two modules of a crate import each other, at any depth.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::{Finding, entries};

/// A module's path inside its crate: `["op", "math"]`; the crate's root is empty.
type ModulePath = Vec<String>;

/// Checks every crate under `crates`, level by level of its module tree.
pub(super) fn check(root: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    for folder in entries(&root.join("crates")) {
        let mut modules = BTreeMap::new();
        read(&folder.join("src"), &Vec::new(), &mut modules);
        let name = folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        for circle in circles(&modules) {
            let place = Path::new("crates").join(&name);
            let what = format!("modules import each other: {}", circle.join(", "));
            findings.push(Finding::about(&place, what));
        }
    }
    findings
}

fn read(folder: &Path, at: &ModulePath, modules: &mut BTreeMap<ModulePath, String>) {
    for path in entries(folder) {
        let stem = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        let mut module = at.clone();
        if !["lib", "main", "mod"].contains(&stem.as_str()) {
            module.push(stem);
        }
        if path.is_dir() {
            read(&path, &module, modules);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = fs::read_to_string(&path).unwrap_or_default();
            modules.insert(module, without_tests(&text));
        }
    }
}

/// The text up to its trailing test module, which may look at anything.
fn without_tests(text: &str) -> String {
    let end = text.find("\n#[cfg(test)]").unwrap_or(text.len());
    text[..end].to_owned()
}

/// Sets of sibling modules that reach each other through imports. A parent naming its own
/// children is a table of contents, not a circle.
fn circles(modules: &BTreeMap<ModulePath, String>) -> Vec<Vec<String>> {
    let mut edges: BTreeMap<ModulePath, BTreeSet<ModulePath>> = BTreeMap::new();
    for (module, text) in modules {
        for target in imports(module, text, modules) {
            let shared = module.iter().zip(&target).take_while(|(a, b)| a == b).count();
            if shared < module.len() && shared < target.len() {
                edges.entry(module[..=shared].to_vec()).or_default().insert(target[..=shared].to_vec());
            }
        }
    }
    let mut found: Vec<Vec<String>> = Vec::new();
    for start in edges.keys() {
        let reached = reach(start, &edges);
        if reached.contains(start) {
            let circle: Vec<String> = reached
                .iter()
                .filter(|other| reach(other, &edges).contains(start))
                .map(|path| path.join("::"))
                .collect();
            if !found.contains(&circle) {
                found.push(circle);
            }
        }
    }
    found
}

fn reach(start: &ModulePath, edges: &BTreeMap<ModulePath, BTreeSet<ModulePath>>) -> BTreeSet<ModulePath> {
    let mut reached = BTreeSet::new();
    let mut todo = vec![start.clone()];
    while let Some(module) = todo.pop() {
        for next in edges.get(&module).into_iter().flatten() {
            if reached.insert(next.clone()) {
                todo.push(next.clone());
            }
        }
    }
    reached
}

/// The modules that `text` names through `crate::` or `super::` paths, re-exports followed once.
fn imports(module: &ModulePath, text: &str, modules: &BTreeMap<ModulePath, String>) -> Vec<ModulePath> {
    let mut targets = Vec::new();
    for (start, base) in [("crate::", Vec::new()), ("super::", parent(module))] {
        for (at, _) in text.match_indices(start) {
            let line_start = text[..at].rfind('\n').map_or(0, |i| i + 1);
            if text[line_start..at].trim_start().starts_with("//") {
                continue;
            }
            let mut base = base.clone();
            let mut rest = &text[at + start.len()..];
            while let Some(deeper) = rest.strip_prefix("super::") {
                base.pop();
                rest = deeper;
            }
            for path in expand(rest) {
                targets.push(resolve(&base, &path, modules));
            }
        }
    }
    targets
}

fn parent(module: &ModulePath) -> ModulePath {
    module[..module.len().saturating_sub(1)].to_vec()
}

/// The paths of a use tree: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn expand(text: &str) -> Vec<Vec<String>> {
    let name_end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    if let Some(inner) = text.strip_prefix('{') {
        return split_top(inner).iter().flat_map(|part| expand(part.trim())).collect();
    }
    let head = text[..name_end].to_owned();
    match text[name_end..].strip_prefix("::") {
        Some(rest) => expand(rest)
            .into_iter()
            .map(|mut path| {
                path.insert(0, head.clone());
                path
            })
            .collect(),
        None => vec![vec![head]],
    }
}

fn split_top(inner: &str) -> Vec<&str> {
    let (mut depth, mut from, mut parts) = (0, 0, Vec::new());
    for (i, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                parts.push(&inner[from..i]);
                return parts;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inner[from..i]);
                from = i + 1;
            }
            _ => {}
        }
    }
    parts
}

fn resolve(base: &ModulePath, path: &[String], modules: &BTreeMap<ModulePath, String>) -> ModulePath {
    let mut at = base.clone();
    for (i, name) in path.iter().enumerate() {
        let mut deeper = at.clone();
        deeper.push(name.clone());
        if modules.contains_key(&deeper) || modules.keys().any(|key| key.starts_with(&deeper)) {
            at = deeper;
            continue;
        }
        return re_export(&at, &path[i], modules).unwrap_or(at);
    }
    at
}

/// Where `name` of module `at` really comes from, when it is re-exported with `pub use`.
fn re_export(at: &ModulePath, name: &str, modules: &BTreeMap<ModulePath, String>) -> Option<ModulePath> {
    let text = modules.get(at)?;
    for (start, _) in text.match_indices("use ") {
        let tree = &text[start + 4..];
        let tree = tree.split(';').next().unwrap_or(tree);
        for path in expand(tree.trim_start_matches("self::")) {
            let renamed = tree.contains(&format!(" as {name}"));
            if path.last().is_some_and(|last| last == name || renamed) && path.len() > 1 {
                let mut target = at.clone();
                target.push(path[0].clone());
                if modules.keys().any(|key| key.starts_with(&target)) {
                    return Some(target);
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::circles;

    fn tree(files: &[(&str, &str)]) -> BTreeMap<Vec<String>, String> {
        let path = |name: &str| name.split("::").filter(|p| !p.is_empty()).map(str::to_owned).collect();
        files.iter().map(|(name, text)| (path(name), (*text).to_owned())).collect()
    }

    #[test]
    fn two_modules_that_import_each_other_are_found() {
        let found =
            circles(&tree(&[("", ""), ("a", "use crate::b::X;"), ("b", "use crate::{c, a::Y};"), ("c", "")]));
        assert_eq!(found, [["a", "b"]]);
    }

    #[test]
    fn a_re_export_is_followed_to_its_module() {
        let root = "mod a;\nmod b;\npub use a::{Other, Thing};\n";
        let found = circles(&tree(&[("", root), ("a", "use crate::b::X;"), ("b", "use crate::Thing;")]));
        assert_eq!(found, [["a", "b"]]);
    }

    #[test]
    fn a_parent_may_name_its_children_and_they_its_items() {
        let found = circles(&tree(&[("", "mod a;"), ("a", "mod b; use b::X;"), ("a::b", "use super::Y;")]));
        assert!(found.is_empty());
    }
}
