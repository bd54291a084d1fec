//! Messages about invalid text, word for word, and a comparison with serde_json.

#[allow(dead_code, reason = "each test file uses some of it")]
mod values;

use rekindle_datum::{Datum, json};
use values::Random;

#[track_caller]
fn check(text: &str, expected: &str) {
    let found = match json::parse(text.as_bytes()) {
        Ok(value) => value.to_json_string(),
        Err(error) => error.to_string(),
    };
    assert_eq!(found, expected, "{text}");
}

#[test]
fn faults_are_worded_as_rethinkdb_words_them() {
    let array = "Missing a comma or ']' after an array element.";
    let object = "Missing a comma or '}' after an object member.";
    let quote = "Missing a closing quotation mark in string.";
    let escape = "Invalid escape character in string.";
    let surrogate = "The surrogate pair in string is invalid.";
    let invalid = "Invalid value.";
    for (text, message) in [
        ("", "The document is empty."),
        (" \n\t\r", "The document is empty."),
        ("1 2", "The document root must not follow by other values."),
        ("01", "The document root must not follow by other values."),
        ("{}x", "The document root must not follow by other values."),
        ("[1,2", array),
        ("[1 2]", array),
        ("[1}", array),
        ("[", invalid),
        ("[1,]", invalid),
        ("[1,", invalid),
        ("nul", invalid),
        ("tru]", invalid),
        ("falsy", invalid),
        ("-", invalid),
        ("+1", invalid),
        (".5", invalid),
        ("NaN", invalid),
        ("é", invalid),
        ("{1:2}", "Missing a name for object member."),
        ("{", "Missing a name for object member."),
        ("{\"a\":1,}", "Missing a name for object member."),
        ("{\"a\"", "Missing a colon after a name of object member."),
        ("{\"a\" 1}", "Missing a colon after a name of object member."),
        ("{\"a\":1", object),
        ("{\"a\":1 \"b\":2}", object),
        ("{\"a\":}", invalid),
        ("\"abc", quote),
        ("\"abc\\\"", quote),
        ("\"a\\x\"", escape),
        ("\"a\nb\"", escape),
        ("\"\\u12g4\"", "Incorrect hex digit after \\u escape in string."),
        ("\"\\u12", "Incorrect hex digit after \\u escape in string."),
        ("\"\\ud800\"", surrogate),
        ("\"\\ud800\\u0041\"", surrogate),
        ("1e400", "Number too big to be stored in double."),
        ("-1e309", "Number too big to be stored in double."),
        ("1.", "Miss fraction part in number."),
        ("1.e5", "Miss fraction part in number."),
        ("1e", "Miss exponent in number."),
        ("1e+", "Miss exponent in number."),
        ("\"a\0b\"", "Encountered unescaped null byte in JSON string."),
        ("{\"a\":1,\"a\":2}", "Duplicate key \"a\" in JSON."),
        ("{\"b\":1,\"a\\n\":1,\"b\":2}", "Duplicate key \"b\" in JSON."),
        ("[{\"a\":1,\"a\":2},", invalid),
        ("{\"$reql_type$\":\"FOO\"}", "Unknown $reql_type$ `PTYPE<FOO>`."),
    ] {
        check(text, message);
    }
}

#[test]
fn object_keys_are_printed_in_byte_order() {
    check(r#"{"b": 1, "a": 2}"#, r#"{"a":2,"b":1}"#);
}

#[test]
fn values_are_read_whatever_their_spelling() {
    for (text, printed) in [
        (" [ 1 , -0 , -0.0, 0.5e1 , 1E2 ] ", "[1,0,-0.0,5,100]"),
        ("{\"b\":1,\"a\":{\"d\":[],\"c\":{}}}", "{\"a\":{\"c\":{},\"d\":[]},\"b\":1}"),
        ("\"\\u0041\\/\\ud83d\\ude00\\u0000\"", "\"A/😀\\u0000\""),
        ("123456789012345678901234567890", "1.2345678901234568e29"),
        ("9007199254740993", "9007199254740992"),
        ("0.1", "0.1"),
        ("1e-400", "0"),
        (
            "{\"timezone\":\"Z\",\"epoch_time\":1.23456,\"$reql_type$\":\"TIME\"}",
            "{\"$reql_type$\":\"TIME\",\"epoch_time\":1.235,\"timezone\":\"+00:00\"}",
        ),
        ("{\"$reql_type$\":\"LITERAL\",\"value\":1}", "{\"$reql_type$\":\"LITERAL\",\"value\":1}"),
    ] {
        check(text, printed);
    }
}

#[test]
fn text_that_is_not_utf8_is_refused() {
    assert_eq!(json::parse(b"[\"\xff\"]"), Err(json::JsonError::NotUtf8(2)));
}

/// Text that is nearly JSON: printed values with a few bytes changed.
fn damaged(random: &mut Random) -> Vec<u8> {
    let mut text = values::value(random, 3).to_json_string().into_bytes();
    for _ in 0..random.below(4) {
        if text.is_empty() {
            break;
        }
        let at = random.below(text.len());
        match random.below(3) {
            0 => text[at] = *random.pick(b"{}[]\",:\\0-.eEu1 tfn\n"),
            1 => drop(text.remove(at)),
            _ => text.insert(at, *random.pick(b"{}[]\",:\\0-.eEu1 tfn\n")),
        }
    }
    text
}

#[test]
fn text_is_json_exactly_when_serde_json_says_so() {
    let mut accepted = 0;
    for seed in 0..100_000 {
        let text = damaged(&mut Random::new(seed));
        let oracle = serde_json::from_slice::<serde_json::Value>(&text);
        let found = json::parse(&text);
        let context = format!("seed {seed}: {}", String::from_utf8_lossy(&text));
        match (&oracle, &found) {
            (Ok(_), Ok(_)) => accepted += 1,
            // serde_json accepts duplicate keys and invalid pseudotypes.
            (Ok(_), Err(json::JsonError::DuplicateKey(_) | json::JsonError::BadPseudotype(_))) => {}
            (Err(_), Err(_)) => {}
            _ => panic!("{context}: {oracle:?} but {found:?}"),
        }
        if let (Ok(oracle), Ok(found)) = (oracle, found)
            && !context.contains("$reql_type$")
        {
            // serde_json gives an integer zero a sign, too.
            let unsigned = |value: &Datum| value.to_json_string().replace("-0.0", "0");
            let again = json::parse(oracle.to_string().as_bytes()).expect("valid JSON");
            assert_eq!(unsigned(&again), unsigned(&found), "{context}");
        }
    }
    assert!(accepted > 10_000, "only {accepted} texts were JSON");
}

#[test]
fn shared_text_is_kept_only_for_long_strings() {
    let text = rekindle_datum::Text::from("[\"short\",\"a string long enough to be worth sharing\"]");
    let Ok(Datum::Array(items)) = json::parse_shared(&text) else { panic!("an array") };
    let range = text.as_bytes().as_ptr_range();
    let inside = items.iter().map(|item| match item {
        Datum::String(text) => range.contains(&text.as_bytes().as_ptr()),
        _ => false,
    });
    assert_eq!(inside.collect::<Vec<_>>(), [false, true]);
}
