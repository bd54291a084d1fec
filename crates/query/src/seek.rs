//! Looking for who leads a shard, once for all queries about one row that wait for it.
//!
//! A query that waits keeps no thread, and asks nobody: one thread of the node looks for all of them, and
//! another asks who leads their shards. A thousand clients whose shard is between two leaders cost hardly more
//! than one, so that the servers still have the time to elect one.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cluster::{GroupId, Node, ServerId, ShardHandle, TableHandle};
use parking_lot::Mutex;
use storage::TableId;

use crate::links::OneShot;
use crate::lost::Lost;
use crate::pool::ScanPool;

/// The first and the longest pause between two looks.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// Of its pause one waits this part when another leader is known than the one that was asked: not none of it, since two
/// servers may name each other for a while.
const PAUSE_PART: u32 = 8;
/// So much longer everybody waits while nobody is known to lead.
const VAIN: Duration = Duration::from_secs(1);
/// A table is not searched again before it is so long ago that it was.
const AGAIN: Duration = Duration::from_millis(100);
/// Who leads is asked for anew after this pause of [`pause_after`] and those that follow it: an election takes longer
/// than the first ones.
const FIRST_PAUSE: u32 = 3;

/// How long one waits before looking once more, after so many looks in vain.
pub(crate) fn pause_after(looks: u32) -> Duration {
    match looks {
        0 => Duration::ZERO,
        looks => (PAUSE_MIN * (1 << (looks - 1).min(10))).min(PAUSE_MAX),
    }
}

/// Who waits for the leaders of which shards on a node, and what has been looked for lately.
pub(crate) struct Seeks {
    node: Arc<Node>,
    /// One thread, which tells those who wait.
    searching: ScanPool,
    /// One thread, which asks other servers.
    asking: ScanPool,
    /// Whether that thread has shards to ask for.
    is_asking: Arc<AtomicBool>,
    line: Mutex<Line<ShardHandle>>,
    tables: Mutex<BTreeMap<TableId, Instant>>,
    /// What was looked for in vain.
    pub lost: Lost,
}

/// How a row has been looked for so far.
#[derive(Clone, Copy)]
pub(crate) struct Looks {
    /// How often in vain.
    pub failed: u32,
    /// Who was asked last.
    pub asked: Option<ServerId>,
    /// Whether a replica that does not lead has it as well.
    pub any_will_do: bool,
}

impl Seeks {
    /// Nobody waits yet.
    pub fn new(node: Arc<Node>) -> Arc<Seeks> {
        Arc::new(Seeks {
            node,
            searching: ScanPool::new("leaders", 1),
            asking: ScanPool::new("who-leads", 1),
            is_asking: Arc::default(),
            line: Mutex::default(),
            tables: Mutex::default(),
            lost: Lost::default(),
        })
    }

    /// Tells when it is worth asking for a row of `shard` once more: the first time at once, when a leader is known or
    /// the log hears of it or any replica will do; then after [`pause_after`] so many looks, a part of that if another
    /// is known to lead than the one that was asked, and a second longer while nobody is.
    pub fn wait(self: &Arc<Self>, shard: &ShardHandle, looks: Looks) -> Arc<OneShot<()>> {
        let ready = Arc::<OneShot<()>>::default();
        if looks.failed == 0 && (looks.any_will_do || is_known(shard)) {
            ready.tell(());
            return ready;
        }
        let now = Instant::now();
        let waiter = Waiter::new(looks, now, ready.clone());
        let is_first = self.line.lock().join(shard.group(), shard, now, waiter);
        if is_first {
            let seeks = self.clone();
            self.searching.run(move || search_in(&seeks.line, &seeks));
        }
        ready
    }

    /// Looks for the leaders of all shards of `table` that are elsewhere, unless somebody has done that just
    /// now.
    pub fn search_table(&self, table: &TableHandle) {
        let (id, now) = (table.config.id, Instant::now());
        {
            let mut tables = self.tables.lock();
            tables.retain(|_, searched| now.duration_since(*searched) < AGAIN);
            if tables.contains_key(&id) {
                return;
            }
            tables.insert(id, now);
        }
        self.node.find_leaders(&table.shards().iter().collect::<Vec<_>>());
    }
}

