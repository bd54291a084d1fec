//! Reads a source's indexes, hooks and running queries, and finds the differences that they meet.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use client::terms;
use serde_json::{Value, json};

use super::rules::RULES;
use crate::catalog::{self, Catalog, Index, Scope};
use crate::error::MigrateError;
use crate::only::Only;
use crate::queries::{FEED_QUEUE, KEYS_MAX};
use crate::row::shortened;
use crate::server::{Server, Stop};

/// Between two looks at the running queries.
const LOOK: Duration = Duration::from_millis(100);
const INDEX_PREFIX: &[u8] = b"$reql_index_function$";
/// The ReQL version (the byte after the prefix and the cluster version) from which functions are taken: 1.16.
const REQL_VERSION_MIN: u8 = 2;

/// The arguments.
#[derive(Clone, Debug)]
pub struct Check {
    pub source: Server,
    pub only: Vec<Only>,
    /// How long running queries are looked at.
    pub watch: Duration,
}

/// A difference, and what meets it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub name: String,
    pub text: String,
    /// Indexes, hooks and queries.
    pub places: Vec<String>,
}

impl Finding {
    /// The difference, then the places.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("{}: {}", self.name, self.text)];
        lines.extend(self.places.iter().map(|place| format!("  {place}")));
        lines
    }

    /// One object, for `--json`.
    pub fn as_json(&self) -> Value {
        json!({"difference": self.name, "text": self.text, "places": self.places})
    }
}

/// Finds the differences that touch the source's functions and the queries that run meanwhile. Returns them with the number of
/// queries seen. Fails when the source is lost.
pub fn check(options: &Check) -> Result<(Vec<Finding>, usize), MigrateError> {
    let mut connection = options.source.connect()?;
    let catalog = catalog::read(&mut connection, Scope::Only(&options.only))?;
    let (stop, began) = (Stop::default(), Instant::now());
    let mut queries: BTreeMap<String, String> = BTreeMap::new();
    loop {
        let jobs = connection.ask("rethinkdb.jobs", &terms::table("rethinkdb", "jobs"));
        for job in jobs?.as_array().into_iter().flatten() {
            queries.extend(query_of(job));
        }
        if began.elapsed() >= options.watch {
            break;
        }
        stop.pause(LOOK);
    }
    Ok((findings(&catalog, &queries), queries.len()))
}

/// A running query's text, with its client. `None` for a query of this program.
fn query_of(job: &Value) -> Option<(String, String)> {
    let text = job["info"]["query"].as_str()?.to_owned();
    let client = job["info"]["client_address"].as_str().unwrap_or("?").to_owned();
    (job["type"] == "query" && !is_own(&text)).then_some((text, client))
}

/// Whether a query is one of a check, or of a migration that runs beside it: its feeds have a queue of a size of their own, its
/// reads by keys a limit of their own, and its other reads a range that is open on the left and closed on the right, in the order of
/// the primary key.
fn is_own(text: &str) -> bool {
    let has = |words: &[&str]| words.iter().all(|word| text.contains(word));
    let (queue, keys) = (FEED_QUEUE.to_string(), KEYS_MAX.to_string());
    has(&["r.db(\"rethinkdb\").table(\"jobs\")"])
        || has(&[".changes(", queue.as_str()])
        || has(&[".getAll(", ".limit(", keys.as_str()])
        || has(&[".between(", "\"open\"", "\"closed\"", ".orderBy("])
}

/// The differences of everything, each once.
fn findings(catalog: &Catalog, queries: &BTreeMap<String, String>) -> Vec<Finding> {
    let mut texts: Vec<(String, String)> = Vec::new();
    let mut found = Vec::new();
    for table in &catalog.tables {
        for index in &table.indexes {
            texts.push((format!("index {} of {}", index.name, table.name), index.query.clone()));
            found.extend(of_index(&table.name.to_string(), index));
        }
        if let Some(hook) = &table.hook {
            texts.push((format!("write hook of {}", table.name), hook.query.clone()));
        }
    }
    for (text, client) in queries {
        texts.push((format!("query of {client}: {}", shortened(&text.replace('\n', " "))), text.clone()));
    }
    for rule in RULES {
        let places: Vec<String> =
            texts.iter().filter(|(_, text)| rule.meets(text)).map(|(place, _)| place.clone()).collect();
        if !places.is_empty() {
            found.push(Finding { name: rule.name.to_owned(), text: rule.text.to_owned(), places });
        }
    }
    found
}

