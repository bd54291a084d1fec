//! Tables large enough to be scanned in pieces, in one shard and in several.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

extern crate reql as rekindle_reql;

mod support;
#[path = "../../reql/tests/data/syntax.rs"]
mod syntax;

use std::sync::Arc;

use cluster::RpcHandler;
use datum::Datum;
use rekindle_query::{Answer, QueryError};
use reql::Cancel;
use serde_json::Map;
use support::{House, Outcome, query};

const ROWS: usize = 40_000;

fn house(shards: usize) -> House {
    filled(House::new(), shards)
}

fn filled(house: House, shards: usize) -> House {
    let create = format!("r.table_create(\"t\", shards: {shards})");
    answer(&house, &create);
    // The words of some are stored with escapes: those cannot be looked at where they lie.
    let words = r#"r.branch(i.lt(10000), "a b", i.lt(30000), "a \"b\" c", "d")"#;
    let insert = format!(
        "r.table(\"t\").insert(r.range({ROWS}).map(i => \
         ({{id: i, a: i.mod(7), words: {words}, pad: \"0123456789012345678901234567890\"}})))"
    );
    answer(&house, &insert);
    house
}

fn answer(house: &House, term: &str) -> Outcome {
    house
        .run_long(syntax::to_wire(term).unwrap(), Map::new())
        .unwrap_or_else(|error| panic!("{term}: {error}"))
}

#[track_caller]
fn check(house: &House, term: &str, expected: &str) {
    match answer(house, term) {
        Outcome::Atom(datum) => assert_eq!(datum.to_json_string(), expected, "{term}"),
        Outcome::Stream(batches) => {
            assert_eq!(Datum::from(batches.concat()).to_json_string(), expected, "{term}");
        }
    }
}

fn check_all(house: &House) {
    let sum = ROWS * (ROWS - 1) / 2;
    check(house, "r.table(\"t\").count()", &ROWS.to_string());
    check(house, "r.table(\"t\").between(10, 39990).count()", "39980");
    check(house, "r.table(\"t\").map(x => x[\"id\"]).sum()", &sum.to_string());
    check(house, "r.table(\"t\")[\"id\"].reduce((a, b) => a.add(b))", &sum.to_string());
    check(house, "r.table(\"t\").filter(x => x[\"a\"].eq(3)).count()", "5714");
    check(house, "r.table(\"t\").group(\"a\").count().ungroup()[\"reduction\"].sum()", &ROWS.to_string());
    check(house, "r.table(\"t\").max(\"a\")[\"id\"]", "6");
    check(house, "r.table(\"t\").map(x => x[\"words\"].split(\" \").count()).sum()", "90000");
    check(
        house,
        "r.table(\"t\").group(x => x[\"words\"].split(\" \").count()).count().ungroup()[\"reduction\"]",
        "[10000,10000,20000]",
    );
    check(house, "r.table(\"t\").filter(x => x[\"words\"].gt(\"a b\")).count()", "10000");
    check(house, "r.table(\"t\").group(\"words\").count().ungroup()[\"reduction\"]", "[20000,10000,10000]");
    check(house, "r.table(\"t\").avg(\"id\")", "19999.5");
    check(house, "r.table(\"t\")[\"a\"].distinct()", "[0,1,2,3,4,5,6]");
    let ordered = "r.table(\"t\").order_by(index: r.desc(\"id\"))[\"id\"].coerce_to(\"array\")";
    check(house, &format!("{ordered}.slice(0, 3)"), "[39999,39998,39997]");
    check(house, &format!("{ordered}.nth(-1)"), "0");
    check(house, "r.table(\"t\").order_by(r.desc(\"a\"), \"id\").limit(2)[\"id\"]", "[6,13]");
}

#[test]
fn pieces_of_one_shard_make_a_whole() {
    check_all(&house(1));
}

#[test]
fn pieces_of_several_shards_make_a_whole() {
    let house = house(3);
    answer(&house, "r.table(\"t\").reconfigure(shards: 4, replicas: 1)");
    check_all(&house);
}

#[test]
fn far_shards_make_a_whole() {
    let house = filled(House::far(None), 3);
    answer(&house, "r.table(\"t\").reconfigure(shards: 4, replicas: 1)");
    check_all(&house);
}

