//! The shards of the table as its configuration has them, and the queries that change them.

use anyhow::{Context, Result, bail};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::{Value, json};

use crate::harness::client::Client;

/// The table as a term.
pub(crate) const TABLE: &str = "[15,[[14,[\"test\"]],\"crash\"]]";

/// The kinds of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One shard more.
    Split,
    /// One shard less.
    Merge,
    /// Another replica becomes the leader, or the leader moves to another server.
    Move,
    /// One more replica of a shard.
    Add,
    /// One less replica of a shard.
    Remove,
    /// The same shards, divided evenly.
    Rebalance,
}

impl Kind {
    pub(crate) const ALL: [Kind; 6] =
        [Kind::Split, Kind::Merge, Kind::Move, Kind::Add, Kind::Remove, Kind::Rebalance];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Split => "split",
            Kind::Merge => "merge",
            Kind::Move => "move",
            Kind::Add => "replica added",
            Kind::Remove => "replica removed",
            Kind::Rebalance => "rebalance",
        }
    }
}

/// How far changes may go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) nodes: usize,
    /// The most shards.
    pub(crate) shards: usize,
}

/// One shard: the servers of its replicas; the first is the preferred leader.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Places(Vec<String>);

/// All shards of the table.
pub(crate) struct Layout(Vec<Places>);

impl Layout {
    /// Reads the current configuration.
    pub(crate) fn read(client: &mut Client) -> Result<Layout> {
        let answer = client.ask(&format!("[1,[174,[{TABLE}]]]"))?;
        let Some(shards) = answer["r"][0]["shards"].as_array() else {
            bail!("the table has no configuration: {answer}");
        };
        let shards = shards.iter().map(|shard| places(shard).with_context(|| format!("reading {shard}")));
        Ok(Layout(shards.collect::<Result<_>>()?))
    }

    /// A change of this kind, or of the opposite kind if that is not possible now: a description and a query.
    pub(crate) fn change(&self, kind: Kind, limits: Limits, random: &mut StdRng) -> (String, String) {
        let (shards, nodes) = (self.0.len(), limits.nodes);
        match kind {
            Kind::Split if shards < limits.shards => self.reconfigure(shards + 1),
            Kind::Merge if shards > 1 => self.reconfigure(shards - 1),
            Kind::Split => self.reconfigure(shards - 1),
            Kind::Merge => self.reconfigure(shards + 1),
            Kind::Rebalance => ("rebalance".to_owned(), format!("[1,[179,[{TABLE}]]]")),
            Kind::Move => self.moved(nodes, random),
            Kind::Add => match self.find(random, |places| places.0.len() < nodes) {
                Some(at) => self.added(at, nodes, random),
                None => self.removed(random.random_range(0..shards), random),
            },
            Kind::Remove => match self.find(random, |places| places.0.len() > 1) {
                Some(at) => self.removed(at, random),
                None => self.added(random.random_range(0..shards), nodes, random),
            },
        }
    }

    fn find(&self, random: &mut StdRng, fits: impl Fn(&Places) -> bool) -> Option<usize> {
        let fitting: Vec<usize> = (0..self.0.len()).filter(|at| fits(&self.0[*at])).collect();
        fitting.choose(random).copied()
    }

    fn reconfigure(&self, shards: usize) -> (String, String) {
        let replicas = self.0[0].0.len();
        let what = format!("{} to {shards} shards, {replicas} replicas", self.0.len());
        let query = format!("[1,[176,[{TABLE}],{{\"shards\":{shards},\"replicas\":{replicas}}}]]");
        (what, query)
    }

    /// Makes another server the leader; if it has no replica, it gets the one of the current leader.
    fn moved(&self, nodes: usize, random: &mut StdRng) -> (String, String) {
        let at = random.random_range(0..self.0.len());
        let mut after = self.0.clone();
        let places = &mut after[at].0;
        let from = places[0].clone();
        let others: Vec<String> = servers(nodes).filter(|server| *server != from).collect();
        let to = others.choose(random).cloned().unwrap_or_else(|| from.clone());
        match places.iter().position(|server| *server == to) {
            Some(there) => places.swap(0, there),
            None => places[0].clone_from(&to),
        }
        (format!("shard {at} from {from} to {to}"), written(&after))
    }

    fn added(&self, at: usize, nodes: usize, random: &mut StdRng) -> (String, String) {
        let mut after = self.0.clone();
        let free: Vec<String> = servers(nodes).filter(|server| !after[at].0.contains(server)).collect();
        let server = free.choose(random).cloned().unwrap_or_default();
        after[at].0.push(server.clone());
        (format!("shard {at} also on {server}"), written(&after))
    }

    fn removed(&self, at: usize, random: &mut StdRng) -> (String, String) {
        let mut after = self.0.clone();
        let index = random.random_range(0..after[at].0.len());
        let server = after[at].0.remove(index);
        (format!("shard {at} no longer on {server}"), written(&after))
    }
}

fn servers(nodes: usize) -> impl Iterator<Item = String> {
    (0..nodes).map(|nth| format!("n{nth}"))
}

fn places(shard: &Value) -> Option<Places> {
    let primary = shard["primary_replica"].as_str()?.to_owned();
    let replicas = shard["replicas"].as_array()?.iter().filter_map(|server| server.as_str());
    let others = replicas.filter(|server| *server != primary).map(str::to_owned);
    Some(Places(std::iter::once(primary.clone()).chain(others).collect()))
}

/// The query that changes the table to these shards.
fn written(shards: &[Places]) -> String {
    let shard = |places: &Places| json!({ "primary_replica": places.0[0], "replicas": [2, places.0], "nonvoting_replicas": [2, []] });
    let shards: Vec<Value> = shards.iter().map(shard).collect();
    json!([1, [53, [[174, [table()]], { "shards": [2, shards] }]]]).to_string()
}

fn table() -> Value {
    json!([15, [[14, ["test"]], "crash"]])
}