/// The differences that follow from the binary of an index and its state.
fn of_index(table: &str, index: &Index) -> Vec<Finding> {
    let place = format!("index {} of {table}", index.name);
    let finding = |name: &str, text: &str| Finding {
        name: name.to_owned(),
        text: text.to_owned(),
        places: vec![place.clone()],
    };
    let mut found = Vec::new();
    let bytes = STANDARD.decode(index.base64()).unwrap_or_default();
    if let Some([_, version, ..]) = bytes.strip_prefix(INDEX_PREFIX)
        && *version < REQL_VERSION_MIN
    {
        found.push(finding(
            "old_index",
            "the function is of a release before 1.16 and is refused: make the index anew at the source first (rethinkdb-index-rebuild)",
        ));
    }
    if index.outdated {
        found.push(finding(
            "outdated_index",
            "the index is outdated: at the target it follows the present rules",
        ));
    }
    if !index.ready {
        found.push(finding("index_in_progress", "the index is still being built"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Hook, TableFacts};
    use crate::queries::TableName;

    fn index(function: &[u8], query: &str) -> Index {
        Index {
            name: "i".to_owned(),
            function: json!({"$reql_type$": "BINARY", "data": STANDARD.encode(function)}),
            query: query.to_owned(),
            multi: false,
            geo: false,
            outdated: false,
            ready: true,
        }
    }

    #[test]
    fn functions_and_queries_are_named_under_their_difference() {
        let table = TableFacts {
            name: TableName::new("a", "b"),
            id: String::new(),
            primary_key: "id".to_owned(),
            durability: "hard".to_owned(),
            write_acks: "majority".to_owned(),
            compression: "default".to_owned(),
            shards: Vec::new(),
            indexes: vec![
                index(
                    b"$reql_index_function$\x09\x07\x07\x07",
                    "indexCreate('i', function(v) { return v(\"t\").seconds(); })",
                ),
                index(b"$reql_index_function$\x03\x01\x01\x07", ""),
            ],
            hook: Some(Hook { function: Value::Null, query: "r.literal(1)".to_owned() }),
            rows: 0,
        };
        let catalog = Catalog { tables: vec![table], ..Catalog::default() };
        let queries = BTreeMap::from([("r.table(\"t\").changes()".to_owned(), "10.0.0.1".to_owned())]);
        let found = findings(&catalog, &queries);
        let names: Vec<&str> = found.iter().map(|finding| finding.name.as_str()).collect();
        assert_eq!(names, ["old_index", "feeds", "literal", "seconds"]);
        assert_eq!(found[1].places, ["query of 10.0.0.1: r.table(\"t\").changes()"]);
        assert!(found[3].lines()[1].contains("index i of a.b"));
    }

    #[test]
    fn the_query_that_looks_is_not_counted() {
        let job =
            |query: &str, kind: &str| json!({"type": kind, "info": {"query": query, "client_address": "x"}});
        assert!(query_of(&job("r.now()", "query")).is_some());
        assert!(query_of(&job("r.db(\"rethinkdb\").table(\"jobs\")", "query")).is_none());
        assert!(query_of(&job("r.now()", "backfill")).is_none());
    }

    #[test]
    fn the_queries_of_a_migration_are_not_counted() {
        for own in [
            r#"r.db("a").table("b").changes({"changefeedQueueSize": 300000, "includeStates": true})"#,
            r#"r.db("a").table("b").between(r.minval, r.maxval, {leftBound: "open", rightBound: "closed"}).orderBy({index: "id"}).limit(4000)"#,
            r#"r.db("a").table("b").between(r.minval, r.maxval, {leftBound: "open", rightBound: "closed"}).orderBy({index: r.desc("id")}).limit(1)"#,
            r#"r.db("a").table("b").getAll(1, 2).limit(300001)"#,
        ] {
            assert!(is_own(own), "{own}");
        }
        for other in [
            r#"r.db("a").table("b").changes({"includeStates": true})"#,
            r#"r.db("a").table("b").between(1, 2, {leftBound: "open"}).orderBy({index: "id"})"#,
            r#"r.db("a").table("b").getAll(1, 2).limit(3)"#,
            r#"r.db("a").table("b").orderBy({index: r.desc("id")}).limit(1)"#,
        ] {
            assert!(!is_own(other), "{other}");
        }
    }
}
