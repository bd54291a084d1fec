//! The texts that a program shows to operators: those of log lines and of errors.

use regex::Regex;

/// The beginning of an item with such texts.
const STARTS: &str = r"\btracing::(trace|debug|info|warn|error)!\(|#\[error\(";

/// The string literals in `tracing::…!(…)` and `#[error(…)]`, each on one line, and the numbers of the lines where they
/// begin.
pub(super) fn messages(text: &str) -> Vec<(usize, String)> {
    let starts = Regex::new(STARTS).expect("the pattern is a constant");
    let mut found = Vec::new();
    for start in starts.find_iter(text) {
        let line_start = text[..start.start()].rfind('\n').map_or(0, |at| at + 1);
        if text[line_start..start.start()].trim_start().starts_with("//") {
            continue;
        }
        for (at, literal) in literals(&text[start.end()..]) {
            let line = 1 + text[..start.end() + at].matches('\n').count();
            found.push((line, joined(literal)));
        }
    }
    found
}

/// The string literals up to the parenthesis that closes, and where they begin.
fn literals(text: &str) -> Vec<(usize, &str)> {
    let (mut depth, mut begin, mut is_escaped) = (1, None, false);
    let mut found = Vec::new();
    for (at, c) in text.char_indices() {
        match (c, begin) {
            _ if is_escaped => is_escaped = false,
            ('\\', Some(_)) => is_escaped = true,
            ('"', Some(from)) => {
                found.push((from, &text[from..at]));
                begin = None;
            }
            ('"', None) => begin = Some(at + 1),
            ('(', None) => depth += 1,
            (')', None) => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    found
}

/// A literal without the line breaks that are escaped.
fn joined(literal: &str) -> String {
    let mut parts = literal.split("\\\n");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_log_lines_and_errors_are_read() {
        let text = "tracing::warn!(\n    id = name(\"x\"),\n    \"one \\\n     line, {} (\\\"quoted\\\")\",\n    y(2)\n);\nlet z = \"no\";\n\
                    #[error(\"row {key} is damaged\")]\n// tracing::info!(\"a comment\")\n";
        let expected = [(2, "x"), (3, "one line, {} (\\\"quoted\\\")"), (8, "row {key} is damaged")];
        assert_eq!(messages(text), expected.map(|(line, text)| (line, text.to_owned())));
    }

    #[test]
    fn texts_of_other_macros_are_not_read() {
        assert!(messages("println!(\"x\"); #[error(transparent)] my::warn!(\"y\")\n").is_empty());
    }
}
