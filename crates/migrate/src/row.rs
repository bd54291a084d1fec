//! Rows as the text in which they came: their key, their form in a query, and whether two are equal.

use std::fmt;

use datum::json;
use memchr::memmem;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::key::{BadKey, Key};

/// The key of a row with this primary key. Fails if the row has none.
pub fn key_of(row: &str, primary_key: &str) -> Result<Key, BadKey> {
    let mut reader = serde_json::Deserializer::from_str(row);
    reader.disable_recursion_limit();
    let found = Member(primary_key).deserialize(&mut reader).ok().flatten();
    Key::parse(found.as_deref().map_or("", RawValue::get)).map_err(|_| BadKey { text: shortened(row) })
}

/// Finds one member of an object.
struct Member<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for Member<'_> {
    type Value = Option<Box<RawValue>>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Member<'_> {
    type Value = Option<Box<RawValue>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a row")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(is_it) = members.next_key_seed(Name(self.0))? {
            match is_it {
                true => found = Some(members.next_value()?),
                false => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found)
    }
}

/// Whether a member has this name.
struct Name<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<bool, D::Error> {
        reader.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}

/// Appends `value` as a term: arrays are MAKE_ARRAY. A name with a zero character stays whole only if the server reads the value
/// from a string (RethinkDB cuts it otherwise).
pub fn push_term(value: &str, out: &mut String) {
    if memmem::find(value.as_bytes(), br"\u0000").is_some() {
        out.push_str("[98,[");
        out.push_str(&Value::from(value).to_string());
        out.push_str("]]");
        return;
    }
    let mut is_string = false;
    let mut copied = 0;
    for place in memchr::memchr3_iter(b'"', b'[', b']', value.as_bytes()) {
        match value.as_bytes()[place] {
            b'"' if is_string => is_string = is_escaped(value.as_bytes(), place),
            b'"' => is_string = true,
            _ if is_string => {}
            bracket => {
                out.push_str(&value[copied..place]);
                out.push_str(if bracket == b'[' { "[2,[" } else { "]]" });
                copied = place + 1;
            }
        }
    }
    out.push_str(&value[copied..]);
}

/// Whether an odd number of backslashes is before a quote.
fn is_escaped(text: &[u8], quote: usize) -> bool {
    text[..quote].iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// A form that equal rows share: the order of members, digits of equal numbers and breaks of base64 do not count.
pub fn canonical(row: &str) -> String {
    match json::parse(row.as_bytes()) {
        Ok(value) => value.to_json_string(),
        // Not valid here, and so compared as it is.
        Err(_) => row.to_owned(),
    }
}

/// Where two rows differ first, for people.
pub fn first_difference(source: &str, target: &str) -> String {
    let parse = |text: &str| serde_json::from_str::<Value>(&canonical(text)).unwrap_or_default();
    let mut path = Vec::new();
    match differs_at(&parse(source), &parse(target), &mut path) {
        None => "the texts of the rows differ".to_owned(),
        Some((source, target)) => {
            format!("`{}` is {source} in the source and {target} in the target", path.join("."))
        }
    }
}

fn differs_at(source: &Value, target: &Value, path: &mut Vec<String>) -> Option<(String, String)> {
    match (source, target) {
        (Value::Object(a), Value::Object(b)) => {
            let names = a.keys().chain(b.keys().filter(|name| !a.contains_key(*name)));
            names.into_iter().find_map(|name| {
                path.push(name.clone());
                let found = match (a.get(name), b.get(name)) {
                    (Some(a), Some(b)) => differs_at(a, b, path),
                    (a, b) => Some((shown(a), shown(b))),
                };
                if found.is_none() {
                    path.pop();
                }
                found
            })
        }
        (Value::Array(a), Value::Array(b)) => (0..a.len().max(b.len())).find_map(|i| {
            path.push(i.to_string());
            let found = match (a.get(i), b.get(i)) {
                (Some(a), Some(b)) => differs_at(a, b, path),
                (a, b) => Some((shown(a), shown(b))),
            };
            if found.is_none() {
                path.pop();
            }
            found
        }),
        (a, b) => (a != b).then(|| (shown(Some(a)), shown(Some(b)))),
    }
}

fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "missing".to_owned(), |value| shortened(&value.to_string()))
}

/// At most the first hundred characters.
pub fn shortened(text: &str) -> String {
    const CHARS_MAX: usize = 100;
    match text.char_indices().nth(CHARS_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(value: &str) -> String {
        let mut out = String::new();
        push_term(value, &mut out);
        out
    }

    #[test]
    fn the_key_of_a_row_is_found() {
        let row = r#"{"a":{"id":1},"id":[1,"x"],"z":[{}]}"#;
        assert_eq!(key_of(row, "id").unwrap().to_json(), r#"[1,"x"]"#);
        assert_eq!(key_of(r#"{"a":3,"qu\"ote":5}"#, "qu\"ote").unwrap().to_json(), "5");
        let error = key_of(r#"{"a":3}"#, "id").unwrap_err();
        assert!(error.to_string().contains(r#"{"a":3}"#), "{error}");
    }

    #[test]
    fn arrays_become_terms() {
        assert_eq!(term(r#"{"a":1}"#), r#"{"a":1}"#);
        assert_eq!(term(r#"{"a":[1,[2]],"b":"[\"]"}"#), r#"{"a":[2,[1,[2,[2]]]],"b":"[\"]"}"#);
        assert_eq!(term(r#"["\\",[]]"#), r#"[2,["\\",[2,[]]]]"#);
        assert_eq!(term("{\"a\\u0000b\":[1]}"), "[98,[\"{\\\"a\\\\u0000b\\\":[1]}\"]]");
    }

    #[test]
    fn equal_rows_have_one_form() {
        let same = |a: &str, b: &str| canonical(a) == canonical(b);
        assert!(same(r#"{"a":1,"b":2.0}"#, r#"{"b":2,"a":1.0}"#));
        assert!(same(
            r#"{"b":{"$reql_type$":"BINARY","data":"AAEC\r\nAw=="}}"#,
            r#"{"b":{"$reql_type$":"BINARY","data":"AAECAw=="}}"#
        ));
        assert!(!same(r#"{"a":0.1}"#, r#"{"a":0.10000000000000002}"#));
        assert!(!same(r#"{"a":0}"#, r#"{"a":-0.0}"#));
        let time =
            |zone: &str| format!(r#"{{"t":{{"$reql_type$":"TIME","epoch_time":1,"timezone":"{zone}"}}}}"#);
        assert!(!same(&time("+00:00"), &time("+01:00")));
    }

    #[test]
    fn the_first_difference_is_named() {
        let said = |a: &str, b: &str| first_difference(a, b);
        assert_eq!(
            said(r#"{"a":{"b":[1,2]}}"#, r#"{"a":{"b":[1,3]}}"#),
            "`a.b.1` is 2 in the source and 3 in the target"
        );
        assert_eq!(said(r#"{"a":1}"#, "{}"), "`a` is 1 in the source and missing in the target");
        assert_eq!(said("{}", r#"{"a":"x"}"#), "`a` is missing in the source and \"x\" in the target");
    }
}
