//! The inherent methods of a type stand in few files, and these files do not call each other in circles.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::members::Member;
use super::modules::{self, ModulePath, Modules, imports};
use super::{Finding, graph};

/// Files of a crate in which inherent `impl` blocks of one type may stand.
const FILES_MAX: usize = 3;

/// Types that may stand in more files, which may call each other: crate, type, reason. At most [`EXCEPTIONS_MAX`] of them.
const EXCEPTIONS: &[(&str, &str, &str)] =
    &[("differential", "Generator", "a grammar: the productions of each family use those of the others")];
const EXCEPTIONS_MAX: usize = 3;
const _: () =
    assert!(EXCEPTIONS.len() <= EXCEPTIONS_MAX, "more types need a reason than are allowed to have one");

/// A type by the module that defines it and its name.
type TypeId = (ModulePath, String);

/// The inherent methods of one type in one module.
#[derive(Debug, Default)]
struct Methods {
    defined: BTreeSet<String>,
    called: BTreeSet<String>,
}

/// For each type the modules with inherent methods of it.
type Types = BTreeMap<TypeId, BTreeMap<ModulePath, Methods>>;

pub(super) fn check(root: &Path, members: &[Member]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut spread: BTreeMap<(&str, String), usize> = BTreeMap::new();
    let mut circular: BTreeSet<(&str, String)> = BTreeSet::new();
    for member in members {
        for ((_, name), files) in types(&modules::read(&root.join(&member.folder).join("src"))) {
            if files.len() > FILES_MAX && !is_exception(&member.name, &name) {
                let most = spread.entry((&member.name, name.clone())).or_default();
                *most = files.len().max(*most);
            }
            for circle in circles(&files).into_iter().filter(|_| !is_exception(&member.name, &name)) {
                if circular.insert((&member.name, name.clone())) {
                    let what = format!("methods of {name} call each other in circles: {}", circle.join(", "));
                    findings.push(Finding::about(&member.folder, what));
                }
            }
        }
    }
    for ((member, name), files) in spread {
        let what = format!("`impl {name}` stands in {files} files ({FILES_MAX} at most)");
        findings.push(Finding::about(Path::new(member), what));
    }
    findings
}

fn is_exception(member: &str, name: &str) -> bool {
    EXCEPTIONS.iter().any(|(of, exception, _)| (*of, *exception) == (member, name))
}

/// Modules whose methods of one type call each other in circles.
fn circles(files: &BTreeMap<ModulePath, Methods>) -> Vec<Vec<String>> {
    let mut edges = graph::Edges::<String>::new();
    for (module, methods) in files {
        for (other, defined) in files.iter().filter(|(other, _)| *other != module) {
            // If both files define a method of that name (for different features), the call is to the own file's.
            if methods.called.difference(&methods.defined).any(|name| defined.defined.contains(name)) {
                edges.entry(shown(module)).or_default().insert(shown(other));
            }
        }
    }
    graph::circles(&edges)
}

fn shown(module: &ModulePath) -> String {
    if module.is_empty() { "lib".to_owned() } else { module.join("::") }
}

/// The types of a crate that have inherent methods.
fn types(modules: &Modules) -> Types {
    let mut types = Types::new();
    for (module, text) in
        modules.iter().filter(|(module, _)| module.last().is_none_or(|name| name != "tests"))
    {
        for block in blocks(text) {
            let id = (definition(module, text, &block.name, modules), block.name.clone());
            let methods = types.entry(id).or_default().entry(module.clone()).or_default();
            methods.defined.extend(defined(&block.body));
            methods.called.extend(called_on(&block.body, "self."));
            methods.called.extend(called_on(&block.body, "Self::"));
        }
    }
    // Calls by the type's name, such as `Group::new()`, count in any function of the module, not only in methods.
    for ((_, name), files) in &mut types {
        for (module, methods) in files {
            methods.called.extend(called_on(&squeezed(&modules[module]), &format!("{name}::")));
        }
    }
    types
}

/// One inherent `impl` block: the name of its type and its text.
struct Block {
    name: String,
    body: String,
}

