//! Functions that are brief, functions whose cost is per item, and functions without a bound.

use super::*;
use crate::wire;

#[track_caller]
fn takes(body: &str, cost: Cost) {
    let text = format!("[69,[[2,[1]],{body}]]");
    let Ok(Term::Func(func)) = wire::parse_term(text.as_bytes()) else { panic!("no function: {body}") };
    assert_eq!(of_func(&func), cost, "{body}");
}

const ROW: &str = "[10,[1]]";

fn field(name: &str) -> String {
    format!(r#"[170,[{ROW},"{name}"]]"#)
}

fn function(param: u32, body: &str) -> String {
    format!("[69,[[2,[{param}]],{body}]]")
}

/// Nests `count` copies of `body`, each in a function that is called with the copy inside it.
fn nested(count: u32, body: impl Fn(&str) -> String) -> String {
    (0..count).fold(ROW.to_owned(), |value, i| {
        let param = i + 2;
        format!("[64,[{},{value}]]", function(param, &body(&format!("[10,[{param}]]"))))
    })
}

#[test]
fn reading_a_row_is_brief() {
    let (n, tags) = (field("n"), field("tags"));
    for body in [
        format!("[24,[{n},1]]"),
        format!(r#"{{"n":[24,[{n},1]]}}"#),
        format!("[26,[{n},2]]"),
        format!("[26,[100,{n},1.1]]"),
        format!("[26,[[25,[{n},1]],[27,[{n},3]]]]"),
        format!("[35,[{ROW},{{\"a\":{tags}}}]]"),
        format!("[35,[[33,[{ROW},\"a\"]],{{\"a\":{tags}}}]]"),
        format!("[35,[[65,[{n},{ROW},{{\"b\":1}}]],{ROW}]]"),
        format!("[64,[{},{ROW}]]", function(2, &format!("[35,[[10,[2]],{{\"a\":{n}}}]]"))),
        format!("[41,[{tags},\"a\",[74,[\"b\"]]]]"),
        format!("[93,[{tags},1,2,3,4]]"),
        format!("[29,[{tags},{n}]]"),
        format!("[88,[{tags},{n}]]"),
        format!("[65,[[21,[{n},3]],[137,[{{\"a\":1}}]],[92,[{n},0]]]]"),
        format!(r#"[24,[[141,[{n}]],"-",[51,[{n},"string"]]]]"#),
        format!(r#"[197,["{{a}} of {{b}}",{ROW}]]"#),
        format!(r#"[34,[{ROW},"a",{{"b":{{"c":true}}}}]]"#),
        r#"[104,[[103,[]],"+02:00"]]"#.to_owned(),
        format!("[149,[{n},\",\"]]"),
        format!("[64,[{},{n}]]", function(2, "[24,[[10,[2]],[10,[2]]]]")),
    ] {
        takes(&body, Cost::Brief);
    }
    let fields: Vec<String> = (0..80).map(|i| format!(r#""f{i}":[24,[{n},{i}]]"#)).collect();
    takes(&format!("{{{}}}", fields.join(",")), Cost::Brief);
}

#[test]
fn walking_an_array_of_the_row_costs_per_item() {
    let tags = field("tags");
    let map = |array: &str, func: &str| format!("[38,[{array},{func}]]");
    let upper = function(2, "[142,[[10,[2]]]]");
    takes(&map(&tags, &upper), Cost::PerItem);
    takes(&map(&map(&tags, &upper), &upper), Cost::PerItem);
    takes(&format!("[39,[{tags},{}]]", function(2, "[21,[[10,[2]],1]]")), Cost::PerItem);
    takes(&format!("[157,[{tags}]]"), Cost::PerItem);
    takes(&format!(r#"[97,[{tags},"^a"]]"#), Cost::PerItem);
    takes(&map(&tags, &function(2, &map("[10,[2]]", &function(3, "[10,[3]]")))), Cost::Unbounded);
    // All items for each item, twice nested.
    let all = |array: &str| format!("[40,[{array},{}]]", function(2, &tags));
    takes(&all(&tags), Cost::PerItem);
    takes(&all(&all(&tags)), Cost::Unbounded);
}

#[test]
fn terms_that_make_much_of_little_have_no_bound() {
    takes("[43,[[173,[1000000000000]]]]", Cost::Unbounded);
    let many = format!("[24,[{}1]]", "1,".repeat(TERMS_MAX));
    takes(&many, Cost::Unbounded);
}

#[test]
fn multiplying_an_array_has_no_bound() {
    let n = field("n");
    takes(&format!("[26,[[2,[{n}]],100000]]"), Cost::Unbounded);
    takes(&format!("[26,[{n},{n}]]"), Cost::Unbounded);
    takes(&format!("[26,[{n},[93,[{n},1]]]]"), Cost::Unbounded);
    takes(&format!("[26,[{n},[25,[{n},1]]]]"), Cost::Unbounded);
    takes("[26,[[2,[1]],[25,[1000,1]]]]", Cost::Unbounded);
    takes(&format!("[26,[[154,[{n}]]]]"), Cost::Unbounded);
    // A hundred times a hundred times a hundred.
    takes(&format!("[26,[[2,[[26,[[2,[[26,[{n},100]]]],100]]]],100]]"), Cost::Unbounded);
}

#[test]
fn repeated_doubling_of_a_variable_has_no_bound() {
    let twice = |value: &str| format!("[24,[{value},{value}]]");
    takes(&nested(3, twice), Cost::Brief);
    takes(&nested(60, twice), Cost::Unbounded);
    takes(&nested(60, |value| format!("[2,[{value},{value}]]")), Cost::Unbounded);
    takes(&nested(60, |value| format!("[26,[[2,[{value}]],2]]")), Cost::Unbounded);
    takes(&nested(60, |value| format!("[172,[{value}]]")), Cost::Unbounded);
    // Starts with a number and is text after one call.
    let text = nested(60, twice).replace(ROW, r#"[51,[1,"string"]]"#);
    takes(&text, Cost::Unbounded);
    takes(&nested(60, |value| format!("[24,[{value},1]]")), Cost::Brief);
    let tags = field("tags");
    let doubled =
        (0..60).fold(tags, |array, _| format!("[38,[{array},{}]]", function(2, "[2,[[10,[2]],[10,[2]]]]")));
    takes(&doubled, Cost::Unbounded);
}

#[test]
fn looking_up_many_fields_has_no_bound() {
    let names: Vec<String> = (0..20_000).map(|i| format!(r#""{i}""#)).collect();
    takes(&format!("[33,[{ROW},[2,[{}]]]]", names.join(",")), Cost::Unbounded);
    takes(&format!("[33,[{ROW},{}]]", field("names")), Cost::Unbounded);
}

#[test]
fn large_work_for_each_item_has_no_bound() {
    let tags = field("tags");
    // As many rows as items.
    takes(&format!("[35,[{tags},{ROW}]]"), Cost::Unbounded);
    takes(&format!("[35,[[2,[{ROW},{ROW}]],{{\"a\":{tags}}}]]"), Cost::Unbounded);
    takes(&format!("[35,[[92,[{ROW},{tags}]],{ROW}]]"), Cost::Unbounded);
    takes(&format!("[35,[[65,[true,{ROW},{tags}]],{ROW}]]"), Cost::Unbounded);
    let merged = function(2, &format!("[35,[[10,[2]],{ROW}]]"));
    takes(&format!("[38,[{tags},{merged}]]"), Cost::Unbounded);
    takes(&format!("[64,[{merged},{tags}]]"), Cost::Unbounded);
    let around = function(7, &function(1, &format!("[35,[[10,[7]],{ROW}]]")));
    let Ok(Term::Func(around)) = wire::parse_term(around.as_bytes()) else { panic!("no function") };
    let Term::Func(capturing) = &around.body else { panic!("no function in it") };
    assert_eq!(of_func(capturing), Cost::Unbounded, "what was captured may be a sequence");
    // Sorts by 300 fields.
    let names: Vec<String> = (0..300).map(|i| format!(r#""f{i}""#)).collect();
    let names = names.join(",");
    for term in [41, 93, 33, 34, 96, 32] {
        takes(&format!("[{term},[{tags},{names}]]"), Cost::Unbounded);
        takes(&format!("[{term},[{tags},\"a\",\"b\"]]"), Cost::Brief);
    }
    takes(&format!("[33,[{tags},[2,[{names}]]]]"), Cost::Unbounded);
    takes(&format!("[33,[{ROW},[2,[{names}]]]]"), Cost::Brief);
}
