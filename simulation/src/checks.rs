//! Ends the faults, waits until the cluster has recovered, and checks the invariants: every shard has its leader and its
//! replicas, all replicas are equal, and the history of the clients is possible.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster::{Core, GroupId, Node, TableHandle, readiness};
use datum::KeyRange;
use io::sim::{Host, NetworkConditions};
use storage::{Direction, ShardRange, Table};

use crate::client::Client;
use crate::driver::Driver;
use crate::feeds;
use crate::history::{Document, Kind, Mode, Outcome, field};
use crate::invariant::{Invariant, Violation};
use crate::linearizability;
use crate::machine::{End, Machine, SYNC_DELAYS};
use crate::trace::trace_line;
use crate::world::{SOFT, World};

/// How long the cluster may take to reach the state of its catalog after the faults.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(180);
/// The longest time for which a replaced leader may serve reads: a disk that hangs is detected after four seconds, and
/// missing followers after three more.
const STALE_LEADER_MAX: Duration = Duration::from_secs(10);
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Pairs of a quorum read and a read from one replica, one of which must agree: a write that timed out may take effect
/// between the two reads of a pair.
const READ_PAIRS_MAX: usize = 3;

/// Stored rows by key.
type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Ends the faults and waits until the cluster has recovered; then reads every document.
pub(crate) fn recover(driver: &mut Driver) -> Result<(), Violation> {
    trace_line!("all faults end");
    driver.end_faults();
    driver.world.net.heal_cuts();
    driver.world.net.set_conditions(NetworkConditions {
        unreachable_after: Duration::from_secs(5),
        ..NetworkConditions::default()
    });
    for nth in 0..driver.world.machines.len() {
        if driver.world.net.is_stalled(Host(nth)) {
            driver.world.machines[nth].set_stalled(false, &driver.world.tasks, &mut driver.world.net);
        }
        driver.world.machines[nth].plan.disk.set_sync_delay(SYNC_DELAYS[0]);
        driver.world.machines[nth].plan.disk.repair();
        if driver.world.machines[nth].has_stopped_log() {
            driver.world.restart(nth, End::Killed);
        }
        if driver.world.machines[nth].running.is_none() {
            driver.world.machines[nth].start(&driver.world.tasks, &mut driver.world.net);
        }
    }
    let serve = |world: &World| {
        let removed = world.removed();
        let is_well = |machine: &Machine| machine.node().is_some() || machine.is_one_of(&removed);
        world.machines.iter().all(is_well)
    };
    driver.run_until_or(RECOVERY_TIMEOUT, serve, "all nodes serve again")?;
    let idle = |world: &World| world.clients.iter().all(Client::is_idle);
    driver.run_until_or(RECOVERY_TIMEOUT, idle, "all clients have their responses")?;
    let end = driver.world.now().after(RECOVERY_TIMEOUT);
    loop {
        let why = match unrecovered(driver)? {
            Some((invariant, why)) => {
                Some(invariant.violated(format!("not within {RECOVERY_TIMEOUT:?}: {why}")))
            }
            None => differences(&driver.world).map(|why| Invariant::Same.violated(why)),
        };
        let why = why.or_else(|| feed_difference(&driver.world).map(|why| Invariant::Feeds.violated(why)));
        let Some(why) = why else { break };
        if driver.world.now() > end {
            return Err(why);
        }
        let next = driver.world.now().after(CHECK_INTERVAL);
        driver.run_until(next, |_| false)?;
    }
    read_all(driver)
}

