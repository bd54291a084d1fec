//! What must hold when everything works again: there are leaders, everybody has everything, all
//! replicas are the same, and what clients were told can be explained.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster::{Core, GroupId, Node, TableHandle, readiness};
use datum::KeyRange;
use io::sim::{Host, NetworkConditions};
use storage::{Direction, ShardRange, Table};

use crate::client::Client;
use crate::history::{Document, Kind, Mode, Outcome, field};
use crate::machine::{Machine, PACES};
use crate::promise::{Broken, Promise};
use crate::register;
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

impl World {
    /// Ends the storm, and waits until all is as it should be.
    pub(crate) fn make_peace(&mut self) -> Result<(), Broken> {
        say!("peace");
        self.calm();
        self.net.heal_cuts();
        self.net.set_conditions(NetworkConditions {
            unreachable_after: Duration::from_secs(5),
            ..NetworkConditions::default()
        });
        for nth in 0..self.machines.len() {
            if self.net.is_stalled(Host(nth)) {
                self.machines[nth].set_stalled(false, &self.tasks, &mut self.net);
            }
            self.machines[nth].plan.disk.set_pace(PACES[0]);
            self.machines[nth].plan.disk.mend();
            if self.machines[nth].life.is_none() {
                self.machines[nth].start(&self.tasks, &mut self.net);
            }
        }
        let serve = |world: &World| {
            let removed = world.removed();
            let is_well = |machine: &Machine| machine.node().is_some() || machine.is_one_of(&removed);
            world.machines.iter().all(is_well)
        };
        self.run_until_or(RECOVERY, serve, "all nodes serve again")?;
        let idle = |world: &World| world.clients.iter().all(Client::is_idle);
        self.run_until_or(RECOVERY, idle, "all clients are answered")?;
        let end = self.now().after(RECOVERY);
        loop {
            let why = match self.trouble()? {
                Some((promise, why)) => Some(promise.broken(format!("not within {RECOVERY:?}: {why}"))),
                None => self.differences().map(|why| Promise::Same.broken(why)),
            };
            let Some(why) = why else { break };
            if self.now() > end {
                return Err(why);
            }
            let next = self.now().after(LOOK);
            self.run_until(next, |_| false)?;
        }
        self.read_all()
    }

    /// The machines whose servers are in the cluster.
    pub(crate) fn present(&self) -> Vec<usize> {
        let removed = self.removed();
        (0..self.machines.len()).filter(|nth| !self.machines[*nth].is_one_of(&removed)).collect()
    }

    /// What keeps the cluster from being as its catalog says; asks the nodes.
    fn trouble(&mut self) -> Result<Option<(Promise, String)>, Broken> {
        let mut trouble = None;
        let groups: Vec<GroupId> = self.elections.groups().into_iter().collect();
        let present = self.present();
        for nth in present.iter().copied() {
            let (tables, groups) = (self.workload.tables.clone(), groups.clone());
            let answer = self.ask_node(nth, "look", move |node| {
                let unsettled = unsettled(node, &tables).map(|why| (Promise::Settles, why));
                unsettled.or_else(|| odd_replica(node, &groups).map(|why| (Promise::Same, why)))
            });
            // Or it is told that it was removed, and ends.
            let is_over = |world: &World| answer.lock().is_some() || world.machines[nth].life.is_none();
            self.run_until_or(RECOVERY, is_over, "a node says how it is")?;
            let told = answer.lock().take().flatten();
            trouble = trouble.or(told.map(|(promise, why)| (promise, format!("on node {nth}: {why}"))));
        }
        // What removed a node may be ordered and not committed again after a restart.
        if let Some(nth) = present.iter().find(|nth| self.machines[**nth].life.is_none()) {
            let why = format!("node {nth} was told that it was removed, and the catalog has it");
            trouble = trouble.or(Some((Promise::Settles, why)));
        }
        let goes_on = |nth: &usize| !present.contains(nth) && self.machines[*nth].life.is_some();
        if let Some(nth) = (0..self.machines.len()).find(goes_on) {
            let why = format!("node {nth} was removed and is not told so");
            trouble = trouble.or(Some((Promise::Settles, why)));
        }
        Ok(trouble)
    }

