//! Clusters that ran before the sweep: the addresses of their servers, the login, and which of their tables must not be
//! replaced.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail};
use clap::Args;
use client::admin::{Admin, AskError};
use client::dial::DialError;
use client::handshake::Login;
use client::terms;
use serde_json::Value;

use crate::flags;
use crate::machine::watch;
use crate::ycsb::settings::DATABASE;
use crate::ycsb::table::side_table;

/// The table that the load creates.
pub(super) const TABLE: &str = "usertable";
/// The driver port of addresses without one.
const DRIVER_PORT: u16 = 28015;

/// Flags about running clusters.
#[derive(Args, Clone, Debug)]
pub(super) struct ExistingClusterFlags {
    /// Driver addresses of all servers of a running cluster (comma list); once per cluster. Then nothing is
    /// started, and its size is the number of addresses
    #[arg(long, value_name = "HOST:PORT,…",
          conflicts_with_all = ["nodes", "target_binary", "node_flag", "port_offset", "cache_size", "core_share"])]
    cluster: Vec<String>,
    /// Replace the table ycsb.usertable of a --cluster that has one
    #[arg(long, requires = "cluster")]
    drop: bool,
    /// User that logs in to the servers of --cluster
    #[arg(long, default_value = "admin", requires = "cluster")]
    user: String,
    /// Password of the user
    #[arg(long, default_value = "", hide_default_value = true, requires = "cluster")]
    password: String,
    /// Metrics page of a server of --cluster, as a whole URL or the HOST:PORT of its HTTP port; one for each server, in
    /// the order of the addresses. Processor time and bytes of servers on other machines are read there
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', requires = "cluster")]
    http: Vec<String>,
}

/// A running cluster.
#[derive(Clone, Debug)]
pub(super) struct ExistingCluster {
    /// Host and driver port of each server.
    pub(super) addresses: Vec<String>,
    /// The metrics page of each, if given.
    pub(super) pages: Vec<Option<String>>,
}

impl ExistingClusterFlags {
    /// Whether existing tables may be replaced.
    pub(super) fn may_drop(&self) -> bool {
        self.drop
    }

    pub(super) fn login(&self) -> Login {
        Login { user: self.user.clone(), password: self.password.clone() }
    }

    /// The given clusters. Fails if two have the same size, because the result of a size would be ambiguous.
    pub(super) fn clusters(&self) -> anyhow::Result<Vec<ExistingCluster>> {
        let mut pages = self.http.iter().map(|page| metrics_page(page));
        let mut clusters: Vec<ExistingCluster> = Vec::new();
        for hosts in &self.cluster {
            let hosts = hosts.split(',').map(str::trim);
            let addresses: Vec<String> =
                hosts.clone().map(|host| flags::with_port(host, DRIVER_PORT)).collect();
            if hosts.clone().any(str::is_empty) {
                bail!("--cluster {}: an address is empty", self.cluster.join(" --cluster "));
            }
            let pages = addresses.iter().map(|_| pages.next()).collect();
            clusters.push(ExistingCluster { addresses, pages });
        }
        let servers: usize = clusters.iter().map(|cluster| cluster.addresses.len()).sum();
        if !self.http.is_empty() && self.http.len() != servers {
            bail!(
                "--http: {} pages for {servers} servers; give one for each, in their order",
                self.http.len()
            );
        }
        let mut sizes: Vec<usize> = clusters.iter().map(|cluster| cluster.addresses.len()).collect();
        sizes.sort_unstable();
        match sizes.windows(2).find(|two| two[0] == two[1]) {
            Some(two) => bail!(
                "--cluster: two clusters have {} servers, a sweep compares sizes: leave one out",
                two[0]
            ),
            None => Ok(clusters),
        }
    }

    /// Queries all servers of `clusters`. Fails, before anything is changed, if one does not answer, if two clusters
    /// are the same, if a metrics page is not served, or if the sweep's table exists and must not be replaced.
    pub(super) fn check(&self, clusters: &[ExistingCluster]) -> anyhow::Result<()> {
        for cluster in clusters {
            cluster.all_answer(&self.login())?;
        }
        self.check_complete(clusters)?;
        for cluster in clusters {
            if let Some(page) = cluster.pages.iter().flatten().find(|page| !watch::serves_metrics(page)) {
                bail!("--http: no metrics page is served at {page}");
            }
            match cluster.existing_table(&self.login())? {
                Some(table) if !self.drop => bail!(
                    "--cluster {}: the table {DATABASE}.{table} exists already, and a sweep makes a new one; say --drop \
                     if it may be replaced",
                    cluster.addresses.join(",")
                ),
                _ => {}
            }
        }
        Ok(())
    }

