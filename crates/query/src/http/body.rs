//! Converts response bodies to values.

use std::sync::LazyLock;

use datum::{Bytes, Datum, JsonError, json};
use regex::Regex;

use super::options::ResultFormat;

/// A body that could not be converted: the reason, and the part to show in the message.
pub(super) struct BadBody {
    pub why: String,
    pub shown: Datum,
}

/// The value of `body` in `format`, with the content type of the response.
pub(super) fn value(body: &[u8], format: ResultFormat, content_type: &str) -> Result<Datum, BadBody> {
    match format {
        ResultFormat::Json => of_json(body),
        ResultFormat::Jsonp => of_jsonp(body),
        ResultFormat::Text => Ok(text(body)),
        ResultFormat::Binary => Ok(binary(body)),
        ResultFormat::Auto => auto(body, &content_type.to_ascii_lowercase()),
    }
}

fn auto(body: &[u8], content_type: &str) -> Result<Datum, BadBody> {
    let is = |prefixes: &[&str]| prefixes.iter().any(|prefix| content_type.starts_with(prefix));
    if is(&["application/json-p", "text/javascript", "text/json-p"]) {
        return Ok(of_json(body).or_else(|_| of_jsonp(body)).unwrap_or_else(|_| text(body)));
    }
    if is(&["application/json"]) {
        return of_json(body);
    }
    if is(&["audio/", "image/", "video/", "application/octet-stream"]) {
        return Ok(binary(body));
    }
    Ok(text(body))
}

/// A body as a string; invalid UTF-8 becomes replacement characters.
pub(super) fn text(body: &[u8]) -> Datum {
    String::from_utf8_lossy(body).into_owned().into()
}

fn binary(body: &[u8]) -> Datum {
    Datum::Binary(Bytes::copy_from_slice(body))
}

fn of_json(body: &[u8]) -> Result<Datum, BadBody> {
    json::parse(body).map_err(|error| {
        let why = match &error {
            JsonError::Syntax { .. } => format!("failed to parse JSON response: {error}"),
            other => other.to_string(),
        };
        BadBody { why, shown: text(body) }
    })
}

/// `name(JSON);`, `object.name(JSON);` or `object["name"](JSON);`
fn of_jsonp(body: &[u8]) -> Result<Datum, BadBody> {
    static CALL: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(&jsonp()).ok());
    let failed = || BadBody { why: "failed to parse JSONP response".to_owned(), shown: text(body) };
    let script = std::str::from_utf8(body).map_err(|_| failed())?;
    let argument = CALL.as_ref().and_then(|call| call.captures(script)).and_then(|found| found.get(1));
    of_json(argument.ok_or_else(failed)?.as_str().as_bytes())
}

/// A call with one argument, which is captured, and an optional semicolon.
fn jsonp() -> String {
    const NAME: &str = r"\s*[$_\p{L}\p{Nl}][$_\p{L}\p{Nl}\p{Mn}\p{Mc}\p{Nd}\p{Pc}]*\s*";
    const KEY: &str = r#"\[\s*['"].*['"]\s*\]\s*"#;
    format!(r"\A{NAME}(?:\.{NAME}|{KEY})?\((?s:(.*))\)\s*;?\s*\z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &str, format: ResultFormat, content_type: &str, expected: &str) {
        let shown = match value(body.as_bytes(), format, content_type) {
            Ok(value) => value.to_json_string(),
            Err(bad) => format!("{} of {}", bad.why, bad.shown.to_json_string()),
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn the_content_type_decides() {
        let auto = ResultFormat::Auto;
        check("[1]", auto, "Application/JSON; charset=utf-8", "[1]");
        check("[1]", auto, "text/html", "\"[1]\"");
        check("f([1])", auto, "text/javascript", "[1]");
        check("f(", auto, "text/javascript", "\"f(\"");
        check("ab", auto, "image/png", r#"{"$reql_type$":"BINARY","data":"YWI="}"#);
        check("ab", ResultFormat::Binary, "text/html", r#"{"$reql_type$":"BINARY","data":"YWI="}"#);
        check("{", ResultFormat::Text, "application/json", "\"{\"");
    }

    #[test]
    fn padding_is_removed() {
        for script in ["f({\"a\":\n1})", " $.go ( {\"a\":1} ) ; ", "x[ 'y-z' ]({\"a\":1});"] {
            let script = script.replace("( {", "({").replace("} )", "})");
            check(&script, ResultFormat::Jsonp, "", "{\"a\":1}");
        }
        check("1(2)", ResultFormat::Jsonp, "", "failed to parse JSONP response of \"1(2)\"");
    }

    #[test]
    fn an_invalid_json_body_is_shown() {
        check(
            "User-agent: *",
            ResultFormat::Json,
            "",
            "failed to parse JSON response: Invalid value. of \"User-agent: *\"",
        );
    }
}
