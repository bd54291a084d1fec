//! The shapes: their queries, the expected responses, and the limits of their cost.

use client::terms;
use serde_json::{Value, json};

use super::table::{PIECES, key, rows, written};
use crate::rng::Rng;

/// Rows in an ordered range.
const RANGE_ROWS: u64 = 100;
/// Keys in a `get_all`.
const KEYS: u64 = 20;
/// Keys of inserted rows are below this power of two.
const KEY_BITS: u32 = 40;
/// Odd, so that multiplying by it modulo a power of two is a bijection: the keys of successive rows are far apart, as
/// in applications, and never repeat.
const FAR_APART: u64 = 0x9E_3779_B97F;

/// A shape of query.
#[derive(Debug)]
pub struct Shape {
    /// The name in reports.
    pub name: &'static str,
    /// The unit that shares the cost.
    pub per: Per,
    /// The limit, in microseconds of server processor time.
    pub bar: f64,
    /// Creates the next query.
    pub ask: fn(&mut QueryValues) -> ShapeQuery,
}

/// The unit that shares the cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    /// Each query reads a few rows.
    Query,
    /// Each query reads all rows.
    Row,
}

/// The values for queries of one client thread.
#[derive(Clone, Debug)]
pub struct QueryValues {
    /// Random numbers.
    pub rng: Rng,
    /// Rows of the table that is read.
    pub rows: u64,
    /// The number of the next inserted row.
    pub next_insert: u64,
    /// The distance to the following one; no two threads insert the same row.
    pub insert_step: u64,
}

/// A query and its expected response.
#[derive(Clone, Debug)]
pub struct ShapeQuery {
    /// The term.
    pub query: Value,
    /// The expected response.
    pub expects: Expects,
}

/// An expected response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expects {
    /// A sequence of this many rows.
    Rows(u64),
    Number(u64),
    /// Groups with numbers of this sum.
    Groups(u64),
    /// The result of a write that inserted one row.
    Inserted,
    /// Any response.
    Anything,
}

impl Expects {
    /// Checks `items`, the complete response; an error says how it differs.
    pub fn check(self, items: &[Value]) -> Result<(), String> {
        let first = items.first().unwrap_or(&Value::Null);
        let (wanted, found) = match self {
            Expects::Rows(wanted) => {
                (wanted, Some(items.iter().filter(|row| row["id"].is_string()).count() as f64))
            }
            Expects::Number(wanted) => (wanted, first.as_f64()),
            Expects::Groups(wanted) => {
                let groups = first["data"].as_array();
                (wanted, groups.and_then(|groups| groups.iter().map(|group| group[1].as_f64()).sum()))
            }
            Expects::Inserted => (1, first["inserted"].as_f64()),
            Expects::Anything => return Ok(()),
        };
        match found == Some(wanted as f64) {
            true => Ok(()),
            false => Err(format!("expected {self:?}, found {found:?}")),
        }
    }
}

fn row_field(name: &str) -> Value {
    json!([170, [[10, [1]], name]])
}

fn of_row(body: &Value) -> Value {
    json!([69, [[2, [1]], body]])
}

