//! No constant is called `PATIENCE` or `PAUSE`: a name says which wait or size it bounds, as `LEADER_LOOKUP_TIMEOUT`.

use regex::Regex;

use super::Finding;
use super::members::Source;

/// A constant or static, wherever on its line it begins.
const BARE: &str = r"\b(?:const|static(?: mut)?) (PATIENCE|PAUSE)\b";

/// Checks all sources except this tool's own, which have the names in tests.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let bare = Regex::new(BARE).expect("the pattern is a constant");
    let checked = sources.iter().filter(|source| !source.path.starts_with("xtask/src/tidy"));
    checked.flat_map(|source| bare_constants(source, &bare)).collect()
}

fn bare_constants(source: &Source, bare: &Regex) -> Vec<Finding> {
    let code = source.text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    let found = code.filter_map(|(nth, line)| Some((nth + 1, bare.captures(line)?.extract::<1>().1)));
    let what = |name| format!("{name} does not say which wait it bounds");
    found.map(|(line, [name])| Finding::at(&source.path, line, what(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let source = Source { path: "crates/a/src/lib.rs".into(), text: text.to_owned() };
        check(&[source]).into_iter().map(|finding| finding.place).collect()
    }

    #[test]
    fn a_constant_without_a_meaning_is_found() {
        let text = "use x;\npub(crate) const PATIENCE: Duration = X;\n    const PAUSE: u64 = 1;\n";
        assert_eq!(found(text), ["crates/a/src/lib.rs:2", "crates/a/src/lib.rs:3"]);
        assert!(found("const LOOKUP_PATIENCE: u64 = 1;\nconst PAUSE_MS: u64 = 1;\nPATIENCE\n").is_empty());
    }

    #[test]
    fn statics_and_constants_inside_a_line_are_found() {
        let text =
            "static PAUSE: u64 = 1;\npub static mut PATIENCE: u64 = 1;\nfn a() { const PAUSE: u64 = 1; }\n";
        assert_eq!(found(text).len(), 3);
        assert!(found("// const PAUSE was here\nstatic PAUSES: u64 = 1;\n").is_empty());
    }
}
