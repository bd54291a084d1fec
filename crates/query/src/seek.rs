//! Looking for who leads a shard, once for all queries about one row that wait for it.
//!
//! A query that waits keeps no thread, and asks nobody: one thread of the node looks for all of them. A
//! thousand clients whose shard is between two leaders cost hardly more than one, so that the servers
//! still have the time to elect one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::{GroupId, Node, ShardHandle, TableHandle};
use parking_lot::Mutex;
use storage::TableId;

use crate::links::OneShot;
use crate::lost::Lost;
use crate::pool::ScanPool;

/// The first and the longest pause between two looks.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// So much longer everybody waits while nobody is known to lead.
const VAIN: Duration = Duration::from_secs(1);
/// A table is not searched again before it is so long ago that it was.
const AGAIN: Duration = Duration::from_millis(100);

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
    /// One thread.
    searching: ScanPool,
    line: Mutex<Line<ShardHandle>>,
    tables: Mutex<BTreeMap<TableId, Instant>>,
    /// What was looked for in vain.
    pub lost: Lost,
}

impl Seeks {
    /// Nobody waits yet.
    pub fn new(node: Arc<Node>) -> Arc<Seeks> {
        let searching = ScanPool::new("leaders", 1);
        Arc::new(Seeks {
            node,
            searching,
            line: Mutex::default(),
            tables: Mutex::default(),
            lost: Lost::default(),
        })
    }

    /// Tells when it is worth asking for a row of `shard` once more, after `looks` looks in vain: soon when a
    /// leader is known or any replica will do, and now and then when none is.
    pub fn wait(self: &Arc<Self>, shard: &ShardHandle, looks: u32, any_will_do: bool) -> Arc<OneShot<()>> {
        let ready = Arc::<OneShot<()>>::default();
        if looks == 0 && (any_will_do || is_known(shard)) {
            ready.tell(());
            return ready;
        }
        let at = Instant::now() + pause_after(looks);
        let is_first = self.line.lock().join(shard.group(), shard, at, ready.clone());
        if is_first {
            let seeks = self.clone();
            self.searching.run(move || seeks.search());
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

    /// Looks for leaders until nobody waits for one.
    fn search(&self) {
        search_in(&self.line, self);
    }
}

/// What a search asks of the node.
trait Sight<S> {
    /// Whether the leader need not be asked for.
    fn is_known(&self, shard: &S) -> bool;

    /// Whether somebody is known to lead, or the rows of the shard belong to others now.
    fn is_worth_a_try(&self, shard: &S) -> bool;

    /// Asks who leads those. May take seconds.
    fn find(&self, shards: &[&S]);
}

impl Sight<ShardHandle> for Seeks {
    fn is_known(&self, shard: &ShardHandle) -> bool {
        is_known(shard)
    }

    fn find(&self, shards: &[&ShardHandle]) {
        self.node.find_leaders(shards);
    }

    fn is_worth_a_try(&self, shard: &ShardHandle) -> bool {
        let is_known =
            |table: &Arc<TableHandle>| table.shards().iter().any(|known| known.group() == shard.group());
        shard.leader().is_some()
            || !self.node.catalog_guard().table_by_id(shard.table()).is_some_and(is_known)
    }
}

fn search_in<S: Clone>(line: &Mutex<Line<S>>, sight: &impl Sight<S>) {
    let _if_it_panics = TellAll(line);
    let tell_ready = || {
        let ready = line.lock().take_ready(Instant::now(), |shard| sight.is_worth_a_try(shard));
        ready.into_iter().for_each(|one| one.tell(()));
    };
    // An election takes longer than the first pauses.
    let mut looks = 3;
    loop {
        let wanted = line.lock().shards();
        let Some(shards) = wanted else { return };
        let unknown: Vec<&S> = shards.iter().filter(|shard| !sight.is_known(shard)).collect();
        // To look may take seconds, which are no concern of those whose leader is known.
        tell_ready();
        if !unknown.is_empty() {
            sight.find(&unknown);
            tell_ready();
        }
        std::thread::sleep(pause_after(looks));
        looks += 1;
    }
}

/// Nobody may wait for a search that a panic has ended.
struct TellAll<'a, S>(&'a Mutex<Line<S>>);

impl<S> Drop for TellAll<'_, S> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let left = std::mem::take(&mut *self.0.lock());
            left.waiting.into_values().flat_map(|waiting| waiting.ready).for_each(|(_, one)| one.tell(()));
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
    ready: Vec<(Instant, Arc<OneShot<()>>)>,
}

impl<S> Default for Line<S> {
    fn default() -> Line<S> {
        Line { waiting: BTreeMap::new(), is_searched: false }
    }
}

