//! Faults that the seed draws, one after another.

use std::time::Duration;

use cluster::TableChange;
use io::Nanos;
use io::sim::{Fault, Hang, Host, NetworkConditions};

use crate::machine::{End, SYNC_DELAYS};
use crate::scenarios::{self, Scenario};
use crate::trace::trace_line;
use crate::world::{World, desired_shards};

/// How long a scenario waits until the rows of a table are on the servers where it needs them, before it reshards the
/// table.
const REASSEMBLY_TIMEOUT: Duration = Duration::from_secs(8);
/// How often the fault schedule looks whether a scenario has ended.
const SCENARIO_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Injects a fault, or ends one; returns the time of the next.
pub(crate) fn step(world: &mut World, scenario: &mut Option<Scenario>) -> Nanos {
    if scenario.is_some() {
        return world.now().after(SCENARIO_CHECK_INTERVAL);
    }
    let count = world.machines.len() as u64;
    let nth = world.random.below(count) as usize;
    let plan = world.fault_plan;
    world.power_fails_on_ack |= plan.power_fails_on_ack && world.random.one_in(16);
    if plan.restarts && world.random.one_in(8) {
        match world.random.one_in(2) {
            true => *scenario = scenarios::divide_votes(world),
            false if world.machines[nth].running.is_some() => world.restart(nth, End::Killed),
            false => {}
        }
    }
    if plan.has_scenarios()
        && world.random.one_in(5)
        && let Some(begun) = scenarios::begin(world)
    {
        *scenario = Some(begun);
    }
    if plan.flushes_engines && world.random.one_in(6) {
        world.machines[nth].flush_engine(&world.tasks);
    }
    if scenario.is_some() {
        return world.now().after(SCENARIO_CHECK_INTERVAL);
    }
    if plan.clocks_jump && world.random.one_in(12) {
        jump(world, nth);
    }
    if plan.disks_fail && world.random.one_in(12) {
        fail_disk(world);
    }
    if plan.disks_break {
        restart_stopped_log(world);
        if world.random.one_in(10) {
            break_disk(world);
        }
    }
    match world.random.below(20) {
        0..=3 => cut(world),
        4..=6 => world.net.heal_cuts(),
        7..=10 => end(world, nth),
        11..=13 => start_any(world),
        14 if plan.disks_fail => {}
        14 => stall(world, nth),
        15 => {
            let delay = SYNC_DELAYS[world.random.below(SYNC_DELAYS.len() as u64) as usize];
            trace_line!("a sync of node {nth} takes up to {delay:?}");
            world.machines[nth].plan.disk.set_sync_delay(delay);
        }
        16 => {
            let other = world.random.below(count) as usize;
            world.net.break_between(Host(nth), Host(other));
        }
        17 => change_network_conditions(world),
        _ => reconfigure(world, nth),
    }
    let pause = world.random.below(plan.pause_max.as_micros() as u64);
    world.now().after(Duration::from_micros(pause))
}

/// Partitions the network in a random shape.
fn cut(world: &mut World) {
    let hosts: Vec<Host> = world.machines.iter().map(|machine| machine.host).collect();
    let count = hosts.len() as u64;
    let (one, other) = (hosts[world.random.below(count) as usize], hosts[world.random.below(count) as usize]);
    let half: Vec<bool> = hosts.iter().map(|_| world.random.one_in(2)).collect();
    let shape = world.random.below(5);
    trace_line!("a partition of shape {shape} with {one:?}, {other:?}, {half:?}");
    for a in &hosts {
        for b in &hosts {
            let cuts = match shape {
                // Halves; halves with one machine as a bridge; one isolated; one that only receives; one direction.
                0 => half[a.0] != half[b.0],
                1 => half[a.0] != half[b.0] && *a != one && *b != one,
                2 => (*a == one) != (*b == one),
                3 => *a == one && *b != one,
                _ => *a == one && *b == other,
            };
            if cuts && a != b {
                world.net.cut(*a, *b);
            }
        }
    }
}

fn end(world: &mut World, nth: usize) {
    let how = if world.fault_plan.loses_power && world.random.one_in(2) { End::Power } else { End::Killed };
    if world.fault_plan.loses_power && world.random.one_in(8) {
        return world.fail_all_power();
    }
    if world.machines[nth].running.is_some() {
        trace_line!("node {nth} ends: {how:?}");
        world.power_losses += u64::from(how == End::Power);
        world.machines[nth].end(how, &world.tasks, &mut world.net);
    }
}

fn start_any(world: &mut World) {
    let down: Vec<usize> =
        (0..world.machines.len()).filter(|n| world.machines[*n].running.is_none()).collect();
    if let Some(nth) = down.get(world.random.below(down.len() as u64) as usize) {
        trace_line!("node {nth} starts");
        world.machines[*nth].start(&world.tasks, &mut world.net);
    }
}

