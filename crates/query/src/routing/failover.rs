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

use super::peers::{CallError, EncodedRequest, Peers, ResponseSlot, SHORT};
use crate::thread_pool::ScanPool;

/// Between two looks.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Who has not waited for so many looks is not looked after.
const CHECKS_UNTIL_LATE: u64 = 5;
/// A server that says nothing for so long hangs.
const HUNG_AFTER: Duration = Duration::from_secs(2);
/// Between two searches for who leads what a server that hangs has led.
const LEADER_LOOKUP_INTERVAL: Duration = Duration::from_millis(500);

/// Who else could answer a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailoverTo {
    /// Whoever leads the shard.
    Leader,
    /// Any replica.
    AnyReplica,
}

/// Makes a question that any server answers at once, of a number of its own.
pub(crate) type Probe = fn(u64) -> EncodedRequest;

/// Who waits for which server on a node.
pub(crate) struct Failover {
    node: Arc<Node>,
    peers: Arc<Peers>,
    /// One thread.
    thread: ScanPool,
    pending: Mutex<WaitList>,
    /// Servers that say nothing, as of the last look.
    hung: Mutex<BTreeSet<ServerId>>,
    /// Whether there are any.
    some_hang: AtomicBool,
}

#[derive(Default)]
struct WaitList {
    /// The looks so far.
    checks: u64,
    waiting: Vec<PendingCall>,
    is_running: bool,
}

/// Somebody who asked `server` because it led `shard`, or had a replica of it.
struct PendingCall {
    since: u64,
    server: ServerId,
    shard: ShardHandle,
    failover_to: FailoverTo,
    slot: Weak<ResponseSlot>,
}

/// The same, while it waits.
struct LateCall {
    server: ServerId,
    shard: ShardHandle,
    failover_to: FailoverTo,
    slot: Arc<ResponseSlot>,
}

impl Failover {
    /// Nobody waits yet.
    pub fn new(node: Arc<Node>, peers: Arc<Peers>) -> Arc<Failover> {
        let (pending, hung, some_hang) = (Mutex::default(), Mutex::default(), AtomicBool::new(false));
        Arc::new(Failover { node, peers, thread: ScanPool::new("watch", 1), pending, hung, some_hang })
    }

    /// Whether `server` is connected, and not known to hang.
    pub fn answers(&self, server: ServerId) -> bool {
        self.peers.is_connected(server)
            && !(self.some_hang.load(Ordering::Relaxed) && self.hung.lock().contains(&server))
    }

    /// Sees to it that `slot` is told that there is no answer, should `server` hang and there be another one that it
    /// wants of `shard`. `probe` shows whether it hangs.
    pub fn watch(
        self: &Arc<Self>,
        slot: &Arc<ResponseSlot>,
        server: ServerId,
        (shard, failover_to): (&ShardHandle, FailoverTo),
        probe: Probe,
    ) {
        let is_first = self.pending.lock().join(server, shard, failover_to, slot);
        if is_first {
            let failover = self.clone();
            self.thread.run(move || failover.run(probe));
        }
    }

    /// Looks until nobody waits and nobody hangs.
    fn run(&self, probe: Probe) {
        let _end = ResetOnPanic(self);
        let (mut probes, mut looked_up, mut hung) = (BTreeMap::new(), None, BTreeSet::new());
        loop {
            std::thread::sleep(CHECK_INTERVAL);
            let asked = self.pending.lock().look(&hung);
            let Some(asked) = asked else { return };
            hung = self.hung(&mut probes, &asked, probe);
            self.publish_hung(&hung);
            if hung.is_empty() {
                continue;
            }
            let late = self.pending.lock().late(&hung);
            if looked_up.is_none_or(|at: Instant| at.elapsed() >= LEADER_LOOKUP_INTERVAL) {
                self.look_up_leaders(&late);
                looked_up = Some(Instant::now());
            }
            let over = late.iter().filter(|late| self.has_alternative(late));
            over.for_each(|late| {
                late.slot.complete_if_empty(Err(CallError::Rpc(RpcError::NoAnswer(late.server))))
            });
        }
    }