/// What a search asks of the node.
trait Sight<S> {
    /// Whether the leader need not be asked for.
    fn is_known(&self, shard: &S) -> bool;

    /// Who leads it, if that is known.
    fn leader(&self, shard: &S) -> Option<ServerId>;

    /// Whether its rows belong to other shards now.
    fn is_gone(&self, shard: &S) -> bool;

    /// Has it asked who leads those, which takes seconds if a server hangs; nothing while it is being asked of others.
    fn find(&self, shards: impl FnOnce() -> Vec<S>);
}

impl Sight<ShardHandle> for Arc<Seeks> {
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

    fn find(&self, shards: impl FnOnce() -> Vec<ShardHandle>) {
        if self.is_asking.load(Ordering::Acquire) {
            return;
        }
        let shards = shards();
        if shards.is_empty() {
            return;
        }
        self.is_asking.store(true, Ordering::Release);
        let (seeks, asked) = (self.clone(), Asked(self.is_asking.clone()));
        self.asking.run(move || {
            let _asked = asked;
            seeks.node.find_leaders(&shards.iter().collect::<Vec<_>>());
        });
    }
}

/// Others may be asked for, whatever became of those that were.
struct Asked(Arc<AtomicBool>);

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Looks for leaders until nobody waits for one.
fn search_in<S: Clone>(line: &Mutex<Line<S>>, sight: &impl Sight<S>) {
    let _if_it_panics = TellAll(line);
    loop {
        let now = Instant::now();
        let ready = {
            let mut line = line.lock();
            if line.is_over() {
                return;
            }
            line.take_ready(now, |shard| sight.leader(shard), |shard| sight.is_gone(shard))
        };
        ready.into_iter().for_each(|one| one.tell(()));
        sight.find(|| line.lock().unknown(now, |shard| sight.is_known(shard)));
        std::thread::sleep(PAUSE_MIN);
    }
}

/// Nobody may wait for a search that a panic has ended.
struct TellAll<'a, S>(&'a Mutex<Line<S>>);

impl<S> Drop for TellAll<'_, S> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let left = std::mem::take(&mut *self.0.lock());
            left.waiting.into_values().flat_map(|waiting| waiting.waiters).for_each(|one| one.ready.tell(()));
        }
    }
}

/// Whether the leader need not be asked for: it is known, or comes to the replica that is here.
fn is_known(shard: &ShardHandle) -> bool {
    shard.hears() || shard.leader().is_some()
}

/// Who waits for which shard, each until a moment of its own.
struct Line<S> {
    waiting: BTreeMap<GroupId, Waiting<S>>,
    is_searched: bool,
}

struct Waiting<S> {
    shard: S,
    waiters: Vec<Waiter>,
    /// When it is to be asked who leads, and the pause after that.
    look_at: Instant,
    pause: u32,
}

/// One query.
struct Waiter {
    asked: Option<ServerId>,
    /// When it goes on if somebody is known to lead, and when if that is another than who was asked.
    at: Instant,
    soon: Instant,
    ready: Arc<OneShot<()>>,
}

impl Waiter {
    fn new(looks: Looks, now: Instant, ready: Arc<OneShot<()>>) -> Waiter {
        let pause = pause_after(looks.failed);
        Waiter { asked: looks.asked, at: now + pause, soon: now + pause / PAUSE_PART, ready }
    }

    fn is_ready(&mut self, now: Instant, leader: Option<ServerId>, is_gone: impl Fn() -> bool) -> bool {
        match leader {
            Some(_) if leader != self.asked => self.soon <= now,
            Some(_) => self.at <= now,
            None => {
                // Whoever leads next was elected anew.
                self.asked = None;
                self.at <= now && (self.at + VAIN <= now || is_gone())
            }
        }
    }
}

impl<S> Default for Line<S> {
    fn default() -> Line<S> {
        Line { waiting: BTreeMap::new(), is_searched: false }
    }
}

