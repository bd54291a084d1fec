//! Shared leader lookup: finds the leader of a shard once for all queries about one row that wait for it. The lookup itself
//! is [`cluster::LeaderLookup`]'s.
//!
//! A waiting query holds no thread and sends no requests: one thread wakes the queries, and another asks servers for
//! leaders. A thousand clients that wait for a leader cost hardly more than one, which leaves the servers the time to
//! elect it.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cluster::{GroupId, Node, ServerId, ShardHandle, TableHandle};
use parking_lot::Mutex;
use storage::TableId;

use super::known_leaderless::KnownLeaderless;
use super::remote_calls::OneShot;
use crate::thread_pool::ThreadPool;

/// The first and the longest backoff between two attempts of a query.
const BACKOFF_MIN: Duration = Duration::from_millis(5);
const BACKOFF_MAX: Duration = Duration::from_millis(200);
/// A query waits this fraction of its backoff when another leader is known than the server that was asked last. It is
/// not zero, because two servers may name each other for a while.
const OTHER_LEADER_BACKOFF_DIVISOR: u32 = 8;
/// Added to each backoff while no leader is known.
const NO_LEADER_EXTRA_WAIT: Duration = Duration::from_secs(1);
/// The leaders of a table's shards are looked up at most this often.
const TABLE_LOOKUP_INTERVAL: Duration = Duration::from_millis(100);
/// The lookup queries servers with the backoffs from this attempt on: an election takes longer than the earlier ones.
const FIRST_QUERY_ATTEMPT: u32 = 3;

/// The wait before the next attempt, after this number of failed ones.
pub(crate) fn backoff_after(attempts: u32) -> Duration {
    match attempts {
        0 => Duration::ZERO,
        attempts => (BACKOFF_MIN * (1 << (attempts - 1).min(10))).min(BACKOFF_MAX),
    }
}

/// One lookup of leaders for all queries of a node: the queries that wait, and the threads that look up and wake.
pub(crate) struct SharedLeaderLookup {
    node: Arc<Node>,
    /// One thread, which wakes waiting queries.
    wake_thread: ThreadPool,
    /// One thread, which asks other servers.
    query_thread: ThreadPool,
    /// Whether `query_thread` is busy.
    is_querying: Arc<AtomicBool>,
    queue: Mutex<WaitQueue<ShardHandle>>,
    tables: Mutex<BTreeMap<TableId, Instant>>,
    /// Shards whose lookup failed lately.
    pub leaderless: KnownLeaderless,
}

/// The attempts of a query to reach its row.
#[derive(Clone, Copy)]
pub(crate) struct LookupAttempts {
    /// The number of failed ones.
    pub failed: u32,
    /// The server that was asked last.
    pub asked: Option<ServerId>,
    /// Whether any replica may serve the query.
    pub any_replica: bool,
}

impl SharedLeaderLookup {
    /// Without waiting queries.
    pub fn new(node: Arc<Node>) -> Arc<SharedLeaderLookup> {
        Arc::new(SharedLeaderLookup {
            node,
            wake_thread: ThreadPool::new("leader-wake", 1),
            query_thread: ThreadPool::new("leader-query", 1),
            is_querying: Arc::default(),
            queue: Mutex::default(),
            tables: Mutex::default(),
            leaderless: KnownLeaderless::default(),
        })
    }

    /// Completes when a query about a row of `shard` should try again. The first time this is at once if a leader is
    /// known, if the local replica will learn it, or if any replica may serve the query. After that it is
    /// [`backoff_after`] the failed attempts: a fraction of it when another leader is known than the server that was
    /// asked, and a second more while no leader is known.
    pub fn wait(self: &Arc<Self>, shard: &ShardHandle, attempts: LookupAttempts) -> Arc<OneShot<()>> {
        let ready = Arc::<OneShot<()>>::default();
        if attempts.failed == 0 && (attempts.any_replica || is_known(shard)) {
            ready.complete(());
            return ready;
        }
        let now = Instant::now();
        let waiter = Waiter::new(attempts, now, ready.clone());
        let is_first = self.queue.lock().add(shard.group(), shard, now, waiter);
        if is_first {
            let leader_lookup = self.clone();
            self.wake_thread.run(move || run_lookups(&leader_lookup.queue, &leader_lookup));
        }
        ready
    }

    /// Looks up the leaders of all remote shards of `table`, unless that was done within [`TABLE_LOOKUP_INTERVAL`].
    pub fn look_up_table(&self, table: &TableHandle) {
        let (id, now) = (table.config.id, Instant::now());
        {
            let mut tables = self.tables.lock();
            tables.retain(|_, searched| now.duration_since(*searched) < TABLE_LOOKUP_INTERVAL);
            if tables.contains_key(&id) {
                return;
            }
            tables.insert(id, now);
        }
        self.node.leaders().find_leaders(&table.shards().iter().collect::<Vec<_>>());
    }
}

