//! Readers of changefeeds: each follows a table through some node, and continues through any node where it was when its node
//! ended or its feed failed.
//!
//! Every change has the row before it. So the changes of one document form a chain, and a change that is missing, repeated or
//! out of order breaks it.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use cluster::{
    Catalog, Core, FeedEnd, FeedEvent, FeedPosition, GroupId, Interest, Node, Subscriber, Subscription,
};
use datum::{Bytes, KeyRange, Object, PrimaryKey, row};
use io::Nanos;
use io::sim::{Process, SimRandom, Tasks};
use parking_lot::Mutex;

use crate::history::field;
use crate::invariant::{Invariant, Violation};
use crate::machine::Machine;
use crate::trace::trace_line;

/// How often a reader looks for a node while none serves.
const OPEN_INTERVAL: Duration = Duration::from_millis(100);
/// The longest pause before a feed is opened again.
const REOPEN_PAUSE_MAX: Duration = Duration::from_secs(2);

/// Value and counter of a document; `None` if there is no such document.
pub type Content = Option<(u64, u64)>;

/// One reader: its position, and the documents of its table as far as it has received them.
pub struct FeedReader {
    table: String,
    session: Option<(Process, Arc<Session>)>,
    /// When it opens a feed.
    next_at: Nanos,
    /// The position in each group after everything that it has received; `None` before the first feed.
    positions: Option<Vec<(GroupId, FeedPosition)>>,
    /// Whether it knows all documents of the table, and not only those with a change.
    has_all: bool,
    known: BTreeMap<Vec<u8>, Content>,
    /// The changes it has received.
    pub received: u64,
    /// How often a feed had to begin anew, because changes were no longer kept.
    pub gone: u64,
}

/// An open feed, on a thread of its node.
struct Session {
    node: Weak<Node>,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    /// A change that was published before a read on the leader could show it.
    early: Option<String>,
    /// Changes on their way to the reader.
    sent: Vec<Sent>,
    subscription: Option<Arc<Subscription>>,
    ended: Option<FeedEnd>,
    failed: bool,
}

enum Sent {
    Initial { rows: Vec<(Vec<u8>, Content)>, positions: Vec<(GroupId, FeedPosition)> },
    Begun(Vec<(GroupId, FeedPosition)>),
    Change { key: Vec<u8>, old: Content, new: Content, group: GroupId, position: FeedPosition },
    Moved { from: Vec<GroupId>, to: Vec<GroupId> },
}

impl FeedReader {
    #[must_use]
    pub fn new(table: String) -> FeedReader {
        FeedReader {
            table,
            session: None,
            next_at: Nanos::default(),
            positions: None,
            has_all: false,
            known: BTreeMap::new(),
            received: 0,
            gone: 0,
        }
    }

    /// When it has something to do by itself.
    #[must_use]
    pub fn next_at(&self) -> Option<Nanos> {
        self.session.is_none().then_some(self.next_at)
    }

    /// Receives changes, and opens a feed if none is open. Fails if a change does not follow the last one of its document.
    pub fn step(
        &mut self,
        now: Nanos,
        machines: &[Machine],
        tasks: &Tasks,
        random: &SimRandom,
    ) -> Result<(), Violation> {
        let Some((process, session)) = &self.session else {
            if self.next_at <= now {
                self.next_at = now.after(OPEN_INTERVAL);
                self.open(machines, tasks, random);
            }
            return Ok(());
        };
        let lives = machines.iter().any(|m| m.running.as_ref().is_some_and(|l| l.process == *process));
        let (sent, ended, failed) = {
            let mut progress = session.progress.lock();
            if let Some(early) = progress.early.take() {
                return Err(Invariant::Feeds.violated(early));
            }
            (std::mem::take(&mut progress.sent), progress.ended, progress.failed)
        };
        // Changes that a process sent before it ended may be lost. They come again.
        if lives {
            sent.into_iter().try_for_each(|sent| self.receive(sent))?;
        }
        if !lives || failed || ended.is_some() {
            trace_line!("the feed of {} is over: {ended:?}, failed: {failed}", self.table);
            if ended == Some(FeedEnd::Gone) {
                self.begin_anew();
            }
            self.session = None;
            let pause = random.below(REOPEN_PAUSE_MAX.as_micros() as u64);
            self.next_at = now.after(Duration::from_micros(1 + pause));
        }
        Ok(())
    }

    fn begin_anew(&mut self) {
        self.gone += 1;
        (self.positions, self.has_all) = (None, false);
        self.known.clear();
    }

    fn open(&mut self, machines: &[Machine], tasks: &Tasks, random: &SimRandom) {
        let serving: Vec<&Machine> = machines.iter().filter(|machine| machine.node().is_some()).collect();
        if serving.is_empty() {
            return;
        }
        let machine = serving[random.below(serving.len() as u64) as usize];
        let Some(running) = &machine.running else { return };
        let Some(node) = running.node.as_ref().map(Arc::downgrade) else { return };
        trace_line!("a feed of {} opens on node {}", self.table, machine.plan.number);
        let session = Arc::new(Session { node: node.clone(), progress: Mutex::default() });
        let (table, positions, slot) = (self.table.clone(), self.positions.clone(), session.clone());
        let with_initial = random.one_in(2);
        tasks.within(running.process, || {
            let work = move || {
                let Some(node) = node.upgrade() else { return };
                if begin(&node, &table, positions, with_initial, &slot).is_none() {
                    slot.progress.lock().failed = true;
                }
            };
            drop(io::task::spawn("feed", work));
        });
        self.session = Some((running.process, session));
    }

