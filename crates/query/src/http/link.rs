//! Response headers as a value, with parsed `link` headers.

use datum::{Datum, ObjectBuilder, Text};

/// Headers as an object of strings. If a name occurs several times the last value is kept, but the links of all `link`
/// headers are collected as `{<parameters>: <url>}`.
///
/// Fails with a message for an invalid `link` header (RFC 8288).
pub(super) fn header_datum(headers: &[(String, String)]) -> Result<Datum, String> {
    let mut out = ObjectBuilder::new();
    let mut links = ObjectBuilder::new();
    let mut has_links = false;
    for (name, value) in headers {
        if name == "link" {
            has_links = true;
            add_links(value, &mut links)?;
        } else {
            out.insert(Text::from(name.as_str()), value.as_str().into());
        }
    }
    if has_links {
        out.insert(Text::from_static("link"), Datum::Object(links.build()));
    }
    Ok(Datum::Object(out.build()))
}

/// Parses `<url>; parameters, <url>; parameters`. Parameters end at the first comma, even within quotes.
fn add_links(line: &str, links: &mut ObjectBuilder) -> Result<(), String> {
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let bad = || format!("failed to parse link header line: '{rest}'");
        let (url, after) = rest.strip_prefix('<').and_then(|part| part.split_once('>')).ok_or_else(bad)?;
        let after = after.trim_start();
        let (what, next) = match after.strip_prefix(';') {
            Some(what) => what.split_once(',').unwrap_or((what, "")),
            None => match after.strip_prefix(',') {
                Some(next) => ("", next),
                None if after.is_empty() => ("", ""),
                None => return Err(bad()),
            },
        };
        links.insert(Text::from(what.trim()), url.into());
        rest = next.trim_start();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lines: &[(&str, &str)], expected: &str) {
        let lines: Vec<_> = lines.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let shown = header_datum(&lines).map_or_else(|why| why, |header| header.to_json_string());
        assert_eq!(shown, expected);
    }

    #[test]
    fn links_are_found_by_their_parameters() {
        check(
            &[("link", "<http://a/2>; rel=\"next\", <http://a/9>; rel=\"last\""), ("x", "1")],
            r#"{"link":{"rel=\"last\"":"http://a/9","rel=\"next\"":"http://a/2"},"x":"1"}"#,
        );
        check(
            &[("link", "<a>; t"), ("link", "<b>"), ("y", "1"), ("y", "2")],
            r#"{"link":{"":"b","t":"a"},"y":"2"}"#,
        );
    }

    #[test]
    fn an_invalid_line_is_reported() {
        check(&[("link", "<a>; t, nothing")], "failed to parse link header line: 'nothing'");
        check(&[("link", "<a")], "failed to parse link header line: '<a'");
    }
}
