//! The envelope of a query: `[type, term, global_optargs]`.
//!
//! Reads only the type of a query, without parsing its term: the body of a START is passed to `reql::wire`
//! unchanged. Source: docs/reql-spec.md sections 1.2, 1.4.

use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::failure::Failure;

/// The types of queries, each for one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryType {
    /// Evaluate a term.
    Start,
    /// Send the next batch.
    Continue,
    /// Cancel.
    Stop,
    /// Respond when all earlier noreply queries are done.
    NoreplyWait,
    /// Describe the server.
    ServerInfo,
}

const NOT_JSON: &str = "Client is buggy (failed to deserialize query).";

/// The type of the query `body`. Only the start of a START query is read: `reql::wire` reports errors in the rest.
/// Fails with the CLIENT_ERROR to send.
pub fn query_type(body: &[u8]) -> Result<QueryType, Failure> {
    match front(body) {
        Some(1) => Ok(QueryType::Start),
        _ => query_type_slowly(body),
    }
}

/// Whether a query that `reql::wire` refused asked for no reply, which applies to its errors as well.
#[must_use]
pub fn asks_for_noreply(body: &[u8]) -> bool {
    type Parts = (IgnoredAny, IgnoredAny, serde_json::Map<String, Value>);
    let options = serde_json::from_slice::<Parts>(body).map(|(_, _, options)| options);
    let noreply = options.ok().and_then(|mut options| options.remove("noreply"));
    match noreply {
        Some(Value::Bool(noreply)) => noreply,
        Some(term) => term == serde_json::json!([1, [true]]),
        None => false,
    }
}

/// The number at the start of an array, if it is a plain integer and followed by something.
fn front(body: &[u8]) -> Option<u32> {
    let body = body.trim_ascii_start().strip_prefix(b"[")?.trim_ascii_start();
    let (digit, rest) = body.split_first()?;
    let number = char::from(*digit).to_digit(10)?;
    rest.trim_ascii_start().starts_with(b",").then_some(number)
}

fn query_type_slowly(body: &[u8]) -> Result<QueryType, Failure> {
    let parts = match serde_json::from_slice::<Vec<&RawValue>>(body) {
        Ok(parts) => parts,
        Err(_) => return Err(not_an_array(body)),
    };
    let [query_type, rest @ ..] = parts.as_slice() else { return Err(wrong_length(0)) };
    if rest.len() > 2 {
        return Err(wrong_length(parts.len()));
    }
    let Some(number) = serde_json::from_str::<f64>(query_type.get()).ok() else {
        return Err(envelope(format!(
            "Expected a query type as a number, but found {}.",
            type_name(query_type.get())
        )));
    };
    if let Some(options) = rest.get(1).filter(|options| type_name(options.get()) != "OBJECT") {
        let found = type_name(options.get());
        return Err(envelope(format!("Expected global optargs as an object, but found {found}.")));
    }
    match number {
        1.0 => Ok(QueryType::Start),
        2.0 => Ok(QueryType::Continue),
        3.0 => Ok(QueryType::Stop),
        4.0 => Ok(QueryType::NoreplyWait),
        5.0 => Ok(QueryType::ServerInfo),
        _ => Err(envelope(format!("Unrecognized QueryType: {}.", datum::format_number(number)))),
    }
}

fn not_an_array(body: &[u8]) -> Failure {
    match serde_json::from_slice::<&RawValue>(body) {
        Ok(value) if type_name(value.get()) != "ARRAY" => {
            envelope(format!("Expected a query to be an array, but found {}.", type_name(value.get())))
        }
        _ => Failure::client(NOT_JSON),
    }
}

fn wrong_length(found: usize) -> Failure {
    envelope(format!("Expected 1 to 3 elements in the top-level query, but found {found}."))
}

fn envelope(why: String) -> Failure {
    Failure::client(format!("Server could not parse query: {why}"))
}

/// The JSON type of a valid JSON value.
fn type_name(json: &str) -> &'static str {
    match json.as_bytes().first() {
        Some(b'[') => "ARRAY",
        Some(b'{') => "OBJECT",
        Some(b'"') => "STRING",
        Some(b't' | b'f') => "BOOL",
        Some(b'n') => "NULL",
        _ => "NUMBER",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_its_number() {
        let cases = [
            ("[1,[15,[\"t\"]],{}]", QueryType::Start),
            (" [ 1 , 5 ]", QueryType::Start),
            ("[1]", QueryType::Start),
            ("[1.0,5]", QueryType::Start),
            ("[2]", QueryType::Continue),
            ("[2,null,{}]", QueryType::Continue),
            ("[3]", QueryType::Stop),
            ("[4]", QueryType::NoreplyWait),
            ("[5]", QueryType::ServerInfo),
        ];
        for (body, expected) in cases {
            assert_eq!(query_type(body.as_bytes()), Ok(expected), "{body}");
        }
    }

    #[test]
    fn each_bad_envelope_has_its_text() {
        let prefix = "Server could not parse query: ";
        let cases = [
            ("", NOT_JSON.to_owned()),
            ("[2", NOT_JSON.into()),
            ("[2] x", NOT_JSON.into()),
            ("[2,]", NOT_JSON.into()),
            ("[\"\u{1}\"]", NOT_JSON.into()),
            ("{}", format!("{prefix}Expected a query to be an array, but found OBJECT.")),
            ("null", format!("{prefix}Expected a query to be an array, but found NULL.")),
            (" 12", format!("{prefix}Expected a query to be an array, but found NUMBER.")),
            ("[]", format!("{prefix}Expected 1 to 3 elements in the top-level query, but found 0.")),
            ("[2,1,{},4]", format!("{prefix}Expected 1 to 3 elements in the top-level query, but found 4.")),
            ("[\"a\"]", format!("{prefix}Expected a query type as a number, but found STRING.")),
            ("[true,1]", format!("{prefix}Expected a query type as a number, but found BOOL.")),
            ("[6]", format!("{prefix}Unrecognized QueryType: 6.")),
            ("[-1.5]", format!("{prefix}Unrecognized QueryType: -1.5.")),
            ("[2,1,[]]", format!("{prefix}Expected global optargs as an object, but found ARRAY.")),
        ];
        for (body, expected) in cases {
            assert_eq!(query_type(body.as_bytes()), Err(Failure::client(expected)), "{body}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_no_query() {
        assert_eq!(query_type(b"[2,\"\xff\"]"), Err(Failure::client(NOT_JSON)));
    }

    #[test]
    fn noreply_is_read_from_a_query_that_is_otherwise_wrong() {
        assert!(asks_for_noreply(br#"[1,[99999],{"noreply":true}]"#));
        assert!(asks_for_noreply(br#"[1,[99999],{"noreply":[1,[true]]}]"#));
        assert!(!asks_for_noreply(br#"[1,[99999],{"noreply":false}]"#));
        assert!(!asks_for_noreply(br#"[1,[99999],{"noreply":[14,["x"]]}]"#));
        assert!(!asks_for_noreply(br#"[1,[99999]]"#));
        assert!(!asks_for_noreply(b"nonsense"));
    }
}