    /// Replicas of one shard that are not the same, and rows where none should be.
    fn differences(&self) -> Option<String> {
        for name in &self.workload.tables {
            let mut first: BTreeMap<usize, (usize, Rows)> = BTreeMap::new();
            for nth in self.present() {
                let machine = &self.machines[nth];
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
    fn read_all(&mut self) -> Result<(), Broken> {
        for document in self.documents() {
            let mut differs = None;
            let pairs = if self.awaits_a_write(&document) { READS_THAT_MAY_DIFFER } else { 1 };
            for _ in 0..pairs {
                differs = self.read_both_ways(&document)?;
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
    fn awaits_a_write(&self, document: &Document) -> bool {
        self.history.records().iter().any(|record| {
            let is_known = matches!(record.answered, Some((_, Outcome::Done(_) | Outcome::Refused(_))));
            record.op.document == *document && !matches!(record.op.kind, Kind::Read(_)) && !is_known
        })
    }

    /// Reads a document from a majority and from any one replica, and says how that differs.
    fn read_both_ways(&mut self, document: &Document) -> Result<Option<String>, Broken> {
        if !self.read_once_more(document, Mode::Majority)? {
            let last = self.history.records().last().and_then(|record| record.answered.clone());
            return Err(Promise::Settles.broken(format!("a document cannot be read in peace: {last:?}")));
        }
        let newest = self.last_read();
        let differs = self.read_once_more(document, Mode::Outdated)? && self.last_read() != newest;
        let any = self.last_read();
        Ok(differs.then(|| format!("an outdated read of {document:?} is {any:?}, not {newest:?}")))
    }

    fn last_read(&self) -> Option<u64> {
        match self.history.records().last()?.answered.as_ref()? {
            (_, Outcome::Done(value)) => *value,
            _ => None,
        }
    }

    /// The same where not everything is well: what cannot be read is left out.
    pub(crate) fn read_what_can_be_read(&mut self) -> Result<(), Broken> {
        let is_idle = |world: &World| world.clients[0].is_idle();
        let serves = |nth: &usize| self.machines[*nth].node().is_some();
        if !self.present().iter().all(serves) || !is_idle(self) {
            return Ok(());
        }
        for document in self.documents() {
            self.read_once_more(&document, Mode::Majority)?;
        }
        Ok(())
    }

    fn documents(&self) -> Vec<Document> {
        let tables = self.workload.tables.iter();
        let numbers = |table: &String| {
            let table = table.clone();
            (0..self.workload.documents).map(move |number| Document { table: table.clone(), number })
        };
        let mut documents: BTreeSet<Document> = tables.flat_map(numbers).collect();
        documents.extend(self.history.by_document().into_keys());
        documents.into_iter().collect()
    }

    /// Reads a document once more; whether that could be done.
    fn read_once_more(&mut self, document: &Document, mode: Mode) -> Result<bool, Broken> {
        let op = self.history.ask(document.clone(), Kind::Read(mode));
        let present = self.present();
        let nth = present[self.random.below(present.len() as u64) as usize];
        let now = self.now();
        self.clients[0].send(op, now, &self.machines[nth], &self.tasks);
        self.run_until_or(RECOVERY, |world| world.clients[0].is_idle(), "a document can be read")?;
        let last = self.history.records().last().and_then(|record| record.answered.clone());
        Ok(matches!(last, Some((_, Outcome::Done(_)))))
    }

    /// Whether what clients were told can be true.
    pub(crate) fn judge(&self) -> Result<(), Broken> {
        self.judge_answers()?;
        self.judge_counts()
    }

    /// Whether the last moments of a table's writes may be lost: those of soft ones, when the power went.
    fn may_lose(&self, document: &Document) -> bool {
        document.table == SOFT && self.power_losses > 0
    }

    /// Whether what clients have read can be explained.
    pub(crate) fn judge_answers(&self) -> Result<(), Broken> {
        for (document, records) in self.history.by_document() {
            let check = if self.may_lose(&document) { register::check_values } else { register::check };
            check(&records).map_err(|why| {
                let lines: Vec<String> = records.iter().map(|record| format!("  {record:?}")).collect();
                Promise::Answers.broken(format!("{document:?}: {why}\n{}", lines.join("\n")))
            })?;
            if self.climate.fills && !self.may_lose(&document) {
                register::check_age(&records, AGE_MOST)
                    .map_err(|why| Promise::Answers.broken(format!("{document:?}: {why}")))?;
            }
        }
        Ok(())
    }

    /// Whether what is counted is what was added.
    fn judge_counts(&self) -> Result<(), Broken> {
        for (document, records) in self.history.by_document() {
            let count = |is: fn(&Outcome) -> bool| {
                let adds = records.iter().filter(|record| record.op.kind == Kind::Add);
                adds.filter(|r| r.answered.as_ref().is_some_and(|(_, outcome)| is(outcome))).count() as u64
            };
            let done = count(|outcome| matches!(outcome, Outcome::Done(_)));
            let least = if self.may_lose(&document) { 0 } else { done };
            let most = done + count(|outcome| matches!(outcome, Outcome::Unknown(_)));
            let stored = self.stored_count(&document);
            if !(least..=most).contains(&stored) {
                let what = format!("{document:?} counts {stored}, {least} to {most} were added");
                return Err(Promise::Answers.broken(what));
            }
        }
        Ok(())
    }

    fn stored_count(&self, document: &Document) -> u64 {
        let holds = |node: &&std::sync::Arc<Node>| {
            let catalog = node.catalog();
            let table = catalog.table("test", &document.table)?.clone();
            let near = table.shard(&document.key()).near()?.clone();
            near.get(&document.key()).ok().map(|row| field(row.as_ref(), "count"))
        };
        let present = self.present();
        let nodes = present.iter().filter_map(|nth| self.machines[*nth].node());
        nodes.into_iter().find_map(|node| holds(&node)).unwrap_or(0)
    }
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
