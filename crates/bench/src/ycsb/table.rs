//! The table of the documents and its side table.
//!
//! A load adds one row per range of records to `<table>_loaded`: which records it wrote, with which settings, and the
//! number of sentences in the first field. Any machine can check a run or an analytic answer against it.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use client::admin::{Admin, AskError};
use client::answer::FailureKind;
use client::terms;
use serde_json::{Value, json};

use super::settings::{DATABASE, PRIMARY_KEY, Settings};

/// Requested shards and replicas of a table.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    pub shards: Option<u32>,
    /// The number of replicas of each shard.
    pub replicas: Option<u32>,
}

/// The contents of the side table.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// Documents written.
    pub documents: u64,
    /// One past the highest record number.
    pub records_end: u64,
    /// Sentences in the first fields.
    pub sentences: u64,
    /// Whether a run has changed documents since.
    pub changed: bool,
    /// The parameters of values and keys, from the first range.
    pub shape: Value,
}

pub fn side_table(table: &str) -> String {
    format!("{table}_loaded")
}

/// Creates database, table and side table if they are missing, and checks that the records to be loaded do not exist.
pub fn prepare_for_load(
    admin: &mut Admin,
    settings: &Settings,
    layout: &Layout,
    drop_first: bool,
) -> anyhow::Result<()> {
    let (table, side) = (settings.table.as_str(), side_table(&settings.table));
    create_database(admin, DATABASE)?;
    let existing = names(admin, &terms::table_list(DATABASE))?;
    for name in [table, &side] {
        if drop_first && existing.iter().any(|n| n == name) {
            admin.ask(&terms::table_drop(DATABASE, name))?;
        }
    }
    let existing = names(admin, &terms::table_list(DATABASE))?;
    if existing.iter().any(|n| n == table) {
        refuse_overlap(admin, settings)?;
        apply_layout(admin, DATABASE, table, layout)?;
    } else {
        let mut options = json!({"primary_key": PRIMARY_KEY});
        let given = [("shards", layout.shards), ("replicas", layout.replicas)];
        for (name, number) in given {
            number.inspect(|n| options[name] = json!(n));
        }
        if let Some(durability) = &settings.durability {
            options["durability"] = json!(durability);
        }
        admin.ask(&terms::table_create(DATABASE, table, options)).context("creating the table")?;
    }
    if !existing.contains(&side) {
        admin.ask(&terms::table_create(DATABASE, &side, json!({})))?;
    }
    admin.ask(&terms::wait(terms::table(DATABASE, table))).context("waiting for the table")?;
    wait_for_primaries(admin, DATABASE, table);
    Ok(())
}

/// How long to wait until the primaries are on the configured servers.
const PRIMARIES_TIMEOUT: Duration = Duration::from_secs(15);
const PRIMARIES_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Waits until every shard is led by its configured primary: a new table is ready before that, and writes may fail
/// while its leaders change. Returns at once if the server does not report leaders.
pub fn wait_for_primaries(admin: &mut Admin, db: &str, table: &str) {
    let deadline = Instant::now() + PRIMARIES_TIMEOUT;
    let target = terms::table(db, table);
    let settled = |admin: &mut Admin| -> Option<bool> {
        let config = admin.ask(&terms::config(target.clone())).ok()?;
        let status = admin.ask(&terms::status(target.clone())).ok()?;
        let shards = config["shards"].as_array()?.iter().zip(status["shards"].as_array()?);
        let mut each = shards.map(|(wanted, is)| is["primary_replicas"][0] == wanted["primary_replica"]);
        Some(each.all(|is_there| is_there))
    };
    while Instant::now() < deadline && settled(admin) == Some(false) {
        std::thread::sleep(PRIMARIES_POLL_INTERVAL);
    }
}

/// Rebalances a loaded table into shards of equal size: a server that splits a table without data assumes random keys,
/// and YCSB's keys, which have a common prefix, would all be in one shard. Returns the server's estimate of documents
/// per shard; empty for a single shard.
pub fn balance(admin: &mut Admin, settings: &Settings, layout: &Layout) -> anyhow::Result<Vec<u64>> {
    if layout.shards.is_none_or(|shards| shards < 2) {
        return Ok(Vec::new());
    }
    let target = terms::table(DATABASE, &settings.table);
    admin.ask(&terms::rebalance(target.clone())).context("balancing the shards")?;
    admin.ask(&terms::wait_all(target.clone())).context("waiting for the table")?;
    wait_for_primaries(admin, DATABASE, &settings.table);
    let info = admin.ask(&terms::info(target)).context("asking for the shards' sizes")?;
    let counts = info["doc_count_estimates"].as_array().into_iter().flatten();
    Ok(counts.filter_map(Value::as_u64).collect())
}

