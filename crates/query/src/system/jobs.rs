//! `rethinkdb.jobs`: running queries; deleting a row stops one.

use datum::{Datum, Object};
use reql::EvalError;
use uuid::Uuid;

use super::copy_jobs::copy_jobs;
use super::fields::{field, object, strings, uuid_of};
use super::index_jobs::index_jobs;
use super::table_config::server_name;
use crate::context::Cx;
use crate::remote::stop_job_on_others;
use crate::service::Job;
use crate::table::{Identifiers, RowEdit, SystemTable};

pub(super) struct JobsTable;

impl SystemTable for JobsTable {
    fn name(&self) -> &'static str {
        "jobs"
    }

    fn is_per_server(&self) -> bool {
        true
    }

    fn rows(&self, cx: &Cx, identifiers: Identifiers) -> Result<Vec<Object>, EvalError> {
        let mine = |job: &Job| cx.caller.is("admin") || cx.caller.is(&job.client.user);
        let jobs = cx.service.jobs.list().into_iter().filter(|(_, job)| mine(job));
        let mut rows: Vec<Object> = jobs.map(|(id, job)| row(cx, id, &job, identifiers)).collect();
        if cx.caller.is("admin") {
            rows.extend(index_jobs(cx, identifiers));
            rows.extend(copy_jobs(cx, identifiers));
        }
        Ok(rows)
    }

    fn write(&self, cx: &Cx, edit: RowEdit<'_>) -> Result<(), EvalError> {
        match (edit.old, edit.new) {
            (None, None) => Ok(()),
            (Some(old), None) => stop(cx, &field(old, "id")?),
            _ => Err(EvalError::op_failed(
                "The `rethinkdb.jobs` system table only allows deletions, not inserts or updates.",
            )),
        }
    }

    fn write_none(&self, _cx: &Cx, key: &Datum, _identifiers: Identifiers) -> Result<(), EvalError> {
        query_id(key).map(drop)
    }
}

fn row(cx: &Cx, id: Uuid, job: &Job, identifiers: Identifiers) -> Object {
    let seconds = cx.node().clock().now().since(job.started).as_secs_f64();
    let info = object([
        ("client_address", job.client.address.ip().to_string().into()),
        ("client_port", Datum::Number(f64::from(job.client.address.port()))),
        ("user", Datum::String(job.client.user.clone())),
        ("query", reql::print::term(&job.query).into()),
    ]);
    object([
        ("id", vec!["query".into(), id.to_string().into()].into()),
        ("type", "query".into()),
        ("duration_sec", Datum::Number(seconds)),
        ("servers", strings([server_name(cx, identifiers)])),
        ("info", Datum::Object(info)),
    ])
}

fn stop(cx: &Cx, key: &Datum) -> Result<(), EvalError> {
    // A query that has ended meanwhile needs no stop.
    if let Some(id) = query_id(key)?
        && !cx.service.jobs.stop(id)
    {
        stop_job_on_others(cx, id);
    }
    Ok(())
}

/// The query with this key, if it can be the key of a job. Fails for jobs of other types.
fn query_id(key: &Datum) -> Result<Option<Uuid>, EvalError> {
    let Datum::Array(parts) = key else { return Ok(None) };
    let [Datum::String(kind), id] = &**parts else { return Ok(None) };
    let Ok(id) = uuid_of(id) else { return Ok(None) };
    match kind == "query" {
        true => Ok(Some(id)),
        false => Err(EvalError::op_failed(format!("Jobs of type `{kind}` cannot be interrupted."))),
    }
}
