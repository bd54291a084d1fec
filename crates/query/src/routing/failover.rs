//! Failover: ends calls to a server that hangs once another server can take them over.
//!
//! A server that hangs keeps its connections until its heartbeat times out. Its callers would wait for that long,
//! although another replica leads its shards within seconds. One thread of the node watches all calls that have been
//! pending for a while: it probes the server, and looks up whether another server leads now. If the probe gets no
//! response and another server leads, the call fails: a read is retried, the outcome of a write is unknown. A read that
//! any replica may serve goes to another replica, and later reads avoid the server until it responds again. Calls to a
//! server that responds are left alone: it also answers them when it does not lead any more. A server that has reported
//! that its log is stalled (decision 0037) counts as one that hangs.
//!
//! Fast calls do not come here: a read of one row is watched from its second attempt on, a blocking call after some
//! time. Only a write of one row is watched from its beginning, since it cannot be retried.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use cluster::{Node, Route, RpcError, ServerId, ShardHandle};
use parking_lot::Mutex;

use super::remote_calls::{CallError, EncodedRequest, RemoteCalls, ResponseSlot, SHORT_CALL_TIMEOUT};
use crate::thread_pool::ThreadPool;

/// Between two checks of pending calls.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// A call is watched from this number of checks on.
const CHECKS_UNTIL_LATE: u64 = 5;
/// A server hangs if it does not respond to a probe for this long.
const HUNG_AFTER: Duration = Duration::from_secs(2);
/// Between two lookups of the leaders of shards that a hung server led.
const LEADER_LOOKUP_INTERVAL: Duration = Duration::from_millis(500);

/// Which other server could take over a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailoverTo {
    Leader,
    AnyReplica,
}

/// Makes a request with the given number that any server answers at once.
pub(crate) type Probe = fn(u64) -> EncodedRequest;

/// The pending calls of a node, and the servers that hang.
pub(crate) struct Failover {
    node: Arc<Node>,
    remote_calls: Arc<RemoteCalls>,
    thread: ThreadPool,
    pending: Mutex<WaitList>,
    /// As of the last check.
    hung: Mutex<BTreeSet<ServerId>>,
    /// Whether `hung` has any: read without the lock.
    some_hang: AtomicBool,
}

#[derive(Default)]
struct WaitList {
    /// The number of checks so far.
    checks: u64,
    waiting: Vec<PendingCall>,
    is_running: bool,
}

/// A call to `server`, which led `shard` or had a replica of it.
struct PendingCall {
    since: u64,
    server: ServerId,
    shard: ShardHandle,
    failover_to: FailoverTo,
    slot: Weak<ResponseSlot>,
}

/// A [`PendingCall`] that is overdue, with its slot kept alive.
struct LateCall {
    server: ServerId,
    shard: ShardHandle,
    failover_to: FailoverTo,
    slot: Arc<ResponseSlot>,
}

impl Failover {
    /// Without pending calls.
    pub fn new(node: Arc<Node>, remote_calls: Arc<RemoteCalls>) -> Arc<Failover> {
        let (pending, hung, some_hang) = (Mutex::default(), Mutex::default(), AtomicBool::new(false));
        Arc::new(Failover {
            node,
            remote_calls,
            thread: ThreadPool::new("failover", 1),
            pending,
            hung,
            some_hang,
        })
    }

    /// Whether `server` is connected and not known to hang.
    pub fn is_responding(&self, server: ServerId) -> bool {
        self.remote_calls.is_connected(server)
            && !(self.some_hang.load(Ordering::Relaxed) && self.hung.lock().contains(&server))
    }

    /// Completes `slot` with an error if `server` hangs while another server qualifies for `shard`. `probe` finds out
    /// whether it hangs.
    pub fn watch(
        self: &Arc<Self>,
        slot: &Arc<ResponseSlot>,
        server: ServerId,
        (shard, failover_to): (&ShardHandle, FailoverTo),
        probe: Probe,
    ) {
        let is_first = self.pending.lock().add(server, shard, failover_to, slot);
        if is_first {
            let failover = self.clone();
            self.thread.run(move || failover.run(probe));
        }
    }

