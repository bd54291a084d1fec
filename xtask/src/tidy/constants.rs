//! No constant is called `PATIENCE` or `PAUSE`: a name says which wait or size it bounds, as `LEADER_LOOKUP_TIMEOUT`.

use super::Finding;
use super::members::{Member, Source};

const BARE: [&str; 2] = ["PATIENCE", "PAUSE"];

pub(super) fn check(members: &[Member], sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in members {
        let own = sources.iter().filter(|source| source.path.starts_with(&member.folder));
        findings.extend(own.flat_map(bare_constants));
    }
    findings
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
}
