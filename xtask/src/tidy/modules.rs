//! The module tree of a crate, and which modules a module names.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::members::entries;

/// A module's path inside its crate: `["op", "math"]`; the crate's root is empty.
pub(super) type ModulePath = Vec<String>;

/// The text of every module without its tests, and without modules that are only compiled for tests.
pub(super) type Modules = BTreeMap<ModulePath, String>;

/// Reads the modules below a crate's `src`.
pub(super) fn read(folder: &Path) -> Modules {
    let mut modules = Modules::new();
    let mut test_modules = Vec::new();
    read_below(folder, &Vec::new(), &mut modules, &mut test_modules);
    modules.retain(|module, _| !test_modules.iter().any(|tests| module.starts_with(tests)));
    modules
}

fn read_below(folder: &Path, at: &ModulePath, modules: &mut Modules, test_modules: &mut Vec<ModulePath>) {
    for path in entries(folder) {
        let stem = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        let mut module = at.clone();
        if !["lib", "main", "mod"].contains(&stem.as_str()) {
            module.push(stem);
        }
        if path.is_dir() {
            read_below(&path, &module, modules, test_modules);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let (code, tests) = without_tests(&text);
            test_modules.extend(tests.into_iter().map(|name| [module.clone(), vec![name]].concat()));
            // A library and a program of one package have one root here.
            modules.entry(module).or_default().push_str(&code);
        }
    }
}

/// The text without the items that are compiled for tests only (these may name any module); and the names of those items
/// that are modules in other files. Relies on rustfmt's layout: an item ends with its line or at the first `}` in column 0.
fn without_tests(text: &str) -> (String, Vec<String>) {
    let (mut code, mut tests) = (String::new(), Vec::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line != "#[cfg(test)]" {
            code.push_str(line);
            code.push('\n');
            continue;
        }
        let item = lines.next().unwrap_or_default();
        if let Some(name) = item.strip_suffix(';').and_then(|item| item.split_once("mod ")) {
            tests.push(name.1.to_owned());
        } else if !item.ends_with([';', '}']) {
            lines.by_ref().find(|line| line.starts_with('}'));
        }
    }
    (code, tests)
}

/// The modules that `text` names through `crate::` or `super::` paths. A re-export is followed once.
pub(super) fn imports(module: &ModulePath, text: &str, modules: &Modules) -> Vec<ModulePath> {
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

fn resolve(base: &ModulePath, path: &[String], modules: &Modules) -> ModulePath {
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
fn re_export(at: &ModulePath, name: &str, modules: &Modules) -> Option<ModulePath> {
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
    use std::fs;

    use super::*;

    #[test]
    fn items_of_tests_are_left_out() {
        let text = "use a;\n#[cfg(test)]\nmod bed;\n#[cfg(test)]\nuse b;\nfn f() {}\n#[cfg(test)]\nmod tests {\n    use c;\n}\n";
        assert_eq!(without_tests(text), ("use a;\nfn f() {}\n".to_owned(), vec!["bed".to_owned()]));
    }

    #[test]
    fn files_of_tests_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/bed")).unwrap();
        for (name, text) in [
            ("lib.rs", "mod a;\n"),
            ("a/mod.rs", "#[cfg(test)]\nmod bed;\n"),
            ("a/bed/mod.rs", ""),
            ("a/bed/b.rs", ""),
        ] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let modules = read(folder.path());
        assert_eq!(modules.into_keys().collect::<Vec<_>>(), [Vec::<String>::new(), vec!["a".to_owned()]]);
    }
}
