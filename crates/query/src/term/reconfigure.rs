//! `reconfigure` and `rebalance`: the shards of tables and the servers of their replicas.

use std::sync::Arc;

use cluster::{
    AdminError, Catalog, DesiredShards, RepairMode, RepairScope, ServerId, TableChange, TableHandle,
    places_of,
};
use datum::{Datum, Object, Text};
use reql::EvalError;
use storage::TableId;

use super::db_admin::{change, special_because};
use super::placement::Placement;
use crate::context::Cx;
use crate::system::{Reconfiguration, ReconfigurationKind, config_row, server_row, shard_rows, status_row};
use crate::table::{Identifiers, Privilege, Resource, TableRef, access, admin_failed, system_db_id};
use crate::value::{Args, Value};

/// `reconfigure`: sets shards and replicas of a table, or of all tables of a database. With `emergency_repair` it
/// repairs a table or, for database `rethinkdb`, the catalog. If a table needs a repair of the catalog first, the
/// caller needs permission for both.
pub(crate) fn reconfigure(mut args: Args<'_>) -> Result<Value, EvalError> {
    let value = target(&mut args, "reconfigure")?;
    let dry_run = args.flag("dry_run")?;
    let repair = match args.optional_datum("emergency_repair")? {
        None | Some(Datum::Null) => None,
        Some(mode) => Some(mode),
    };
    if let (Value::Db(db), Some(mode)) = (&value, &repair)
        && db.id.is_none()
    {
        may_repair_catalog(args.cx)?;
        repair_mode_of(&args, mode)?;
        return repair_catalog(args.cx, dry_run);
    }
    let why = "you can't configure the tables in it";
    if let Some(mode) = repair {
        let mode = repair_mode_of(&args, &mode)?;
        return emergency_repair(args.cx, value, why, mode, dry_run);
    }
    let desired = Placement::of_reconfigure(&args)?.desired_shards();
    let kind = if dry_run { ReconfigurationKind::PlanOnly } else { ReconfigurationKind::Reconfigure };
    let (mut report, mut reconfiguration) = (Report::default(), reconfiguration_of(args.cx, kind, &value));
    for table in configurable(args.cx, value, why)? {
        reconfigure_table(&mut reconfiguration, &table, &desired, dry_run, &mut report)?;
    }
    Ok(report.into_value("reconfigured", !dry_run, true))
}

/// `rebalance`: divides tables into shards with about the same number of rows.
pub(crate) fn rebalance(mut args: Args<'_>) -> Result<Value, EvalError> {
    let value = target(&mut args, "rebalance")?;
    let (mut report, mut reconfiguration) =
        (Report::default(), reconfiguration_of(args.cx, ReconfigurationKind::Rebalance, &value));
    for table in configurable(args.cx, value, "you can't rebalance the tables in it")? {
        let before = status_row(args.cx, &table, Identifiers::Name);
        if reconfiguration.rebalance(&table)? {
            report.count += 1;
        }
        report.status(before, current(args.cx, table.config.id, status_row));
    }
    Ok(report.into_value("rebalanced", true, false))
}

fn reconfiguration_of<'a>(cx: &'a Cx, kind: ReconfigurationKind, target: &Value) -> Reconfiguration<'a> {
    match target {
        Value::Db(_) => Reconfiguration::of_database(cx, kind),
        _ => Reconfiguration::of_table(cx, kind),
    }
}

/// The table or database argument of `op`, which is checked before the options.
pub(crate) fn target(args: &mut Args<'_>, op: &str) -> Result<Value, EvalError> {
    if args.len() == 0 {
        return Err(EvalError::logic(format!("`{op}` can only be called on a table or database.")));
    }
    match args.take(0)? {
        target @ Value::Db(_) => Ok(target),
        Value::Table(slice) if slice.is_whole() => Ok(Value::Table(slice)),
        other => Err(other.not_a(args.cx, "TABLE").at(0)),
    }
}

/// The tables of a table or database. For the system database the error says `why`.
pub(crate) fn tables_of(cx: &Cx, target: Value, why: &str) -> Result<Vec<Arc<TableHandle>>, EvalError> {
    match target {
        Value::Table(slice) => match slice.table {
            TableRef::Stored(table) => Ok(vec![table.handle]),
            TableRef::System(_) => Err(special_because(why)),
        },
        Value::Db(db) if db.id.is_none() => Err(special_because(why)),
        Value::Db(db) => {
            let catalog = cx.catalog();
            let tables = catalog.database(&db.name).into_iter().flat_map(|db| db.tables());
            Ok(tables.cloned().collect())
        }
        other => Err(other.mismatch("TABLE").at(0)),
    }
}

/// The same, if the caller may configure all of them.
fn configurable(cx: &Cx, target: Value, why: &str) -> Result<Vec<Arc<TableHandle>>, EvalError> {
    let tables = tables_of(cx, target, why)?;
    for table in &tables {
        access::check(cx, Privilege::Config, Resource::Table(table.db.id, table.config.id))?;
    }
    Ok(tables)
}

/// The mode of an emergency repair, which allows no other option but `dry_run`.
fn repair_mode_of(args: &Args<'_>, mode: &Datum) -> Result<RepairMode, EvalError> {
    let Datum::String(name) = mode else {
        return Err(EvalError::type_error("STRING", mode).at("emergency_repair"));
    };
    let Some(mode) = repair_mode(name) else {
        return Err(EvalError::logic(
            "`emergency_repair` should be \"unsafe_rollback\" or \"unsafe_rollback_or_erase\"",
        )
        .at("emergency_repair"));
    };
    let others = ["nonvoting_replica_tags", "primary_replica_tag", "replicas", "shards"];
    if others.into_iter().any(|name| args.has_optarg(name)) {
        return Err(EvalError::logic("In emergency repair mode, you can't specify shards, replicas, etc."));
    }
    Ok(mode)
}

