//! Equality of stored rows agrees with the order of their values.

#![allow(clippy::unwrap_used)]

use rekindle_datum::{Datum, Object, json, row};

fn stored(text: &str) -> Object {
    let Ok(Datum::Object(object)) = json::parse(text.as_bytes()) else { panic!("{text} is an object") };
    row::decode(row::encode(&object).into()).unwrap()
}

#[test]
fn rows_are_equal_when_their_values_are() {
    let filler = "x".repeat(200);
    let rows = [
        r#"{"a":0}"#,
        r#"{"a":-0.0}"#,
        r#"{"a":-0.5}"#,
        r#"{"a":[0,-0.0]}"#,
        r#"{"a":"-0"}"#,
        r#"{"a":"00"}"#,
        r#"{"a":{"$reql_type$":"TIME","epoch_time":10,"timezone":"+00:00"}}"#,
        r#"{"a":{"$reql_type$":"TIME","epoch_time":10,"timezone":"+01:00"}}"#,
        r#"{"a":{"$reql_type$":"TIME","epoch_time":11,"timezone":"+01:00"}}"#,
    ];
    for a in rows {
        for b in rows {
            for (head, tail) in [("", ""), (&filler[..], ""), ("", &filler[..]), (&filler[..], &filler[..])] {
                let long = |text: &str| {
                    let inner = &text[1..text.len() - 1];
                    stored(&format!("{{\"$head\":\"{head}\",{inner},\"tail\":\"{tail}\"}}"))
                };
                let (a, b) = (long(a), long(b));
                assert_eq!(a == b, a.to_tree() == b.to_tree(), "{a:?} and {b:?}");
            }
        }
    }
}
