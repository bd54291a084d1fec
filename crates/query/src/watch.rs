//! Questions that wait for a server that hangs while another one leads.
//!
//! A server that stands still keeps its connections until its heartbeat is missed, and whoever asked it would
//! wait for as long, though another replica leads its shards within seconds. One thread of the node looks after
//! all who have waited for a while: it tries whether the server says anything at all, and whether another leads
//! now. If it says nothing and another leads, the question is over: a read is asked again, a write is in doubt. A
//! read that any replica may answer is asked of another one, and until the server is heard again, such reads pass it by.
//! A server that is alive is left alone, since it answers what it was asked also when it leads no more.
//!
//! Whoever is answered soon has nothing to do with this: a read about one row is looked after when it is asked
//! for the second time, a thread that waits when it has waited for some time, and only a write about one row
//! from the beginning, since it cannot be asked again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use cluster::{Node, Route, RpcError, ServerId, ShardHandle};
use parking_lot::Mutex;

use crate::links::{Links, SHORT, Slot, Unanswered, Written};
use crate::pool::ScanPool;

/// Between two looks.
const TICK: Duration = Duration::from_millis(100);
/// Who has not waited for so many looks is not looked after.
const AGE: u64 = 5;
/// A server that says nothing for so long hangs.
const SILENCE: Duration = Duration::from_secs(2);
/// Between two searches for who leads what a server that hangs has led.
const SEARCH_PAUSE: Duration = Duration::from_millis(500);

/// Who else could answer a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    /// Whoever leads the shard.
    Leader,
    /// Any replica.
    AnyReplica,
}

/// Makes a question that any server answers at once, of a number of its own.
pub(crate) type Probe = fn(u64) -> Written;

/// Who waits for which server on a node.
pub(crate) struct Watches {
    node: Arc<Node>,
    links: Arc<Links>,
    /// One thread.
    watching: ScanPool,
    line: Mutex<Line>,
    /// Servers that say nothing, as of the last look.
    hung: Mutex<BTreeSet<ServerId>>,
    /// Whether there are any.
    some_hang: AtomicBool,
}

#[derive(Default)]
struct Line {
    /// The looks so far.
    looks: u64,
    waiting: Vec<Waiting>,
    is_watched: bool,
}

/// Somebody who asked `server` because it led `shard`, or had a replica of it.
struct Waiting {
    since: u64,
    server: ServerId,
    shard: ShardHandle,
    wants: Wants,
    slot: Weak<Slot>,
}

/// The same, while it waits.
struct Late {
    server: ServerId,
    shard: ShardHandle,
    wants: Wants,
    slot: Arc<Slot>,
}

impl Watches {
    /// Nobody waits yet.
    pub fn new(node: Arc<Node>, links: Arc<Links>) -> Arc<Watches> {
        let (line, hung, some_hang) = (Mutex::default(), Mutex::default(), AtomicBool::new(false));
        Arc::new(Watches { node, links, watching: ScanPool::new("watch", 1), line, hung, some_hang })
    }

    /// Whether `server` is connected, and not known to hang.
    pub fn answers(&self, server: ServerId) -> bool {
        self.links.is_connected(server)
            && !(self.some_hang.load(Ordering::Relaxed) && self.hung.lock().contains(&server))
    }

    /// Sees to it that `slot` is told that there is no answer, should `server` hang and there be another one that it
    /// wants of `shard`. `probe` shows whether it hangs.
    pub fn watch(
        self: &Arc<Self>,
        slot: &Arc<Slot>,
        server: ServerId,
        (shard, wants): (&ShardHandle, Wants),
        probe: Probe,
    ) {
        let is_first = self.line.lock().join(server, shard, wants, slot);
        if is_first {
            let watches = self.clone();
            self.watching.run(move || watches.look_after(probe));
        }
    }

    /// Looks until nobody waits and nobody hangs.
    fn look_after(&self, probe: Probe) {
        let _end = End(self);
        let (mut probes, mut searched, mut hung) = (BTreeMap::new(), None, BTreeSet::new());
        loop {
            std::thread::sleep(TICK);
            let asked = self.line.lock().look(&hung);
            let Some(asked) = asked else { return };
            hung = self.hung(&mut probes, &asked, probe);
            self.note(&hung);
            if hung.is_empty() {
                continue;
            }
            let late = self.line.lock().late(&hung);
            if searched.is_none_or(|at: Instant| at.elapsed() >= SEARCH_PAUSE) {
                self.search(&late);
                searched = Some(Instant::now());
            }
            let over = late.iter().filter(|late| self.is_passed_over(late));
            over.for_each(|late| late.slot.give_up(Err(Unanswered::Lost(RpcError::NoAnswer(late.server)))));
        }
    }