/// The shapes, in the order of their measurement.
pub static SHAPES: [Shape; 7] = [
    Shape {
        name: "get_all of 20 keys",
        per: Per::Query,
        bar: 60.0,
        ask: |draw| {
            let keys = (0..KEYS).map(|_| json!(key(draw.rng.below(draw.rows))));
            let query = json!([78, std::iter::once(rows()).chain(keys).collect::<Vec<_>>()]);
            ShapeQuery { query, expects: Expects::Rows(KEYS) }
        },
    },
    Shape {
        name: "between(..).order_by(id).limit(100)",
        per: Per::Query,
        bar: 150.0,
        ask: |draw| {
            let from = draw.rng.below(draw.rows);
            let range = json!([182, [rows(), key(from), [181, []]]]);
            let query = json!([71, [[41, [range], {"index": "id"}], RANGE_ROWS]]);
            ShapeQuery { query, expects: Expects::Rows((draw.rows - from).min(RANGE_ROWS)) }
        },
    },
    Shape {
        name: "insert with 3 secondary indexes",
        per: Per::Query,
        bar: 60.0,
        ask: |draw| {
            let n = draw.next_insert.wrapping_mul(FAR_APART) % (1 << KEY_BITS);
            draw.next_insert += draw.insert_step;
            let m = draw.rng.below(1_000);
            let row = json!({"id": format!("{n:010x}"), "a": m, "b": format!("b{m}"), "c": m / 10});
            let query = json!([56, [written(), row], {"durability": "soft"}]);
            ShapeQuery { query, expects: Expects::Inserted }
        },
    },
    Shape {
        name: "count()",
        per: Per::Query,
        bar: 60.0,
        ask: |draw| ShapeQuery { query: terms::count(rows()), expects: Expects::Number(draw.rows) },
    },
    Shape {
        name: "group('g').count()",
        per: Per::Row,
        bar: 0.6,
        ask: |draw| {
            let query = terms::count(json!([144, [rows(), "g"]]));
            ShapeQuery { query, expects: Expects::Groups(draw.rows) }
        },
    },
    Shape {
        name: "filter(row('n') > x).count()",
        per: Per::Row,
        bar: 0.4,
        ask: |draw| {
            let x = draw.rng.below(draw.rows);
            let test = of_row(&json!([21, [row_field("n"), x]]));
            let query = terms::count(json!([39, [rows(), test]]));
            ShapeQuery { query, expects: Expects::Number(draw.rows - 1 - x) }
        },
    },
    Shape {
        name: "map(row('text').split('.').count()).sum()",
        per: Per::Row,
        bar: 0.8,
        ask: |draw| {
            let query = terms::sum_of_split_counts(rows(), "text", ".");
            ShapeQuery { query, expects: Expects::Number(draw.rows * PIECES) }
        },
    },
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn draw(thread: u64, threads: u64) -> QueryValues {
        let rng = Rng::new(1, thread);
        QueryValues { rng, rows: 1_000, next_insert: thread, insert_step: threads }
    }

    #[test]
    fn threads_never_insert_the_same_row() {
        let insert = &SHAPES[2];
        let mut keys = HashSet::new();
        for thread in 0..7 {
            let mut draw = draw(thread, 7);
            for _ in 0..3_000 {
                let ShapeQuery { query, expects } = (insert.ask)(&mut draw);
                assert_eq!(expects, Expects::Inserted);
                assert!(keys.insert(query[1][1]["id"].as_str().expect("a key").to_owned()), "{query}");
            }
        }
        assert_eq!(keys.len(), 21_000);
        assert!(keys.iter().all(|key| key.len() == 10));
    }

    #[test]
    fn a_range_near_the_end_is_shorter() {
        let mut draw = draw(0, 1);
        let expected = (0..2_000).map(|_| (SHAPES[1].ask)(&mut draw).expects);
        let rows: Vec<u64> = expected
            .map(|expects| match expects {
                Expects::Rows(rows) => rows,
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(rows.iter().all(|rows| (1..=100).contains(rows)));
        assert!(rows.contains(&100) && rows.iter().any(|rows| *rows < 100));
    }

    #[test]
    fn responses_are_checked_against_their_queries() {
        let rows = [json!({"id": "a"}), json!({"id": "b"})];
        assert!(Expects::Rows(2).check(&rows).is_ok());
        assert!(Expects::Rows(3).check(&rows).is_err());
        assert!(Expects::Rows(2).check(&[json!({"id": "a"}), json!(null)]).is_err());
        assert!(Expects::Number(7).check(&[json!(7)]).is_ok());
        assert!(Expects::Number(7).check(&[json!(8)]).is_err());
        assert!(Expects::Number(0).check(&[]).is_err());
        let groups = json!({"$reql_type$": "GROUPED_DATA", "data": [["a", 3], ["b", 4]]});
        assert!(Expects::Groups(7).check(std::slice::from_ref(&groups)).is_ok());
        assert!(Expects::Groups(8).check(&[groups]).is_err());
        assert!(Expects::Inserted.check(&[json!({"inserted": 1, "errors": 0})]).is_ok());
        assert!(Expects::Inserted.check(&[json!({"inserted": 0, "errors": 1})]).is_err());
    }
}
