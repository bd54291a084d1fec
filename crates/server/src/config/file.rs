//! The configuration file: `key=value` lines with the names of the flags.

use std::path::Path;

use super::setting::{ConfigError, Origin, Setting};

/// Reads the settings in the file at `path`. Empty lines are skipped, and so are comments: a `#` at the beginning of a
/// line or after white space, and the rest of its line.
pub fn read_file(path: &Path) -> Result<Vec<Setting>, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|error| ConfigError {
        place: format!("--config-file {}", path.display()),
        what: format!("the file cannot be read: {error}"),
    })?;
    text.lines()
        .enumerate()
        .filter_map(|(index, line)| parse_line(path, index + 1, line).transpose())
        .collect()
}

fn parse_line(path: &Path, number: usize, line: &str) -> Result<Option<Setting>, ConfigError> {
    let line = without_comment(line).trim();
    if line.is_empty() {
        return Ok(None);
    }
    let origin = Origin::File { path: path.to_owned(), line: number };
    let (name, value) = match line.split_once('=') {
        Some((name, value)) => (name.trim(), Some(value.trim().to_owned())),
        None => (line, None),
    };
    let setting = Setting { name: name.to_owned(), value, origin };
    if setting.name == "config-file" {
        return Err(setting.wrong("a configuration file cannot name another; put its lines here"));
    }
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Err(setting.wrong("write key=value"));
    }
    Ok(Some(setting))
}

fn without_comment(line: &str) -> &str {
    let comment = line.char_indices().find(|(at, letter)| {
        let before = line.get(..*at).unwrap_or_default();
        *letter == '#' && (before.is_empty() || before.ends_with(char::is_whitespace))
    });
    comment.and_then(|(at, _)| line.get(..at)).unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: Option<(&str, Option<&str>)>) {
        let found = parse_line(Path::new("a.conf"), 3, line).unwrap();
        let found = found.as_ref().map(|setting| (setting.name.as_str(), setting.value.as_deref()));
        assert_eq!(found, expected, "{line:?}");
    }

    #[test]
    fn lines_are_names_and_values() {
        check("driver-port=28016", Some(("driver-port", Some("28016"))));
        check("  bind = all  # everyone", Some(("bind", Some("all"))));
        check("initial-password=a#b", Some(("initial-password", Some("a#b"))));
        check("no-http-admin", Some(("no-http-admin", None)));
        check("# driver-port=1", None);
        check("   ", None);
    }

    #[test]
    fn other_lines_are_named() {
        let error = parse_line(Path::new("a.conf"), 3, "driver port 28016").unwrap_err();
        assert_eq!(error.to_string(), "a.conf, line 3: driver port 28016: write key=value");
        assert!(parse_line(Path::new("a.conf"), 3, "config-file=b.conf").is_err());
    }
}