/// The inherent `impl` blocks of a module. Relies on rustfmt's layout: a block ends at the first `}` with its indentation.
fn blocks(text: &str) -> Vec<Block> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let header = line.trim_start();
        let header = header.strip_prefix("unsafe ").unwrap_or(header);
        if !header.starts_with("impl ") && !header.starts_with("impl<") {
            continue;
        }
        let closing = format!("{}}}", " ".repeat(line.len() - line.trim_start().len()));
        let end = lines[start..].iter().position(|line| *line == closing).filter(|_| !line.ends_with("{}"));
        let block = lines[start..].iter().take(end.map_or(1, |end| end + 1));
        let block = block.copied().collect::<Vec<_>>().join("\n");
        if let Some(name) = type_of(block.trim_start()) {
            found.push(Block { name, body: squeezed(&block) });
        }
    }
    found
}

/// The name of the type that an `impl` block is of; none if it is of a trait, or not of a named type.
fn type_of(block: &str) -> Option<String> {
    let header = block.split_once('{').map_or(block, |(header, _)| header);
    let rest = header.strip_prefix("unsafe ").unwrap_or(header).strip_prefix("impl")?;
    let rest = if rest.starts_with('<') { behind_generics(rest) } else { rest }.trim_start();
    let rest = rest.split("\nwhere").next().unwrap_or(rest).split(" where ").next().unwrap_or(rest);
    if without_generics(rest).contains(" for ") {
        return None;
    }
    let path = rest.split(['<', ' ', '\n']).next().unwrap_or(rest);
    let name = path.rsplit("::").next().unwrap_or(path);
    name.starts_with(char::is_uppercase).then(|| name.to_owned())
}

/// The text behind a list of generic parameters that it begins with.
fn behind_generics(text: &str) -> &str {
    let mut depth = 0;
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if before != '-' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[at + 1..];
        }
        before = c;
    }
    ""
}

fn without_generics(text: &str) -> String {
    match text.find('<') {
        Some(at) => format!("{}{}", &text[..at], without_generics(behind_generics(&text[at..]))),
        None => text.to_owned(),
    }
}

