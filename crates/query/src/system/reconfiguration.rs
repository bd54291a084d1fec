//! Changes of the shards of one table, or of all tables of a database one after another. If rows must be copied first,
//! cancelling the query stops the change.

use cluster::{AdminError, DesiredShards, ShardPlaces, TableChange, TableHandle};
use reql::EvalError;

use crate::context::Cx;

/// Errors name at most this many tables that were changed before.
const NAMED_MAX: usize = 10;

/// The kind of change, as errors name it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReconfigurationKind {
    Reconfigure,
    /// `reconfigure` with `dry_run`.
    PlanOnly,
    Rebalance,
    /// A write to a row of `table_config`.
    Configure,
}

/// The change of one or several tables, and its progress.
pub(crate) struct Reconfiguration<'a> {
    pub cx: &'a Cx,
    kind: ReconfigurationKind,
    is_of_database: bool,
    /// The names of the changed tables.
    done: Vec<String>,
}

impl<'a> Reconfiguration<'a> {
    /// A change of one table.
    pub fn of_table(cx: &'a Cx, kind: ReconfigurationKind) -> Reconfiguration<'a> {
        Reconfiguration { cx, kind, is_of_database: false, done: Vec::new() }
    }

    /// A change of all tables of a database.
    pub fn of_database(cx: &'a Cx, kind: ReconfigurationKind) -> Reconfiguration<'a> {
        Reconfiguration { is_of_database: true, ..Reconfiguration::of_table(cx, kind) }
    }

    /// Changes a table's configuration.
    pub fn change(&mut self, table: &TableHandle, change: &TableChange) -> Result<(), EvalError> {
        let cx = self.cx;
        let changed =
            cx.node().resharder().change_table_while(table.config.id, change, &|| cx.check_cancel().is_ok());
        cx.check_cancel()?;
        changed.map_err(|error| self.failed(table, error))?;
        self.done.push(named(table));
        Ok(())
    }

    /// Rebalances the shards of a table. Returns false if it has too few rows for that.
    pub fn rebalance(&mut self, table: &TableHandle) -> Result<bool, EvalError> {
        let cx = self.cx;
        let changed = cx.node().resharder().rebalance(table.config.id, &|| cx.check_cancel().is_ok());
        cx.check_cancel()?;
        let is_done = changed.map_err(|error| self.failed(table, error))?;
        self.done.extend(is_done.then(|| named(table)));
        Ok(is_done)
    }

    /// The planned placement of a table's shards. Fails if [`Reconfiguration::change`] would be refused.
    pub fn plan(&self, table: &TableHandle, desired: &DesiredShards) -> Result<Vec<ShardPlaces>, EvalError> {
        let cx = self.cx;
        let planned =
            cx.node().resharder().plan_places(table.config.id, desired, &|| cx.check_cancel().is_ok());
        cx.check_cancel()?;
        planned.map_err(|error| self.failed(table, error))
    }

    /// The error of a failed change of `table`, with RethinkDB's text where it has one, and the tables that were
    /// changed before. Source: `CATCH_OP_ERRORS` in admin_op_exc.hpp.
    fn failed(&self, table: &TableHandle, error: AdminError) -> EvalError {
        let why = match &error {
            AdminError::NoQuorum { servers } => format!(
                "The server(s) hosting table `{}` are currently unreachable. {} Some of its shards have no majority of \
                 their replicas, because {servers} cannot be reached. Connect them, or if they are permanently lost, \
                 use `emergency_repair`.",
                named(table),
                self.undone()
            ),
            error => error.to_string(),
        };
        let text = why + &self.before(table, &error);
        if error.is_indeterminate() { EvalError::op_indeterminate(text) } else { EvalError::op_failed(text) }
    }

    fn undone(&self) -> &'static str {
        match (self.kind, self.is_of_database) {
            (ReconfigurationKind::Reconfigure | ReconfigurationKind::PlanOnly, false) => {
                "The table was not reconfigured."
            }
            (ReconfigurationKind::PlanOnly, true) => "The tables were not reconfigured.",
            (ReconfigurationKind::Reconfigure, true) => "The tables may or may not have been reconfigured.",
            (ReconfigurationKind::Rebalance, false) => "The table was not rebalanced.",
            (ReconfigurationKind::Rebalance, true) => "The tables may or may not have been rebalanced.",
            (ReconfigurationKind::Configure, _) => "The table's configuration was not changed.",
        }
    }

    /// The state of the other tables of the database. If the placement is impossible, the first table already fails,
    /// and none is named.
    fn before(&self, table: &TableHandle, error: &AdminError) -> String {
        let is_first = self.done.is_empty() && matches!(error, AdminError::Placement(_));
        if !self.is_of_database || self.kind == ReconfigurationKind::PlanOnly || is_first {
            return String::new();
        }
        let verb = if self.kind == ReconfigurationKind::Rebalance { "rebalanced" } else { "reconfigured" };
        let mut done: Vec<String> =
            self.done.iter().take(NAMED_MAX).map(|name| format!("`{name}`")).collect();
        if let more @ 1.. = self.done.len().saturating_sub(NAMED_MAX) {
            done.push(format!("{more} more"));
        }
        let done = if done.is_empty() { "none".to_owned() } else { done.join(", ") };
        format!(" This is about table `{}`; {verb} before it: {done}.", named(table))
    }
}

/// The name of a table in messages.
fn named(table: &TableHandle) -> String {
    format!("{}.{}", table.db.name, table.config.name)
}