impl<S: Clone> Line<S> {
    /// Takes one more in, until `at`. Whether a search must begin.
    fn join(&mut self, group: GroupId, shard: &S, at: Instant, ready: Arc<OneShot<()>>) -> bool {
        let waiting = self.waiting.entry(group);
        let waiting = waiting.or_insert_with(|| Waiting { shard: shard.clone(), ready: Vec::new() });
        // Whoever comes last has the newest catalog: a replica may have come here since the first one did.
        waiting.shard = shard.clone();
        waiting.ready.push((at, ready));
        !std::mem::replace(&mut self.is_searched, true)
    }

    /// The shards that somebody waits for; `None`, and the search is over, when nobody does.
    fn shards(&mut self) -> Option<Vec<S>> {
        if self.waiting.is_empty() {
            self.is_searched = false;
            return None;
        }
        Some(self.waiting.values().map(|waiting| waiting.shard.clone()).collect())
    }

    /// Those whose moment has come, if their shard is worth a try; otherwise those who have waited for longer.
    fn take_ready(&mut self, now: Instant, is_worth_a_try: impl Fn(&S) -> bool) -> Vec<Arc<OneShot<()>>> {
        let mut taken = Vec::new();
        self.waiting.retain(|_, waiting| {
            let more = if is_worth_a_try(&waiting.shard) { Duration::ZERO } else { VAIN };
            let ready = waiting.ready.extract_if(.., |(at, _)| *at + more <= now);
            taken.extend(ready.map(|(_, ready)| ready));
            !waiting.ready.is_empty()
        });
        taken
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn many_who_wait_for_one_shard_have_it_searched_once() {
        let (mut line, now) = (Line::default(), Instant::now());
        let begun = (0..1_000).filter(|_| line.join(GroupId(7), &'a', now, Arc::default())).count();
        assert_eq!(begun, 1, "one search for all of them");
        assert!(!line.join(GroupId(8), &'b', now + PAUSE_MAX, Arc::default()));
        assert_eq!(line.shards(), Some(vec!['a', 'b']));
        assert_eq!(line.take_ready(now, |_| false).len(), 0, "it would be in vain");
        assert_eq!(line.take_ready(now, |_| true).len(), 1_000);
        assert_eq!(line.shards(), Some(vec!['b']), "whose moment has not come waits on");
        assert_eq!(line.take_ready(now + PAUSE_MAX + VAIN, |_| false).len(), 1, "not for ever");
        assert_eq!(line.shards(), None);
        assert!(line.join(GroupId(7), &'a', now, Arc::default()), "the next one begins a search anew");
    }

    fn is_told(one: &OneShot<()>) -> bool {
        one.poll(&Context::from_waker(Waker::noop())).is_ready()
    }

    /// The leader of `a` is known, that of `b` is looked for.
    struct Looking<F>(F);

    impl<F: Fn()> Sight<char> for Looking<F> {
        fn is_known(&self, shard: &char) -> bool {
            *shard == 'a'
        }

        fn is_worth_a_try(&self, shard: &char) -> bool {
            *shard == 'a'
        }

        fn find(&self, shards: &[&char]) {
            assert_eq!(shards, [&'b']);
            (self.0)();
        }
    }

    #[test]
    fn whoever_comes_last_tells_how_the_shard_is_now() {
        let (mut line, now) = (Line::default(), Instant::now());
        line.join(GroupId(7), &"without a replica here", now, Arc::default());
        line.join(GroupId(7), &"with one", now, Arc::default());
        assert_eq!(line.shards(), Some(vec!["with one"]));
        assert_eq!(line.take_ready(now, |shard| *shard == "with one").len(), 2);
    }

    #[test]
    fn those_whose_leader_is_known_do_not_wait_for_the_search_and_its_panic_ends_no_wait() {
        let (line, now) = (Mutex::new(Line::default()), Instant::now());
        let [known, unknown, late] = [(); 3].map(|()| Arc::<OneShot<()>>::default());
        line.lock().join(GroupId(7), &'a', now, known.clone());
        line.lock().join(GroupId(8), &'b', now, unknown.clone());
        line.lock().join(GroupId(8), &'b', now + Duration::from_secs(3600), late.clone());
        let seen = Mutex::new(None);
        let search = || {
            search_in(
                &line,
                &Looking(|| {
                    *seen.lock() = Some((is_told(&known), is_told(&unknown)));
                    panic!("a search that fails, for this test");
                }),
            );
        };
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(search)).unwrap_err();
        assert_eq!(*seen.lock(), Some((true, false)), "one was told before the search, one was not");
        assert!(is_told(&unknown) && is_told(&late), "nobody waits for a search that has ended");
        assert!(line.lock().join(GroupId(8), &'b', now, Arc::default()), "the next one begins another");
    }

    #[test]
    fn pauses_grow_and_do_not_grow_for_ever() {
        let pauses: Vec<u128> = (0..8).map(|looks| pause_after(looks).as_millis()).collect();
        assert_eq!(pauses, [0, 5, 10, 20, 40, 80, 160, 200]);
        assert_eq!(pause_after(u32::MAX), PAUSE_MAX);
    }
}