    /// From now on reads pass these by, where they can.
    fn note(&self, hung: &BTreeSet<ServerId>) {
        self.some_hang.store(!hung.is_empty(), Ordering::Relaxed);
        self.hung.lock().clone_from(hung);
    }

    /// Those of `asked` that say nothing any more.
    fn hung(
        &self,
        probes: &mut BTreeMap<ServerId, (Instant, Arc<Slot>)>,
        asked: &BTreeSet<ServerId>,
        probe: Probe,
    ) -> BTreeSet<ServerId> {
        let is_due = |(sent, slot): &(Instant, Arc<Slot>)| slot.is_told() && sent.elapsed() >= SILENCE;
        probes.retain(|server, probe| asked.contains(server) && !is_due(probe));
        for server in asked {
            probes.entry(*server).or_insert_with(|| {
                let question = probe(self.links.number());
                (Instant::now(), self.links.ask(*server, question, SHORT))
            });
        }
        let is_hung = |(sent, slot): &(Instant, Arc<Slot>)| !slot.is_told() && sent.elapsed() >= SILENCE;
        let hangs = |server: &ServerId, probe| is_hung(probe) || self.node.is_stalled(*server);
        probes.iter().filter(|(server, probe)| hangs(server, probe)).map(|(server, _)| *server).collect()
    }

    /// Asks who leads now, where no replica is here that hears of it.
    fn search(&self, late: &[Late]) {
        let mut unknown = BTreeMap::new();
        let of_leader = |late: &&Late| late.wants == Wants::Leader && !late.shard.hears();
        for late in late.iter().filter(of_leader) {
            if late.shard.lead().leader().is_none_or(|leader| leader == late.server) {
                unknown.insert(late.shard.group(), (&late.shard, late.server));
            }
        }
        if !unknown.is_empty() {
            self.node.find_other_leaders(&unknown.into_values().collect::<Vec<_>>());
        }
    }

    /// Whether there is another server that is wanted, or the rows belong to other shards now.
    fn is_passed_over(&self, Late { server, shard, wants, .. }: &Late) -> bool {
        let another = match wants {
            Wants::Leader => shard.leader(),
            Wants::AnyReplica => shard.nearest(|other| other != *server && self.answers(other)),
        };
        let is_another = match another {
            Some(Route::Local(_)) => true,
            Some(Route::Remote(other)) => other != *server,
            None => false,
        };
        is_another || {
            let catalog = self.node.catalog_guard();
            let table = catalog.table_by_id(shard.table());
            !table.is_some_and(|table| table.shards().iter().any(|known| known.group() == shard.group()))
        }
    }
}

impl Line {
    /// Takes one more in. Whether somebody must begin to look.
    fn join(&mut self, server: ServerId, shard: &ShardHandle, wants: Wants, slot: &Arc<Slot>) -> bool {
        let (since, shard, slot) = (self.looks, shard.clone(), Arc::downgrade(slot));
        self.waiting.push(Waiting { since, server, shard, wants, slot });
        !std::mem::replace(&mut self.is_watched, true)
    }

    /// The servers that were asked a while ago, and those that `hung` at the last look; `None`, and nobody looks any
    /// more, when there are none and nobody waits.
    fn look(&mut self, hung: &BTreeSet<ServerId>) -> Option<BTreeSet<ServerId>> {
        self.looks += 1;
        self.waiting.retain(|waiting| waiting.slot.strong_count() > 0);
        if self.waiting.is_empty() && hung.is_empty() {
            self.is_watched = false;
            return None;
        }
        Some(self.old().map(|waiting| waiting.server).chain(hung.iter().copied()).collect())
    }

    /// Those who have waited for `servers` for a while.
    fn late(&self, servers: &BTreeSet<ServerId>) -> Vec<Late> {
        let late = self.old().filter(|waiting| servers.contains(&waiting.server));
        let late = late.filter_map(|Waiting { server, shard, wants, slot, .. }| {
            Some(Late { server: *server, shard: shard.clone(), wants: *wants, slot: slot.upgrade()? })
        });
        late.collect()
    }

    fn old(&self) -> impl Iterator<Item = &Waiting> {
        self.waiting.iter().filter(|waiting| waiting.since + AGE <= self.looks)
    }
}

/// Others look when a panic has ended this.
struct End<'a>(&'a Watches);

impl Drop for End<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.note(&BTreeSet::new());
            self.0.line.lock().is_watched = false;
        }
    }
}
