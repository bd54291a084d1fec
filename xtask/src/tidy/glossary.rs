//! The modules, formats and files that the glossary names exist.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fmt, fs};

use super::Finding;
use super::members::Member;
use super::modules::{self, Modules};

const GLOSSARY: &str = "docs/glossary.md";

/// A code span of the glossary that says where a thing is.
#[derive(Debug, PartialEq, Eq)]
enum Place<'a> {
    /// A crate, or a module of one: `cluster::membership`.
    Module(&'a str),
    /// A page of `docs/formats`.
    Format(&'a str),
    /// A file or folder of the repository.
    File(&'a str),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Module(path) => write!(f, "the module {path}"),
            Place::Format(name) => write!(f, "the format {name}"),
            Place::File(path) => write!(f, "{path}"),
        }
    }
}

/// Checks the last column of the glossary's tables, and the module paths in the rest of its text.
pub(super) fn check(root: &Path, members: &[Member]) -> Vec<Finding> {
    let text = fs::read_to_string(root.join(GLOSSARY)).unwrap_or_default();
    let modules_of = |member: &Member| modules::read(&root.join(&member.folder).join("src"));
    let crates: BTreeMap<&str, Modules> =
        members.iter().map(|member| (member.name.as_str(), modules_of(member))).collect();
    let missing = |place: &Place<'_>| match place {
        Place::Module(path) => !has_module(&crates, path),
        Place::Format(name) => !root.join(format!("docs/formats/{name}.md")).exists(),
        Place::File(path) => !root.join(path).exists(),
    };
    let lines = text.lines().enumerate();
    lines
        .flat_map(|(i, line)| places(line).into_iter().map(move |place| (i + 1, place)))
        .filter(|(_, place)| missing(place))
        .map(|(line, place)| {
            Finding::at(Path::new(GLOSSARY), line, format!("names {place}, which is not there"))
        })
        .collect()
}

/// Whether a path such as `cluster::membership` is that of a crate or of a module in it.
fn has_module(crates: &BTreeMap<&str, Modules>, path: &str) -> bool {
    let mut names = path.split("::");
    let Some(modules) = names.next().and_then(|name| crates.get(name)) else { return false };
    let module: Vec<String> = names.map(str::to_owned).collect();
    modules.keys().any(|known| known.starts_with(&module))
}

/// The places that a line names. In the last of three columns every code span is a place.
fn places(line: &str) -> Vec<Place<'_>> {
    let cells: Vec<&str> = line.split('|').collect();
    let (rest, last) = match cells[..] {
        ["", .., last, ""] if cells.len() == 5 => (&line[..line.len() - last.len() - 1], last),
        _ => (line, ""),
    };
    let in_rest = spans(rest).into_iter().map(|(_, span)| span).filter(|span| is_module_path(span));
    let in_last = spans(last).into_iter().map(|(before, span)| match span {
        _ if before.ends_with("format ") => Place::Format(span),
        _ if span.contains('/') => Place::File(span),
        _ => Place::Module(span),
    });
    in_rest.map(Place::Module).chain(in_last).collect()
}

/// The code spans of a text, each with the text between it and the one before.
fn spans(text: &str) -> Vec<(&str, &str)> {
    let parts: Vec<&str> = text.split('`').collect();
    parts.as_chunks::<2>().0.iter().map(|[before, span]| (*before, *span)).collect()
}

/// Whether a code span has the form `cluster::membership`; that of a type or a method has an upper-case letter.
fn is_module_path(span: &str) -> bool {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    span.contains("::") && span.split("::").all(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_span_of_the_last_column_is_a_place() {
        let line = "| link | connects two (`Links`, see `rpc::client`) | `cluster::link`, format `link`, `tests/a` |";
        let expected = [
            Place::Module("rpc::client"),
            Place::Module("cluster::link"),
            Place::Format("link"),
            Place::File("tests/a"),
        ];
        assert_eq!(places(line), expected);
        assert!(places("| was called | is now, as `Links` |").is_empty());
        assert_eq!(places("Text about `a::b` and `A::b`."), [Place::Module("a::b")]);
    }

    #[test]
    fn names_of_nothing_are_found() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("crates/a/src/lib.rs", "mod b;\n");
        write("crates/a/src/b/mod.rs", "mod c;\n");
        write("crates/a/src/b/c.rs", "");
        write("docs/formats/row.md", "");
        let glossary = "| word | meaning | place |\n|---|---|---|\n| x | y | `a`, `a::b::c`, format `row`, `crates/a` |\n\
                        | x | y | `d`, `a::c`, format `log`, `tests/z` |\n";
        write(GLOSSARY, glossary);
        let members = [Member { name: "a".to_owned(), folder: "crates/a".into() }];
        let found: Vec<String> =
            check(root.path(), &members).into_iter().map(|finding| finding.what).collect();
        let missing = ["the module d", "the module a::c", "the format log", "tests/z"];
        assert_eq!(found, missing.map(|place| format!("names {place}, which is not there")));
    }
}