fn emergency_repair(
    cx: &Cx,
    target: Value,
    why: &str,
    mode: RepairMode,
    dry_run: bool,
) -> Result<Value, EvalError> {
    if matches!(target, Value::Db(_)) {
        return Err(EvalError::logic(
            "Can't emergency repair an entire database at once; instead you should run `reconfigure()` on each \
             table individually.",
        ));
    }
    match &configurable(cx, target, why)?[..] {
        [table] => repair_table(cx, table, mode, dry_run),
        _ => Err(EvalError::internal("expected one table")),
    }
}

fn may_repair_catalog(cx: &Cx) -> Result<(), EvalError> {
    access::check(cx, Privilege::Config, Resource::Db(system_db_id()))
}

/// Repairs the catalog; the result shows which servers it removes.
fn repair_catalog(cx: &Cx, dry_run: bool) -> Result<Value, EvalError> {
    let (catalog, node) = (cx.catalog(), cx.node());
    let removed = if dry_run { node.repair().plan_catalog_repair() } else { node.repair().repair_catalog() };
    let mut report = Report { count: u32::from(!dry_run), ..Report::default() };
    report.removed(&catalog, &removed.map_err(admin_failed)?);
    Ok(report.into_value("repaired", !dry_run, true))
}

fn repair_mode(name: &str) -> Option<RepairMode> {
    Some(match name {
        "unsafe_rollback" => RepairMode::Rollback,
        "unsafe_rollback_or_erase" => RepairMode::RollbackOrErase,
        "_debug_recommit" => RepairMode::Recommit,
        _ => return None,
    })
}

/// Repairs a table, after the catalog if that is needed; the result shows both.
fn repair_table(
    cx: &Cx,
    table: &Arc<TableHandle>,
    mode: RepairMode,
    dry_run: bool,
) -> Result<Value, EvalError> {
    let (config, status) =
        (config_row(cx, table, Identifiers::Name), status_row(cx, table, Identifiers::Name));
    let (catalog, mut report) = (cx.catalog(), Report::default());
    let id = table.config.id;
    let denied = may_repair_catalog(cx).err();
    let scope = if denied.is_some() { RepairScope::Table } else { RepairScope::Cluster };
    let failed = |error| match (error, denied) {
        (AdminError::CatalogFirst, Some(denied)) => denied,
        (error, _) => admin_failed(error),
    };
    if dry_run {
        let planned = cx.node().repair().plan_repair(id, mode, scope).map_err(failed)?;
        let mut after = config.to_builder();
        let places = places_of(&planned.table.shards);
        after.insert(Text::from_static("shards"), shard_rows(cx, &places, Identifiers::Name));
        report.config(config, Datum::Object(after.build()));
        report.removed(&catalog, &planned.removed);
        return Ok(report.into_value("repaired", false, true));
    }
    let repaired = cx.node().repair().emergency_repair(id, mode, scope).map_err(failed)?;
    report.count = 1;
    report.config(config, current(cx, id, config_row));
    report.removed(&catalog, &repaired.removed);
    report.status(status, current(cx, id, status_row));
    Ok(report.into_value("repaired", true, true))
}

fn reconfigure_table(
    reconfiguration: &mut Reconfiguration<'_>,
    table: &Arc<TableHandle>,
    desired: &DesiredShards,
    dry_run: bool,
    report: &mut Report,
) -> Result<(), EvalError> {
    let cx = reconfiguration.cx;
    let (config, status) =
        (config_row(cx, table, Identifiers::Name), status_row(cx, table, Identifiers::Name));
    if dry_run {
        let places = reconfiguration.plan(table, desired)?;
        let mut after = config.to_builder();
        after.insert(Text::from_static("shards"), shard_rows(cx, &places, Identifiers::Name));
        report.config(config, Datum::Object(after.build()));
        return Ok(());
    }
    let change = TableChange { shards: Some(desired.clone()), ..TableChange::default() };
    reconfiguration.change(table, &change)?;
    report.count += 1;
    report.config(config, current(cx, table.config.id, config_row));
    report.status(status, current(cx, table.config.id, status_row));
    Ok(())
}

/// The present row of a table, or null if it is gone.
fn current(cx: &Cx, id: TableId, row: fn(&Cx, &TableHandle, Identifiers) -> Object) -> Datum {
    let catalog = cx.catalog();
    catalog.table_by_id(id).map_or(Datum::Null, |table| Datum::Object(row(cx, table, Identifiers::Name)))
}

/// The result: a count, and rows before and after.
#[derive(Default)]
struct Report {
    count: u32,
    config_changes: Vec<Datum>,
    status_changes: Vec<Datum>,
}

impl Report {
    fn config(&mut self, before: Object, after: Datum) {
        self.config_changes.push(change(before.into(), after));
    }

    /// Adds servers that the repair removes and `catalog` still has.
    fn removed(&mut self, catalog: &Catalog, servers: &[ServerId]) {
        for server in servers.iter().filter_map(|id| catalog.server(*id)) {
            self.config(server_row(server), Datum::Null);
        }
    }

    fn status(&mut self, before: Object, after: Datum) {
        self.status_changes.push(change(before.into(), after));
    }

    fn into_value(self, verb: &'static str, with_status: bool, with_config: bool) -> Value {
        let mut fields = vec![(verb, Datum::Number(f64::from(self.count)))];
        if with_config {
            fields.push(("config_changes", self.config_changes.into()));
        }
        if with_status {
            fields.push(("status_changes", self.status_changes.into()));
        }
        let object = fields.into_iter().map(|(name, value)| (Text::from_static(name), value));
        Value::Datum(Datum::Object(object.collect()))
    }
}
