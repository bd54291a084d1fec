//! The queries of a migration, as the JSON that is sent.

use serde_json::{Value, json};

use crate::key::{Bound, Key, KeyRange};
use crate::row::push_term;

/// A table by its names, and its primary key.
#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct TableName {
    pub db: String,
    pub table: String,
}

impl TableName {
    pub fn new(db: impl Into<String>, table: impl Into<String>) -> TableName {
        TableName { db: db.into(), table: table.into() }
    }

    /// `r.db(db).table(table)`
    pub fn term(&self) -> Value {
        client::terms::table(&self.db, &self.table)
    }
}

impl std::fmt::Display for TableName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.db, self.table)
    }
}

/// The rows of `range` in order. `majority` reads see every write whose change a feed has shown.
pub fn rows(table: &TableName, primary_key: &str, range: &KeyRange, mode: ReadMode) -> String {
    ordered(table, range, mode, &Value::from(primary_key))
}

/// All rows in the reverse order.
pub fn rows_backwards(table: &TableName, primary_key: &str) -> String {
    ordered(table, &KeyRange::all(), ReadMode::Single, &json!([74, [primary_key]]))
}

fn ordered(table: &TableName, range: &KeyRange, mode: ReadMode, order: &Value) -> String {
    let between = format!(
        r#"[182,[{},{},{}],{{"left_bound":"open","right_bound":"closed"}}]"#,
        table_read(table, mode),
        bound(&range.start),
        bound(&range.end)
    );
    format!(r#"[41,[{between}],{{"index":{order}}}]"#)
}

/// How new the rows of a read must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadMode {
    Single,
    Majority,
}

fn table_read(table: &TableName, mode: ReadMode) -> Value {
    match mode {
        ReadMode::Single => table.term(),
        ReadMode::Majority => {
            json!([15, [client::terms::db(&table.db), table.table], {"read_mode": "majority"}])
        }
    }
}

fn bound(bound: &Bound) -> String {
    match bound {
        Bound::Min => "[180,[]]".to_owned(),
        Bound::After(key) => key_term(key),
        Bound::Max => "[181,[]]".to_owned(),
    }
}

fn key_term(key: &Key) -> String {
    let mut out = String::new();
    push_term(&key.to_json(), &mut out);
    out
}

/// The first `count` items of `sequence`.
pub fn limit(sequence: &str, count: usize) -> String {
    format!("[71,[{sequence},{count}]]")
}

/// The primary keys of the rows of `sequence`.
pub fn keys(sequence: &str, primary_key: &str) -> String {
    let key = json!([69, [[2, [1]], [170, [[10, [1]], primary_key]]]]);
    format!("[38,[{sequence},{key}]]")
}

/// A digest of the rows of `sequence` in their order, their number, and the key of the last: `[text, number, key or null]`.
///
/// The digest of a row and of all before it is the UUID of their texts together. Equal rows may have different texts (of binary
/// values), different rows have different digests.
pub fn digest(sequence: &str, primary_key: &str) -> String {
    let acc = |place: usize| json!([170, [[10, [1]], place]]);
    let row = json!([10, [2]]);
    let text = json!([24, [acc(0), [172, [row]]]]);
    let next = json!([2, [[169, [text]], [24, [acc(1), 1]], [170, [row, primary_key]]]]);
    format!(r#"[187,[{sequence},[2,["",0,null]],{}]]"#, json!([69, [[2, [1, 2]], next]]))
}

/// More keys than a read by keys has. As a limit it changes nothing, and shows in `jobs` that the read is one of a migration.
pub const KEYS_MAX: usize = 300_001;

/// The rows with these keys, in any order.
pub fn get_all(table: &TableName, keys: &[Key], mode: ReadMode) -> String {
    limit(&selection(table, keys, mode), KEYS_MAX)
}

fn selection(table: &TableName, keys: &[Key], mode: ReadMode) -> String {
    let keys: Vec<String> = keys.iter().map(key_term).collect();
    format!("[78,[{},{}]]", table_read(table, mode), keys.join(","))
}

/// Writes of rows into one table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HookUse {
    /// The table has a hook, which is not to change the rows: they have passed one at the source.
    Ignore,
    /// It has none. Servers before 2.4 do not know the option.
    None,
}

fn write_options(hook: HookUse, extra: &str) -> String {
    let ignore = match hook {
        HookUse::Ignore => r#","ignore_write_hook":true"#,
        HookUse::None => "",
    };
    format!(r#"{{"durability":"hard"{extra}{ignore}}}"#)
}

/// Begins an insert that replaces rows with the same keys: rows follow with [`push_row`], then [`end_insert`].
pub fn begin_insert(table: &TableName) -> String {
    format!("[56,[{},[2,[", table.term())
}

/// Appends a row (its JSON) to an insert that has `count` rows.
pub fn push_row(row: &str, count: usize, out: &mut String) {
    if count > 0 {
        out.push(',');
    }
    push_term(row, out);
}

/// Completes an insert.
pub fn end_insert(hook: HookUse, out: &mut String) {
    out.push_str("]]],");
    out.push_str(&write_options(hook, r#","conflict":"replace""#));
    out.push(']');
}

/// Deletes the rows with these keys.
pub fn delete(table: &TableName, keys: &[Key], hook: HookUse) -> String {
    format!("[54,[{}],{}]", selection(table, keys, ReadMode::Single), write_options(hook, ""))
}

/// Changes of a feed that may wait at the source. RethinkDB's own bound is a third of it.
pub const FEED_QUEUE: u32 = 300_000;

/// A feed of all changes of the table.
pub fn changes(table: &TableName) -> String {
    format!(r#"[152,[{}],{{"include_states":true,"changefeed_queue_size":{FEED_QUEUE}}}]"#, table.term())
}

/// `[1,term,options]`: starts a query.
pub fn start(term: &str, options: &str) -> Vec<u8> {
    format!("[1,{term},{options}]").into_bytes()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn queries_are_json() {
        let table = TableName::new("a", "b");
        let key = Key::parse("[1,\"x\"]").unwrap();
        let range = KeyRange { start: Bound::After(key.clone()), end: Bound::Max };
        let rows = rows(&table, "id", &range, ReadMode::Majority);
        assert_eq!(
            rows,
            r#"[41,[[182,[[15,[[14,["a"]],"b"],{"read_mode":"majority"}],[2,[1,"x"]],[181,[]]],{"left_bound":"open","right_bound":"closed"}]],{"index":"id"}]"#
        );
        let mut insert = begin_insert(&table);
        push_row("{\"id\":1}", 0, &mut insert);
        push_row("{\"id\":[2]}", 1, &mut insert);
        end_insert(HookUse::Ignore, &mut insert);
        assert!(insert.contains(r#"[2,[{"id":1},{"id":[2,[2]]}]]"#), "{insert}");
        let texts = [
            limit(&digest(&rows, "id"), 5),
            delete(&table, &[key.clone(), key], HookUse::None),
            insert,
            changes(&table),
            rows_backwards(&table, "id"),
        ];
        for text in texts {
            serde_json::from_str::<Value>(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
            serde_json::from_slice::<Value>(&start(&text, "{}")).unwrap();
        }
    }
}
