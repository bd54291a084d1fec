//! JSON text to values, compared with serde_json.

use datum::{Datum, JsonError, Text, json};

use super::{Outcome, Target, object};

pub struct Json;

/// Values of serde_json overflow the stack on drop beyond some depth.
const JUDGED_DEPTH_MAX: usize = 500;

impl Target for Json {
    fn name(&self) -> &'static str {
        "json"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        [
            r#"{"id":"a","n":[1,-2.5,3e10,1e-7],"o":{"x":null,"y":{"z":true}},"s":"plain text that is somewhat longer than the rest"}"#,
            r#"{"zz":1,"a":2,"m":{"q":1,"b":[{"d":1,"c":2}]},"filler":"so that this is long enough to go to stored form at once...................."}"#,
            r#"[{"t":{"$reql_type$":"TIME","epoch_time":1375147296.681,"timezone":"-07:00"}},{"b":{"$reql_type$":"BINARY","data":"AAECAw=="}}]"#,
            r#" [ "\u00e9\ud83d\ude00\n\/" , { "\u0061" : 9007199254740993 } ,"......................................................................."] "#,
            r#"{"$reql_type$":"GEOMETRY","coordinates":[1,2],"type":"Point"}"#,
            "1",
        ]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
    }

    fn dictionary(&self) -> &'static [&'static [u8]] {
        &[
            b"{",
            b"}",
            b"[",
            b"]",
            b",",
            b":",
            b"\"",
            b"\\",
            b"\\u0000",
            b"\\ud83d\\ude00",
            b"\\ud800",
            b"\"a\":",
            b"\"b\":1",
            b"\"$reql_type$\":",
            b"\"TIME\"",
            b"\"epoch_time\":0",
            b"\"timezone\":\"Z\"",
            b"\"BINARY\"",
            b"\"data\":\"\"",
            b"\"LITERAL\"",
            b"1e400",
            b"-0",
            b"0.1",
            b"1E+5",
            b"123456789012345678",
            b"null",
            b"true",
            b"false",
            b" ",
            b"\n",
            b"\xc3\xa9",
            b"\xff",
            b"{\"a\":[",
            b"....................................................................",
        ]
    }

    fn check(&self, input: &[u8]) -> Outcome {
        let found = json::parse(input);
        compare_with_judge(input, &found);
        match found {
            Ok(value) => {
                check_value(input, &value);
                Outcome::of((
                    value.kind(),
                    input.len().min(200) / 50,
                    value.to_json_string().len() == input.len(),
                ))
            }
            Err(error) => Outcome::of_message(&error.to_string()),
        }
    }
}

fn depth(text: &[u8]) -> usize {
    let mut depth = 0_usize;
    text.iter().fold(0, |deepest, byte| {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest.max(depth)
    })
}

fn compare_with_judge(input: &[u8], found: &Result<Datum, JsonError>) {
    if depth(input) > JUDGED_DEPTH_MAX {
        return;
    }
    let judged = serde_json::from_slice::<serde_json::Value>(input);
    match (&judged, found) {
        (Ok(_), Err(JsonError::DuplicateKey(_) | JsonError::BadPseudotype(_))) => {}
        _ => assert_eq!(judged.is_ok(), found.is_ok(), "{judged:?} but {found:?}"),
    }
}

fn check_value(input: &[u8], value: &Datum) {
    let text = value.to_json_string();
    let again = json::parse(text.as_bytes()).expect("printed JSON can be read");
    assert!(again == *value && again.to_json_string() == text, "printing and reading change nothing");
    if let Ok(shared) = Text::try_from(input) {
        let shared = json::parse_shared(&shared).expect("shared text reads like any other");
        assert_eq!(shared.to_json_string(), text);
    }
    assert!(value.truncated().len() <= 300);
    if let Datum::Object(object) = value {
        // Only an object with a literal differs from its text.
        object::check_object(object, !datum::pseudo::holds_literal(value));
    }
}
