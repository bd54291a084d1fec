//! The tables of a run, the same for the node and for the reference.

use std::collections::BTreeMap;
use std::rc::Rc;

use io::sim::Chance;
use serde_json::{Value as Json, json};

use crate::database::{Database, Index, Table};
use crate::generate::{Generator, SHAPES, term, term_with};
use crate::value::Val;

/// Queries that create the tables on a node, and the same tables for the reference.
pub struct TestTables {
    /// The queries for the node, in order.
    pub setup: Vec<Json>,
    /// The tables of the reference.
    pub database: Database,
}

/// The table for writes.
pub const WRITTEN: &str = "w";

fn index(name: &str, function: Json, multi: bool) -> (String, Index) {
    (name.to_owned(), Index { function, multi, geo: false })
}

fn field(name: &str) -> Json {
    term(170, [term(10, [json!(1)]), json!(name)])
}

fn of_row(body: Json) -> Json {
    term(69, [term(2, [json!(1)]), body])
}

impl TestTables {
    #[must_use]
    pub fn of(seed: u64) -> TestTables {
        let mut chance = Chance::new(seed ^ 0x5747_4145);
        let mut maker = Generator::new(chance.draw());
        let indexes = BTreeMap::from([
            index("a", of_row(field("a")), false),
            index("g", of_row(field("g")), false),
            index("ga", of_row(term(2, [field("g"), field("a")])), false),
            index("l", of_row(field("l")), true),
            index("e", of_row(term(24, [field("a"), field("n")])), false),
        ]);
        let mut database = Database::default();
        let mut setup = Vec::new();
        for (name, rows, shards) in
            [("t", 16, 3), ("u", 5, 1), ("empty", 0, 1), (WRITTEN, 10, 2), (SHAPES, 11, 2)]
        {
            let table = match name {
                SHAPES => shapes(&mut maker.chance, rows),
                "t" | WRITTEN => table(&mut maker, rows, indexes.clone()),
                _ => table(&mut maker, rows, BTreeMap::new()),
            };
            setup.push(term(60, [json!(name)]));
            for (index, definition) in &table.indexes {
                let arguments = [term(15, [json!(name)]), json!(index), definition.function.clone()];
                let options = json!({"multi": definition.multi, "geo": definition.geo});
                setup.push(term_with(75, arguments, options));
            }
            setup.extend(fill(name, &table));
            if shards > 1 {
                let options = json!({"shards": shards, "replicas": 1});
                setup.push(term_with(176, [term(15, [json!(name)])], options));
            }
            setup.push(term(140, [term(15, [json!(name)])]));
            database.tables.insert(name.to_owned(), Rc::new(table));
        }
        TestTables { setup, database }
    }
}

/// The query that inserts the rows of `table` into the node's table of this name.
#[must_use]
pub fn fill(name: &str, table: &Table) -> Option<Json> {
    let rows: Vec<Json> = table.rows.values().map(|row| wire(&Val::Object(row.clone()))).collect();
    (!rows.is_empty()).then(|| term(56, [term(15, [json!(name)]), term(2, rows)]))
}

fn table(maker: &mut Generator, rows: usize, indexes: BTreeMap<String, Index>) -> Table {
    let mut table = Table { key: "id".to_owned(), rows: BTreeMap::new(), indexes };
    for n in 0..rows {
        let id = if n % 4 == 3 { Val::Text(format!("k{n}")) } else { Val::Number(n as f64) };
        let Val::Object(mut row) = plain(&maker.row_constant()) else { continue };
        row.insert("id".to_owned(), id.clone());
        table.rows.insert(id, row);
    }
    table
}

/// Rows with points, polygons and lines, few of which touch.
fn shapes(chance: &mut Chance, rows: usize) -> Table {
    let mut shape_index = index("p", of_row(field("p")), false);
    shape_index.1.geo = true;
    let indexes = BTreeMap::from([shape_index, index("a", of_row(field("a")), false)]);
    let mut table = Table { key: "id".to_owned(), rows: BTreeMap::new(), indexes };
    for n in 0..rows {
        let odd = |chance: &mut Chance| (2 * chance.below(5) + 1) as f64;
        let at = |x: f64, y: f64| Val::Array(vec![Val::Number(x), Val::Number(y)]);
        let shape = match n % 3 {
            _ if n > 8 => {
                let (x, y) = (odd(chance), odd(chance));
                let places = vec![at(x, y), at(x + 2.25, y - 1.5), at(x - 1.0, y + 3.5)];
                Val::Shape("LineString".to_owned(), Box::new(Val::Array(places)))
            }
            0 | 1 => Val::Shape("Point".to_owned(), Box::new(at(odd(chance), odd(chance)))),
            _ => {
                let (x, y) = (odd(chance) - 1.0, odd(chance) - 1.0);
                let ring = vec![at(x, y), at(x + 2.0, y), at(x + 2.0, y + 2.0), at(x, y + 2.0), at(x, y)];
                Val::Shape("Polygon".to_owned(), Box::new(Val::Array(vec![Val::Array(ring)])))
            }
        };
        let id = Val::Number(n as f64);
        let a = Val::Number(chance.below(4) as f64);
        let row =
            BTreeMap::from([("id".to_owned(), id.clone()), ("p".to_owned(), shape), ("a".to_owned(), a)]);
        table.rows.insert(id, row);
    }
    table
}

/// The value of a constant term.
fn plain(term: &Json) -> Val {
    match term {
        Json::Array(parts) => match parts[0].as_u64() {
            Some(155) => Val::Binary(parts[1][0].as_str().unwrap_or_default().as_bytes().to_vec()),
            Some(2) => Val::Array(parts[1].as_array().into_iter().flatten().map(plain).collect()),
            // Bounds cannot be stored.
            _ => Val::Null,
        },
        Json::Object(members) if members.contains_key("$reql_type$") => Val::of_json(term),
        Json::Object(members) => Val::Object(members.iter().map(|(k, v)| (k.clone(), plain(v))).collect()),
        other => Val::of_json(other),
    }
}

/// A value as a term.
fn wire(value: &Val) -> Json {
    match value {
        Val::Array(items) => term(2, items.iter().map(wire)),
        Val::Object(members) => Json::Object(members.iter().map(|(k, v)| (k.clone(), wire(v))).collect()),
        Val::Shape(..) => term(98, [json!(value.to_json().to_string())]),
        other => other.to_json(),
    }
}
