//! Writes of one row: decided on the calling thread, complete when the log has them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use cluster::TableHandle;
use datum::{Datum, Object, PrimaryKey, Text, Time};
use log::Durability;
use reql::purity::{self, Determinism};
use reql::{Call, Cancel, Env, EvalError, Op, ResultKind, Scope, SeededRandom, Term};
use shard::{Shard, WriteError, WriteTicket};
use storage::Reach;

use super::disk::DiskPoint;
use super::remote::{Attempts, RemotePoint, Retried, Retry};
use super::shape::{Options, Row, TableName};
use crate::context::EvalParams;
use crate::edit::{Conflict, Edit, Patch, ReturnChanges, RowTarget, WriteOptions, writes_are_brief};
use crate::remote::{Edits, Request, SettingsVersion, Target, WriteRequest};
use crate::session::{Query, Session};
use crate::table::{Privilege, Resource, access, write_failed};
use crate::write::{WriteResult, decision, is_refused};

/// Point writes are not cancelled: they are too quick for that ([`Edit::is_brief`]).
static NEVER: Cancel = Cancel::new();

/// A pending write of one row. Completes with the result for the client.
#[must_use = "the write may still fail"]
pub struct PointWrite(PointWriteState);

enum PointWriteState {
    /// `retry` is set where there are other replicas: one of them may become leader before the log has the write.
    Local {
        ticket: WriteTicket,
        answer: Datum,
        retry: Option<Retry>,
    },
    Remote(RemotePoint),
    /// The row that it changes is on disk.
    Disk(DiskPoint),
}

impl Future for PointWrite {
    type Output = Result<Datum, EvalError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let refused = match &mut self.0 {
                PointWriteState::Local { ticket, answer, retry } => match Pin::new(ticket).poll(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(_)) => return Poll::Ready(Ok(std::mem::replace(answer, Datum::Null))),
                    Poll::Ready(Err(error)) if is_refused(&error) => retry.take().ok_or(error),
                    Poll::Ready(Err(error)) => Err(error),
                },
                PointWriteState::Remote(point) => return Pin::new(point).poll(context),
                PointWriteState::Disk(point) => return Pin::new(point).poll(context),
            };
            match refused {
                Ok(retry) => self.0 = PointWriteState::Remote(RemotePoint::wait_for_other_leader(retry)),
                Err(error) => return Poll::Ready(Err(write_failed(&error))),
            }
        }
    }
}

impl PointWrite {
    /// Continues to count from earlier attempts.
    pub(super) fn retried(self, attempts: Attempts) -> Retried {
        match self.0 {
            PointWriteState::Remote(point) => Retried::Remote(Box::new(point)),
            PointWriteState::Disk(point) => Retried::Local(Box::pin(point)),
            PointWriteState::Local { ticket, answer, mut retry } => {
                retry.iter_mut().for_each(|retry| retry.continue_from(attempts));
                Retried::Local(Box::pin(PointWrite(PointWriteState::Local { ticket, answer, retry })))
            }
        }
    }
}

/// The table, key and edit of a write.
struct PointEdit<'a> {
    table: TableName<'a>,
    edit: Edit,
    /// The key; an inserted row without one gets a generated key.
    key: Option<Datum>,
}

/// Starts a write of one row, if the query has a shape of the fast path.
pub(super) fn begin(session: &Session, query: &Arc<Query>, call: &Call, reach: Reach) -> Option<PointWrite> {
    let global = Options::of(query)?;
    let options = literal_options(call, global.durability)?;
    let plan = PointEdit::of(call)?;
    let node = session.service.node();
    let catalog = node.catalog_guard();
    let table = catalog.table(plan.table.db.or(global.db).unwrap_or("test"), plan.table.name)?;
    let place = Resource::Table(table.db.id, table.config.id);
    access::check_user(&catalog, &session.client.user, Privilege::Write, place).ok()?;
    // This thread serves many clients: edits that may take long run where they can be cancelled.
    if !plan.edit.is_brief() || !writes_are_brief(&table.config) {
        return None;
    }
    let mut result = WriteResult::new(options.return_changes, reql::ARRAY_LIMIT_DEFAULT);
    let (key, edit) = keyed(session, plan, &table.config.primary_key, &mut result)?;
    let key = PrimaryKey::encode(&key).ok()?;
    let handle = table.shard(&key);
    match session.service.leader(handle) {
        None => Some(PointWrite(PointWriteState::Remote(RemotePoint::wait_for_leader(Retry::new(
            session, query, handle, None,
        ))))),
        Some(Target::Local(shard)) => {
            let from_disk = || {
                let point = DiskPoint::write(session, query, table.config.id, key.clone());
                Some(PointWrite(PointWriteState::Disk(point)))
            };
            if reach == Reach::Memory && session.service.readers.has_write(table.config.id, &key) {
                return from_disk();
            }
            let retry = handle.may_move().then(|| Retry::new(session, query, handle, None));
            match propose(session, table, shard, &key, &edit, options, reach, result, retry) {
                Err(error) if error.needs_disk() => from_disk(),
                // An error here wrote nothing: the slow path meets it again, or finds the row's new shard.
                proposed => proposed.ok(),
            }
        }
        Some(Target::Remote(server)) => {
            let request = Request::Write(WriteRequest {
                ticket: session.service.remote_calls().next_number(),
                table: table.config.id,
                options,
                settings: SettingsVersion::of(&catalog, &table.config),
                eval_params: eval_params(session),
                keys: vec![key],
                edits: Edits::One(edit),
            });
            let retry = Retry::new(session, query, handle, None);
            let point = RemotePoint::send_write(retry, server, &request, Some(result));
            Some(PointWrite(PointWriteState::Remote(point)))
        }
    }
}

