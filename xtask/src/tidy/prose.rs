//! Plain English in comments, log lines, errors and Markdown.
//!
//! Counts turns of phrase that hide the subject of a sentence, most of them clauses that begin with "who" or "what", and
//! limits them to a number in 1,000 lines of prose. For comparison: redb has 4, raft-rs 2, ripgrep 2, restate 1.

use std::collections::BTreeMap;
use std::path::Path;

use regex::Regex;

use super::members::{Member, Source};
use super::{Finding, messages};

/// Hits in 1,000 lines of prose that a crate, or all Markdown together, may have.
const HITS_MAX: usize = 15;
/// Hits in 1,000 lines of prose that one file may have.
const FILE_HITS_MAX: usize = 60;
/// Shorter files have no bar.
const FILE_LINES_MIN: usize = 11;
/// Lines with hits that a finding shows.
const EXAMPLES: usize = 3;

/// The name of all Markdown in the table of bars.
const MARKDOWN: &str = "Markdown";

const PHRASES: &str = r"(?ix)\b(
    whoever | whomever | whom | nobody | somebody | everybody | anybody
  | those\ (who|that|of) | who\ (is|has|was|leads|waits|asks|answers|comes|goes|needs|wants|may|can|does|did|had|sees|hears|reads|writes|works|follows|takes|gives|keeps|lost|lacks|stays|votes)
  | what\ (is|was|has|had|goes|comes|leaves|came|remains|they|it|a|an|the|others|nobody|somebody|one)\b
  | is\ told | are\ told | was\ told | hears\ of | lets\ go | let\ go | takes?\ leave | for\ good
  | so\ long | for\ so | to\ be\ had | of\ its\ own | as\ well\ as\ what
)\b";

/// Checks the comments, log lines and errors of every member, and all Markdown.
pub(super) fn check(members: &[Member], sources: &[Source], documents: &[Source]) -> Vec<Finding> {
    let phrases = Regex::new(PHRASES).expect("the pattern is a constant");
    let mut findings = Vec::new();
    for (name, files) in by_member(members, sources, documents) {
        let counts: Vec<Count> = files.iter().map(|file| Count::of(file, &phrases)).collect();
        findings.extend(judge(&name, &counts));
    }
    findings
}

/// The files of each member by its name, other files by their first folder, and Markdown.
fn by_member<'a>(
    members: &[Member],
    sources: &'a [Source],
    documents: &'a [Source],
) -> BTreeMap<String, Vec<&'a Source>> {
    let mut groups: BTreeMap<String, Vec<&Source>> = BTreeMap::new();
    for source in sources {
        let member = members.iter().find(|member| source.path.starts_with(&member.folder));
        let folder = || source.path.iter().next().map(|part| part.to_string_lossy().into_owned());
        let name = member.map(|member| member.name.clone()).or_else(folder).unwrap_or_default();
        groups.entry(name).or_default().push(source);
    }
    groups.insert(MARKDOWN.to_owned(), documents.iter().collect());
    groups
}

/// The findings about one member and about its files.
fn judge(name: &str, counts: &[Count]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (hits, lines) = counts.iter().fold((0, 0), |(hits, lines), c| (hits + c.hits, lines + c.lines));
    let rate = per_thousand(hits, lines);
    if rate > HITS_MAX {
        let what =
            format!("{rate} hidden subjects in 1,000 lines of prose ({HITS_MAX} at most){}", worst(counts));
        findings.push(Finding::about(Path::new(name), what));
    }
    for count in counts {
        let rate = per_thousand(count.hits, count.lines);
        if count.lines >= FILE_LINES_MIN && rate > FILE_HITS_MAX {
            let what = format!("{rate} hidden subjects in 1,000 lines of prose ({FILE_HITS_MAX} at most)");
            let what = what + &worst(std::slice::from_ref(count));
            findings.push(Finding::about(Path::new(&count.path), what));
        }
    }
    findings
}

/// Rounded up.
fn per_thousand(hits: usize, lines: usize) -> usize {
    (1000 * hits).div_ceil(lines.max(1))
}

/// The first lines with hits, of the files with most.
fn worst(counts: &[Count]) -> String {
    let mut counts: Vec<&Count> = counts.iter().collect();
    counts.sort_by_key(|count| std::cmp::Reverse(count.hits));
    let examples = counts.iter().flat_map(|count| {
        count.examples.iter().map(|(line, text)| format!("\n    {}:{line}: {text}", count.path))
    });
    examples.take(EXAMPLES).collect()
}

/// The prose of one file.
#[derive(Debug, Default)]
struct Count {
    path: String,
    lines: usize,
    hits: usize,
    /// The first lines with hits, by number.
    examples: Vec<(usize, String)>,
}

