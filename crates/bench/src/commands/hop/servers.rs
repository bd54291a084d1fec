//! The two measured servers, their tables, and one run against them.

use anyhow::{Context, bail, ensure};
use client::admin::Admin;
use client::handshake::Login;
use serde_json::Value;

use super::HopArgs;
use super::kinds::{Kind, Recipient, Run, Table};
use crate::commands::{arguments, ycsb_load, ycsb_run};
use crate::conditions::Mark;
use crate::fleet::{Fleet, system_rows};
use crate::machine::watch::Watched;
use crate::result::OperationResult;
use crate::shapes::quiescence::{self, Quiescence};

/// Two servers with both tables.
pub(super) struct Servers<'a> {
    args: &'a HopArgs,
    /// Without their metrics pages, because serving these costs processor time.
    watched: Vec<Watched>,
    /// With metrics pages, to detect when the servers are quiet.
    resting: Vec<Watched>,
    names: Vec<String>,
    leaders: Leaders,
    /// The worst state before any run.
    pub(super) rest: Quiescence,
    pub(super) version: String,
}

/// The leaders of the tables with one and with two replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Leaders {
    one: usize,
    two: usize,
}

impl Servers<'_> {
    pub(super) fn prepare<'a>(args: &'a HopArgs, fleet: &Fleet) -> anyhow::Result<Servers<'a>> {
        let addresses = fleet.addresses();
        let find = |(address, page): (&String, String)| Watched::find(address, None, Some(page));
        let none = addresses.iter().map(|_| "none".to_owned());
        let mut servers = Servers {
            args,
            watched: addresses.iter().zip(none).map(find).collect(),
            resting: addresses.iter().zip(fleet.metrics_urls()).map(find).collect(),
            names: fleet.names(),
            leaders: Leaders { one: 0, two: 0 },
            rest: Quiescence::Reached,
            version: String::new(),
        };
        servers.cpu_seconds()?;
        for table in [Table::OneReplica, Table::TwoReplicas] {
            servers.load(table)?;
        }
        servers.leaders = servers.find_leaders()?;
        servers.version = servers.admin()?.server_version.clone();
        Ok(servers)
    }

    fn admin(&self) -> anyhow::Result<Admin> {
        let login = Login { user: "admin".to_owned(), password: String::new() };
        Ok(Admin::connect(&self.watched[0].address, &login)?)
    }

    fn find_leaders(&self) -> anyhow::Result<Leaders> {
        let rows = system_rows(&mut self.admin()?, "table_status")?;
        let leader = |table| leader(&rows, &self.names, table);
        Ok(Leaders { one: leader(Table::OneReplica)?, two: leader(Table::TwoReplicas)? })
    }

    /// Fails if a table has another leader than at the start, because queries then took other paths.
    pub(super) fn check_leaders_unchanged(&self) -> anyhow::Result<()> {
        let now = self.find_leaders()?;
        ensure!(now == self.leaders, "a table is led by another server than at first: start again");
        Ok(())
    }

    fn load(&self, table: Table) -> anyhow::Result<()> {
        let load = format!(
            "--table {} --records {} --shards 1 --replicas {} --durability soft",
            table.name(),
            self.args.records,
            table.replicas()
        );
        let common = self.common(&self.watched[0].address, "load", 0);
        let load = ycsb_load::measure(arguments::parse(&load, &common)?)?;
        if let Some(check) = load.checks.iter().find(|check| !check.ok) {
            let first = load.errors.first().map_or("no error", |error| error.first_message.as_str());
            bail!("only {} of {} documents could be loaded: {first}", check.found, check.expected);
        }
        Ok(())
    }

    /// Runs `kind` once, when both servers are quiet. Round 0 is not measured. Each round writes different values,
    /// because an update with the same ones would change nothing. Fails when a query fails.
    pub(super) fn run(&mut self, kind: &Kind, seconds: f64, round: u64) -> anyhow::Result<Run> {
        let leader = match kind.table {
            Table::OneReplica => self.leaders.one,
            Table::TwoReplicas => self.leaders.two,
        };
        let asked = if kind.asked == Recipient::Leader { leader } else { 1 - leader };
        let line = format!(
            "{} --table {} --records {} --connections {} --warmup 0 --seconds {seconds}",
            kind.words,
            kind.table.name(),
            self.args.records,
            self.args.connections
        );
        let common = self.common(&self.watched[asked].address, kind.name, round + 1);
        self.rest = self.rest.max(quiescence::wait(&self.resting));
        let around = Mark::now(&self.watched);
        let before = self.cpu_seconds()?;
        let result = ycsb_run::measure(arguments::parse(&line, &common)?)?;
        let cpu_seconds = self.cpu_seconds()? - before;
        let others_core_share = around.others_until(&Mark::now(&self.watched));
        if let Some(error) = result.errors.first() {
            bail!("{}: {}", kind.name, error.first_message);
        }
        let operation = result.operations.iter().find(|one| one.ok > 0).cloned();
        let operation = operation.with_context(|| format!("{}: no query was answered", kind.name))?;
        let cpu_us = cpu_seconds * 1e6 / operation.ok as f64;
        let name = kind.name.to_owned();
        let operation = OperationResult { name, server_cpu_us_per_operation: Some(cpu_us), ..operation };
        Ok(Run { cpu_us, cpu_seconds, others_core_share, operation, result })
    }

    /// Processor time of both since they started.
    fn cpu_seconds(&self) -> anyhow::Result<f64> {
        let used: Option<f64> = self.watched.iter().map(|server| server.sample().cpu_seconds).sum();
        used.context("the processor time of the servers cannot be read from /proc")
    }

    fn common(&self, address: &str, what: &str, turn: u64) -> Vec<String> {
        let seed = self.args.output.seed.wrapping_add(turn);
        let flags = [format!("--host={address}"), format!("--label={what}"), format!("--seed={seed}")];
        let fixed = ["--http=none", "--quiet"].map(str::to_owned);
        flags.into_iter().chain(fixed).collect()
    }
}

/// The index in `names` of the leader of the only shard of `table`, from `table_status`.
fn leader(rows: &[Value], names: &[String], table: Table) -> anyhow::Result<usize> {
    let row = rows.iter().find(|row| row["name"] == table.name());
    let leader = row.and_then(|row| row["shards"][0]["primary_replicas"][0].as_str());
    let leader = leader
        .with_context(|| format!("table_status does not report the leader of table {}", table.name()))?;
    names.iter().position(|name| name == leader).with_context(|| format!("there is no server {leader}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn leaders_are_read_from_the_status() {
        let rows = [json!({"name": "one", "shards": [{"primary_replicas": ["node1"]}]})];
        let names = ["node0", "node1"].map(str::to_owned);
        assert_eq!(leader(&rows, &names, Table::OneReplica).ok(), Some(1));
        assert!(leader(&rows, &names, Table::TwoReplicas).is_err());
        assert!(leader(&rows, &names[..1], Table::OneReplica).is_err());
    }
}
