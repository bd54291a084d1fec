//! Functions that a RethinkDB 2.4.4 stored: they are read, made again from their queries, and written as RethinkDB wrote them.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use datum::Datum;
use serde_json::value::RawValue;

use super::binary::{read_hook, read_index};
use super::*;
use crate::closure::ResultKind;
use crate::eval::closure;
use crate::purity;
use crate::scope::Scope;
use crate::signature::Op;
use crate::term::Call;

/// A line of a file of functions.
#[derive(serde::Deserialize)]
struct Line<'a> {
    name: String,
    #[serde(borrow)]
    wire: &'a RawValue,
    #[serde(default)]
    multi: bool,
    #[serde(default)]
    geo: bool,
    query: String,
    function: String,
}

/// A function that RethinkDB stored.
struct Known {
    name: String,
    /// The query that stored it.
    query: Text,
    /// What RethinkDB shows.
    shown: String,
    flags: IndexFlags,
    binary: Vec<u8>,
}

/// The functions in this file: a part of them from the repository, and all where the data of a real RethinkDB is at hand.
fn known(file: &str) -> Vec<Known> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let data = std::env::var_os("REKINDLE_RETHINKDB_DATA").map(PathBuf::from);
    let data = data.unwrap_or_else(|| here.join("../../../shared/rethinkdb-data"));
    let text = std::fs::read_to_string(data.join(file));
    let text = text.or_else(|_| std::fs::read_to_string(here.join("testdata/rethinkdb").join(file)));
    let known = |line: &str| {
        let line: Line<'_> = serde_json::from_str(line).expect("a line of the file");
        Known {
            query: format!("[1,{},{{}}]", line.wire.get()).into(),
            flags: IndexFlags { multi: line.multi, geo: line.geo },
            binary: STANDARD.decode(line.function).expect("base64"),
            name: line.name,
            shown: line.query,
        }
    };
    text.expect("the file").lines().map(known).collect()
}

/// The term that stores a function.
fn storing(term: &Term) -> Option<&Call> {
    match term {
        Term::Datum(_) | Term::Var(_) => None,
        Term::Func(func) => storing(&func.body),
        Term::Call(call) if matches!(call.op, Op::IndexCreate | Op::SetWriteHook) => Some(call),
        Term::Call(call) => call.args.iter().find_map(storing),
    }
}

/// The function that the query stores, as the evaluation gives it: captured variables have the values in `known`.
fn stored_by(query: &Text, known: &Function) -> StoredFunc {
    let term = wire::parse_query(query.as_bytes()).expect("a legal query").term.expect("a term");
    let call = storing(&term).expect("a term that stores a function");
    let Some(Term::Func(func)) = call.args.last() else {
        let Some(Term::Datum(Datum::String(name))) = call.args.get(1) else {
            // The name is a variable.
            let name = Text::from("each_nofn");
            return StoredFunc::of_field(&name, Some(query), call.path.as_deref()).expect("a function");
        };
        return StoredFunc::of_field(name, Some(query), call.path.as_deref()).expect("a function");
    };
    let path = func.path.as_deref().expect("a path");
    let place = numbered::place_in_query(query, path).expect("a place");
    let row = place.rows_around().1.zip(known.row.clone());
    let (ids, values): (Vec<VarId>, Vec<Datum>) = known.captured.iter().cloned().chain(row).unzip();
    let closure =
        closure(func, &Scope::of_call(&ids, &values, &[]), ResultKind::Datum).expect("bound variables");
    StoredFunc::of_closure(&closure, Some(query)).expect("a function")
}

fn function_in(content: Content<'_>) -> Function {
    match content {
        Content::Function(function) => function,
        Content::JavaScript | Content::Text(_) => panic!("another content"),
    }
}

#[test]
fn index_functions_are_read_and_written_as_rethinkdb_does() {
    for Known { name, query, binary, flags, .. } in known("index-functions.jsonl") {
        let read = StoredFunc::of_index_binary(&binary).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(read.flags, flags, "{name}");
        assert_eq!(read.function.index_binary(flags), binary, "{name}");
        assert!(purity::is_storable(read.function.func()), "{name}");
        let function = function_in(read_index(&binary).expect("it was read").0);
        assert_eq!(stored_by(&query, &function), read.function, "{name}");
    }
}

#[test]
fn write_hooks_are_read_and_written_as_rethinkdb_does() {
    for Known { name, query, binary, .. } in known("write-hooks.jsonl") {
        let read = StoredFunc::of_hook_binary(&binary).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(read.hook_binary(), binary, "{name}");
        assert_eq!(read.func().params.len(), 3, "{name}");
        let function = function_in(read_hook(&binary).expect("it was read"));
        assert_eq!(stored_by(&query, &function), read, "{name}");
        // Bytes behind it are ignored.
        let longer = [&binary[..], b"more"].concat();
        assert_eq!(StoredFunc::of_hook_binary(&longer).expect("a hook"), read, "{name}");
    }
}