impl Count {
    fn of(source: &Source, phrases: &Regex) -> Count {
        let mut count = Count { path: source.path.display().to_string(), ..Count::default() };
        let is_rust = source.path.extension().is_some_and(|extension| extension == "rs");
        for (number, text) in if is_rust { comments(&source.text) } else { paragraphs(&source.text) } {
            count.add(number, text, phrases);
        }
        if is_rust {
            for (number, text) in messages::messages(&source.text) {
                count.add(number, &text, phrases);
            }
        }
        count
    }

    fn add(&mut self, number: usize, text: &str, phrases: &Regex) {
        let hits = phrases.find_iter(text).count();
        self.lines += 1;
        self.hits += hits;
        if hits > 0 && self.examples.len() < EXAMPLES {
            self.examples.push((number, text.trim().to_owned()));
        }
    }
}

/// The comment lines of Rust code that stand alone, without the slashes, and their numbers.
fn comments(text: &str) -> Vec<(usize, &str)> {
    let comment = |line: &'_ str| -> Option<usize> {
        let rest = line.trim_start().strip_prefix("//")?;
        Some(line.len() - rest.strip_prefix(['/', '!']).unwrap_or(rest).len())
    };
    let lines = text.lines().enumerate();
    let comments = lines.filter_map(|(nth, line)| Some((nth + 1, &line[comment(line)?..])));
    comments.filter(|(_, text)| !text.trim().is_empty()).collect()
}

/// The lines of Markdown outside fenced code, without rules and the second lines of tables, and their numbers.
fn paragraphs(text: &str) -> Vec<(usize, &str)> {
    let mut is_fenced = false;
    let mut found = Vec::new();
    for (nth, line) in text.lines().enumerate() {
        let start = line.trim_start();
        if start.starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced && !start.is_empty() && !start.starts_with("|--") && !start.starts_with("---") {
            found.push((nth + 1, line));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.to_owned() }
    }

    fn count(path: &str, text: &str) -> (usize, usize) {
        let count = Count::of(&file(path, text), &Regex::new(PHRASES).unwrap());
        (count.hits, count.lines)
    }

    #[test]
    fn hidden_subjects_are_counted_in_comments_alone() {
        let text = "//! Who leads, and what is left.\n\n///\n/// A replica has a log.\nlet x = \"nobody\"; // nobody\n    // NOBODY\n";
        assert_eq!(count("a.rs", text), (3, 3));
    }

    #[test]
    fn log_lines_and_errors_count_as_lines_of_prose() {
        let log = "tracing::warn";
        let text = format!("{log}!(\"nobody\");\n{log}!(\"a log\");\nlet x = \"nobody\";\n");
        assert_eq!(count("a.rs", &text), (1, 2));
    }

    #[test]
    fn a_word_counts_only_whole() {
        assert_eq!(count("a.rs", "// whose, whatever, whosoever, what iseverything\n"), (0, 1));
        assert_eq!(count("a.rs", "// those that wait, and whom they take leave of\n"), (3, 1));
    }

    #[test]
    fn markdown_counts_outside_of_code() {
        let text = "# Who asks\n\n```text\nnobody\n```\n| a | b |\n|--|--|\n---\nA server of its own.\n";
        assert_eq!(count("a.md", text), (2, 3));
    }

    #[test]
    fn a_member_above_its_bar_is_found() {
        let members = [Member { name: "a".to_owned(), folder: "crates/a".into() }];
        let plain = "// A replica has a log.\n".repeat(100);
        let found = |text: &str| check(&members, &[file("crates/a/src/lib.rs", text)], &[]);
        assert!(found(&plain).is_empty());
        assert!(found(&format!("{plain}// nobody\n")).is_empty(), "10 in 1,000");
        let findings = found(&format!("{plain}// nobody\n// nobody\n"));
        assert_eq!(findings.len(), 1);
        assert!(findings[0].what.starts_with("20 hidden subjects"), "{}", findings[0].what);
        assert!(findings[0].what.ends_with("crates/a/src/lib.rs:102: nobody"), "{}", findings[0].what);
    }

    #[test]
    fn a_file_above_its_bar_is_found_in_a_plain_member() {
        let members = [Member { name: "a".to_owned(), folder: "crates/a".into() }];
        let plain = "// A replica has a log.\n";
        let files = |few: usize| {
            let worse = format!("{}// nobody\n", plain.repeat(few));
            [file("crates/a/src/lib.rs", &plain.repeat(200)), file("crates/a/src/b.rs", &worse)]
        };
        let findings = check(&members, &files(10), &[]);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].place, "crates/a/src/b.rs");
        assert!(check(&members, &files(9), &[]).is_empty(), "ten lines are not judged");
        assert!(check(&members, &files(20), &[]).is_empty(), "48 in 1,000");
    }
}
