//! Carries out a plan: databases, tables, indexes, hooks, users and permissions. Each step may be repeated.

use std::time::Duration;

use client::terms;
use serde_json::{Value, json};

use super::facts::{Grant, Hook};
use super::plan::{Plan, TablePlan, UserPlan};
use crate::error::{InputError, MigrateError};
use crate::queries::TableName;
use crate::server::{Connection, Line, Stop};

/// Between two looks at the building of indexes.
const INDEX_PAUSE: Duration = Duration::from_millis(500);

/// Makes the databases and tables that are missing, and returns the id of each table at the target. Fails with the target's error.
pub fn create_tables(
    line: &mut Line,
    stop: &Stop,
    plan: &Plan,
) -> Result<Vec<(TableName, String)>, MigrateError> {
    for db in &plan.databases {
        line.run(stop, |to| unless_there(to.ask(&format!("making database {db}"), &terms::db_create(db))))?;
    }
    let mut ids = Vec::new();
    for table in &plan.tables {
        let id = line.run(stop, |to| create_table(to, table))?;
        ids.push((table.facts.name.clone(), id));
    }
    Ok(ids)
}

fn create_table(to: &mut Connection, table: &TablePlan) -> Result<String, MigrateError> {
    let name = &table.facts.name;
    if let Some(options) = table.create_options() {
        let term = terms::table_create(&name.db, &name.table, options);
        unless_there(to.ask(&format!("making table {name}"), &term))?;
        if table.facts.write_acks != "majority" {
            let change = json!({"write_acks": table.facts.write_acks});
            let term = terms::update(terms::config(name.term()), change);
            refused_row(name, "write_acks", &to.ask(&format!("write acks of {name}"), &term)?)?;
        }
        if table.facts.compression != "default" {
            // RethinkDB has no such setting and refuses it; the rows are the same without.
            let term =
                terms::update(terms::config(name.term()), json!({"compression": table.facts.compression}));
            to.ask(&format!("compression of {name}"), &term)?;
        }
        to.ask(&format!("waiting for table {name}"), &terms::wait(name.term()))?;
    }
    let info = to.ask(&format!("info of {name}"), &terms::info(name.term()))?;
    Ok(info["id"].as_str().unwrap_or_default().to_owned())
}

/// An earlier attempt may have succeeded without an answer.
fn unless_there(outcome: Result<Value, MigrateError>) -> Result<(), MigrateError> {
    match outcome {
        Err(error) if error.to_string().contains("already exists") => Ok(()),
        other => other.map(drop),
    }
}

/// Writes of system tables count refusals as errors of rows.
fn refused_row(about: &impl std::fmt::Display, what: &str, result: &Value) -> Result<(), InputError> {
    match result["errors"].as_u64() {
        Some(0) | None => Ok(()),
        Some(_) => {
            let why = result["first_error"].as_str().unwrap_or_default();
            Err(InputError::new(format!("target: {what} of {about} cannot be set: {why}")))
        }
    }
}

/// Makes the indexes that are missing, and returns why some were refused: the migration goes on without them. Fails when the target
/// is lost.
pub fn make_indexes(line: &mut Line, stop: &Stop, plan: &Plan) -> Result<Vec<String>, MigrateError> {
    let mut refused = Vec::new();
    for table in &plan.tables {
        let name = &table.facts.name;
        for index in &table.indexes {
            let what = format!("index {} of {name}", index.name);
            let options = json!({"multi": index.multi, "geo": index.geo});
            let term = json!([75, [name.term(), index.name, index.function], options]);
            match line.run(stop, |to| unless_there(to.ask(&what, &term))) {
                Err(error @ MigrateError::Query { .. }) => refused.push(error.to_string()),
                other => other?,
            }
        }
    }
    Ok(refused)
}

