//! Sequences of faults in their worst order, which random faults hardly ever produce. No other fault happens while a
//! scenario runs.

mod divided_votes;
mod interrupted_copy;
mod interrupted_reshard;
mod lost_soft_write;
mod removed_restart;
mod server_removal;

use std::time::Duration;

use cluster::ServerId;
use io::Nanos;
use io::sim::Host;
use log::GroupId;

use crate::world::World;

use divided_votes::DividedVotes;
use interrupted_copy::InterruptedCopy;
use interrupted_reshard::InterruptedReshard;
use lost_soft_write::LostSoftWrite;
use removed_restart::RemovedRestart;
use server_removal::ServerRemoval;

/// By then a response has left the machine, and the state that it promises is durable.
const ANSWERED: Duration = Duration::from_millis(30);

/// The scenario that runs.
pub(crate) enum Scenario {
    /// A replica votes, restarts without its vote, and receives the request of another candidate.
    DividedVotes(DividedVotes),
    /// A replica is removed, and its server restarts with an older catalog.
    RemovedRestart(RemovedRestart),
    /// An applied soft write is lost by the replicas that continue.
    LostSoftWrite(LostSoftWrite),
    /// A server is removed permanently.
    ServerRemoval(ServerRemoval),
    /// A table is resharded by a server that restarts with the older layout.
    InterruptedReshard(InterruptedReshard),
    /// A copy of rows is interrupted.
    InterruptedCopy(InterruptedCopy),
}

impl Scenario {
    /// When the scenario's next step is due without any event.
    pub(crate) fn until(&self) -> Nanos {
        match self {
            Scenario::DividedVotes(votes) => votes.until,
            Scenario::RemovedRestart(restart) => restart.until,
            Scenario::LostSoftWrite(write) => write.until,
            Scenario::ServerRemoval(removal) => removal.until,
            Scenario::InterruptedReshard(reshard) => reshard.until,
            Scenario::InterruptedCopy(copy) => copy.until,
        }
    }
}

/// A group of three replicas on machines that run.
struct ThreeReplicas {
    group: GroupId,
    leader: usize,
    others: [usize; 2],
}

/// Begins one of the scenarios of the fault plan, if the cluster is in the state that it needs.
pub(crate) fn begin(world: &mut World) -> Option<Scenario> {
    let plan = world.fault_plan;
    match world.random.below(5) {
        0 if plan.restarts_removed => removed_restart::begin(world).map(Scenario::RemovedRestart),
        1 if plan.loses_soft_writes => lost_soft_write::begin(world).map(Scenario::LostSoftWrite),
        2 if plan.removes_servers => server_removal::begin(world).map(Scenario::ServerRemoval),
        3 if plan.interrupts_reshards => interrupted_reshard::begin(world).map(Scenario::InterruptedReshard),
        4 if plan.interrupts_copies => interrupted_copy::begin(world).map(Scenario::InterruptedCopy),
        _ => None,
    }
}

/// Begins to divide the votes of a shard's replicas.
pub(crate) fn divide_votes(world: &mut World) -> Option<Scenario> {
    divided_votes::begin(world).map(Scenario::DividedVotes)
}

/// Takes the next step of a scenario, if it can; `None` at its end.
pub(crate) fn step(world: &mut World, scenario: Scenario) -> Option<Scenario> {
    let next = match scenario {
        Scenario::DividedVotes(votes) => divided_votes::step(world, votes).map(Scenario::DividedVotes),
        Scenario::RemovedRestart(restart) => {
            removed_restart::step(world, restart).map(Scenario::RemovedRestart)
        }
        Scenario::LostSoftWrite(write) => lost_soft_write::step(world, write).map(Scenario::LostSoftWrite),
        Scenario::ServerRemoval(removal) => server_removal::step(world, removal).map(Scenario::ServerRemoval),
        Scenario::InterruptedReshard(reshard) => {
            interrupted_reshard::step(world, reshard).map(Scenario::InterruptedReshard)
        }
        Scenario::InterruptedCopy(copy) => interrupted_copy::step(world, copy).map(Scenario::InterruptedCopy),
    };
    if next.is_none() {
        world.net.heal_cuts();
    }
    next
}

/// A group of three of one of `tables` whose machines run.
fn three_replicas(world: &World, tables: &[String]) -> Option<ThreeReplicas> {
    let place = |id: ServerId| {
        let is_it = |nth: &usize| {
            world.machines[*nth].node().is_some_and(|node| node.identity().server == id)
                && !world.net.is_stalled(Host(*nth))
        };
        (0..world.machines.len()).find(is_it)
    };
    for (nth, machine) in world.machines.iter().enumerate() {
        let Some(node) = machine.node() else { continue };
        let catalog = node.catalog();
        let tables = tables.iter().filter_map(|table| catalog.table("test", table));
        for handle in tables.flat_map(|table| table.shards()) {
            let leads = handle.local().is_some_and(|near| near.is_leader());
            let places: Option<Vec<usize>> =
                handle.replicas().iter().map(|replica| place(replica.server)).collect();
            if let (true, Some(places)) = (leads, places)
                && let [one, other] = places.iter().copied().filter(|at| *at != nth).collect::<Vec<_>>()[..]
                && places.len() == 3
            {
                return Some(ThreeReplicas { group: handle.group(), leader: nth, others: [one, other] });
            }
        }
    }
    None
}
