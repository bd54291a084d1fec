//! No two modules of a crate import each other, at any depth.

use std::path::Path;

use super::members::Member;
use super::modules::{self, ModulePath, Modules, imports};
use super::{Finding, graph};

/// Checks every member, level by level of its module tree.
pub(super) fn check(root: &Path, members: &[Member]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in members {
        let modules = modules::read(&root.join(&member.folder).join("src"));
        let found = circles(&modules).into_iter();
        let what = found.map(|circle| format!("modules import each other: {}", circle.join(", ")));
        findings.extend(what.map(|what| Finding::about(&member.folder, what)));
    }
    findings
}

/// Sets of sibling modules that reach each other through imports. A parent that names its own
/// children is a table of contents, not a circle.
fn circles(modules: &Modules) -> Vec<Vec<String>> {
    let mut edges = graph::Edges::<ModulePath>::new();
    for (module, text) in modules {
        for target in imports(module, text, modules) {
            let shared = module.iter().zip(&target).take_while(|(a, b)| a == b).count();
            if shared < module.len() && shared < target.len() {
                edges.entry(module[..=shared].to_vec()).or_default().insert(target[..=shared].to_vec());
            }
        }
    }
    let joined = |circle: Vec<ModulePath>| circle.iter().map(|path| path.join("::")).collect();
    graph::circles(&edges).into_iter().map(joined).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Modules {
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