/// Asks the nodes for a difference between the state of the cluster and its catalog.
fn unrecovered(driver: &mut Driver) -> Result<Option<(Invariant, String)>, Violation> {
    let mut unrecovered = None;
    let groups: Vec<GroupId> = driver.world.elections.groups().into_iter().collect();
    let present = driver.world.present();
    for nth in present.iter().copied() {
        let (tables, groups) = (driver.world.workload.tables.clone(), groups.clone());
        let answer = driver.world.ask_node(nth, "look", move |node| {
            let unsettled = unsettled(node, &tables).map(|why| (Invariant::Settles, why));
            unsettled.or_else(|| extra_replica(node, &groups).map(|why| (Invariant::Same, why)))
        });
        // A node that learns of its removal ends instead.
        let is_over = |world: &World| answer.lock().is_some() || world.machines[nth].running.is_none();
        driver.run_until_or(RECOVERY_TIMEOUT, is_over, "a node reports its state")?;
        let told = answer.lock().take().flatten();
        unrecovered =
            unrecovered.or(told.map(|(invariant, why)| (invariant, format!("on node {nth}: {why}"))));
    }
    // After a restart, the catalog entry that removed a node may be in the log and not yet committed again.
    if let Some(nth) = present.iter().find(|nth| driver.world.machines[**nth].running.is_none()) {
        let why = format!("node {nth} ended as removed, and the catalog still has it");
        unrecovered = unrecovered.or(Some((Invariant::Settles, why)));
    }
    let continues = |nth: &usize| !present.contains(nth) && driver.world.machines[*nth].running.is_some();
    if let Some(nth) = (0..driver.world.machines.len()).find(continues) {
        let why = format!("node {nth} was removed and still runs");
        unrecovered = unrecovered.or(Some((Invariant::Settles, why)));
    }
    Ok(unrecovered)
}

/// The first difference between the rows of a table and the rows that a reader of its changefeed has.
fn feed_difference(world: &World) -> Option<String> {
    let node = world.present().into_iter().find_map(|nth| world.machines[nth].node())?;
    world.feeds.iter().find_map(|feed| {
        let catalog = node.catalog();
        let mut contents = BTreeMap::new();
        for handle in catalog.table("test", feed.table())?.shards() {
            let shard = world.machines.iter().find_map(|machine| machine.node()?.shard_of(handle.group()))?;
            for (key, stored) in rows(&shard).ok()? {
                let object = datum::row::decode(stored.into()).ok();
                contents.insert(key, feeds::content(object.as_ref()));
            }
        }
        feed.difference(&contents)
    })
}

/// A difference between the replicas of a shard, or rows of a shard that the catalog does not place there.
fn differences(world: &World) -> Option<String> {
    for name in &world.workload.tables {
        let mut first: BTreeMap<usize, (usize, Rows)> = BTreeMap::new();
        for nth in world.present() {
            let machine = &world.machines[nth];
            let catalog = machine.node()?.catalog();
            let Some(table) = catalog.table("test", name) else { return Some(format!("no {name}")) };
            if let Err(why) = check_no_extra_rows(machine.node()?, table) {
                return Some(format!("on node {nth}: {why}"));
            }
            for (at, handle) in table.shards().iter().enumerate() {
                let own = machine.node()?.identity().server;
                let is_placed = handle.replicas().iter().any(|replica| replica.server == own);
                let Some(near) = handle.local() else {
                    if is_placed {
                        return Some(format!("node {nth} has no replica of {name}/{at}"));
                    }
                    continue;
                };
                if !is_placed || near.is_recovering() {
                    return Some(format!("node {nth} has a replica of {name}/{at} that it should not have"));
                }
                let rows = match rows(near) {
                    Ok(rows) => rows,
                    Err(why) => return Some(why),
                };
                let (other, known) = first.entry(at).or_insert_with(|| (nth, rows.clone()));
                if *known != rows {
                    let extra = known.iter().find(|(key, row)| rows.get(*key) != Some(row));
                    return Some(format!(
                        "nodes {other} and {nth} differ in {name}/{at}: {} and {} rows, {extra:?}",
                        known.len(),
                        rows.len()
                    ));
                }
            }
        }
    }
    None
}

/// Reads every document through a client.
fn read_all(driver: &mut Driver) -> Result<(), Violation> {
    for document in documents(&driver.world) {
        let mut differs = None;
        let pairs = if has_unknown_write(&driver.world, &document) { READ_PAIRS_MAX } else { 1 };
        for _ in 0..pairs {
            differs = read_both_ways(driver, &document)?;
            if differs.is_none() {
                break;
            }
        }
        if let Some(what) = differs {
            return Err(Invariant::Same.violated(what));
        }
    }
    Ok(())
}

/// Whether the result of a write of the document is unknown.
fn has_unknown_write(world: &World, document: &Document) -> bool {
    world.history.records().iter().any(|record| {
        let is_known = matches!(record.answered, Some((_, Outcome::Done(_) | Outcome::Refused(_))));
        record.op.document == *document && !matches!(record.op.kind, Kind::Read(_)) && !is_known
    })
}

