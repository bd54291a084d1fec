//! A server whose machine has died is removed for good, as an operator does who deletes it from
//! `server_config`. Its machine starts again later all the same, with everything that it had; or it is set
//! up anew, and joins as another server.
//!
//! Nobody is removed whom a majority needs: what would be left then only an operator can repair.

use std::sync::Arc;
use std::time::Duration;

use cluster::{Core, GroupId, PeerId, ReplicaConfig, ServerId, readiness};
use io::Nanos;
use io::sim::Host;
use parking_lot::Mutex;

use crate::machine::End;
use crate::trace::say;
use crate::world::World;

/// How long it may take until nobody is needed.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two attempts of the operator.
const PAUSE: Duration = Duration::from_millis(300);
/// How long the operator goes on trying.
const TRIALS: u32 = 40;

/// The scheme.
pub(crate) struct ServerRemoval {
    victim: usize,
    server: ServerId,
    // Whom the operator asks.
    by: usize,
    answer: Arc<Mutex<Option<bool>>>,
    scene: Scene,
    pub(super) until: Nanos,
}

enum Scene {
    /// Whether it can be spared is asked.
    Asked,
    /// It is off, and its removal is asked for.
    Off { trials: u32 },
}

/// Begins to remove a server, if it can be spared.
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
    let Some(server) = world.machines[victim].server else { return None };
    say!("whether node {victim} can be spared is asked of {by}");
    world.repair(&running);
    let tables = world.workload.tables.clone();
    let answer = world.ask_node(by, "spare", move |node| can_be_spared(node, &tables, server));
    let (scene, until) = (Scene::Asked, world.now().after(PATIENCE));
    Some(ServerRemoval { victim, server, by, answer, scene, until })
}

pub(super) fn step(world: &mut World, mut removal: ServerRemoval) -> Option<ServerRemoval> {
    let now = world.now();
    let answer = *removal.answer.lock();
    match (&removal.scene, answer) {
        (Scene::Asked, Some(true)) => {
            say!("node {} dies", removal.victim);
            world.power_losses += 1;
            world.machines[removal.victim].end(End::Power, &world.tasks, &mut world.net);
            ask_removal(world, &mut removal);
            (removal.scene, removal.until) = (Scene::Off { trials: 0 }, now.after(PAUSE));
        }
        (Scene::Asked, Some(false)) => return None,
        (Scene::Off { .. }, Some(true)) => {
            say!("node {} is removed from the cluster", removal.victim);
            if world.random.one_in(2) {
                set_up_anew(world, removal.victim);
            }
            if world.random.one_in(2) {
                world.machines[removal.victim].start(&world.tasks, &mut world.net);
            }
            return None;
        }
        (Scene::Off { trials }, _) if now >= removal.until && *trials < TRIALS => {
            removal.scene = Scene::Off { trials: trials + 1 };
            removal.until = now.after(PAUSE);
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
    removal.answer = world.ask_node(removal.by, "remove", move |node| match node.remove_server(server) {
        Ok(()) => true,
        Err(error) => {
            tracing::info!("{server} is not removed: {error}");
            node.catalog().is_removed(server)
        }
    });
}

/// The machine gets an empty disk; it will join the others as a server that nobody knows.
fn set_up_anew(world: &mut World, nth: usize) {
    say!("node {nth} is set up anew");
    let others = world.addresses().into_iter().enumerate().filter(|(other, _)| *other != nth);
    let join = others.map(|(_, address)| address).collect();
    world.machines[nth].set_up_anew(&world.random, join);
}

/// Whether every group goes on without the server: it has none, or two of three and more are left.
fn can_be_spared(node: &Core, tables: &[String], server: ServerId) -> bool {
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
            let is_spared = |shard: &cluster::ShardConfig| {
                let has_it = shard.replicas.iter().any(|replica| replica.server == server);
                shard.leaving.is_empty() && (!has_it || votes(shard.group, &shard.replicas))
            };
            table.config.shards.iter().all(is_spared) && readiness(&node.table_state(table)).all_replicas
        })
}
