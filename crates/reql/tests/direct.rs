//! Pipelines give the same result on stored rows as on items.

#[path = "data/syntax.rs"]
#[allow(dead_code, reason = "shared with the cases")]
mod syntax;

use datum::row::RowView;
use datum::{Datum, Object, Time};
use rekindle_reql::{
    self as reql, Cancel, Direct, Env, EvalError, IndexOption, Op, Operation, Pipeline, Pushed, RandomSource,
    Scope, SeededRandom, Term, Terminal, Value, wire,
};

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

/// The pipeline of a chain of terms that begins with `t`.
fn pipeline(text: &str, env: &Env<'_>) -> Pipeline {
    let json = syntax::to_wire(&text.replacen('t', "r.args([])", 1)).expect("the notation of tests");
    let term = wire::parse_term(json.to_string().as_bytes()).expect("a legal term");
    let mut chain = Vec::new();
    let mut at = &term;
    while let Term::Call(call) = at
        && reql::is_operation(call.op)
        && call.op != Op::Args
    {
        chain.push(&**call);
        at = &call.args[0];
    }
    let (mut steps, mut grouped, mut group, mut terminal) = (Vec::new(), Vec::new(), None, Terminal::Collect);
    for call in chain.into_iter().rev() {
        let made = reql::operation(call, &Scope::empty(), env, IndexOption::Refuse);
        let target = if group.is_none() { &mut steps } else { &mut grouped };
        match made.expect("legal arguments").expect("a sequence term") {
            Operation::Step(step) => target.push(step),
            Operation::Group(by) => group = Some(by),
            Operation::Terminal(mut more, end) => {
                target.append(&mut more);
                terminal = end;
            }
            other => panic!("not a step: {other:?}"),
        }
    }
    Pipeline { steps, group, grouped_steps: grouped, terminal }
}

/// Values of every kind, most of them plain.
const VALUES: [&str; 27] = [
    "0",
    "1",
    "2",
    "3",
    "-0.0",
    "1.5",
    "-7",
    "1e15",
    "true",
    "false",
    "null",
    r#""""#,
    r#""a""#,
    r#""a.b.c""#,
    r#""a.b\n""#,
    r#""é.é""#,
    "[1,2]",
    "[]",
    r#"{"a":1}"#,
    "{}",
    r#"{"$reql_type$":"TIME","epoch_time":1,"timezone":"+00:00"}"#,
    r#""x..y""#,
    r#""b\"..\\b..\\n""#,
    r#""\u0001.n.u0001""#,
    r#""a\"""#,
    r#""a\u001F""#,
    r#""a#""#,
];