/// Reads a document from a quorum and from any one replica; returns their difference.
fn read_both_ways(driver: &mut Driver, document: &Document) -> Result<Option<String>, Violation> {
    if !read_once_more(driver, document, Mode::Majority)? {
        let last = driver.world.history.records().last().and_then(|record| record.answered.clone());
        return Err(Invariant::Settles.violated(format!("a document cannot be read: {last:?}")));
    }
    let newest = last_read(&driver.world);
    let differs = read_once_more(driver, document, Mode::Outdated)? && last_read(&driver.world) != newest;
    let any = last_read(&driver.world);
    Ok(differs.then(|| format!("an outdated read of {document:?} is {any:?}, not {newest:?}")))
}

fn last_read(world: &World) -> Option<u64> {
    match world.history.records().last()?.answered.as_ref()? {
        (_, Outcome::Done(value)) => *value,
        _ => None,
    }
}

/// Reads every document if all nodes serve, for a cluster that has not recovered.
pub(crate) fn read_available(driver: &mut Driver) -> Result<(), Violation> {
    let is_idle = |world: &World| world.clients[0].is_idle();
    let serves = |nth: &usize| driver.world.machines[*nth].node().is_some();
    if !driver.world.present().iter().all(serves) || !is_idle(&driver.world) {
        return Ok(());
    }
    for document in documents(&driver.world) {
        read_once_more(driver, &document, Mode::Majority)?;
    }
    Ok(())
}

fn documents(world: &World) -> Vec<Document> {
    let tables = world.workload.tables.iter();
    let numbers = |table: &String| {
        let table = table.clone();
        (0..world.workload.documents).map(move |number| Document { table: table.clone(), number })
    };
    let mut documents: BTreeSet<Document> = tables.flat_map(numbers).collect();
    documents.extend(world.history.by_document().into_keys());
    documents.into_iter().collect()
}

/// Reads a document through a client; returns whether the read succeeded.
fn read_once_more(driver: &mut Driver, document: &Document, mode: Mode) -> Result<bool, Violation> {
    let op = driver.world.history.ask(document.clone(), Kind::Read(mode));
    let present = driver.world.present();
    let nth = present[driver.world.random.below(present.len() as u64) as usize];
    let now = driver.world.now();
    driver.world.clients[0].send(op, now, &driver.world.machines[nth], &driver.world.tasks);
    driver.run_until_or(RECOVERY_TIMEOUT, |world| world.clients[0].is_idle(), "a document can be read")?;
    let last = driver.world.history.records().last().and_then(|record| record.answered.clone());
    Ok(matches!(last, Some((_, Outcome::Done(_)))))
}

/// Checks the results that clients received.
pub(crate) fn check_history(world: &World) -> Result<(), Violation> {
    check_answers(world)?;
    check_counts(world)
}

/// Whether the last writes of a document may be lost: soft writes are, in a power loss.
fn may_lose(world: &World, document: &Document) -> bool {
    document.table == SOFT && world.power_losses > 0
}

/// Checks that the reads of each document are possible.
pub(crate) fn check_answers(world: &World) -> Result<(), Violation> {
    for (document, records) in world.history.by_document() {
        let check =
            if may_lose(world, &document) { linearizability::check_values } else { linearizability::check };
        check(&records).map_err(|why| {
            let lines: Vec<String> = records.iter().map(|record| format!("  {record:?}")).collect();
            Invariant::Answers.violated(format!("{document:?}: {why}\n{}", lines.join("\n")))
        })?;
        if world.fault_plan.disks_fail && !may_lose(world, &document) {
            linearizability::check_age(&records, STALE_LEADER_MAX)
                .map_err(|why| Invariant::Answers.violated(format!("{document:?}: {why}")))?;
        }
    }
    Ok(())
}

/// Checks that each counter is between the acknowledged sum and the attempted one.
fn check_counts(world: &World) -> Result<(), Violation> {
    for (document, records) in world.history.by_document() {
        let count = |is: fn(&Outcome) -> bool| {
            let adds = records.iter().filter(|record| record.op.kind == Kind::Add);
            adds.filter(|r| r.answered.as_ref().is_some_and(|(_, outcome)| is(outcome))).count() as u64
        };
        let done = count(|outcome| matches!(outcome, Outcome::Done(_)));
        let least = if may_lose(world, &document) { 0 } else { done };
        let most = done + count(|outcome| matches!(outcome, Outcome::Unknown(_)));
        let stored = stored_count(world, &document);
        if !(least..=most).contains(&stored) {
            let what = format!("{document:?} counts {stored}, {least} to {most} were added");
            return Err(Invariant::Answers.violated(what));
        }
    }
    Ok(())
}

