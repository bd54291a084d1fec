//! A pipeline gives the same result however its items are divided into ranges.

#[path = "data/syntax.rs"]
#[allow(dead_code, reason = "shared with the cases")]
mod syntax;

use datum::{Array, Datum, Time};
use rekindle_reql::{
    self as reql, Cancel, Env, IndexOption, Op, Operation, Pipeline, Scope, SeededRandom, Term, Terminal,
    Value, wire,
};

/// Ranges are processed by several threads.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    const fn is_sent<T: Send>() {}
    is_shared::<Pipeline>();
    is_shared::<Env<'static>>();
    is_shared::<Operation>();
    is_sent::<reql::Tally>();
    is_sent::<Value>();
};

fn parsed(text: &str) -> Term {
    let json = syntax::to_wire(text).expect("the notation of tests");
    wire::parse_term(json.to_string().as_bytes()).expect("a legal term")
}

fn with_env<R>(then: impl FnOnce(&Env<'_>) -> R) -> R {
    let (cancel, random) = (Cancel::new(), SeededRandom::new(1));
    then(&Env {
        now: Time::new(0.0, 0),
        array_limit: 100_000,
        cancel: &cancel,
        random: &random,
        globals: &[],
        open: None,
    })
}

/// The pipeline of a chain of terms over an array.
fn pipeline(term: &Term, env: &Env<'_>) -> Pipeline {
    let mut pipeline =
        Pipeline { steps: Vec::new(), group: None, grouped_steps: Vec::new(), terminal: Terminal::Collect };
    let mut chain = Vec::new();
    let mut at = term;
    while let Term::Call(call) = at {
        if !reql::is_operation(call.op) || call.op == Op::MakeArray {
            break;
        }
        chain.push(&**call);
        at = &call.args[0];
    }
    for call in chain.into_iter().rev() {
        let made = reql::operation(call, &Scope::empty(), env, IndexOption::Refuse);
        match made.expect("legal arguments").expect("a sequence term") {
            Operation::Step(step) if pipeline.group.is_none() => pipeline.steps.push(step),
            Operation::Step(step) => pipeline.grouped_steps.push(step),
            Operation::Group(by) => pipeline.group = Some(by),
            Operation::Terminal(mut steps, terminal) => {
                let target = match pipeline.group {
                    None => &mut pipeline.steps,
                    Some(_) => &mut pipeline.grouped_steps,
                };
                target.append(&mut steps);
                pipeline.terminal = terminal;
            }
            other => panic!("not a step: {other:?}"),
        }
    }
    pipeline
}

fn shown(value: Value) -> String {
    format!("{value:?}")
}

fn items() -> Array {
    let row = |i: i32| {
        let text = format!(r#"{{"id":{i},"a":{},"s":"x.y.{}","tags":[{},{}]}}"#, i % 4, i % 3, i % 2, i % 5);
        let row = datum::json::parse(text.as_bytes()).expect("JSON");
        match (row, i % 7) {
            (Datum::Object(row), 3) => {
                let mut row = row.to_builder();
                row.remove("a");
                Datum::Object(row.build())
            }
            (row, _) => row,
        }
    };
    (0..200).map(row).collect()
}

#[test]
fn merged_ranges_equal_the_whole() {
    let cases = [
        "r.args([]).count()",
        "r.args([]).sum(\"a\")",
        "r.args([]).avg(\"a\")",
        "r.args([]).min(\"a\")",
        "r.args([]).max(x => x[\"a\"])",
        "r.args([]).map(x => x[\"s\"].split(\".\").count()).sum()",
        "r.args([]).filter(x => x[\"a\"].gt(1)).count(x => x[\"id\"].mod(2).eq(0))",
        "r.args([]).concat_map(x => x[\"tags\"]).distinct()",
        "r.args([]).map(x => x[\"id\"]).reduce((a, b) => a.add(b))",
        "r.args([]).pluck(\"a\").distinct()",
        "r.args([]).without(\"tags\").merge(x => {b: x[\"id\"].add(1)}).max(\"b\")",
        "r.args([]).group(\"a\").count()",
        "r.args([]).group(\"a\").sum(\"id\")",
        "r.args([]).group(\"tags\", multi: true).map(x => x[\"id\"]).max()",
        "r.args([]).group(\"a\", \"s\").min(\"id\")",
        "r.args([]).group(\"id\").sum(\"a\")",
        "r.args([]).has_fields(\"a\").group(x => x[\"a\"].mod(2)).avg(\"id\")",
        "r.args([]).group(\"a\").filter(x => x[\"id\"].lt(50)).pluck(\"id\")",
    ];
    with_env(|env| {
        for text in cases {
            let pipeline = pipeline(&parsed(text), env);
            assert!(pipeline.is_closed());
            let whole = answer(&pipeline, &[items()], env);
            for size in [1, 3, 7, 64, 199] {
                let ranges: Vec<Array> =
                    items().chunks(size).map(|part| part.iter().cloned().collect()).collect();
                assert_eq!(answer(&pipeline, &ranges, env), whole, "{text} in ranges of {size}");
            }
        }
    });
}

fn answer(pipeline: &Pipeline, ranges: &[Array], env: &Env<'_>) -> String {
    let mut all = pipeline.start();
    for range in ranges {
        let mut tally = pipeline.start();
        for item in range.iter() {
            pipeline.push(&mut tally, item.clone(), env).expect("a step");
        }
        pipeline.merge(&mut all, tally, env).expect("a merge");
    }
    shown(pipeline.finish(all).expect("an answer"))
}

#[test]
fn the_array_in_memory_agrees_with_the_pipeline() {
    with_env(|env| {
        for text in ["x => x.group(\"a\").sum(\"id\")", "x => x.filter({a: 1}).map(y => y[\"id\"]).sum()"] {
            let Term::Func(func) = parsed(text) else { panic!("a function") };
            let items = [Datum::Array(items())];
            let scope = Scope::of_call(&func.params, &items, &[]);
            let evaluated = reql::eval_value(&func.body, &scope, env).expect("a value");
            let pipeline = pipeline(&func.body, env);
            let Datum::Array(array) = &items[0] else { panic!("an array") };
            assert_eq!(shown(evaluated), answer(&pipeline, std::slice::from_ref(array), env), "{text}");
        }
    });
}