/// Waits until all indexes of the plan's tables are built; `progress` gets the share that is done, from 0 to 1. Fails when the target
/// is lost.
pub fn wait_for_indexes(
    line: &mut Line,
    stop: &Stop,
    tables: &[TableName],
    mut progress: impl FnMut(f64),
) -> Result<(), MigrateError> {
    while !stop.is_requested() {
        let mut shares = Vec::new();
        for name in tables {
            let term = json!([139, [name.term()]]);
            let statuses = line.run(stop, |to| to.ask(&format!("indexes of {name}"), &term))?;
            shares.extend(statuses.as_array().into_iter().flatten().map(|status| match &status["ready"] {
                Value::Bool(true) => 1.0,
                _ => status["progress"].as_f64().unwrap_or(0.0).min(0.999),
            }));
        }
        if shares.iter().all(|share| *share >= 1.0) {
            return Ok(());
        }
        progress(shares.iter().sum::<f64>() / shares.len() as f64);
        stop.pause(INDEX_PAUSE);
    }
    Ok(())
}

/// The result of setting a table's hook.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HookOutcome {
    Set,
    /// With the reason.
    Refused(String),
}

/// Sets write hooks. Fails when the target is lost.
pub fn make_hooks(
    line: &mut Line,
    stop: &Stop,
    hooks: &[(TableName, Hook)],
) -> Result<Vec<(TableName, HookOutcome)>, MigrateError> {
    let mut outcomes = Vec::new();
    for (name, hook) in hooks {
        let term = json!([189, [name.term(), hook.function]]);
        let outcome = match line.run(stop, |to| to.ask(&format!("write hook of {name}"), &term)) {
            Ok(_) => HookOutcome::Set,
            Err(MigrateError::Query { failure, .. }) => HookOutcome::Refused(failure.to_string()),
            Err(error) => return Err(error),
        };
        outcomes.push((name.clone(), outcome));
    }
    Ok(outcomes)
}

/// Makes users and gives permissions, and returns the refusals. Fails when the target is lost.
pub fn make_users(line: &mut Line, stop: &Stop, plan: &Plan) -> Result<Vec<String>, MigrateError> {
    let mut refused = Vec::new();
    for user in &plan.users {
        let UserPlan::Create { name, password } = user else { continue };
        let row = json!({"id": name, "password": password.as_ref().map_or(json!(false), |text| json!(text))});
        let term = terms::insert(terms::table("rethinkdb", "users"), row, json!({"conflict": "error"}));
        let result = line.run(stop, |to| to.ask(&format!("making user {name}"), &term));
        match result.map(|result| refused_row(name, "the user", &result)) {
            Ok(Err(error)) if !error.to_string().contains("uplicate") => refused.push(error.to_string()),
            Err(error @ MigrateError::Query { .. }) => refused.push(error.to_string()),
            other => drop(other?),
        }
    }
    for grant in &plan.grants {
        match line.run(stop, |to| to.ask(&format!("permissions of {}", grant.user), &grant_term(grant))) {
            Err(error @ MigrateError::Query { .. }) => refused.push(error.to_string()),
            other => drop(other?),
        }
    }
    Ok(refused)
}

fn grant_term(grant: &Grant) -> Value {
    match (&grant.db, &grant.table) {
        (Some(db), Some(table)) => json!([188, [terms::table(db, table), grant.user, grant.permissions]]),
        (Some(db), None) => json!([188, [terms::db(db), grant.user, grant.permissions]]),
        (None, _) => json!([188, [grant.user, grant.permissions]]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn permissions_are_given_at_their_scope() {
        let grant = |db: Option<&str>, table: Option<&str>| Grant {
            user: "ann".to_owned(),
            db: db.map(str::to_owned),
            table: table.map(str::to_owned),
            permissions: json!({"read": true}),
        };
        assert_eq!(grant_term(&grant(None, None)), json!([188, ["ann", {"read": true}]]));
        assert_eq!(grant_term(&grant(Some("a"), None)), json!([188, [[14, ["a"]], "ann", {"read": true}]]));
        let of_table = json!([188, [[15, [[14, ["a"]], "b"]], "ann", {"read": true}]]);
        assert_eq!(grant_term(&grant(Some("a"), Some("b"))), of_table);
    }
}