    /// Fails if the addresses of `clusters` do not list every server exactly once: a sweep compares sizes, and
    /// sums up the use of all servers. A missing server goes unnoticed if this login may not read the list of servers.
    fn check_complete(&self, clusters: &[ExistingCluster]) -> anyhow::Result<()> {
        let mut known: BTreeMap<String, &str> = BTreeMap::new();
        for cluster in clusters {
            let given = cluster.addresses.join(",");
            let mut servers = cluster.servers(&self.login())?;
            for address in &cluster.addresses {
                let (_, id) = connect(address, &self.login())?.server_info()?;
                let id =
                    id.with_context(|| format!("--cluster: {address} does not say which server it is"))?;
                let is_member = servers.as_mut().is_none_or(|servers| servers.remove(&id));
                if let Some(other) = known.insert(id, address) {
                    bail!("--cluster: {other} and {address} are one server; leave one out");
                }
                if !is_member {
                    let first = &cluster.addresses[0];
                    bail!(
                        "--cluster {given}: {address} is a proxy, or not in the cluster of {first}; leave it out"
                    );
                }
            }
            if let Some(servers) = servers.filter(|servers| !servers.is_empty()) {
                let (all, here) = (cluster.addresses.len() + servers.len(), cluster.addresses.len());
                bail!(
                    "--cluster {given}: the cluster has {all} servers, not {here}; give the addresses of all"
                );
            }
        }
        Ok(())
    }
}

impl ExistingCluster {
    /// Fails if a server rejects this login.
    fn all_answer(&self, login: &Login) -> anyhow::Result<()> {
        self.addresses.iter().try_for_each(|address| connect(address, login).map(drop))
    }

    /// The ids of the connected servers of its cluster; `None` if this login may not read them.
    fn servers(&self, login: &Login) -> anyhow::Result<Option<BTreeSet<String>>> {
        let query = terms::map_field(terms::table("rethinkdb", "server_status"), "id");
        match connect(&self.addresses[0], login)?.ask(&query) {
            Ok(ids) => serde_json::from_value(ids).map(Some).context("the ids in rethinkdb.server_status"),
            Err(AskError::Failed(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The table that a load would replace, or its side table, if there is one.
    fn existing_table(&self, login: &Login) -> anyhow::Result<Option<String>> {
        let mut admin = connect(&self.addresses[0], login)?;
        let lists = |names: &Value, name: &str| {
            names.as_array().is_some_and(|names| names.iter().any(|known| known == name))
        };
        if !lists(&admin.ask(&terms::db_list())?, DATABASE) {
            return Ok(None);
        }
        let tables = admin.ask(&terms::table_list(DATABASE))?;
        Ok([TABLE.to_owned(), side_table(TABLE)].into_iter().find(|name| lists(&tables, name)))
    }
}

/// Connects to a server. An error names the flags of a sweep.
pub(super) fn connect(address: &str, login: &Login) -> anyhow::Result<Admin> {
    match Admin::connect(address, login) {
        Ok(admin) => Ok(admin),
        Err(DialError::Unreachable { source, .. }) => {
            Err(source).with_context(|| format!("--cluster: no server answers at {address}"))
        }
        Err(DialError::Greeting { source, .. }) => Err(source).with_context(|| {
            format!("--cluster: could not log in at {address} (check --user and --password)")
        }),
    }
}

fn metrics_page(given: &str) -> String {
    if given.contains("://") { given.to_owned() } else { format!("http://{given}/metrics") }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// Parses the flags of a sweep, some of which conflict with --cluster.
    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        sweep: super::super::SweepArgs,
    }

    fn clusters(words: &str) -> anyhow::Result<Vec<ExistingCluster>> {
        let line = Line::try_parse_from(std::iter::once("sweep").chain(words.split(' ')))?;
        line.sweep.given.clusters()
    }

    #[track_caller]
    fn refused(words: &str, with: &str) {
        let why = format!("{:#}", clusters(words).expect_err("it is refused"));
        assert!(why.contains(with), "{why}");
    }

    #[test]
    fn pages_belong_to_servers_in_their_order() {
        let words = "--cluster a:1 --cluster b,c:3 --http a:8080,https://b/x --http c:9";
        let given = clusters(words).expect("given");
        let of = |nth: usize| (given[nth].addresses.join(" "), given[nth].pages.clone());
        assert_eq!(of(0), ("a:1".to_owned(), vec![Some("http://a:8080/metrics".to_owned())]));
        let pages = vec![Some("https://b/x".to_owned()), Some("http://c:9/metrics".to_owned())];
        assert_eq!(of(1), ("b:28015 c:3".to_owned(), pages));
        refused("--cluster a:1,b:2 --http a:8080", "1 pages for 2 servers");
    }

    #[test]
    fn contradictory_flags_are_refused() {
        refused("--cluster a:1,b:1 --cluster c:1,d:1", "two clusters have 2 servers");
        refused("--cluster a:1, --cluster c:1", "an address is empty");
        refused("--cluster=", "an address is empty");
        refused("--cluster a:1 --target-binary /bin/false", "cannot be used with");
        refused("--cluster a:1 --node-flag=-c1", "cannot be used with");
        refused("--drop", "--cluster");
        refused("--password x", "--cluster");
    }
}
