//! The modules at the top of a crate that is divided into rooms use only those above them in the list of its `lib.rs`.

use std::path::Path;
use std::{collections::BTreeSet, fs};

use super::Finding;
use super::members::Member;
use super::modules::{self, ModulePath, Modules, imports};

/// The crates whose `lib.rs` lists rooms.
const DIVIDED: [&str; 2] = ["cluster", "query"];

/// Checks the crates that are divided into rooms.
pub(super) fn check(root: &Path, members: &[Member]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in members.iter().filter(|member| DIVIDED.contains(&member.name.as_str())) {
        let library = member.folder.join("src/lib.rs");
        let text = fs::read_to_string(root.join(&library)).unwrap_or_default();
        let modules = modules::read(&root.join(&member.folder).join("src"));
        let faults = faults(&listed(&text), &modules);
        findings.extend(faults.into_iter().map(|what| Finding::about(&library, what)));
    }
    findings
}

/// The rooms in the order of the list at the top of `lib.rs`, which follows a line about rooms. An item begins with the
/// names of its rooms.
fn listed(text: &str) -> Vec<String> {
    let list = text.lines().skip_while(|line| !line.contains(" rooms"));
    let items = list.filter_map(|line| line.strip_prefix("//! - "));
    let names = items.filter_map(|item| item.split_once(':')).flat_map(|(names, _)| names.split(", "));
    names.map(|name| name.trim_matches(['`', '[', ']']).to_owned()).collect()
}

/// Modules that use a room below them, or that have no place in the list.
fn faults(rooms: &[String], modules: &Modules) -> Vec<String> {
    let place = |name: &str| rooms.iter().position(|room| room == name);
    let tops: BTreeSet<&String> = modules.keys().filter_map(|module| module.first()).collect();
    let unlisted = tops.iter().filter(|name| place(name).is_none());
    let mut faults: BTreeSet<String> =
        unlisted.map(|name| format!("the list of rooms lacks `{name}`")).collect();
    let missing = rooms.iter().filter(|room| !tops.contains(room));
    faults.extend(missing.map(|room| format!("the list of rooms names `{room}`, which is no module")));
    for (user, used) in uses(modules) {
        if place(&user).zip(place(&used)).is_some_and(|(user, used)| used > user) {
            faults.insert(format!("`{user}` uses `{used}`, which is below it in the list of rooms"));
        }
    }
    faults.into_iter().collect()
}

/// Pairs of different modules at the top of a crate of which the first uses the second.
fn uses(modules: &Modules) -> BTreeSet<(String, String)> {
    let top = |module: &ModulePath| module.first().cloned();
    let pairs = modules.iter().flat_map(|(module, text)| {
        let used = imports(module, text, modules).into_iter();
        used.filter_map(move |used| top(module).zip(top(&used)))
    });
    pairs.filter(|(user, used)| user != used).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "//! - `z`: a type.\n//!\n//! The crate is divided into rooms:\n//!\n//! - `a`: the first.\n//! - [`b`], `c`: both: two.\n//!   More.\n\nmod a;\n";

    fn faults_in(files: &[(&str, &str)]) -> Vec<String> {
        let path = |name: &str| name.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let modules = files.iter().map(|(name, text)| (path(name), (*text).to_owned())).collect();
        faults(&listed(LIST), &modules)
    }

    #[test]
    fn rooms_are_read_from_the_top_of_the_library() {
        assert_eq!(listed(LIST), ["a", "b", "c"]);
        assert!(listed("//! It has rooms.\n- `a`: no comment\n//! `b`: no item\n").is_empty());
    }

    #[test]
    fn a_room_may_use_those_above_it_at_any_depth() {
        let above = [
            ("a", "use crate::Y;"),
            ("b", ""),
            ("b::d", "use crate::{a::X, a};\n// crate::c"),
            ("c", "use super::b;"),
        ];
        assert!(faults_in(&above).is_empty());
    }

    #[test]
    fn a_room_that_uses_one_below_it_is_found() {
        let found = faults_in(&[
            ("a", ""),
            ("a::d", "use super::super::c::X;"),
            ("b", "use crate::c;"),
            ("c", ""),
            ("", "mod c; use c::X;"),
        ]);
        let below = [("a", "c"), ("b", "c")];
        let expected = below
            .map(|(user, used)| format!("`{user}` uses `{used}`, which is below it in the list of rooms"));
        assert_eq!(found, expected);
    }

    #[test]
    fn the_list_has_every_module_and_no_other() {
        let found = faults_in(&[("a", ""), ("b", ""), ("d", "")]);
        assert_eq!(found, ["the list of rooms lacks `d`", "the list of rooms names `c`, which is no module"]);
    }
}