fn row(random: &SeededRandom) -> Object {
    let pick = |count: usize| (random.next_u64() % count as u64) as usize;
    // Mostly values that seldom cause errors, so that many rows are counted before the first error.
    let value = |i: usize| if pick(3) == 0 { VALUES[pick(VALUES.len())] } else { ["1", "2", "3"][i % 3] };
    let names: &[&str] = if pick(12) == 0 { &["\\\"", "a", "n", "s"] } else { &["a", "b", "g", "n", "s"] };
    let members = names.iter().filter(|_| pick(6) > 0).map(|name| {
        let text = if *name == "s" && pick(8) > 0 { r#""one. two. three""# } else { value(pick(3)) };
        format!("\"{name}\":{text}")
    });
    let text = format!("{{{}}}", members.collect::<Vec<_>>().join(","));
    match datum::json::parse(text.as_bytes()).expect("JSON") {
        Datum::Object(row) => row,
        other => panic!("not an object: {other:?}"),
    }
}

/// The result or error, and the number of rows that were processed in place.
fn in_place(pipeline: &Pipeline, rows: &[Vec<u8>], env: &Env<'_>) -> Option<(String, usize)> {
    let mut direct = Direct::of(pipeline, env)?;
    let (mut tally, mut done) = (pipeline.start(), 0);
    for row in rows {
        let view = RowView::new(row).expect("a row");
        match direct.push(&mut tally, &view, env) {
            Ok(Pushed::Done) => done += 1,
            Ok(Pushed::Remains(step)) => {
                let item = Datum::Object(view.to_object());
                if let Err(error) = pipeline.push_from(step, &mut tally, item, env) {
                    return Some((format!("{error:?}"), done));
                }
            }
            Err(error) => return Some((format!("{error:?}"), done)),
        }
    }
    let answer = direct.finish(pipeline, &mut tally, env).and_then(|()| pipeline.finish(tally));
    Some((shown(answer), done))
}

fn as_items(pipeline: &Pipeline, rows: &[Vec<u8>], env: &Env<'_>) -> String {
    let mut tally = pipeline.start();
    for row in rows {
        let item = Datum::Object(datum::row::decode(row.clone().into()).expect("a row"));
        if let Err(error) = pipeline.push(&mut tally, item, env) {
            return format!("{error:?}");
        }
    }
    shown(pipeline.finish(tally))
}

fn shown(answer: Result<Value, EvalError>) -> String {
    match answer {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("{error:?}"),
    }
}

const QUERIES: [&str; 45] = [
    "t.filter(x => x[\"n\"].gt(1)).count()",
    "t.filter(x => x[\"n\"].gt(1), default: true).count()",
    "t.filter(x => x[\"n\"].gt(1), default: r.error()).count()",
    "t.filter(x => x[\"n\"].eq(x[\"a\"])).count()",
    "t.filter(x => x[\"n\"].ne(\"a\")).count()",
    "t.filter(x => x[\"n\"].le(true)).count()",
    "t.filter(x => x[\"s\"].lt(\"b\")).count()",
    "t.filter(x => x[\"n\"].ge(2).and(x[\"a\"].lt(3))).count()",
    "t.filter(x => x[\"n\"].ge(2).or(x[\"a\"])).count()",
    "t.filter(x => x[\"a\"].not()).count()",
    "t.filter(x => x[\"a\"].add(1).mul(2).gt(x[\"n\"].sub(1))).count()",
    "t.filter(x => x[\"a\"].div(x[\"n\"]).gt(0)).count()",
    "t.filter(x => x[\"n\"].default(0).eq(0)).count()",
    "t.filter(x => x[\"n\"].default(x[\"a\"]).eq(0)).count()",
    "t.filter({n: 1}).count()",
    "t.filter({n: 1, s: \"a\", a: null}).count()",
    "t.filter({}).count()",
    "t.filter({a: {a: 1}}).count()",
    "t.count(x => x[\"n\"].eq(1))",
    "t.map(x => x[\"s\"].split(\".\").count()).sum()",
    "t.map(x => x[\"s\"].split(\"..\").count()).sum()",
    "t.filter(x => x[\"s\"].split(\".\").count().gt(2)).count()",
    "t.map(x => x[\"s\"].split(\"n\").count()).sum()",
    "t.map(x => x[\"s\"].split(\"1.\").count()).sum()",
    "t.filter(x => x[\"s\"].eq(\"a\\\"\")).count()",
    "t.filter(x => x[\"s\"].lt(\"a!\")).count()",
    "t.filter(x => x[\"s\"].ge(x[\"a\"])).count()",
    "t.group(\"s\").count()",
    "t.map(x => x[\"n\"].default(0)).sum()",
    "t.map(x => x[\"n\"].default(0)).avg()",
    "t.map(x => x[\"n\"].default(0).add(1)).filter(n => n.gt(2)).count()",
    "t.sum(\"n\")",
    "t.avg(\"n\")",
    "t.sum(x => x[\"n\"].mul(x[\"a\"]))",
    "t.filter({a: 1}).sum(\"n\")",
    "t.filter(x => x[\"n\"].eq(1)).pluck(\"a\").distinct()",
    "t.filter(x => x[\"n\"].eq(1)).filter(x => x[\"a\"].eq(2)).map(x => x[\"s\"]).max()",
    "t.filter(x => x[\"n\"].eq(1)).min(\"a\")",
    "t.group(\"g\").count()",
    "t.group(\"n\").sum(\"a\")",
    "t.group(\"a\", \"n\").count()",
    "t.group(\"g\").filter(x => x[\"n\"].gt(1)).count()",
    "t.group(\"g\").map(x => x[\"n\"].default(1)).avg()",
    "t.filter(x => x[\"a\"].gt(1)).group(\"g\").sum(\"n\")",
    "t.group(\"g\").avg(x => x[\"n\"])",
];

#[test]
fn rows_where_they_lie_and_rows_as_items_agree() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_260);
    println!("SEED={seed}");
    let random = SeededRandom::new(seed);
    with_env(|env| {
        for text in QUERIES {
            let pipeline = pipeline(text, env);
            let mut counted = 0;
            for round in 0..60 {
                let count = random.next_u64() % 30;
                let rows: Vec<_> = (0..count).map(|_| datum::row::encode(&row(&random))).collect();
                let expected = as_items(&pipeline, &rows, env);
                if let Some((found, done)) = in_place(&pipeline, &rows, env) {
                    assert_eq!(found, expected, "{text} in round {round}");
                    counted += done;
                }
            }
            let nested = text.contains("{a: {a") || text.contains("{}");
            assert!(counted > 0 || nested, "{text} was never done where the rows lie");
        }
    });
}