    /// Checks pending calls until there are none and no server hangs.
    fn run(&self, probe: Probe) {
        let _end = ResetOnPanic(self);
        let (mut probes, mut looked_up, mut hung) = (BTreeMap::new(), None, BTreeSet::new());
        loop {
            std::thread::sleep(CHECK_INTERVAL);
            let asked = self.pending.lock().begin_check(&hung);
            let Some(asked) = asked else { return };
            hung = self.probe(&mut probes, &asked, probe);
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
                late.slot.complete_if_empty(Err(CallError::Rpc(RpcError::NoResponse(late.server))))
            });
        }
    }

    /// From now on reads avoid these servers where they can.
    fn publish_hung(&self, hung: &BTreeSet<ServerId>) {
        self.some_hang.store(!hung.is_empty(), Ordering::Relaxed);
        self.hung.lock().clone_from(hung);
    }

    /// Sends probes to `asked`; returns the servers whose probe has had no response for [`HUNG_AFTER`].
    fn probe(
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
                let request = probe(self.remote_calls.next_number());
                (Instant::now(), self.remote_calls.call(*server, request, SHORT_CALL_TIMEOUT))
            });
        }
        let is_hung =
            |(sent, slot): &(Instant, Arc<ResponseSlot>)| !slot.is_complete() && sent.elapsed() >= HUNG_AFTER;
        let hangs =
            |server: &ServerId, probe| is_hung(probe) || self.node.stall_monitor().is_stalled(*server);
        probes.iter().filter(|(server, probe)| hangs(server, probe)).map(|(server, _)| *server).collect()
    }

    /// Asks other servers for the leader of each late shard, unless a local replica is in contact with the leader.
    fn look_up_leaders(&self, late: &[LateCall]) {
        let mut unknown = BTreeMap::new();
        let of_leader =
            |late: &&LateCall| late.failover_to == FailoverTo::Leader && !late.shard.has_leader_contact();
        for late in late.iter().filter(of_leader) {
            if late.shard.known_leader().leader().is_none_or(|leader| leader == late.server) {
                unknown.insert(late.shard.group(), (&late.shard, late.server));
            }
        }
        if !unknown.is_empty() {
            self.node.leaders().find_other_leaders(&unknown.into_values().collect::<Vec<_>>());
        }
    }

    /// Whether another server qualifies, or the rows belong to other shards by now.
    fn has_alternative(&self, LateCall { server, shard, failover_to, .. }: &LateCall) -> bool {
        let another = match failover_to {
            FailoverTo::Leader => shard.leader(),
            FailoverTo::AnyReplica => shard.nearest(|other| other != *server && self.is_responding(other)),
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
    /// Adds a call. Returns whether the thread must be started.
    fn add(
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

    /// The servers with overdue calls, and the servers that `hung` at the last check; `None` when there are none and no
    /// calls are pending, which ends the thread's run.
    fn begin_check(&mut self, hung: &BTreeSet<ServerId>) -> Option<BTreeSet<ServerId>> {
        self.checks += 1;
        self.waiting.retain(|waiting| waiting.slot.strong_count() > 0);
        if self.waiting.is_empty() && hung.is_empty() {
            self.is_running = false;
            return None;
        }
        Some(self.overdue().map(|waiting| waiting.server).chain(hung.iter().copied()).collect())
    }

    /// The overdue calls to `servers`.
    fn late(&self, servers: &BTreeSet<ServerId>) -> Vec<LateCall> {
        let late = self.overdue().filter(|waiting| servers.contains(&waiting.server));
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

    fn overdue(&self) -> impl Iterator<Item = &PendingCall> {
        self.waiting.iter().filter(|waiting| waiting.since + CHECKS_UNTIL_LATE <= self.checks)
    }
}

/// Lets the next call start the thread again after a panic.
struct ResetOnPanic<'a>(&'a Failover);

impl Drop for ResetOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.publish_hung(&BTreeSet::new());
            self.0.pending.lock().is_running = false;
        }
    }
}