fn eval_params(session: &Session) -> EvalParams {
    EvalParams {
        now: Time::new(session.service.node().clock().unix().as_secs_f64(), 0),
        array_limit: reql::ARRAY_LIMIT_DEFAULT,
        seed: 0,
        globals: Vec::new(),
    }
}

/// The key of the row and the edit; an insert without a key gets a generated one.
fn keyed(
    session: &Session,
    plan: PointEdit<'_>,
    field: &Text,
    result: &mut WriteResult,
) -> Option<(Datum, Edit)> {
    match (plan.key, plan.edit) {
        (Some(key), edit) => Some((key, edit)),
        (None, Edit::Insert { row, conflict }) => match row.get(field) {
            Some(key) => Some((key, Edit::Insert { row, conflict })),
            None => {
                let key = Datum::from(session.service.node().new_uuid().to_string());
                let mut row = row.to_builder();
                row.insert(field.clone(), key.clone());
                result.add_generated_key(key.clone());
                Some((key, Edit::Insert { row: row.build(), conflict }))
            }
        },
        _ => None,
    }
}

#[allow(clippy::too_many_arguments, reason = "what a write is made of, once")]
fn propose(
    session: &Session,
    table: &TableHandle,
    shard: &Shard,
    key: &PrimaryKey,
    edit: &Edit,
    options: WriteOptions,
    reach: Reach,
    mut result: WriteResult,
    retry: Option<Retry>,
) -> Result<PointWrite, WriteError> {
    let random = SeededRandom::new(0);
    let env = Env {
        now: Time::new(session.service.node().clock().unix().as_secs_f64(), 0),
        array_limit: reql::ARRAY_LIMIT_DEFAULT,
        cancel: &NEVER,
        random: &random,
        globals: &[],
        open: None,
    };
    let hook = table.config.write_hook.as_ref();
    let target = RowTarget { field: &table.config.primary_key, key, hook };
    let decide = |old: Option<&Object>| {
        let report = edit.decide(target, old, &env);
        (decision(&report), report)
    };
    let durability = options.durability.unwrap_or(table.config.durability);
    let (report, ticket) = shard.write_deferred(key, durability, reach, decide)?;
    session.service.counters().rows_written.fetch_add(1, Ordering::Relaxed);
    result.add(report);
    Ok(PointWrite(PointWriteState::Local { ticket, answer: result.into_datum(), retry }))
}

impl<'a> PointEdit<'a> {
    fn of(call: &'a Call) -> Option<PointEdit<'a>> {
        match (call.op, call.args.as_slice()) {
            (Op::Insert, [table, Term::Datum(Datum::Object(row))]) => {
                let edit = Edit::Insert { row: row.clone(), conflict: conflict(call)? };
                Some(PointEdit { table: TableName::of(table)?, edit, key: None })
            }
            (Op::Update, [row, change]) => {
                PointEdit::of_row(row, Edit::Update(patch(change, ResultKind::Literals)?))
            }
            (Op::Replace, [row, change]) => {
                PointEdit::of_row(row, Edit::Replace(patch(change, ResultKind::Datum)?))
            }
            (Op::Delete, [row]) => PointEdit::of_row(row, Edit::Delete),
            _ => None,
        }
    }

    fn of_row(row: &'a Term, edit: Edit) -> Option<PointEdit<'a>> {
        let row = Row::of(row)?;
        Some(PointEdit { table: row.table, edit, key: Some(row.key.clone()) })
    }
}

fn patch(change: &Term, answer: ResultKind) -> Option<Patch> {
    match change {
        Term::Datum(value) => Some(Patch::Constant(value.clone())),
        Term::Func(func) if func.closed && func.params.len() == 1 => {
            if purity::of_func(func) > Determinism::WithinQuery {
                return None;
            }
            reql::closure(func, &Scope::empty(), answer).ok().map(Patch::Func)
        }
        _ => None,
    }
}

fn conflict(call: &Call) -> Option<Conflict> {
    match call.optarg("conflict") {
        None => Some(Conflict::Error),
        Some(Term::Datum(Datum::String(text))) => match text.as_ref() {
            "error" => Some(Conflict::Error),
            "replace" => Some(Conflict::Replace),
            "update" => Some(Conflict::Update),
            _ => None,
        },
        Some(_) => None,
    }
}

/// The options of a write term, if all of them are literals that the fast path knows.
fn literal_options(call: &Call, global: Option<&str>) -> Option<WriteOptions> {
    let mut options = WriteOptions {
        durability: match global {
            Some(name) => Some(durability(name)?),
            None => None,
        },
        return_changes: ReturnChanges::No,
        ignore_hook: false,
    };
    for (name, term) in &call.optargs {
        match (name.as_ref(), term) {
            ("durability", Term::Datum(Datum::String(text))) => {
                options.durability = Some(durability(text)?);
            }
            ("return_changes", Term::Datum(Datum::Bool(shown))) => {
                options.return_changes = if *shown { ReturnChanges::Changed } else { ReturnChanges::No };
            }
            ("return_changes", Term::Datum(Datum::String(text))) if text == "always" => {
                options.return_changes = ReturnChanges::Always;
            }
            ("conflict", _) => {}
            _ => return None,
        }
    }
    Some(options)
}

fn durability(name: &str) -> Option<Durability> {
    match name {
        "hard" => Some(Durability::Hard),
        "soft" => Some(Durability::Soft),
        _ => None,
    }
}