/// Creates a database if it does not exist.
pub fn create_database(admin: &mut Admin, name: &str) -> anyhow::Result<()> {
    if !names(admin, &terms::db_list())?.iter().any(|n| n == name) {
        admin.ask(&terms::db_create(name)).with_context(|| format!("creating database {name}"))?;
    }
    Ok(())
}

/// Changes shards and replicas if given, and waits until the table is ready.
pub fn apply_layout(admin: &mut Admin, db: &str, table: &str, layout: &Layout) -> anyhow::Result<()> {
    if layout.shards.is_none() && layout.replicas.is_none() {
        return Ok(());
    }
    let target = terms::table(db, table);
    let config = admin.ask(&terms::config(target.clone()))?;
    let shards_now = config["shards"].as_array().map_or(1, Vec::len) as u32;
    let replicas_now = config["shards"][0]["replicas"].as_array().map_or(1, Vec::len) as u32;
    let wanted = (layout.shards.unwrap_or(shards_now), layout.replicas.unwrap_or(replicas_now));
    if wanted != (shards_now, replicas_now) {
        admin
            .ask(&terms::reconfigure(target.clone(), wanted.0, wanted.1))
            .context("changing shards and replicas")?;
        admin.ask(&terms::wait(target))?;
    }
    Ok(())
}

/// The durability of writes with `settings`: as requested, or else as the table is configured; `unknown` if the user
/// may not read the configuration.
pub fn durability(admin: &mut Admin, settings: &Settings) -> anyhow::Result<String> {
    if let Some(asked) = &settings.durability {
        return Ok(asked.clone());
    }
    let config = match admin.ask(&terms::config(terms::table(DATABASE, &settings.table))) {
        Ok(config) => config,
        Err(AskError::Failed(_)) => Value::Null,
        Err(error) => return Err(error.into()),
    };
    Ok(config["durability"].as_str().unwrap_or("unknown").to_owned())
}

/// A range of written records, for the side table.
#[derive(Clone, Debug)]
pub struct RecordRange {
    /// Their numbers.
    pub records: std::ops::Range<u64>,
    /// The number of acknowledged ones.
    pub documents: u64,
    /// Sentences in their first fields; `None` if not counted.
    pub sentences: Option<u64>,
    /// The seed of their values.
    pub seed: u64,
}

/// Writes the row of one range to the side table.
pub fn record_range(admin: &mut Admin, settings: &Settings, range: &RecordRange) -> anyhow::Result<()> {
    let mut row = shape_of(settings);
    row["id"] = json!(format!("{}-{}", range.records.start, range.records.end));
    row["start"] = json!(range.records.start);
    row["end"] = json!(range.records.end);
    row["documents"] = json!(range.documents);
    row["sentences"] = json!(range.sentences.unwrap_or(0));
    row["seed"] = json!(range.seed.to_string());
    row["changed"] = json!(range.sentences.is_none());
    let side = terms::table(DATABASE, &side_table(&settings.table));
    let result = admin.ask(&terms::insert(side, row, json!({"conflict": "replace"})))?;
    if result["errors"].as_u64() != Some(0) {
        bail!("writing the side table: {}", result["first_error"]);
    }
    Ok(())
}

