//! Binaries that are none, with RethinkDB's errors, and forms of other releases.

use datum::{Datum, Text};
use prost::Message as _;

use super::value;
use super::*;
use crate::error::ErrorClass;
use crate::stored::{IndexFunc, StoredFunc};
use crate::term::VarId;

const INDEX: &str = "Binary blob passed to index create could not be interpreted as a reql_index_function";

/// `row => row["a"]`, as its numbered tree.
const TREE: &str = r#"[170,[[10,[[1,1,10]],9],[1,"a",11]],8]"#;

fn function(tree: &str) -> Function {
    Function {
        captured: Vec::new(),
        rows_around: 0,
        row: None,
        params: vec![VarId(1)],
        tree: Text::from(tree),
        number: 8,
    }
}

fn index(versions: [u8; 4], function: &Function) -> Vec<u8> {
    let function = function.write(usize::MAX).expect("bytes");
    [INDEX_PREFIX, &versions, &function, &[0, 0]].concat()
}

#[track_caller]
fn refused(blob: &[u8], class: ErrorClass, message: &str) {
    let error = StoredFunc::of_index_binary(blob).expect_err("it is refused");
    assert_eq!((error.class(), error.message().as_str()), (class, message));
}

#[test]
fn versions_are_checked_as_rethinkdb_does() {
    let of = |versions| index(versions, &function(TREE));
    for versions in [[9, 7, 7, 7], [8, 6, 6, 6], [7, 2, 5, 7]] {
        let read = StoredFunc::of_index_binary(&of(versions)).expect("a function");
        assert_eq!(read.function.index_binary(read.flags), of([9, 7, 7, 7]));
    }
    let of_1_13 = "Attempted to import a RethinkDB 1.13 secondary index, which is no longer supported.  This secondary \
                   index may be updated by importing into RethinkDB 2.0.";
    let of_1_14 = "Attempted to import a secondary index from before RethinkDB 1.16, which is no longer supported.  This \
                   secondary index may be updated by importing into RethinkDB 2.1.";
    for (versions, message) in
        [([0, 7, 7, 7], of_1_13), ([1, 7, 7, 7], of_1_13), ([9, 0, 0, 7], of_1_13), ([3, 1, 1, 1], of_1_14)]
    {
        refused(&of(versions), ErrorClass::QueryLogic, message);
    }
    for cluster in [10, 113, 200, 255] {
        let message = "Unrecognized secondary index version, secondary index not created.";
        refused(&of([cluster, 7, 7, 7]), ErrorClass::Internal, message);
    }
    for (versions, part) in [
        ([9, 8, 7, 7], "original_reql_version"),
        ([9, 200, 7, 7], "original_reql_version"),
        ([9, 7, 1, 7], "latest_compatible_reql_version"),
        ([9, 7, 7, 8], "latest_checked_reql_version"),
    ] {
        let why = format!("Deserialization of {part} failed with error archive_result_t::RANGE_ERROR.");
        refused(&of(versions), ErrorClass::QueryLogic, &format!("{INDEX} ({why})."));
    }
}

#[test]
fn damaged_indexes_have_rethinkdbs_errors() {
    let blob = index([9, 7, 7, 7], &function(TREE));
    let failed =
        |error: &str| format!("{INDEX} (Deserialization of sindex description failed with error {error}.).");
    refused(&blob[..blob.len() - 1], ErrorClass::QueryLogic, &failed("archive_result_t::SOCK_EOF"));
    refused(INDEX_PREFIX, ErrorClass::QueryLogic, &failed("archive_result_t::SOCK_EOF"));
    refused(&blob[..blob.len() - 10], ErrorClass::QueryLogic, &failed("archive_result_t::SOCK_ERROR"));
    for at in [INDEX_PREFIX.len() + 4, blob.len() - 1] {
        let mut damaged = blob.clone();
        damaged[at] = 2;
        refused(&damaged, ErrorClass::QueryLogic, &failed("archive_result_t::RANGE_ERROR"));
    }
    let longer = [&blob[..], b"abc"].concat();
    let message = format!("{INDEX} (Bytes after the sindex description: 3.).");
    refused(&longer, ErrorClass::QueryLogic, &message);
    let prefix = "Cannot create an sindex except from a reql_index_function returned from `index_status` in the field \
                  `function`.";
    refused(b"abc", ErrorClass::QueryLogic, prefix);
}

