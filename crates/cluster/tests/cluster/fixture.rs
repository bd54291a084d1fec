//! Fixtures: clusters whose servers vote on the catalog, a table on some of them, and the kinds of the requests whose
//! responses tests intercept (docs/formats/cluster-request.md).

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::Arc;

use log::{GroupId, Members};
use rekindle_cluster::{DesiredShards, ShardPlaces, TableChange, TableConfig, TableHandle, TableOptions};

use crate::hub::{Hub, Machine, Running, wait_until};

/// The request that begins a copy.
pub const COPY_BEGIN: u8 = 3;
/// The request that sets the members of a group by force.
pub const RESET_MEMBERS: u8 = 8;
/// The request for the servers that a server is connected to.
pub const CONNECTED_SERVERS: u8 = 10;
/// The request for the states of groups.
pub const STATES: u8 = 15;
/// The requests for the log position of one group, and of several.
pub const LOG_POSITION: u8 = 7;
pub const LOG_POSITIONS: u8 = 18;
/// The request for the split points of a shard.
pub const SPLIT_POINTS: u8 = 13;
/// The request that seals a group, or opens it again.
pub const SET_SEAL: u8 = 14;

/// The number of voters of the catalog, as a node's log has it.
pub fn voters(node: &Running) -> usize {
    members(node, GroupId(0)).voters.len()
}

/// Waits until the catalog has `count` voters, as a node's log has it.
#[track_caller]
pub fn wait_for_voters(node: &Running, count: usize) {
    wait_until("all voters of the catalog", || voters(node) == count);
}

/// Three servers that vote on the catalog.
pub fn three(hub: &Arc<Hub>) -> ([Machine; 3], [Running; 3]) {
    let machines = [Machine::new("a"), Machine::new("b"), Machine::new("c")];
    let a = machines[0].start(hub, None);
    let b = machines[1].start(hub, Some(&a));
    let c = machines[2].start(hub, Some(&b));
    wait_for_voters(&a, 3);
    (machines, [a, b, c])
}

/// Three servers and some more, all of which vote on the catalog.
pub fn three_and<const N: usize>(hub: &Arc<Hub>, more: [&'static str; N]) -> ([Running; 3], [Running; N]) {
    let (_machines, first) = three(hub);
    let others = more.map(|name| Machine::new(name).start(hub, Some(&first[0])));
    first.iter().chain(&others).for_each(|node| wait_for_voters(node, 3 + N));
    (first, others)
}

/// Five servers that vote on the catalog.
pub fn five(hub: &Arc<Hub>) -> [Running; 5] {
    let ([a, b, c], [d, e]) = three_and(hub, ["d", "e"]);
    [a, b, c, d, e]
}

/// The members of a group, as a node's log has them.
pub fn members(node: &Running, group: GroupId) -> Members {
    node.node.log().group_status(group).unwrap().members
}

/// Table `t`.
pub fn table(node: &Running) -> Arc<TableHandle> {
    node.node.catalog().table("test", "t").unwrap().clone()
}

/// Makes table `t`.
pub fn create(node: &Running, shards: DesiredShards) {
    let options = TableOptions { shards, ..TableOptions::default() };
    node.node.schema().create_table("test", "t", options).unwrap();
}

/// The group of the first shard of table `t`.
pub fn group(node: &Running) -> GroupId {
    table(node).shards()[0].group()
}

/// Reshards table `t`, and waits until the new shards are in the catalog.
pub fn reshard(node: &Running, shards: DesiredShards) -> TableConfig {
    let change = TableChange { shards: Some(shards), ..TableChange::default() };
    node.node.resharder().change_table(table(node).config.id, &change).unwrap().1
}

/// One shard for each list of servers: they have its voters, and the first is its primary.
pub fn on(shards: &[&[&Running]]) -> DesiredShards {
    let place = |servers: &&[&Running]| ShardPlaces {
        primary: servers[0].server(),
        replicas: servers.iter().map(|node| (node.server(), true)).collect(),
    };
    DesiredShards::Named(shards.iter().map(place).collect())
}

/// Waits until no node has anything of the earlier shards of table `t`.
pub fn wait_until_resharded(nodes: &[&Running]) {
    for node in nodes {
        wait_until("the end of the earlier groups", || {
            let table = table(node);
            let present: BTreeSet<GroupId> = table.shards().iter().map(|shard| shard.group()).collect();
            let old = (1..50).map(GroupId).filter(|group| !present.contains(group));
            table.config.history.sealed.is_empty()
                && table.config.history.waiting.is_empty()
                && old.into_iter().all(|group| node.node.log().group_status(group).is_err())
        });
        node.wait_ready("t");
    }
}

/// One shard, led by `voting`, with one more replica that does not vote.
pub fn with_nonvoting(voting: &Running, other: &Running) -> DesiredShards {
    let replicas = vec![(voting.server(), true), (other.server(), false)];
    DesiredShards::Named(vec![ShardPlaces { primary: voting.server(), replicas }])
}