#[test]
fn texts_with_escapes_are_looked_at_where_they_lie() {
    let row = |text: &str| {
        let row: Object = [("s".into(), Datum::from(text))].into_iter().collect();
        datum::row::encode(&row)
    };
    let rows = [row("a.\"b\".c"), row("\u{1}\t.n\\"), row("a\"")];
    with_env(|env| {
        for (query, done_there) in [
            ("t.map(x => x[\"s\"].split(\".\").count()).sum()", 3),
            ("t.filter(x => x[\"s\"].eq(\"a\\\"\")).count()", 3),
            ("t.filter(x => x[\"s\"].lt(\"a\")).count()", 3),
            // An escape may contain the separator.
            ("t.map(x => x[\"s\"].split(\"n\").count()).sum()", 0),
        ] {
            let pipeline = pipeline(query, env);
            let (found, done) = in_place(&pipeline, &rows, env).expect("a plain pipeline");
            assert_eq!(found, as_items(&pipeline, &rows, env), "{query}");
            assert_eq!(done, done_there, "{query}");
        }
    });
}

#[test]
fn a_pipeline_without_plain_steps_is_not_direct() {
    with_env(|env| {
        for text in [
            "t.pluck(\"a\").count()",
            "t.distinct()",
            "t.count({n: 2})",
            "t.max(\"a\")",
            "t.group(x => x[\"a\"].add(1)).count()",
        ] {
            assert!(Direct::of(&pipeline(text, env), env).is_none(), "{text}");
        }
        // A whole row is not a plain value.
        let pipeline = pipeline("t.map(x => x).count()", env);
        let rows = [datum::row::encode(&Object::default())];
        assert_eq!(in_place(&pipeline, &rows, env).map(|(_, done)| done), Some(0));
    });
}

#[test]
fn there_may_not_be_too_many_groups() {
    with_env(|env| {
        let env = &Env { array_limit: 3, ..*env };
        let pipeline = pipeline("t.group(\"n\").count()", env);
        let row =
            |n: i32| datum::row::encode(&[("n".into(), Datum::from(n))].into_iter().collect::<Object>());
        let rows: Vec<_> = (0..4).map(row).collect();
        let (found, _) = in_place(&pipeline, &rows, env).expect("a plain pipeline");
        assert!(found.contains("Too many groups (> 3)."), "{found}");
        assert_eq!(found, as_items(&pipeline, &rows, env));
    });
}
