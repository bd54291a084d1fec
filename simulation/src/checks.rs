//! What must hold when everything works again: there are leaders, everybody has everything, all
//! replicas are the same, and what clients were told can be explained.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster::{Core, GroupId, Node, TableHandle, readiness};
use datum::KeyRange;
use io::sim::{Host, NetworkConditions};
use storage::{Direction, ShardRange, Table};

use crate::client::Client;
use crate::driver::Driver;
use crate::history::{Document, Kind, Mode, Outcome, field};
use crate::invariant::{Broken, Promise};
use crate::linearizability;
use crate::machine::{Machine, PACES};
use crate::trace::say;
use crate::world::{SOFT, World};

/// How long a cluster that works may take to become as its catalog says.
const RECOVERY: Duration = Duration::from_secs(180);
/// A leader that is replaced does not answer for longer: a disk that hangs is noticed after four seconds, and that nobody
/// answers after three more.
const AGE_MOST: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(500);
/// Pairs of reads, from a majority and from one replica, of which one must agree: a write that a client gave up
/// may be done between the two.
const READS_THAT_MAY_DIFFER: usize = 3;

/// Rows by key, as they are stored.
type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Ends the storm, and waits until all is as it should be.
pub(crate) fn recover(driver: &mut Driver) -> Result<(), Broken> {
    say!("peace");
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
        driver.world.machines[nth].plan.disk.set_pace(PACES[0]);
        driver.world.machines[nth].plan.disk.mend();
        if driver.world.machines[nth].life.is_none() {
            driver.world.machines[nth].start(&driver.world.tasks, &mut driver.world.net);
        }
    }
    let serve = |world: &World| {
        let removed = world.removed();
        let is_well = |machine: &Machine| machine.node().is_some() || machine.is_one_of(&removed);
        world.machines.iter().all(is_well)
    };
    driver.run_until_or(RECOVERY, serve, "all nodes serve again")?;
    let idle = |world: &World| world.clients.iter().all(Client::is_idle);
    driver.run_until_or(RECOVERY, idle, "all clients are answered")?;
    let end = driver.world.now().after(RECOVERY);
    loop {
        let why = match unrecovered(driver)? {
            Some((promise, why)) => Some(promise.broken(format!("not within {RECOVERY:?}: {why}"))),
            None => differences(&driver.world).map(|why| Promise::Same.broken(why)),
        };
        let Some(why) = why else { break };
        if driver.world.now() > end {
            return Err(why);
        }
        let next = driver.world.now().after(LOOK);
        driver.run_until(next, |_| false)?;
    }
    read_all(driver)
}

/// What keeps the cluster from being as its catalog says; asks the nodes.
fn unrecovered(driver: &mut Driver) -> Result<Option<(Promise, String)>, Broken> {
    let mut unrecovered = None;
    let groups: Vec<GroupId> = driver.world.elections.groups().into_iter().collect();
    let present = driver.world.present();
    for nth in present.iter().copied() {
        let (tables, groups) = (driver.world.workload.tables.clone(), groups.clone());
        let answer = driver.world.ask_node(nth, "look", move |node| {
            let unsettled = unsettled(node, &tables).map(|why| (Promise::Settles, why));
            unsettled.or_else(|| odd_replica(node, &groups).map(|why| (Promise::Same, why)))
        });
        // Or it is told that it was removed, and ends.
        let is_over = |world: &World| answer.lock().is_some() || world.machines[nth].life.is_none();
        driver.run_until_or(RECOVERY, is_over, "a node says how it is")?;
        let told = answer.lock().take().flatten();
        unrecovered = unrecovered.or(told.map(|(promise, why)| (promise, format!("on node {nth}: {why}"))));
    }
    // What removed a node may be ordered and not committed again after a restart.
    if let Some(nth) = present.iter().find(|nth| driver.world.machines[**nth].life.is_none()) {
        let why = format!("node {nth} was told that it was removed, and the catalog has it");
        unrecovered = unrecovered.or(Some((Promise::Settles, why)));
    }
    let goes_on = |nth: &usize| !present.contains(nth) && driver.world.machines[*nth].life.is_some();
    if let Some(nth) = (0..driver.world.machines.len()).find(goes_on) {
        let why = format!("node {nth} was removed and is not told so");
        unrecovered = unrecovered.or(Some((Promise::Settles, why)));
    }
    Ok(unrecovered)
}