/// Also of more rows than are dealt as one, with steps that make several items of a row or none.
#[test]
fn rows_that_nobody_ordered_come_in_one_order_whichever_server_is_asked() {
    let (near, far) = (house(2), filled(House::far(None), 2));
    let texts = [
        "r.table(\"t\")[\"id\"]",
        "r.table(\"t\").filter(x => x[\"a\"].eq(3))[\"id\"]",
        "r.table(\"t\").filter(x => x[\"id\"].mod(3000).lt(2))[\"id\"]",
        "r.table(\"t\").concat_map(x => [x[\"id\"], x[\"a\"], x[\"id\"]])",
        "r.table(\"t\").between(100, 9000)[\"id\"].limit(5000)",
        "r.table(\"t\").get_all(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)[\"id\"]",
        "r.table(\"t\").get_all(1, 1, 3, index: \"a\")[\"id\"]",
        "r.table(\"t\").between(0, 3, index: \"a\").filter(x => x[\"id\"].mod(2).eq(0))[\"id\"].limit(9000)",
        "r.table(\"t\").filter(x => r.table(\"t\").get(x[\"id\"])[\"a\"].eq(2)).limit(300)[\"id\"]",
    ];
    for house in [&near, &far] {
        answer(house, "r.table(\"t\").index_create(\"a\")");
        answer(house, "r.table(\"t\").index_wait()");
    }
    for text in texts {
        let (here, there) = (stream(&near, text), stream(&far, text));
        assert!(here == there, "{text}: {} and {} items", here.len(), there.len());
    }
    let first = stream(&far, "r.table(\"t\")[\"id\"].limit(10)");
    assert_eq!(Datum::from(first).to_json_string(), "[20,4,5,3,0,1,43,6,30,25]");
}

fn stream(house: &House, text: &str) -> Vec<Datum> {
    let all = query(syntax::to_wire(text).unwrap(), Map::new()).unwrap();
    let answered = house.session("admin").run(&all, Arc::new(Cancel::new())).unwrap();
    let Answer::Stream(mut cursor) = answered.answer else { panic!("{text} is a stream") };
    let mut seen = Vec::new();
    loop {
        let batch = cursor.next_batch().unwrap();
        seen.extend(batch.items);
        if batch.done {
            return seen;
        }
    }
}

#[test]
fn a_stream_that_is_lost_goes_on_where_it_was() {
    let expected: Vec<Datum> = (0..ROWS).map(|id| Datum::Number(id as f64)).collect();
    let ordered = all_though_it_is_lost("r.table(\"t\").order_by(index: \"id\")[\"id\"]");
    assert!(ordered == expected, "{} rows", ordered.len());
    let dealt = all_though_it_is_lost("r.table(\"t\")[\"id\"]");
    assert!(dealt == stream(&house(2), "r.table(\"t\")[\"id\"]"), "{} rows", dealt.len());
}

/// What a stream of another node gives that forgets it after each batch.
fn all_though_it_is_lost(text: &str) -> Vec<Datum> {
    let house = filled(House::far(None), 2);
    let all = query(syntax::to_wire(text).unwrap(), Map::new()).unwrap();
    let answered = house.session("admin").run(&all, Arc::new(Cancel::new())).unwrap();
    let Answer::Stream(mut cursor) = answered.answer else { panic!("a table is a stream") };
    let (mut seen, mut done) = (Vec::new(), false);
    while !done {
        let batch = cursor.next_batch().unwrap();
        seen.extend(batch.items);
        done = batch.done;
        // The node that reads forgets everything between two batches.
        house.desk.iter().for_each(|desk| desk.disconnected(support::ASKER));
    }
    seen
}

#[test]
fn a_query_that_is_told_to_stop_does() {
    stops(&house(1));
    stops(&filled(House::far(None), 1));
}

fn stops(house: &House) {
    let query =
        query(syntax::to_wire("r.table(\"t\").map(x => x[\"id\"]).sum()").unwrap(), Map::new()).unwrap();
    let cancel = Arc::new(Cancel::new());
    cancel.set();
    let outcome = house.session("admin").run(&query, cancel);
    assert!(matches!(outcome, Err(QueryError::Eval(_))));
}

#[test]
fn a_cursor_stops_when_it_is_told_to_and_shows_the_moment_it_was_opened() {
    stops_and_shows(&house(1));
    stops_and_shows(&filled(House::far(None), 1));
}

fn stops_and_shows(house: &House) {
    let query = query(syntax::to_wire("r.table(\"t\")").unwrap(), Map::new()).unwrap();
    let cancel = Arc::new(Cancel::new());
    let Answer::Stream(mut cursor) = house.session("admin").run(&query, cancel.clone()).unwrap().answer
    else {
        panic!("a table is a stream");
    };
    let first = cursor.next_batch().unwrap();
    answer(house, "r.table(\"t\").delete()");
    let second = cursor.next_batch().unwrap();
    assert!(!first.done && !second.done && !second.items.is_empty());
    cancel.set();
    assert!(cursor.next_batch().is_err());
}

#[test]
fn a_query_that_is_deleted_from_the_jobs_says_so() {
    let house = house(1);
    let query = query(syntax::to_wire("r.table(\"t\")").unwrap(), Map::new()).unwrap();
    let answered = house.session("admin").run(&query, Arc::new(Cancel::new())).unwrap();
    let Answer::Stream(mut cursor) = answered.answer else { panic!("a table is a stream") };
    cursor.next_batch().unwrap();
    let jobs = "r.db(\"rethinkdb\").table(\"jobs\").filter(j => j[\"info\"][\"query\"].match(\"jobs\").eq(null)).delete()[\"deleted\"]";
    check(&house, jobs, "1");
    let error = cursor.next_batch().unwrap_err();
    assert_eq!(error.message(), "Query terminated by the `rethinkdb.jobs` table.");
}