/// The module that defines the type that a module calls `name`: itself, one that it names, or the nearest.
fn definition(module: &ModulePath, text: &str, name: &str, modules: &Modules) -> ModulePath {
    let kinds = ["struct", "enum", "union"].map(|kind| format!("{kind} {name}"));
    let defines = |text: &str| {
        let ends = kinds.iter().flat_map(|kind| text.match_indices(kind).map(|(at, _)| at + kind.len()));
        ends.into_iter().any(|end| !text[end..].starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    if defines(text) {
        return module.clone();
    }
    let candidates: Vec<&ModulePath> =
        modules.iter().filter(|(_, text)| defines(text)).map(|(module, _)| module).collect();
    let named = imports(module, text, modules);
    let shared = |other: &ModulePath| module.iter().zip(other).take_while(|(a, b)| a == b).count();
    let best = candidates.iter().max_by_key(|candidate| (named.contains(candidate), shared(candidate)));
    best.map_or_else(Vec::new, |best| (*best).clone())
}

/// Code without comments, and without the white space before a method's dot.
fn squeezed(code: &str) -> String {
    let mut squeezed = String::new();
    for line in code.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
        if !line.starts_with('.') {
            squeezed.push('\n');
        }
        squeezed.push_str(line);
    }
    squeezed
}

/// The functions that a block defines.
fn defined(body: &str) -> Vec<String> {
    body.lines()
        .filter_map(|line| {
            let (before, rest) = line.split_once("fn ")?;
            let is_definition = before.split_whitespace().all(|word| {
                word.starts_with("pub")
                    || ["const", "async", "unsafe", "extern", "\"C\"", "in"].contains(&word)
            });
            is_definition.then(|| name_at(rest).to_owned())
        })
        .collect()
}

/// The functions that are called right behind `start`, as `self.` or `Self::`.
fn called_on(code: &str, start: &str) -> Vec<String> {
    let calls = code.match_indices(start).filter_map(|(at, _)| {
        let is_word = code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let name = name_at(&code[at + start.len()..]);
        let behind = &code[at + start.len() + name.len()..];
        let is_call = behind.starts_with('(') || behind.starts_with("::<") || start.ends_with("::");
        (!is_word && is_call && !name.is_empty()).then(|| name.to_owned())
    });
    calls.collect()
}

fn name_at(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn tree(files: &[(&str, &str)]) -> Modules {
        let path = |name: &str| name.split("::").filter(|p| !p.is_empty()).map(str::to_owned).collect();
        files.iter().map(|(name, text)| (path(name), (*text).to_owned())).collect()
    }

    fn files_of(files: &[(&str, &str)], name: &str) -> Vec<usize> {
        types(&tree(files)).iter().filter(|((_, of), _)| of == name).map(|(_, files)| files.len()).collect()
    }

    fn circles_of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        types(&tree(files)).values().flat_map(circles).collect()
    }

    #[test]
    fn the_type_of_an_inherent_block_is_known() {
        assert_eq!(type_of("impl Core {").as_deref(), Some("Core"));
        assert_eq!(type_of("impl<T: Fn(u8) -> u8> Foo<T> {").as_deref(), Some("Foo"));
        assert_eq!(
            type_of("impl<T> super::Foo<'_, T>\nwhere\n    T: for<'a> Read<'a>,\n{").as_deref(),
            Some("Foo")
        );
        assert_eq!(type_of("impl Drop for Core {"), None);
        assert_eq!(type_of("impl<T> From<Vec<T>> for Foo<T> {"), None);
    }

    #[test]
    fn files_with_blocks_of_one_type_are_counted() {
        let at = |name| (name, "use crate::Core;\nimpl Core {\n}\nimpl Core {\n}\nimpl Drop for Core {\n}\n");
        let root = ("", "struct Core;\n");
        assert_eq!(files_of(&[root, at("a"), at("b"), at("c::d")], "Core"), [3]);
    }

    #[test]
    fn types_of_one_name_are_counted_apart() {
        let own = "struct Reader;\nimpl Reader {\n}\n";
        let files = [("a", own), ("b", own), ("c", "use super::b::Reader;\nimpl Reader {\n}\n")];
        assert_eq!(files_of(&files, "Reader"), [1, 2]);
    }

    #[test]
    fn a_type_in_too_many_files_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let member = Member { name: "a".to_owned(), folder: PathBuf::from("a") };
        let src = folder.path().join("a/src");
        std::fs::create_dir_all(&src).unwrap();
        std::fs::write(src.join("lib.rs"), "mod b;\nmod c;\nmod d;\nstruct Core;\nimpl Core {}\n").unwrap();
        let findings = |module: &str| {
            let text = "use super::Core;\nimpl Core {\n    fn one(&self) {}\n}\n";
            std::fs::write(src.join(module), text).unwrap();
            check(folder.path(), std::slice::from_ref(&member)).len()
        };
        assert_eq!(["b.rs", "c.rs", "d.rs"].map(findings), [0, 0, 1]);
    }

    #[test]
    fn methods_that_call_each_other_over_files_are_found() {
        let a = "struct Core;\nimpl Core {\n    pub(crate) fn one(&self) {\n        self\n            .two();\n    }\n}\n";
        let b = "use super::a::Core;\nimpl Core {\n    fn two(&self) {\n        Core::one(self);\n    }\n}\n";
        assert_eq!(circles_of(&[("a", a), ("b", b)]), [["a", "b"]]);
    }

    #[test]
    fn calls_in_one_direction_and_of_other_types_are_no_circle() {
        let a = "struct Core;\nimpl Core {\n    fn one(&self) {\n        self.two();\n    }\n}\n";
        let b = "use super::a::Core;\nimpl Core {\n    fn two(&self) {\n        // self.one()\n        self.inner.one();\n        self.one\n    }\n}\nimpl Other {\n    fn three(&self) {\n        self.one();\n    }\n}\n";
        assert!(circles_of(&[("a", a), ("b", b)]).is_empty());
    }
}
