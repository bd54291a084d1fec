//! A server whose machine has died is removed permanently, as an operator does by deleting it from `server_config`. Its
//! machine starts again later with all its data, or is set up anew and joins as another server.
//!
//! A server that a quorum needs is not removed: only an operator could repair the rest.

use std::sync::Arc;
use std::time::Duration;

use cluster::{Core, GroupId, PeerId, ReplicaConfig, ServerId, readiness};
use io::Nanos;
use io::sim::Host;
use parking_lot::Mutex;

use crate::machine::End;
use crate::trace::trace_line;
use crate::world::World;

/// How long the check of the groups may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two attempts of the operator.
const RETRY_INTERVAL: Duration = Duration::from_millis(300);
/// The number of attempts of the operator.
const TRIES_MAX: u32 = 40;

/// The state of the scenario.
pub(crate) struct ServerRemoval {
    victim: usize,
    server: ServerId,
    // The machine that executes the request of the operator.
    by: usize,
    answer: Arc<Mutex<Option<bool>>>,
    phase: Phase,
    pub(super) until: Nanos,
}

enum Phase {
    /// The groups are being checked.
    Checking,
    /// The machine is off, and its removal is requested.
    Off { tries: u32 },
}

/// Begins to remove a server, if every group can do without it.
pub(super) fn begin(world: &mut World) -> Option<ServerRemoval> {
    let runs = |nth: &usize| {
        let is_out = world.machines[*nth].server.is_some_and(|server| world.removed().contains(&server));
        world.machines[*nth].node().is_some() && !world.net.is_stalled(Host(*nth)) && !is_out
    };
    let mut running: Vec<usize> = (0..world.machines.len()).filter(runs).collect();
    if running.len() < 3 || world.is_reconfiguring() {
        return None;
    }
    let victim = running.remove(world.random.below(running.len() as u64) as usize);
    let by = running[world.random.below(running.len() as u64) as usize];
    let server = world.machines[victim].server?;
    trace_line!("node {by} checks whether node {victim} can be removed");
    world.repair(&running);
    let tables = world.workload.tables.clone();
    let answer = world.ask_node(by, "check removal", move |node| can_be_removed(node, &tables, server));
    let (phase, until) = (Phase::Checking, world.now().after(CHECK_TIMEOUT));
    Some(ServerRemoval { victim, server, by, answer, phase, until })
}

pub(super) fn step(world: &mut World, mut removal: ServerRemoval) -> Option<ServerRemoval> {
    let now = world.now();
    let answer = *removal.answer.lock();
    match (&removal.phase, answer) {
        (Phase::Checking, Some(true)) => {
            trace_line!("node {} loses power", removal.victim);
            world.power_losses += 1;
            world.machines[removal.victim].end(End::Power, &world.tasks, &mut world.net);
            ask_removal(world, &mut removal);
            (removal.phase, removal.until) = (Phase::Off { tries: 0 }, now.after(RETRY_INTERVAL));
        }
        (Phase::Checking, Some(false)) => return None,
        (Phase::Off { .. }, Some(true)) => {
            trace_line!("node {} is removed from the cluster", removal.victim);
            if world.random.one_in(2) {
                set_up_anew(world, removal.victim);
            }
            if world.random.one_in(2) {
                world.machines[removal.victim].start(&world.tasks, &mut world.net);
            }
            return None;
        }
        (Phase::Off { tries }, _) if now >= removal.until && *tries < TRIES_MAX => {
            removal.phase = Phase::Off { tries: tries + 1 };
            removal.until = now.after(RETRY_INTERVAL);
            if answer == Some(false) {
                ask_removal(world, &mut removal);
            }
        }
        _ if now >= removal.until => return None,
        _ => {}
    }
    Some(removal)
}

fn ask_removal(world: &World, removal: &mut ServerRemoval) {
    let server = removal.server;
    removal.answer =
        world.ask_node(removal.by, "remove", move |node| match node.removal().remove_server(server) {
            Ok(()) => true,
            Err(error) => {
                tracing::info!("{server} is not removed: {error}");
                node.catalog().is_removed(server)
            }
        });
}

/// Gives the machine an empty disk; it will join as a new server.
fn set_up_anew(world: &mut World, nth: usize) {
    trace_line!("node {nth} is set up anew");
    let others = world.addresses().into_iter().enumerate().filter(|(other, _)| *other != nth);
    let join = others.map(|(_, address)| address).collect();
    world.machines[nth].set_up_anew(&world.random, join);
}

/// Whether every group works without the server: it has no replica there, or two of three or more are left.
fn can_be_removed(node: &Core, tables: &[String], server: ServerId) -> bool {
    let votes = |group: GroupId, replicas: &[ReplicaConfig]| {
        let Ok(status) = node.log().group_status(group) else { return false };
        let mut named: Vec<PeerId> = replicas.iter().filter(|r| r.voting).map(|r| r.peer).collect();
        let mut voters = status.members.voters;
        named.sort_unstable();
        voters.sort_unstable();
        voters.len() > 2 && voters == named
    };
    let catalog = node.catalog();
    let of_catalog: Vec<ReplicaConfig> = catalog.servers().iter().map(|server| server.catalog).collect();
    votes(GroupId(0), &of_catalog)
        && tables.iter().all(|name| {
            let Some(table) = catalog.table("test", name) else { return false };
            let is_safe = |shard: &cluster::ShardConfig| {
                let has_it = shard.replicas.iter().any(|replica| replica.server == server);
                shard.leaving.is_empty() && (!has_it || votes(shard.group, &shard.replicas))
            };
            table.config.shards.iter().all(is_safe)
                && readiness(&node.states().table_state(table)).all_replicas
        })
}
