//! The table, its rows and indexes, and the queries about them.

use anyhow::{Context, Result, ensure};
use rand::Rng;
use rand::rngs::StdRng;
use serde_json::Value;

use crate::harness::client::Client;

/// The table as a term.
pub(super) const TABLE: &str = "[15,[[14,[\"test\"]],\"built\"]]";
/// The number of values in the simple index: several rows have the same one.
const VALUES: u64 = 50_000;
/// Values of the multi index.
const TAGS: u64 = 500;

/// An index and its function.
pub(super) struct Index {
    pub(super) name: &'static str,
    /// The term of its function; empty for an index on the field of its name.
    function: &'static str,
    options: &'static str,
    /// The values of a row in it.
    pub(super) values: fn(&Value) -> Vec<Value>,
}

/// A simple index, a multi index and an index on a function.
pub(super) const INDEXES: &[Index] = &[
    Index { name: "a", function: "", options: "{}", values: |row| vec![row["a"].clone()] },
    Index {
        name: "m",
        function: "",
        options: "{\"multi\":true}",
        values: |row| row["m"].as_array().cloned().unwrap_or_default(),
    },
    Index {
        name: "pair",
        // row => [row["s"], row["a"]]
        function: ",[69,[[2,[1]],[2,[[170,[[10,[1]],\"s\"]],[170,[[10,[1]],\"a\"]]]]]]",
        options: "{}",
        values: |row| vec![Value::Array(vec![row["s"].clone(), row["a"].clone()])],
    },
];

/// A row with random values.
pub(super) fn row(key: u64, random: &mut StdRng) -> String {
    let (a, s) = (random.random_range(0..VALUES), random.random_range(0..10_000));
    let (m, n) = (random.random_range(0..TAGS), random.random_range(0..TAGS));
    format!("{{\"id\":{key},\"a\":{a},\"s\":\"s{s}\",\"m\":[2,[{m},{n}]]}}")
}

/// Creates the table; its writes are soft, so that the disk is not measured.
pub(super) fn create(client: &mut Client) -> Result<()> {
    done(client, "[1,[60,[[14,[\"test\"]],\"built\"],{\"durability\":\"soft\"}]]")
}

pub(super) fn create_index(client: &mut Client, index: &Index) -> Result<()> {
    done(client, &format!("[1,[75,[{TABLE},\"{}\"{}],{}]]", index.name, index.function, index.options))
}

pub(super) fn drop_index(client: &mut Client, index: &Index) -> Result<()> {
    done(client, &format!("[1,[76,[{TABLE},\"{}\"]]]", index.name))
}

/// The existing indexes, and whether each is ready.
pub(super) fn indexes(client: &mut Client) -> Result<Vec<(String, bool)>> {
    let answer = client.ask(&format!("[1,[139,[{TABLE}]]]"))?;
    let statuses = answer["r"][0].as_array().with_context(|| format!("no status of indexes: {answer}"))?;
    let known = |status: &Value| {
        let name = status["index"].as_str().context("an index without a name")?;
        Ok((name.to_owned(), status["ready"] == true))
    };
    statuses.iter().map(known).collect()
}

pub(super) fn is_ready(client: &mut Client, index: &Index) -> Result<bool> {
    Ok(indexes(client)?.iter().any(|(name, is_ready)| name == index.name && *is_ready))
}

fn done(client: &mut Client, query: &str) -> Result<()> {
    let answer = client.ask(query)?;
    ensure!(answer["t"] == 1, "{query} was answered by {answer}");
    Ok(())
}