/// The node as a lookup sees it: a trait, so that tests can fake it.
trait LookupSource<S> {
    /// Whether no server has to be asked for the leader.
    fn is_known(&self, shard: &S) -> bool;

    fn leader(&self, shard: &S) -> Option<ServerId>;

    /// Whether the rows belong to other shards by now.
    fn is_gone(&self, shard: &S) -> bool;

    /// Asks servers for the leaders of these shards on another thread, which takes seconds if a server hangs. Does
    /// nothing while an earlier call is still running.
    fn query_leaders(&self, shards: impl FnOnce() -> Vec<S>);
}

impl LookupSource<ShardHandle> for Arc<SharedLeaderLookup> {
    fn is_known(&self, shard: &ShardHandle) -> bool {
        is_known(shard)
    }

    fn leader(&self, shard: &ShardHandle) -> Option<ServerId> {
        shard.leading_server()
    }

    fn is_gone(&self, shard: &ShardHandle) -> bool {
        let has_it =
            |table: &Arc<TableHandle>| table.shards().iter().any(|known| known.group() == shard.group());
        !self.node.catalog_guard().table_by_id(shard.table()).is_some_and(has_it)
    }

    fn query_leaders(&self, shards: impl FnOnce() -> Vec<ShardHandle>) {
        if self.is_querying.load(Ordering::Acquire) {
            return;
        }
        let shards = shards();
        if shards.is_empty() {
            return;
        }
        self.is_querying.store(true, Ordering::Release);
        let (leader_lookup, end) = (self.clone(), QueryEnd(self.is_querying.clone()));
        self.query_thread.run(move || {
            let _end = end;
            leader_lookup.node.leaders().find_leaders(&shards.iter().collect::<Vec<_>>());
        });
    }
}

/// Clears the flag at the end of a query, also if it panics.
struct QueryEnd(Arc<AtomicBool>);

impl Drop for QueryEnd {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Wakes queries and asks for leaders until no query waits.
fn run_lookups<S: Clone>(queue: &Mutex<WaitQueue<S>>, source: &impl LookupSource<S>) {
    let _if_it_panics = WakeAllOnPanic(queue);
    loop {
        let now = Instant::now();
        let ready = {
            let mut queue = queue.lock();
            if queue.finish_if_empty() {
                return;
            }
            queue.take_ready(now, |shard| source.leader(shard), |shard| source.is_gone(shard))
        };
        ready.into_iter().for_each(|one| one.complete(()));
        source.query_leaders(|| queue.lock().due_for_query(now, |shard| source.is_known(shard)));
        std::thread::sleep(BACKOFF_MIN);
    }
}

/// Wakes all queries when the thread panics: they must not wait for a lookup that has ended.
struct WakeAllOnPanic<'a, S>(&'a Mutex<WaitQueue<S>>);

impl<S> Drop for WakeAllOnPanic<'_, S> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let left = std::mem::take(&mut *self.0.lock());
            left.waiting
                .into_values()
                .flat_map(|waiting| waiting.waiters)
                .for_each(|one| one.ready.complete(()));
        }
    }
}

/// Whether no server has to be asked for the leader: it is known, or the local replica will learn it.
fn is_known(shard: &ShardHandle) -> bool {
    shard.has_leader_contact() || shard.leader().is_some()
}

/// The waiting queries by shard.
struct WaitQueue<S> {
    waiting: BTreeMap<GroupId, ShardWaiters<S>>,
    is_running: bool,
}

struct ShardWaiters<S> {
    shard: S,
    waiters: Vec<Waiter>,
    /// When servers are to be asked for the leader next, and the number of the attempt whose backoff follows.
    query_at: Instant,
    attempt: u32,
}

struct Waiter {
    asked: Option<ServerId>,
    /// When the query continues if any leader is known, and if it is another one than was asked.
    ready_at: Instant,
    ready_at_other_leader: Instant,
    ready: Arc<OneShot<()>>,
}

impl Waiter {
    fn new(attempts: LookupAttempts, now: Instant, ready: Arc<OneShot<()>>) -> Waiter {
        let backoff = backoff_after(attempts.failed);
        Waiter {
            asked: attempts.asked,
            ready_at: now + backoff,
            ready_at_other_leader: now + backoff / OTHER_LEADER_BACKOFF_DIVISOR,
            ready,
        }
    }

    fn is_ready(&mut self, now: Instant, leader: Option<ServerId>, is_gone: impl Fn() -> bool) -> bool {
        match leader {
            Some(_) if leader != self.asked => self.ready_at_other_leader <= now,
            Some(_) => self.ready_at <= now,
            None => {
                // The next leader was elected since then.
                self.asked = None;
                self.ready_at <= now && (self.ready_at + NO_LEADER_EXTRA_WAIT <= now || is_gone())
            }
        }
    }
}

