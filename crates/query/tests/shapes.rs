//! Geospatial indexes find the same rows as a scan, on this node and on others; and queries about shapes can be
//! cancelled soon.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

// The notation is shared with the tests of `reql`, which know the crate by this name.
extern crate reql as rekindle_reql;

mod support;
#[path = "../../reql/tests/data/syntax.rs"]
mod syntax;

use std::sync::Arc;
use std::time::{Duration, Instant};

use datum::{Array, Datum};
use rekindle_query::{Answer, QueryError};
use reql::Cancel;
use serde_json::{Map, json};
use support::{Outcome, TestNode, query};

const SEED: u64 = 2_711;

/// Random numbers from a seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() * end as f64) as usize
    }

    /// A place near another one, possibly beyond the edge of the map.
    fn place(&mut self, (lon, lat): (f64, f64), degrees: f64) -> (f64, f64) {
        let (east, north) = ((self.next() - 0.5) * degrees, (self.next() - 0.5) * degrees);
        ((lon + east + 540.0).rem_euclid(360.0) - 180.0, (lat + north).clamp(-90.0, 90.0))
    }

    /// A term that makes a shape.
    fn shape(&mut self, around: (f64, f64), degrees: f64) -> String {
        let at = self.place(around, degrees);
        let size = degrees * self.next() / 4.0;
        let [b, c] = [(); 2].map(|()| self.place(at, size)).map(|(lon, lat)| format!("[{lon}, {lat}]"));
        let a = format!("[{}, {}]", at.0, at.1);
        match self.below(8) {
            0 | 1 => format!("r.line({a}, {b}, {c})"),
            2 | 3 => format!("r.polygon({a}, {b}, {c})"),
            4 => format!("r.circle({a}, {}, num_vertices: 12)", size * 50_000.0 + 1.0),
            _ => format!("r.point({}, {})", at.0, at.1),
        }
    }
}

fn answer(test_node: &TestNode, term: &str) -> Datum {
    let wire = syntax::to_wire(term).unwrap_or_else(|error| panic!("{term}: {error}"));
    match test_node.run_slow_path(wire, Map::new()) {
        Ok(Outcome::Atom(datum)) => datum,
        Ok(Outcome::Stream(batches)) => batches.concat().into(),
        Err(error) => panic!("{error}: {}", term.chars().take(1000).collect::<String>()),
    }
}

fn items(datum: Datum) -> Array {
    match datum {
        Datum::Array(items) => items,
        other => panic!("{}", other.to_json_string()),
    }
}