fn stored_count(world: &World, document: &Document) -> u64 {
    let holds = |node: &&std::sync::Arc<Node>| {
        let catalog = node.catalog();
        let table = catalog.table("test", &document.table)?.clone();
        let near = table.shard(&document.key()).local()?.clone();
        near.get(&document.key()).ok().map(|row| field(row.as_ref(), "count"))
    };
    let present = world.present();
    let nodes = present.iter().filter_map(|nth| world.machines[*nth].node());
    nodes.into_iter().find_map(|node| holds(&node)).unwrap_or(0)
}

/// A difference between the state of the tables on a node and its catalog.
fn unsettled(node: &Core, tables: &[String]) -> Option<String> {
    let catalog = node.catalog();
    let status = node.log().group_status(GroupId(0));
    tracing::trace!("the catalog: {status:?}");
    for name in tables {
        let Some(table) = catalog.table("test", name) else {
            return Some(format!("{name} is missing"));
        };
        for shard in &table.config.shards {
            let status = node.log().group_status(shard.group);
            tracing::trace!("{name} of catalog is {shard:?}: {status:?}");
        }
        if table.config.shards.iter().any(|shard| !shard.leaving.is_empty() || !shard.temporary.is_empty()) {
            return Some(format!("{name} has replicas that are leaving or temporary"));
        }
        if !table.config.history.sealed.is_empty() {
            return Some(format!("{name} needs earlier groups: {:?}", table.config.history));
        }
        let state = node.states().table_state(table);
        if !readiness(&state).all_replicas {
            return Some(format!("{name} is {state:?}"));
        }
    }
    None
}

/// A replica that runs where the catalog places none.
fn extra_replica(node: &Core, groups: &[GroupId]) -> Option<String> {
    let (catalog, own) = (node.catalog(), node.identity().server);
    let is_placed = |group: GroupId| {
        let tables = catalog.tables();
        let mut shards = tables.iter().flat_map(|table| &table.config.shards);
        shards.any(|shard| shard.group == group && shard.replicas.iter().any(|r| r.server == own))
    };
    let continues = |group: &&GroupId| node.log().group_status(**group).is_ok();
    let extra = groups.iter().filter(|group| group.0 > 0 && !is_placed(**group)).find(continues)?;
    Some(format!("it runs a replica of group {extra}, which that it should not have"))
}

/// Fails if there are rows of a shard that the catalog does not place on a node.
fn check_no_extra_rows(node: &Node, table: &TableHandle) -> Result<(), String> {
    let own = node.identity().server;
    for handle in table.shards() {
        if handle.replicas().iter().any(|replica| replica.server == own) {
            continue;
        }
        let part = ShardRange { range: handle.range().clone(), group: handle.group() };
        let rows = Table::new(node.replicas().store().clone(), table.config.id);
        let snapshot = rows.snapshot(part).map_err(|error| error.to_string())?;
        let mut scan = snapshot.scan(handle.range(), Direction::Ascending).to_the_end();
        let first = scan.next_batch().map_err(|error| error.to_string())?;
        if first.is_some_and(|batch| !batch.is_empty()) {
            return Err(format!("there are rows of group {}, which that it should not have", handle.group()));
        }
    }
    Ok(())
}

fn rows(shard: &shard::Shard) -> Result<Rows, String> {
    let snapshot = shard.snapshot().map_err(|error| error.to_string())?;
    let mut scan = snapshot.scan(&KeyRange::all(), Direction::Ascending).to_the_end();
    let mut rows = Rows::new();
    while let Some(batch) = scan.next_batch().map_err(|error| error.to_string())? {
        for i in 0..batch.len() {
            rows.insert(batch.key(i).as_bytes().to_vec(), batch.row_bytes(i).to_vec());
        }
    }
    let (count, stored) = (shard.count(), rows.len() as u64);
    match count == stored {
        true => Ok(rows),
        false => Err(format!("a shard of {stored} rows of group {} counts {count}", shard.group())),
    }
}