impl<S> Default for WaitQueue<S> {
    fn default() -> WaitQueue<S> {
        WaitQueue { waiting: BTreeMap::new(), is_running: false }
    }
}

impl<S: Clone> WaitQueue<S> {
    /// Adds a query. Returns whether the thread must be started.
    fn add(&mut self, group: GroupId, shard: &S, now: Instant, waiter: Waiter) -> bool {
        let waiting = self.waiting.entry(group).or_insert_with(|| ShardWaiters {
            shard: shard.clone(),
            waiters: Vec::new(),
            query_at: now,
            attempt: FIRST_QUERY_ATTEMPT,
        });
        // The last one has the newest catalog: a local replica may have been opened since the first one.
        waiting.shard = shard.clone();
        waiting.waiters.push(waiter);
        !std::mem::replace(&mut self.is_running, true)
    }

    /// Whether no query waits: then the thread's run ends.
    fn finish_if_empty(&mut self) -> bool {
        self.is_running = !self.waiting.is_empty();
        !self.is_running
    }

    /// The shards whose leader is to be asked for now.
    fn due_for_query(&mut self, now: Instant, is_known: impl Fn(&S) -> bool) -> Vec<S> {
        let due = |waiting: &&mut ShardWaiters<S>| waiting.query_at <= now && !is_known(&waiting.shard);
        let due = self.waiting.values_mut().filter(due);
        due.map(|waiting| {
            waiting.query_at = now + backoff_after(waiting.attempt);
            waiting.attempt += 1;
            waiting.shard.clone()
        })
        .collect()
    }