/// Replicas of one shard that are not the same, and rows where none should be.
fn differences(world: &World) -> Option<String> {
    for name in &world.workload.tables {
        let mut first: BTreeMap<usize, (usize, Rows)> = BTreeMap::new();
        for nth in world.present() {
            let machine = &world.machines[nth];
            let catalog = machine.node()?.catalog();
            let Some(table) = catalog.table("test", name) else { return Some(format!("no {name}")) };
            if let Err(why) = no_strangers(machine.node()?, table) {
                return Some(format!("on node {nth}: {why}"));
            }
            for (at, handle) in table.shards().iter().enumerate() {
                let own = machine.node()?.identity().server;
                let is_placed = handle.replicas().iter().any(|replica| replica.server == own);
                let Some(near) = handle.near() else {
                    if is_placed {
                        return Some(format!("node {nth} has no replica of {name}/{at}"));
                    }
                    continue;
                };
                if !is_placed || near.is_recovering() {
                    return Some(format!("node {nth} has a replica of {name}/{at} it should not have"));
                }
                let rows = match rows(near) {
                    Ok(rows) => rows,
                    Err(why) => return Some(why),
                };
                let (other, known) = first.entry(at).or_insert_with(|| (nth, rows.clone()));
                if *known != rows {
                    let odd = known.iter().find(|(key, row)| rows.get(*key) != Some(row));
                    return Some(format!(
                        "nodes {other} and {nth} differ in {name}/{at}: {} and {} rows, {odd:?}",
                        known.len(),
                        rows.len()
                    ));
                }
            }
        }
    }
    None
}

/// A client reads every document once more.
fn read_all(driver: &mut Driver) -> Result<(), Broken> {
    for document in documents(&driver.world) {
        let mut differs = None;
        let pairs = if awaits_a_write(&driver.world, &document) { READS_THAT_MAY_DIFFER } else { 1 };
        for _ in 0..pairs {
            differs = read_both_ways(driver, &document)?;
            if differs.is_none() {
                break;
            }
        }
        if let Some(what) = differs {
            return Err(Promise::Same.broken(what));
        }
    }
    Ok(())
}

/// Whether a write of the document was asked for and nobody knows what became of it.
fn awaits_a_write(world: &World, document: &Document) -> bool {
    world.history.records().iter().any(|record| {
        let is_known = matches!(record.answered, Some((_, Outcome::Done(_) | Outcome::Refused(_))));
        record.op.document == *document && !matches!(record.op.kind, Kind::Read(_)) && !is_known
    })
}