    /// From now on reads pass these by, where they can.
    fn publish_hung(&self, hung: &BTreeSet<ServerId>) {
        self.some_hang.store(!hung.is_empty(), Ordering::Relaxed);
        self.hung.lock().clone_from(hung);
    }

    /// Those of `asked` that say nothing any more.
    fn hung(
        &self,
        probes: &mut BTreeMap<ServerId, (Instant, Arc<ResponseSlot>)>,
        asked: &BTreeSet<ServerId>,
        probe: Probe,
    ) -> BTreeSet<ServerId> {
        let is_due =
            |(sent, slot): &(Instant, Arc<ResponseSlot>)| slot.is_complete() && sent.elapsed() >= HUNG_AFTER;
        probes.retain(|server, probe| asked.contains(server) && !is_due(probe));
        for server in asked {
            probes.entry(*server).or_insert_with(|| {
                let request = probe(self.peers.next_number());
                (Instant::now(), self.peers.call(*server, request, SHORT))
            });
        }
        let is_hung =
            |(sent, slot): &(Instant, Arc<ResponseSlot>)| !slot.is_complete() && sent.elapsed() >= HUNG_AFTER;
        let hangs = |server: &ServerId, probe| is_hung(probe) || self.node.is_stalled(*server);
        probes.iter().filter(|(server, probe)| hangs(server, probe)).map(|(server, _)| *server).collect()
    }

    /// Asks who leads now, where no replica is here that hears of it.
    fn look_up_leaders(&self, late: &[LateCall]) {
        let mut unknown = BTreeMap::new();
        let of_leader = |late: &&LateCall| late.failover_to == FailoverTo::Leader && !late.shard.hears();
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
    fn has_alternative(&self, LateCall { server, shard, failover_to, .. }: &LateCall) -> bool {
        let another = match failover_to {
            FailoverTo::Leader => shard.leader(),
            FailoverTo::AnyReplica => shard.nearest(|other| other != *server && self.answers(other)),
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

impl WaitList {
    /// Takes one more in. Whether somebody must begin to look.
    fn join(
        &mut self,
        server: ServerId,
        shard: &ShardHandle,
        failover_to: FailoverTo,
        slot: &Arc<ResponseSlot>,
    ) -> bool {
        let (since, shard, slot) = (self.checks, shard.clone(), Arc::downgrade(slot));
        self.waiting.push(PendingCall { since, server, shard, failover_to, slot });
        !std::mem::replace(&mut self.is_running, true)
    }

    /// The servers that were asked a while ago, and those that `hung` at the last look; `None`, and nobody looks any
    /// more, when there are none and nobody waits.
    fn look(&mut self, hung: &BTreeSet<ServerId>) -> Option<BTreeSet<ServerId>> {
        self.checks += 1;
        self.waiting.retain(|waiting| waiting.slot.strong_count() > 0);
        if self.waiting.is_empty() && hung.is_empty() {
            self.is_running = false;
            return None;
        }
        Some(self.old().map(|waiting| waiting.server).chain(hung.iter().copied()).collect())
    }

    /// Those who have waited for `servers` for a while.
    fn late(&self, servers: &BTreeSet<ServerId>) -> Vec<LateCall> {
        let late = self.old().filter(|waiting| servers.contains(&waiting.server));
        let late = late.filter_map(|PendingCall { server, shard, failover_to, slot, .. }| {
            Some(LateCall {
                server: *server,
                shard: shard.clone(),
                failover_to: *failover_to,
                slot: slot.upgrade()?,
            })
        });
        late.collect()
    }

    fn old(&self) -> impl Iterator<Item = &PendingCall> {
        self.waiting.iter().filter(|waiting| waiting.since + CHECKS_UNTIL_LATE <= self.checks)
    }
}

/// Others look when a panic has ended this.
struct ResetOnPanic<'a>(&'a Failover);

impl Drop for ResetOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.publish_hung(&BTreeSet::new());
            self.0.pending.lock().is_running = false;
        }
    }
}