    /// Takes out the queries that are ready.
    fn take_ready(
        &mut self,
        now: Instant,
        leader: impl Fn(&S) -> Option<ServerId>,
        is_gone: impl Fn(&S) -> bool,
    ) -> Vec<Arc<OneShot<()>>> {
        let mut taken = Vec::new();
        self.waiting.retain(|_, ShardWaiters { shard, waiters, .. }| {
            let (leader, gone) = (leader(shard), OnceCell::new());
            let is_gone = || *gone.get_or_init(|| is_gone(shard));
            let ready = waiters.extract_if(.., |waiter| waiter.is_ready(now, leader, is_gone));
            taken.extend(ready.map(|waiter| waiter.ready));
            !waiters.is_empty()
        });
        taken
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use std::task::{Context, Waker};

    use super::*;

    fn server(number: u128) -> ServerId {
        ServerId(uuid::Uuid::from_u128(number))
    }

    impl WaitQueue<char> {
        /// How many queries are ready while `leader` leads all shards.
        fn ready(&mut self, now: Instant, leader: Option<u128>) -> usize {
            self.take_ready(now, |_| leader.map(server), |_| false).len()
        }
    }

    fn waiter(failed: u32, asked: Option<ServerId>, now: Instant) -> (Waiter, Arc<OneShot<()>>) {
        let ready = Arc::default();
        (Waiter::new(LookupAttempts { failed, asked, any_replica: false }, now, Arc::clone(&ready)), ready)
    }

    fn is_complete(one: &OneShot<()>) -> bool {
        one.poll(&Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn many_queries_for_one_shard_share_a_lookup() {
        let (mut queue, now) = (WaitQueue::default(), Instant::now());
        let add = |group, shard: char, failed, queue: &mut WaitQueue<char>| {
            queue.add(GroupId(group), &shard, now, waiter(failed, None, now).0)
        };
        let begun = (0..1_000).filter(|_| add(7, 'a', 0, &mut queue)).count();
        assert_eq!(begun, 1, "one search for all of them");
        assert!(!add(8, 'b', 9, &mut queue));
        assert_eq!(queue.ready(now, None), 0, "it would be in vain");
        assert_eq!(queue.ready(now, Some(1)), 1_000);
        assert!(!queue.finish_if_empty(), "whose moment has not come waits on");
        assert_eq!(queue.ready(now + BACKOFF_MAX + NO_LEADER_EXTRA_WAIT, None), 1, "not for ever");
        assert!(queue.finish_if_empty());
        assert!(add(7, 'a', 0, &mut queue), "the next one begins a search anew");
    }

    #[test]
    fn leaders_are_queried_with_a_growing_backoff_per_shard() {
        let (mut queue, now) = (WaitQueue::default(), Instant::now());
        let at = |millis| now + Duration::from_millis(millis);
        queue.add(GroupId(7), &'a', now, waiter(0, None, now).0);
        let mut asked = Vec::new();
        for millis in 0..=1_000 {
            if millis == 450 {
                queue.add(GroupId(8), &'b', at(millis), waiter(0, None, at(millis)).0);
            }
            asked.extend(queue.due_for_query(at(millis), |_| false).into_iter().map(|shard| (shard, millis)));
        }
        let times =
            |of| asked.iter().filter(|(shard, _)| *shard == of).map(|(_, at)| *at).collect::<Vec<_>>();
        assert_eq!(times('a'), [0, 20, 60, 140, 300, 500, 700, 900]);
        assert_eq!(times('b'), [450, 470, 510, 590, 750, 950], "another long search is no concern of it");
        assert_eq!(queue.due_for_query(at(5_000), |_| true), [], "who is known is not asked for");
    }

    #[test]
    fn a_query_continues_soon_if_another_server_leads() {
        let (mut queue, now) = (WaitQueue::default(), Instant::now());
        queue.add(GroupId(7), &'a', now, waiter(9, Some(server(1)), now).0);
        assert_eq!(queue.ready(now + BACKOFF_MAX - BACKOFF_MIN, Some(1)), 0, "that one was asked just now");
        assert_eq!(queue.ready(now, Some(2)), 0, "those two may name each other");
        assert_eq!(queue.ready(now + BACKOFF_MAX / OTHER_LEADER_BACKOFF_DIVISOR, Some(2)), 1);
        queue.add(GroupId(7), &'a', now, waiter(9, Some(server(1)), now).0);
        assert_eq!(queue.ready(now + BACKOFF_MAX, Some(1)), 1, "perhaps it leads by now");
        queue.add(GroupId(7), &'a', now, waiter(9, Some(server(1)), now).0);
        assert_eq!(
            (queue.ready(now, None), queue.ready(now + BACKOFF_MAX / OTHER_LEADER_BACKOFF_DIVISOR, Some(1))),
            (0, 1),
            "elected again"
        );
    }

    #[test]
    fn a_query_for_a_shard_that_is_gone_tries_again() {
        let (mut queue, now) = (WaitQueue::default(), Instant::now());
        queue.add(GroupId(7), &'a', now, waiter(1, None, now).0);
        let mut ready = |at| queue.take_ready(at, |_| None, |_| true).len();
        assert_eq!((ready(now), ready(now + BACKOFF_MIN)), (0, 1));
    }

    #[test]
    fn the_last_query_updates_the_shard() {
        let (mut queue, now) = (WaitQueue::default(), Instant::now());
        queue.add(GroupId(7), &"without a replica here", now, waiter(0, None, now).0);
        queue.add(GroupId(7), &"with one", now, waiter(0, None, now).0);
        let leader = |shard: &&str| (*shard == "with one").then(|| server(1));
        assert_eq!(queue.take_ready(now, leader, |_| false).len(), 2);
    }

    /// The leader of `a` is known, that of `b` is not.
    struct FakeSource<F>(F);

    impl<F: Fn(Vec<char>)> LookupSource<char> for FakeSource<F> {
        fn is_known(&self, shard: &char) -> bool {
            *shard == 'a'
        }

        fn leader(&self, shard: &char) -> Option<ServerId> {
            self.is_known(shard).then(|| server(1))
        }

        fn is_gone(&self, _shard: &char) -> bool {
            false
        }

        fn query_leaders(&self, shards: impl FnOnce() -> Vec<char>) {
            self.0(shards());
        }
    }

    #[test]
    fn queries_with_a_known_leader_do_not_wait_and_a_panic_wakes_all() {
        let (queue, now) = (Mutex::new(WaitQueue::default()), Instant::now());
        let [(one, known), (other, due_for_query)] = [(); 2].map(|()| waiter(0, None, now));
        let (late, comes_late) = waiter(9, None, now + Duration::from_secs(3600));
        queue.lock().add(GroupId(7), &'a', now, one);
        queue.lock().add(GroupId(8), &'b', now, other);
        queue.lock().add(GroupId(8), &'b', now, late);
        let seen = Mutex::new(None);
        let lookup = || {
            run_lookups(
                &queue,
                &FakeSource(|shards| {
                    *seen.lock() = Some((shards, is_complete(&known), is_complete(&due_for_query)));
                    panic!("a search that fails, for this test");
                }),
            );
        };
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(lookup)).unwrap_err();
        assert_eq!(seen.into_inner(), Some((vec!['b'], true, false)), "one was told before the search");
        assert!(
            is_complete(&due_for_query) && is_complete(&comes_late),
            "nobody waits for a search that has ended"
        );
        assert!(
            queue.lock().add(GroupId(8), &'b', now, waiter(0, None, now).0),
            "the next one begins another"
        );
    }

    #[test]
    fn the_backoff_grows_up_to_a_limit() {
        let backoffs: Vec<u128> = (0..8).map(|attempts| backoff_after(attempts).as_millis()).collect();
        assert_eq!(backoffs, [0, 5, 10, 20, 40, 80, 160, 200]);
        assert_eq!(backoff_after(u32::MAX), BACKOFF_MAX);
    }
}