impl<S: Clone> Line<S> {
    /// Takes one more in. Whether a search must begin.
    fn join(&mut self, group: GroupId, shard: &S, now: Instant, waiter: Waiter) -> bool {
        let waiting = self.waiting.entry(group).or_insert_with(|| Waiting {
            shard: shard.clone(),
            waiters: Vec::new(),
            look_at: now,
            pause: FIRST_PAUSE,
        });
        // Whoever comes last has the newest catalog: a replica may have come here since the first one did.
        waiting.shard = shard.clone();
        waiting.waiters.push(waiter);
        !std::mem::replace(&mut self.is_searched, true)
    }

    /// Whether nobody waits: the search is over then.
    fn is_over(&mut self) -> bool {
        self.is_searched = !self.waiting.is_empty();
        !self.is_searched
    }

    /// The shards whose leader is to be asked for now.
    fn unknown(&mut self, now: Instant, is_known: impl Fn(&S) -> bool) -> Vec<S> {
        let due = |waiting: &&mut Waiting<S>| waiting.look_at <= now && !is_known(&waiting.shard);
        let due = self.waiting.values_mut().filter(due);
        due.map(|waiting| {
            waiting.look_at = now + pause_after(waiting.pause);
            waiting.pause += 1;
            waiting.shard.clone()
        })
        .collect()
    }