    fn receive(&mut self, sent: Sent) -> Result<(), Violation> {
        match sent {
            Sent::Begun(positions) => self.positions = Some(positions),
            Sent::Initial { rows, positions } => {
                (self.positions, self.has_all) = (Some(positions), true);
                self.known = rows.into_iter().collect();
            }
            Sent::Moved { from, to } => {
                let positions = self.positions.get_or_insert_default();
                positions.retain(|(group, _)| !from.contains(group));
                positions.extend(to.into_iter().map(|group| (group, FeedPosition::default())));
            }
            Sent::Change { key, old, new, group, position } => {
                self.received += 1;
                let known = match self.known.get(&key) {
                    Some(known) => *known,
                    None if self.has_all => None,
                    None => old,
                };
                if known != old || old == new {
                    return Err(Invariant::Feeds.violated(format!(
                        "a feed of {} at {known:?} received a change from {old:?} to {new:?} at {position:?} of group {group}",
                        self.table
                    )));
                }
                self.known.insert(key, new);
                let positions = self.positions.get_or_insert_default();
                if let Some((_, known)) = positions.iter_mut().find(|(known, _)| *known == group) {
                    *known = position;
                }
            }
        }
        Ok(())
    }

    /// The first difference between the rows that the reader has and the rows of its table; `None` if they are equal.
    #[must_use]
    pub fn difference(&self, rows: &BTreeMap<Vec<u8>, Content>) -> Option<String> {
        if self.session.is_none() {
            return Some(format!("the feed of {} is not open", self.table));
        }
        let present = |key: &Vec<u8>| rows.get(key).copied().flatten();
        let wrong = self.known.iter().find(|(key, known)| present(key) != **known);
        let missing = rows.keys().find(|key| self.has_all && !self.known.contains_key(*key));
        match (wrong, missing) {
            (Some((key, known)), _) => {
                Some(format!("a feed of {} ends at {known:?}, the row is {:?}", self.table, present(key)))
            }
            (None, Some(key)) => Some(format!("a feed of {} lacks the row {:?}", self.table, present(key))),
            (None, None) => None,
        }
    }

    #[must_use]
    pub fn table(&self) -> &str {
        &self.table
    }
}

/// Opens a feed on a thread of a node; `None` if that fails.
fn begin(
    node: &Core,
    table: &str,
    positions: Option<Vec<(GroupId, FeedPosition)>>,
    with_initial: bool,
    session: &Arc<Session>,
) -> Option<()> {
    let table = node.catalog().table("test", table)?.clone();
    let (feeds, interest) = (node.feeds(), Interest::Range(KeyRange::all()));
    let begun = feeds.start(&table, &interest).ok()?;
    let starts = match &positions {
        None => begun,
        Some(positions) => match feeds.resume(&table, &interest, positions) {
            Some(starts) => starts,
            None => {
                session.progress.lock().ended = Some(FeedEnd::Gone);
                return Some(());
            }
        },
    };
    let at: Vec<(GroupId, FeedPosition)> = starts.iter().map(|start| (start.group, start.position)).collect();
    if positions.is_none() && with_initial {
        let mut rows = Vec::new();
        for start in &starts {
            let mut after: Option<PrimaryKey> = None;
            loop {
                let found = feeds.initial_rows(table.config.id, &interest, start, after.as_ref()).ok()?;
                rows.extend(
                    found.rows.iter().map(|(key, row)| (key.as_bytes().to_vec(), content(row.as_ref()))),
                );
                after = found.reach;
                if after.is_none() {
                    break;
                }
            }
        }
        session.progress.lock().sent.push(Sent::Initial { rows, positions: at });
    } else if positions.is_none() {
        session.progress.lock().sent.push(Sent::Begun(at));
    }
    let subscription = feeds.subscribe(table.config.id, interest, starts, session.clone());
    session.progress.lock().subscription = Some(subscription);
    Some(())
}

/// Value and counter of a row.
#[must_use]
pub fn content(row: Option<&Object>) -> Content {
    row.map(|row| (field(Some(row), "value"), field(Some(row), "count")))
}

fn stored_content(stored: Option<&Bytes>) -> Content {
    content(stored.and_then(|stored| row::decode(stored.clone()).ok()).as_ref())
}

impl Subscriber for Session {
    fn changed(&self, event: FeedEvent<'_>) {
        let FeedEvent { group, position, row, .. } = event;
        let (old, new) = (stored_content(row.old.as_ref()), stored_content(row.new.as_ref()));
        let key = row.key.as_bytes().to_vec();
        let leader = self.node.upgrade().and_then(|node| node.shard_of(group)).filter(|shard| shard.leads());
        let shown = leader.and_then(|leader| leader.history_end());
        if let Some(shown) = shown.filter(|shown| shown.lsn < position.entry.lsn) {
            let early = format!("a change at {position:?} was published when the leader showed {shown:?}");
            self.progress.lock().early.get_or_insert(early);
        }
        self.progress.lock().sent.push(Sent::Change { key, old, new, group, position });
    }

    fn moved(&self, from: &[GroupId], to: &[GroupId]) {
        self.progress.lock().sent.push(Sent::Moved { from: from.to_vec(), to: to.to_vec() });
    }

    fn has_room(&self) -> bool {
        true
    }

    fn catalog_changed(&self, _catalog: &Catalog) {}

    fn ended(&self, why: FeedEnd) {
        self.progress.lock().ended = Some(why);
    }
}