/// A table with shapes, in several shards; some rows have none, or another value.
fn fill(test_node: &TestNode, numbers: &mut Numbers, around: (f64, f64), degrees: f64, rows: usize) {
    answer(test_node, r#"r.table_create("t", shards: 3)"#);
    answer(test_node, r#"r.table("t").index_create("g", geo: true)"#);
    let mut list = Vec::new();
    for id in 0..rows {
        let (one, two) = (numbers.shape(around, degrees), numbers.shape(around, degrees));
        list.push(match id % 20 {
            0 => format!("{{id: {id}, m: [{one}, 7, {two}]}}"),
            1 => format!("{{id: {id}, g: {id}, m: {one}}}"),
            _ => format!("{{id: {id}, g: {one}, m: [{two}, {one}]}}"),
        });
    }
    answer(test_node, &format!(r#"r.table("t").insert([{}])"#, list.join(", ")));
    // One index exists before the rows, the other is built afterwards.
    answer(test_node, r#"r.table("t").index_create("m", geo: true, multi: true)"#);
    answer(test_node, r#"r.table("t").index_wait()"#);
}

const IS_SHAPE: &str = r#"x.type_of().eq("PTYPE<GEOMETRY>")"#;

/// The shapes of every row, each with its row's key.
fn all_shapes(index: &str) -> String {
    let shapes = match index {
        "m" => r#"r.branch(row["m"].type_of().eq("ARRAY"), row["m"], [row["m"]])"#,
        _ => r#"[row["g"].default(null)]"#,
    };
    format!(
        r#"r.table("t").concat_map(row => {shapes}.filter(x => {IS_SHAPE}).map(x => ({{id: row["id"], shape: x}})))"#
    )
}

fn check_intersecting(test_node: &TestNode, index: &str, shape: &str) -> usize {
    let found = answer(
        test_node,
        &format!(
            r#"r.table("t").get_intersecting({shape}, index: "{index}")["id"].coerce_to("array").order_by(x => x)"#
        ),
    );
    let all = all_shapes(index);
    let expected = answer(
        test_node,
        &format!(
            r#"{all}.filter(x => x["shape"].intersects({shape}))["id"].coerce_to("array").order_by(x => x)"#
        ),
    );
    assert_eq!(found.to_json_string(), expected.to_json_string(), "index {index}, {shape}, seed {SEED}");
    let count =
        answer(test_node, &format!(r#"r.table("t").get_intersecting({shape}, index: "{index}").count()"#));
    let expected = items(expected).len();
    assert_eq!(count, Datum::Number(expected as f64), "index {index}, {shape}, seed {SEED}");
    expected
}

fn check_nearest(
    test_node: &TestNode,
    index: &str,
    center: (f64, f64),
    max_dist: f64,
    max_results: usize,
) -> usize {
    let center = format!("r.point({}, {})", center.0, center.1);
    let nearest = format!(
        r#"r.table("t").get_nearest({center}, index: "{index}", max_dist: {max_dist}, max_results: {max_results})"#
    );
    let context = format!("{nearest}, seed {SEED}");
    let found = answer(test_node, &format!(r#"{nearest}["dist"]"#));
    let all = all_shapes(index);
    let expected = answer(
        test_node,
        &format!(
            r#"{all}.map(x => r.distance({center}, x["shape"])).filter(d => d.le({max_dist})).coerce_to("array").order_by(x => x).limit({max_results})"#
        ),
    );
    assert_eq!(found.to_json_string(), expected.to_json_string(), "{context}");
    // Each distance belongs to a different shape of its row.
    let shapes = r#"r.branch(x["doc"]["m"].type_of().eq("ARRAY"), x["doc"]["m"], [x["doc"]["m"]])"#;
    let shapes = if index == "m" { shapes } else { r#"[x["doc"]["g"]]"# };
    let wrong = format!(
        r#"{nearest}.filter(x => {shapes}.filter(x => {IS_SHAPE}).map(s => r.distance({center}, s)).contains(x["dist"]).not())"#
    );
    assert_eq!(answer(test_node, &wrong).to_json_string(), "[]", "{context}");
    items(expected).len()
}

fn check_all(test_node: &TestNode, around: (f64, f64), degrees: f64) {
    let mut numbers = Numbers(SEED ^ around.0.to_bits());
    fill(test_node, &mut numbers, around, degrees, 300);
    let (mut met, mut near) = (0, 0);
    for i in 0..15 {
        let shape = numbers.shape(around, degrees);
        met += check_intersecting(test_node, "g", &shape) + check_intersecting(test_node, "m", &shape);
        let center = numbers.place(around, degrees);
        let (max_dist, max_results) = [(100_000.0, 100), (1_000_000.0, 7), (900_000.0, 1000)][i % 3];
        near += check_nearest(test_node, "g", center, max_dist, max_results);
        near += check_nearest(test_node, "m", center, max_dist, max_results);
    }
    assert!(met > 30 && near > 60, "{met} {near}");
    // Some rows change, some are deleted.
    answer(
        test_node,
        r#"r.table("t").filter(row => row["id"].mod(3).eq(0)).update({g: r.point(0, 0), m: []})"#,
    );
    answer(test_node, r#"r.table("t").filter(row => row["id"].mod(3).eq(1)).delete()"#);
    for _ in 0..8 {
        let shape = numbers.shape(around, degrees);
        check_intersecting(test_node, "g", &shape);
        check_intersecting(test_node, "m", &shape);
        check_nearest(test_node, "g", numbers.place(around, degrees), 500_000.0, 50);
    }
}

#[test]
fn a_geospatial_index_finds_the_same_rows_as_a_scan() {
    println!("SEED={SEED}");
    for (around, degrees) in [((0.0, 0.0), 8.0), ((179.9, 10.0), 3.0), ((30.0, 88.0), 6.0)] {
        check_all(&TestNode::new(), around, degrees);
    }
}

#[test]
fn also_on_a_remote_node() {
    println!("SEED={SEED}");
    check_all(&TestNode::remote(None), (-70.0, -45.0), 5.0);
}

/// A ring of long thin teeth: all edges overlap, and none contains the end of another one.
fn comb(teeth: usize) -> String {
    format!(
        "r.args(r.range({teeth}).concat_map(i => [[i.mul(0.0004), 0], [i.mul(0.0004).add(40), 40]]).union([[{0}, 0], [{0}, -5], [0, -5]]).coerce_to(\"array\"))",
        teeth as f64 * 0.0004
    )
}

/// How long a query runs after its cancellation, and its error then.
fn stopped_after(test_node: &TestNode, term: &str) -> (Duration, String) {
    let wire = syntax::to_wire(term).unwrap_or_else(|error| panic!("{term}: {error}"));
    let options = Map::from_iter([("array_limit".to_owned(), json!(1_000_000))]);
    let query = query(wire, options).unwrap_or_else(|error| panic!("{term}: {error}"));
    let (session, cancel) = (test_node.session("admin"), Arc::new(Cancel::new()));
    let stopper = cancel.clone();
    let thread = std::thread::spawn(move || {
        let ran = session.run(&query, cancel).and_then(|ran| match ran.answer {
            Answer::Atom(datum) => Ok(datum),
            Answer::Stream(mut cursor) => Ok(cursor.next_batch()?.items.into()),
        });
        match ran {
            Ok(datum) => datum.to_json_string(),
            Err(QueryError::Eval(error)) => error.message(),
            Err(QueryError::Compile(error)) => error.to_string(),
        }
    });
    // Long enough to be in the middle of the query.
    std::thread::sleep(Duration::from_millis(700));
    assert!(!thread.is_finished(), "{term} is over already: {}", thread.join().unwrap());
    stopper.set();
    let since = Instant::now();
    let said = thread.join().unwrap();
    (since.elapsed(), said)
}

#[test]
fn a_query_about_large_shapes_is_cancelled_within_a_second() {
    let test_node = TestNode::new();
    answer(&test_node, r#"r.table_create("t")"#);
    answer(&test_node, r#"r.table("t").index_create("g", geo: true)"#);
    answer(
        &test_node,
        r#"r.table("t").insert(r.range(400).map(i => ({id: i, g: r.circle([20, 20], 1000000)})))"#,
    );
    answer(&test_node, r#"r.table("t").index_wait()"#);
    for term in [
        format!("r.polygon({})", comb(50_000)),
        format!("r.line({0}).intersects(r.polygon({1}))", comb(60_000), comb(4_000)),
        format!(r#"r.table("t").get_intersecting(r.polygon({}), index: "g").count()"#, comb(50_000)),
    ] {
        let (after, said) = stopped_after(&test_node, &term);
        assert!(said.starts_with("Query interrupted."), "{term}: {said}");
        assert!(after < Duration::from_secs(1), "{term}: {after:?}");
    }
}
