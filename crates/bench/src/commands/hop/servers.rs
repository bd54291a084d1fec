//! The two servers under measurement, their tables, and one run against them.

use anyhow::{Context, bail};
use serde_json::Value;

use super::HopArgs;
use super::kinds::{Kind, Run, Table};
use crate::chance::Chance;
use crate::commands::{words, ycsb_load, ycsb_run};
use crate::fleet::{Fleet, system_rows};
use crate::machine::watch::Watched;
use crate::result::OperationResult;
use crate::wire::admin::Admin;
use crate::wire::handshake::Login;

/// Two servers with both tables.
pub(super) struct Bench<'a> {
    args: &'a HopArgs,
    watched: Vec<Watched>,
    /// Which server holds the primary replica of the table with one, and of that with two.
    primaries: [usize; 2],
    pub(super) version: Option<String>,
}

impl Bench<'_> {
    pub(super) fn prepare<'a>(args: &'a HopArgs, fleet: &Fleet) -> anyhow::Result<Bench<'a>> {
        let addresses = fleet.addresses();
        let none = || Some("none".to_owned());
        let watched = addresses.iter().map(|address| Watched::find(address, None, none()));
        let mut bench = Bench { args, watched: watched.collect(), primaries: [0; 2], version: None };
        for table in [Table::OneReplica, Table::TwoReplicas] {
            bench.load(table, &addresses[0])?;
        }
        let login = Login { user: "admin".to_owned(), password: String::new() };
        let mut admin = Admin::connect(&addresses[0], &login, &mut Chance::new(1, 9_100_000))?;
        let rows = system_rows(&mut admin, "table_config")?;
        let names = fleet.names();
        bench.primaries =
            [primary(&rows, &names, Table::OneReplica)?, primary(&rows, &names, Table::TwoReplicas)?];
        bench.version = Some(admin.server_version.clone());
        Ok(bench)
    }

    fn load(&self, table: Table, address: &str) -> anyhow::Result<()> {
        let load = format!(
            "--table {} --records {} --shards 1 --replicas {} --durability soft",
            table.name(),
            self.args.records,
            table.replicas()
        );
        let load = ycsb_load::measure(words::read(&load, &self.common(address, "load", 0))?)?;
        match load.checks.iter().find(|check| !check.ok) {
            Some(check) => bail!("only {} of {} documents could be loaded", check.found, check.expected),
            None => Ok(()),
        }
    }

    /// Runs `kind` once. Other rounds have other values: a second update with the same ones would change nothing. Fails
    /// when a query fails, and where the servers' processor time cannot be read.
    pub(super) fn run(&self, kind: &Kind, seconds: f64, round: u64) -> anyhow::Result<Run> {
        let primary = self.primaries[usize::from(kind.table == Table::TwoReplicas)];
        let asked = if kind.is_local { primary } else { 1 - primary };
        let line = format!(
            "{} --table {} --records {} --connections {} --warmup 0 --seconds {seconds}",
            kind.words,
            kind.table.name(),
            self.args.records,
            self.args.connections
        );
        let common = self.common(&self.watched[asked].address, kind.name, round + 1);
        let before = self.cpu_seconds();
        let result = ycsb_run::measure(words::read(&line, &common)?)?;
        let used = self.cpu_seconds().zip(before).map(|(after, before)| after - before);
        if let Some(error) = result.errors.first() {
            bail!("{}: {}", kind.name, error.first_message);
        }
        let operation = result.operations.into_iter().find(|one| one.ok > 0);
        let operation = operation.with_context(|| format!("{}: no query was answered", kind.name))?;
        let used = used.context("the processor time of the servers is not to be had from /proc")?;
        let each = used * 1e6 / operation.ok as f64;
        if !self.args.output.quiet {
            eprintln!("hop: {}: {each:.1} us", kind.name);
        }
        let name = kind.name.to_owned();
        Ok(Run {
            operation: OperationResult { name, server_cpu_us_per_operation: Some(each), ..operation },
            client: result.client,
            seconds: result.time.measured_seconds,
        })
    }

    fn cpu_seconds(&self) -> Option<f64> {
        self.watched.iter().map(|server| server.sample().cpu_seconds).sum()
    }

    fn common(&self, address: &str, what: &str, turn: u64) -> Vec<String> {
        let seed = self.args.output.seed.wrapping_add(turn);
        let flags = [format!("--host={address}"), format!("--label={what}"), format!("--seed={seed}")];
        let fixed = ["--http=none", "--quiet"].map(str::to_owned);
        flags.into_iter().chain(fixed).collect()
    }
}

/// Which of the servers with these names holds the primary replica of `table`.
fn primary(rows: &[Value], names: &[String], table: Table) -> anyhow::Result<usize> {
    let row = rows.iter().find(|row| row["name"] == table.name());
    let primary = row.and_then(|row| row["shards"][0]["primary_replica"].as_str());
    let primary = primary.with_context(|| format!("table_config does not say who leads {}", table.name()))?;
    names.iter().position(|name| name == primary).with_context(|| format!("there is no server {primary}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn who_leads_is_read_from_the_configuration() {
        let shards = json!([{"primary_replica": "node1", "replicas": ["node1"]}]);
        let rows = [json!({"name": "one", "shards": shards})];
        let names = ["node0", "node1"].map(str::to_owned);
        assert_eq!(primary(&rows, &names, Table::OneReplica).ok(), Some(1));
        assert!(primary(&rows, &names, Table::TwoReplicas).is_err());
    }
}