#[test]
fn functions_are_shown_as_rethinkdb_shows_them() {
    // An explicit object, which no driver sends, is printed like any other.
    let known_differences = ["raw_datum_obj"];
    let mut differ = Vec::new();
    for Known { name, binary, shown, flags, .. } in known("index-functions.jsonl") {
        let source = StoredFunc::of_index_binary(&binary).expect("an index").function.source();
        let options = match (flags.multi, flags.geo) {
            (false, false) => "",
            (true, false) => ", {multi: true}",
            (false, true) => ", {geo: true}",
            (true, true) => ", {multi: true, geo: true}",
        };
        let found = format!("indexCreate('{name}', {source}{options})");
        if found != shown && !known_differences.contains(&name.as_str()) {
            differ.push(format!("{name}\n{shown}\n{found}"));
        }
    }
    assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ.join("\n"));
}

#[test]
fn a_text_keeps_its_binary() {
    for Known { name, binary, flags, .. } in known("index-functions.jsonl") {
        let read = StoredFunc::of_index_binary(&binary).expect("an index").function;
        let parsed = StoredFunc::parse(read.text().clone()).expect("a function");
        let again = match read.stored_binary() {
            Some(stored) => parsed.with_binary(stored.clone()),
            None => parsed,
        };
        assert_eq!(again, read, "{name}");
        assert_eq!(again.index_binary(flags), binary, "{name}");
    }
}

#[test]
fn a_function_without_a_query_has_a_binary_that_is_read_again() {
    for Known { binary, flags, .. } in known("index-functions.jsonl") {
        let text = StoredFunc::of_index_binary(&binary).expect("an index").function.text().clone();
        let parsed = StoredFunc::parse(text).expect("a function");
        let again = StoredFunc::of_index_binary(&parsed.index_binary(flags)).expect("an index");
        assert_eq!(again.flags, flags);
        assert_eq!(again.function.text(), parsed.text());
    }
}

#[test]
fn binaries_that_end_early_are_refused() {
    for Known { name, binary, .. } in
        known("index-functions.jsonl").into_iter().filter(|k| k.binary.len() < 2000)
    {
        for end in 0..binary.len() {
            let error = StoredFunc::of_index_binary(&binary[..end]).expect_err("it is cut").message();
            let known = ["Cannot create an sindex except", "Binary blob passed to index create could not be"];
            assert!(known.iter().any(|text| error.starts_with(text)), "{name} to {end}: {error}");
        }
        assert!(StoredFunc::of_index_binary(&[&binary[..], b"\0"].concat()).is_err(), "{name}");
    }
    for Known { name, binary, .. } in known("write-hooks.jsonl").into_iter().filter(|k| k.binary.len() < 2000)
    {
        for end in 0..binary.len() {
            let error = StoredFunc::of_hook_binary(&binary[..end]).expect_err("it is cut").message();
            let known = ["Cannot create a write hook except", "SANITY CHECK FAILED: [func.has()]"];
            assert!(known.iter().any(|text| error.starts_with(text)), "{name} to {end}: {error}");
        }
    }
}

#[test]
fn damaged_binaries_are_refused_or_read_as_another_function() {
    for Known { binary, .. } in known("index-functions.jsonl").into_iter().filter(|k| k.binary.len() < 500) {
        for at in 0..binary.len() {
            for change in [1, 2, 0x20, 0x80, 0xff] {
                let mut damaged = binary.clone();
                damaged[at] ^= change;
                let Ok(IndexFunc { function, flags }) = StoredFunc::of_index_binary(&damaged) else {
                    continue;
                };
                let again =
                    StoredFunc::of_index_binary(&function.index_binary(flags)).expect("it was written here");
                assert_eq!(again.function, function);
            }
        }
    }
}

#[test]
fn captured_variables_become_values() {
    // `x => (y => [x, y, (x => x)(y)])` with x bound to `{a: [1]}`.
    let text = br#"[69,[[2,[2]],[2,[[10,[1]],[10,[2]],[64,[[69,[[2,[1]],[10,[1]]]],[10,[2]]]]]]]]"#;
    let outer = [br"[69,[[2,[1]],".as_slice(), text, b"]]"].concat();
    let Ok(Term::Func(outer)) = wire::parse_term(&outer) else { panic!("a function") };
    let Term::Func(inner) = &outer.body else { panic!("a function in it") };
    let Ok(bound) = datum::json::parse(br#"{"a":[1]}"#) else { panic!("json") };
    let values = [bound];
    let scope = Scope::of_call(&outer.params, &values, &[]);
    let closed = closure(inner, &scope, ResultKind::Datum).expect("x is bound");
    let stored = StoredFunc::of_closure(&closed, None).expect("it has a text");
    assert_eq!(
        stored.text(),
        r#"[69,[[2,[2]],[2,[{"a":[2,[1]]},[10,[2]],[64,[[69,[[2,[1]],[10,[1]]]],[10,[2]]]]]]]]"#
    );
    assert!(stored.func().captures.is_empty());
    assert_eq!(StoredFunc::parse(stored.text().clone()).expect("it can be read"), stored);
}

#[test]
fn text_that_is_not_a_function_is_refused() {
    for text in ["", "1", "[17,[1,1]]", "[69,[[2,[1]],[10,[2]]]]"] {
        assert!(StoredFunc::parse(Text::from(text)).is_err(), "{text}");
    }
}
