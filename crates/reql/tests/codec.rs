//! Values are unchanged after encoding and decoding, and no input makes the decoder panic.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "data/syntax.rs"]
mod syntax;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datum::cancel::{self, CancelToken};
use datum::{Bytes, Datum, Object, Text, Time, json, row};
use rekindle_reql as reql;
use reql::codec::{Codec, PackError, Packer, Unpacker};
use reql::wire::parse_term;
use reql::{
    Cancel, Closure, Emitted, Env, ErrorClass, EvalError, GroupBy, IndexOption, Operation, Pipeline,
    ResultKind, Scope, SeededRandom, Selector, Tally, Term, Terminal, Transform,
};

fn packed(value: &impl Codec) -> Bytes {
    let mut out = Packer::default();
    value.pack(&mut out);
    out.finish().unwrap()
}

fn unpacked<T: Codec>(bytes: &Bytes) -> T {
    let mut from = Unpacker::new(bytes.clone());
    let value = T::unpack(&mut from).unwrap();
    from.end().unwrap();
    value
}

fn round_trip<T: Codec>(value: &T) -> T {
    unpacked(&packed(value))
}

fn with_env<R>(work: impl FnOnce(&Env<'_>) -> R) -> R {
    let (cancel, random) = (Cancel::new(), SeededRandom::new(1));
    work(&Env {
        now: Time::new(1.5, 60),
        array_limit: 100,
        cancel: &cancel,
        random: &random,
        globals: &[],
        open: None,
    })
}

fn closure(text: &str) -> Closure {
    let wire = syntax::to_wire(text).unwrap().to_string();
    let Term::Func(func) = parse_term(wire.as_bytes()).unwrap() else { panic!("{text} is no function") };
    reql::closure(&func, &Scope::empty(), ResultKind::Datum).unwrap()
}

fn datums() -> Vec<Datum> {
    let shape = json::parse(br#"{"$reql_type$":"GEOMETRY","type":"Point","coordinates":[1,2]}"#).unwrap();
    let Datum::Object(object) = json::parse(br#"{"a":{"b":[1,null]},"id":"k","t":true}"#).unwrap() else {
        panic!("an object")
    };
    let stored = row::decode(row::encode(&object).into()).unwrap();
    let inner = stored.get("a").unwrap();
    vec![
        Datum::MinVal,
        Datum::MaxVal,
        Datum::Null,
        false.into(),
        true.into(),
        Datum::Number(-0.0),
        Datum::Number(f64::MIN_POSITIVE),
        Datum::Number(9_007_199_254_740_993.0),
        "".into(),
        "\u{0}\"é".into(),
        Datum::Binary(Bytes::from_static(&[0, 255])),
        Datum::Time(Time::new(-1.25, -1499)),
        shape,
        vec![Datum::MaxVal, vec![].into()].into(),
        Datum::Object(Object::default()),
        Datum::Object(object),
        Datum::Object(stored),
        inner,
    ]
}

#[test]
fn datums_arrive_bit_by_bit() {
    for datum in datums() {
        let found = round_trip(&datum);
        assert!(found == datum && found.kind() == datum.kind(), "{datum:?} became {found:?}");
        if let (Datum::Number(a), Datum::Number(b)) = (&datum, &found) {
            assert_eq!(a.to_bits(), b.to_bits());
        }
        assert_eq!(packed(&found), packed(&datum));
    }
}

#[test]
fn a_stored_row_arrives_as_a_stored_row() {
    let object = [(Text::from_static("id"), Datum::Number(1.0))].into_iter().collect();
    let stored = row::decode(row::encode(&object).into()).unwrap();
    let found: Object = round_trip(&stored);
    assert_eq!(row::stored(&found), row::stored(&stored));
    let mut bytes = packed(&stored).to_vec();
    let last = bytes.len() - 6;
    bytes[last] ^= 1;
    assert!(Object::unpack(&mut Unpacker::new(bytes.into())).is_err(), "its checksum is looked at");
}

#[test]
fn errors_keep_their_class_text_and_way() {
    let error = EvalError::no_attribute(&Text::from_static("a"), &Object::default()).at(3_usize).at("index");
    let found = round_trip(&error);
    assert_eq!(format!("{found:?}"), format!("{error:?}"));
    assert_eq!(found.class(), ErrorClass::NonExistence);
    assert!(round_trip(&EvalError::empty_error()).is_empty_error());
}

#[test]
fn functions_return_the_same_after_a_round_trip() {
    for text in [
        "x => x.add(1)",
        "x => [x, {a: x, b: [1, {c: null}]}]",
        "x => r.branch(x.gt(1), x.mul(2), r.error(\"small\"))",
        "x => r.range(3).map(y => x.add(y)).coerce_to(\"array\")",
        "x => [1, 2, 3].filter(y => y.gt(x)).count()",
        "x => x.default(r.now())",
    ] {
        let closure = closure(text);
        let found = round_trip(&closure);
        for value in [Datum::Null, Datum::Number(1.0), Datum::Number(2.0), "s".into()] {
            let call = |closure: &Closure| with_env(|env| closure.call(std::slice::from_ref(&value), env));
            assert_eq!(format!("{:?}", call(&found)), format!("{:?}", call(&closure)), "{text} of {value:?}");
        }
    }
}

#[test]
fn captured_variables_travel_along() {
    let wire = syntax::to_wire("x => y => x.add(y)").unwrap().to_string();
    let Term::Func(outer) = parse_term(wire.as_bytes()).unwrap() else { panic!("a function") };
    let Term::Func(inner) = &outer.body else { panic!("a function in a function") };
    let values = [Datum::Number(40.0)];
    let scope = Scope::of_call(&outer.params, &values, &[]);
    let found = round_trip(&reql::closure(inner, &scope, ResultKind::Datum).unwrap());
    let answer = with_env(|env| found.call(&[Datum::Number(2.0)], env));
    assert_eq!(answer.unwrap(), Datum::Number(42.0));
}

#[test]
fn functions_that_reach_for_tables_are_refused() {
    let open = closure("x => r.table(\"t\").get(x)");
    assert!(Closure::unpack(&mut Unpacker::new(packed(&open))).is_err());
}

fn pipeline(terminal: Terminal) -> Pipeline {
    Pipeline {
        steps: vec![Transform::Map(closure("x => {a: x.mod(3), b: x}"))],
        group: Some(GroupBy { selectors: vec![Selector::Field("a".into())], multi: false }),
        grouped_steps: vec![Transform::Field { name: Text::from_static("b"), term: "bracket" }],
        terminal,
    }
}

fn tally(pipeline: &Pipeline, from: i32, to: i32) -> Tally {
    with_env(|env| {
        let mut tally = pipeline.start();
        (from..to).for_each(|n| pipeline.push(&mut tally, Datum::from(n), env).unwrap());
        tally
    })
}

#[test]
fn decoded_partial_results_merge_like_local_ones() {
    let all = [
        Terminal::Collect,
        Terminal::Count,
        Terminal::Sum(None),
        Terminal::Avg(None),
        Terminal::Min(None),
        Terminal::Max(None),
        Terminal::Reduce(closure("(x, y) => x.add(y)")),
        Terminal::Distinct,
    ];
    for terminal in all {
        for grouped in [true, false] {
            let mut here = pipeline(terminal.clone());
            if !grouped {
                here.group = None;
                here.steps.append(&mut here.grouped_steps);
            }
            let far: Pipeline = round_trip(&here);
            let whole = tally(&here, 0, 20);
            let (mut first, second) = (tally(&here, 0, 7), round_trip(&tally(&far, 7, 20)));
            with_env(|env| here.merge(&mut first, second, env)).unwrap();
            let show = |tally| here.finish(tally).unwrap();
            let (found, expected) = (show(first), show(whole));
            assert_eq!(print(found), print(expected), "{terminal:?}");
        }
    }
}

fn print(value: reql::Value) -> String {
    match value {
        reql::Value::Datum(datum) => datum.to_json_string(),
        reql::Value::Grouped(groups) => format!("{:?}", groups.groups),
        _ => "something else".to_owned(),
    }
}

#[test]
fn per_item_arguments_survive_encoding() {
    for (text, by_chance) in [
        ("x => [].merge({u: r.uuid(), x: x})", true),
        ("x => [].pluck(r.error(\"no\"))", false),
        ("x => [].has_fields(x)", false),
    ] {
        let closure = closure(text);
        let Term::Call(call) = &closure.func.body else { panic!("a call") };
        let captured = [(closure.func.params[0], Datum::Number(1.0))];
        let made = with_env(|env| {
            reql::operation(call, &Scope::of_call(&[], &[], &captured), env, IndexOption::Refuse)
        });
        let Ok(Some(Operation::Step(step))) = made else { panic!("{text} is no step") };
        let found = round_trip(&step);
        let (here, there) = (over_two_objects(&step), over_two_objects(&found));
        assert_eq!(here, there, "{text}");
        assert_eq!(here[1] != here[2], by_chance, "{text}: {here:?}");
        assert_ne!(here[0], here[1], "{text}");
    }
}

/// The result of a step for two equal objects and a number, with a fresh random source.
fn over_two_objects(step: &Transform) -> Vec<String> {
    let object: Object = [(Text::from_static("a"), Datum::Number(1.0))].into_iter().collect();
    with_env(|env| {
        let item = |item: Datum| {
            let emitted = step.step(item, env).map(|emitted| match emitted {
                Emitted::One(item) => item.to_json_string(),
                _ => "nothing".to_owned(),
            });
            format!("{emitted:?}")
        };
        vec![item(Datum::Null), item(object.clone().into()), item(object.into())]
    })
}

#[test]
fn damaged_bytes_are_refused_or_read_but_never_a_panic() {
    let bytes = packed(&pipeline(Terminal::Reduce(closure("(x, y) => x.add(y)"))));
    for at in 0..bytes.len() {
        assert!(Pipeline::unpack(&mut Unpacker::new(bytes.slice(..at))).is_err(), "cut at {at}");
        for change in [1, 0x80, 0xff] {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= change;
            // Damaged bytes that still decode to a pipeline give one that can run.
            if let Ok(found) = Pipeline::unpack(&mut Unpacker::new(damaged.into())) {
                with_env(|env| {
                    let mut tally = found.start();
                    let _ = found.push(&mut tally, Datum::Number(5.0), env);
                    let _ = found.finish(tally);
                });
            }
        }
    }
    let bytes = packed(&tally(&pipeline(Terminal::Collect), 0, 20));
    for at in 0..bytes.len() {
        assert!(Tally::unpack(&mut Unpacker::new(bytes.slice(..at))).is_err(), "cut at {at}");
    }
}

/// Ten to the power of ten numbers, in the memory of twice 100,000.
fn enormous() -> Datum {
    let inner = Datum::from(vec![Datum::from(1); 100_000]);
    Datum::from(vec![inner; 100_000])
}

#[test]
fn packing_an_enormous_value_stops_at_the_limit() {
    let closure = {
        let outer = syntax::to_wire("x => r.do(1, y => [x, x, x])").unwrap().to_string();
        let Term::Func(outer) = parse_term(outer.as_bytes()).unwrap() else { panic!("a function") };
        let Term::Call(call) = &outer.body else { panic!("a call") };
        let Term::Func(inner) = &call.args[0] else { panic!("a function in it") };
        reql::closure(inner, &Scope::of_call(&outer.params, &[enormous()], &[]), ResultKind::Datum).unwrap()
    };
    for value in [&closure as &dyn Packed, &enormous(), &vec![enormous(); 3]] {
        let fault = value.packed().unwrap_err();
        assert!(matches!(fault, PackError::TooLarge));
        let error = fault.error("The functions of a test");
        let text = "The functions of a test are too large to be sent to another server (limit 255 MiB).";
        assert_eq!((error.class(), error.message().as_str()), (ErrorClass::ResourceLimit, text));
    }
}

#[test]
fn packing_ends_when_it_is_cancelled() {
    /// Is cancelled after this many polls.
    struct CancelledAfter(AtomicUsize);

    impl CancelToken for CancelledAfter {
        fn is_cancelled(&self) -> bool {
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err()
        }

        fn cancel_too_deep(&self) {}
    }

    let _cancel_scope = cancel::scope(Some(Arc::new(CancelledAfter(AtomicUsize::new(5)))));
    let mut out = Packer::default();
    enormous().pack(&mut out);
    assert!(out.len() < 10 << 20, "{} bytes", out.len());
    assert!(matches!(out.finish(), Err(PackError::Cancelled)));
}

trait Packed {
    fn packed(&self) -> Result<Bytes, PackError>;
}

impl<T: Codec> Packed for T {
    fn packed(&self) -> Result<Bytes, PackError> {
        let mut out = Packer::default();
        self.pack(&mut out);
        out.finish()
    }
}
