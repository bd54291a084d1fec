//! No constant is called `PATIENCE` or `PAUSE`: a name says which wait or size it bounds, as `LEADER_LOOKUP_TIMEOUT`.

use std::path::Path;

use super::members::{Member, Source};
use super::{Finding, pending};

const BARE: [&str; 2] = ["PATIENCE", "PAUSE"];

/// Checks every member.
pub(super) fn check(members: &[Member], sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in members {
        let own = sources.iter().filter(|source| source.path.starts_with(&member.folder));
        let bare: Vec<Finding> = own.flat_map(bare_constants).collect();
        let pending = pending::BARE_CONSTANTS.iter().find(|(pending, _)| *pending == member.name);
        findings.extend(judge(&member.folder, bare, pending.map(|(_, count)| *count)));
    }
    findings
}

/// A pending number has to be the number of constants, so that it only shrinks.
fn judge(folder: &Path, bare: Vec<Finding>, pending: Option<usize>) -> Vec<Finding> {
    match pending {
        Some(allowed) if bare.len() < allowed => {
            let what = format!("{} bare constants: lower pending::BARE_CONSTANTS ({allowed})", bare.len());
            vec![Finding::about(folder, what)]
        }
        Some(allowed) if bare.len() == allowed => Vec::new(),
        _ => bare,
    }
}

fn bare_constants(source: &Source) -> Vec<Finding> {
    let bare = |line: &str| {
        let (before, rest) = line.split_once("const ")?;
        let is_item = before.trim().is_empty() || before.trim_start().starts_with("pub");
        let name = rest.split(':').next().filter(|_| is_item)?;
        BARE.contains(&name).then(|| format!("{name} does not say which wait it bounds"))
    };
    let lines = source.text.lines().enumerate();
    lines.filter_map(|(nth, line)| Some(Finding::at(&source.path, nth + 1, bare(line)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let source = Source { path: "crates/a/src/lib.rs".into(), text: text.to_owned() };
        bare_constants(&source).into_iter().map(|finding| finding.place).collect()
    }

    #[test]
    fn a_constant_without_a_meaning_is_found() {
        let text = "use x;\npub(crate) const PATIENCE: Duration = X;\n    const PAUSE: u64 = 1;\n";
        assert_eq!(found(text), ["crates/a/src/lib.rs:2", "crates/a/src/lib.rs:3"]);
        assert!(found("const LOOKUP_PATIENCE: u64 = 1;\nconst PAUSE_MS: u64 = 1;\nPATIENCE\n").is_empty());
    }

    #[test]
    fn pending_constants_only_shrink() {
        let bare = || found_twice();
        let judge = |pending| judge(Path::new("crates/a"), bare(), pending).len();
        assert_eq!((judge(None), judge(Some(2)), judge(Some(1)), judge(Some(3))), (2, 0, 2, 1));
    }

    fn found_twice() -> Vec<Finding> {
        let text = "const PATIENCE: u64 = 1;\nconst PAUSE: u64 = 1;\n".to_owned();
        bare_constants(&Source { path: "crates/a/src/lib.rs".into(), text })
    }
}
