//! The tape agrees with serde_json on which texts are JSON and on their values.

use super::{Node, Tape, Value};

fn rebuilt(value: Value<'_, '_>) -> serde_json::Value {
    match value.node() {
        Node::Null => serde_json::Value::Null,
        Node::Bool(flag) => (*flag).into(),
        Node::Number(number, _) => (*number).into(),
        Node::String(text) => text.as_ref().into(),
        Node::Array(_) => value.items().expect("an array").map(rebuilt).collect(),
        Node::Object(_) => {
            let members = value.members().expect("an object");
            members.map(|(key, value)| (key.to_string(), rebuilt(value))).collect()
        }
    }
}

#[track_caller]
fn check(text: &str) {
    let ours = Tape::parse(text).ok().map(|tape| rebuilt(tape.root()));
    let theirs = serde_json::from_str::<serde_json::Value>(text).ok().map(doubles);
    assert_eq!(ours, theirs, "{text}");
}

/// Converts numbers to doubles, the only numbers of a query.
fn doubles(value: serde_json::Value) -> serde_json::Value {
    match value {
        serde_json::Value::Number(number) => number.as_f64().into(),
        serde_json::Value::Array(items) => items.into_iter().map(doubles).collect(),
        serde_json::Value::Object(members) => {
            members.into_iter().map(|(key, value)| (key, doubles(value))).collect()
        }
        other => other,
    }
}

#[test]
fn json_and_near_misses_are_distinguished() {
    for text in [
        "1",
        " [ ] ",
        "[1,2,[],{}]",
        r#"{"a":1,"b":[{"c":null}]}"#,
        "[true,false,null]",
        "-0.5e+10",
        "01",
        "1.",
        "-",
        "1e",
        "[1,]",
        "[,1]",
        "{\"a\":}",
        "{\"a\" 1}",
        "{a:1}",
        "{,}",
        "{\"a\":1,}",
        "[1",
        "]",
        "[}",
        "{]",
        "\"",
        "nul",
        "nullx",
        "[1]]",
        "",
        " ",
        "\"\\u00e9\"",
        "\"\\ud83d\\ude00\"",
        "\"\\ud83d\"",
        "\"\\ude00\\ud83d\"",
        "\"\\u12g4\"",
        "\"\\x\"",
        "\"tab\there\"",
        "\"twelve chars \\n and more text after it\"",
        "\"ünïcode ✓ long enough\"",
        "1e400",
        "123456789012345678901234567890",
        "[[[[[[]]]]]]",
        "\"\\u+123\"",
        "[\"a\"\"b\"]",
    ] {
        check(text);
    }
}

#[test]
fn random_edits_of_a_query_never_disagree_with_serde_json() {
    let query = r#"[1,[39,[[15,["t\n\"x"]],{"a":-1.5e3,"é":[2,[true,null]]}],{"default":false}],{}]"#;
    let alphabet = br#"[]{},:"\u0e19.-tnf "#;
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    println!("seed {state:#x}");
    let mut random = |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % bound as u64) as usize
    };
    for _ in 0..20_000 {
        let mut bytes = query.as_bytes().to_vec();
        for _ in 0..=random(3) {
            let at = random(bytes.len());
            bytes[at] = alphabet[random(alphabet.len())];
        }
        if let Ok(text) = std::str::from_utf8(&bytes) {
            check(text);
        }
    }
}

#[test]
fn depth_is_bounded_without_recursion() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(Tape::parse(&nested(100_000)).is_ok());
    assert!(Tape::parse(&nested(100_001)).is_err());
    assert!(Tape::parse(&"[".repeat(10_000_000)).is_err());
}

#[test]
fn constants_are_marked() {
    for (text, known) in [
        ("1", true),
        ("[2,[]]", true),
        ("[2,[1,[2,[{}]]]]", true),
        (r#"{"a":[2,[1,{"b":null}]]}"#, true),
        ("[1,2]", false),
        ("[2]", false),
        ("[2,[1],{}]", false),
        (r#"{"a":[2,[1,{"b":[103,[]]}]]}"#, false),
        ("[2,[[10,[1]]]]", false),
        ("[2,[2,[1]]]", false),
    ] {
        let tape = Tape::parse(text).expect("JSON");
        assert_eq!(tape.root().is_known(), known, "{text}");
    }
}

#[test]
fn an_integer_zero_has_no_sign() {
    for (text, printed) in [("-0", "0"), ("[2,[-0,-0.0,-0e0]]", "[0,-0.0,-0.0]")] {
        let term = crate::wire::parse_term(text.as_bytes()).expect("a legal term");
        let crate::Term::Datum(value) = term else { panic!("{text} is a value") };
        assert_eq!(value.to_json_string(), printed);
    }
}