fn stall(world: &mut World, nth: usize) {
    let is_stalled = world.net.is_stalled(Host(nth));
    trace_line!("node {nth} {}", if is_stalled { "continues" } else { "is stopped" });
    world.machines[nth].set_stalled(!is_stalled, &world.tasks, &mut world.net);
}

/// Fills a disk, makes one hang, or repairs all.
fn fail_disk(world: &mut World) {
    let lasts = world.random.below(8);
    if lasts == 0 {
        trace_line!("all disks are repaired");
    }
    if lasts < 6 {
        // Otherwise several disks fail at once.
        world.machines.iter().for_each(|machine| machine.plan.disk.repair());
    }
    if lasts == 0 {
        return;
    }
    let serving: Vec<usize> =
        (0..world.machines.len()).filter(|nth| world.machines[*nth].node().is_some()).collect();
    let Some(nth) = serving.get(world.random.below(serving.len() as u64) as usize) else { return };
    let disk = &world.machines[*nth].plan.disk;
    match world.random.below(5) {
        0 | 1 => {
            trace_line!("the disk of node {nth} is full");
            disk.files.fill(true);
        }
        2 | 3 => {
            trace_line!("the disk of node {nth} hangs");
            disk.hang(Some(Hang::Everything));
        }
        _ => {
            trace_line!("the disk of node {nth} makes nothing durable");
            disk.hang(Some(Hang::Syncs));
        }
    }
}

/// Makes the next operation of some kind fail on one disk.
fn break_disk(world: &mut World) {
    let serving: Vec<usize> =
        (0..world.machines.len()).filter(|nth| world.machines[*nth].node().is_some()).collect();
    let Some(nth) = serving.get(world.random.below(serving.len() as u64) as usize) else { return };
    let fault = Fault::REPORTED[world.random.below(Fault::REPORTED.len() as u64) as usize];
    trace_line!("an operation of the disk of node {nth} will fail: {fault:?}");
    world.machines[*nth].plan.disk.files.inject(fault);
}

/// Restarts a server whose log has stopped, after a while.
fn restart_stopped_log(world: &mut World) {
    let stopped = (0..world.machines.len()).find(|nth| world.machines[*nth].has_stopped_log());
    if let Some(nth) = stopped.filter(|_| world.random.one_in(4)) {
        let how = if world.fault_plan.loses_power { End::Power } else { End::Killed };
        world.restart(nth, how);
    }
}

/// Sets a wall clock by seconds or hours, forward or back.
fn jump(world: &mut World, nth: usize) {
    let most = [1_000, 60_000, 36_000_000][world.random.below(3) as usize];
    let skew_ms = world.random.below(2 * most) as i64 - most as i64;
    trace_line!("the wall clock of node {nth} is off by {skew_ms} ms");
    world.machines[nth].plan.clock.set_skew_ms(skew_ms);
}

fn change_network_conditions(world: &mut World) {
    let random = &world.random;
    world.net.set_conditions(NetworkConditions {
        delay_max: Duration::from_millis([1, 5, 50, 200][random.below(4) as usize]),
        breaks_one_in: [0, 0, 5000, 500][random.below(4) as usize],
        unreachable_after: Duration::from_secs(5),
        ..NetworkConditions::default()
    });
}

fn reconfigure(world: &mut World, nth: usize) {
    if !world.fault_plan.reconfigures {
        return;
    }
    let tables = &world.workload.tables;
    let table = tables[world.random.below(tables.len() as u64) as usize].clone();
    let replicas = 1 + world.random.below(world.machines.len() as u64) as usize;
    let shards = if world.fault_plan.reshards { 1 + world.random.below(4) as usize } else { 1 };
    trace_line!("node {nth} is asked for {shards} shards and {replicas} replicas of {table}");
    let change = TableChange { shards: Some(desired_shards(shards, replicas)), ..TableChange::default() };
    let done = world.ask_node(nth, "reconfigure", move |node| {
        let id = node.catalog().table("test", &table).map(|table| table.config.id);
        let Some(id) = id else { return };
        let deadline = io::task::now() + REASSEMBLY_TIMEOUT;
        match node.resharder().change_table_while(id, &change, &|| io::task::now() < deadline) {
            Ok((_, after)) => tracing::info!("the table is now {:?}", after.shards),
            Err(error) => tracing::info!("the table is not reconfigured: {error}"),
        }
    });
    let process = world.machines[nth].running.as_ref().map(|running| running.process);
    world.reconfiguring.extend(process.map(|process| (process, done)));
}
