//! Files of at most 500 lines, functions of at most 70.

use super::Finding;
use super::members::Source;

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        let lines = source.text.lines().count();
        if lines > FILE_LINES_MAX {
            let what = format!("{lines} lines; divide it ({FILE_LINES_MAX} at most)");
            findings.push(Finding::about(&source.path, what));
        }
        for (line, name, length) in functions(&source.text) {
            if length > FUNCTION_LINES_MAX {
                let what = format!("function {name} has {length} lines ({FUNCTION_LINES_MAX} at most)");
                findings.push(Finding::at(&source.path, line, what));
            }
        }
    }
    findings
}

/// Every function with a body: first line, name, length in lines. Relies on rustfmt's
/// layout: the body ends at the first `}` with the indentation of its `fn` line.
fn functions(text: &str) -> Vec<(usize, String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let indent = line.len() - line.trim_start().len();
        let closing = format!("{}}}", " ".repeat(indent));
        let end =
            lines[start..].iter().position(|l| *l == closing || l.ends_with(';') && l.starts_with(line));
        if let Some(end) = end {
            found.push((start + 1, name.to_owned(), end + 1));
        }
    }
    found
}

fn function_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    for word in ["pub(crate) ", "pub(super) ", "pub ", "const ", "async ", "unsafe ", "extern \"C\" "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let name = rest.strip_prefix("fn ")?;
    if line.trim_end().ends_with(';') || line.trim_end().ends_with("}") {
        return None;
    }
    Some(name.split(['(', '<']).next().unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::functions;

    #[test]
    fn a_function_ends_at_its_own_brace() {
        let text = "impl A {\n    pub fn one(&self) {\n        if x {\n        }\n    }\n}\nfn two(\n    a: u8,\n) {\n}\n";
        let found: Vec<_> = functions(text).into_iter().collect();
        assert_eq!(found, [(2, "one".to_owned(), 4), (7, "two".to_owned(), 4)]);
    }
}