    /// Those whose moment has come.
    fn take_ready(
        &mut self,
        now: Instant,
        leader: impl Fn(&S) -> Option<ServerId>,
        is_gone: impl Fn(&S) -> bool,
    ) -> Vec<Arc<OneShot<()>>> {
        let mut taken = Vec::new();
        self.waiting.retain(|_, Waiting { shard, waiters, .. }| {
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

    impl Line<char> {
        /// Who is ready while `leader` leads all of them.
        fn ready(&mut self, now: Instant, leader: Option<u128>) -> usize {
            self.take_ready(now, |_| leader.map(server), |_| false).len()
        }
    }

    fn waiter(failed: u32, asked: Option<ServerId>, now: Instant) -> (Waiter, Arc<OneShot<()>>) {
        let ready = Arc::default();
        (Waiter::new(Looks { failed, asked, any_will_do: false }, now, Arc::clone(&ready)), ready)
    }

    fn is_told(one: &OneShot<()>) -> bool {
        one.poll(&Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn many_who_wait_for_one_shard_have_it_searched_once() {
        let (mut line, now) = (Line::default(), Instant::now());
        let join = |group, shard: char, failed, line: &mut Line<char>| {
            line.join(GroupId(group), &shard, now, waiter(failed, None, now).0)
        };
        let begun = (0..1_000).filter(|_| join(7, 'a', 0, &mut line)).count();
        assert_eq!(begun, 1, "one search for all of them");
        assert!(!join(8, 'b', 9, &mut line));
        assert_eq!(line.ready(now, None), 0, "it would be in vain");
        assert_eq!(line.ready(now, Some(1)), 1_000);
        assert!(!line.is_over(), "whose moment has not come waits on");
        assert_eq!(line.ready(now + PAUSE_MAX + VAIN, None), 1, "not for ever");
        assert!(line.is_over());
        assert!(join(7, 'a', 0, &mut line), "the next one begins a search anew");
    }

    #[test]
    fn who_leads_is_asked_less_and_less_often_of_each_shard_by_itself() {
        let (mut line, now) = (Line::default(), Instant::now());
        let at = |millis| now + Duration::from_millis(millis);
        line.join(GroupId(7), &'a', now, waiter(0, None, now).0);
        let mut asked = Vec::new();
        for millis in 0..=1_000 {
            if millis == 450 {
                line.join(GroupId(8), &'b', at(millis), waiter(0, None, at(millis)).0);
            }
            asked.extend(line.unknown(at(millis), |_| false).into_iter().map(|shard| (shard, millis)));
        }
        let times =
            |of| asked.iter().filter(|(shard, _)| *shard == of).map(|(_, at)| *at).collect::<Vec<_>>();
        assert_eq!(times('a'), [0, 20, 60, 140, 300, 500, 700, 900]);
        assert_eq!(times('b'), [450, 470, 510, 590, 750, 950], "another long search is no concern of it");
        assert_eq!(line.unknown(at(5_000), |_| true), [], "who is known is not asked for");
    }

    #[test]
    fn whoever_asked_another_than_who_leads_goes_on_soon() {
        let (mut line, now) = (Line::default(), Instant::now());
        line.join(GroupId(7), &'a', now, waiter(9, Some(server(1)), now).0);
        assert_eq!(line.ready(now + PAUSE_MAX - PAUSE_MIN, Some(1)), 0, "that one was asked just now");
        assert_eq!(line.ready(now, Some(2)), 0, "those two may name each other");
        assert_eq!(line.ready(now + PAUSE_MAX / PAUSE_PART, Some(2)), 1);
        line.join(GroupId(7), &'a', now, waiter(9, Some(server(1)), now).0);
        assert_eq!(line.ready(now + PAUSE_MAX, Some(1)), 1, "perhaps it leads by now");
        line.join(GroupId(7), &'a', now, waiter(9, Some(server(1)), now).0);
        assert_eq!(
            (line.ready(now, None), line.ready(now + PAUSE_MAX / PAUSE_PART, Some(1))),
            (0, 1),
            "elected again"
        );
    }

    #[test]
    fn whoever_waits_for_a_shard_that_is_gone_looks_where_its_rows_are_now() {
        let (mut line, now) = (Line::default(), Instant::now());
        line.join(GroupId(7), &'a', now, waiter(1, None, now).0);
        let mut ready = |at| line.take_ready(at, |_| None, |_| true).len();
        assert_eq!((ready(now), ready(now + PAUSE_MIN)), (0, 1));
    }

    #[test]
    fn whoever_comes_last_tells_how_the_shard_is_now() {
        let (mut line, now) = (Line::default(), Instant::now());
        line.join(GroupId(7), &"without a replica here", now, waiter(0, None, now).0);
        line.join(GroupId(7), &"with one", now, waiter(0, None, now).0);
        let leader = |shard: &&str| (*shard == "with one").then(|| server(1));
        assert_eq!(line.take_ready(now, leader, |_| false).len(), 2);
    }

    /// The leader of `a` is known, that of `b` is looked for.
    struct Looking<F>(F);

    impl<F: Fn(Vec<char>)> Sight<char> for Looking<F> {
        fn is_known(&self, shard: &char) -> bool {
            *shard == 'a'
        }

        fn leader(&self, shard: &char) -> Option<ServerId> {
            self.is_known(shard).then(|| server(1))
        }

        fn is_gone(&self, _shard: &char) -> bool {
            false
        }

        fn find(&self, shards: impl FnOnce() -> Vec<char>) {
            self.0(shards());
        }
    }

    #[test]
    fn those_whose_leader_is_known_do_not_wait_for_the_search_and_its_panic_leaves_nobody_waiting() {
        let (line, now) = (Mutex::new(Line::default()), Instant::now());
        let [(one, known), (other, unknown)] = [(); 2].map(|()| waiter(0, None, now));
        let (late, comes_late) = waiter(9, None, now + Duration::from_secs(3600));
        line.lock().join(GroupId(7), &'a', now, one);
        line.lock().join(GroupId(8), &'b', now, other);
        line.lock().join(GroupId(8), &'b', now, late);
        let seen = Mutex::new(None);
        let search = || {
            search_in(
                &line,
                &Looking(|shards| {
                    *seen.lock() = Some((shards, is_told(&known), is_told(&unknown)));
                    panic!("a search that fails, for this test");
                }),
            );
        };
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(search)).unwrap_err();
        assert_eq!(seen.into_inner(), Some((vec!['b'], true, false)), "one was told before the search");
        assert!(is_told(&unknown) && is_told(&comes_late), "nobody waits for a search that has ended");
        assert!(
            line.lock().join(GroupId(8), &'b', now, waiter(0, None, now).0),
            "the next one begins another"
        );
    }

    #[test]
    fn pauses_grow_and_do_not_grow_for_ever() {
        let pauses: Vec<u128> = (0..8).map(|looks| pause_after(looks).as_millis()).collect();
        assert_eq!(pauses, [0, 5, 10, 20, 40, 80, 160, 200]);
        assert_eq!(pause_after(u32::MAX), PAUSE_MAX);
    }
}
