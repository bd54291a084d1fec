//! The faults: leaders are killed, servers of feeds are stopped, and shards are split, merged and moved.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use super::shared::{Shared, table};
use crate::harness::client::Client;
use crate::harness::cluster::Cluster;
use crate::workload::layout::{Kind, Layout, Limits};

const READY_TIMEOUT: Duration = Duration::from_secs(120);
/// Changes that are made while a killed node is away, and how long they may take.
const CHANGES_WHILE_AWAY: u64 = 300;
const AWAY_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a change of shards is tried while it is refused because an earlier one still runs.
const RESHARD_TRIES: usize = 60;
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const SHARDS_MAX: usize = 5;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// `kill -9` of a leader.
    Kill,
    /// A server is stopped and started again.
    Restart,
    /// Shards are split, merged or moved.
    Reshard,
}

/// The cluster whose nodes have faults.
pub(super) struct Faults<'a> {
    pub(super) cluster: Cluster,
    pub(super) shared: &'a Shared,
    pub(super) random: StdRng,
}

impl Faults<'_> {
    /// A connection to a node that runs.
    pub(super) fn client(&mut self) -> Result<Client> {
        let node = self.shared.nodes.any(&mut self.random);
        Client::connect_for(node.driver, READY_TIMEOUT)
    }

    /// Injects one fault, and waits until all replicas are ready again.
    pub(super) fn inject(&mut self, trouble: Trouble) -> Result<()> {
        let began = Instant::now();
        let what = match trouble {
            Trouble::Kill => self.kill_leader()?,
            Trouble::Restart => self.restart_node()?,
            Trouble::Reshard => self.reshard()?,
        };
        wait_until_ready(&mut self.client()?).with_context(|| format!("after {what}"))?;
        println!("feeds:   {what}, ready after {:.2?}", began.elapsed());
        Ok(())
    }

    fn kill_leader(&mut self) -> Result<String> {
        let status = self.client()?.ask(&json!([1, [175, [table()]]]).to_string())?;
        let shards = status["r"][0]["shards"].as_array().cloned().unwrap_or_default();
        let leads = |shard: &Value| {
            let name = shard["primary_replicas"][0].as_str()?;
            name.strip_prefix('n')?.parse::<usize>().ok()
        };
        let leaders: Vec<usize> = shards.iter().filter_map(leads).collect();
        let Some(nth) = leaders.get(self.random.random_range(0..leaders.len().max(1))).copied() else {
            bail!("the table has no leader: {status}");
        };
        self.shared.nodes.stopping(nth);
        self.cluster.kill(nth)?;
        self.wait_for_changes(CHANGES_WHILE_AWAY, Instant::now() + AWAY_TIMEOUT);
        self.cluster.start_node(nth)?;
        self.shared.nodes.started(nth);
        Ok(format!("killed n{nth}"))
    }

    fn restart_node(&mut self) -> Result<String> {
        let nth = self.random.random_range(0..self.cluster.drivers().len());
        self.shared.nodes.stopping(nth);
        self.cluster.stop_node(nth)?;
        self.cluster.start_node(nth)?;
        self.shared.nodes.started(nth);
        Ok(format!("restarted n{nth}"))
    }

    fn reshard(&mut self) -> Result<String> {
        let kind = [Kind::Split, Kind::Merge, Kind::Move, Kind::Move, Kind::Rebalance]
            [self.random.random_range(0..5)];
        let limits = Limits { nodes: self.cluster.drivers().len(), shards: SHARDS_MAX };
        let mut client = self.client()?;
        let mut last = Value::Null;
        for _ in 0..RESHARD_TRIES {
            let (what, query) = Layout::read(&mut client)?.change(kind, limits, &mut self.random);
            let answer = client.ask(&query)?;
            if answer["t"] == 1 && answer["r"][0]["errors"].as_u64().unwrap_or(0) == 0 {
                return Ok(what);
            }
            last = answer;
            thread::sleep(POLL_INTERVAL);
        }
        bail!("{} was refused {RESHARD_TRIES} times: {last}", kind.name())
    }

    /// Waits until this many more changes were acknowledged, or the deadline.
    pub(super) fn wait_for_changes(&self, count: u64, deadline: Instant) {
        let enough = self.shared.writes.changes() + count;
        while self.shared.writes.changes() < enough
            && Instant::now() < deadline
            && !self.shared.tally.has_too_many()
        {
            thread::sleep(POLL_INTERVAL.min(deadline.saturating_duration_since(Instant::now())));
        }
    }
}

/// Waits until all replicas of the table are ready.
pub(super) fn wait_until_ready(client: &mut Client) -> Result<()> {
    let options = json!({ "wait_for": "all_replicas_ready", "timeout": READY_TIMEOUT.as_secs() });
    succeed(client, &json!([177, [table()], options]))
}

/// Runs a term. Fails if the response is not a success.
pub(super) fn succeed(client: &mut Client, term: &Value) -> Result<()> {
    let answer = client.ask(&json!([1, term]).to_string())?;
    match answer["t"] == 1 {
        true => Ok(()),
        false => bail!("{term} was answered with {answer}"),
    }
}