/// Reads the side table; `None` if it does not exist or is empty.
pub fn loaded(admin: &mut Admin, table: &str) -> anyhow::Result<Option<Loaded>> {
    let mut rows = Vec::new();
    let side = terms::table(DATABASE, &side_table(table));
    match admin.stream(&side, |row| rows.push(row)) {
        Ok(()) => {}
        Err(AskError::Failed(failure)) if failure.kind == FailureKind::OpFailed => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let sum = |name: &str| rows.iter().filter_map(|row| row[name].as_u64()).sum();
    let Some(first) = rows.first() else { return Ok(None) };
    Ok(Some(Loaded {
        documents: sum("documents"),
        records_end: rows.iter().filter_map(|row| row["end"].as_u64()).max().unwrap_or(0),
        sentences: sum("sentences"),
        changed: rows.iter().any(|row| row["changed"].as_bool() != Some(false)),
        shape: first.clone(),
    }))
}

/// Marks the sums in the side table as outdated.
pub fn mark_changed(admin: &mut Admin, table: &str) -> anyhow::Result<()> {
    let side = terms::table(DATABASE, &side_table(table));
    admin.ask(&terms::update(side, json!({"changed": true})))?;
    Ok(())
}

const LOAD_FIRST: &str = "run `rekindle bench ycsb load` first, with the same -p settings";

/// Checks that the table has the data for a run, and returns its number of records.
///
/// Fails, with advice, if the table is missing, has fewer records than `recordcount`, was loaded with settings that
/// make other keys or values, or already has records that the run would insert.
pub fn check_for_run(admin: &mut Admin, settings: &Settings, loaded: Option<&Loaded>) -> anyhow::Result<u64> {
    let table = &settings.table;
    let records = match (settings.recordcount, loaded) {
        (None, Some(loaded)) => loaded.records_end,
        (Some(wanted), Some(loaded)) if wanted > loaded.records_end => bail!(
            "recordcount is {wanted}, but {DATABASE}.{table} was loaded with {} records; \
             {LOAD_FIRST}, or set recordcount={}",
            loaded.records_end,
            loaded.records_end
        ),
        (Some(wanted), Some(loaded)) if wanted < loaded.records_end && settings.mix.insert > 0.0 => bail!(
            "recordcount is {wanted}, but {DATABASE}.{table} has {} records, loaded and inserted by earlier runs: \
             new ones would have the keys of those that are there; leave recordcount out, set recordcount={}, or \
             load again with `rekindle bench ycsb load --drop`",
            loaded.records_end,
            loaded.records_end
        ),
        (Some(wanted), _) => wanted,
        (None, None) => {
            refuse_missing(admin, table, LOAD_FIRST)?;
            bail!("{DATABASE}.{table} has no side table: say how many records it has with -p recordcount=N")
        }
    };
    if records == 0 {
        bail!("{DATABASE}.{table} has no records; {LOAD_FIRST}");
    }
    if let Some(loaded) = loaded {
        compare_shapes(settings, loaded)?;
    }
    for record in [settings.insertstart, records - 1] {
        if !has_record(admin, settings, record)? {
            let key = settings.keys.key(record);
            bail!("record {record} ({key}) is missing in {DATABASE}.{table}; {LOAD_FIRST}");
        }
    }
    if settings.mix.insert > 0.0 && has_record(admin, settings, records)? {
        bail!(
            "record {records} ({}) is in {DATABASE}.{table} already, as one that an earlier run inserted and did not \
             come to count: new records would have the keys of those that are there; load again with `rekindle bench \
             ycsb load --drop`",
            settings.keys.key(records)
        );
    }
    Ok(records)
}

fn has_record(admin: &mut Admin, settings: &Settings, record: u64) -> anyhow::Result<bool> {
    let (table, key) = (&settings.table, settings.keys.key(record));
    let row = admin.ask(&terms::get(terms::table(DATABASE, table), &key)).map_err(|error| {
        anyhow::Error::new(error).context(format!("reading {DATABASE}.{table}: {LOAD_FIRST}"))
    })?;
    Ok(!row.is_null())
}

fn refuse_missing(admin: &mut Admin, table: &str, advice: &str) -> anyhow::Result<()> {
    let databases = names(admin, &terms::db_list())?;
    let exists = databases.iter().any(|n| n == DATABASE)
        && names(admin, &terms::table_list(DATABASE))?.iter().any(|n| n == table);
    if !exists {
        bail!("table {DATABASE}.{table} does not exist; {advice}");
    }
    Ok(())
}

fn refuse_overlap(admin: &mut Admin, settings: &Settings) -> anyhow::Result<()> {
    let table = &settings.table;
    let again = "say --drop to start again";
    let Some(known) = loaded(admin, table)? else {
        bail!("table {DATABASE}.{table} exists and was not loaded by this program; {again}");
    };
    if settings.insertstart < known.records_end {
        bail!(
            "{DATABASE}.{table} holds records up to {} already; {again}, or set insertstart={}",
            known.records_end,
            known.records_end
        );
    }
    compare_shapes(settings, &known)
}

fn compare_shapes(settings: &Settings, loaded: &Loaded) -> anyhow::Result<()> {
    let Value::Object(wanted) = shape_of(settings) else { return Ok(()) };
    for (name, value) in wanted {
        let found = &loaded.shape[&name];
        if found != &value {
            bail!("{name} is {value}, but {DATABASE}.{} was loaded with {found}", settings.table);
        }
    }
    Ok(())
}

/// The settings that a load and its runs must share.
fn shape_of(settings: &Settings) -> Value {
    json!({
        "fieldcount": settings.fieldcount,
        "fieldlength": settings.field_lengths.constant(),
        "fieldnameprefix": settings.fieldnameprefix,
        "fieldalphabet": settings.alphabet.name(),
        "dataintegrity": settings.dataintegrity,
        "hashed": settings.keys.hashed,
        "zeropadding": settings.keys.digits_min,
    })
}

fn names(admin: &mut Admin, term: &Value) -> anyhow::Result<Vec<String>> {
    let list = admin.ask(term)?;
    let names = list.as_array().into_iter().flatten();
    Ok(names.filter_map(|name| name.as_str().map(str::to_owned)).collect())
}
