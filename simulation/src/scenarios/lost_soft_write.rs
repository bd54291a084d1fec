//! Two of three replicas have applied a soft write, and the two that continue do not have it: one never got it, the other
//! lost it in a power loss. The third must discard the rows that it built on the write.

use std::time::Duration;

use io::Nanos;

use super::{ThreeReplicas, three_replicas};
use crate::history::{Document, Kind};
use crate::machine::{End, SYNC_DELAYS};
use crate::trace::trace_line;
use crate::world::{SOFT, World};

/// How long the write may take.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);
/// By then the third replica knows that two have the write; a slow disk may not have it yet.
const REPLICATION: Duration = Duration::from_millis(110);
/// How long the other two are alone: some elections.
const ELECTIONS: Duration = Duration::from_secs(5);
/// Documents from this number on are written once, so that no later write hides the loss.
const ONCE: u64 = 1_000_000;

/// The state of the scenario.
pub(crate) struct LostSoftWrite {
    leader: usize,
    /// The other replica that has the write.
    with_write: usize,
    phase: Phase,
    pub(super) until: Nanos,
}

enum Phase {
    Sent,
    /// The write was acknowledged by two.
    Done,
    /// The replicas without the write elect a leader.
    Without,
}

/// Sends a write that will be lost to a soft shard of three replicas.
pub(super) fn begin(world: &mut World) -> Option<LostSoftWrite> {
    let three = three_replicas(world, &[SOFT.to_owned()])?;
    let ThreeReplicas { group, leader, others: [mut with_write, mut without_write] } = three;
    if world.random.one_in(2) {
        (with_write, without_write) = (without_write, with_write);
    }
    let document = document_in(world, leader, group)?;
    let client = world.scenario_client.filter(|client| world.clients[*client].is_idle())?;
    trace_line!("{document:?} goes to nodes {leader} and {with_write} and will be lost by {leader}");
    world.repair(&[leader, with_write, without_write]);
    world.machines[leader].plan.disk.set_sync_delay(SYNC_DELAYS[3]);
    world.isolate(without_write, None);
    let op = world.history.ask(document, Kind::Put);
    let now = world.now();
    world.clients[client].send(op, now, &world.machines[leader], &world.tasks);
    let until = now.after(WRITE_TIMEOUT);
    Some(LostSoftWrite { leader, with_write, phase: Phase::Sent, until })
}

/// An unused document of `group`.
fn document_in(world: &World, leader: usize, group: log::GroupId) -> Option<Document> {
    let catalog = world.machines[leader].node()?.catalog();
    let table = catalog.table("test", SOFT)?;
    let first = ONCE + world.history.records().len() as u64;
    let documents = (first..first + 100).map(|number| Document { table: SOFT.to_owned(), number });
    documents.into_iter().find(|document| table.shard(&document.key()).group() == group)
}

pub(super) fn step(world: &mut World, mut write: LostSoftWrite) -> Option<LostSoftWrite> {
    let now = world.now();
    let is_answered = world.scenario_client.is_some_and(|client| world.clients[client].is_idle());
    match write.phase {
        Phase::Sent if is_answered => {
            (write.phase, write.until) = (Phase::Done, now.after(REPLICATION));
            // Sometimes its engine flushes, which has to wait for the slow log.
            if world.random.one_in(3) {
                world.machines[write.leader].flush_engine(&world.tasks);
            }
        }
        Phase::Done if now >= write.until => {
            world.net.heal_cuts();
            world.isolate(write.with_write, None);
            world.restart(write.leader, End::Power);
            world.machines[write.leader].plan.disk.set_sync_delay(SYNC_DELAYS[0]);
            (write.phase, write.until) = (Phase::Without, now.after(ELECTIONS));
        }
        Phase::Sent | Phase::Without if now >= write.until => return None,
        Phase::Sent | Phase::Done | Phase::Without => {}
    }
    Some(write)
}