/// Reads a document from a majority and from any one replica, and says how that differs.
fn read_both_ways(driver: &mut Driver, document: &Document) -> Result<Option<String>, Broken> {
    if !read_once_more(driver, document, Mode::Majority)? {
        let last = driver.world.history.records().last().and_then(|record| record.answered.clone());
        return Err(Promise::Settles.broken(format!("a document cannot be read in peace: {last:?}")));
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

/// The same where not everything is well: what cannot be read is left out.
pub(crate) fn read_available(driver: &mut Driver) -> Result<(), Broken> {
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

/// Reads a document once more; whether that could be done.
fn read_once_more(driver: &mut Driver, document: &Document, mode: Mode) -> Result<bool, Broken> {
    let op = driver.world.history.ask(document.clone(), Kind::Read(mode));
    let present = driver.world.present();
    let nth = present[driver.world.random.below(present.len() as u64) as usize];
    let now = driver.world.now();
    driver.world.clients[0].send(op, now, &driver.world.machines[nth], &driver.world.tasks);
    driver.run_until_or(RECOVERY, |world| world.clients[0].is_idle(), "a document can be read")?;
    let last = driver.world.history.records().last().and_then(|record| record.answered.clone());
    Ok(matches!(last, Some((_, Outcome::Done(_)))))
}

/// Whether what clients were told can be true.
pub(crate) fn check_history(world: &World) -> Result<(), Broken> {
    check_answers(world)?;
    check_counts(world)
}

/// Whether the last moments of a table's writes may be lost: those of soft ones, when the power went.
fn may_lose(world: &World, document: &Document) -> bool {
    document.table == SOFT && world.power_losses > 0
}

/// Whether what clients have read can be explained.
pub(crate) fn check_answers(world: &World) -> Result<(), Broken> {
    for (document, records) in world.history.by_document() {
        let check =
            if may_lose(world, &document) { linearizability::check_values } else { linearizability::check };
        check(&records).map_err(|why| {
            let lines: Vec<String> = records.iter().map(|record| format!("  {record:?}")).collect();
            Promise::Answers.broken(format!("{document:?}: {why}\n{}", lines.join("\n")))
        })?;
        if world.fault_plan.disks_fail && !may_lose(world, &document) {
            linearizability::check_age(&records, AGE_MOST)
                .map_err(|why| Promise::Answers.broken(format!("{document:?}: {why}")))?;
        }
    }
    Ok(())
}

/// Whether what is counted is what was added.
fn check_counts(world: &World) -> Result<(), Broken> {
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
            return Err(Promise::Answers.broken(what));
        }
    }
    Ok(())
}

fn stored_count(world: &World, document: &Document) -> u64 {
    let holds = |node: &&std::sync::Arc<Node>| {
        let catalog = node.catalog();
        let table = catalog.table("test", &document.table)?.clone();
        let near = table.shard(&document.key()).near()?.clone();
        near.get(&document.key()).ok().map(|row| field(row.as_ref(), "count"))
    };
    let present = world.present();
    let nodes = present.iter().filter_map(|nth| world.machines[*nth].node());
    nodes.into_iter().find_map(|node| holds(&node)).unwrap_or(0)
}

/// What keeps the tables from being as the catalog of a node says.
fn unsettled(node: &Core, tables: &[String]) -> Option<String> {
    let catalog = node.catalog();
    let status = node.log().group_status(GroupId(0));
    tracing::trace!("the catalog: {status:?}");
    for name in tables {
        let Some(table) = catalog.table("test", name) else {
            return Some(format!("{name} is not there"));
        };
        for shard in &table.config.shards {
            let status = node.log().group_status(shard.group);
            tracing::trace!("{name} of catalog is {shard:?}: {status:?}");
        }
        if table.config.shards.iter().any(|shard| !shard.leaving.is_empty() || !shard.added.is_empty()) {
            return Some(format!("replicas are leaving {name}, or were added for a while"));
        }
        if !table.config.lineage.sealed.is_empty() {
            return Some(format!("{name} needs groups of before: {:?}", table.config.lineage));
        }
        let state = node.table_state(table);
        if !readiness(&state).all_replicas {
            return Some(format!("{name} is {state:?}"));
        }
    }
    None
}

/// A replica that goes on where the catalog has none.
fn odd_replica(node: &Core, groups: &[GroupId]) -> Option<String> {
    let (catalog, own) = (node.catalog(), node.identity().server);
    let is_placed = |group: GroupId| {
        let tables = catalog.tables();
        let mut shards = tables.iter().flat_map(|table| &table.config.shards);
        shards.any(|shard| shard.group == group && shard.replicas.iter().any(|r| r.server == own))
    };
    let goes_on = |group: &&GroupId| node.log().group_status(**group).is_ok();
    let odd = groups.iter().filter(|group| group.0 > 0 && !is_placed(**group)).find(goes_on)?;
    Some(format!("it goes on with a replica of group {odd}, which it should not have"))
}

/// Fails if there are rows of a shard that the catalog does not place on a node.
fn no_strangers(node: &Node, table: &TableHandle) -> Result<(), String> {
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
            return Err(format!("there are rows of group {}, which it should not have", handle.group()));
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