#[test]
fn trees_that_are_none_are_refused() {
    let of = |tree| index([9, 7, 7, 7], &function(tree));
    refused(&of(r#"[10,[[1,2,10]],8]"#), ErrorClass::QueryLogic, "Variable name not found.");
    refused(&of("[9999,8]"), ErrorClass::QueryLogic, "Unrecognized TermType: 9999.");
    refused(&of("[16,8]"), ErrorClass::QueryLogic, "Expected 2 arguments but found 0.");
    let insane = "SANITY CHECK FAILED: the function cannot be read: ";
    for (tree, why) in [
        ("[1,5", "it is not JSON."),
        ("5", "an element of it is not a term."),
        ("[1,5,0.5]", "the backtrace of a term is not a number of 32 bits."),
    ] {
        refused(&of(tree), ErrorClass::Internal, &format!("{insane}{why}"));
    }
    let mut cut = of("[1,5,0]");
    let end = cut.len() - 7;
    cut[end] = b' ';
    refused(&cut, ErrorClass::Internal, &format!("{insane}its term tree does not end with a zero byte."));
}

#[test]
fn rows_of_enclosing_functions_need_their_value() {
    let with = |rows_around, row: Option<Datum>| {
        let function = Function { rows_around, row, params: vec![VarId(-3)], ..function("[13,8]") };
        StoredFunc::of_index_binary(&index([9, 7, 7, 7], &function))
    };
    let stored = with(1, Some(Datum::from("x"))).expect("a function").function;
    assert_eq!(stored.text(), r#"[69,[[2,[-3]],"x"]]"#);
    assert!(stored.source().starts_with("function(_var3) {"));
    let message = |result: Result<_, EvalError>| result.map(|_| ()).expect_err("it is refused").message();
    assert_eq!(message(with(0, None)), "r.row is not defined in this context.");
    assert!(message(with(1, None)).starts_with("SANITY CHECK FAILED: "));
    assert_eq!(message(with(2, None)), "Cannot use r.row in nested queries.  Use functions instead.");
    // One captured variable gives it no meaning.
    let captured = vec![(VarId(7), Datum::Null)];
    let function = Function { captured, params: vec![VarId(-3)], ..function("[13,8]") };
    let refused = StoredFunc::of_index_binary(&index([9, 7, 7, 7], &function));
    assert_eq!(message(refused), "r.row is not defined in this context.");
}

#[test]
fn javascript_is_refused() {
    let function = [&[1][..], b"\x05r.row", &[0; 8], &[0; 4]].concat();
    let blob = [INDEX_PREFIX, &[9, 7, 7, 7], &function, &[0, 0]].concat();
    let message = "Could not prove function deterministic.  Index functions must be deterministic.";
    refused(&blob, ErrorClass::QueryLogic, message);
    let hook = StoredFunc::of_hook_binary(&[HOOK_PREFIX, &function].concat()).expect_err("it is refused");
    let message = "Could not prove function deterministic.  Write hook functions must be deterministic.";
    assert_eq!(hook.message(), message);
}

#[test]
fn our_earlier_form_is_read() {
    let text = r#"[69,[[2,[1]],[170,[[10,[1]],"a"]]]]"#;
    for (byte, multi, geo) in [(0, false, false), (1, true, false), (2, false, true), (3, true, true)] {
        let blob = [INDEX_PREFIX, EARLIER_INDEX, &[byte], text.as_bytes()].concat();
        let read = StoredFunc::of_index_binary(&blob).expect("a function");
        assert_eq!((read.function.text().as_ref(), read.flags), (text, IndexFlags { multi, geo }));
    }
    let hook = StoredFunc::of_hook_binary(&[HOOK_PREFIX, text.as_bytes()].concat()).expect("a function");
    assert_eq!(hook.text(), text);
    for (rest, why) in [(&b""[..], "it is cut"), (b"\x04", "unknown flags"), (b"\0\xff", "it is not text")] {
        let blob = [INDEX_PREFIX, EARLIER_INDEX, rest].concat();
        refused(&blob, ErrorClass::QueryLogic, &format!("{INDEX} ({why})."));
    }
}

#[test]
fn a_text_of_our_earlier_form_is_read_as_its_binary() {
    for (body, expected) in [
        (r#" [170, [[10,[1]], "a"]] "#, r#"[170,[[10,[1]],"a"]]"#),
        (r#"{"b":1.0,"a":[1,5,0]}"#, r#"[3,[],{"b":1,"a":5}]"#),
        (r#"{"b":1,"a":2}"#, r#"{"a":2,"b":1}"#),
        ("[2,[[1,[5]],[1,[[1,2]]]]]", "[2,[5,[2,[1,2]]]]"),
        (r#"[1,{"$reql_type$":"X"}]"#, r#"[3,[],{"$reql_type$":"X"}]"#),
        ("[24.0,[[10,[[1,1]]],1e2],{}]", "[24,[[10,[1]],100]]"),
        ("[24,[[10,[1.0]],-0.0]]", "[24,[[10,[1]],-0.0]]"),
        ("[64,[[69,[[2,[[1,3]]],[10,[3]]],{}],[10,[1]]]]", "[64,[[69,[[2,[3]],[10,[3]]]],[10,[1]]]]"),
    ] {
        let text = format!("[69,[[2,[1]],{body}],{{}}]");
        let index = [INDEX_PREFIX, EARLIER_INDEX, b"\x01", text.as_bytes()].concat();
        let IndexFunc { function, flags } = StoredFunc::of_index_binary(&index).expect("a function");
        assert_eq!(function.text().as_ref(), format!("[69,[[2,[1]],{expected}]]"), "{text}");
        let again = StoredFunc::of_index_binary(&function.index_binary(flags)).expect("it was written here");
        assert_eq!((&again.function, again.flags), (&function, flags));
        let hook = StoredFunc::of_hook_binary(&[HOOK_PREFIX, text.as_bytes()].concat()).expect("a function");
        assert_eq!(hook, function);
        assert_eq!(StoredFunc::of_hook_binary(&hook.hook_binary()).expect("it was written here"), hook);
    }
}

/// The message of `row => row["a"]` in Protocol Buffers.
fn message() -> Vec<u8> {
    protobuf::tests::bracket().encode_to_vec()
}

#[test]
fn functions_of_older_releases_are_read() {
    let message = message();
    let size = i32::try_from(message.len()).expect("short").to_le_bytes();
    let head = [&[0, 0][..], &[0; 4], &[1], &1_i64.to_le_bytes()].concat();
    let backtrace = [&3_i32.to_le_bytes()[..], b"\x0a\x01x"].concat();
    let older = |cluster, reql, backtrace: &[u8], flags: &[u8]| {
        [INDEX_PREFIX, &[cluster, reql, reql, reql], &head, &size, &message, backtrace, flags].concat()
    };
    let expected = Function { number: 0, ..function(r#"[170,[[10,[[1,1.0,0]],0],[1,"a",0]],0]"#) };
    for (blob, flags) in [
        (older(6, 4, &[5, 0, 0, 0], &[1, 0]), IndexFlags { multi: true, geo: false }),
        (older(5, 3, &backtrace, &[0, 1]), IndexFlags { multi: false, geo: true }),
        (older(4, 2, &backtrace, &[1, 1]), IndexFlags { multi: true, geo: true }),
        (older(2, 2, &backtrace, &[1]), IndexFlags { multi: true, geo: false }),
    ] {
        let read = StoredFunc::of_index_binary(&blob).expect("a function");
        let number = if blob[INDEX_PREFIX.len()] == 6 { 5 } else { 0 };
        let function = Function { number, ..expected.clone() };
        assert_eq!(read.flags, flags);
        let written = [INDEX_PREFIX, &[9, 7, 7, 7], &function.write(usize::MAX).expect("bytes")].concat();
        assert!(read.function.index_binary(flags).starts_with(&written));
    }
}

#[test]
fn values_are_written_as_they_were_read() {
    let nested = (0..2000).fold(Datum::Null, |value, _| Datum::from(vec![value]));
    let long = Datum::from("x".repeat(300));
    for value in [
        Datum::MinVal,
        Datum::Number(-0.0),
        Datum::Number(9_007_199_254_740_992.0),
        Datum::Number(9_007_199_254_740_994.0),
        Datum::Number(-1.5),
        Datum::from(vec![]),
        Datum::from(vec![long.clone(), Datum::from(1), long.clone()]),
        Datum::from(vec![Datum::from("y".repeat(70_000)), long]),
        nested,
    ] {
        let mut bytes = Vec::new();
        value::write(&value, usize::MAX, &mut bytes).expect("bytes");
        let mut reader = Reader::new(&bytes);
        let read = value::read(&mut reader).expect("a value");
        assert_eq!((read.to_json_string(), reader.left()), (value.to_json_string(), 0));
        assert!(value::write(&value, bytes.len() - 1, &mut Vec::new()).is_none());
        for end in 0..bytes.len().min(500) {
            assert!(value::read(&mut Reader::new(&bytes[..end])).is_err());
        }
    }
}

#[test]
fn values_of_shared_parts_are_not_written_for_long() {
    let shared = (0..60).fold(Datum::Null, |value, _| Datum::from(vec![value.clone(), value]));
    assert!(value::write(&shared, 1 << 16, &mut Vec::new()).is_none());
}

#[test]
fn values_of_releases_before_1_16_are_read() {
    // `[true, {"a": []}]`
    let bytes = b"\x01\x02\x02\x01\x05\x01\x01a\x01\x00";
    let read = value::read(&mut Reader::new(bytes)).expect("a value");
    assert_eq!(read.to_json_string(), r#"[true,{"a":[]}]"#);
    for bytes in [
        &b"\x01\xff\xff\xff\xff\x0f"[..],
        b"\x0a\x04\x02\x02\x03\x03",
        b"\x0a\x05\x02\x01\x03\x03\x03",
        b"\x0b\x08\x02\x03\x01a\x03\x01a\x03",
        b"\x0f",
        b"\x04\0\0\0\0\0\0\xf0\x7f",
        b"\x06\x01\xff",
        b"\x07\x81\x80\x80\x80\x80\x80\x80\x10",
    ] {
        assert!(value::read(&mut Reader::new(bytes)).is_err(), "{bytes:?}");
    }
}
